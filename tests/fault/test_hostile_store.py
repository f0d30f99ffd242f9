"""Peers that send nonsense in the store's messages, while others work: master and owner stay up, no byte is wrong."""

from __future__ import annotations

import contextlib
import struct
import time

import peer as wire
import pytest
from cluster import MB, NOT_FOUND, OK, Cluster, wait_for
from messages import ATTACH, BEAT, LIST, MOUNT, POLL, RELEASE, RESERVE, UNMOUNT, Nonsense, items, pack
from peer import Peer, PeerError

MESSAGES = 1500
SEEDS = (1,)
AT_ONCE = 16
DEATHS = (ConnectionError, TimeoutError, wire.ProtocolError)


def connect(address: str) -> Peer:
    host, port = address.rsplit(":", 1)
    return Peer(host, int(port), timeout=5)


def segment_of(owner: str) -> bytes:
    """An owner's segment, as it says itself."""
    with connect(owner) as peer:
        answer = peer.finish(peer.begin_call(ATTACH, pack(bytearray(peer.incarnation), b"127.0.0.1:1")))
    return answer[:16]


def epoch_of(master: str) -> int:
    """A stamp begins with the epoch."""
    with connect(master) as peer:
        answer = peer.finish(peer.begin_call(BEAT, pack(bytearray(peer.incarnation), 0, 0, b"")))
    return struct.unpack_from("<Q", answer, 4)[0]


def send_nonsense(address: str, nonsense: Nonsense, count: int) -> dict[int, int]:
    """How often each status was answered. Some aren't answered for long: they are left behind."""
    answers: dict[int, int] = {}
    sent = 0
    while sent < count:
        with connect(address) as peer:
            nonsense.ids[0] = peer.incarnation
            begun = []
            with contextlib.suppress(*DEATHS):
                while sent < count and len(begun) < AT_ONCE:
                    kind, body = nonsense.message()
                    begun.append(peer.begin_call(kind, body))
                    sent += 1
            peer.timeout = 0.2
            for id in begun:
                try:
                    peer.finish(id)
                    status = OK
                except PeerError as error:
                    status = error.status
                except DEATHS:
                    break
                answers[status] = answers.get(status, 0) + 1
    return answers


@pytest.mark.parametrize("seed", SEEDS)
def test_nonsense_in_the_store_s_messages_harms_nobody(cluster: Cluster, seed: int) -> None:
    master = cluster.start_master()
    owner = cluster.start_client("8MB")
    where = owner.where  # type: ignore[attr-defined]
    for place, kind in enumerate(("write", "write", "read", "read")):
        load = cluster.actor(place=place, patience=5)
        load.ask("load", kind, place, 60, place if kind == "write" else 0, 2, 50_000, 5000)
    wait_for(lambda: all(cluster.place(place).good > 20 for place in range(4)), "the load works")
    segment = segment_of(where)
    slots = [64 * number for number in range(200)]
    keys = [f"{number}.{life}".encode() for number in range(60) for life in (0, 1)]
    nonsense = Nonsense(seed, [bytes(16), segment], keys, slots)
    for address in (master, where):
        print(address, send_nonsense(address, nonsense, MESSAGES))
    assert cluster.master is not None and cluster.master.alive(), "the master has ended"
    assert owner.alive(), "the owner has ended"
    before = [cluster.place(place).calls for place in range(4)]
    wait_for(lambda: all(cluster.place(p).calls > before[p] + 20 for p in range(4)), "the load goes on")
    for place in range(4):
        assert cluster.place(place).wrong == 0
    for actor in cluster.actors:
        actor.ask("rest")
    fresh = cluster.actor()
    wait_for(lambda: fresh.status("put", "fresh", 1, 1000) in (OK, -705), "puts are done")
    assert fresh.version("fresh") == 1
    assert fresh.status("remove", "fresh") == OK
    assert fresh.version("fresh") == NOT_FOUND
    fresh.ask("all")


def test_a_stranger_in_an_owner_s_name_may_cost_objects_but_makes_none_wrong(cluster: Cluster) -> None:
    """MOUNT with the segment of another owner, POLL and UNMOUNT in its name."""
    master = cluster.start_master()
    owner = cluster.start_client("8MB")
    where = owner.where  # type: ignore[attr-defined]
    client = cluster.actor(patience=5)
    segment, epoch = bytearray(segment_of(where)), epoch_of(master)
    holding = pack((2,), 4096, 7, 8192, 10, 1, 1, b"key-1")
    events = items(*(pack((kind,), 64 * slot, slot) for kind in range(1, 6) for slot in range(99)))
    deeds = [
        (MOUNT, pack(segment, epoch, (0,), (1,), b"127.0.0.1:1", b"thief", 8 * MB, 0, items(holding))),
        (POLL, pack(segment, epoch, 0, 0, events)),
        (UNMOUNT, pack(segment, epoch)),
    ]
    for kind, body in deeds:
        for number in range(10):
            assert client.status("upsert", f"key-{number}", number, 10_000) == OK
        with connect(master) as peer:
            peer.timeout = 2
            with contextlib.suppress(PeerError, *DEATHS):
                peer.finish(peer.begin_call(kind, body))
        fresh = cluster.actor(patience=5)
        for number in range(10):
            assert fresh.version(f"key-{number}") in (number, NOT_FOUND), f"after message {kind}"
        wait_for(lambda: client.status("put", f"new-{time.monotonic()}", 1, 10_000) == OK, "puts are done")
        assert cluster.master is not None and cluster.master.alive() and owner.alive()


def test_no_epoch_that_is_heard_ends_a_master(local_cluster: Cluster) -> None:
    """It leads with a higher one, which there must be."""
    master = local_cluster.start_master()
    local_cluster.start_client("8MB")
    client = local_cluster.actor(patience=10)
    assert client.status("put", "key", 1, 10_000) == OK
    with connect(master) as peer:
        for epoch in ((1 << 64) - 1, (1 << 64) - 2, 1 << 63, 1 << 61):
            with contextlib.suppress(PeerError):
                peer.finish(peer.begin_call(LIST, pack(bytearray(peer.incarnation), epoch, 0, (1,))))
    assert client.version("key") == 1
    assert client.status("put", "another", 2, 10_000) == OK
    assert local_cluster.actor().version("another") == 2


def test_a_stranger_s_releases_harm_nobody_s_objects(cluster: Cluster) -> None:
    """In the name of another client, of slots that are reserved by that one."""
    cluster.start_master()
    owner = cluster.start_client("8MB")
    where = owner.where  # type: ignore[attr-defined]
    client = cluster.actor(patience=5)
    assert client.status("put", "key", 1, 10_000) == OK
    segment = bytearray(segment_of(where))
    with connect(where) as friend, connect(where) as thief:
        for peer in (friend, thief):
            peer.finish(peer.begin_call(ATTACH, pack(bytearray(peer.incarnation), b"127.0.0.1:1")))
        answer = friend.finish(
            friend.begin_call(RESERVE, pack(bytearray(friend.incarnation), segment, 1, 0, 5000, (1,)))
        )
        grant = answer[8:32]
        for name in (friend.incarnation, thief.incarnation):
            with contextlib.suppress(PeerError):
                thief.finish(thief.begin_call(RELEASE, pack(bytearray(name), segment, items(grant), b"")))
        friend.finish(friend.begin_call(RELEASE, pack(bytearray(friend.incarnation), segment, items(grant), b"")))
    assert client.version("key") == 1
    assert client.status("put", "another", 2, 100_000) == OK
    assert client.version("another") == 2
