"""bench_python.py - one end of transfers from Python, for our package and for the reference alike; started by run.py.

    bench_python.py target PROTOCOL                  answers "host:port address"; serves, and answers the lines
        cpu -> processor seconds so far              until its input ends
    bench_python.py caller PROTOCOL PEER ADDRESS     one answer a line of input:
        time OP SIZE ITEMS CALLS FIRST -> seconds        of all calls together
        each OP SIZE ITEMS CALLS FIRST -> seconds        of the median call
        check OP SIZE ITEMS -> ok                        the bytes are right
        cpu -> processor seconds so far

Both interpreters run this file, so it uses nothing but the standard library and `TransferEngine`.
"""

from __future__ import annotations

import ctypes
import mmap
import statistics
import sys
import time

from mooncake.engine import TransferEngine

SPAN = 256 << 20
kept: list[mmap.mmap] = []  # the memory that is registered


def answer(value: object) -> None:
    """A line that can't be taken for one that the package itself prints."""
    print(f"= {value}", flush=True)


def allocate(engine: TransferEngine, protocol: str) -> int:
    """Registered memory of SPAN bytes with all its pages; for shm, such as other processes can map."""
    if protocol == "shm":
        return engine.allocate_managed_buffer(SPAN)
    memory = mmap.mmap(-1, SPAN)
    kept.append(memory)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.memset(address, 1, SPAN)
    if engine.register_memory(address, SPAN) != 0:
        sys.exit("the memory can't be registered")
    return address


def start(protocol: str) -> TransferEngine:
    engine = TransferEngine()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", protocol, "") != 0:
        sys.exit("the engine can't be opened")
    return engine


def target(protocol: str) -> None:
    engine = start(protocol)
    answer(f"127.0.0.1:{engine.get_rpc_port()} {allocate(engine, protocol)}")
    for _ in sys.stdin:
        answer(time.process_time())


class Caller:
    def __init__(self, protocol: str, peer: str, remote: int) -> None:
        self.engine = start(protocol)
        self.local = allocate(self.engine, protocol)
        self.peer = peer
        self.remote = remote

    def call(self, op: str, offset: int, size: int, items: int) -> int:
        if items == 1:
            function = getattr(self.engine, f"transfer_sync_{op}")
            return function(self.peer, self.local + offset, self.remote + offset, size)
        offsets = range(offset, offset + items * size, size)
        function = getattr(self.engine, f"batch_transfer_sync_{op}")
        local, remote = [self.local + at for at in offsets], [self.remote + at for at in offsets]
        return function(self.peer, local, remote, [size] * items)

    def time(self, op: str, size: int, items: int, calls: int, first: int) -> float:
        step, failed = size * items, 0
        begun = time.perf_counter()
        for i in range(calls):
            failed |= self.call(op, (first + i * step) % SPAN, size, items)
        seconds = time.perf_counter() - begun
        if failed:
            sys.exit(f"a {op} of {size} bytes failed")
        return seconds

    def each(self, op: str, size: int, items: int, calls: int, first: int) -> float:
        """With as little of Python around a call as can be; what the clock takes is in it."""
        function, peer = getattr(self.engine, f"transfer_sync_{op}"), self.peer
        step, clock, seconds = size * items, time.perf_counter, []
        for i in range(calls):
            offset = (first + i * step) % SPAN
            local, remote = self.local + offset, self.remote + offset
            begun = clock()
            failed = function(peer, local, remote, size)
            seconds.append(clock() - begun)
            if failed:
                sys.exit(f"a {op} of {size} bytes failed")
        return statistics.median(seconds)

    def check(self, op: str, size: int, items: int) -> str:
        """There and back again by other bytes: what is written is what is read."""
        total = size * items
        content = bytes((i * 131 + (i >> 8) * 7) & 255 for i in range(min(total, 1 << 16)))
        content = (content * (total // len(content) + 1))[:total]
        ctypes.memmove(self.local, content, total)
        failed = self.call("write", 0, size, items)
        ctypes.memset(self.local, 0xEE, total)
        failed |= self.call("read", 0, size, items)
        if failed or ctypes.string_at(self.local, total) != content:
            sys.exit(f"{op} of {size} bytes: what was read is not what was written")
        return "ok"


def caller(protocol: str, peer: str, remote: str) -> None:
    ready = Caller(protocol, peer, int(remote))
    answer("ready")
    for line in sys.stdin:
        what, *words = line.split()
        if what == "cpu":
            answer(time.process_time())
        else:
            answer(getattr(ready, what)(words[0], *map(int, words[1:])))


if __name__ == "__main__":
    {"target": target, "caller": caller}[sys.argv[1]](*sys.argv[2:])
