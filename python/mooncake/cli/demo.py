"""Hands the KV blocks of an hour of a chat service from a prefill process to a decode process, and checks every byte.

    python -m mooncake.cli.demo [--trace FILE] [--transport shm,tcp] [--block-size 16384] [--requests N]

For each request of a trace the prefill process writes the blocks that the decode process doesn't hold, one-sided and as
one batch, and notifies it; the decode process compares every byte of the request's blocks with what their ids say. Then
a table: each transport beside memcpy and a plain socket with the same batches. The exit status is 0 only if every byte
was right.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import wait
from typing import Any, Optional

from ._blocks import SMALLEST_BLOCK
from ._demo_sides import LARGEST_REQUEST, Config, Result, decode_side, prefill_side
from ._report import Progress, Row, table
from ._trace import Request, TraceError, choose_trace

__all__ = ["DemoError", "main", "run"]

_TRANSPORTS = ("shm", "tcp")


class DemoError(RuntimeError):
    """The demo did not come to its end."""


def run(config: Config, requests: list[Request], progress: Optional[Progress] = None) -> list[Result]:
    """Runs both processes; per path the seconds and counts of both sides together. DemoError if one of them fails."""
    context = multiprocessing.get_context("spawn")
    link, other_link = context.Pipe()
    sides: dict[Any, Any] = {}
    for name, target, end in (("decode", decode_side, link), ("prefill", prefill_side, other_link)):
        mine, theirs = context.Pipe()
        process = context.Process(name=name, target=target, args=(theirs, end, config, requests), daemon=True)
        process.start()
        theirs.close()
        end.close()
        sides[mine] = process
    results: dict[str, Result] = {}
    running = dict(sides)
    try:
        while running:
            for pipe in wait(list(running)):
                _hear(pipe, running, results, progress)
    finally:
        for pipe, process in sides.items():
            if pipe in running:
                process.kill()
            process.join()
        if progress is not None:
            progress.end()
    return list(results.values())


def _hear(pipe: Any, running: dict[Any, Any], results: dict[str, Result], progress: Optional[Progress]) -> None:
    """Takes one word of one side."""
    process = running[pipe]
    try:
        kind, *words = pipe.recv()
    except EOFError:
        process.join()
        raise DemoError(f"the {process.name} process ended with status {process.exitcode}") from None
    if kind == "failed":
        raise DemoError(f"the {process.name} process failed: {words[0]}")
    if kind == "end":
        del running[pipe]
    elif kind == "progress" and progress is not None:
        progress.show(*words)
    elif kind == "result":
        new: Result = words[0]
        old = results.get(new.path, Result(new.path, [], 0, 0, []))
        results[new.path] = Result(
            new.path,
            old.seconds or new.seconds,
            old.moved + new.moved,
            old.checked + new.checked,
            old.wrong + new.wrong,
        )


def _arguments(words: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m mooncake.cli.demo",
        description="Moves the KV blocks of an hour of chat between two processes, and checks every byte.",
    )
    parser.add_argument(
        "--trace", metavar="FILE", help="JSON lines, plain or gzip; default: the recorded hour, else made"
    )
    parser.add_argument("--transport", default="shm,tcp", metavar="LIST", help="of shm and tcp (default shm,tcp)")
    parser.add_argument("--block-size", type=int, default=16384, metavar="BYTES", help="of a block (default 16384)")
    parser.add_argument(
        "--pool-size", type=int, default=1 << 30, metavar="BYTES", help="of the decode side (default 1 GiB)"
    )
    parser.add_argument("--requests", type=int, metavar="N", help="only the first N")
    arguments = parser.parse_args(words)
    arguments.transport = tuple(dict.fromkeys(arguments.transport.split(",")))
    unknown = [name for name in arguments.transport if name not in _TRANSPORTS]
    if unknown:
        parser.error(f"unknown transport {unknown[0]!r}; there are shm and tcp")
    if arguments.block_size < SMALLEST_BLOCK:
        parser.error(f"a block has at least {SMALLEST_BLOCK} bytes")
    if arguments.pool_size < arguments.block_size:
        parser.error("the pool must hold a block at least")
    if arguments.requests is not None and arguments.requests < 1:
        parser.error("at least one request is needed")
    return arguments


def _trace(path: Optional[str], limit: Optional[int]) -> tuple[list[Request], str]:
    """The requests, and words on where they are from."""
    requests, source = choose_trace(path, limit)
    for number, request in enumerate(requests, 1):
        if len(request.hash_ids) > LARGEST_REQUEST:
            raise TraceError(path, number, f"more than {LARGEST_REQUEST:,} blocks in one request")
    return requests, source


def main(words: Optional[Sequence[str]] = None) -> int:
    """The exit status: 0 if every byte was right, 1 if not or if something failed, 2 for wrong arguments."""
    arguments = _arguments(words)
    start = time.monotonic()
    try:
        requests, source = _trace(arguments.trace, arguments.requests)
    except TraceError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    accesses = sum(len(request.hash_ids) for request in requests)
    distinct = len({block_id for request in requests for block_id in request.hash_ids})
    held = arguments.pool_size // arguments.block_size
    print(f"trace: {source}")
    print(f"       {len(requests):,} requests of {accesses:,} blocks, {distinct:,} distinct")
    print(f"       {arguments.block_size:,} bytes a block; the decode side holds {held:,} blocks", flush=True)
    config = Config(arguments.block_size, arguments.pool_size, arguments.transport)
    try:
        results = run(config, requests, Progress(len(requests)))
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return report(config, len(requests), results, time.monotonic() - start)


def report(config: Config, requests: int, results: Sequence[Result], seconds: float) -> int:
    """Prints the table and the verdict; the exit status."""
    print()
    print(table([Row(r.path, requests, r.moved, config.block_size, r.seconds) for r in results]))
    print()
    wrong = [words for result in results for words in result.wrong]
    for words in wrong:
        print(f"WRONG: {words}")
    if not wrong:
        print(f"{sum(result.checked for result in results):,} blocks checked, every byte right; {seconds:.0f} s in all")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
