"""Replays the requests of an hour of a chat service against a pool of memory, and checks every byte.

    mooncake replay [--trace FILE] [--requests N] [--block-size 16KiB] [--capacity BLOCKS] [--owners 2] [--workers 2]
                    [--policy hazard|lru] [--transport shm|tcp|both] [--json]

A master, memory owners and workers run as processes of their own. The pool is smaller than what the trace names, so
that it evicts all the time. A worker takes the next request, reads what the pool has of its blocks, and puts the rest.
Then a table: the share of blocks found beside what a simulated LRU cache of the same capacity would find, what was
moved, and how long the calls took. The exit status is 0 only if every byte was right.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import signal
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any, Callable, NamedTuple, Optional

from ._blocks import SMALLEST_BLOCK
from ._cluster import Cluster, ClusterError, Footprint, measure_footprint, segment_size, uninterrupted
from ._lru import simulate_lru
from ._replay_report import Outcome, table, verdict
from ._replay_worker import KEY_LENGTH, Tally, Task, work
from ._report import Progress
from ._trace import Request, TraceError, choose_trace

__all__ = ["Config", "ReplayError", "main", "run"]

_TRANSPORTS = {"shm": ("shm",), "tcp": ("tcp",), "both": ("shm", "tcp"), "shm,tcp": ("shm", "tcp")}
_PATIENCE = 60.0  # seconds without a request
_LARGEST_BLOCK = 1 << 30
_TICK = 0.1

Worker = Callable[[Any, Any, Task], None]


class ReplayError(RuntimeError):
    """The replay did not come to its end."""


class Config(NamedTuple):
    """block_size: bytes; capacity: blocks that the pool is to hold."""

    block_size: int
    capacity: int
    owners: int
    workers: int
    policy: str = "hazard"


class _Replay:
    """One pass over the trace: the cluster, and the workers at it."""

    def __init__(self, config: Config, footprint: Footprint, transport: str, requests: list[Request], worker: Worker):
        self._config = config
        self._requests = requests
        self._transport = transport
        self._worker = worker
        self._segment = segment_size(-(-config.capacity // config.owners), footprint, config.workers)
        self._all: list[tuple[Any, Any]] = []  # the workers' pipes and processes
        self._context = multiprocessing.get_context("spawn")
        self._next: Any = self._context.Value("q", 0)
        self._moved = (0, time.monotonic())  # how many requests were taken, and when that last changed

    def __call__(self, progress: Optional[Progress]) -> tuple[Tally, float, int]:
        """What the workers did, the seconds that it took, and the keys that there were at the end."""
        force_tcp = self._transport == "tcp"
        try:
            with Cluster(
                self._config.owners, self._segment, force_tcp=force_tcp, policy=self._config.policy
            ) as cluster:
                task = Task(cluster.address, self._config.block_size, force_tcp, self._requests)
                try:
                    return self._serve(cluster, task, progress)
                finally:
                    self._end_workers()
        except ClusterError as error:
            raise ReplayError(str(error)) from None

    def _serve(self, cluster: Cluster, task: Task, progress: Optional[Progress]) -> tuple[Tally, float, int]:
        for number in range(1, self._config.workers + 1):
            mine, theirs = self._context.Pipe()
            process = self._context.Process(
                name=f"worker {number}", target=self._worker, args=(theirs, self._next, task), daemon=True
            )
            with uninterrupted():
                process.start()
                self._all.append((mine, process))
            theirs.close()
        for pipe, _ in self._hear(cluster, None):  # all are connected before the first request
            pipe.send("go")
        spoken = self._hear(cluster, progress)
        for _, process in self._all:
            process.join(_PATIENCE)
        total, seconds = Tally(), 0.0
        first = min(start for _, (_, _, start, _) in spoken)
        for _, (_, tally, _, end) in spoken:
            total.add(tally)
            seconds = max(seconds, end - first)
        return total, seconds, self._count_keys(task)

    def _hear(self, cluster: Cluster, progress: Optional[Progress]) -> list[tuple[Any, Any]]:
        """What each worker says next. ReplayError if one fails, or anything ends."""
        waiting = dict(self._all)
        said: list[tuple[Any, Any]] = []
        self._moved = (self._moved[0], time.monotonic())
        while waiting:
            for pipe in wait(list(waiting), _TICK):
                said.append((pipe, self._words(cluster, pipe, waiting.pop(pipe))))
            words = cluster.ended()
            if words is not None:
                raise ReplayError(words)
            taken = min(self._next.value, len(self._requests))
            if progress is not None:
                progress.show(self._transport, taken)
            if taken != self._moved[0]:
                self._moved = (taken, time.monotonic())
            elif time.monotonic() - self._moved[1] > _PATIENCE:
                raise ReplayError(f"nothing happened for {_PATIENCE:.0f} s")
        return said

    def _words(self, cluster: Cluster, pipe: Any, process: Any) -> Any:
        try:
            said = pipe.recv()
        except (EOFError, OSError):
            process.join(1)
            raise ReplayError(f"{process.name} ended with status {process.exitcode}") from None
        if said[0] == "failed":
            # It may have failed because of another process, which is then the thing to know.
            cause = cluster.ended(patience=0.5)
            raise ReplayError(f"{process.name} failed: {said[1]}" + (f" ({cause})" if cause else ""))
        return said

    @staticmethod
    def _count_keys(task: Task) -> int:
        from mooncake.store import connect

        with connect(task.master, protocol="tcp" if task.force_tcp else None) as store:
            return sum(1 for _ in store)

    def _end_workers(self) -> None:
        for pipe, process in self._all:
            process.kill()
            process.join()
            pipe.close()


def run(
    config: Config,
    transport: str,
    requests: list[Request],
    progress: Optional[Progress] = None,
    worker: Worker = work,
) -> Outcome:
    """Replays the trace once. ReplayError if anything fails but the bytes."""
    footprint = measure_footprint(KEY_LENGTH, config.block_size)
    try:
        tally, seconds, keys = _Replay(config, footprint, transport, requests, worker)(progress)
    finally:
        if progress is not None:
            progress.end()
    return Outcome(transport, config.block_size, config.capacity, _accesses(requests), tally, seconds, keys)


def _accesses(requests: Sequence[Request]) -> int:
    return sum(len(request.hash_ids) for request in requests)


def _size(text: str) -> int:
    from mooncake.store._options import parse_size

    return parse_size(text, "a block size")


def _arguments(words: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="mooncake replay",
        description="Replays an hour of chat against a pool of memory under constant eviction, and checks every byte.",
    )
    parser.add_argument(
        "--trace", metavar="FILE", help="JSON lines, plain or gzip; default: the recorded hour, else made"
    )
    parser.add_argument("--requests", type=int, metavar="N", help="only the first N")
    parser.add_argument("--block-size", type=_size, default="16KiB", metavar="BYTES", help="of a block (default 16KiB)")
    parser.add_argument(
        "--capacity", type=int, default=10000, metavar="BLOCKS", help="that the pool holds (default 10000)"
    )
    parser.add_argument(
        "--policy", choices=("hazard", "lru"), default="hazard", help="of eviction at the master (default hazard)"
    )
    parser.add_argument("--owners", type=int, default=2, metavar="N", help="processes with memory (default 2)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes that read and put (default 2)")
    parser.add_argument(
        "--transport",
        choices=list(_TRANSPORTS),
        default="both",
        metavar="shm|tcp|both",
        help="default both, one by one",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    arguments = parser.parse_args(words)
    for name, least in (("owners", 1), ("workers", 1), ("requests", 1)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            parser.error(f"--{name} must be {least} at least")
    if not SMALLEST_BLOCK <= arguments.block_size <= _LARGEST_BLOCK:
        parser.error(f"a block has {SMALLEST_BLOCK} bytes to 1 GiB")
    return arguments


def _check_capacity(config: Config, requests: Sequence[Request]) -> None:
    """A pool must hold what all workers put at a time, on each owner, and some more."""
    longest = max(len(request.hash_ids) for request in requests)
    least = 2 * config.owners * max(64, config.workers * longest)
    if config.capacity < least:
        raise ReplayError(
            f"a pool of {config.capacity:,} blocks is too small for {config.workers} workers and {config.owners} "
            f"owners with requests of up to {longest:,} blocks: {least:,} at least"
        )


def main(words: Optional[Sequence[str]] = None) -> int:
    """The exit status: 0 if every byte was right, 1 if not or if something failed, 2 for wrong arguments."""
    arguments = _arguments(words)
    config = Config(arguments.block_size, arguments.capacity, arguments.owners, arguments.workers, arguments.policy)
    before = signal.signal(signal.SIGTERM, _interrupt)  # so that all processes are ended
    try:
        requests, source = choose_trace(arguments.trace, arguments.requests)
        _check_capacity(config, requests)
        return _replay_all(config, _TRANSPORTS[arguments.transport], requests, source, arguments.json)
    except (ReplayError, TraceError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2 if isinstance(error, TraceError) else 1
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _replay_all(config: Config, transports: Sequence[str], requests: list[Request], source: str, as_json: bool) -> int:
    accesses = _accesses(requests)
    prompts = [request.hash_ids for request in requests]
    if not as_json:
        distinct = len({block_id for prompt in prompts for block_id in prompt})
        print(f"trace: {source}")
        print(f"       {len(requests):,} requests of {accesses:,} blocks, {distinct:,} distinct")
        print(
            f"       {config.block_size:,} bytes a block; a pool of {config.capacity:,} blocks at {config.owners} "
            f"memory owners; {config.workers} workers",
            flush=True,
        )
    start = time.monotonic()
    simulated = simulate_lru(prompts, config.capacity) / accesses if accesses else 0.0
    outcomes = [run(config, transport, requests, Progress(len(requests))) for transport in transports]
    if as_json:
        print(json.dumps({"trace": source, "simulated_lru": simulated, "passes": [o.figures() for o in outcomes]}))
    else:
        print()
        print(table(outcomes, simulated))
        print()
    words, status = verdict(outcomes, time.monotonic() - start)
    print(words, file=sys.stderr if as_json else sys.stdout)
    return status


if __name__ == "__main__":
    sys.exit(main())
