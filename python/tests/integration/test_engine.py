"""Engine, Peer, Batch, Queue and Memory over each path."""

from __future__ import annotations

import asyncio
import random
import select
import subprocess
import sys
import threading
import time
from array import array
from typing import Any

import pytest

from mooncake import errors
from mooncake.engine import READ, WRITE, Access, Batch, Engine, Memory, Peer, Queue, Request, alloc

DATA = random.Random(1).randbytes(300_000)


def refused(path: str, *kinds: type[errors.MooncakeError]) -> tuple[type[errors.MooncakeError], ...]:
    """With shm alone, a range that isn't mapped for us is one that no path leads to."""
    return (*kinds, errors.NotSupported) if path == "shm" else kinds


def test_a_write_is_there_when_it_returns(there: Any, peer: Peer, memory: Memory) -> None:
    memory.view[: len(DATA)] = DATA
    peer.write(memory, there.base + 5, len(DATA))
    assert there.read(5, len(DATA)) == DATA
    assert there.read(0, 5) == bytes(5)
    assert there.read(5 + len(DATA), 5) == bytes(5)


def test_a_read_brings_what_is_there(there: Any, peer: Peer, memory: Memory) -> None:
    there.write(7, DATA)
    peer.read(memory, there.base + 7, len(DATA))
    assert memory.view[: len(DATA)] == DATA
    assert not any(memory.view[len(DATA) :])


def test_any_registered_buffer_is_a_local_end(engine: Engine, there: Any, peer: Peer) -> None:
    source, target = bytearray(DATA), bytearray(len(DATA))
    with engine.register(source, access=Access.NONE), engine.register(target, access=Access.NONE):
        peer.write(source, there.base)
        peer.read(target, there.base)
        peer.read(memoryview(target)[100:200], there.base)
        with pytest.raises(BufferError):
            source.append(1)  # pinned while it is registered
    assert target[:100] == DATA[:100]
    assert target[100:200] == DATA[:100]
    assert target[200:] == DATA[200:]
    source.append(1)


def test_a_batch_of_requests_completes_as_a_whole(engine: Engine, there: Any, peer: Peer, memory: Memory) -> None:
    memory.view[:4] = b"abcd"
    requests = [Request(peer, WRITE, memory.address + k, there.base + 10 * k, 1) for k in range(4)]
    with engine.submit([*requests, Request(peer, WRITE, memory, there.base, 0)], context="mine") as batch:
        assert len(batch) == 5
        assert batch.context == "mine"
        assert batch.wait(10)
        assert {row.state for row in batch.status()} == {"completed"}
        assert [row.bytes for row in batch.status()] == [1, 1, 1, 1, 0]
    assert [there.read(10 * k, 1) for k in range(4)] == [b"a", b"b", b"c", b"d"]


def test_columns_are_a_batch(there: Any, peer: Peer, memory: Memory) -> None:
    count, size = 500, 64
    memory.view[: count * size] = DATA[: count * size]
    order = list(range(count))
    random.Random(2).shuffle(order)
    local = [memory.address + size * k for k in range(count)]
    remote = [there.base + size * place for place in order]
    with peer.submit(WRITE, local, remote, [size] * count) as batch:
        assert batch.wait()
    got = there.read(0, count * size)
    assert all(got[size * place :][:size] == DATA[size * k :][:size] for k, place in enumerate(order))
    with peer.submit(READ, local, remote[::-1], [size] * count) as batch:
        assert batch.wait()
    assert memory.view[:size] == DATA[(count - 1) * size : count * size]


def test_statuses_come_as_columns(engine: Engine, there: Any, peer: Peer, memory: Memory, path: str) -> None:
    remote = [there.base, there.base + 100, there.base + there.size]
    columns = array("Q", [memory.address] * 3), remote, array("q", [5, 0, 7])
    if path == "shm":  # where the third has no path at all, and nothing is begun
        remote[2] = there.base
    statuses = peer.transfer(WRITE, *columns)
    assert statuses.bytes[:2].tolist() == [5, 0]
    assert statuses.codes[:2].tolist() == [0, 0]
    assert statuses.ok == (path == "shm")
    assert (statuses.codes[2] == errors.NotRegistered.code) == (path != "shm")
    assert [column.typecode for column in statuses] == ["i", "Q", "I", "I"]
    assert not any(statuses.indeterminate) or path == "tcp"
    with peer.submit(WRITE, *columns) as batch:
        batch.poll(10)
        rows = batch.status()
    assert [(row.code, row.bytes) for row in rows[:2]] == list(zip(statuses.codes, statuses.bytes))[:2]


def test_done_batches_appear_in_a_queue(engine: Engine, there: Any, peer: Peer, memory: Memory) -> None:
    with Queue() as queue:
        assert queue.reap() == []
        waiting: set[Batch] = {
            peer.submit(WRITE, [memory.address], [there.base], [1000], queue=queue, context=k) for k in range(20)
        }
        while waiting:
            assert select.select([queue], [], [], 10)[0]
            for done in queue.reap(7):
                assert done.error is None
                assert done.failed == 0
                waiting.remove(done.batch)
                done.batch.close()
        bad = peer.submit(WRITE, [memory.address], [there.base], [8], queue=queue, timeout=1e-9)
        with pytest.raises(errors.Busy):
            queue.close()
        (done,) = queue.reap(timeout=10)
        assert done.batch is bad
        assert (done.error is None) == (done.failed == 0)
        bad.close()


def test_a_queue_tells_which_batch_failed_and_why(spawn: Any) -> None:
    there = spawn("tcp")
    with Engine("127.0.0.1", protocol="tcp") as tcp, alloc(64) as memory, tcp.register(memory), Queue() as queue:
        peer = tcp.connect(there.address)
        good, bad = (
            tcp.submit(
                [Request(peer, WRITE, memory, there.base + offset, 8), Request(peer, WRITE, memory, there.base, 8)],
                queue=queue,
            )
            for offset in (0, there.size)
        )
        done = {completion.batch: completion for _ in range(2) for completion in queue.reap(1, timeout=10)}
        assert (done[good].error, done[good].failed) == (None, 0)
        assert isinstance(done[bad].error, errors.NotRegistered)
        assert done[bad].failed == 1
        good.close()
        bad.close()


def test_a_range_that_is_not_lent_is_out_of_reach(path: str, there: Any, peer: Peer, memory: Memory) -> None:
    for remote in (there.base + there.size, there.base + there.size - 7, there.base - 1, 0, 2**64 - 9):
        for move in (peer.read, peer.write):
            with pytest.raises(refused(path, errors.NotRegistered)):
                move(memory, remote, 8)


@pytest.mark.parametrize("path", ["self", "tcp"])
def test_a_failed_batch_says_which_request_and_why(there: Any, peer: Peer, memory: Memory, path: str) -> None:
    remote = [there.base, there.base + there.size]
    with (
        peer.submit(WRITE, [memory.address] * 2, remote, [8] * 2) as batch,
        pytest.raises(errors.NotRegistered, match=r"request 1.*" + path),
    ):
        batch.wait()


def test_rights_are_kept(engine: Engine, path: str, spawn: Any, memory: Memory) -> None:
    with (
        Engine("127.0.0.1", protocol=None if path == "self" else path) as other,
        alloc(4096) as readable,
        alloc(4096) as writable,
        other.register(readable, access=Access.READ),
        other.register(writable, access=Access.WRITE),
        engine.connect(other.address) as peer,
    ):
        peer.read(memory, readable.address, 8)
        peer.write(memory, writable.address, 8)
        with pytest.raises(refused(path, errors.AccessDenied)):
            peer.write(memory, readable.address, 8)
        with pytest.raises(refused(path, errors.AccessDenied)):
            peer.read(memory, writable.address, 8)


def test_a_guard_that_differs_stops_the_transfer(there: Any, peer: Peer, memory: Memory) -> None:
    there.write(0, (77).to_bytes(8, "little"))
    memory.view[:4] = b"data"
    peer.write(memory, there.base + 64, 4, guard=(there.base, 77))
    assert there.read(64, 4) == b"data"
    with pytest.raises(errors.GuardMismatch):
        peer.write(memory, there.base + 128, 4, guard=(there.base, 78))
    assert there.read(128, 4) == bytes(4)


def test_notifications_arrive_in_order_with_their_sender(engine: Engine, path: str, there: Any, peer: Peer) -> None:
    assert engine.receive() is None
    if path == "self":
        peer.notify("name", b"\x00\xff")
        peer.notify(b"", "")
        assert engine.receive(10) == (engine.address, b"name", b"\x00\xff")
        assert engine.receive(10) == (engine.address, b"", b"")
    else:
        peer.notify("name", "words")
        assert there.ask("receive", 10) == [engine.address, "name", "words"]
        there.ask("notify", engine.address, "back", "ü")
        assert engine.receive(10) == (there.address, b"back", "ü".encode())
    peer_of_own = engine.connect(engine.address)
    assert not select.select([engine], [], [], 0)[0]
    peer_of_own.notify("here")
    assert select.select([engine], [], [], 10)[0]
    assert engine.receive() == (engine.address, b"here", b"")
    assert not select.select([engine], [], [], 0)[0]
    with pytest.raises(errors.TooLarge):
        peer.notify("x" * 40000, "y" * 40000)


def receive(engine: Engine, path: str, there: Any) -> Any:
    """What the other end has received."""
    if path != "self":
        return there.ask("receive", 10)
    arrived = engine.receive(10)
    assert arrived is not None
    return [arrived.sender, arrived.name.decode(), arrived.message.decode()]


def test_a_batch_tells_its_peers_when_it_is_done(
    engine: Engine, there: Any, peer: Peer, memory: Memory, path: str
) -> None:
    columns = [memory.address] * 5, [there.base + 8 * k for k in range(5)], [8] * 5
    memory.view[:8] = b"mooncake"
    assert peer.transfer(WRITE, *columns, notify=("done", "5")).ok
    assert receive(engine, path, there) == [engine.address, "done", "5"]
    assert there.read(0, 40) == b"mooncake" * 5
    with peer.submit(WRITE, *columns, notify=(b"", b"")) as batch:
        assert batch.wait(10)
    assert receive(engine, path, there) == [engine.address, "", ""]
    with engine.submit([Request(peer, READ, memory, there.base, 8)], notify=("read", "")) as batch:
        assert batch.wait(10)
    assert receive(engine, path, there)[1] == "read"
    asyncio.run(engine.transfer(peer, WRITE, *columns, notify=("awaited", "")))
    assert receive(engine, path, there)[1] == "awaited"
    with pytest.raises(errors.TooLarge):
        peer.transfer(WRITE, *columns, notify=("x" * 70000, ""))


def crc32c(data: bytes) -> int:
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def test_checksums_are_those_of_the_bytes(engine: Engine, there: Any, peer: Peer, memory: Memory) -> None:
    memory.view[:1000] = DATA[:1000]
    expected = [crc32c(DATA[:1000]), crc32c(DATA[5:6]), crc32c(b"")]
    columns = (
        [memory.address, memory.address + 5, memory.address],
        [there.base, there.base + 2000, there.base],
        [1000, 1, 0],
    )
    statuses = peer.transfer(WRITE, *columns, checksum=True)
    assert statuses.ok
    assert statuses.checksums.tolist() == expected
    assert peer.transfer(READ, *columns, checksum=True).checksums.tolist() == expected
    assert peer.transfer(READ, *columns).checksums.tolist() == [0] * 3
    request = Request(peer, READ, memory, there.base, 1000)
    with engine.submit([request._replace(checksum=True), request]) as batch:
        assert batch.wait(10)
        assert [row.checksum for row in batch.status()] == [expected[0], 0]


def test_the_path_is_the_one_that_was_asked_for(path: str, peer: Peer) -> None:
    usable = [row["transport"] for row in peer.explain()["transports"] if row["usable"]]
    assert usable[0] == path
    assert all(row["usable"] or row["reason"] for row in peer.explain()["transports"])


def test_what_is_moved_is_counted(engine: Engine, there: Any, peer: Peer, memory: Memory, path: str) -> None:
    before = engine.metrics()["total"]
    for _ in range(5):
        peer.write(memory, there.base, 100)
        peer.read(memory, there.base, 10)
    asyncio.run(engine.write(peer, memory, there.base, 1))
    after = engine.metrics()["total"]
    moved = {kind: after["bytes"][kind] - before["bytes"][kind] for kind in ("read", "write")}
    assert moved == {"read": 50, "write": 501}
    assert f'transport="{path}",opcode="write"' in engine.prometheus()
    assert "cpu:0" in engine.topology()


def test_a_range_of_a_peer_on_the_same_host_is_explained(engine: Engine, there: Any, peer: Peer, path: str) -> None:
    peer.write(bytes(0), there.base, 0)
    rows = [row for row in peer.explain()["regions"] if row["base"] == there.base]
    if path == "shm":
        assert [(row["length"], row["path"], row["how"]) for row in rows] == [(there.size, "shm", "mapped")]
    else:
        assert all(row["path"] != "shm" for row in rows)


def test_a_peer_gives_a_sign_of_life(peer: Peer) -> None:
    peer.probe()


@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_a_restarted_peer_is_stale_and_a_killed_one_is_lost(
    engine: Engine, path: str, spawn: Any, memory: Memory
) -> None:
    first = spawn(path)
    with engine.connect(first.address) as peer:
        peer.read(memory, first.base, 8)
        first.end()

        def read_for_a_second() -> None:
            end = time.monotonic() + 1
            while time.monotonic() < end:
                peer.read(memory, first.base, 8, timeout=10)

        with pytest.raises((errors.ConnectionLost, errors.Unreachable, errors.StalePeer)):
            read_for_a_second()
        rows = peer.explain()["transports"]
        assert not any(row["usable"] for row in rows)
        assert all(row["reason"] for row in rows)
        second = spawn(path, listen=first.address)
        assert second.address == first.address
        with pytest.raises(errors.StalePeer):
            peer.read(memory, second.base, 8, timeout=10)
        with engine.connect(second.address) as fresh:
            fresh.read(memory, second.base, 8)


def test_memory_is_zeroed_and_refuses_to_go_while_it_is_in_use(engine: Engine) -> None:
    memory = alloc(10_000)
    assert len(memory) == memory.size == 10_000
    assert memory.address % 4096 == 0
    assert not any(memory.view)
    view = memory.view
    with pytest.raises(BufferError):
        memory.free()
    view.release()
    del view
    with engine.register(memory):
        with pytest.raises(errors.Busy, match="unregister it first"):
            memory.free()
        memory.view[0] = 1
    memory.free()
    memory.free()
    with pytest.raises(ValueError, match="freed"):
        _ = memory.view


def test_a_view_keeps_the_pages_of_forgotten_memory() -> None:
    view = alloc(1 << 20).view
    view[-1] = 7
    assert view[-1] == 7


def test_registration_counts_and_overlaps_are_refused(engine: Engine) -> None:
    with alloc(8192) as memory:
        region = engine.register(memory)
        again = engine.register(memory)
        with pytest.raises(errors.Overlap):
            engine.register(memory.address + 4096, 4096)
        with pytest.raises(errors.Overlap):
            engine.register(memory, access=Access.READ)
        region.unregister()
        region.unregister()
        with pytest.raises(errors.Busy):
            memory.free()
        again.unregister()
        with pytest.raises(errors.NotRegistered):
            engine.unregister_range(memory.address)


def test_many_threads_share_an_engine(there: Any, peer: Peer, memory: Memory) -> None:
    failures: list[BaseException] = []
    size = 4096

    def work(number: int) -> None:
        try:
            for turn in range(50):
                local, remote = memory.address + number * 2 * size, there.base + number * size
                memory.view[number * 2 * size : number * 2 * size + size] = bytes([number * 50 + turn & 255]) * size
                peer.write(local, remote, size)
                peer.read(local + size, remote, size)
                start = number * 2 * size
                assert memory.view[start : start + size] == memory.view[start + size : start + 2 * size]
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_forgotten_batch_leaves_its_buffer_quiet(there: Any, peer: Peer, engine: Engine) -> None:
    buffer = bytearray(1 << 20)
    with engine.register(buffer, access=Access.NONE):
        engine.submit([Request(peer, READ, buffer, there.base)])
        before = bytes(buffer)
        assert bytes(buffer) == before


def test_a_closed_engine_says_so(there: Any, path: str) -> None:
    engine = Engine("127.0.0.1")
    assert not engine.closed
    peer, memory = engine.connect(there.address), alloc(4096)
    engine.register(memory)
    engine.close()
    engine.close()
    assert engine.closed
    wrong = (errors.Closed, errors.InvalidHandle)
    with pytest.raises(wrong):
        _ = engine.address
    with pytest.raises(wrong):
        peer.read(memory.address, there.base, 8)
    with pytest.raises(wrong):
        engine.register(memory)
    with pytest.raises(wrong):
        engine.connect(there.address)
    with pytest.raises(wrong):
        engine.receive()
    memory.free()


def test_what_is_imported_when_it_is_asked_for_is_listed_as_well() -> None:
    code = "import mooncake as m, mooncake.engine as e; assert not {*m.__all__} - {*dir(m)} | {*e.__all__} - {*dir(e)}"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
