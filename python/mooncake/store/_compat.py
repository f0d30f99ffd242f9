"""MooncakeDistributedStore with the names, order, defaults and results that existing programs call.

A failure is a negative number of the reference here (-600 invalid, -704 no such key, -200 no space, -900 no answer),
never an exception, and a line in the log "mooncake.store" says why. Wrong argument types raise TypeError, integers out
of range ValueError. Safe to use from many threads.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from .._errors import MooncakeError
from .._native import ffi, lib, new_error
from . import _calls
from ._compat_base import EXISTS, listed
from ._compat_pieces import PieceMethods
from ._compat_replicas import ReplicaMethods
from ._compat_segments import SegmentMethods
from ._compat_sessions import SessionMethods
from ._compat_setup import DEFAULT_MASTER, Setup, from_mapping, open_compatible, setup
from ._compat_values import (
    INVALID,
    BufferHandle,
    ReplicateConfig,
    buffer_of,
    code_of,
    column_of,
    config_options,
    flag_of,
    log,
    text_of,
    word_of,
)
from ._keys import Key, key_bytes, keys_bytes
from ._later import LaterMethods
from ._pieces import Pieces

__all__ = ["MooncakeDistributedStore"]


class MooncakeDistributedStore(PieceMethods, SegmentMethods, SessionMethods, ReplicaMethods, LaterMethods):
    """A client of the pool. Keys are str (or bytes), values anything with a buffer; addresses are integers, of memory
    that the caller keeps alive meanwhile. Unless a method says otherwise it returns 0 or a negative number."""

    # ---- Life

    def setup(self, *args: Any, **kwargs: Any) -> int:
        """setup(local_hostname, metadata_server, global_segment_size, local_buffer_size, protocol, rdma_devices,
        master_server_addr, engine=None, enable_ssd_offload=False, ssd_offload_path="", tenant_id="default",
        enable_client_http_server=False, client_http_port=9300), or setup(config) with a dict of these names.

        local_hostname: the host or host:port where other clients reach this one; a port that is taken or left out
        becomes any free one (see get_hostname). metadata_server: not used, there is no directory. global_segment_size:
        bytes of this process that join the pool, 0 for none. local_buffer_size: not used, none is needed. protocol,
        rdma_devices: not used; the best path to each peer is taken, MC_FORCE_TCP restricts them to TCP.
        master_server_addr: "host:port", or "" for a master in this process. engine: what TransferEngine.get_engine()
        returns, to be shared, and closed after this store. tenant_id: a name whose keys are apart from those of all
        other names. The others are accepted and have no effect. In a dict sizes
        may be texts like "4 GB", and master_server_address and device_name are known too.

        -600 if it is set up already, -900 if no master answers within 3 s.
        """
        config: Any = args[0] if len(args) == 1 and not kwargs else kwargs.get("config")
        if "config" in kwargs and (args or len(kwargs) > 1 or not isinstance(config, Mapping)):
            raise TypeError("setup() takes config, a dict, alone")
        if not isinstance(config, Mapping):
            return self._open(setup(*args, **kwargs))
        try:
            wanted = from_mapping(config)  # pyright: ignore[reportUnknownArgumentType]
        except ValueError as error:
            log("warning", "setup: %s", error)
            return INVALID
        return self._open(wanted)

    def init_all(self, protocol: str, device_name: str, mount_segment_size: int) -> int:
        """setup() of a client on this host, with the master at 127.0.0.1:50051."""
        return self._open(
            setup("localhost", "P2PHANDSHAKE", mount_segment_size, 0, protocol, device_name, DEFAULT_MASTER)
        )

    def _open(self, wanted: Setup) -> int:
        if self._store is not None:
            log("warning", "setup: the store is already set up")
            return INVALID
        try:
            store = open_compatible(wanted)
            self._hostname = store.address
        except MooncakeError as error:
            log("warning", "setup: %s", error)
            return code_of(error.code)
        self._store = store
        return 0

    def close(self) -> int:
        """Ends calls in progress, and takes this client's memory out of the pool; a second call does nothing. 0."""
        store, self._store = self._store, None
        self._puts.clear()
        if store is not None:
            try:
                store.close()
            except MooncakeError as error:
                log("warning", "close: %s", error)
                return code_of(error.code)
        return 0

    def health_check(self) -> int:
        """0 healthy, 1 not set up, 2 the master doesn't answer."""
        store = self._store
        if store is None:
            return 1
        return 0 if store.healthy else 2

    def get_hostname(self) -> str:
        """The "host:port" of this client, which is also the name of its memory in preferred_segments; "" before
        setup()."""
        return self._hostname

    # ---- Putting

    def put(self, key: Key, value: Any, config: Optional[ReplicateConfig] = None) -> int:
        """Stores a value; 0 also if the key is there, and then nothing was changed."""
        return self._put("put", key, buffer_of(value, "value"), None, config)

    def upsert(self, key: Key, value: Any, config: Optional[ReplicateConfig] = None) -> int:
        """Stores a value in the place of what is there."""
        return self._put("upsert", key, buffer_of(value, "value"), None, config)

    def put_parts(self, key: Key, *args: Any, config: Optional[ReplicateConfig] = None) -> int:
        """put() of the parts behind each other."""
        return self._put_parts("put_parts", key, args, config)

    def upsert_parts(self, key: Key, *args: Any, config: Optional[ReplicateConfig] = None) -> int:
        """upsert() of the parts behind each other."""
        return self._put_parts("upsert_parts", key, args, config)

    def put_from(self, key: Key, buffer_ptr: int, size: int, config: Optional[ReplicateConfig] = None) -> int:
        """put() of `size` bytes at an address."""
        return self._put("put", key, buffer_ptr, size, config)

    def put_from_with_metadata(
        self,
        key: Key,
        buffer_ptr: int,
        metadata_buffer_ptr: int,
        size: int,
        metadata_size: int,
        config: Optional[ReplicateConfig] = None,
    ) -> int:
        """put() of `metadata_size` bytes at an address and, behind them, `size` bytes at another."""
        return self.batch_put_from_multi_buffers(
            [key], [[metadata_buffer_ptr, buffer_ptr]], [[metadata_size, size]], config
        )[0]

    def upsert_from(self, key: Key, buffer_ptr: int, size: int, config: Optional[ReplicateConfig] = None) -> int:
        """upsert() of `size` bytes at an address."""
        return self._put("upsert", key, buffer_ptr, size, config)

    def put_batch(self, keys: list[Key], values: list[Any], config: Optional[ReplicateConfig] = None) -> int:
        """put() of many; the first failure, or 0."""
        return _first(self._put_values("put_batch", keys, values, config))

    def upsert_batch(self, keys: list[Key], values: list[Any], config: Optional[ReplicateConfig] = None) -> int:
        """upsert() of many; the first failure, or 0."""
        return _first(self._put_values("upsert_batch", keys, values, config))

    def batch_put_from(
        self, keys: list[Key], buffer_ptrs: list[int], sizes: list[int], config: Optional[ReplicateConfig] = None
    ) -> list[int]:
        """put_from() of many; the result of each."""
        names, addresses, lengths = _columns(keys, buffer_ptrs, sizes)
        return self._put_columns("batch_put_from", names, addresses, lengths, config)

    def batch_upsert_from(
        self, keys: list[Key], buffer_ptrs: list[int], sizes: list[int], config: Optional[ReplicateConfig] = None
    ) -> list[int]:
        """upsert_from() of many; the result of each."""
        names, addresses, lengths = _columns(keys, buffer_ptrs, sizes)
        return self._put_columns("batch_upsert_from", names, addresses, lengths, config)

    # ---- Getting

    def get(self, key: Key) -> bytes:
        """The value; b"" also if there is none, or it can't be read."""
        raw, error, store = key_bytes(key), new_error(), self._store
        if store is None:
            self._code("get")
            return b""
        value = _calls.read_value(store.handle, raw, 0, error)
        if isinstance(value, int):
            self._code("get", value, error)
            return b""
        return value

    def get_batch(self, keys: list[Key]) -> list[bytes]:
        """get() of many."""
        names, error, store = keys_bytes(keys), new_error(), self._store
        if store is None:
            self._code("get_batch")
            return [b""] * len(names)
        values = _calls.read_many(store.handle, names, 0, error)
        self._codes("get_batch", [value for value in values if isinstance(value, int)], error)
        return [b"" if isinstance(value, int) else value for value in values]

    def get_buffer(self, key: Key) -> Optional[BufferHandle]:
        """A copy of the value in memory that can be written; None if there is no value, or it can't be read."""
        return self.batch_get_buffer([key_bytes(key)])[0]

    def batch_get_buffer(self, keys: list[Key]) -> list[Optional[BufferHandle]]:
        """get_buffer() of many."""
        names, error, store = keys_bytes(keys), new_error(), self._store
        if store is None:
            self._code("batch_get_buffer")
            return [None] * len(names)
        results, handles = _calls.read_batch(store.handle, names, 0, error, BufferHandle)
        self._codes("batch_get_buffer", results, error)
        for result, handle in zip(results, handles):
            if 0 <= result < len(handle):
                del handle[result:]
        return [handle if result >= 0 else None for result, handle in zip(results, handles)]

    def get_into(self, key: Key, buffer_ptr: int, size: int) -> int:
        """Copies the value to `size` bytes at an address; its length."""
        raw, store = key_bytes(key), self._store
        try:
            length, error = _calls.get_at(ffi.NULL if store is None else store.handle, raw, buffer_ptr, size)
        except (TypeError, OverflowError):
            length, error = _calls.get_at(
                ffi.NULL if store is None else store.handle,
                raw,
                word_of(buffer_ptr, "buffer_ptr"),
                word_of(size, "size"),
            )
        if length >= 0:
            return length
        return self._code("get_into") if store is None else self._code("get_into", length, error)

    def batch_get_into(self, keys: list[Key], buffer_ptrs: list[int], sizes: list[int]) -> list[int]:
        """get_into() of many; the length or failure of each."""
        names, addresses, capacities = _columns(keys, buffer_ptrs, sizes)
        return self._batch(
            "batch_get_into",
            names if len(names) == len(addresses) == len(capacities) else len(names),
            lambda handle, error: _calls.get_batch(handle, names, addresses, capacities, 0, error),
        )

    # ---- Asking and removing

    def is_exist(self, key: Key) -> int:
        """1 or 0. Doesn't count as a use of the object."""
        raw, error, store = key_bytes(key), new_error(), self._store
        if store is None:
            return self._code("is_exist")
        return self._code("is_exist", lib.mc_store_exists(store.handle, raw, len(raw), 0, error), error)

    def batch_is_exist(self, keys: list[Key]) -> list[int]:
        """is_exist() of many."""
        names = keys_bytes(keys)
        return self._batch("batch_is_exist", names, lambda handle, error: _calls.exists_batch(handle, names, 0, error))

    def get_size(self, key: Key) -> int:
        """The length of the value in bytes."""
        raw, error, store = key_bytes(key), new_error(), self._store
        if store is None:
            return self._code("get_size")
        return self._code("get_size", lib.mc_store_size(store.handle, raw, len(raw), 0, error), error)

    def remove(self, key: Key, force: bool = False) -> int:
        """When it returns 0, no read anywhere finds the value. force: without effect, there are no read leases."""
        raw, error, store = key_bytes(key), new_error(), self._store
        flag_of(force, "force")
        if store is None:
            return self._code("remove")
        return self._code("remove", lib.mc_store_remove(store.handle, raw, len(raw), 0, error), error)

    def batch_remove(self, keys: list[Key], force: bool = False) -> list[int]:
        """remove() of many; the result of each."""
        names = keys_bytes(keys)
        flag_of(force, "force")
        return self._batch("batch_remove", names, lambda handle, error: _calls.remove_batch(handle, names, 0, error))

    def remove_all(self, force: bool = False) -> int:
        """Removes every key there is at the time; how many."""
        flag_of(force, "force")
        error, store = new_error(), self._store
        if store is None:
            return self._code("remove_all")
        return self._code("remove_all", lib.mc_store_remove_all(store.handle, 0, error), error)

    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int:
        """Removes the keys in which the pattern (Perl's syntax, at most 4096 bytes) is found; how many.

        The keys are listed page by page and matched in this process. -600 if it is no pattern, or takes too long at a
        key.
        """
        flag_of(force, "force")
        pattern = text_of(regex_pattern, "regex_pattern").encode()
        error, store = new_error(), self._store
        if store is None:
            return self._code("remove_by_regex")
        removed = lib.mc_store_remove_matching(store.handle, pattern, len(pattern), 0, error)
        return self._code("remove_by_regex", removed, error)

    # ---- Memory

    def register_buffer(self, buffer_ptr: int, size: int) -> int:
        """Lets transfers go straight from and to this memory, which the caller keeps mapped until it is unregistered.
        Other memory works too, by a copy."""
        pointer, length = ffi.cast("void *", word_of(buffer_ptr, "buffer_ptr")), word_of(size, "size")
        error, store = new_error(), self._store
        if store is None:
            return self._code("register_buffer")
        return self._code("register_buffer", lib.mc_store_register(store.handle, pointer, length, error), error)

    def unregister_buffer(self, buffer_ptr: int) -> int:
        """When it returns 0, no transfer uses the memory any more."""
        pointer = ffi.cast("void *", word_of(buffer_ptr, "buffer_ptr"))
        error, store = new_error(), self._store
        if store is None:
            return self._code("unregister_buffer")
        return self._code("unregister_buffer", lib.mc_store_unregister(store.handle, pointer, error), error)

    # ---- Within

    def _put(self, what: str, key: Key, value: Any, size: Optional[int], config: Optional[ReplicateConfig]) -> int:
        """Stores the memory of `value`, or with a size what is at the address `value`."""
        raw, error, store = key_bytes(key), new_error(), self._store
        options, _keep = config_options(config, self._hostname)
        if size is not None:
            value, size = ffi.cast("void *", word_of(value, "buffer_ptr")), word_of(size, "size")
        if store is None:
            return self._code(what)
        call = lib.mc_store_put if what == "put" else lib.mc_store_upsert
        length = len(value) if size is None else size
        status = call(store.handle, raw, len(raw), value, length, options, error)
        return 0 if status == EXISTS else self._code(what, status, error)

    def _put_parts(self, what: str, key: Key, parts: Sequence[Any], config: Optional[ReplicateConfig]) -> int:
        pins = [buffer_of(part, f"parts[{index}]") for index, part in enumerate(parts)]
        pieces = Pieces([[int(ffi.cast("uintptr_t", pin)) for pin in pins]], [list(map(len, pins))])
        return self._put_pieces(what, [key_bytes(key)], pieces, config)[0]

    def _put_values(
        self, what: str, keys: list[Key], values: list[Any], config: Optional[ReplicateConfig]
    ) -> list[int]:
        pins = [buffer_of(value, f"values[{index}]") for index, value in enumerate(listed(values, "values"))]
        addresses = array("Q", [int(ffi.cast("uintptr_t", pin)) for pin in pins])
        return self._put_columns(what, keys_bytes(keys), addresses, array("Q", map(len, pins)), config)

    def _put_columns(
        self,
        what: str,
        names: list[bytes],
        addresses: array[int],
        lengths: array[int],
        config: Optional[ReplicateConfig],
    ) -> list[int]:
        options, _keep = config_options(config, self._hostname, upsert="upsert" in what)
        statuses = self._batch(
            what,
            names if len(names) == len(addresses) == len(lengths) else len(names),
            lambda handle, error: _calls.put_batch(handle, names, addresses, lengths, options, error),
        )
        return [0 if status == EXISTS else status for status in statuses]


def _columns(keys: list[Key], buffer_ptrs: list[int], sizes: list[int]) -> tuple[list[bytes], array[int], array[int]]:
    return keys_bytes(keys), column_of(buffer_ptrs, "buffer_ptrs"), column_of(sizes, "sizes")


def _first(results: list[int]) -> int:
    """0, or the first failure."""
    return next((result for result in results if result < 0), 0)
