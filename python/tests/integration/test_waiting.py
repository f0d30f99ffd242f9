"""What a blocked call does to the rest of the process: signals, other threads, fork."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from support import heed_interrupts

from mooncake import errors
from mooncake.engine import READ, Access, Engine, Queue, Request, TransferEngine

INTERRUPTED = """
import os, signal, sys, threading, time
from mooncake.engine import Engine, TransferEngine, alloc

address, base, stopped = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
size = 1 << 20
buffer = engine.allocate_managed_buffer(size)
assert engine.transfer_sync_read(address, buffer, base, 8) == 0
os.kill(stopped, signal.SIGSTOP)
while any(open(f"/proc/{stopped}/task/{task}/stat").read().rpartition(")")[2].split()[0] != "T"
          for task in os.listdir(f"/proc/{stopped}/task")):
    pass
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    result = engine.transfer_sync_read(address, buffer, base, size)
except KeyboardInterrupt:
    took = time.monotonic() - start
    assert 0.25 < took < 1.5, took
else:
    raise SystemExit(f"not interrupted, but {result}")
mark = "m" * size
assert engine.write_bytes_to_buffer(buffer, mark, size) == 0
os.kill(stopped, signal.SIGCONT)
other = engine.allocate_managed_buffer(size)
assert engine.transfer_sync_read(address, other, base, size) == 0, "the engine works on"
assert engine.read_bytes_from_buffer(buffer, size) == mark.encode(), "the buffer is quiet"
engine.close()
print("quiet")
"""


@pytest.fixture
def path() -> str:
    return "tcp"


def test_ctrl_c_ends_a_blocked_transfer_and_leaves_the_buffer_quiet(spawn: Any) -> None:
    there = spawn("tcp")
    there.write(0, b"x" * there.size)
    command = [sys.executable, "-c", INTERRUPTED, there.address, str(there.base), str(there.process.pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, preexec_fn=heed_interrupts)
    assert done.stdout == "quiet\n", done.stderr


def test_other_threads_run_while_one_waits(engine: Engine, there: Any, peer: Any, memory: Any) -> None:
    stop = threading.Event()
    counted = [0]

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1

    thread = threading.Thread(target=count)
    there.stop()
    try:
        thread.start()
        before = counted[0]
        with pytest.raises(errors.Timeout):
            peer.read(memory, there.base, 1000, timeout=0.5)
        assert counted[0] - before > 10_000
    finally:
        stop.set()
        thread.join()
        there.go_on()


def test_a_deadline_ends_a_transfer_with_a_stopped_peer(engine: Engine, there: Any, peer: Any) -> None:
    buffer = bytearray(1 << 16)
    with engine.register(buffer, access=Access.NONE):
        there.stop()
        try:
            with engine.submit([Request(peer, READ, buffer, there.base)], timeout=0.3) as batch:
                assert batch.wait(0.01) is False
                assert batch.status()[0].state == "pending"
                with pytest.raises(TimeoutError):
                    batch.wait()
                assert batch.status()[0].state == "timeout"
        finally:
            there.go_on()
        peer.read(buffer, there.base)


def test_a_cancelled_batch_says_so(engine: Engine, there: Any, peer: Any, memory: Any) -> None:
    there.stop()
    try:
        with engine.submit([Request(peer, READ, memory, there.base, 1000)] * 3) as batch:
            batch.cancel()
            with pytest.raises(errors.Cancelled):
                batch.wait()
            assert {row.state for row in batch.status()} == {"cancelled"}
    finally:
        there.go_on()


def test_a_killed_peer_is_noticed_within_a_second(engine: Engine, there: Any, peer: Any, memory: Any) -> None:
    there.stop()
    batch = engine.submit([Request(peer, READ, memory, there.base, 1000)])
    there.process.kill()
    start = time.monotonic()
    with batch, pytest.raises(errors.ConnectionLost):
        batch.wait()
    assert time.monotonic() - start < 1


FORKED = """
import os, sys
from mooncake import errors
from mooncake.engine import Engine, TransferEngine, alloc

old = TransferEngine()
assert old.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
buffer = old.allocate_managed_buffer(4096)
own = f"127.0.0.1:{old.get_rpc_port()}"
engine = old.get_engine()
child = os.fork()
if child == 0:
    status = 1
    try:
        assert old.transfer_sync_write(own, buffer, buffer + 100, 8) == -1
        for call in (lambda: engine.connect(own), lambda: engine.receive(), lambda: engine.register(bytearray(8))):
            try:
                call()
            except errors.Forked:
                pass
            else:
                raise AssertionError("not refused")
        with Engine() as fresh, alloc(4096) as memory, fresh.register(memory), fresh.connect(fresh.address) as peer:
            peer.write(memory, memory.address + 100, 8)
        status = 0
    finally:
        os._exit(status)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert old.transfer_sync_write(own, buffer, buffer + 100, 8) == 0
old.close()
print("fine")
"""


def test_after_fork_the_child_is_refused_and_can_open_its_own() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "fine\n", done.stderr


FORGOTTEN = """
from mooncake.engine import *
engine = Engine()
old = TransferEngine()
old.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
memory = alloc(4096)
view = memory.view
region = engine.register(memory)
peer = engine.connect(engine.address)
queue = Queue()
batch = peer.submit(WRITE, [memory.address], [memory.address + 8], [8], queue=queue)
print("end")
"""


def test_a_program_may_end_with_everything_open() -> None:
    done = subprocess.run([sys.executable, "-c", FORGOTTEN], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_close_ends_transfers_in_flight(there: Any) -> None:
    old = TransferEngine()
    assert old.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    buffer = old.allocate_managed_buffer(4096)
    assert old.transfer_sync_read(there.address, buffer, there.base, 8) == 0
    there.stop()
    try:
        closer = threading.Timer(0.2, old.close)
        closer.start()
        start = time.monotonic()
        assert old.transfer_sync_read(there.address, buffer, there.base, 8) < 0
        assert time.monotonic() - start < 3
        closer.join()
    finally:
        there.go_on()


def test_a_queue_that_is_forgotten_with_its_batch_leaves_nothing_open(
    engine: Engine, there: Any, peer: Any, memory: Any
) -> None:
    there.stop()
    try:
        counts: list[int] = []
        for _ in range(20):
            peer.submit(READ, [memory.address], [there.base], [1 << 20], queue=Queue())
            gc.collect()
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[-1] <= counts[4] + 2, counts  # the first ones connect
    finally:
        there.go_on()
