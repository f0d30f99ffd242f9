"""Both ends of tests/integration/peer.py against each other, which proves that the protocol page is complete."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import peer as wire
import pytest
from peer import Frame, Hello, Peer, PeerError, ProtocolError, Server, crc32c, pack_message

KEY = b"a key of the tests, 32 bytes long"
BASE = 0x7E0000000000


@contextmanager
def serving(**options: object) -> Iterator[tuple[Server, tuple[str, int]]]:
    server = Server(bytearray(range(256)) * 16, **options)
    address = server.start()
    try:
        yield server, address
    finally:
        server.stop()


@contextmanager
def connected(key: bytes | None = None, **options: object) -> Iterator[tuple[Server, Peer]]:
    with serving(key=key, **options) as (server, address), Peer(*address, key=key) as peer:
        yield server, peer


def assert_status(status: int, call: object, *arguments: object, **options: object) -> None:
    with pytest.raises(PeerError) as caught:
        call(*arguments, **options)
    assert caught.value.status == status


def test_crc32c_is_the_known_one() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("guard", [None, (BASE + 8, 0x0F0E0D0C0B0A0908)])
@pytest.mark.parametrize("split", [False, True])
def test_what_is_written_is_read(key: bytes | None, checksum: bool, guard: tuple[int, int] | None, split: bool) -> None:
    with connected(key, split_guarded_reads=split) as (server, peer):
        peer.ping()
        peer.write(BASE + 1000, b"block" * 100, guard=guard, checksum=checksum)
        assert server.memory[1000:1500] == b"block" * 100
        assert peer.read(BASE + 998, 7, guard=guard, checksum=checksum) == b"\xe6\xe7block"
        peer.write(BASE, b"", guard=guard, checksum=checksum)
        assert peer.read(BASE, 0, guard=guard, checksum=checksum) == b""
        peer.notify(b"name", b"with\0nul", sender=b"here:1")
        assert server.notifications == [(b"here:1", b"name", b"with\0nul")]
        assert peer.version == 1
        assert peer.peer_incarnation == server.incarnation
    assert server.client is not None
    assert server.client.incarnation == peer.incarnation


@pytest.mark.parametrize(("ours", "theirs"), [(KEY, None), (None, KEY), (KEY, KEY + b"!")])
def test_ends_with_different_keys_do_not_talk(ours: bytes | None, theirs: bytes | None) -> None:
    with serving(key=theirs) as (_, address):
        assert_status(wire.AUTHENTICATION, Peer, *address, key=ours)


def test_a_server_that_accepts_without_the_key_is_refused_by_the_client() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        replies = Hello(1, 1, wire.HAS_KEY, bytes(16), bytes(16), bytes(32)).pack()
        accept = wire.Proof(0, 1, bytes(range(32))).pack()

        def impostor() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(replies + accept)
                connection.recv(160, socket.MSG_WAITALL)

        thread = threading.Thread(target=impostor)
        thread.start()
        assert_status(wire.AUTHENTICATION, Peer, *listener.getsockname(), key=KEY)
        thread.join(10)


def test_versions_are_negotiated() -> None:
    with serving(versions=(1, 2)) as (_, address), Peer(*address, versions=(2, 3)) as peer:
        assert peer.version == 2
    with serving(versions=(1, 1)) as (_, address):
        assert_status(wire.VERSION, Peer, *address, versions=(2, 3))


def test_only_the_wanted_incarnation_answers() -> None:
    with serving() as (server, address), Peer(*address, expected=server.incarnation) as peer:
        peer.ping()
    with serving() as (server, address):
        assert_status(wire.STALE_PEER, Peer, *address, expected=bytes(range(16)))


def test_a_full_server_says_so_but_only_to_who_has_the_key() -> None:
    with serving(key=KEY, full=True) as (_, address):
        assert_status(wire.TOO_MANY, Peer, *address, key=KEY)
    with serving(key=KEY, full=True) as (_, address):
        assert_status(wire.AUTHENTICATION, Peer, *address)


@pytest.mark.parametrize("checksum", [False, True])
def test_a_guard_that_differs_before_the_first_byte_leaves_the_memory_alone(checksum: bool) -> None:
    with connected() as (server, peer):
        before = bytes(server.memory)
        assert_status(wire.GUARD_MISMATCH, peer.write, BASE, b"late", guard=(BASE + 64, 1), checksum=checksum)
        assert_status(wire.GUARD_MISMATCH, peer.read, BASE, 4, guard=(BASE + 64, 1), checksum=checksum)
        assert server.memory == before
        peer.ping()


@pytest.mark.parametrize("split", [False, True])
def test_a_guard_that_changes_before_the_last_byte_spoils_the_request(split: bool) -> None:
    with connected(split_guarded_reads=split) as (server, peer):
        server.memory[0:8] = bytes(8)
        server.before_second_guard = lambda: server.memory.__setitem__(0, server.memory[0] + 1)
        assert_status(wire.GUARD_MISMATCH, peer.read, BASE + 8, 8, guard=(BASE, 0))
        assert_status(wire.GUARD_MISMATCH, peer.write, BASE + 8, b"w", guard=(BASE, 1))
        assert peer.read(BASE + 8, 2) == b"w\x09"


def test_guards_are_checked_as_ranges_are() -> None:
    with connected() as (_, peer):
        assert_status(wire.INVALID_ARGUMENT, peer.read, BASE, 1, guard=(BASE + 4, 0))
        assert_status(wire.NOT_REGISTERED, peer.read, BASE, 1, guard=(BASE + 4096, 0))
        assert_status(wire.NOT_REGISTERED, peer.read, BASE, 1, guard=(2**64 - 8, 0))


def test_nothing_outside_the_region_is_reached_and_rights_are_kept() -> None:
    with connected() as (_, peer):
        for address, length in ((BASE - 1, 1), (BASE, 4097), (BASE + 4096, 1), (0, 1), (2**64 - 1, 2)):
            assert_status(wire.NOT_REGISTERED, peer.read, address, length)
            assert_status(wire.NOT_REGISTERED, peer.write, address, bytes(length))
        assert peer.read(BASE + 4095, 1) == b"\xff"
    with connected(readable=False, writable=False) as (_, peer):
        assert_status(wire.ACCESS_DENIED, peer.read, BASE, 1)
        assert_status(wire.ACCESS_DENIED, peer.write, BASE, b"x")


@pytest.mark.parametrize("count", [2, 5])
def test_replies_in_any_order_find_their_requests(count: int) -> None:
    with connected(hold=count) as (_, peer):
        guard = (BASE, 0x0706050403020100)
        ids = [peer.begin_read(BASE + i, i + 1, guard=guard if i % 2 else None) for i in range(count)]
        for i, id in enumerate(ids):
            assert peer.finish(id) == bytes(range(i, 2 * i + 1))


def test_more_requests_in_flight_than_buffers_take_do_not_stand_still() -> None:
    server = Server(bytearray(1 << 20))
    address = server.start()
    with Peer(*address) as peer:
        ids = []
        for _ in range(32):
            ids.append(peer.begin_write(BASE, bytes(1 << 20)))
            ids.append(peer.begin_read(BASE, 1 << 20))
        for id in ids:
            assert peer.finish(id) in (b"", bytes(1 << 20))
    server.stop()
    assert server.error is None


def test_damaged_payloads_are_found_with_checksums_only() -> None:
    with connected() as (server, peer):
        server.damage = lambda payload: payload and bytes([payload[0] ^ 1]) + payload[1:]
        assert peer.read(BASE, 4) == b"\x01\x01\x02\x03"
        assert_status(wire.CHECKSUM_MISMATCH, peer.read, BASE, 4, checksum=True)
        assert_status(wire.CHECKSUM_MISMATCH, peer.read, BASE, 4, checksum=True, guard=(BASE, 0x0706050403020100))
        wrong = Frame(wire.WRITE, wire.CHECKSUM, address=BASE, length=1, payload_crc=1)
        assert_status(wire.CHECKSUM_MISMATCH, peer.finish, peer.begin(wrong, b"x"))
        peer.ping()


BAD_REQUESTS = {
    "unknown type": (Frame(3), b"payload", wire.NOT_SUPPORTED),
    "unknown message": (Frame(wire.CALL + 1000), b"payload", wire.NOT_SUPPORTED),
    "odd message": (Frame(wire.CALL + 1), b"", wire.NOT_SUPPORTED),
    "unknown flag": (Frame(wire.WRITE, 0x8000, address=BASE, length=1), b"x", wire.NOT_SUPPORTED),
    "MORE in a request": (Frame(wire.READ, wire.MORE, address=BASE, length=1), b"", wire.NOT_SUPPORTED),
    "guarded message": (Frame(wire.CALL, wire.GUARD), b"", wire.NOT_SUPPORTED),
    "message with a checksum": (Frame(wire.CALL, wire.CHECKSUM), b"", wire.NOT_SUPPORTED),
    "READ too long": (Frame(wire.READ, address=BASE, length=(64 << 20) + 1), b"", wire.INVALID_ARGUMENT),
    "READ with a payload": (Frame(wire.READ, address=BASE, length=1), b"x", wire.INVALID_ARGUMENT),
    "WRITE with less": (Frame(wire.WRITE, address=BASE, length=3), b"xx", wire.INVALID_ARGUMENT),
    "WRITE with more": (Frame(wire.WRITE, address=BASE, length=1), b"xx", wire.INVALID_ARGUMENT),
    "cut message": (Frame(wire.CALL + wire.NOTIFY), pack_message(b"", b"n", b"m")[:-1], wire.PROTOCOL),
    "length near 2^32": (Frame(wire.CALL + wire.NOTIFY), struct.pack("<I", 2**32 - 1), wire.PROTOCOL),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_bad_request_is_answered_and_the_connection_stays_usable(name: str) -> None:
    frame, payload, status = BAD_REQUESTS[name]
    with connected() as (server, peer):
        before = bytes(server.memory)
        assert_status(status, peer.finish, peer.begin(frame, payload))
        assert server.memory == before
        peer.ping()


def test_messages_may_be_longer_and_shorter_than_known() -> None:
    with connected() as (server, peer):
        peer.finish(peer.begin_call(wire.PING, b"of a later version"))
        peer.finish(peer.begin_call(wire.NOTIFY, pack_message(b"s", b"n", b"m", b"later")))
        peer.finish(peer.begin_call(wire.NOTIFY, pack_message(b"s", b"n")))
        peer.finish(peer.begin_call(wire.NOTIFY))
        assert server.notifications == [(b"s", b"n", b"m"), (b"s", b"n", b""), (b"", b"", b"")]


def test_notifications_are_bounded_in_size_and_number() -> None:
    with connected(queue_limit=2) as (server, peer):
        assert_status(wire.TOO_LARGE, peer.notify, b"n", bytes(65536))
        assert_status(wire.TOO_LARGE, peer.notify, b"n", b"m", sender=bytes(288))
        peer.notify(b"n", bytes(65535), sender=bytes(287))
        peer.notify(b"", b"")
        assert_status(wire.QUEUE_FULL, peer.notify, b"n", b"m")
        assert len(server.notifications) == 2


def sealed(data: bytes) -> bytes:
    return data[:-4] + struct.pack("<I", crc32c(data[:-4]))


MALFORMED = {
    "checksum": Frame(wire.CALL).pack()[:-1] + b"\xff",
    "reserved": sealed(Frame(wire.CALL).pack()[:56] + b"\x01" + bytes(7)),
    "write payload": Frame(wire.WRITE, payload_size=(64 << 20) + 1).pack(),
    "message payload": Frame(wire.CALL, payload_size=(1 << 20) + 1).pack(),
    "reply": Frame(wire.CALL | wire.REPLY).pack(),
    "http": b"GET / HTTP/1.1\r\n" * 4,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_frame_closes_the_connection(name: str) -> None:
    with connected() as (server, peer):
        id = peer.begin_call(wire.PING)
        peer.finish(id)
        peer.send(MALFORMED[name])
        server.wait()
        assert isinstance(server.error, ProtocolError)
        with pytest.raises(ConnectionError):
            peer.finish(peer.begin_call(wire.PING))


HELLO = Hello(1, 1, 0, bytes(16), bytes(16), bytes(32))
BAD_PREFACES = {
    "magic": sealed(b"MOONCAKE" + HELLO.pack()[8:]),
    "checksum": HELLO.pack()[:-1] + b"\xff",
    "inverted range": replace(HELLO, lowest=2).pack(),
    "version zero": replace(HELLO, lowest=0).pack(),
    "reserved": sealed(HELLO.pack()[:91] + b"\x01" + bytes(4)),
    "http": b"GET / HTTP/1.1\r\n" * 6,
}


@pytest.mark.parametrize("name", BAD_PREFACES)
def test_a_malformed_hello_is_not_answered(name: str) -> None:
    with serving() as (server, address), socket.create_connection(address, 10) as stranger:
        stranger.sendall(BAD_PREFACES[name])
        assert stranger.recv(1) == b""
        server.wait()
        assert isinstance(server.error, ProtocolError)


def test_the_client_closes_on_replies_that_break_the_protocol() -> None:
    frame = Frame(wire.READ, address=BASE, length=4)
    good = {"type": wire.READ | wire.REPLY, "payload_size": 4}
    cases = [
        ({**good, "id": 99}, b"1234"),
        ({**good, "type": wire.WRITE | wire.REPLY}, b"1234"),
        ({**good, "type": wire.READ}, b"1234"),
        ({**good, "payload_size": 3}, b"123"),
        ({**good, "status": -600}, b"1234"),
        ({**good, "status": 1, "payload_size": 0}, b""),
        ({**good, "flags": wire.MORE}, b"1234"),
        ({**good, "flags": 0x4000}, b"1234"),
    ]
    for fields, payload in cases:
        with connected() as (server, peer):
            server._answer = lambda request, _, f=fields, p=payload: [Frame(**{"id": request.id, **f}).pack() + p]
            id = peer.begin(frame)
            with pytest.raises(ProtocolError):
                peer.finish(id)
