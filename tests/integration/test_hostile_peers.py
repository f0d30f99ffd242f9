"""Hostile clients: nothing outside registered memory is touched, the engine lives, and others are served meanwhile."""

from __future__ import annotations

import contextlib
import random
import resource
import select
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Callable

import peer as wire
import pytest
from actor import Actor
from peer import Frame, Hello, Peer, PeerError, Proof, pack_message

SIZE = 1 << 20
PAGE = 4096
PREFACE_TIME = 5  # seconds, docs/protocol.md


@pytest.fixture
def target(start: Callable[..., Actor]) -> Actor:
    return start()


@pytest.fixture
def base(target: Actor) -> int:
    """SIZE bytes that peers may read and write, with a page of the process's own on either side."""
    outer = int(target.ask("map", 0, SIZE + 2 * PAGE)[0])
    target.fill(outer, PAGE, 1)
    target.fill(outer + PAGE + SIZE, PAGE, 2)
    target.ask("register", 0, outer + PAGE, SIZE, 3)
    return outer + PAGE


def where(target: Actor) -> tuple[str, int]:
    host, port = target.address.rsplit(":", 1)
    return host, int(port)


@contextlib.contextmanager
def unharmed(target: Actor, base: int) -> Iterator[None]:
    """A well-behaved connection is served before and after, and what surrounds the region is as it was."""
    with Peer(*where(target)) as friend:
        friend.write(base, b"before")
        yield
        assert friend.read(base, 6) == b"before"
        friend.write(base, b"after!")
    assert target.peek(base, 6) == b"after!"
    assert target.differing(base - PAGE, PAGE, 1) == 0
    assert target.differing(base + SIZE, PAGE, 2) == 0


def closed(connection: socket.socket, seconds: float = 5) -> bool:
    """Does the other end close, with nothing further to say?"""
    connection.settimeout(seconds)
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


def sealed(data: bytes) -> bytes:
    return data[:-4] + struct.pack("<I", wire.crc32c(data[:-4]))


HELLO = Hello(1, 1, 0, bytes(16), bytes(16), bytes(32))
BAD_HELLOS = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3,
    "zeros": bytes(96),
    "ones": b"\xff" * 96,
    "magic": sealed(b"MOONCAKE" + HELLO.pack()[8:]),
    "checksum": HELLO.pack()[:-1] + b"\xff",
    "inverted range": Hello(2, 1, 0, bytes(16), bytes(16), bytes(32)).pack(),
    "version zero": Hello(0, 1, 0, bytes(16), bytes(16), bytes(32)).pack(),
    "reserved": sealed(HELLO.pack()[:91] + b"\x01" + bytes(4)),
}


# Fault 17.
@pytest.mark.parametrize("name", BAD_HELLOS)
def test_a_malformed_hello_is_not_answered(target: Actor, base: int, name: str) -> None:
    with unharmed(target, base), socket.create_connection(where(target)) as stranger:
        stranger.sendall(BAD_HELLOS[name])
        assert closed(stranger)


@pytest.mark.parametrize(
    "proof",
    [
        b"\xff" * 64,
        Proof(0, 0, bytes(32)).pack()[:-1] + b"\xff",
        sealed(Proof(0, 0, bytes(32)).pack()[:14] + b"\1" * 50),
    ],
)
def test_a_malformed_proof_is_not_answered(target: Actor, base: int, proof: bytes) -> None:
    with unharmed(target, base), socket.create_connection(where(target)) as stranger:
        stranger.sendall(HELLO.pack())
        assert len(stranger.recv(96, socket.MSG_WAITALL)) == 96
        stranger.sendall(proof)
        assert closed(stranger)


def test_half_a_preface_and_the_end_is_no_harm(target: Actor, base: int) -> None:
    with unharmed(target, base):
        for cut in (0, 1, 8, 95):
            with socket.create_connection(where(target)) as stranger:
                stranger.sendall(HELLO.pack()[:cut])


BAD_FRAMES = {
    "checksum": Frame(wire.CALL).pack()[:-1] + b"\xff",
    "reserved": sealed(Frame(wire.CALL).pack()[:56] + b"\x01" + bytes(7)),
    "write payload": Frame(wire.WRITE, payload_size=(64 << 20) + 1).pack(),
    "payload near 2^32": Frame(wire.WRITE, length=2**32 - 1, payload_size=2**32 - 1).pack(),
    "message payload": Frame(wire.CALL, payload_size=(1 << 20) + 1).pack(),
    "unknown type's payload": Frame(9, payload_size=2**32 - 1).pack(),
    "reply": Frame(wire.CALL | wire.REPLY).pack(),
    "http": b"GET / HTTP/1.1\r\n" * 4,
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
}


# Fault 17.
@pytest.mark.parametrize("name", BAD_FRAMES)
def test_a_malformed_frame_closes_the_connection(target: Actor, base: int, name: str) -> None:
    with unharmed(target, base), Peer(*where(target)) as hostile:
        hostile.ping()
        hostile.send(BAD_FRAMES[name])
        hostile.socket.setblocking(True)
        assert closed(hostile.socket)


# Fault 17.
def test_half_a_frame_and_the_end_is_no_harm(target: Actor, base: int) -> None:
    whole = Frame(wire.WRITE, address=base + 100, length=1000, payload_size=1000).pack() + bytes(1000)
    with unharmed(target, base):
        for cut in (1, 63, 64, 65, 1063):
            with Peer(*where(target)) as hostile:
                hostile.send(whole[:cut])


def test_a_region_with_half_a_write_under_way_can_be_unregistered_when_the_client_has_gone(
    target: Actor, base: int
) -> None:
    with Peer(*where(target)) as hostile:
        hostile.ping()
        hostile.send(Frame(wire.WRITE, address=base, length=1000, payload_size=1000).pack() + b"x" * 500)
        with Peer(*where(target)) as friend:
            while friend.read(base, 1) != b"x":
                pass
    target.ask("unregister", 0, base)
    target.ask("unmap", base, SIZE)


# Fault 17.
def test_what_closes_a_connection_is_counted(target: Actor, base: int) -> None:
    """A preface that fails, a broken frame, half a frame; a client that just goes counts as none of them."""

    def sessions() -> tuple[int, int, int]:
        counts = target.metrics()["sessions"]
        return counts["accepted"], counts["refused"], counts["broken"]

    before = sessions()
    with unharmed(target, base):
        for hello in BAD_HELLOS.values():
            with socket.create_connection(where(target)) as stranger:
                stranger.sendall(hello)
                assert closed(stranger)
        for frame in BAD_FRAMES.values():
            with Peer(*where(target)) as hostile:
                hostile.send(frame)
                hostile.socket.setblocking(True)
                assert closed(hostile.socket)
        with Peer(*where(target)) as hostile:
            hostile.ping()
            hostile.send(Frame(wire.WRITE, address=base, length=1000, payload_size=1000).pack() + b"before")
    hellos, frames = len(BAD_HELLOS), len(BAD_FRAMES) + 1
    wanted = (before[0] + hellos + frames + 1, before[1] + hellos, before[2] + frames)
    deadline = time.monotonic() + 5
    while sessions() != wanted:
        assert time.monotonic() < deadline, f"{sessions()}, not {wanted}"


def bad_ranges(base: int) -> list[tuple[int, int]]:
    return [
        (base - 1, 1),
        (base - 1, 2),
        (base - 8, SIZE + 16),
        (base, SIZE + 1),
        (base + SIZE - 1, 2),
        (base + SIZE, 1),
        (0, 1),
        (0, 64 << 20),
        (2**64 - 1, 1),
        (2**64 - 1, 2),
        (2**64 - 4096, 8192),
        (2**63, 1),
        (base + 2**32, 16),
        (base ^ 2**63, 16),
    ]


# Faults 5 and 17.
def test_ranges_that_straddle_or_overflow_are_refused_and_touch_nothing(target: Actor, base: int) -> None:
    with unharmed(target, base), Peer(*where(target)) as hostile:
        for address, length in bad_ranges(base):
            outside = Frame(wire.READ, address=address, length=length)
            for frame, payload in ((outside, b""), (replace(outside, type=wire.WRITE), b"\xee" * length)):
                with pytest.raises(PeerError) as caught:
                    hostile.finish(hostile.begin(frame, payload))
                assert caught.value.status == wire.NOT_REGISTERED, (hex(address), length)
        for address in (0, base - 8, base + SIZE, 2**63, 2**64 - 8):
            with pytest.raises(PeerError) as caught:
                hostile.read(base, 1, guard=(address, 0))
            assert caught.value.status == wire.NOT_REGISTERED, hex(address)
        for length in (2**64 - 1, 2**63, 2**32, (64 << 20) + 1):
            with pytest.raises(PeerError) as caught:
                hostile.finish(hostile.begin(Frame(wire.READ, address=base, length=length)))
            assert caught.value.status in (wire.INVALID_ARGUMENT, wire.NOT_REGISTERED)
        hostile.ping()


def test_memory_that_was_unregistered_is_out_of_reach(target: Actor, base: int) -> None:
    with Peer(*where(target)) as client:
        client.write(base, b"in time")
        target.ask("unregister", 0, base)
        for request in (lambda: client.write(base, b"late"), lambda: client.read(base, 1)):
            with pytest.raises(PeerError) as caught:
                request()
            assert caught.value.status == wire.NOT_REGISTERED
    assert target.peek(base, 7) == b"in time"


# Fault 17.
def test_random_frames_with_right_checksums_do_no_harm(target: Actor, base: int) -> None:
    chance = random.Random(3)
    numbers = [0, 1, 7, 64, PAGE, SIZE, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1, base, base - 1, base + SIZE - 1]

    def frame() -> bytes:
        payload = chance.randbytes(chance.choice([0, 0, 1, 64, 300]))
        return (
            Frame(
                chance.choice([0, 1, 1, 2, 2, 3, 16, 18, 20, 22, 1000, 0x8001]),
                chance.choice([0, 0, 1, 2, 3, 4, 7, 0xFFFF]),
                chance.choice([0, 0, -1, 5]),
                chance.randrange(2**64),
                chance.choice(numbers),
                chance.choice([*numbers, len(payload)]),
                chance.choice(numbers),
                chance.choice(numbers),
                chance.randrange(2**32),
                chance.choice([len(payload)] * 9 + [2**32 - 1]),
            ).pack()
            + payload
        )

    with unharmed(target, base):
        for _ in range(60):
            with Peer(*where(target)) as hostile, contextlib.suppress(OSError):
                hostile.socket.setblocking(True)
                hostile.socket.settimeout(5)
                hostile.socket.sendall(b"".join(frame() for _ in range(40)))
                hostile.socket.shutdown(socket.SHUT_WR)
                while hostile.socket.recv(1 << 20):
                    pass
        target.poke(base, b"before")  # it was in reach


def flood(target: Actor, data: bytes, seconds: float) -> tuple[int, int]:
    """Sends the same requests again and again, and never takes a reply. How many bytes were taken, and what is resident
    in the target then, with the connection still open."""
    with Peer(*where(target)) as hostile:
        deadline = time.monotonic() + seconds
        view = memoryview(data)
        sent = 0
        while time.monotonic() < deadline:
            if select.select([], [hostile.socket], [], 0.05)[1]:
                with contextlib.suppress(BlockingIOError):
                    sent += hostile.socket.send(view[sent % len(view) :])
        return sent, target.resident()


@pytest.mark.parametrize("length", [1, SIZE])
def test_a_flood_of_reads_whose_replies_are_not_taken_keeps_the_target_s_memory_bounded(
    target: Actor, base: int, length: int
) -> None:
    requests = b"".join(Frame(wire.READ, address=base, length=length, id=i).pack() for i in range(1000))
    with unharmed(target, base):
        before = target.resident()
        _, resident = flood(target, requests, 1.0)
        assert resident - before < 48 << 20


def test_calls_whose_replies_are_not_taken_leave_no_bodies_behind(target: Actor, base: int) -> None:
    # A large reply that nobody takes keeps all later ones in the target; the bodies of their requests need not stay.
    read = Frame(wire.READ, address=base, length=SIZE, id=1).pack() * 64
    call = Frame(wire.CALL + wire.NOTIFY, id=2, payload_size=1 << 20).pack() + bytes(1 << 20)
    with unharmed(target, base):
        before = target.resident()
        sent, resident = flood(target, read + call * 200, 3.0)
        assert sent > 100 << 20, "the target goes on reading"
        assert resident - before < 32 << 20


def test_a_region_under_a_flood_of_unread_replies_is_unregistered_once_the_flood_has_gone(
    target: Actor, base: int
) -> None:
    requests = b"".join(Frame(wire.READ, address=base, length=SIZE, id=i).pack() for i in range(100))
    flood(target, requests, 0.2)
    target.ask("unregister", 0, base)


# Fault 17.
def test_thousands_of_silent_connections_are_closed_in_time_and_others_are_served_meanwhile(
    start: Callable[..., Actor], many_files: None
) -> None:
    count = min(3000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    target = start(environment={"MC_HANDSHAKE_LISTEN_BACKLOG": "4096"})
    base = target.alloc(SIZE)
    begun = time.monotonic()
    strangers = []
    friend = Peer(*where(target))  # first, for select() takes small descriptors only
    try:
        for index in range(count):
            stranger = socket.create_connection(where(target), 5)
            stranger.setblocking(False)
            if index % 3 == 1:
                stranger.send(HELLO.pack()[:50])
            elif index % 3 == 2:
                stranger.send(HELLO.pack())
            strangers.append(stranger)
        waiting = {stranger.fileno(): stranger for stranger in strangers}
        poll = select.poll()
        for number in waiting:
            poll.register(number, select.POLLIN)
        served = 0
        while waiting:
            friend.write(base, served.to_bytes(4, "little"))
            served += 1
            assert time.monotonic() - begun < PREFACE_TIME + 10
            for number, _ in poll.poll(100):
                with contextlib.suppress(ConnectionResetError):
                    if waiting[number].recv(1000) != b"":
                        continue
                poll.unregister(number)
                del waiting[number]
        assert served > 10
        assert time.monotonic() - begun >= PREFACE_TIME
    finally:
        for stranger in strangers:
            stranger.close()
        friend.close()
    assert len(target.descriptors()) < 40


def test_connections_beyond_the_limit_are_told_so_and_a_place_that_becomes_free_is_taken(
    start: Callable[..., Actor],
) -> None:
    target = start(environment={"MC_SESSIONS": "3"})
    base = target.alloc(SIZE)
    with contextlib.ExitStack() as stack:
        friends = [stack.enter_context(Peer(*where(target))) for _ in range(3)]
        for _ in range(5):
            with pytest.raises(PeerError) as caught:
                Peer(*where(target))
            assert caught.value.status == wire.TOO_MANY
        for friend in friends:
            friend.write(base, b"here")
        friends[0].close()
        deadline = time.monotonic() + 5
        while True:
            try:
                late = stack.enter_context(Peer(*where(target)))
                break
            except PeerError:
                assert time.monotonic() < deadline
        late.write(base, b"late")
    assert target.peek(base, 4) == b"late"


def test_notifications_that_nobody_takes_are_bounded(start: Callable[..., Actor]) -> None:
    target = start(environment={"MC_NOTIFICATIONS": "16"})
    with Peer(*where(target)) as hostile:
        before = target.resident()
        body = pack_message(b"", b"", bytes(65536))
        ids = [hostile.begin_call(wire.NOTIFY, body) for _ in range(1000)]
        outcomes = []
        for id in ids:
            try:
                hostile.finish(id)
                outcomes.append(0)
            except PeerError as error:
                outcomes.append(error.status)
        assert (outcomes.count(0), outcomes.count(wire.QUEUE_FULL)) == (16, 984)
        assert target.resident() - before < 16 << 20
