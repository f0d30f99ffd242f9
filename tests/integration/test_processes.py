"""Processes that are killed, stopped, restarted or run as somebody else, on each path: mapped memory, memory of the
process's own by process_vm, TCP."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Callable

import actor as status
import pytest
from actor import Actor, ActorError

SIZE = 8 << 20
LOST = (status.CONNECTION_LOST, status.UNREACHABLE)


@pytest.fixture(params=["shm", "process_vm", "tcp"])
def path(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def options(path: str) -> dict[str, str]:
    """Restricts to TCP; over shared memory all paths are there, as they are for users."""
    return {"protocol": "tcp"} if path == "tcp" else {}


def memory(actor: Actor, path: str, size: int) -> int:
    """Registered memory which goes that path: what no other process can map isn't mapped."""
    if path != "process_vm":
        return actor.alloc(size)
    address = int(actor.ask("map", 0, size)[0])
    actor.ask("register", 0, address, size, status.BOTH_RIGHTS)
    return address


def prove(client: Actor, peer: int, path: str) -> None:
    """Skips where the kernel has no process_vm for us."""
    assert client.path(peer) == ("tcp" if path == "tcp" else "shm")
    if path == "process_vm" and any(region["how"] != "process_vm" for region in client.regions(peer)):
        pytest.skip(f"no process_vm here: {client.regions(peer)}")


def pair(start: Callable[..., Actor], path: str, size: int = SIZE) -> tuple[Actor, Actor, int, int, int]:
    """A client and a target with memory, connected."""
    client, target = start(**options(path)), start(**options(path))
    local, remote = client.alloc(size), memory(target, path, size)
    peer = client.peer(target.address)
    prove(client, peer, path)
    return client, target, local, remote, peer


def refused(wanted: int, actor: Actor, *words: object) -> str:
    with pytest.raises(ActorError) as caught:
        actor.ask(*words)
    assert caught.value.status == wanted, caught.value.words
    return caught.value.words


def storm(client: Actor, opcode: str, peer: int, local: int, remote: int, size: int = SIZE, timeout: int = 9000) -> str:
    """Begins to transfer again and again, and waits until that is under way."""
    number = client.ask("storm", opcode, peer, local, remote, size, timeout)[0]
    begun = time.monotonic()
    while client.ask("count", number) == ["0"]:
        assert time.monotonic() - begun < 10
    time.sleep(random.Random(local).uniform(0.02, 0.05))  # a transfer is under way at most moments; which, is no matter
    return number


# Fault 13.
@pytest.mark.parametrize("opcode", ["read", "write"])
def test_a_killed_peer_is_noticed_below_a_second_and_the_buffer_is_quiet(
    start: Callable[..., Actor], path: str, opcode: str
) -> None:
    client, target, local, remote, peer = pair(start, path)
    number = storm(client, opcode, peer, local, remote)
    killed = time.monotonic()
    target.kill()
    count, when, outcome, words = client.ended(number)
    assert outcome in LOST, words
    assert target.address in words
    assert count > 0
    assert when - killed < 1
    client.fill(local, SIZE, 7)
    with pytest.raises(ActorError):
        client.ask("probe", peer, 1000)
    assert client.differing(local, SIZE, 7) == 0
    client.ask("unregister", 0, local)


# Fault 13.
@pytest.mark.parametrize("opcode", ["read", "write"])
def test_a_stopped_peer_times_out_at_the_deadline_and_the_buffer_never_changes_afterwards(
    start: Callable[..., Actor], opcode: str
) -> None:
    client, target, local, remote, peer = pair(start, "tcp")
    client.fill(local, SIZE, 1)
    target.fill(remote, SIZE, 1)
    number = storm(client, opcode, peer, local, remote, timeout=700)
    target.signal(signal.SIGSTOP)
    stopped = time.monotonic()
    _, when, outcome, words = client.ended(number)
    assert outcome == status.TIMEOUT, words
    assert when - stopped < 1.2
    client.fill(local, SIZE, 2)
    target.signal(signal.SIGCONT)
    second = client.alloc(SIZE)
    for _ in range(8):  # over all lanes: what was on its way has gone by
        client.ask("read", peer, second, remote, SIZE, 9000)
    assert client.differing(local, SIZE, 2) == 0
    assert target.differing(remote, SIZE, 1) == 0


# Fault 13.
@pytest.mark.parametrize("path", ["shm", "process_vm"])
def test_the_memory_of_a_stopped_peer_on_this_host_is_moved_all_the_same_and_calls_time_out(
    start: Callable[..., Actor], path: str
) -> None:
    client, target, local, remote, peer = pair(start, path)
    target.signal(signal.SIGSTOP)
    for seed, opcode in enumerate(("write", "read")):
        client.fill(local, SIZE, seed)
        client.ask(opcode, peer, local, remote, SIZE, 9000)
    begun = time.monotonic()
    refused(status.TIMEOUT, client, "probe", peer, 300)
    refused(status.TIMEOUT, client, "notify", peer, "00", "00", 300)
    assert 0.6 <= time.monotonic() - begun < 1.6
    target.signal(signal.SIGCONT)
    assert client.differing(local, SIZE, 0) == 0
    assert target.differing(remote, SIZE, 0) == 0
    client.ask("probe", peer, 9000)


def test_a_request_to_a_stopped_peer_is_indeterminate_only_if_it_is_a_write(start: Callable[..., Actor]) -> None:
    client, target, local, remote, peer = pair(start, "tcp")
    client.ask("read", peer, local, remote, SIZE, 9000)
    target.signal(signal.SIGSTOP)
    for opcode, flags in (("read", "0"), ("write", "1")):
        batch = client.ask("submit", 0, opcode, peer, local, remote, SIZE, 200)[0]
        refused(status.TIMEOUT, client, "wait", batch, 5000)
        state, code, _, said = client.ask("status", batch)
        assert (state, code, said) == (str(status.TIMED_OUT), str(status.TIMEOUT), flags)
        client.ask("batch_free", batch)
    target.signal(signal.SIGCONT)
    client.ask("read", peer, local, remote, SIZE, 9000)


# Fault 9.
def test_a_restarted_peer_is_stale_for_the_old_id_and_opened_anew_below_two_seconds(
    start: Callable[..., Actor], path: str
) -> None:
    client, target, local, _, peer = pair(start, path)
    target.kill()
    begun = time.monotonic()
    again = start(listen=target.address, **options(path))
    assert again.address == target.address
    there = memory(again, path, SIZE)
    again.fill(there, SIZE, 3)
    fresh = client.peer(target.address)
    prove(client, fresh, path)
    client.ask("read", fresh, local, there, SIZE, 9000)
    assert time.monotonic() - begun < 2
    assert client.differing(local, SIZE, 3) == 0
    outcome = status.OK
    while outcome != status.STALE_PEER:
        assert time.monotonic() - begun < 2
        with pytest.raises(ActorError) as caught:
            client.ask("probe", peer, 1000)
        outcome = caught.value.status
        assert outcome in (*LOST, status.STALE_PEER)
    refused(status.STALE_PEER, client, "write", peer, local, there, 100, 1000)
    assert again.differing(there, SIZE, 3) == 0
    late = memory(again, path, 4096)  # registered after the peer was opened
    client.ask("write", fresh, local, late, 4096, 9000)
    assert again.differing(late, 4096, 3) == 0


def test_a_client_killed_in_the_middle_of_a_copy_does_not_keep_the_owner_from_unregistering(
    start: Callable[..., Actor],
) -> None:
    target = start()
    remote = target.alloc(SIZE)
    chance = random.Random(4)
    for _ in range(20):
        client = start()
        local = client.alloc(SIZE)
        peer = client.peer(target.address)
        assert client.path(peer) == "shm"
        client.ask("storm", chance.choice(["read", "write"]), peer, local, remote, SIZE, 9000)
        time.sleep(chance.uniform(0, 0.01))
        client.kill()
        target.ask("unregister", 0, remote)
        target.ask("register", 0, remote, SIZE, 3)


def stop_within_a_copy(client: Actor, target: Actor, peer: int, local: int, remote: int) -> str:
    """Stops the client while it copies, and has the owner begin to unregister; the storm's number."""
    for _ in range(20):
        number = storm(client, "write", peer, local, remote)
        client.signal(signal.SIGSTOP)
        target.begin("unregister", 0, remote)
        try:
            target.finish(timeout=0.3)
        except TimeoutError:
            return number
        client.signal(signal.SIGCONT)  # it was between two pieces
        client.ended(number)
        target.ask("register", 0, remote, SIZE, 3)
    raise AssertionError("the client was never within a copy")


def test_a_client_stopped_in_the_middle_of_a_copy_keeps_the_region_registered_until_it_goes_on(
    start: Callable[..., Actor],
) -> None:
    client, target, local, remote, peer = pair(start, "shm")
    begun = time.monotonic()
    number = stop_within_a_copy(client, target, peer, local, remote)
    with pytest.raises(ActorError) as caught:
        target.finish(timeout=5)
    assert caught.value.status == status.BUSY
    assert time.monotonic() - begun < 10
    other = start()
    mine = other.alloc(SIZE)
    other.ask("read", other.peer(target.address), mine, remote, SIZE, 9000)
    client.signal(signal.SIGCONT)
    client.ended(number, "calm")
    target.ask("unregister", 0, remote)
    client.fill(local, SIZE, 5)
    target.fill(remote, SIZE, 6)
    refused(status.NOT_REGISTERED, client, "write", peer, local, remote, SIZE, 9000)
    assert target.differing(remote, SIZE, 6) == 0


def test_a_region_that_stays_registered_is_mapped_by_those_who_asked_meanwhile(start: Callable[..., Actor]) -> None:
    client, target, local, remote, peer = pair(start, "shm")
    first, second = start(protocol="shm"), start(protocol="shm")
    other = target.alloc(4096)
    buffers = [first.alloc(SIZE), second.alloc(SIZE)]
    known = first.peer(target.address)
    first.ask("write", known, buffers[0], other, 4096, 9000)  # it knows the regions, and has not mapped this one
    stop_within_a_copy(client, target, peer, local, remote)
    unknown = second.peer(target.address)
    for actor, id, buffer in ((first, known, buffers[0]), (second, unknown, buffers[1])):
        with pytest.raises(ActorError):
            actor.ask("write", id, buffer, remote, SIZE, 9000)
    with pytest.raises(ActorError) as caught:
        target.finish(timeout=5)
    assert caught.value.status == status.BUSY
    for actor, id, buffer in ((first, known, buffers[0]), (second, unknown, buffers[1])):
        actor.fill(buffer, SIZE, id % 1000)
        actor.ask("write", id, buffer, remote, SIZE, 9000)
        assert target.differing(remote, SIZE, id % 1000) == 0


# Fault 6.
def test_memory_is_never_written_after_it_was_unregistered(start: Callable[..., Actor], path: str) -> None:
    client, target, local, remote, peer = pair(start, path)
    client.fill(local, SIZE, 8)
    for seed in range(10):
        numbers = [storm(client, "write", peer, local, remote, SIZE >> shift) for shift in (0, 4)]
        target.ask("unregister", 0, remote)
        target.fill(remote, SIZE, seed)
        for number in numbers:
            _, _, outcome, words = client.ended(number)
            assert outcome == status.NOT_REGISTERED, words
        assert target.differing(remote, SIZE, seed) == 0
        target.ask("register", 0, remote, SIZE, 3)


def test_memory_of_the_process_s_own_can_be_unmapped_as_soon_as_it_is_unregistered(start: Callable[..., Actor]) -> None:
    client, target = start(), start()
    local = client.alloc(SIZE)
    peer = client.peer(target.address)
    for opcode in ("write", "read", "write"):
        remote = int(target.ask("map", 0, SIZE)[0])
        target.ask("register", 0, remote, SIZE, 3)
        number = storm(client, opcode, peer, local, remote)
        target.ask("unregister", 0, remote)
        target.ask("unmap", remote, SIZE)
        assert client.ended(number)[2] == status.NOT_REGISTERED
    target.ask("capabilities")


@pytest.mark.parametrize("opcode", ["read", "write"])
def test_an_owner_that_exits_while_it_is_mapped_is_a_lost_peer(start: Callable[..., Actor], opcode: str) -> None:
    client, target, local, remote, peer = pair(start, "shm")
    number = storm(client, opcode, peer, local, remote)
    target.begin("exit", 0)
    _, _, outcome, words = client.ended(number)
    assert outcome in LOST, words
    target.process.wait(10)
    client.ask("peer_close", peer)
    client.ask("close", 0)


def test_an_owner_that_closes_its_engine_while_it_is_mapped_is_a_lost_peer(
    start: Callable[..., Actor], path: str
) -> None:
    client, target, local, remote, peer = pair(start, path)
    number = storm(client, "write", peer, local, remote)
    target.ask("close", 0)
    target.fill(remote, SIZE, 9)
    outcome = client.ended(number)[2]
    assert outcome in (*LOST, status.NOT_REGISTERED)
    assert target.differing(remote, SIZE, 9) == 0


# Fault 7.
@pytest.mark.parametrize("kind", ["alloc", "map"])
def test_eight_processes_with_the_same_addresses_reach_each_other_s_bytes_and_no_others(
    start: Callable[..., Actor], kind: str
) -> None:
    """Without address randomisation all of them have their memory at the same place."""
    count, part = 8, 300_000
    size = count * part
    actors = [start(inside=("setarch", "-R")) for _ in range(count)]
    if kind == "alloc":
        places = {actor.alloc(size) for actor in actors}
        buffers = {actor.alloc(size) for actor in actors}
    else:
        places, buffers = {0x600000000000}, {0x610000000000}
        for actor in actors:
            for place in (*places, *buffers):
                actor.ask("map", place, size)
                actor.ask("register", 0, place, size, 3)
    (place,), (buffer,) = places, buffers
    peers = [[actor.peer(other.address) for other in actors] for actor in actors]
    assert {actors[0].path(peer) for peer in peers[0]} == {"self", "shm"}
    for mine, actor in enumerate(actors):
        for theirs in range(count):
            actor.fill(buffer, part, 100 * mine + theirs)
            actor.ask("write", peers[mine][theirs], buffer, place + mine * part, part, 9000)
    for theirs, actor in enumerate(actors):
        for mine in range(count):
            assert actor.differing(place + mine * part, part, 100 * mine + theirs) == 0
    for mine, actor in enumerate(actors):
        for theirs in range(count):
            actor.ask("read", peers[mine][theirs], buffer, place + mine * part, part, 9000)
            assert actor.differing(buffer, part, 100 * mine + theirs) == 0


NOBODY = 65534


def become_nobody(actor: Actor) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    actor.ask("user", NOBODY)


@pytest.mark.parametrize("who", ["client", "target"])
def test_a_peer_of_another_user_is_not_mapped_says_why_and_is_reached_by_tcp(
    start: Callable[..., Actor], who: str
) -> None:
    client, target = start(engine=False), start(engine=False)
    become_nobody(client if who == "client" else target)
    client.open()
    target.open()
    local, remote = client.alloc(SIZE), target.alloc(SIZE)
    peer = client.peer(target.address)
    paths = client.explain(peer)
    assert not paths["shm"]["usable"]
    assert "another user" in paths["shm"]["reason"]
    client.fill(local, SIZE, 1)
    client.ask("write", peer, local, remote, SIZE, 9000)
    assert target.differing(remote, SIZE, 1) == 0


def test_processes_of_the_same_user_that_is_not_root_are_mapped(start: Callable[..., Actor]) -> None:
    client, target = start(engine=False), start(engine=False)
    for actor in (client, target):
        become_nobody(actor)
        actor.open()
    local, remote = client.alloc(SIZE), target.alloc(SIZE)
    peer = client.peer(target.address)
    assert client.path(peer) == "shm"
    client.ask("write", peer, local, remote, SIZE, 9000)
