"""Peers: the engines at other addresses, and the calls that move bytes to and from one of them.

A blocking call to a range that this process has mapped is one call of the library: it copies in the calling thread and
never waits for the peer. Anything else may wait, so it is a batch that is waited for in slices, and Ctrl-C is heard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from .._errors import MooncakeError
from .._native import (
    PENDING,
    SLICE_NS,
    Unique,
    c_string,
    check,
    deadline,
    ffi,
    lib,
    new_error,
    read_text,
    wait_in_slices,
)
from ._batch import Batch, Notify, Queue, Statuses
from ._memory import Span, span_of
from ._requests import OUT_OF_RANGE, READ, WRITE, Column, as_bytes, pack_columns, words

if TYPE_CHECKING:
    from ._engine import Engine

__all__ = ["Peer", "move", "read_call", "run", "write_call"]

# The two calls with addresses as integers: a pointer would be one more object for each.
_INTEGERS = "int32_t(*)(uint64_t, uintptr_t, uint64_t, uint64_t, uint64_t, uintptr_t)"
read_call: Callable[..., int] = ffi.cast(_INTEGERS, ffi.cast("uintptr_t", ffi.addressof(lib, "mc_peer_read")))
write_call: Callable[..., int] = ffi.cast(_INTEGERS, ffi.cast("uintptr_t", ffi.addressof(lib, "mc_peer_write")))

_QUICK_MAX = 16 << 20
"""The longest copy that Ctrl-C has to wait for: some milliseconds."""

_ALL = 2**64
# Error structs that no call uses, by address.
_errors: dict[int, Any] = {}
_spare: list[int] = []
_take, _give = _spare.pop, _spare.append


def _new_error_address() -> int:
    error = new_error()
    address = int(ffi.cast("uintptr_t", error))
    _errors[address] = error
    return address


def _fail(status: int, address: int) -> None:
    """Raises for a failed call, with the words in the error struct at the address, which may then be used again."""
    error = _errors[address]
    try:
        check(status, error)
    finally:
        error.code = 0


def move(call: Callable[..., int], peer: int, local: int, remote: int, length: int, timeout_ns: int = 0) -> None:
    """read_call or write_call, to its end, in this thread."""
    try:
        error = _take()
    except IndexError:
        error = _new_error_address()
    try:
        status = call(peer, local, remote, length, timeout_ns, error)
        if status:
            _fail(status, error)
    except OverflowError:
        raise ValueError(OUT_OF_RANGE) from None
    finally:
        _give(error)


class _One:
    """A batch of one request, in structs that are used again."""

    __slots__ = ("cell", "error", "options", "request", "row")

    def __init__(self) -> None:
        self.request: Any = ffi.new("struct mc_request *")
        self.options: Any = ffi.new(
            "struct mc_batch_options *", (ffi.sizeof("struct mc_batch_options"), lib.MC_BATCH_DRIVEN)
        )
        self.cell: Any = ffi.new("uint64_t *")
        self.error: Any = new_error()
        self.row: Any = ffi.new("struct mc_request_status *")


_spare_ones: list[_One] = []
_REQUEST_SIZE: int = ffi.sizeof("struct mc_request")
_ROW_SIZE: int = ffi.sizeof("struct mc_request_status")


def run(
    engine: Any,
    peer: int,
    opcode: int,
    local: int,
    remote: int,
    length: int,
    timeout_ns: int,
    guard: Optional[tuple[int, int]],
) -> None:
    """One request to its end, as a batch that is waited for in slices: Ctrl-C cancels it, and leaves a quiet buffer."""
    try:
        one = _spare_ones.pop()
    except IndexError:
        one = _One()
    request, cell, error = one.request, one.cell, one.error
    if not 0 <= local < _ALL:
        raise ValueError(OUT_OF_RANGE)
    try:
        request.peer, request.opcode, request.remote, request.length = peer, opcode, remote, length
        request.local = ffi.cast("char *", local)
        request.flags = 0
        if guard is not None:
            request.flags = lib.MC_REQUEST_GUARD
            request.guard_address, request.guard_value = guard
    except OverflowError:
        raise ValueError(OUT_OF_RANGE) from None
    one.options.timeout_ns = timeout_ns
    untouched = True
    try:
        status = lib.mc_batch_submit(engine, request, 1, _REQUEST_SIZE, one.options, cell, error)
        if status == 0:
            status = lib.mc_batch_wait(cell[0], SLICE_NS)
            if status == PENDING:
                status = wait_in_slices(lambda ns: lib.mc_batch_wait(cell[0], ns), None)
            if status:
                lib.mc_batch_explain(cell[0], error)
                lib.mc_batch_status(cell[0], 0, one.row, 1, _ROW_SIZE)
                untouched = opcode == READ or not (one.row.bytes or one.row.flags & lib.MC_STATUS_INDETERMINATE)
    finally:
        if cell[0]:
            if lib.mc_batch_free(cell[0]):
                lib.mc_batch_cancel(cell[0])
                lib.mc_batch_free(cell[0])
            cell[0] = 0
    if status:
        try:
            check(status, error)
        except MooncakeError as failure:
            failure.untouched = untouched
            raise
    _spare_ones.append(one)


class Peer(Unique):
    """The engine at another address, as it was when this one connected: a restarted one answers errors.StalePeer."""

    __slots__ = ("__weakref__", "_engine", "_misses", "address", "id", "mapped_from", "mapped_to")

    def __init__(self, engine: Engine, address: str) -> None:
        self.id = 0
        self._engine = engine
        self.address = address
        # Remote ranges from here to there are copied by the caller itself, as far as is known; see learn().
        self.mapped_from = self.mapped_to = 0
        self._misses = 0
        cell, error = ffi.new("uint64_t *"), new_error()
        check(lib.mc_peer_open(engine.handle, c_string(address), cell, error), error)
        self.id: int = cell[0]

    def read(
        self,
        local: Span,
        remote: int,
        length: Optional[int] = None,
        *,
        timeout: Optional[float] = None,
        guard: Optional[tuple[int, int]] = None,
    ) -> None:
        """Copies from the peer's address `remote` into registered local memory; returns when it is there.

        timeout: seconds until errors.Timeout; None is the library's default of 30. Ctrl-C cancels, waits until the
        buffer is quiet, and raises KeyboardInterrupt.
        """
        if type(local) is not int or length is None:
            local, length, _keep = span_of(local, length, writable=True)
        if self.mapped_from <= remote <= self.mapped_to - length and guard is None and length <= _QUICK_MAX:
            move(read_call, self.id, local, remote, length, 0 if timeout is None else deadline(timeout))
        else:
            run(self._engine.handle, self.id, READ, local, remote, length, deadline(timeout), guard)
            self.learn(remote)

    def write(
        self,
        local: Span,
        remote: int,
        length: Optional[int] = None,
        *,
        timeout: Optional[float] = None,
        guard: Optional[tuple[int, int]] = None,
    ) -> None:
        """Copies registered local memory to the peer's address `remote`; returns when the peer has applied it.
        Otherwise as read()."""
        if type(local) is not int or length is None:
            local, length, _keep = span_of(local, length)
        if self.mapped_from <= remote <= self.mapped_to - length and guard is None and length <= _QUICK_MAX:
            move(write_call, self.id, local, remote, length, 0 if timeout is None else deadline(timeout))
        else:
            run(self._engine.handle, self.id, WRITE, local, remote, length, deadline(timeout), guard)
            self.learn(remote)

    def learn(self, remote: int) -> None:
        """Notes that something was moved there by a batch: asks, more and more rarely, whether it need be one."""
        self._misses += 1
        if self._misses & (self._misses - 1):
            return
        paths = self.explain()
        usable = {row["transport"] for row in paths["transports"] if row["usable"]}
        if "self" in usable or "tcp" not in usable:
            self.mapped_from, self.mapped_to = 0, _ALL
            return
        for row in paths["regions"]:
            if row["how"] == "mapped" and row["base"] <= remote < row["base"] + row["length"]:
                self.mapped_from, self.mapped_to = row["base"], row["base"] + row["length"]

    def submit(
        self,
        opcode: int,
        local: Column,
        remote: Column,
        length: Column,
        *,
        timeout: Optional[float] = None,
        queue: Optional[Queue] = None,
        context: object = None,
        notify: Optional[Notify] = None,
        checksum: bool = False,
    ) -> Batch:
        """Submits many requests of one kind, given as columns of addresses and lengths; the fast way.

        A column is an array or numpy array of 64-bit integers, which is copied as a whole, or any iterable of int.
        ValueError if the columns differ in length. Otherwise as Engine.submit.
        """
        packed, count = self.pack(opcode, local, remote, length, checksum)
        batch = Batch(self._engine, count, None, context)
        batch.start(self._engine.handle, packed, timeout, queue, notify=notify)
        return batch

    def transfer(
        self,
        opcode: int,
        local: Column,
        remote: Column,
        length: Column,
        *,
        timeout: Optional[float] = None,
        notify: Optional[Notify] = None,
        checksum: bool = False,
    ) -> Statuses:
        """submit(), waits until all requests have ended, and says where each stands as columns: raises nothing for a
        request that did not complete. Ctrl-C as in read()."""
        packed, count = self.pack(opcode, local, remote, length, checksum)
        with Batch(self._engine, count) as batch:
            batch.start(self._engine.handle, packed, timeout, driven=True, notify=notify)
            batch.poll(None)
            return batch.statuses()

    def pack(self, opcode: int, local: Column, remote: Column, length: Column, checksum: bool) -> tuple[Any, int]:
        """The packed requests and their number; for Engine and Peer only."""
        local, remote, length = words(local), words(remote), words(length)
        if not len(local) == len(remote) == len(length):
            raise ValueError(f"columns of {len(local)}, {len(remote)} and {len(length)} items")
        flags = lib.MC_REQUEST_CHECKSUM if checksum else 0
        return pack_columns(self.id, opcode, local, remote, length, flags), len(local)

    def notify(
        self, name: Union[str, bytes], message: Union[str, bytes] = b"", timeout: Optional[float] = None
    ) -> None:
        """Delivers a message into the peer's queue and waits until it is there. Writes that completed before are
        visible to whoever receives it. timeout as in read(). errors.TooLarge, errors.QueueFull, errors.Timeout."""
        name, message = as_bytes(name), as_bytes(message)
        error = new_error()
        status = lib.mc_peer_notify(self.id, name, len(name), message, len(message), deadline(timeout), error)
        check(status, error)

    def probe(self, timeout: Optional[float] = 1.0) -> None:
        """Asks for a sign of life. errors.Timeout, errors.StalePeer, errors.Unreachable, errors.ConnectionLost."""
        error = new_error()
        check(lib.mc_peer_probe(self.id, deadline(timeout), error), error)

    def explain(self) -> dict[str, Any]:
        """Which paths lead to the peer, and which one its memory is reached by.

        "transports": cheapest first, each with "transport", "cost", "usable" and "reason"; "regions": those of the peer
        that this process knows of, each with "base", "length", "access", "path", "how" and "reason" (why not better);
        path and how are None for one that goes by the next usable transport.
        """
        from json import loads

        return loads(read_text(lambda text, size: lib.mc_peer_explain(self.id, text, size)))

    def close(self) -> None:
        """Releases the peer; batches in flight go on. A second call does nothing."""
        identifier, self.id = self.id, 0
        if identifier:
            lib.mc_peer_close(identifier)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<mooncake.engine.Peer {self.address}>"
