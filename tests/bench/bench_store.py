"""bench_store.py - one client of a store from Python, of our package and of the reference alike; started by run.py.

    bench_store.py owner MASTER POOL     POOL bytes of memory for the pool: answers "ready", serves until its input ends
    bench_store.py opener MASTER         one answer a line of input:
        open SIZE -> seconds             of setting up a store that brings SIZE bytes; it is closed outside the time
    bench_store.py caller MASTER POOL SPAN
    bench_store.py memcpy - 0 SPAN       the same, where putting and getting are memcpy from and to another memory
        touch -> ok                      puts once into (nearly) every page of the pool, and removes it all
        plan SIZE COUNT -> ok            the keys that the following is about: COUNT of SIZE bytes
        check ITEMS -> ok                there and back, in this form: the bytes are right
        fill -> ok                       puts all keys and reads each once, so that they are known; the bytes are right
        clear -> ok                      removes all keys
        time put ITEMS CALLS FIRST -> seconds    of CALLS calls with ITEMS keys each, from key FIRST on, which aren't
                                                 there; they are removed outside the time
        time get …, time exist … -> seconds      the same of keys that are there

Both interpreters run this file, so it uses nothing but the standard library and `MooncakeDistributedStore`.
"""

from __future__ import annotations

import ctypes
import mmap
import random
import sys
import time
from typing import Any, Callable

STAMP = 8  # the value of key i begins this many bytes after that of key i - 1
BATCH = 32  # of one call that isn't measured, at most: the reference fails some of a batch of thousands


def answer(value: object) -> None:
    """A line that can't be taken for one that the package itself prints."""
    print(f"= {value}", flush=True)


def expect(what: str, results: list[int], wanted: int) -> None:
    bad = [result for result in results if result != wanted]
    if bad:
        sys.exit(f"{what}: {len(bad)} of {len(results)} results are not {wanted}, the first is {bad[0]}")


def open_store(master: str, segment: int) -> Any:
    from mooncake.store import MooncakeDistributedStore

    store = MooncakeDistributedStore()
    expect("setup", [store.setup("127.0.0.1", "P2PHANDSHAKE", segment, 64 << 20, "tcp", "", master)], 0)
    return store


class Memory:
    """Some bytes with all their pages."""

    def __init__(self, size: int) -> None:
        self.map = mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.map))
        ctypes.memset(self.address, 1, size)


class Plain:
    """The calls of a store that are measured, by memcpy: key "n" is at item n of the other memory."""

    def __init__(self, span: int) -> None:
        self.memory = Memory(span)

    def put_from(self, key: str, address: int, size: int) -> int:
        ctypes.memmove(self.memory.address + int(key) * size, address, size)
        return 0

    def get_into(self, key: str, address: int, size: int) -> int:
        ctypes.memmove(address, self.memory.address + int(key) * size, size)
        return size

    def batch_put_from(self, keys: list[str], addresses: list[int], sizes: list[int]) -> list[int]:
        return list(map(self.put_from, keys, addresses, sizes))

    def batch_get_into(self, keys: list[str], addresses: list[int], sizes: list[int]) -> list[int]:
        return list(map(self.get_into, keys, addresses, sizes))

    def batch_remove(self, keys: list[str], force: bool) -> list[int]:
        return [0] * len(keys)

    def close(self) -> None:
        pass


class Caller:
    def __init__(self, store: Any, pool: int, span: int) -> None:
        self.store = store
        self.pool = pool
        self.span = span
        self.local = Memory(span)
        self.size = 0
        self.keys: list[str] = []
        self.addresses: list[int] = []
        self.sizes: list[int] = []
        self.pattern = b""
        if not isinstance(store, Plain):
            expect("register_buffer", [store.register_buffer(self.local.address, span)], 0)

    # ---- Not measured

    def plan(self, size: int, count: int) -> str:
        self.size = size
        self.keys = [f"{index:016d}" for index in range(count)]
        self.addresses = [self.local.address + index * size for index in range(count)]
        self.sizes = [size] * count
        self.pattern = random.Random(size).randbytes(size + count * STAMP)
        return "ok"

    def parts(self, items: int) -> list[slice]:
        return [slice(start, start + items) for start in range(0, len(self.keys), items)]

    def write_values(self) -> None:
        pattern = (ctypes.c_char * len(self.pattern)).from_buffer_copy(self.pattern)
        for index, address in enumerate(self.addresses):
            ctypes.memmove(address, ctypes.addressof(pattern) + index * STAMP, self.size)

    def wipe(self) -> None:
        ctypes.memset(self.local.address, 0xEE, self.span)

    def compare(self, what: str, count: int) -> None:
        for index in range(count):
            start = index * STAMP
            if ctypes.string_at(self.addresses[index], self.size) != self.pattern[start : start + self.size]:
                sys.exit(f"{what}: value {index} of {self.size} bytes is not what was put")
        end = count * self.size
        if end < self.span and ctypes.string_at(self.local.address + end, 1) != b"\xee":
            sys.exit(f"{what}: more was written than {self.size} bytes")

    def clear(self) -> str:
        for part in self.parts(1000):
            expect("batch_remove", self.store.batch_remove(self.keys[part], True), 0)
        return "ok"

    def touch(self) -> str:
        size = min(16 << 20, self.pool // 16)
        keys = [f"touch{index}" for index in range(self.pool * 85 // 100 // size)]
        for key in keys:
            expect("put_from", [self.store.put_from(key, self.local.address, size)], 0)
        expect("batch_remove", self.store.batch_remove(keys, True), 0)
        return "ok"

    def check(self, items: int) -> str:
        part = slice(0, items)
        self.write_values()
        self.call("put", part)
        self.wipe()
        self.call("get", part)
        self.compare(f"check in a batch of {items}", items)
        expect("batch_remove", self.store.batch_remove(self.keys[part], True), 0)
        return "ok"

    def fill(self) -> str:
        self.write_values()
        for part in self.parts(BATCH):
            self.call("put", part)
        self.wipe()
        for part in self.parts(BATCH):
            self.call("get", part)
        self.compare("fill", len(self.keys))
        return "ok"

    # ---- Measured

    def caller(self, op: str, items: int) -> Callable[[slice], list[int]]:
        """What makes one call of this form for a part of the keys."""
        store, keys, addresses, sizes, size = self.store, self.keys, self.addresses, self.sizes, self.size
        if op == "exist":
            if items == 1:
                return lambda part: [store.is_exist(keys[part.start])]
            return lambda part: store.batch_is_exist(keys[part])
        if items == 1:
            single = store.put_from if op == "put" else store.get_into
            return lambda part: [single(keys[part.start], addresses[part.start], size)]
        batch = store.batch_put_from if op == "put" else store.batch_get_into
        return lambda part: batch(keys[part], addresses[part], sizes[part])

    def wanted(self, op: str) -> int:
        return {"put": 0, "get": self.size, "exist": 1}[op]

    def call(self, op: str, part: slice) -> None:
        items = min(part.stop, len(self.keys)) - part.start
        expect(op, list(self.caller(op, items)(part)), self.wanted(op))

    def time(self, op: str, items: int, calls: int, first: int) -> float:
        usable = len(self.keys) - len(self.keys) % items
        starts = [(first + index * items) % usable for index in range(calls)]
        parts = [slice(start, start + items) for start in starts]
        call = self.caller(op, items)
        begun = time.perf_counter()
        results = [call(part) for part in parts]
        seconds = time.perf_counter() - begun
        for result in results:
            expect(op, list(result), self.wanted(op))
        if op == "put":  # "is there already" is answered 0 too: each key has to have been absent, and so has to be now
            for part in parts:
                expect("batch_remove", self.store.batch_remove(self.keys[part], True), 0)
        return seconds


class Opener:
    def __init__(self, master: str) -> None:
        self.master = master

    def open(self, size: int) -> float:
        begun = time.perf_counter()
        store = open_store(self.master, size)
        seconds = time.perf_counter() - begun
        store.close()
        return seconds


def serve(ready: Any) -> None:
    answer("ready")
    for line in sys.stdin:
        what, *words = line.split()
        numbers = [int(word) if word.isdigit() else word for word in words]
        answer(getattr(ready, what)(*numbers))


def main(role: str, master: str, pool: str = "0", span: str = "0") -> None:
    if role == "opener":
        import mooncake.store  # noqa: F401 - what is measured is not the import

        return serve(Opener(master))
    store = Plain(int(span)) if role == "memcpy" else open_store(master, int(pool) if role == "owner" else 0)
    if role == "owner":
        answer("ready")
        sys.stdin.read()
    else:
        serve(Caller(store, int(pool), int(span)))
    store.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
