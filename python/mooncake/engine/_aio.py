"""Awaitable transfers: batches whose end comes to an event loop through the descriptor of a queue.

Each event loop has one queue, for all engines and however much is awaited at once; it goes with the loop. There is no
thread and no callback from the library. A task that is cancelled cancels its batch, and the buffers are quiet, and let
go, when CancelledError leaves the call. What this process has mapped is copied at once, without a turn of the loop.

Imported by the first awaitable call: asyncio is slow to import.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Optional
from weakref import WeakKeyDictionary

from .._native import deadline
from ._batch import Batch, Completion, Notify, Queue
from ._memory import Span, span_of
from ._peer import Peer, move, read_call, write_call
from ._requests import READ, pack_one

if TYPE_CHECKING:
    from ._engine import Engine

__all__ = ["finished", "moved"]

_AT_ONCE_MAX = 1 << 20
"""The longest copy that an event loop may wait for: some tens of microseconds."""

_IN_A_ROW = 32
"""After so many of them the other tasks of the loop have a turn."""


class _LoopQueue:
    """The queue of one event loop, which reads it. It doesn't hold the loop, which holds it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.queue = Queue()
        self.in_a_row = 0
        loop.add_reader(self.queue.fileno(), self._reap)

    def _reap(self) -> None:
        done: list[Completion] = self.queue.reap(256)
        for completion in done:
            future: Any = completion.batch.context
            if not future.done():
                future.set_result(None)


_lock = threading.Lock()
_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopQueue] = WeakKeyDictionary()


def _queue_of(loop: asyncio.AbstractEventLoop) -> _LoopQueue:
    queue = _queues.get(loop)
    if queue is None:
        with _lock:
            for other in list(_queues):
                if other.is_closed():
                    _queues.pop(other, None)
            queue = _queues[loop] = _LoopQueue(loop)
    return queue


async def finished(
    engine: Engine, packed: Any, count: int, keep: Any, timeout: Optional[float], notify: Optional[Notify] = None
) -> Batch:
    """Submits the packed requests and returns their batch, which the caller closes, when it is terminal."""
    loop = asyncio.get_running_loop()
    batch = Batch(engine, count, keep, loop.create_future())
    try:
        batch.start(engine.handle, packed, timeout, _queue_of(loop).queue, notify=notify)
        await batch.context  # pyright: ignore[reportGeneralTypeIssues]
    except BaseException:
        batch.close()
        raise
    return batch


async def moved(
    engine: Engine,
    peer: Peer,
    opcode: int,
    local: Span,
    remote: int,
    length: Optional[int],
    timeout: Optional[float],
    guard: Optional[tuple[int, int]],
) -> None:
    """One request to its end."""
    address, size, keep = span_of(local, length, writable=opcode == READ)
    if peer.mapped_from <= remote <= peer.mapped_to - size and guard is None and size <= _AT_ONCE_MAX:
        queue = _queue_of(asyncio.get_running_loop())
        queue.in_a_row = (queue.in_a_row + 1) % _IN_A_ROW
        if not queue.in_a_row:
            await asyncio.sleep(0)
        call = read_call if opcode == READ else write_call
        move(call, peer.id, address, remote, size, deadline(timeout))
        return
    batch = await finished(engine, pack_one(peer.id, opcode, address, remote, size, guard), 1, keep, timeout)
    with batch:
        batch.check(batch.poll())
    peer.learn(remote)
