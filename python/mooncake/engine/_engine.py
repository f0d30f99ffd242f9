"""Engines: the interface that a new Python program uses. Failures raise mooncake.errors."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag
from typing import Any, NamedTuple, Optional

from .._native import PENDING, Unique, c_string, check, ffi, lib, new_error, read_text, wait_in_slices
from ._batch import Batch, Notify, Queue, Statuses
from ._memory import Span, span_of
from ._options import engine_options
from ._peer import Peer
from ._requests import OUT_OF_RANGE, READ, WRITE, Column, Request, pack_requests

__all__ = ["Access", "Engine", "Notification", "Region"]


_awaitable: Any = None


def _aio() -> Any:
    """The module of awaitable calls, imported by the first of them."""
    global _awaitable
    if _awaitable is None:
        from . import _aio as module

        _awaitable = module
    return _awaitable


class Access(IntFlag):
    """What peers may do to registered memory."""

    NONE = 0
    READ = 1
    WRITE = 2
    BOTH = 3


class Notification(NamedTuple):
    """A received message: sender is the "host:port" of the engine that sent it."""

    sender: str
    name: bytes
    message: bytes


class Region(Unique):
    """Registered memory of an engine. As a context manager it unregisters at the end.

    address, length: of the range, in bytes; access: what peers may do.
    """

    __slots__ = ("_engine", "_keep", "access", "address", "length")

    def __init__(self, engine: Engine, address: int, length: int, access: Access, keep: Any) -> None:
        self._engine: Optional[Engine] = engine
        self._keep: Any = keep
        self.address = address
        self.length = length
        self.access = access

    def unregister(self) -> None:
        """When it returns, no peer reaches the memory any more; a second call does nothing. errors.Busy, with the
        region still registered, if transfers on it don't end within a second."""
        engine = self._engine
        if engine is not None:
            engine.unregister_range(self.address)
            engine.regions.discard(self)
            self._engine = self._keep = None

    def __enter__(self) -> Region:
        return self

    def __exit__(self, *exception: object) -> None:
        self.unregister()


class Engine(Unique):
    """A transfer engine: listens at one address, lends registered memory to peers, and moves bytes to and from theirs.

    listen: "host:port" or a host; port 0 or none is any free one; default 127.0.0.1. advertise: the host that peers
    are told. protocol: "tcp" or "shm" restricts the paths. key_file: the cluster key. connect_timeout: seconds.
    lanes: TCP connections per peer. notifications: how many received ones are kept. checksum: CRC32C over what this
    engine reads and writes over networks. directory: where names of engines are kept, "p2p" (nowhere) or
    "http://host:port/path". name: under which this one is there; default its address. busy_poll: seconds that a thread
    which has just been busy stays awake for more. What is left out comes from the MC_* environment, else the library's
    default. regions: those that register() gave and that are registered still.

    errors.Address, errors.NameNotFound, errors.System (the address can't be bound), errors.NotSupported,
    errors.Unreachable (the directory).
    """

    def __init__(
        self,
        listen: Optional[str] = None,
        *,
        advertise: Optional[str] = None,
        protocol: Optional[str] = None,
        key_file: Optional[str] = None,
        connect_timeout: Optional[float] = None,
        lanes: int = 0,
        notifications: int = 0,
        checksum: bool = False,
        directory: Optional[str] = None,
        name: Optional[str] = None,
        busy_poll: float = 0.0,
    ) -> None:
        self.handle: Any = ffi.NULL
        self.regions: set[Region] = set()
        options, _texts = engine_options(
            listen, advertise, protocol, key_file, connect_timeout, lanes, notifications, checksum, directory, name,
            busy_poll,
        )  # fmt: skip
        handles, error = ffi.new("mc_engine **"), new_error()
        check(lib.mc_engine_open(options, handles, error), error)
        self.handle = handles[0]

    @property
    def address(self) -> str:
        """The "host:port" at which peers open this engine."""
        return read_text(lambda text, size: lib.mc_engine_address(self.handle, text, size))

    @property
    def incarnation(self) -> bytes:
        """The random 16 bytes that tell this engine from every other one."""
        value = ffi.new("uint8_t[16]")
        check(lib.mc_engine_incarnation(self.handle, value))
        return bytes(value)

    def topology(self) -> dict[str, list[list[str]]]:
        """How near network cards are to memory: {"cpu:0": [[preferred cards], [others]], …}."""
        from json import loads

        return loads(read_text(lambda text, size: lib.mc_engine_topology(self.handle, text, size)))

    def metrics(self) -> dict[str, Any]:
        """Counters and latency histograms since the engine was opened, in all and for each path and peer."""
        from json import loads

        return loads(read_text(lambda text, size: lib.mc_engine_metrics(self.handle, lib.MC_METRICS_JSON, text, size)))

    def prometheus(self) -> str:
        """metrics() as the text that Prometheus reads, to be served by the program."""
        kind = lib.MC_METRICS_PROMETHEUS
        return read_text(lambda text, size: lib.mc_engine_metrics(self.handle, kind, text, size))

    @property
    def closed(self) -> bool:
        """True after close()."""
        return self.handle == ffi.NULL

    def register(
        self, memory: Span, length: Optional[int] = None, *, access: Access = Access.BOTH, location: str = "*"
    ) -> Region:
        """Makes memory an end of transfers, and lends it to peers as far as `access` says; it stays alive meanwhile.

        The same range again with the same rights adds a count; any other overlap is errors.Overlap.
        """
        address, length, keep = span_of(memory, length, writable=bool(access & Access.WRITE))
        self.register_range(address, length, location, int(access))
        region = Region(self, address, length, access, keep)
        self.regions.add(region)
        return region

    def register_range(self, address: int, length: int, location: str, access: int) -> None:
        """As register() for plain addresses: whoever calls keeps the memory alive until unregister_range()."""
        error = new_error()
        try:
            pointer = ffi.cast("void *", address)
            status = lib.mc_engine_register(self.handle, pointer, length, c_string(location), access, error)
        except OverflowError:
            raise ValueError(OUT_OF_RANGE) from None
        check(status, error)

    def unregister_range(self, address: int) -> None:
        """Takes one count off the region that begins at the address. errors.NotRegistered, errors.Busy."""
        error = new_error()
        check(lib.mc_engine_unregister(self.handle, ffi.cast("void *", address), error), error)

    def connect(self, address: str) -> Peer:
        """Connects to the engine at "host:port", which may be this one, or to one that the directory has under that
        name. Waits at most the connect timeout.

        errors.Address, errors.NameNotFound, errors.Unreachable, errors.Authentication, errors.Version.
        """
        return Peer(self, address)

    def submit(
        self,
        requests: Iterable[Request],
        *,
        timeout: Optional[float] = None,
        queue: Optional[Queue] = None,
        context: object = None,
        notify: Optional[Notify] = None,
    ) -> Batch:
        """Submits all or none of the requests. Their order is undefined; peers may differ.

        timeout: the deadline of each request in seconds, None is the library's default of 30; queue: where the batch
        appears when it is done; context: kept as batch.context; notify: (name, message), which each peer of the batch
        receives when all requests have completed.
        """
        packed, keep = pack_requests(requests)
        batch = Batch(self, len(packed) // ffi.sizeof("struct mc_request"), keep, context)
        batch.start(self.handle, packed, timeout, queue, notify=notify)
        return batch

    async def read(
        self,
        peer: Peer,
        local: Span,
        remote: int,
        length: Optional[int] = None,
        *,
        timeout: Optional[float] = None,
        guard: Optional[tuple[int, int]] = None,
    ) -> None:
        """Peer.read() to be awaited. A task that is cancelled meanwhile leaves its buffer quiet."""
        await _aio().moved(self, peer, READ, local, remote, length, timeout, guard)

    async def write(
        self,
        peer: Peer,
        local: Span,
        remote: int,
        length: Optional[int] = None,
        *,
        timeout: Optional[float] = None,
        guard: Optional[tuple[int, int]] = None,
    ) -> None:
        """Peer.write() to be awaited. A task that is cancelled meanwhile leaves its buffer quiet."""
        await _aio().moved(self, peer, WRITE, local, remote, length, timeout, guard)

    async def transfer(
        self,
        peer: Peer,
        opcode: int,
        local: Column,
        remote: Column,
        length: Column,
        *,
        timeout: Optional[float] = None,
        notify: Optional[Notify] = None,
        checksum: bool = False,
    ) -> Statuses:
        """Peer.transfer() to be awaited. A task that is cancelled meanwhile leaves its buffers quiet."""
        packed, count = peer.pack(opcode, local, remote, length, checksum)
        with await _aio().finished(self, packed, count, None, timeout, notify) as batch:
            return batch.statuses()

    def receive(self, timeout: Optional[float] = 0.0) -> Optional[Notification]:
        """The oldest notification, or None if none came within `timeout` seconds (None: waits for ever)."""
        cell = ffi.new("struct mc_notification **")
        try:
            status = wait_in_slices(lambda ns: lib.mc_engine_receive(self.handle, ns, cell), timeout)
            if status == PENDING:
                return None
            check(status)
            row = cell[0]
            return Notification(
                ffi.unpack(row.sender, row.sender_length).decode("utf-8", "replace"),
                ffi.unpack(row.name, row.name_length),
                ffi.unpack(row.message, row.message_length),
            )
        finally:
            lib.mc_notification_free(cell[0])

    def fileno(self) -> int:
        """A descriptor that is readable while a notification waits, for select or an asyncio reader; poll it, never
        read or close it."""
        return check(lib.mc_engine_notification_fd(self.handle))

    def close(self) -> None:
        """Cancels what is in flight and closes all peers; a second call does nothing. errors.Busy, with the engine
        still open, if a peer's copy into registered memory does not end within a second."""
        if self.handle != ffi.NULL:
            check(lib.mc_engine_close(self.handle))
            self.handle = ffi.NULL
            self.regions.clear()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if self.handle != ffi.NULL:
            lib.mc_engine_close(self.handle)

    def __repr__(self) -> str:
        return f"<mooncake.engine.Engine {'closed' if self.closed else self.address}>"
