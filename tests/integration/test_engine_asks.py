"""The engine as a client: it opens, reads, writes and notifies a Python server, which may misbehave in every way."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Callable

import actor as status
import peer as wire
import pytest
from actor import Actor, ActorError
from peer import Frame, Hello, Proof, Server

SIZE = 1 << 20
BASE = 0x7E0000000000
CONNECT_MS = 300
WINDOW = 16 << 20  # what a peer is asked for at a time, by one lane


@contextmanager
def serving(**options: object) -> Iterator[tuple[Server, str]]:
    server = Server(bytearray(range(256)) * (SIZE // 256), **options)
    host, port = server.start()
    try:
        yield server, f"{host}:{port}"
    finally:
        server.stop()


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener that treats each of its connections by `serve`, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def run() -> None:
            listener.settimeout(0.05)
            while not ended.is_set():
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(10)
                    with suppress(OSError):
                        serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            host, port = listener.getsockname()
            yield f"{host}:{port}"
        finally:
            ended.set()
            thread.join(20)
            assert not thread.is_alive()


def refused(wanted: int, actor: Actor, *words: object) -> ActorError:
    with pytest.raises(ActorError) as caught:
        actor.ask(*words)
    assert caught.value.status == wanted, caught.value.words
    return caught.value


@pytest.fixture
def client(start: Callable[..., Actor]) -> Actor:
    return start(lanes=1, connect_ms=CONNECT_MS)


@pytest.fixture
def checking(start: Callable[..., Actor]) -> Actor:
    """A client that wants checksums."""
    return start(lanes=1, connect_ms=CONNECT_MS, flags=status.CHECKSUM_FLAG)


@pytest.mark.parametrize("flags", [0, status.CHECKSUM_FLAG])
def test_the_engine_reads_writes_and_notifies_the_python_server(start: Callable[..., Actor], flags: int) -> None:
    client = start(lanes=1, flags=flags)
    local = client.alloc(SIZE)
    with serving() as (server, address):
        peer = client.peer(address)
        assert client.path(peer) == "tcp"
        client.ask("read", peer, local, BASE + 100, 1000, 5000)
        assert client.peek(local, 1000) == bytes(server.memory[100:1100])
        client.poke(local, b"from the engine")
        client.ask("write", peer, local, BASE + 50, 15, 5000)
        assert server.memory[50:65] == b"from the engine"
        client.ask("notify", peer, b"na\0me".hex(), b"me\0ssage".hex(), 5000)
        assert server.notifications == [(client.address.encode(), b"na\0me", b"me\0ssage")]
        client.ask("probe", peer, 5000)
        assert server.client is not None
        assert server.client.incarnation == client.incarnation


def test_the_peer_s_refusals_are_the_statuses_of_the_requests(client: Actor) -> None:
    local = client.alloc(SIZE)
    with serving(queue_limit=0) as (_, address):
        peer = client.peer(address)
        error = refused(status.NOT_REGISTERED, client, "read", peer, local, BASE + SIZE - 1, 2, 5000)
        assert address in error.words
        refused(status.NOT_REGISTERED, client, "write", peer, local, BASE - 1, 2, 5000)
        refused(wire.QUEUE_FULL, client, "notify", peer, "00", "00", 5000)
        client.ask("read", peer, local, BASE, 1, 5000)
    with serving(readable=False, writable=False) as (_, address):
        peer = client.peer(address)
        refused(status.ACCESS_DENIED, client, "read", peer, local, BASE, 2, 5000)
        refused(status.ACCESS_DENIED, client, "write", peer, local, BASE, 2, 5000)


@pytest.mark.parametrize("split", [False, True])
def test_guards_are_sent_and_their_failure_is_reported(client: Actor, split: bool) -> None:
    local = client.alloc(SIZE)
    with serving(split_guarded_reads=split) as (server, address):
        peer = client.peer(address)
        value = int.from_bytes(server.memory[8:16], "little")
        for opcode in ("read", "write"):
            client.ask("guarded", 0, opcode, peer, local, BASE + 64, 16, BASE + 8, value)
            refused(
                status.GUARD_MISMATCH, client, "guarded", 0, opcode, peer, local, BASE + 64, 16, BASE + 8, value + 1
            )
        server.before_second_guard = lambda: server.memory.__setitem__(8, server.memory[8] ^ 1)
        refused(status.GUARD_MISMATCH, client, "guarded", 0, "read", peer, local, BASE + 64, 16, BASE + 8, value)
        refused(status.GUARD_MISMATCH, client, "guarded", 0, "write", peer, local, BASE + 64, 16, BASE + 8, value ^ 1)
        client.ask("probe", peer, 5000)


def test_a_damaged_payload_is_found_when_checksums_are_on_and_the_connection_goes_on(checking: Actor) -> None:
    local = checking.alloc(SIZE)
    with serving() as (server, address):
        peer = checking.peer(address)
        server.damage = lambda payload: payload and bytes([payload[0] ^ 1]) + payload[1:]
        refused(wire.CHECKSUM_MISMATCH, checking, "read", peer, local, BASE, 100, 5000)
        server.damage = lambda payload: payload
        checking.ask("read", peer, local, BASE, 100, 5000)


def test_replies_in_reverse_order_find_their_requests(client: Actor) -> None:
    local = client.alloc(SIZE)
    count = 16
    with serving() as (server, address):
        peer = client.peer(address)
        server.hold = count
        batches = [
            client.ask("submit", 0, "read", peer, local + 1000 * i, BASE + 100 + i, i + 1, 5000)[0]
            for i in range(count)
        ]
        for i, batch in enumerate(batches):
            client.ask("wait", batch, 5000)
            assert client.ask("status", batch) == [str(status.COMPLETED), "0", str(i + 1), "0"]
            assert client.peek(local + 1000 * i, i + 1) == bytes(server.memory[100 + i : 101 + 2 * i])


GOOD = {"type": wire.READ | wire.REPLY, "payload_size": 4}
BROKEN_REPLIES = {
    "an id never asked": ({**GOOD, "id": 99}, b"1234"),
    "an id of all ones": ({**GOOD, "id": 2**64 - 1}, b"1234"),
    "another type": ({**GOOD, "type": wire.WRITE | wire.REPLY}, b"1234"),
    "a request": ({**GOOD, "type": wire.READ}, b"1234"),
    "fewer bytes": ({**GOOD, "payload_size": 3}, b"123"),
    "no bytes": ({**GOOD, "payload_size": 0}, b""),
    "more bytes": ({**GOOD, "payload_size": 5}, b"12345"),
    "many more bytes": ({**GOOD, "payload_size": 64 << 20}, b"1234" * 1000),
    "a size near 2^32": ({**GOOD, "payload_size": 2**32 - 1}, b"1234" * 1000),
    "a failure with a payload": ({**GOOD, "status": -600}, b"1234"),
    "a positive status": ({**GOOD, "status": 1, "payload_size": 0}, b""),
    "MORE unasked": ({**GOOD, "flags": wire.MORE}, b"1234"),
    "CHECKSUM unasked": ({**GOOD, "flags": wire.CHECKSUM}, b"1234"),
    "an unknown flag": ({**GOOD, "flags": 0x4000}, b"1234"),
}


@pytest.mark.parametrize("name", BROKEN_REPLIES)
def test_a_reply_that_breaks_the_protocol_closes_the_connection_and_touches_nothing_else(
    client: Actor, name: str
) -> None:
    fields, payload = BROKEN_REPLIES[name]
    local = client.alloc(4096)
    client.fill(local, 4096, 5)
    before = client.peek(local, 4096)
    with serving() as (server, address):
        peer = client.peer(address)
        server._answer = lambda request, _: [Frame(**{"id": request.id, **fields}).pack() + payload]
        refused(status.PROTOCOL, client, "read", peer, local + 8, BASE, 4, 5000)
        server.wait()
    after = client.peek(local, 4096)
    assert (after[:8], after[12:]) == (before[:8], before[12:])


def test_bytes_that_are_no_frame_close_the_connection(client: Actor) -> None:
    local = client.alloc(4096)
    for reply in (b"\xff" * 64, bytes(64), b"HTTP/1.1 200 OK\r\n" * 10, Frame(**GOOD, id=1).pack()[:-1] + b"\0"):
        with serving() as (server, address):
            peer = client.peer(address)
            server._answer = lambda request, _, reply=reply: [reply]
            refused(status.PROTOCOL, client, "read", peer, local, BASE, 4, 5000)
            server.wait()


def test_half_a_reply_and_then_the_end_is_a_lost_connection(client: Actor) -> None:
    local = client.alloc(4096)
    for cut in (1, 63, 64, 66):
        with serving() as (server, address):
            peer = client.peer(address)

            def answer(request: Frame, _: bytes, cut: int = cut, server: Server = server) -> list[bytes]:
                whole = Frame(**{**GOOD, "id": request.id}).pack() + b"1234"
                server._connection.sendall(whole[:cut])
                server._connection.shutdown(socket.SHUT_RDWR)
                return []

            server._answer = answer
            refused(status.CONNECTION_LOST, client, "read", peer, local, BASE, 4, 5000)


def test_half_a_reply_and_then_silence_ends_at_the_deadline_and_the_buffer_stays_quiet(client: Actor) -> None:
    local = client.alloc(4096)
    with serving() as (server, address):
        peer = client.peer(address)
        go, done = threading.Event(), threading.Event()

        def answer(request: Frame, _: bytes) -> list[bytes]:
            whole = Frame(**{**GOOD, "id": request.id, "payload_size": 1000}).pack() + b"x" * 1000
            server._connection.sendall(whole[:500])
            go.wait(10)
            server._connection.sendall(whole[500:])
            done.set()
            del server._answer
            return []

        server._answer = answer
        begun = time.monotonic()
        error = refused(status.TIMEOUT, client, "read", peer, local, BASE, 1000, 200)
        assert time.monotonic() - begun < 2
        assert error.words
        client.fill(local, 4096, 6)
        go.set()
        assert done.wait(10)
        client.ask("probe", peer, 5000)  # what was under way has been drained
        assert client.differing(local, 4096, 6) == 0
        client.ask("read", peer, local, BASE, 4, 5000)


def test_a_cancelled_read_leaves_no_more_than_the_window_to_come_before_the_next(client: Actor) -> None:
    local = client.alloc(256 << 20)
    with serving() as (server, address):
        peer = client.peer(address)
        asked: list[Frame] = []
        told, sent = threading.Event(), threading.Event()

        def answer(request: Frame, payload: bytes) -> list[bytes]:
            if request.length == 100:
                assert sent.wait(20)
                return Server._answer(server, request, payload)
            asked.append(request)
            if sum(other.length for other in asked) >= WINDOW:
                told.set()
            return []

        server._answer = answer
        batch = client.ask("submit", 0, "read", peer, local, BASE, 256 << 20, 20000)[0]
        assert told.wait(10)
        client.ask("cancel", batch)
        client.begin("read", peer, local, BASE, 100, 20000)
        for request in list(asked):
            server._connection.sendall(server._reply(request, bytes(request.length)))
        sent.set()
        client.finish()
        assert sum(request.length for request in asked) == WINDOW
        assert client.peek(local, 100) == bytes(server.memory[:100])


# ---- Opening ----


def open_fails(wanted: int, client: Actor, address: str) -> ActorError:
    begun = time.monotonic()
    error = refused(wanted, client, "peer", 0, address)
    assert time.monotonic() - begun < 2
    assert address in error.words
    return error


def hello(**fields: object) -> bytes:
    values = {
        "lowest": 1,
        "highest": 1,
        "flags": 0,
        "incarnation": b"i" * 16,
        "expected": bytes(16),
        "nonce": bytes(32),
    }
    return Hello(**{**values, **fields}).pack()  # type: ignore[arg-type]


def sealed(data: bytes) -> bytes:
    return data[:-4] + struct.pack("<I", wire.crc32c(data[:-4]))


def test_an_address_where_nobody_listens_is_unreachable_and_named(client: Actor) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        open_fails(status.UNREACHABLE, client, f"127.0.0.1:{bound.getsockname()[1]}")


def test_a_listener_that_never_answers_is_unreachable_at_the_connect_timeout(client: Actor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        begun = time.monotonic()
        open_fails(status.UNREACHABLE, client, f"127.0.0.1:{listener.getsockname()[1]}")
        assert time.monotonic() - begun >= CONNECT_MS / 1000


def test_a_black_hole_is_unreachable_at_the_connect_timeout(client: Actor) -> None:
    """A listener whose queue is full drops the first packet of every further connection."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        fillers = []
        try:
            for _ in range(8):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(listener.getsockname())
                fillers.append(filler)
            begun = time.monotonic()
            open_fails(status.UNREACHABLE, client, f"127.0.0.1:{listener.getsockname()[1]}")
            assert time.monotonic() - begun >= CONNECT_MS / 1000
        finally:
            for filler in fillers:
                filler.close()


def test_a_server_that_answers_one_byte_and_stops_is_unreachable_at_the_connect_timeout(client: Actor) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(b"m")
        while connection.recv(1000):
            pass

    with listening(serve) as address:
        open_fails(status.UNREACHABLE, client, address)


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n" * 10, status.PROTOCOL),
        (hello()[:-1] + b"\xff", status.PROTOCOL),
        (sealed(b"MOONCAKE" + hello()[8:]), status.PROTOCOL),
        (sealed(hello()[:91] + b"\1" + bytes(4)), status.PROTOCOL),
        (hello(lowest=2), status.PROTOCOL),
        (hello(lowest=0), status.PROTOCOL),
        (hello() + b"\xff" * 64, status.PROTOCOL),
        (hello() + Proof(1, 1, bytes(32)).pack(), status.PROTOCOL),
        (hello() + Proof(0, 2, bytes(32)).pack(), status.VERSION),
        (hello() + Proof(0, 0, bytes(32)).pack(), status.VERSION),
        (hello() + Proof(-2017, 0, bytes(32)).pack(), status.VERSION),
        (hello() + Proof(-2005, 0, bytes(32)).pack(), -2005),
        (hello() + Proof(0, 1, b"p" * 32).pack(), status.AUTHENTICATION),
        (hello(flags=wire.HAS_KEY), status.AUTHENTICATION),
        (hello()[:50], status.CONNECTION_LOST),
        (b"", status.CONNECTION_LOST),
    ],
)
def test_a_server_whose_preface_is_wrong_is_refused_with_the_reason(client: Actor, answer: bytes, wanted: int) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(96, socket.MSG_WAITALL)
        connection.sendall(answer)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1000):
            pass

    with listening(serve) as address:
        open_fails(wanted, client, address)


def test_a_peer_that_falls_silent_times_out_and_others_are_served_meanwhile(
    client: Actor, start: Callable[..., Actor]
) -> None:
    target = start()
    local, remote = client.alloc(4096), target.alloc(4096)
    good = client.peer(target.address)
    with serving() as (server, address):
        silent = client.peer(address)
        server.hold = 1000
        batch = client.ask("submit", 0, "read", silent, local, BASE, 100, 300)[0]
        storm = client.ask("storm", "write", good, local + 2048, remote, 2048, 5000)[0]
        refused(status.TIMEOUT, client, "wait", batch, 5000)
        assert client.ask("status", batch)[:2] == [str(status.TIMED_OUT), str(status.TIMEOUT)]
        count, _, outcome, _ = client.ended(storm, "calm")
        assert (outcome, count > 0) == (0, True)
