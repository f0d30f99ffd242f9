"""The two processes of the demo, and what they say to each other.

The decode side has the pool and decides where blocks go. For each request it sends "need" with the positions of the
blocks that it doesn't hold and the slots they go to; the prefill side writes those blocks as one batch and answers
"done"; the decode side then compares every byte of every block of the request. One request is on its way at a time, so
a slot is never given away while it is read or written, and the times of the writes are those of an undisturbed path.

Afterwards the prefill side replays the same batches by memcpy and through a plain socket, for comparison.
"""

from __future__ import annotations

import ctypes
import signal
import socket
import time
from array import array
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from ._blocks import Blocks, Pool, Wrong
from ._trace import Request

if TYPE_CHECKING:
    from mooncake.engine import Engine, Peer, TransferEngine

__all__ = ["LARGEST_REQUEST", "Config", "Result", "decode_side", "prefill_side"]

LARGEST_REQUEST = 8000
"""In blocks: what fits one notification of 64 KiB."""

_PATIENCE = 60.0
_SHOWN = 5


class Config(NamedTuple):
    """block_size, pool_size: bytes; transports: in their order; compare: also memcpy and a raw socket; corrupt: the
    request of which the prefill side spoils one byte, to see that the check sees it."""

    block_size: int
    pool_size: int
    transports: tuple[str, ...]
    compare: bool = True
    corrupt: Optional[int] = None


class Result(NamedTuple):
    """What one side found out about one path: seconds per batch, blocks moved and checked, and what was wrong."""

    path: str
    seconds: list[float]
    moved: int
    checked: int
    wrong: list[str]


class _Said:
    """Tells the parent how far this side is, now and then."""

    def __init__(self, parent: Connection) -> None:
        self._parent = parent
        self._next = 0.0

    def progress(self, path: str, done: int) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + 0.1
            self._parent.send(("progress", path, done))


Side = Callable[[Connection, Connection, Config, "list[Request]"], None]


def _run(side: Side, parent: Connection, other: Connection, config: Config, requests: list[Request]) -> None:
    """One side's whole life; the parent hears of its end either way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent has heard it too, and ends this process
    try:
        side(parent, other, config, requests)
        parent.send(("end",))
    except Exception as error:
        parent.send(("failed", f"{type(error).__name__}: {error}"))


def decode_side(parent: Connection, other: Connection, config: Config, requests: list[Request]) -> None:
    """Entry of the decode process."""
    _run(_decode, parent, other, config, requests)


def prefill_side(parent: Connection, other: Connection, config: Config, requests: list[Request]) -> None:
    """Entry of the prefill process."""
    _run(_prefill, parent, other, config, requests)


def _open(transport: str) -> TransferEngine:
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    if engine.initialize("127.0.0.1", "P2PHANDSHAKE", transport, "") != 0:
        raise RuntimeError(f"no engine for {transport} can be opened")
    return engine


def _receive(engine: Engine, name: bytes) -> bytes:
    said = engine.receive(_PATIENCE)
    if said is None:
        raise RuntimeError(f"the other side did not answer in {_PATIENCE:.0f} s")
    if said.name != name:
        raise RuntimeError(f"the other side said {said.name!r} instead of {name!r}")
    return said.message


# ---- Decode


def _decode(parent: Connection, other: Connection, config: Config, requests: list[Request]) -> None:
    blocks = Blocks(config.block_size)
    for transport in config.transports:
        with _open(transport) as engine:
            size = config.pool_size
            base = engine.allocate_managed_buffer(size)
            if base == 0:
                raise MemoryError(f"no {size} bytes for the pool")
            native = engine.get_engine()
            other.send((native.address, base))
            with native.connect(other.recv()) as peer:
                result = _decode_requests(parent, transport, native, peer, blocks, base, config, requests)
                parent.send(("result", result))
    if config.compare:
        _decode_socket(other, config)


def _decode_requests(
    parent: Connection,
    transport: str,
    engine: Engine,
    peer: Peer,
    blocks: Blocks,
    base: int,
    config: Config,
    requests: list[Request],
) -> Result:
    size = config.block_size
    pool = Pool(config.pool_size // size)
    view = memoryview((ctypes.c_char * config.pool_size).from_address(base)).cast("B")
    said = _Said(parent)
    moved = checked = 0
    wrong: list[str] = []
    for index, request in enumerate(requests):
        placed = pool.place(request.hash_ids)
        if placed is None:
            raise ValueError(f"request {index + 1} has more blocks than the pool holds")
        need = array("I", (index,))
        for position, slot in placed:
            blocks.poison(base + slot * size)
            need.append(position)
            need.append(slot)
        peer.notify("need", need.tobytes())
        _receive(engine, b"done")
        for block_id in request.hash_ids:
            offset = pool.slot(block_id) * size
            try:
                blocks.check(view, offset, base + offset, block_id)
            except Wrong as error:
                wrong.append(f"{transport}, request {index + 1}, {error}")
        moved += len(placed)
        checked += len(request.hash_ids)
        said.progress(transport, index + 1)
    peer.notify("end")
    _receive(engine, b"end")
    return Result(transport, [], moved, checked, [*wrong[:_SHOWN], *(["…"] if len(wrong) > _SHOWN else [])])


def _decode_socket(other: Connection, config: Config) -> None:
    """Receives each batch straight into the slots that its head names, and acknowledges it with one byte. A head of 0
    slots is the end."""
    from mooncake.engine import alloc

    size = config.block_size
    with alloc(config.pool_size) as memory, socket.create_server(("127.0.0.1", 0)) as server:
        view = memory.view
        other.send(server.getsockname()[1])
        connection = server.accept()[0]
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            head = array("I", bytes(4))
            _receive_all(connection, [memoryview(head).cast("B")])
            while head[0]:
                slots = array("I", bytes(4 * head[0]))
                _receive_all(connection, [memoryview(slots).cast("B")])
                _receive_all(connection, [view[slot * size : slot * size + size] for slot in slots])
                connection.sendall(b"!")
                _receive_all(connection, [memoryview(head).cast("B")])
        view.release()


def _receive_all(connection: socket.socket, views: list[memoryview]) -> None:
    """Fills all of the views, as many in one system call as it takes."""
    while views:
        group, views = views[:1000], views[1000:]
        wanted = sum(map(len, group))
        got = connection.recvmsg_into(group, 0, socket.MSG_WAITALL)[0]
        while got < wanted:
            if got == 0:
                raise ConnectionError("the other side of the socket is gone")
            while got >= len(group[0]):
                got -= len(group.pop(0))
            group[0] = group[0][got:]
            wanted = sum(map(len, group))
            got = connection.recvmsg_into(group, 0, socket.MSG_WAITALL)[0]


# ---- Prefill


def _prefill(parent: Connection, other: Connection, config: Config, requests: list[Request]) -> None:
    blocks = Blocks(config.block_size)
    longest = max(len(request.hash_ids) for request in requests)
    pattern: list[tuple[list[int], array[int]]] = []
    for transport in config.transports:
        with _open(transport) as engine:
            staging = engine.allocate_managed_buffer(max(longest, 1) * config.block_size)
            if staging == 0:
                raise MemoryError(f"no memory for {longest} blocks")
            native = engine.get_engine()
            address, base = other.recv()
            with native.connect(address) as peer:
                _check_path(peer, transport)
                _touch(engine, address, staging, max(longest, 1) * config.block_size, base, config.pool_size)
                other.send(native.address)
                pattern, seconds = _prefill_requests(
                    engine, native, peer, blocks, staging, longest, base, config, requests
                )
            parent.send(("result", Result(transport, seconds, 0, 0, [])))
    if config.compare:
        _compare(parent, other, config, blocks, longest, pattern)


def _check_path(peer: Peer, transport: str) -> None:
    """The table shall not name a path that wasn't taken."""
    for path in peer.explain()["transports"]:
        if path["transport"] == transport and not path["usable"]:
            raise RuntimeError(f"{transport} does not lead to the other process: {path.get('reason')}")


def _touch(engine: TransferEngine, target: str, source: int, length: int, base: int, size: int) -> None:
    """Writes over the whole pool once: that its pages are mapped is set-up, here as for memcpy and the socket."""
    for offset in range(0, size, length):
        if engine.transfer_sync_write(target, source, base + offset, min(length, size - offset)) != 0:
            raise RuntimeError("the pool of the decode side can't be written")


def _prefill_requests(
    engine: TransferEngine,
    native: Engine,
    peer: Peer,
    blocks: Blocks,
    staging: int,
    longest: int,
    base: int,
    config: Config,
    requests: list[Request],
) -> tuple[list[tuple[list[int], array[int]]], list[float]]:
    """Serves the decode side until it has all; the batches (ids, slots) and the seconds of each write."""
    size = config.block_size
    view = memoryview((ctypes.c_char * (max(longest, 1) * size)).from_address(staging)).cast("B")
    sources = [staging + place * size for place in range(longest)]
    lengths = [size] * longest
    pattern: list[tuple[list[int], array[int]]] = []
    seconds: list[float] = []
    while True:
        said = native.receive(_PATIENCE)
        if said is None:
            raise RuntimeError(f"the decode side asked for nothing in {_PATIENCE:.0f} s")
        if said.name == b"end":
            peer.notify("end")
            return pattern, seconds
        need = array("I", said.message)
        slots = need[2::2]
        count = len(slots)
        ids = requests[need[0]].hash_ids
        wanted = [ids[position] for position in need[1::2]]
        pattern.append((wanted, slots))
        if count:
            for place, block_id in enumerate(wanted):
                blocks.fill(view, place * size, block_id)
            if need[0] == config.corrupt:
                view[count * size - 1] ^= 1
            targets = [base + slot * size for slot in slots]
            start = time.perf_counter()
            status = engine.batch_transfer_sync_write(said.sender, sources[:count], targets, lengths[:count])
            seconds.append(time.perf_counter() - start)
            if status != 0:
                raise RuntimeError(f"the blocks of request {need[0] + 1} were not written")
        peer.notify("done")


def _compare(
    parent: Connection,
    other: Connection,
    config: Config,
    blocks: Blocks,
    longest: int,
    pattern: list[tuple[list[int], array[int]]],
) -> None:
    """Replays the batches by memcpy in this process, then through a socket to the other."""
    from mooncake.engine import alloc

    size = config.block_size
    moved = sum(len(slots) for _, slots in pattern)
    said = _Said(parent)

    def replay(path: str, move: Callable[[array[int]], None]) -> None:
        seconds: list[float] = []
        for done, (wanted, slots) in enumerate(pattern):
            if slots:
                for place, block_id in enumerate(wanted):
                    blocks.fill(view, place * size, block_id)
                start = time.perf_counter()
                move(slots)
                seconds.append(time.perf_counter() - start)
            said.progress(path, done + 1)
        parent.send(("result", Result(path, seconds, moved, 0, [])))

    with alloc(max(longest, 1) * size) as staging:
        view = staging.view
        with alloc(config.pool_size) as pool:

            def copy(slots: array[int]) -> None:
                place = 0
                for slot, count in _runs(slots):
                    ctypes.memmove(pool.address + slot * size, staging.address + place * size, count * size)
                    place += count

            replay("memcpy", copy)
        with socket.create_connection(("127.0.0.1", other.recv())) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def send(slots: array[int]) -> None:
                _send_all(connection, [array("I", (len(slots), *slots)).tobytes(), view[: len(slots) * size]])
                if connection.recv(1) != b"!":
                    raise ConnectionError("the other side of the socket is gone")

            replay("raw socket", send)
            connection.sendall(bytes(4))
        view.release()


def _runs(slots: array[int]) -> list[tuple[int, int]]:
    """Neighbouring slots as (first, how many)."""
    runs: list[tuple[int, int]] = []
    first = count = 0
    for slot in slots:
        if count and slot == first + count:
            count += 1
        else:
            if count:
                runs.append((first, count))
            first, count = slot, 1
    runs.append((first, count))
    return runs


def _send_all(connection: socket.socket, parts: list[Any]) -> None:
    """The head and the payload in one system call where the kernel takes them."""
    head, payload = parts
    sent = connection.sendmsg(parts)
    if sent < len(head):
        connection.sendall(head[sent:])
        sent = len(head)
    if sent - len(head) < len(payload):
        connection.sendall(payload[sent - len(head) :])
