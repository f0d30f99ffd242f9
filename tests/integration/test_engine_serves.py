"""The engine as a server: the Python peer, which knows nothing but docs/protocol.md, reads, writes and notifies."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Callable

import peer as wire
import pytest
from actor import READ_RIGHT, WRITE_RIGHT, Actor
from peer import Frame, Peer, PeerError, pack_message, unpack_message

SIZE = 1 << 20


@pytest.fixture
def target(start: Callable[..., Actor]) -> Actor:
    return start()


@pytest.fixture
def base(target: Actor) -> int:
    """The address of SIZE zeroed bytes that peers may read and write."""
    return target.alloc(SIZE)


@pytest.fixture
def client(target: Actor) -> Iterator[Peer]:
    with dial(target) as peer:
        yield peer


def dial(target: Actor, **options: object) -> Peer:
    host, port = target.address.rsplit(":", 1)
    return Peer(host, int(port), **options)


def refused(status: int, call: Callable[..., object], *arguments: object, **options: object) -> None:
    with pytest.raises(PeerError) as caught:
        call(*arguments, **options)
    assert caught.value.status == status


def test_the_engine_answers_a_ping_and_is_the_incarnation_it_says(target: Actor, client: Peer) -> None:
    client.ping()
    assert client.peer_incarnation == target.incarnation


@pytest.mark.parametrize("checksum", [False, True])
def test_what_the_peer_writes_is_in_the_memory_and_is_read_back(
    target: Actor, base: int, client: Peer, checksum: bool
) -> None:
    data = random.Random(1).randbytes(5000)
    client.write(base + 777, data, checksum=checksum)
    assert target.peek(base + 777, 5000) == data
    assert target.peek(base, 777) == bytes(777)
    assert client.read(base + 776, 5002, checksum=checksum) == b"\0" + data + b"\0"
    client.write(base, b"", checksum=checksum)
    assert client.read(base + SIZE, 0, checksum=checksum) == b""


def test_a_payload_with_a_wrong_checksum_is_refused(base: int, client: Peer) -> None:
    frame = Frame(wire.WRITE, wire.CHECKSUM, address=base, length=4, payload_crc=1)
    refused(wire.CHECKSUM_MISMATCH, client.finish, client.begin(frame, b"four"))
    client.ping()


@pytest.mark.parametrize("checksum", [False, True])
def test_guards_let_through_what_they_should_and_nothing_else(
    target: Actor, base: int, client: Peer, checksum: bool
) -> None:
    target.poke(base + 64, struct.pack("<Q", 0x1122334455667788))
    guard, wrong = (base + 64, 0x1122334455667788), (base + 64, 0x1122334455667789)
    client.write(base, b"right", guard=guard, checksum=checksum)
    assert client.read(base, 5, guard=guard, checksum=checksum) == b"right"
    refused(wire.GUARD_MISMATCH, client.write, base, b"wrong", guard=wrong, checksum=checksum)
    refused(wire.GUARD_MISMATCH, client.read, base, 5, guard=wrong, checksum=checksum)
    refused(wire.INVALID_ARGUMENT, client.read, base, 5, guard=(base + 65, 0))
    refused(wire.NOT_REGISTERED, client.read, base, 5, guard=(base + SIZE, 0))
    refused(wire.NOT_REGISTERED, client.read, base, 5, guard=(2**64 - 8, 0))
    assert target.peek(base, 5) == b"right"


def test_a_write_that_changes_its_own_guard_is_a_mismatch(target: Actor, base: int, client: Peer) -> None:
    refused(wire.GUARD_MISMATCH, client.write, base, struct.pack("<Q", 9), guard=(base, 0))
    assert target.peek(base, 1) == b"\x09"


def test_rights_are_kept(target: Actor, client: Peer) -> None:
    readable, writable = target.alloc(4096, READ_RIGHT), target.alloc(4096, WRITE_RIGHT)
    client.write(writable, b"in")
    assert client.read(readable, 2) == bytes(2)
    refused(wire.ACCESS_DENIED, client.read, writable, 1)
    refused(wire.ACCESS_DENIED, client.write, readable, b"x")
    refused(wire.ACCESS_DENIED, client.read, readable, 1, guard=(writable, 0))
    assert target.peek(readable, 1) == b"\0"


def test_a_notification_arrives_with_its_lengths(target: Actor, client: Peer) -> None:
    client.notify(b"na\0me", b"me\0ssage", sender=b"someone:1")
    client.notify(b"", b"")
    assert [bytes.fromhex(word) for word in target.ask("receive", 0, 5000)] == [b"someone:1", b"na\0me", b"me\0ssage"]
    assert target.ask("receive", 0, 5000) == ["-", "-", "-"]
    refused(wire.TOO_LARGE, client.notify, b"n", bytes(65536))
    refused(wire.TOO_LARGE, client.notify, b"n", b"", sender=bytes(288))
    client.notify(b"n", bytes(65535), sender=bytes(287))


def test_a_full_queue_says_so(start: Callable[..., Actor]) -> None:
    target = start(environment={"MC_NOTIFICATIONS": "2"})
    with dial(target) as client:
        client.notify(b"1", b"")
        client.notify(b"2", b"")
        refused(wire.QUEUE_FULL, client.notify, b"3", b"")
        target.ask("receive", 0, 5000)
        client.notify(b"4", b"")
    assert [target.ask("receive", 0, 5000)[1] for _ in range(2)] == [b"2".hex(), b"4".hex()]


def test_thousands_of_requests_in_flight_each_find_their_answer(target: Actor, base: int, client: Peer) -> None:
    chance = random.Random(2)
    data = chance.randbytes(SIZE // 2)
    for start in range(0, len(data), 65536):
        client.write(base + start, data[start : start + 65536])
    reads, writes = {}, {}
    for index in range(3000):
        place, length = chance.randrange(SIZE // 2 - 300), chance.randrange(300)
        if index % 3:
            guard = (base + SIZE - 8, 0) if index % 2 else None
            reads[client.begin_read(base + place, length, guard=guard)] = data[place : place + length]
        else:
            value = index.to_bytes(4, "little")
            writes[client.begin_write(base + SIZE // 2 + 4 * index, value)] = (SIZE // 2 + 4 * index, value)
    for id in chance.sample(sorted(reads), len(reads)):
        assert client.finish(id) == reads[id]
    for id, (place, value) in writes.items():
        client.finish(id)
        assert target.peek(base + place, 4) == value


def test_two_connections_see_each_other_s_writes(target: Actor, base: int, client: Peer) -> None:
    with dial(target) as other:
        for index in range(200):
            client.write(base, index.to_bytes(8, "little"))
            assert other.read(base, 8) == index.to_bytes(8, "little")


NOT_SERVED = {
    "unknown type": (Frame(3), b"payload", wire.NOT_SUPPORTED),
    "unknown message": (Frame(wire.CALL + 1000), b"payload", wire.NOT_SUPPORTED),
    "odd message": (Frame(wire.CALL + 1), b"", wire.NOT_SUPPORTED),
    "unknown flag": (Frame(wire.WRITE, 0x8000, length=1), b"x", wire.NOT_SUPPORTED),
    "MORE in a request": (Frame(wire.READ, wire.MORE, length=1), b"", wire.NOT_SUPPORTED),
    "guarded message": (Frame(wire.CALL, wire.GUARD), b"", wire.NOT_SUPPORTED),
    "message with a checksum": (Frame(wire.CALL, wire.CHECKSUM), b"", wire.NOT_SUPPORTED),
    "READ too long": (Frame(wire.READ, length=(64 << 20) + 1), b"", wire.INVALID_ARGUMENT),
    "READ of 2^64 - 1": (Frame(wire.READ, length=2**64 - 1), b"", wire.INVALID_ARGUMENT),
    "READ with a payload": (Frame(wire.READ, length=1), b"x", wire.INVALID_ARGUMENT),
    "WRITE with less": (Frame(wire.WRITE, length=3), b"xx", wire.INVALID_ARGUMENT),
    "WRITE with more": (Frame(wire.WRITE, length=1), b"xx", wire.INVALID_ARGUMENT),
    "cut message": (Frame(wire.CALL + wire.NOTIFY), pack_message(b"", b"n", b"m")[:-1], wire.PROTOCOL),
    "length near 2^32": (Frame(wire.CALL + wire.NOTIFY), struct.pack("<I", 2**32 - 1), wire.PROTOCOL),
}


@pytest.mark.parametrize("name", NOT_SERVED)
def test_a_request_that_cannot_be_served_is_answered_and_the_connection_stays_usable(
    target: Actor, base: int, client: Peer, name: str
) -> None:
    frame, payload, status = NOT_SERVED[name]
    frame = Frame(**{**frame.__dict__, "address": base})
    refused(status, client.finish, client.begin(frame, payload))
    client.ping()
    assert target.peek(base, 16) == bytes(16)


def test_longer_messages_are_understood_and_shorter_ones_read_as_zeros(target: Actor, client: Peer) -> None:
    client.finish(client.begin_call(wire.PING, b"of a later version"))
    client.finish(client.begin_call(wire.NOTIFY, pack_message(b"s", b"n", b"m", b"of a later version")))
    client.finish(client.begin_call(wire.NOTIFY, pack_message(b"s", b"n")))
    client.finish(client.begin_call(wire.NOTIFY))
    received = [target.ask("receive", 0, 5000) for _ in range(3)]
    assert received == [[b"s".hex(), b"n".hex(), b"m".hex()], [b"s".hex(), b"n".hex(), "-"], ["-", "-", "-"]]


def test_versions_are_negotiated(target: Actor) -> None:
    with dial(target, versions=(1, 7)) as client:
        assert client.version == 1
        client.ping()
    refused(wire.VERSION, dial, target, versions=(2, 7))


def test_only_the_wanted_incarnation_answers(target: Actor) -> None:
    with dial(target, expected=target.incarnation) as client:
        client.ping()
    refused(wire.STALE_PEER, dial, target, expected=bytes(range(16)))


def test_an_invitation_is_given_with_new_tokens_each_time(client: Peer) -> None:
    bodies = [client.finish(client.begin_call(wire.INVITE, b"of a later version")) for _ in range(2)]
    (name, token, answer), (_, other_token, other_answer) = (unpack_message(body, "BII") for body in bodies)
    assert name.startswith(b"mooncake-") and len(name) <= 107
    assert len({token, answer, other_token, other_answer, bytes(16)}) == 5
