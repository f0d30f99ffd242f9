"""The store for new Python programs: a mapping of keys to bytes, shared by all clients. It raises mooncake.errors."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional, TypeVar, Union, cast, overload

from .._errors import MooncakeError, error_for
from .._native import Unique, c_string, check, deadline, ffi, lib, nanoseconds, new_error, read_text
from ..engine import Engine
from ..engine._memory import Buffer, Memory, Span, span_of
from ..engine._options import engine_options
from . import _calls
from ._keys import Key, key_bytes, keys_bytes
from ._options import PathType, Size, mount, open_store, parse_size, put_options

__all__ = ["Registration", "Store", "connect"]

_NOT_FOUND: int = lib.MC_ERR_NOT_FOUND
_EXISTS: int = lib.MC_ERR_ALREADY_EXISTS
_CLOSED: int = lib.MC_ERR_CLOSED
_PAGE = 4096

_T = TypeVar("_T")


def connect(
    url: Optional[str] = None,
    *,
    segment_size: Optional[Size] = None,
    name: Optional[str] = None,
    timeout: Optional[float] = None,
    view_bytes: Optional[Size] = None,
    verify: bool = False,
    tenant: Optional[str] = None,
    engine: Optional[Engine] = None,
    listen: Optional[str] = None,
    advertise: Optional[str] = None,
    protocol: Optional[str] = None,
    key_file: Optional[str] = None,
    connect_timeout: Optional[float] = None,
    lanes: int = 0,
    checksum: bool = False,
) -> Store:
    """Opens a store.

    url: "host:port" or "mooncake://host:port" of the master; None: the master is in this process, and others may name
    Store.address as theirs. segment_size: memory of this process that joins the pool, in bytes or like "4GiB"; default
    none, or 256 MiB with the master inside. name: of that memory, for `prefer`; default the address. timeout: seconds
    that a call may take which says nothing else; default 30. view_bytes: how much may be viewed at a time; default 4
    GiB. verify: compares checksums also where memory is mapped (over networks they always are). tenant: a
    name whose keys are apart from those of all other names, and of stores without one. engine: an Engine to
    share, which is closed after the store; the rest opens one, as it does in mooncake.engine.Engine.

    errors.Unreachable if no master answers within 3 s; errors.Address; errors.NoMemory; and what Engine raises.
    """
    master = url
    if url is not None and "://" in url:
        scheme, _, master = url.partition("://")
        if scheme != "mooncake":
            raise ValueError(f"url must be host:port or mooncake://host:port, not {url!r}")
        master = master.rstrip("/")
    options, texts = engine_options(listen, advertise, protocol, key_file, connect_timeout, lanes, 0, checksum)
    if engine is not None and (lanes or checksum or any((listen, advertise, protocol, key_file, connect_timeout))):
        raise TypeError("an engine that is shared has its options already")
    handle = open_store(
        master,
        name,
        0 if segment_size is None else parse_size(segment_size, "segment_size"),
        timeout,
        0 if view_bytes is None else parse_size(view_bytes, "view_bytes"),
        verify,
        ffi.NULL if engine is None else engine.handle,
        options if engine is None else ffi.NULL,
        tenant,
    )
    del texts
    return Store(handle, engine)


class Registration:
    """Memory that transfers reach without a copy, from Store.register. As a context manager it ends with the block."""

    __slots__ = ("_keep", "_store", "address", "length")

    def __init__(self, store: Store, address: int, length: int, keep: Any) -> None:
        self._store: Optional[Store] = store
        self._keep: Any = keep
        self.address = address
        self.length = length

    def unregister(self) -> None:
        """A second call does nothing. errors.Busy, with the memory still registered, if transfers on it don't end
        within a second."""
        store = self._store
        if store is not None:
            store.unregister_range(self.address)
            self._store = self._keep = None

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *exception: object) -> None:
        self.unregister()


class Store(Unique):
    """A client of the pool, made by connect(); safe to use from many threads.

    Keys are str (their UTF-8) or bytes, 1 to 4096 bytes of any value; iteration yields bytes. Values are anything with
    a contiguous buffer; reading gives bytes, or fills a buffer of the caller, or views the value where it is. `in`,
    `[]`, `del` and iteration work as with a dict; there is no len(), which would list every key.

    timeout: seconds, None is the store's own. A call that names one key raises errors.NotFound (a KeyError) for a
    missing one, and put() errors.AlreadyExists; get() and the forms for many keys report these in their results. For
    any other failure those raise the exception of the first item that failed, whose `results` has what became of each
    item, exceptions included.
    """

    __slots__ = ("__weakref__", "_engine", "_handle")

    def __init__(self, handle: Any, engine: Optional[Engine] = None) -> None:
        self._handle: Any = handle
        self._engine = engine  # outlives the store

    # ---- One object

    def put(
        self,
        key: Key,
        value: Buffer,
        *,
        replicas: int = 1,
        soft_pin: bool = False,
        hard_pin: bool = False,
        prefer: Iterable[str] = (),
        timeout: Optional[float] = None,
        replace: bool = False,
    ) -> None:
        """Stores a value. Without `replace` an existing one stays, and it is errors.AlreadyExists.

        replicas: copies in different segments, as many as there are; soft_pin: evicted last; hard_pin: never evicted;
        prefer: names of segments, best first. errors.NoSpace if none came free within the timeout,
        errors.Indeterminate if the master didn't answer in time.
        """
        raw = key_bytes(key)
        options, _keep = put_options(replicas, soft_pin, hard_pin, prefer, timeout)
        data, length = _source(value)
        call, error = (lib.mc_store_upsert if replace else lib.mc_store_put), new_error()
        status = call(self._handle, raw, len(raw), data, length, options, error)
        if status < 0:
            raise self._error(status, error)

    def upsert(
        self,
        key: Key,
        value: Buffer,
        *,
        replicas: int = 1,
        soft_pin: bool = False,
        hard_pin: bool = False,
        prefer: Iterable[str] = (),
        timeout: Optional[float] = None,
    ) -> None:
        """put() in the place of what is there: readers get the old value until the new one is published, and nobody
        gets it after this returned."""
        self.put(
            key,
            value,
            replicas=replicas,
            soft_pin=soft_pin,
            hard_pin=hard_pin,
            prefer=prefer,
            timeout=timeout,
            replace=True,
        )

    @overload
    def get(self, key: Key, default: None = None, *, timeout: Optional[float] = None) -> Optional[bytes]: ...

    @overload
    def get(self, key: Key, default: _T, *, timeout: Optional[float] = None) -> Union[bytes, _T]: ...

    def get(self, key: Key, default: Any = None, *, timeout: Optional[float] = None) -> Any:
        """The value as bytes, or `default` if there is none."""
        error = new_error()
        value = _calls.read_value(self._handle, key_bytes(key), deadline(timeout), error)
        if not isinstance(value, int):
            return value
        if value == _NOT_FOUND:
            return default
        raise self._error(value, error)

    def get_view(self, key: Key, *, timeout: Optional[float] = None) -> memoryview:
        """The value where it is, as a read-only memoryview: without a copy if the memory is mapped, else a copy.

        It stays readable as long as something refers to it, also when the object was removed or the store closed, and
        pins the object meanwhile. errors.TooMany past `view_bytes`.
        """
        error = new_error()
        view = _calls.view_value(self._handle, key_bytes(key), deadline(timeout), error)
        if isinstance(view, int):
            raise self._error(view, error)
        return view

    def get_into(self, key: Key, buffer: Span, length: Optional[int] = None, *, timeout: Optional[float] = None) -> int:
        """Copies the value into a buffer (a writable one, a Memory, or an address with a length); its length.
        errors.BufferTooSmall. After a failure the contents of the buffer are undefined."""
        raw, error = key_bytes(key), new_error()
        address, capacity, _keep = span_of(buffer, length, writable=True)
        pointer = ffi.cast("void *", address)
        got = lib.mc_store_get(self._handle, raw, len(raw), pointer, capacity, deadline(timeout), error)
        return got if got >= 0 else self._fail(got, error)

    def size(self, key: Key, *, timeout: Optional[float] = None) -> int:
        """The length of the value in bytes."""
        raw, error = key_bytes(key), new_error()
        length = lib.mc_store_size(self._handle, raw, len(raw), deadline(timeout), error)
        return length if length >= 0 else self._fail(length, error)

    def exists(self, key: Key, *, timeout: Optional[float] = None) -> bool:
        """Whether there is such a key; `in` with a timeout. Doesn't count as a use of the object."""
        raw, error = key_bytes(key), new_error()
        found = lib.mc_store_exists(self._handle, raw, len(raw), deadline(timeout), error)
        return bool(found if found >= 0 else self._fail(found, error))

    def remove(self, key: Key, *, timeout: Optional[float] = None) -> None:
        """When it returns, no read anywhere finds the value; `del` with a timeout."""
        raw, error = key_bytes(key), new_error()
        status = lib.mc_store_remove(self._handle, raw, len(raw), deadline(timeout), error)
        if status < 0:
            raise self._error(status, error)

    def __getitem__(self, key: Key) -> bytes:
        error = new_error()
        value = _calls.read_value(self._handle, key_bytes(key), 0, error)
        if isinstance(value, int):
            raise self._error(value, error)
        return value

    def __setitem__(self, key: Key, value: Buffer) -> None:
        self.put(key, value, replace=True)

    def __delitem__(self, key: Key) -> None:
        self.remove(key)

    def __contains__(self, key: Key) -> bool:
        return self.exists(key)

    # ---- Many objects

    def put_many(
        self,
        items: Union[Mapping[Any, Buffer], Iterable[tuple[Key, Buffer]]],
        *,
        replicas: int = 1,
        soft_pin: bool = False,
        hard_pin: bool = False,
        prefer: Iterable[str] = (),
        timeout: Optional[float] = None,
        replace: bool = False,
    ) -> list[bool]:
        """put() for a mapping, or pairs, of keys and values. For each: True if it was stored, False if the key existed
        and nothing was changed."""
        given = cast("Mapping[Any, Any]", items).items() if isinstance(items, Mapping) else items
        pairs: list[tuple[Any, Any]] = list(given)
        keys = keys_bytes([key for key, _ in pairs])
        pins = [_pin(value, False, f"the value of {key!r}") for key, value in pairs]
        options, _keep = put_options(replicas, soft_pin, hard_pin, prefer, timeout, upsert=replace)
        error = new_error()
        statuses = _calls.put_batch(self._handle, keys, *_columns(pins), options, error)
        return self._settle([status == 0 for status in statuses], statuses, _EXISTS, error)

    def get_many(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> list[Optional[bytes]]:
        """The values; None for a missing one."""
        error = new_error()
        values = _calls.read_many(self._handle, keys_bytes(keys), deadline(timeout), error)
        statuses = [value if isinstance(value, int) else 0 for value in values]
        return self._settle(
            [None if isinstance(value, int) else value for value in values], statuses, _NOT_FOUND, error
        )

    def get_views(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> list[Optional[memoryview]]:
        """As get_view(), for many keys; None for a missing one."""
        error = new_error()
        views = _calls.view_many(self._handle, keys_bytes(keys), deadline(timeout), error)
        statuses = [view if isinstance(view, int) else 0 for view in views]
        return self._settle([None if isinstance(view, int) else view for view in views], statuses, _NOT_FOUND, error)

    def get_many_into(
        self, keys: Iterable[Key], buffers: Iterable[Buffer], *, timeout: Optional[float] = None
    ) -> list[Optional[int]]:
        """Value i into the writable buffer i: its length, or None for a missing one."""
        names = keys_bytes(keys)
        pins = [_pin(buffer, True, f"buffers[{index}]") for index, buffer in enumerate(buffers)]
        if len(names) != len(pins):
            raise ValueError(f"{len(names)} keys and {len(pins)} buffers")
        error = new_error()
        lengths = _calls.get_batch(self._handle, names, *_columns(pins), deadline(timeout), error)
        return self._settle([length if length >= 0 else None for length in lengths], lengths, _NOT_FOUND, error)

    def sizes(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> list[Optional[int]]:
        """The lengths; None for a missing one."""
        error = new_error()
        lengths = _calls.size_batch(self._handle, keys_bytes(keys), deadline(timeout), error)
        return self._settle([length if length >= 0 else None for length in lengths], lengths, _NOT_FOUND, error)

    def exists_many(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> list[bool]:
        """Whether each is there."""
        error = new_error()
        found = _calls.exists_batch(self._handle, keys_bytes(keys), deadline(timeout), error)
        return self._settle([value == 1 for value in found], found, _NOT_FOUND, error)

    def remove_many(self, keys: Iterable[Key], *, timeout: Optional[float] = None) -> list[bool]:
        """Removes each: True if it was there, False for a missing one."""
        error = new_error()
        statuses = _calls.remove_batch(self._handle, keys_bytes(keys), deadline(timeout), error)
        return self._settle([status == 0 for status in statuses], statuses, _NOT_FOUND, error)

    def __iter__(self) -> Iterator[bytes]:
        """The keys, page by page: those that are there all the while once each, in no order."""
        cursor, error = ffi.new("uint64_t *"), new_error()
        while True:
            page = _calls.list_page(self._handle, cursor, _PAGE, error)
            if isinstance(page, int):
                raise self._error(page, error)
            yield from page
            if not cursor[0]:
                return

    def clear(self, *, timeout: Optional[float] = None) -> int:
        """Removes every key there is at the time; how many."""
        error = new_error()
        count = lib.mc_store_remove_all(self._handle, deadline(timeout), error)
        return count if count >= 0 else self._fail(count, error)

    # ---- The store itself

    @property
    def address(self) -> str:
        """The "host:port" where this store's engine listens; with the master inside, what others connect() to."""
        handle = self._handle
        try:
            return read_text(lambda text, size: lib.mc_store_address(handle, text, size))
        except MooncakeError as error:
            raise self._error(error.code, None) from None

    @property
    def healthy(self) -> bool:
        """Whether the master answers and has this store's segments in the pool. Sends nothing; False after close."""
        return lib.mc_store_health(self._handle) == 0

    def stats(self) -> dict[str, Any]:
        """Counters and sizes: {"cache": {…}, "segment": {"size": …, "used": …, …}, "master": {"keys": …, …}, …};
        "segment" where this store has one, "master" where it is in this process."""
        from json import loads

        handle = self._handle
        try:
            return loads(read_text(lambda text, size: lib.mc_store_stats(handle, text, size)))
        except MooncakeError as error:
            raise self._error(error.code, None) from None

    def mount(
        self,
        size: Optional[Size] = None,
        *,
        name: Optional[str] = None,
        path: Optional[PathType] = None,
        offset: int = 0,
        timeout: Optional[float] = None,
    ) -> str:
        """Adds a segment to the pool, beside the one of connect(); its id.

        size: bytes of this process, or like "4GiB". path: a file whose bytes they are instead, `size` of them (default
        all) from `offset` on, a multiple of the page size; a shared memory object is one in /dev/shm. What was in it is
        overwritten, and it must not be truncated meanwhile. name: as in connect(). errors.Busy: that part of it is
        mounted; errors.System; errors.NoSpace; errors.NoMemory; errors.InvalidArgument.
        """
        if size is None and path is None:
            raise TypeError("mount() takes a size or a path")
        wanted = 0 if size is None else parse_size(size)
        try:
            return mount(self._handle, wanted, name, path, parse_size(offset, "offset"), timeout)
        except MooncakeError:
            if self.closed:
                raise self._error(_CLOSED, None) from None
            raise

    def unmount(self, segment: str, *, grace: float = 0.0) -> None:
        """Takes a segment of this store, by its id, out of the pool with what it holds. grace: seconds for which it can
        be read, and takes nothing new; then this returns at once. errors.SegmentNotFound."""
        error = new_error()
        status = lib.mc_store_unmount(self._handle, c_string(segment), nanoseconds(grace), error)
        if status < 0:
            raise self._error(status, error)

    def segments(self) -> list[dict[str, Any]]:
        """The segments of the pool: [{"id": …, "name": …, "address": …, "size": …, "used": …, "state": "serving",
        "draining" or "mounting", "own": whether it is this store's}, …]; those of others as of a second ago at most."""
        from json import loads

        handle = self._handle
        try:
            return loads(read_text(lambda text, size: lib.mc_store_segments(handle, text, size)))
        except MooncakeError as error:
            raise self._error(error.code, None) from None

    def register(self, memory: Span, length: Optional[int] = None) -> Registration:
        """Lets transfers over a network go straight from and to this memory, which stays alive meanwhile; other memory
        works too, by a copy. errors.Overlap."""
        address, size, keep = span_of(memory, length)
        self.register_range(address, size)
        return Registration(self, address, size, keep)

    def register_range(self, address: int, length: int) -> None:
        """As register() for a plain address: whoever calls keeps the memory alive until unregister_range()."""
        error = new_error()
        status = lib.mc_store_register(self._handle, ffi.cast("void *", address), length, error)
        if status < 0:
            raise self._error(status, error)

    def unregister_range(self, address: int) -> None:
        """Ends what register_range() began. errors.NotRegistered, errors.Busy."""
        error = new_error()
        status = lib.mc_store_unregister(self._handle, ffi.cast("void *", address), error)
        if status < 0:
            raise self._error(status, error)

    @property
    def handle(self) -> Any:
        """The library's handle, for modules of this package."""
        return self._handle

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self._handle == ffi.NULL

    def close(self) -> None:
        """Ends calls in progress with errors.Closed, and takes its segments with what they hold out of the pool;
        views stay readable. A second call does nothing."""
        handle = self._handle
        if handle != ffi.NULL:
            status = lib.mc_store_close(handle)
            if status not in (lib.MC_ERR_INVALID_HANDLE, lib.MC_ERR_CLOSED):  # else another thread closes it
                check(status)
            self._handle = ffi.NULL
        self._engine = None

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self._handle != ffi.NULL:
            lib.mc_store_close(self._handle)

    def __repr__(self) -> str:
        return f"<mooncake.store.Store {'closed' if self.closed else self.address}>"

    def _error(self, status: int, error: Any) -> MooncakeError:
        """The exception for a status."""
        if self._handle == ffi.NULL:
            return error_for(lib.MC_ERR_CLOSED, "the store is closed")
        if error is None or error.code != status:
            return error_for(status)
        return error_for(status, ffi.string(error.message).decode("utf-8", "replace"), error.system_errno)

    def _fail(self, status: int, error: Any) -> int:
        raise self._error(status, error)

    def _settle(self, results: list[_T], statuses: list[int], allowed: int, error: Any) -> list[_T]:
        """The results of a batch, if no item failed but with the allowed status."""
        failed = [index for index, status in enumerate(statuses) if status < 0 and status != allowed]
        if not failed:
            return results
        everything: list[Any] = list(results)
        first: Optional[MooncakeError] = None
        for index in failed:
            everything[index] = self._error(statuses[index], None if first else error)
            first = first or everything[index]
        assert first is not None
        first.results = everything
        raise first


def _pin(value: Buffer, writable: bool, what: str) -> Any:
    """The memory of a buffer, as long as the result lives."""
    if isinstance(value, Memory):
        return ffi.from_buffer("char[]", value.view)
    try:
        return ffi.from_buffer("char[]", value, require_writable=writable)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"{what} must be an object with a buffer, not {kind}") from None


def _source(value: Buffer) -> tuple[Any, int]:
    """What to hand to the library for a value, and its length."""
    if type(value) is bytes:
        return value, len(value)
    pin = _pin(value, False, "value")
    return pin, len(pin)


def _columns(pins: list[Any]) -> tuple[array[int], array[int]]:
    """Addresses and lengths."""
    addresses = array("Q", [int(ffi.cast("uintptr_t", pin)) for pin in pins])
    return addresses, array("Q", map(len, pins))
