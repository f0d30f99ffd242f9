"""A guest in plain Python, written from "Same host" in docs/protocol.md, and that section against the sources."""

from __future__ import annotations

import array
import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import re
import resource
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
from peer import Peer, unpack_message

ROOT = Path(__file__).resolve().parents[2]
SIZE = 1 << 20
HELLO, WELCOME, MAP, MAPPED, RING = 1, 2, 3, 4, 5
SLOTS = 131072
LOG = 4096
FIRST = 64 + 4 * LOG  # where the slots begin
PACKET = struct.Struct("<Ii16sQII")
SEALS = 1 | 2 | 4  # SEAL, SHRINK, GROW
NOBODY = 65534


class Guest:
    """The mapped path to an engine, step by step; ConnectionError when the host closes the socket."""

    def __init__(self, peer: Peer) -> None:
        self.name, self.token, self.answer = unpack_message(peer.finish(peer.begin_call(wire.INVITE)), "BII")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(5)
        self.socket.connect(b"\0" + self.name)

    def close(self) -> None:
        self.socket.close()

    def ask(
        self, packet: bytes, descriptors: tuple[int, ...] = ()
    ) -> tuple[tuple[int, int, bytes, int, int], list[int]]:
        """kind, status, token, key and slot of the answer, and the descriptors that came with it."""
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self.socket.sendmsg([packet], control)
        data, ancillary, _, _ = self.socket.recvmsg(100, socket.CMSG_SPACE(16))
        if not data:
            raise ConnectionError("closed by the host")
        came = array.array("i")
        for _, kind, body in ancillary:
            assert kind == socket.SCM_RIGHTS
            came.frombytes(body)
        *fields, zero = PACKET.unpack(data)
        assert zero == 0
        return tuple(fields), list(came)  # type: ignore[return-value]

    def enter(self) -> None:
        assert struct.unpack("3i", self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1] == os.geteuid()
        (kind, code, answer, _, _), (regions, counters) = self.ask(PACKET.pack(HELLO, 0, self.token, 0, 0, 0))
        assert (kind, code, answer) == (WELCOME, 0, self.answer)
        self.page = mapped(regions, FIRST + 64 * SLOTS, writable=False)
        self.counters = mapped(counters, 4 * SLOTS, writable=True)
        assert self.page[:8] == b"\0mcshmp2"
        assert self.counters[:] == bytes(len(self.counters))

    def changes(self) -> int:
        return struct.unpack_from("<Q", self.page, 8)[0]

    def used(self) -> int:
        return struct.unpack_from("<I", self.page, 16)[0]

    def changed(self, number: int) -> int:
        """The slot of the change with that number."""
        return struct.unpack_from("<I", self.page, 64 + 4 * (number % LOG))[0]

    def slot(self, index: int) -> tuple[int, int, int, int, int, int]:
        """key, address, length, offset, size, rights."""
        key, address, length, _, offset, size, rights = struct.unpack_from("<7Q", self.page, FIRST + 64 * index)
        return key, address, length, offset, size, rights

    def memory(self, index: int) -> int:
        return struct.unpack_from("<Q", self.page, FIRST + 64 * index + 24)[0]

    def find(self, address: int) -> tuple[int, tuple[int, int, int, int, int, int]]:
        for index in range(self.used()):
            slot = self.slot(index)
            if slot[0] % 4 == 1 and slot[1] <= address < slot[1] + slot[2]:
                return index, slot
        raise LookupError

    def map(self, index: int, key: int) -> tuple[int, list[int]]:
        (kind, code, token, its_key, its_slot), descriptors = self.ask(PACKET.pack(MAP, 0, bytes(16), key, index, 0))
        assert (kind, token, its_key, its_slot) == (MAPPED, bytes(16), key, index)
        return code, descriptors

    def count(self, index: int, number: int) -> None:
        ctypes.c_uint32.from_buffer(self.counters, 4 * index).value = number


def mapped(descriptor: int, size: int, *, writable: bool) -> mmap.mmap:
    assert fcntl.fcntl(descriptor, fcntl.F_GETFD) >= 0
    assert fcntl.fcntl(descriptor, 1034) & SEALS == SEALS  # F_GET_SEALS
    assert os.fstat(descriptor).st_size >= size
    access = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    assert access == (os.O_RDWR if writable else os.O_RDONLY)
    memory = mmap.mmap(descriptor, size, prot=mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
    os.close(descriptor)
    return memory


@pytest.fixture
def target(start: Callable[..., Actor]) -> Actor:
    return start()


@contextlib.contextmanager
def invited(target: Actor) -> Iterator[Guest]:
    host, port = target.address.rsplit(":", 1)
    with Peer(host, int(port)) as peer:
        guest = Guest(peer)
        try:
            yield guest
        finally:
            guest.close()


@pytest.fixture
def guest(target: Actor) -> Iterator[Guest]:
    with invited(target) as guest:
        guest.enter()
        yield guest


def test_a_guest_reads_and_writes_what_the_host_has_registered(target: Actor, guest: Guest) -> None:
    seen = guest.changes()
    base = target.alloc(SIZE)
    assert guest.changes() > seen
    index, (key, address, length, offset, size, rights) = guest.find(base)
    assert (address, length, rights) == (base, SIZE, 3)
    assert size % mmap.PAGESIZE == 0 and offset + length <= size
    code, (descriptor,) = guest.map(index, key)
    assert code == 0
    memory = mapped(descriptor, size, writable=True)
    guest.count(index, 1)
    assert guest.slot(index)[0] == key
    memory[offset : offset + 5] = b"hello"
    guest.count(index, 0)
    assert target.peek(base, 5) == b"hello"
    target.poke(base + 5, b" guest")
    assert memory[offset : offset + 11] == b"hello guest"


def test_the_ring_names_the_slots_that_have_changed_and_memories_have_numbers(target: Actor, guest: Guest) -> None:
    seen = guest.changes()
    bases = [target.alloc(SIZE), target.alloc(SIZE)]
    places = [guest.find(base)[0] for base in bases]
    assert [guest.changed(seen), guest.changed(seen + 1)] == places
    numbers = [guest.memory(place) for place in places]
    assert 0 not in numbers and numbers[0] != numbers[1]
    target.ask("unregister", 0, bases[0])
    assert guest.changes() == seen + 3 and guest.changed(seen + 2) == places[0]
    target.ask("register", 0, bases[0], SIZE // 2, 3)
    target.ask("register", 0, bases[0] + SIZE // 2, SIZE // 2, 3)
    first, second = (guest.memory(guest.find(address)[0]) for address in (bases[0], bases[0] + SIZE // 2))
    assert first == second and first not in numbers  # one memory, and not the number that it had before


def test_memory_that_guests_may_only_read_comes_read_only(target: Actor, guest: Guest) -> None:
    base = target.alloc(SIZE, status.READ_RIGHT)
    index, (key, _, _, _, size, rights) = guest.find(base)
    assert rights == 1
    _, (descriptor,) = guest.map(index, key)
    again = os.dup(descriptor)
    with pytest.raises(PermissionError):
        mmap.mmap(again, size, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(again)
    mapped(descriptor, size, writable=False)


def test_no_descriptor_can_be_shrunk_grown_or_unsealed(target: Actor, guest: Guest) -> None:
    index, slot = guest.find(target.alloc(SIZE))
    _, (descriptor,) = guest.map(index, slot[0])
    for size in (0, SIZE - 1, 2 * SIZE):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(descriptor, 1033, 8)  # F_ADD_SEALS, F_SEAL_WRITE
    os.close(descriptor)


def test_a_key_that_is_not_the_slot_s_is_answered_and_the_socket_goes_on(target: Actor, guest: Guest) -> None:
    base = target.alloc(SIZE)
    index, slot = guest.find(base)
    for key in (0, slot[0] - 1, slot[0] + 4, 2**64 - 1):
        assert guest.map(index, key) == (wire.NOT_REGISTERED, [])
    assert guest.map(SLOTS - 1, 1) == (wire.NOT_REGISTERED, [])
    target.ask("unregister", 0, base)
    assert guest.map(index, slot[0]) == (wire.NOT_REGISTERED, [])
    assert guest.slot(index)[0] % 4 == 0
    target.ask("register", 0, base, SIZE, 3)
    place, again = guest.find(base)
    assert (place, again[0]) != (index, slot[0])
    code, (descriptor,) = guest.map(place, again[0])
    assert code == 0
    os.close(descriptor)


def test_what_a_guest_counts_keeps_a_region_registered_and_what_it_does_not_is_free(
    target: Actor, guest: Guest
) -> None:
    base, other = target.alloc(SIZE), target.alloc(SIZE)
    index, slot = guest.find(base)
    guest.count(index, 1)
    target.ask("unregister", 0, other)
    seen = guest.changes()
    begun = time.monotonic()
    target.begin("unregister", 0, base)
    while guest.slot(index)[0] == slot[0]:
        assert time.monotonic() - begun < 5
    assert guest.slot(index)[0] == slot[0] + 1
    with pytest.raises(ActorError) as caught:
        target.finish()
    assert caught.value.status == status.BUSY
    assert 0.9 < time.monotonic() - begun < 3
    assert guest.slot(index) == slot
    assert guest.changes() > seen
    guest.count(index, 0)
    target.ask("unregister", 0, base)


def test_what_a_guest_that_has_gone_counted_counts_no_more(target: Actor) -> None:
    base = target.alloc(SIZE)
    with invited(target) as guest:
        guest.enter()
        guest.count(guest.find(base)[0], 2**32 - 1)
    target.ask("unregister", 0, base)


def test_a_token_is_good_once_and_only_the_right_one_is(target: Actor) -> None:
    with invited(target) as guest, invited(target) as thief:
        guest.enter()
        for token in (guest.token, guest.answer, bytes(16), bytes(range(16))):
            thief.token = token
            with pytest.raises(ConnectionError):
                thief.enter()
            thief.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            thief.socket.connect(b"\0" + thief.name)


def test_many_guests_that_were_invited_together_all_get_in(target: Actor) -> None:
    with contextlib.ExitStack() as stack:
        guests = [stack.enter_context(invited(target)) for _ in range(100)]
        for guest in guests:
            guest.enter()


def test_a_client_that_asks_all_the_time_takes_nobody_else_s_invitation(target: Actor) -> None:
    host, port = target.address.rsplit(":", 1)
    with invited(target) as guest, Peer(host, int(port)) as greedy:
        first = Guest(greedy)
        for _ in range(1500):
            greedy.finish(greedy.begin_call(wire.INVITE))
        with pytest.raises(ConnectionError):
            first.enter()
        guest.enter()


def test_a_guest_costs_the_host_its_two_sockets_and_no_more(target: Actor) -> None:
    before = len(target.descriptors())
    with invited(target) as guest:
        guest.enter()
        guest.map(0, 0)
        assert len(target.descriptors()) == before + 2


def test_a_host_without_descriptors_rests_and_lets_guests_in_when_it_has_some_again(target: Actor) -> None:
    limits = resource.prlimit(target.pid, resource.RLIMIT_NOFILE)
    with invited(target) as guest:
        guest.close()
        resource.prlimit(target.pid, resource.RLIMIT_NOFILE, (max(target.descriptors()) + 1, limits[1]))
        sockets = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(10)]
        for one in sockets:
            one.connect(b"\0" + guest.name)
        before = target.ticks()
        time.sleep(1)
        assert target.ticks() - before < 20
        resource.prlimit(target.pid, resource.RLIMIT_NOFILE, limits)
        guest.socket = sockets.pop()
        guest.socket.settimeout(5)
        guest.enter()
        for one in sockets:
            one.close()


BAD_PACKETS = {
    "half": PACKET.pack(MAP, 0, bytes(16), 1, 0, 0)[:20],
    "longer": PACKET.pack(MAP, 0, bytes(16), 1, 0, 0) + b"x",
    "unknown": PACKET.pack(9, 0, bytes(16), 0, 0, 0),
    "a second hello": PACKET.pack(HELLO, 0, bytes(16), 0, 0, 0),
    "an answer": PACKET.pack(WELCOME, 0, bytes(16), 0, 0, 0),
    "no slot": PACKET.pack(MAP, 0, bytes(16), 1, SLOTS, 0),
    "slot near 2^32": PACKET.pack(MAP, 0, bytes(16), 1, 2**32 - 1, 0),
    "one byte": b"\3",
}


@pytest.mark.parametrize("name", BAD_PACKETS)
def test_a_wrong_packet_closes_the_socket_and_nothing_else(target: Actor, guest: Guest, name: str) -> None:
    with pytest.raises(ConnectionError):
        guest.ask(BAD_PACKETS[name])
    with invited(target) as other:
        other.enter()


# Fault 17.
def test_random_packets_do_no_harm(target: Actor) -> None:
    chance = random.Random(5)
    base = target.alloc(SIZE)
    before = len(target.descriptors())

    def packet(guest: Guest) -> bytes:
        kind = chance.choice([HELLO, MAP, MAP, RING, WELCOME, 0, 9, 2**32 - 1])
        key = chance.choice([0, 5, 2**64 - 1, chance.randrange(2**64)])
        slot = chance.choice([0, 0, 1, SLOTS - 1, SLOTS, 2**32 - 1])
        token = chance.choice([guest.token, guest.answer, chance.randbytes(16)])
        data = PACKET.pack(kind, chance.choice([0, 0, -1, 7]), token, key, slot, chance.choice([0, 0, 1]))
        return data if chance.random() < 0.8 else data[: chance.randrange(1, 41)] + bytes(chance.choice([0, 1, 100]))

    for _ in range(60):
        with invited(target) as hostile, contextlib.suppress(OSError, ValueError, struct.error):
            if chance.random() < 0.8:
                hostile.enter()
            for _ in range(20):
                _, descriptors = hostile.ask(packet(hostile))
                for descriptor in descriptors:
                    os.close(descriptor)
    with invited(target) as guest:
        guest.enter()
        index, slot = guest.find(base)
        code, (descriptor,) = guest.map(index, slot[0])
        assert code == 0
        os.close(descriptor)
    deadline = time.monotonic() + 5
    while len(target.descriptors()) > before:
        assert time.monotonic() < deadline
    target.ask("unregister", 0, base)


def test_descriptors_from_a_guest_close_the_socket_and_are_not_kept(target: Actor, guest: Guest) -> None:
    before = len(target.descriptors())
    with pytest.raises((ConnectionError, PermissionError)):  # by the host, or from Linux 6.16 on by the kernel
        guest.ask(PACKET.pack(MAP, 0, bytes(16), 1, 0, 0), (0, 1, 2))
    assert len(target.descriptors()) <= before


def test_a_packet_before_hello_closes_the_socket(target: Actor) -> None:
    with invited(target) as guest, pytest.raises(ConnectionError):
        guest.ask(PACKET.pack(MAP, 0, bytes(16), 1, 0, 0))


def test_a_process_of_another_user_is_shown_out_unheard_and_knows_why(target: Actor) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can act as another user")
    with invited(target) as guest:
        guest.close()
        outcome = os.fork()
        if outcome == 0:
            good = False
            try:
                os.setresuid(NOBODY, NOBODY, NOBODY)
                guest.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                guest.socket.settimeout(5)
                guest.socket.connect(b"\0" + guest.name)
                other = struct.unpack("3i", guest.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
                good = other == 0 and guest.socket.recv(100) == b""
            finally:
                os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(outcome, 0)[1]) == 0


def test_the_host_s_end_closes_the_socket(target: Actor, guest: Guest) -> None:
    target.ask("close", 0)
    assert guest.socket.recv(100) == b""


def test_the_page_says_what_page_h_says() -> None:
    section = (ROOT / "docs" / "protocol.md").read_text().split("## Same host")[1].split("\n## ")[0]
    source = (ROOT / "libmooncake/transports/shm/page.h").read_text()
    host = (ROOT / "libmooncake/transports/shm/host.c").read_text()
    invitations = (ROOT / "libmooncake/transports/shm/invitations.h").read_text()
    guest = (ROOT / "libmooncake/transports/shm/reach.c").read_text()
    assert "SHM_SLOTS 131072u" in source and "SHM_LOG 4096u" in source
    assert "64 + 4 · 4096 + 64 · 131072 bytes" in section and "4 · 131072 bytes" in section
    magic = int(re.search(r"SHM_MAGIC (0x[0-9a-f]+)", source)[1], 16).to_bytes(8, "little")
    assert f"`{magic.hex(' ')}`" in section
    states = re.search(r"SHM_FREE = (\d), SHM_OPEN = (\d), SHM_CLOSING = (\d), SHM_STATES = (\d)", source)
    assert "state {} FREE, {} OPEN, {} CLOSING".format(*states.groups()[:3]) in section
    assert f"key: {states[4]} · generation" in section
    assert "SHM_HELLO = 1, SHM_WELCOME, SHM_MAP, SHM_MAPPED" in source
    assert re.findall(r"^\| (\d) \| ([A-Z]+) \| (?:guest|host) \| ", section, re.MULTILINE) == [
        ("1", "HELLO"),
        ("2", "WELCOME"),
        ("3", "MAP"),
        ("4", "MAPPED"),
        ("5", "RING"),
        ("6", "RINGED"),
    ]
    assert "sizeof(struct shm_packet) == 40" in source and "Each packet has 40 bytes" in section
    assert "SHM_INVITATIONS 1024u" in invitations and "1024 invitations" in section
    assert "SHM_INVITATION_TIME (10 * CLOCK_SECOND)" in invitations and "within 10 s" in section
    assert "MAP_TIME (200 * CLOCK_MILLISECOND)" in guest and "200 ms" in section
    assert "GUESTS_MAX 1024u" in host and "1024 guests" in section
