"""Rings between processes of one host: by a guest in plain Python, written from "Ring" in docs/protocol.md, and between
engines whose processes are killed, stopped and forked."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import re
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import actor as status
import peer as wire
import pytest
from actor import Actor, ActorError
from peer import Frame
from test_same_host import PACKET, Guest, invited

ROOT = Path(__file__).resolve().parents[2]
RING, RINGED = 5, 6
WORDS, BYTES = 4096, 65536
TO_HOST, TO_GUEST = 0, 1
TAIL, WAITS, HEAD, SLEEPS = 0, 8, 128, 136


class Ring:
    """The guest's side, which always rings: a bell too many does no harm."""

    def __init__(self, memory: int, bell: int) -> None:
        assert os.fstat(memory).st_size >= WORDS + 2 * BYTES
        self.memory = mmap.mmap(memory, WORDS + 2 * BYTES)
        self.bell = socket.socket(fileno=bell)
        self.bell.settimeout(10)
        os.close(memory)

    def close(self) -> None:
        self.bell.close()

    def word(self, direction: int, at: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_buffer(self.memory, 256 * direction + at)

    def ring(self) -> None:
        self.bell.send(b"!")

    def send(self, data: bytes) -> None:
        tail, head = self.word(TO_HOST, TAIL), self.word(TO_HOST, HEAD)
        for byte in data:
            while tail.value - head.value == BYTES:
                self.ring()
                time.sleep(0.001)
            self.memory[WORDS + tail.value % BYTES] = byte
            tail.value += 1
        self.ring()

    def receive(self, size: int) -> bytes:
        tail, head = self.word(TO_GUEST, TAIL), self.word(TO_GUEST, HEAD)
        data = bytearray()
        while len(data) < size:
            self.word(TO_GUEST, SLEEPS).value = 1
            if tail.value == head.value:
                assert self.bell.recv(64), "the bell is broken"
                continue
            data.append(self.memory[WORDS + BYTES + head.value % BYTES])
            head.value += 1
        self.ring()
        return bytes(data)

    def ask(self, kind: int, payload: bytes = b"", identity: int = 7) -> Frame:
        self.send(Frame(type=kind, id=identity, payload_size=len(payload)).pack() + payload)
        reply = Frame.unpack(self.receive(64))
        assert (reply.type, reply.id) == (kind | wire.REPLY, identity)
        self.receive(reply.payload_size)
        return reply

    def assert_ends(self) -> None:
        while self.bell.recv(64):
            pass


def ask_for_ring(guest: Guest) -> tuple[int, list[int]]:
    (kind, code, *zeros), descriptors = guest.ask(PACKET.pack(RING, 0, bytes(16), 0, 0, 0))
    assert (kind, zeros) == (RINGED, [bytes(16), 0, 0])
    return code, descriptors


@pytest.fixture
def target(start: Callable[..., Actor]) -> Actor:
    return start()


@pytest.fixture
def ring(target: Actor) -> Iterator[Ring]:
    with invited(target) as guest:
        guest.enter()
        code, descriptors = ask_for_ring(guest)
        assert code == 0
        ring = Ring(*descriptors)
    yield ring  # which doesn't need the socket any more
    ring.close()


def test_frames_go_through_a_ring_as_they_do_over_a_connection(ring: Ring) -> None:
    for number in range(300):  # more than the rings hold
        assert ring.ask(wire.CALL + wire.PING, b"later fields" * 40, number).status == 0
    assert ring.ask(wire.CALL + 1).status == wire.NOT_SUPPORTED
    assert ring.ask(wire.CALL + wire.NOTIFY, b"\1").status == wire.PROTOCOL
    assert ring.ask(wire.CALL + wire.PING).status == 0


@pytest.mark.parametrize("direction", [TO_HOST, TO_GUEST])
def test_a_position_that_makes_no_sense_ends_the_ring_and_nothing_else(
    target: Actor, ring: Ring, direction: int
) -> None:
    before = len(target.descriptors())
    ring.word(direction, TAIL if direction == TO_HOST else HEAD).value += BYTES + 1
    with contextlib.suppress(OSError):  # more than the host may send without looking how far the guest has read
        ring.send(Frame(type=wire.CALL + wire.PING).pack() * (1 + BYTES // 64))
    ring.assert_ends()
    deadline = time.monotonic() + 5
    while len(target.descriptors()) >= before:
        assert time.monotonic() < deadline
    with invited(target) as guest:
        guest.enter()


def test_garbage_in_a_ring_ends_it(ring: Ring) -> None:
    ring.send(bytes(64))
    ring.assert_ends()


def test_a_guest_has_one_ring(target: Actor) -> None:
    with invited(target) as guest:
        guest.enter()
        code, descriptors = ask_for_ring(guest)
        with pytest.raises(ConnectionError):
            ask_for_ring(guest)
        ring = Ring(*descriptors)
        assert code == 0 and ring.ask(wire.CALL + wire.PING).status == 0
        ring.close()


def test_nobody_has_a_ring_before_hello(target: Actor) -> None:
    with invited(target) as guest, pytest.raises(ConnectionError):
        ask_for_ring(guest)


def test_rings_that_end_leave_nothing(target: Actor) -> None:
    before = len(target.descriptors())
    for _ in range(20):
        with invited(target) as guest:
            guest.enter()
            _, descriptors = ask_for_ring(guest)
            ring = Ring(*descriptors)
            assert ring.ask(wire.CALL + wire.PING).status == 0
            ring.close()
    deadline = time.monotonic() + 5
    while len(target.descriptors()) > before:
        assert time.monotonic() < deadline


def test_an_engine_gives_as_many_rings_as_it_may(start: Callable[..., Actor]) -> None:
    target = start(environment={"MC_RINGS": "1"})
    rings: list[Ring] = []
    for expected in (0, wire.TOO_MANY):
        with invited(target) as guest:
            guest.enter()
            code, descriptors = ask_for_ring(guest)
            assert code == expected
            rings += [Ring(*descriptors)] if descriptors else []
    assert rings[0].ask(wire.CALL + wire.PING).status == 0
    rings[0].close()


# ---- Between engines ----


def bells(actor: Actor) -> int:
    """Mappings of rings in the process."""
    return Path(f"/proc/{actor.pid}/maps").read_text().count("mooncake-ring")


def test_engines_on_one_host_call_through_rings_if_they_may(start: Callable[..., Actor]) -> None:
    for environment, count in (({}, 1), ({"MC_RINGS": "0"}, 0), ({"MC_FORCE_TCP": "1"}, 0)):
        client, target = start(environment=environment), start(environment=environment)
        peer = client.peer(target.address)
        assert (bells(client), bells(target)) == (count, count)
        client.ask("probe", peer, 9000)
        client.ask("notify", peer, "00", "00", 9000)
        client.ask("peer_close", peer)
        assert bells(client) == 0


def test_a_peer_without_rings_is_called_over_tcp(start: Callable[..., Actor]) -> None:
    client, target = start(), start(environment={"MC_RINGS": "0"})
    peer = client.peer(target.address)
    assert bells(client) == 0
    client.ask("probe", peer, 9000)


def test_a_killed_peer_is_noticed_at_once(start: Callable[..., Actor]) -> None:
    client, target = start(), start()
    peer = client.peer(target.address)
    client.ask("probe", peer, 9000)
    target.kill()
    began = time.monotonic()
    with pytest.raises(ActorError) as failure:
        client.ask("probe", peer, 9000)
    assert failure.value.status in (status.CONNECTION_LOST, status.UNREACHABLE)
    assert time.monotonic() - began < 5
    assert bells(client) == 0


def test_a_stopped_peer_is_left_at_the_deadline_and_called_again(start: Callable[..., Actor]) -> None:
    client, target = start(), start()
    peer = client.peer(target.address)
    os.kill(target.pid, signal.SIGSTOP)
    try:
        for _ in range(5):
            with pytest.raises(ActorError) as failure:
                client.ask("probe", peer, 100)
            assert failure.value.status == status.TIMEOUT
    finally:
        os.kill(target.pid, signal.SIGCONT)
    client.ask("probe", peer, 9000)
    assert bells(client) == 1


def test_the_page_says_what_ring_c_says() -> None:
    section = (ROOT / "docs" / "protocol.md").read_text().split("### Ring")[1].split("\n## ")[0]
    source = (ROOT / "libmooncake/net/ring.c").read_text()
    header = (ROOT / "libmooncake/net/ring.h").read_text()
    settings = (ROOT / "libmooncake/base/config.def").read_text()
    assert f"#define WORDS_SIZE {WORDS}u" in source and f"page of {WORDS} bytes" in section
    assert f"#define RING_BYTES {BYTES}u" in header and f"then {BYTES} bytes that go to the host" in section
    assert "#define LINE 128" in source and re.search(r"== 8 &&.* == LINE &&\s.* == LINE \+ 8 ", source)
    assert re.findall(r"^\| (\d+) \| \d \| ", section, re.MULTILINE) == [str(at) for at in (TAIL, WAITS, HEAD, SLEEPS)]
    assert 'SETTING_U64(RINGS, "MC_RINGS", 256,' in settings and "256 by default" in section
    assert struct.calcsize("<Q") == ctypes.sizeof(ctypes.c_uint64)
