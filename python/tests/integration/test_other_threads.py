"""Faults 32 and 33: other threads run during each call; buffers, forks and threads can't break what runs."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable

import pytest

from mooncake import errors
from mooncake.engine import READ, WRITE, Access, Engine, Memory, Peer, Queue, TransferEngine, alloc

WAIT = 0.3  # seconds that each call below takes at least


@pytest.fixture
def path() -> str:
    return "tcp"


@pytest.fixture
def stopped(there: Any, peer: Peer, memory: Memory) -> Iterator[Any]:
    """The other process, which was reached and has been stopped."""
    peer.read(memory, there.base, 8)
    there.stop()
    yield there
    there.go_on()


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where connections are accepted by the kernel, and nobody says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def others_run_during(call: Callable[[], object]) -> None:
    """Fails unless another thread counts while the call runs, which takes WAIT or longer."""
    stop, started, counted = threading.Event(), threading.Event(), [0]

    def count() -> None:
        started.set()
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    started.wait()
    try:
        start, before = time.monotonic(), counted[0]
        call()
        took, after = time.monotonic() - start, counted[0]
    finally:
        stop.set()
        thread.join()
    assert took >= WAIT * 0.9, "the call is too short to tell"
    assert after - before > 5_000


def fails(kind: Any, call: Callable[[], object]) -> None:
    with pytest.raises(kind):
        call()


def meet_a_closing_engine(address: str, base: int) -> None:
    """Six threads make calls of six kinds, until the engine is closed under them."""
    engine, memory = Engine("127.0.0.1"), alloc(1 << 16)
    engine.register(memory)
    peer = engine.connect(address)
    wrong: list[BaseException] = []
    calls: list[Callable[[], object]] = [
        lambda: peer.write(memory.address, base, 4096),
        lambda: peer.read(memory.address, base, 4096),
        lambda: peer.transfer(WRITE, [memory.address] * 8, [base] * 8, [64] * 8),
        lambda: engine.receive(0.01),
        lambda: engine.connect(engine.address).close(),
        lambda: engine.register(bytearray(64)).unregister(),
    ]
    begun = threading.Barrier(len(calls) + 1)

    def work(call: Callable[[], object]) -> None:
        begun.wait()
        try:
            while True:
                call()
        except (errors.Closed, errors.InvalidHandle, errors.Cancelled, errors.Unreachable, errors.ConnectionLost):
            pass
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    begun.wait()
    time.sleep(0.02)
    engine.close()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert wrong == []


class TestFault32:
    """The GIL is released in each call: a counting thread advances."""

    def test_in_blocking_transfers(self, stopped: Any, peer: Peer, memory: Memory) -> None:
        for move in (peer.read, peer.write):
            others_run_during(lambda: fails(errors.Timeout, lambda: move(memory, stopped.base, 8, timeout=WAIT)))  # noqa: B023
        columns = [memory.address] * 3, [stopped.base] * 3, [8] * 3
        others_run_during(lambda: peer.transfer(READ, *columns, timeout=WAIT))

    def test_in_waits(self, stopped: Any, engine: Engine, peer: Peer, memory: Memory) -> None:
        with Queue() as queue, peer.submit(READ, [memory.address], [stopped.base], [8], queue=queue) as batch:
            others_run_during(lambda: batch.poll(WAIT))
            others_run_during(lambda: batch.wait(WAIT))
            others_run_during(lambda: queue.reap(timeout=WAIT))
        others_run_during(lambda: engine.receive(WAIT))

    def test_in_messages_and_probes(self, stopped: Any, peer: Peer) -> None:
        others_run_during(lambda: fails(errors.Timeout, lambda: peer.notify("name", "message", WAIT)))
        others_run_during(lambda: fails(errors.Timeout, lambda: peer.probe(WAIT)))

    def test_in_connections(self, silent: str) -> None:
        with Engine(connect_timeout=WAIT) as engine:
            others_run_during(lambda: fails(errors.Unreachable, lambda: engine.connect(silent)))

    def test_in_compatible_calls(self, stopped: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MC_TRANSFER_TIMEOUT", "1")
        with TransferEngine() as old:
            assert old.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
            buffer = old.allocate_managed_buffer(4096)
            stopped.go_on()
            assert old.transfer_sync_write(stopped.address, buffer, stopped.base, 8) == 0
            stopped.stop()
            others_run_during(lambda: old.transfer_sync_write(stopped.address, buffer, stopped.base, 8))
            others_run_during(lambda: old.transfer_sync_read(stopped.address, buffer, stopped.base, 8))
            batch = old.batch_transfer_async_read(stopped.address, [buffer], [stopped.base], [8])
            others_run_during(lambda: old.get_batch_transfer_status([batch]))

    def test_in_allocation_registration_and_set_up(self, engine: Engine) -> None:
        def work(call: Callable[[], object]) -> None:
            end = time.monotonic() + WAIT
            while time.monotonic() < end:
                call()

        def register() -> None:
            engine.register(buffer).unregister()

        buffer = bytearray(1 << 20)
        others_run_during(lambda: work(lambda: alloc(64 << 20).free()))
        others_run_during(lambda: work(register))
        others_run_during(lambda: work(lambda: Engine().close()))


class TestFault33:
    """Buffers that are freed or resized under a call, forks, and calls from many threads."""

    def test_a_buffer_can_not_be_resized_while_it_is_in_use(self, stopped: Any, engine: Engine, peer: Peer) -> None:
        buffer = bytearray(1000)
        region = engine.register(buffer, access=Access.NONE)
        batch = peer.submit(READ, [0], [stopped.base], [0])
        batch.close()
        thread = threading.Thread(
            target=lambda: fails(errors.Timeout, lambda: peer.read(buffer, stopped.base, 1000, timeout=1))
        )
        thread.start()
        time.sleep(0.1)
        for change in (lambda: buffer.append(1), buffer.clear, lambda: buffer.extend(b"xx")):
            with pytest.raises(BufferError):
                change()
        thread.join()
        region.unregister()
        buffer.clear()

    def test_memory_stays_while_it_is_in_use(self, stopped: Any, engine: Engine, peer: Peer) -> None:
        memory = alloc(4096)
        region = engine.register(memory, access=Access.NONE)
        address = memory.address
        batch = peer.submit(READ, [address], [stopped.base], [4096])
        with pytest.raises(errors.Busy):
            memory.free()
        del memory
        assert not batch.wait(0.05)
        stopped.go_on()
        assert batch.wait(10)
        batch.close()
        region.unregister()
        with pytest.raises(errors.NotRegistered):
            engine.unregister_range(address)

    def test_many_threads_may_meet_a_closing_engine(self, there: Any) -> None:
        for _ in range(10):
            meet_a_closing_engine(there.address, there.base)

    def test_a_child_is_refused_by_every_part_and_can_open_its_own(self) -> None:
        command = [sys.executable, "-c", FORKED]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == "fine\n", done.stderr


FORKED = """
import asyncio, logging, os, traceback
from mooncake import errors
from mooncake.engine import *

logging.disable(logging.CRITICAL)
old, server, client = TransferEngine(), RpcInterface(), RpcInterface()
assert old.initialize("127.0.0.1", "P2PHANDSHAKE", "", "") == 0
assert server.initialize("127.0.0.1:0") and server.start_server() and client.initialize_client(10, 1)
server.set_data_receive_callback(lambda data: None)
buffer = old.allocate_managed_buffer(4096)
engine = old.get_engine()
own, rpc = engine.address, server.address
peer = engine.connect(own)
segment, blob = SharedSegment.create(f"fork-{os.getpid()}", 4096, 1, 0)
segment.complete([blob])

def works(old, client):
    assert old.transfer_sync_write(own, buffer, buffer + 100, 8) == 0
    assert client.send_data(rpc, bytes(100_000)) == 0
    asyncio.run(engine.write(peer, buffer, buffer + 100, 8))

for _ in range(5):
    works(old, client)
child = os.fork()
if child == 0:
    status = 1
    try:
        assert old.transfer_sync_write(own, buffer, buffer + 100, 8) == -1
        assert client.send_data(rpc, bytes(100_000)) < 0
        for call in (lambda: asyncio.run(engine.write(peer, buffer, buffer + 100, 8)),
                     lambda: peer.write(buffer, buffer + 100, 8),
                     lambda: peer.transfer(WRITE, [buffer], [buffer + 100], [8])):
            try:
                call()
            except errors.Forked:
                pass
            else:
                raise AssertionError("not refused")
        with Engine() as fresh, alloc(4096) as memory, fresh.register(memory), fresh.connect(fresh.address) as mine:
            mine.write(memory, memory.address + 100, 8)
            asyncio.run(fresh.write(mine, memory, memory.address + 100, 8))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
works(old, client)
old.close()
server.close()
client.close()
print("fine")
"""
