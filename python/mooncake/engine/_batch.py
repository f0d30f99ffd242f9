"""Batches in flight, and the queues in which they appear when they are done."""

from __future__ import annotations

import threading
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from .._errors import MooncakeError, error_for
from .._native import PENDING, Unique, check, deadline, ffi, lib, new_error, wait_in_slices
from ._requests import as_bytes

if TYPE_CHECKING:
    from ._engine import Engine

__all__ = ["Batch", "Completion", "Notify", "Queue", "RequestStatus", "Statuses"]

Notify = tuple[Union[str, bytes], Union[str, bytes]]
"""Name and message of a notification."""

_REQUEST_SIZE: int = ffi.sizeof("struct mc_request")
_STATUS_SIZE: int = ffi.sizeof("struct mc_request_status")
_HALVES = _STATUS_SIZE // 4  # as 32-bit words: state, status, bytes (two), flags, checksum
_COMPLETION_SIZE: int = ffi.sizeof("struct mc_completion")
_OPTIONS_SIZE: int = ffi.sizeof("struct mc_batch_options")
_DRIVEN: Any = ffi.new("struct mc_batch_options *", (_OPTIONS_SIZE, lib.MC_BATCH_DRIVEN))
_STATES = {
    lib.MC_STATE_PENDING: "pending",
    lib.MC_STATE_CANCELLED: "cancelled",
    lib.MC_STATE_COMPLETED: "completed",
    lib.MC_STATE_TIMEOUT: "timeout",
    lib.MC_STATE_FAILED: "failed",
}


class RequestStatus(NamedTuple):
    """Where one request stands.

    state: "pending", "completed", "cancelled", "timeout" or "failed"; code: the status, 0 when completed; bytes: moved
    so far; indeterminate: a write that did not complete and may have changed, or still change, the remote range;
    checksum: the CRC32C of the bytes, if it was asked for and the request is completed, else 0.
    """

    state: str
    code: int
    bytes: int
    indeterminate: bool
    checksum: int = 0


class Statuses(NamedTuple):
    """Where the requests of a batch stand, as columns; each has an item for each request, in order.

    codes: the status, 0 when completed (array "i"); bytes: moved so far (array "Q"); indeterminate: not 0 as in
    RequestStatus (array "I"); checksums: as there (array "I"). numpy.frombuffer(column, …) makes them numpy arrays
    without a copy.
    """

    codes: array[int]
    bytes: array[int]
    indeterminate: array[int]
    checksums: array[int]

    @property
    def ok(self) -> bool:
        """Whether all requests completed."""
        return not any(self.codes)


class Batch(Unique):
    """Requests in flight, made by Engine.submit or Peer.submit. The buffers belong to the engine until it is done.

    As a context manager, and when it is forgotten, it cancels what isn't done and waits until the buffers are quiet.
    `context` is the caller's, from the submission.
    """

    __slots__ = ("__weakref__", "_cell", "_count", "_engine", "_keep", "_queue", "context")

    def __init__(self, engine: Engine, count: int, keep: Any = None, context: object = None) -> None:
        self._engine: Optional[Engine] = engine
        self._count = count
        self._keep: Any = keep
        self._queue: Optional[Queue] = None
        self._cell: Any = ffi.new("uint64_t *")
        self.context = context

    def start(
        self,
        handle: Any,
        packed: Any,
        timeout: Optional[float] = None,
        queue: Optional[Queue] = None,
        *,
        driven: bool = False,
        notify: Optional[Notify] = None,
    ) -> None:
        """Submits the packed requests; for Engine and Peer only. driven: poll() or wait() comes next, from here."""
        options: Any = _DRIVEN if driven else ffi.NULL
        if timeout is not None or queue is not None or notify is not None:
            options = ffi.new("struct mc_batch_options *", (_OPTIONS_SIZE, lib.MC_BATCH_DRIVEN if driven else 0))
            options.timeout_ns = deadline(timeout)
        texts: list[Any] = []  # the library copies them in the call
        if notify is not None:
            texts = [ffi.from_buffer(as_bytes(text)) for text in notify]
            options.flags |= lib.MC_BATCH_NOTIFY
            options.notify_name, options.notify_message = texts
            options.notify_name_length, options.notify_message_length = map(len, texts)
        error = new_error()
        array = ffi.from_buffer("struct mc_request[]", packed)
        if queue is None:
            check(lib.mc_batch_submit(handle, array, self._count, _REQUEST_SIZE, options, self._cell, error), error)
            return
        with queue.lock:
            options.queue = queue.handle
            check(lib.mc_batch_submit(handle, array, self._count, _REQUEST_SIZE, options, self._cell, error), error)
            queue.batches[self._cell[0]] = self
            self._queue = queue

    @property
    def id(self) -> int:
        """The library's id of the batch; 0 when it is closed."""
        return self._cell[0]

    def __len__(self) -> int:
        return self._count

    def poll(self, timeout: Optional[float] = 0.0) -> int:
        """The status after at most `timeout` seconds: 0 (all completed), the code of MC_ERR_PENDING, or of the first
        request that did not complete. Raises nothing for a failed transfer."""
        identifier = self._cell[0]
        return wait_in_slices(lambda ns: lib.mc_batch_wait(identifier, ns), timeout)

    def wait(self, timeout: Optional[float] = None) -> bool:
        """True when all requests completed, False if `timeout` seconds ran out first (the batch goes on).

        Raises the exception of the first request that did not complete. Ctrl-C interrupts the wait, not the batch.
        """
        status = self.poll(timeout)
        if status == PENDING:
            return False
        self.check(status)
        return True

    def check(self, status: int) -> None:
        """Raises for a status of poll() that is none of success, saying which request did not complete and why."""
        if status < 0:
            error = new_error()
            lib.mc_batch_explain(self._cell[0], error)
            check(status, error)

    def status(self) -> list[RequestStatus]:
        """Where each request stands, in order."""
        indeterminate: int = lib.MC_STATUS_INDETERMINATE
        return [
            RequestStatus(_STATES[s.state], s.status, s.bytes, bool(s.flags & indeterminate), s.checksum)
            for s in self._rows()
        ]

    def statuses(self) -> Statuses:
        """The same as columns: for many requests."""
        rows = memoryview(ffi.buffer(self._rows()))
        halves, wholes = array("I"), array("Q")
        halves.frombytes(rows)
        wholes.frombytes(rows)
        return Statuses(
            array("i", halves[1::_HALVES].tobytes()),
            wholes[1 :: _HALVES // 2],
            halves[4::_HALVES],
            halves[5::_HALVES],
        )

    def _rows(self) -> Any:
        statuses = ffi.new("struct mc_request_status[]", self._count)
        check(lib.mc_batch_status(self._cell[0], 0, statuses, self._count, _STATUS_SIZE))
        return statuses

    def cancel(self) -> None:
        """Ends all requests that aren't done as cancelled; afterwards nothing touches the buffers."""
        check(lib.mc_batch_cancel(self._cell[0]))

    def close(self) -> None:
        """Cancels what isn't done and releases the batch; a second call does nothing."""
        identifier = self._cell[0]
        if not identifier:
            return
        if lib.mc_batch_free(identifier) == lib.MC_ERR_BUSY:
            lib.mc_batch_cancel(identifier)
            lib.mc_batch_free(identifier)
        self._cell[0] = 0
        if self._queue is not None:
            self._queue.batches.pop(identifier, None)
        self._engine = self._keep = self._queue = None

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class Completion(NamedTuple):
    """A finished batch: error is None if all requests completed, else that of the first that did not; failed: how many
    did not."""

    batch: Batch
    error: Optional[MooncakeError]
    failed: int


class Queue(Unique):
    """Collects finished batches. Its fileno() is readable while one waits, for select or an asyncio reader."""

    def __init__(self) -> None:
        self.handle: Any = ffi.NULL
        self.lock = threading.Lock()
        self.batches: dict[int, Batch] = {}
        handles, error = ffi.new("mc_queue **"), new_error()
        check(lib.mc_queue_open(handles, error), error)
        self.handle = handles[0]

    def fileno(self) -> int:
        """The descriptor; poll it, never read or close it."""
        return check(lib.mc_queue_fd(self.handle))

    def reap(self, capacity: int = 64, timeout: Optional[float] = 0.0) -> list[Completion]:
        """Up to `capacity` finished batches, oldest first; waits at most `timeout` seconds (None: for ever) for the
        first, and answers an empty list if none came."""
        if capacity < 1:
            raise ValueError("capacity must be at least 1")
        rows = ffi.new("struct mc_completion[]", capacity)
        handle = self.handle
        count = wait_in_slices(lambda ns: lib.mc_queue_reap(handle, rows, capacity, _COMPLETION_SIZE, ns), timeout)
        if count == PENDING:
            return []
        check(count)
        done: list[Completion] = []
        with self.lock:
            for row in rows[0:count]:
                batch = self.batches.pop(row.batch, None)
                if batch is not None:
                    done.append(Completion(batch, error_for(row.status) if row.status else None, row.failed))
        return done

    def close(self) -> None:
        """errors.Busy while batches that are bound to it are open; a second call does nothing."""
        if self.handle != ffi.NULL:
            check(lib.mc_queue_close(self.handle))
            self.handle = ffi.NULL

    def __enter__(self) -> Queue:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        for batch in list(self.batches.values()):  # forgotten with the queue, which they hold: they go first
            batch.close()
        if self.handle != ffi.NULL:
            lib.mc_queue_close(self.handle)
