"""Transfers that are awaited: no thread, one queue a loop, and quiet buffers after a cancel."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from mooncake import errors
from mooncake.engine import READ, WRITE, Access, Engine, Memory, Peer

DATA = random.Random(1).randbytes(300_000)


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """As asyncio.run(), with an end."""
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_what_is_awaited_is_there(engine: Engine, there: Any, peer: Peer, memory: Memory) -> None:
    async def move() -> None:
        memory.view[: len(DATA)] = DATA
        await engine.write(peer, memory, there.base + 5, len(DATA))
        await engine.read(peer, memory.address + 500_000, there.base + 5, len(DATA), timeout=10)
        await engine.write(peer, memory, there.base, 0)

    run(move())
    assert there.read(5, len(DATA)) == DATA
    assert memory.view[500_000 : 500_000 + len(DATA)] == DATA


def test_columns_are_awaited_as_one_batch(engine: Engine, there: Any, peer: Peer, memory: Memory) -> None:
    count, size = 500, 64
    memory.view[: count * size] = DATA[: count * size]
    local = [memory.address + size * k for k in range(count)]
    remote = [there.base + size * k for k in range(count)]
    statuses = run(engine.transfer(peer, WRITE, local, remote[::-1], [size] * count))
    assert statuses.ok
    assert statuses.bytes.tolist() == [size] * count
    got = there.read(0, count * size)
    assert all(got[size * (count - 1 - k) :][:size] == DATA[size * k :][:size] for k in range(count))


def test_many_awaits_share_one_queue_and_no_thread(engine: Engine, there: Any, peer: Peer, memory: Memory) -> None:
    size, count = 512, 1000
    memory.view[: size * count] = (DATA * 2)[: size * count]

    async def move() -> None:
        await engine.write(peer, memory, there.base, 8)  # what there has to be is there
        files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
        jobs = [
            asyncio.ensure_future(engine.write(peer, memory.address + size * k, there.base + size * k, size))
            for k in range(count)
        ]
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) <= files + 16, "as many as TCP has lanes, at most"
        assert threading.active_count() == threads
        await asyncio.gather(*jobs)

    run(move())
    assert there.read(0, size * count) == (DATA * 2)[: size * count]


def test_loops_may_come_and_go(engine: Engine, there: Any, peer: Peer, memory: Memory) -> None:
    async def move(k: int) -> None:
        memory.view[k] = k
        await asyncio.gather(*(engine.write(peer, memory.address + k, there.base + k, 1) for _ in range(3)))

    run(move(0))
    before = len(os.listdir("/proc/self/fd"))
    for k in range(1, 20):
        run(move(k))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert there.read(0, 20) == bytes(range(20))


def test_loops_of_several_threads_share_an_engine(engine: Engine, there: Any, peer: Peer, memory: Memory) -> None:
    failures: list[BaseException] = []

    async def move(number: int) -> None:
        for turn in range(20):
            place = 4096 * number + 8 * turn
            memory.view[place] = number + 1
            await engine.write(peer, memory.address + place, there.base + place, 1)
            await engine.read(peer, memory.address + place + 4, there.base + place, 1)
            assert memory.view[place + 4] == number + 1

    def work(number: int) -> None:
        try:
            run(move(number))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_failure_is_raised_where_it_is_awaited(
    engine: Engine, path: str, there: Any, peer: Peer, memory: Memory
) -> None:
    beyond = there.base + there.size
    wrong = (errors.NotRegistered, errors.NotSupported) if path == "shm" else (errors.NotRegistered,)

    async def move() -> None:
        with pytest.raises(wrong):
            await engine.write(peer, memory, beyond, 8)
        with pytest.raises(ValueError, match="does not fit"):
            await engine.write(peer, memory, there.base, memory.size + 1)
        with pytest.raises(errors.GuardMismatch):
            await engine.read(peer, memory, there.base, 8, guard=(there.base, 99))

    run(move())


def test_the_other_tasks_have_their_turns(engine: Engine, there: Any, peer: Peer, memory: Memory) -> None:
    async def move() -> int:
        turns = 0
        done = asyncio.Event()

        async def count() -> None:
            nonlocal turns
            while not done.is_set():
                turns += 1
                await asyncio.sleep(0)

        counter = asyncio.ensure_future(count())
        for _ in range(200):
            await engine.write(peer, memory, there.base, 8)
        done.set()
        await counter
        return turns

    assert run(move()) >= 5


@pytest.mark.parametrize("path", ["tcp"])
class TestAStoppedPeer:
    def test_a_cancelled_task_leaves_its_buffer_quiet(self, engine: Engine, there: Any, peer: Peer) -> None:
        there.write(0, b"x" * there.size)
        buffer = bytearray(there.size)
        gone = []

        class Kept(bytearray):
            def __del__(self) -> None:
                gone.append(True)

        async def move() -> None:
            kept = Kept(there.size)
            region = engine.register(buffer, access=Access.NONE)
            kept_region = engine.register(kept, access=Access.NONE)
            jobs = [
                asyncio.ensure_future(engine.read(peer, buffer, there.base)),
                asyncio.ensure_future(engine.read(peer, kept, there.base)),
            ]
            del kept
            await asyncio.sleep(0.1)
            assert not gone
            for job in jobs:
                job.cancel()
            ended = await asyncio.gather(*jobs, return_exceptions=True)
            assert [type(end) for end in ended] == [asyncio.CancelledError] * 2
            before = bytes(buffer)
            there.go_on()
            peer.probe(10)
            assert bytes(buffer) == before
            region.unregister()
            kept_region.unregister()

        there.stop()
        try:
            run(move())
        finally:
            there.go_on()
        gc.collect()
        assert gone

    def test_deadlines_are_the_transfer_s_or_the_task_s(self, engine: Engine, there: Any, peer: Peer) -> None:
        buffer = bytearray(1000)

        async def move() -> None:
            with pytest.raises(errors.Timeout):
                await engine.read(peer, buffer, there.base, timeout=0.2)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(engine.read(peer, buffer, there.base), 0.2)

        there.stop()
        try:
            with engine.register(buffer, access=Access.NONE):
                run(move())
        finally:
            there.go_on()

    def test_closing_the_engine_ends_what_is_awaited(self, there: Any, path: str) -> None:
        other = Engine("127.0.0.1", protocol=path)
        buffer = bytearray(1000)
        other.register(buffer, access=Access.NONE)
        peer = other.connect(there.address)

        async def move() -> None:
            job = asyncio.ensure_future(other.transfer(peer, READ, [_address(buffer)], [there.base], [1000]))
            await asyncio.sleep(0.1)
            other.close()
            assert not (await job).ok

        there.stop()
        try:
            run(move())
        finally:
            there.go_on()


def _address(buffer: bytearray) -> int:
    from mooncake.engine._memory import span_of

    return span_of(buffer)[0]
