"""A peer in plain Python, written from docs/protocol.md alone: what that page doesn't say, this module doesn't know.

`Peer` is the client's end, `Server` the server's, which serves one bytearray at a made-up address. Both are for tests:
they are strict, and slow (the checksum is a loop over bytes).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

__all__ = [
    "Frame",
    "Hello",
    "Peer",
    "PeerError",
    "Proof",
    "ProtocolError",
    "Server",
    "crc32c",
    "make_proof",
    "pack_message",
    "unpack_message",
]

OK = 0
INVALID_ARGUMENT = -600
CHECKSUM_MISMATCH = -801
NOT_SUPPORTED = -1012
TOO_MANY = -2005
NOT_REGISTERED = -2009
ACCESS_DENIED = -2011
STALE_PEER = -2014
GUARD_MISMATCH = -2015
PROTOCOL = -2016
VERSION = -2017
AUTHENTICATION = -2018
TOO_LARGE = -2022
QUEUE_FULL = -2023

READ, WRITE, CALL, REPLY = 1, 2, 16, 0x8000
PING, NOTIFY, INVITE = 0, 2, 4
GUARD, CHECKSUM, MORE = 1, 2, 4
PAYLOAD_MAX = 64 << 20
MESSAGE_MAX = 1 << 20
NOTIFICATION_MAX = 65536
SENDER_MAX = 287
HAS_KEY = 1
NOBODY = bytes(16)
MAGIC = b"mooncake"

HELLO = struct.Struct("<8sHHI16s16s32s12sI")
PROOF = struct.Struct("<8siH14s32sI")
HEADER = struct.Struct("<HHiQQQQQIIII")


def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _table()


def crc32c(data: bytes) -> int:
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class PeerError(Exception):
    """The other end answered with a status, or what came isn't what was sent; the connection may go on."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class ProtocolError(Exception):
    """The other end broke the protocol; the connection is of no more use."""


# ---- Preface --------------------------------------------------------------------------------------------------------


def _seal(data: bytes) -> bytes:
    return data[:-4] + struct.pack("<I", crc32c(data[:-4]))


def _check_seal(data: bytes) -> None:
    if data[:8] != MAGIC:
        raise ProtocolError("wrong magic")
    if struct.unpack("<I", data[-4:])[0] != crc32c(data[:-4]):
        raise ProtocolError("wrong checksum in the preface")


@dataclass(frozen=True)
class Hello:
    lowest: int
    highest: int
    flags: int
    incarnation: bytes
    expected: bytes
    nonce: bytes

    def pack(self) -> bytes:
        return _seal(
            HELLO.pack(
                MAGIC, self.lowest, self.highest, self.flags, self.incarnation, self.expected, self.nonce, bytes(12), 0
            )
        )

    @classmethod
    def unpack(cls, data: bytes) -> Hello:
        _check_seal(data)
        _, lowest, highest, flags, incarnation, expected, nonce, zeros, _ = HELLO.unpack(data)
        if any(zeros) or not 1 <= lowest <= highest:
            raise ProtocolError("malformed HELLO")
        return cls(lowest, highest, flags, incarnation, expected, nonce)

    def choose(self, other: Hello) -> int:
        """The highest version in both ranges, 0 if there is none."""
        highest = min(self.highest, other.highest)
        return highest if highest >= max(self.lowest, other.lowest) else 0


@dataclass(frozen=True)
class Proof:
    status: int
    version: int
    proof: bytes

    def pack(self) -> bytes:
        return _seal(PROOF.pack(MAGIC, self.status, self.version, bytes(14), self.proof, 0))

    @classmethod
    def unpack(cls, data: bytes) -> Proof:
        _check_seal(data)
        _, status, version, zeros, proof, _ = PROOF.unpack(data)
        if any(zeros) or status > 0:
            raise ProtocolError("malformed PROOF or ACCEPT")
        return cls(status, version, proof)


def make_proof(key: bytes | None, role: str, client: bytes, server: bytes) -> bytes:
    """The proof of `role`, "client" or "server", over both HELLOs; zeros without a key."""
    if key is None:
        return bytes(32)
    return hmac.new(key, f"mooncake {role}\0".encode() + client + server, hashlib.sha256).digest()


# ---- Frames and messages --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frame:
    type: int
    flags: int = 0
    status: int = 0
    id: int = 0
    address: int = 0
    length: int = 0
    guard_address: int = 0
    guard_value: int = 0
    payload_crc: int = 0
    payload_size: int = 0

    def pack(self) -> bytes:
        return _seal(
            HEADER.pack(
                self.type,
                self.flags,
                self.status,
                self.id,
                self.address,
                self.length,
                self.guard_address,
                self.guard_value,
                self.payload_crc,
                self.payload_size,
                0,
                0,
            )
        )

    @classmethod
    def unpack(cls, data: bytes) -> Frame:
        *fields, zero, checksum = HEADER.unpack(data)
        if checksum != crc32c(data[:-4]):
            raise ProtocolError("wrong header checksum")
        frame = cls(*fields)
        limit = PAYLOAD_MAX if frame.type & ~REPLY in (READ, WRITE) else MESSAGE_MAX
        if zero != 0 or frame.payload_size > limit:
            raise ProtocolError("malformed header")
        return frame


def pack_message(*fields: bytes) -> bytes:
    """A message all of whose fields are BYTES."""
    return b"".join(struct.pack("<I", len(data)) + data for data in fields)


def unpack_message(body: bytes, kinds: str) -> list[bytes]:
    """The fields of a message, of kinds B (BYTES) and I (ID). Missing ones are zero, a longer tail is skipped."""
    fields, at = [], 0
    for kind in kinds:
        if at == len(body):
            fields.append(b"" if kind == "B" else bytes(16))
            continue
        size = 16
        if kind == "B":
            if len(body) - at < 4:
                raise PeerError(PROTOCOL)
            size = struct.unpack_from("<I", body, at)[0]
            at += 4
        if len(body) - at < size:
            raise PeerError(PROTOCOL)
        fields.append(bytes(body[at : at + size]))
        at += size
    return fields


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise ConnectionError("closed by the other end")
        data += chunk
    return bytes(data)


# ---- The client's end -----------------------------------------------------------------------------------------------


@dataclass
class _Request:
    frame: Frame
    payload: bytes | None = None  # what has come, before the second of two replies
    damaged: bool = False  # with a wrong checksum
    status: int | None = None  # None while it is in flight


class Peer:
    """A connection to an engine. `versions` is the range that it says it speaks.

    PeerError when it is refused, and from finish() and the operations; ProtocolError, ConnectionError, TimeoutError
    (`timeout` seconds of silence) when the connection is of no more use.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        key: bytes | None = None,
        expected: bytes = NOBODY,
        versions: tuple[int, int] = (1, 1),
        timeout: float = 10,
    ) -> None:
        self.incarnation = os.urandom(16)
        self.timeout = timeout
        self._inbox = bytearray()
        self._requests: dict[int, _Request] = {}
        self._next_id = 1
        self.socket = socket.create_connection((host, port), timeout)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._preface(key, expected, versions)
            self.socket.setblocking(False)
        except BaseException:
            self.socket.close()
            raise

    def _preface(self, key: bytes | None, expected: bytes, versions: tuple[int, int]) -> None:
        flags = 0 if key is None else HAS_KEY
        hello = Hello(*versions, flags, self.incarnation, expected, os.urandom(32))
        client = hello.pack()
        self.socket.sendall(client)
        server = _receive(self.socket, HELLO.size)
        other = Hello.unpack(server)
        self.socket.sendall(Proof(OK, 0, make_proof(key, "client", client, server)).pack())
        accept = Proof.unpack(_receive(self.socket, PROOF.size))
        if accept.status != OK:
            raise PeerError(accept.status)
        if not hmac.compare_digest(accept.proof, make_proof(key, "server", client, server)):
            raise PeerError(AUTHENTICATION)
        if accept.version == 0 or accept.version != hello.choose(other):
            raise PeerError(VERSION)
        self.version = accept.version
        self.peer_incarnation = other.incarnation

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # Requests: begin() sends one, finish() waits for its reply; others may be begun in between.

    def begin(self, frame: Frame, payload: bytes = b"") -> int:
        """Sends a request as it is, but for its id and payload size, and gives the id."""
        frame = replace(frame, id=self._next_id, payload_size=len(payload))
        self._next_id += 1
        self._requests[frame.id] = _Request(frame)
        self.send(frame.pack() + payload)
        return frame.id

    def finish(self, id: int) -> bytes:
        """The reply's payload; PeerError with its status if that isn't 0."""
        while self._requests[id].status is None:
            self._fill(wait=True)
        request = self._requests.pop(id)
        if request.status != OK:
            raise PeerError(request.status)
        return request.payload or b""

    def send(self, data: bytes) -> None:
        """Sends bytes, and receives meanwhile, for the server may not go on before its replies are taken."""
        view = memoryview(data)
        while view:
            readable, writable, _ = select.select([self.socket], [self.socket], [], self.timeout)
            if not readable and not writable:
                raise TimeoutError
            if readable:
                self._fill(wait=False)
            if writable:
                view = view[self.socket.send(view) :]

    def _fill(self, *, wait: bool) -> None:
        if wait and not select.select([self.socket], [], [], self.timeout)[0]:
            raise TimeoutError
        data = self.socket.recv(1 << 20)
        if not data:
            raise ConnectionError("closed by the server")
        self._inbox += data
        while len(self._inbox) >= HEADER.size:
            frame = Frame.unpack(bytes(self._inbox[: HEADER.size]))
            end = HEADER.size + frame.payload_size
            if len(self._inbox) < end:
                break
            payload = bytes(self._inbox[HEADER.size : end])
            del self._inbox[:end]
            self._digest(frame, payload)

    def _digest(self, reply: Frame, payload: bytes) -> None:
        request = self._requests.get(reply.id)
        if request is None or request.status is not None or reply.type != request.frame.type | REPLY:
            raise ProtocolError("a reply to nothing that is in flight")
        if reply.status > 0 or (reply.status != OK and payload) or reply.flags & ~(CHECKSUM | MORE):
            raise ProtocolError("malformed reply")
        second = request.payload is not None
        status = reply.status
        if status == OK and not second:
            size = {READ: request.frame.length, WRITE: 0}.get(request.frame.type, len(payload))
            if len(payload) != size:
                raise ProtocolError("a payload of a wrong length")
        damaged = False
        if request.frame.type == READ and request.frame.flags & CHECKSUM and status == OK and not second:
            damaged = not reply.flags & CHECKSUM or crc32c(payload) != reply.payload_crc
        if reply.flags & MORE:
            if second or status != OK or request.frame.type != READ or not request.frame.flags & GUARD:
                raise ProtocolError("MORE where it must not be")
            request.payload = payload
            request.damaged = damaged
            return
        if second:
            if payload:
                raise ProtocolError("a second reply with a payload")
            damaged = damaged or request.damaged
        else:
            request.payload = payload
        request.status = CHECKSUM_MISMATCH if damaged and status == OK else status

    # The operations. `guard` is (address, value).

    def begin_read(
        self, address: int, length: int, *, guard: tuple[int, int] | None = None, checksum: bool = False
    ) -> int:
        return self.begin(_transfer(READ, address, length, guard, CHECKSUM if checksum else 0, 0))

    def begin_write(
        self, address: int, data: bytes, *, guard: tuple[int, int] | None = None, checksum: bool = False
    ) -> int:
        crc = crc32c(data) if checksum else 0
        return self.begin(_transfer(WRITE, address, len(data), guard, CHECKSUM if checksum else 0, crc), data)

    def begin_call(self, number: int, body: bytes = b"") -> int:
        return self.begin(Frame(CALL + number), body)

    def read(self, address: int, length: int, *, guard: tuple[int, int] | None = None, checksum: bool = False) -> bytes:
        return self.finish(self.begin_read(address, length, guard=guard, checksum=checksum))

    def write(self, address: int, data: bytes, *, guard: tuple[int, int] | None = None, checksum: bool = False) -> None:
        self.finish(self.begin_write(address, data, guard=guard, checksum=checksum))

    def ping(self) -> None:
        self.finish(self.begin_call(PING))

    def notify(self, name: bytes, message: bytes, *, sender: bytes = b"") -> None:
        self.finish(self.begin_call(NOTIFY, pack_message(sender, name, message)))


def _transfer(
    kind: int, address: int, length: int, guard: tuple[int, int] | None, flags: int, payload_crc: int
) -> Frame:
    guard_address, guard_value = guard or (0, 0)
    return Frame(
        kind,
        flags | (GUARD if guard else 0),
        address=address,
        length=length,
        guard_address=guard_address,
        guard_value=guard_value,
        payload_crc=payload_crc,
    )


# ---- The server's end -----------------------------------------------------------------------------------------------


@dataclass
class Server:
    """Serves `memory` at the address `base` to one client, on a thread of its own, from start() to stop().

    `hold`: replies are kept until there are so many, and then sent in reverse order. `before_second_guard` is called
    between the two comparisons of a guarded request. `split_guarded_reads` answers a guarded READ with two replies.
    """

    memory: bytearray
    base: int = 0x7E0000000000
    key: bytes | None = None
    incarnation: bytes = field(default_factory=lambda: os.urandom(16))
    versions: tuple[int, int] = (1, 1)
    readable: bool = True
    writable: bool = True
    full: bool = False  # refuses with TOO_MANY
    queue_limit: int = 4096
    hold: int = 1
    split_guarded_reads: bool = True
    before_second_guard: Callable[[], None] = lambda: None
    damage: Callable[[bytes], bytes] = lambda payload: payload  # done to payloads behind their checksums
    notifications: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    client: Hello | None = None
    error: BaseException | None = None  # why the connection ended, None when the client closed it

    def start(self) -> tuple[str, int]:
        """Listens on a free port of the loopback and gives its address."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connection: socket.socket | None = None
        self._held: list[list[bytes]] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self._listener.getsockname()

    def stop(self) -> None:
        """Closes the connection and waits for the thread."""
        for end in (self._listener, self._connection):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        assert not self._thread.is_alive()
        self._listener.close()

    def wait(self, timeout: float = 10) -> None:
        """Waits until the connection has ended."""
        self._thread.join(timeout)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._connection, _ = self._listener.accept()
            with self._connection:
                self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._preface(self._connection):
                    while self._serve_one(self._connection):
                        pass
        except (OSError, ProtocolError) as error:
            self.error = error

    def _preface(self, connection: socket.socket) -> bool:
        connection.settimeout(5)
        client = _receive(connection, HELLO.size)
        self.client = Hello.unpack(client)
        hello = Hello(*self.versions, 0 if self.key is None else HAS_KEY, self.incarnation, NOBODY, os.urandom(32))
        server = hello.pack()
        connection.sendall(server)
        proof = Proof.unpack(_receive(connection, PROOF.size))
        version = hello.choose(self.client)
        if not hmac.compare_digest(proof.proof, make_proof(self.key, "client", client, server)):
            status = AUTHENTICATION
        elif self.full:
            status = TOO_MANY
        elif version == 0:
            status = VERSION
        elif self.client.expected not in (NOBODY, self.incarnation):
            status = STALE_PEER
        else:
            status = OK
        mine = make_proof(self.key, "server", client, server) if status == OK else bytes(32)
        connection.sendall(Proof(status, version if status == OK else 0, mine).pack())
        connection.settimeout(None)
        return status == OK

    def _serve_one(self, connection: socket.socket) -> bool:
        """Reads a request and answers it; false when the client has closed the connection."""
        first = connection.recv(1)
        if not first:
            return False
        connection.settimeout(30)
        frame = Frame.unpack(first + _receive(connection, HEADER.size - 1))
        if frame.type & REPLY:
            raise ProtocolError("a reply from the client")
        payload = _receive(connection, frame.payload_size)
        self._held.append(self._answer(frame, payload))
        if len(self._held) >= self.hold:
            held, self._held = self._held[::-1], []
            for turn in (0, 1):
                for replies in held:
                    for reply in replies[turn : turn + 1]:
                        connection.sendall(reply)
        connection.settimeout(None)
        return True

    def _answer(self, frame: Frame, payload: bytes) -> list[bytes]:
        try:
            self._check(frame, payload)
            if frame.type == READ:
                return self._read(frame)
            if frame.type == WRITE:
                self._write(frame, payload)
            elif frame.type == CALL + NOTIFY:
                self._notify(payload)
            return [self._reply(frame)]
        except PeerError as error:
            return [self._reply(frame, status=error.status)]

    def _reply(
        self, frame: Frame, payload: bytes = b"", status: int = OK, flags: int = 0, *, second: bool = False
    ) -> bytes:
        crc = 0
        if frame.type == READ and frame.flags & CHECKSUM and status == OK and not second:
            flags |= CHECKSUM
            crc = crc32c(payload)
        header = Frame(frame.type | REPLY, flags, status, frame.id, payload_crc=crc, payload_size=len(payload)).pack()
        return header + self.damage(payload)

    def _check(self, frame: Frame, payload: bytes) -> None:
        """Everything that can be said before anything is read or written."""
        known = {READ: GUARD | CHECKSUM, WRITE: GUARD | CHECKSUM, CALL + PING: 0, CALL + NOTIFY: 0}
        if frame.flags & ~known.get(frame.type, 0) or frame.type not in known:
            raise PeerError(NOT_SUPPORTED)
        if frame.type == READ and (payload or frame.length > PAYLOAD_MAX):
            raise PeerError(INVALID_ARGUMENT)
        if frame.type == WRITE and len(payload) != frame.length:
            raise PeerError(INVALID_ARGUMENT)

    def _range(self, address: int, length: int, right: bool) -> slice:
        start = address - self.base
        if start < 0 or start + length > len(self.memory):
            raise PeerError(NOT_REGISTERED)
        if not right:
            raise PeerError(ACCESS_DENIED)
        return slice(start, start + length)

    def _compare(self, frame: Frame) -> None:
        if frame.flags & GUARD:
            if frame.guard_address % 8:
                raise PeerError(INVALID_ARGUMENT)
            place = self._range(frame.guard_address, 8, self.readable)
            if int.from_bytes(self.memory[place], "little") != frame.guard_value:
                raise PeerError(GUARD_MISMATCH)

    def _read(self, frame: Frame) -> list[bytes]:
        place = self._range(frame.address, frame.length, self.readable)
        self._compare(frame)
        data = bytes(self.memory[place])
        split = frame.flags & GUARD and self.split_guarded_reads
        replies = [self._reply(frame, data, flags=MORE)] if split else []
        try:
            if frame.flags & GUARD:
                self.before_second_guard()
            self._compare(frame)
            replies.append(self._reply(frame, second=True) if split else self._reply(frame, data))
        except PeerError as error:
            replies.append(self._reply(frame, status=error.status))
        return replies

    def _write(self, frame: Frame, payload: bytes) -> None:
        place = self._range(frame.address, frame.length, self.writable)
        self._compare(frame)
        self.memory[place] = payload
        if frame.flags & GUARD:
            self.before_second_guard()
        self._compare(frame)
        if frame.flags & CHECKSUM and crc32c(payload) != frame.payload_crc:
            raise PeerError(CHECKSUM_MISMATCH)

    def _notify(self, payload: bytes) -> None:
        sender, name, message = unpack_message(payload, "BBB")
        if len(name) + len(message) > NOTIFICATION_MAX or len(sender) > SENDER_MAX:
            raise PeerError(TOO_LARGE)
        if len(self.notifications) >= self.queue_limit:
            raise PeerError(QUEUE_FULL)
        self.notifications.append((sender, name, message))
