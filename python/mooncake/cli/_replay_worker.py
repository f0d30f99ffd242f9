"""A process that serves requests of a trace from a pool: what is cached of a prompt is read, the rest is put.

For each request one batch call asks for all of its blocks; the blocks until the first missing one are its hits. Another
puts those that are missing. Every byte that was read is compared with what the block's id says it is; before a read the
place that it goes to is overwritten, so that what is right there has come there since.
"""

from __future__ import annotations

import os
import signal
import time
from array import array
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple

from ._blocks import Blocks, Wrong
from ._cluster import begin_process
from ._trace import Request

if TYPE_CHECKING:
    from mooncake.store import Store

__all__ = ["KEY_LENGTH", "Tally", "Task", "block_key", "in_turn", "replay", "work"]

KEY_LENGTH = 19
_TIMEOUT = 20.0
_SHOWN = 5
_SAMPLE = 32  # requests


def block_key(block_id: int) -> bytes:
    """Under which a block is stored; of one length for all."""
    return b"kv/%016x" % block_id


class Task(NamedTuple):
    """master: its address; block_size: bytes; force_tcp: even though all is on one host; requests: the whole trace."""

    master: str
    block_size: int
    force_tcp: bool
    requests: list[Request]


class Tally:
    """What became of some requests. Of the calls that read and put: the seconds, and the blocks moved, of each."""

    def __init__(self) -> None:
        self.requests = 0
        self.hits = 0  # blocks until the first missing one
        self.checked = 0
        self.present = 0  # not put: another worker was quicker
        self.stock = array("I")  # places in reserve for later puts, now and then
        self.get_seconds = array("d")
        self.get_blocks = array("I")
        self.put_seconds = array("d")
        self.put_blocks = array("I")
        self.wrong = 0
        self.words: list[str] = []  # on the first wrong ones

    @property
    def got(self) -> int:
        """Blocks read: hits, and those found behind a missing one."""
        return sum(self.get_blocks)

    @property
    def put(self) -> int:
        """Blocks put."""
        return sum(self.put_blocks)

    @property
    def mean_stock(self) -> float:
        """Of one worker."""
        return sum(self.stock) / len(self.stock) if self.stock else 0.0

    def add(self, other: Tally) -> None:
        """Counts what another worker did."""
        for name in ("requests", "hits", "checked", "present", "wrong"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.stock += other.stock
        self.get_seconds += other.get_seconds
        self.get_blocks += other.get_blocks
        self.put_seconds += other.put_seconds
        self.put_blocks += other.put_blocks
        self.words = (self.words + other.words)[:_SHOWN]


def in_turn(next_index: Any, total: int) -> Iterable[int]:
    """Each index below `total` once, over all workers that share the counter, in their order: a worker takes the next
    one when it is done with the last."""
    while True:
        with next_index.get_lock():
            index = next_index.value
            next_index.value = index + 1
        if index >= total:
            return
        yield index


class _Staging:
    """Memory for the blocks of a request, known to the store's engine."""

    def __init__(self, store: Store, count: int, size: int) -> None:
        from mooncake.engine import alloc

        self._memory = alloc(count * size)
        self._registration = store.register(self._memory)
        self.address = self._memory.address
        self.view = self._memory.view
        self.places = [self.view[place * size : place * size + size] for place in range(count)]

    def close(self) -> None:
        for view in (*self.places, self.view):
            view.release()
        self._registration.unregister()
        self._memory.free()


def replay(store: Store, blocks: Blocks, requests: Sequence[Request], turns: Iterable[int]) -> Tally:
    """Serves the requests with these indices. errors.MooncakeError if a call fails."""
    tally = Tally()
    longest = max((len(request.hash_ids) for request in requests), default=0)
    reading = _Staging(store, max(1, longest), blocks.size)
    writing = _Staging(store, max(1, longest), blocks.size)
    try:
        for index in turns:
            ids = requests[index].hash_ids
            tally.requests += 1
            if ids:
                missing = _read(store, blocks, tally, reading, index, ids)
                if missing:
                    _put(store, blocks, tally, writing, missing)
            if tally.requests % _SAMPLE == 0:
                tally.stock.append(store.stats()["stock"])
    finally:
        reading.close()
        writing.close()
    return tally


def _read(store: Store, blocks: Blocks, tally: Tally, staging: _Staging, index: int, ids: Sequence[int]) -> list[int]:
    """Reads and checks what there is of the blocks; the ids of those that are missing."""
    size, count = blocks.size, len(ids)
    keys = [block_key(block_id) for block_id in ids]
    for place in range(count):
        blocks.poison(staging.address + place * size)
    start = time.perf_counter()
    lengths = store.get_many_into(keys, staging.places[:count], timeout=_TIMEOUT)
    tally.get_seconds.append(time.perf_counter() - start)
    missing: list[int] = []
    for place, (block_id, length) in enumerate(zip(ids, lengths)):
        if length is None:
            missing.append(block_id)
            continue
        tally.checked += 1
        tally.hits += not missing
        try:
            if length != size:
                raise Wrong(f"block {block_id}: it has {length} bytes instead of {size}")
            blocks.check(staging.view, place * size, staging.address + place * size, block_id)
        except Wrong as error:
            tally.wrong += 1
            tally.words = [*tally.words, f"request {index + 1}, {error}"][:_SHOWN]
    tally.get_blocks.append(count - len(missing))
    return missing


def _put(store: Store, blocks: Blocks, tally: Tally, staging: _Staging, ids: Sequence[int]) -> None:
    for place, block_id in enumerate(ids):
        blocks.fill(staging.view, place * blocks.size, block_id)
    items = [(block_key(block_id), place) for block_id, place in zip(ids, staging.places)]
    start = time.perf_counter()
    stored = store.put_many(items, timeout=_TIMEOUT)
    tally.put_seconds.append(time.perf_counter() - start)
    tally.put_blocks.append(sum(stored))
    tally.present += len(stored) - sum(stored)


def work(parent: Connection, next_index: Any, task: Task) -> None:
    """Entry of a worker process; the parent hears of its end either way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has heard it too, and ends this process
    begin_process()
    try:
        if task.force_tcp:
            os.environ["MC_FORCE_TCP"] = "1"
        from mooncake import connect

        blocks = Blocks(task.block_size)
        with connect(task.master) as store:
            parent.send(("ready",))
            parent.recv()
            start = time.monotonic()
            tally = replay(store, blocks, task.requests, in_turn(next_index, len(task.requests)))
            parent.send(("tally", tally, start, time.monotonic()))
    except Exception as error:
        parent.send(("failed", f"{type(error).__name__}: {error}"))
