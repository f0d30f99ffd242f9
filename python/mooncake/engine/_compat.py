"""TransferEngine with the names, order, defaults and results that existing programs call; a thin layer over Engine.

A failed transfer is a negative number here, never an exception, and a line in the log "mooncake.engine" says why.
Wrong argument types raise TypeError, integers out of range ValueError. Peers are named by host:port in each call, are
opened on first use, and resolved again when they were restarted. Local memory that was never registered is registered
for the time of the call. Safe to use from many threads.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Iterable
from enum import IntEnum
from types import TracebackType
from typing import Optional, Union

from .. import errors
from .._errors import MooncakeError, error_for
from .._native import PENDING, ffi, lib
from ._batch import Batch
from ._engine import Access, Engine, Peer
from ._memory import Memory, load_bytes, store_bytes
from ._requests import pack_columns, pack_one, words

__all__ = ["TransferEngine", "TransferNotify", "TransferOpcode"]

_PROBE_SECONDS = 3.0
# What says that a peer is gone. The paths that are left to a peer that is gone may be none at all.
_LOST = (errors.StalePeer, errors.Unreachable, errors.ConnectionLost, errors.InvalidHandle, errors.NotSupported)
# Answers of a submission after which another peer of the same name may be asked.
_UNBEGUN = (errors.StalePeer, errors.InvalidHandle, errors.NotSupported)
_HINTS = frozenset(
    " ascend ascend_direct barex bufio cxi cxl efa gds hip io_uring maca mnnvl mpcomm musa nccl nvlink nvlink_intra"
    " nvmeof rdma self shm sunrise_link tcp tpu ub ubshmem".split(" ")
)


class TransferOpcode(IntEnum):
    """The direction of a transfer, seen from the caller."""

    Read = 0
    Write = 1


class TransferNotify:
    """A notification: a name and a message, both text."""

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name = name
        self.msg = msg

    def __repr__(self) -> str:
        return f"TransferNotify(name={self.name!r}, msg={self.msg!r})"


def _log(level: str, text: str, *values: object) -> None:
    import logging

    getattr(logging.getLogger("mooncake.engine"), level)(text, *values)


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return value


def _check_hint(hint: object) -> None:
    if _text(hint, "transport_hint") not in _HINTS:
        raise ValueError(f"unknown transport_hint {hint!r}")


def _code(error: MooncakeError) -> int:
    """The number that programs written for the reference know: -1 invalid, -3 not registered, -4 busy, -7 overlap."""
    if isinstance(error, errors.NotRegistered):
        return -3
    if isinstance(error, errors.Busy):
        return -4
    return -7 if isinstance(error, errors.Overlap) else -1


def _listen_address(name: str) -> tuple[str, bool]:
    """The address to listen on, and whether it has a port that may turn out to be taken."""
    if name.startswith("["):
        return name, not name.endswith("]")
    if name.count(":") > 1:
        return f"[{name}]", False
    return name, ":" in name and not name.endswith(":0")


class _Flight:
    """A submitted batch, its peer, and the local ranges that are registered only as long as it flies."""

    __slots__ = ("_engine", "_ranges", "batch", "peer", "target")

    def __init__(self, engine: Engine, target: str, peer: Peer, count: int) -> None:
        self._engine = engine
        self._ranges: list[int] = []
        self.target = target
        self.peer = peer
        self.batch = Batch(engine, count)

    def lend(self, local: array[int], length: array[int]) -> bool:
        """Registers what isn't registered yet of the local ranges, overlapping ones as one; True if there was any."""
        spans: list[list[int]] = []
        for begin, size in sorted(zip(local, length)):
            if not size:
                continue
            if spans and begin < spans[-1][1]:
                spans[-1][1] = max(spans[-1][1], begin + size)
            else:
                spans.append([begin, begin + size])
        for begin, end in spans:
            try:
                self._engine.register_range(begin, end - begin, "*", int(Access.NONE))
            except errors.Overlap:
                continue
            self._ranges.append(begin)
        return bool(self._ranges)

    def close(self) -> None:
        self.batch.close()
        while self._ranges:
            try:
                self._engine.unregister_range(self._ranges.pop())
            except MooncakeError as error:
                _log("warning", "a buffer that was registered for one call stays registered: %s", error)

    def __del__(self) -> None:
        self.close()


class TransferEngine:
    """One-sided reads and writes between the registered memory of processes, by host:port and address.

    Addresses are integers, lengths bytes. Unless a method says otherwise it returns 0 for success and a negative
    number for failure. Also a context manager; close() or the end of the object closes the engine.
    """

    def __init__(self) -> None:
        self._engine: Optional[Engine] = None
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        self._flights: dict[int, _Flight] = {}
        self._managed: dict[int, Memory] = {}
        self._ranges: list[int] = []

    # ---- Life

    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int:
        """Opens the engine.

        local_hostname: the host or host:port to listen on; a port that is taken or left out becomes any free one (see
        get_rpc_port). metadata_server: "P2PHANDSHAKE". protocol: "tcp" or "shm" restricts the paths to it; anything
        else takes the best there is. MC_FORCE_TCP in the environment, whatever its value, stands for "tcp".
        device_name: not used by these paths.
        """
        return self.initialize_ext(local_hostname, metadata_server, protocol, device_name, "")

    def initialize_ext(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, metadata_type: str
    ) -> int:
        """As initialize(), with the kind of directory named apart."""
        _text(local_hostname, "local_hostname")
        _text(metadata_server, "metadata_server")
        _text(protocol, "protocol")
        _text(device_name, "device_name")
        _text(metadata_type, "metadata_type")
        if self._engine is not None:
            _log("warning", "initialize: the engine is already initialised")
            return -1
        if metadata_server != "P2PHANDSHAKE":
            _log("warning", "initialize: metadata server %r is not supported, only P2PHANDSHAKE", metadata_server)
            return -1
        if "MC_FORCE_TCP" in os.environ:
            protocol = "tcp"
        chosen = protocol if protocol in ("tcp", "shm") else None
        if chosen is None:
            _log("info", "protocol %r: the best path to each peer is taken", protocol)
        listen, may_be_taken = _listen_address(local_hostname)
        try:
            try:
                engine = Engine(listen, protocol=chosen)
            except errors.System:
                if not may_be_taken:
                    raise
                engine = Engine(listen.rpartition(":")[0], protocol=chosen)
        except MooncakeError as error:
            _log("warning", "initialize: %s", error)
            return -1
        self._engine = engine
        return 0

    def get_rpc_port(self) -> int:
        """The port that peers name; -1 before initialize()."""
        return -1 if self._engine is None else int(self._engine.address.rpartition(":")[2])

    def get_engine(self) -> Engine:
        """The Engine under this object, to share with others. ValueError before initialize()."""
        if self._engine is None:
            raise ValueError("the engine is not initialised")
        return self._engine

    def get_engine_ptr(self) -> int:
        """The native handle of the engine as an integer; 0 before initialize()."""
        return 0 if self._engine is None else int(ffi.cast("uintptr_t", self._engine.handle))

    def close(self) -> None:
        """Cancels what is in flight, closes the engine and frees managed buffers; a second call does nothing.
        errors.Busy, with the engine still open, if a peer is copying into its memory for longer than a second."""
        engine = self._engine
        if engine is None:
            return
        with self._lock:
            flights, self._flights = list(self._flights.values()), {}
            peers, self._peers = list(self._peers.values()), {}
        for flight in flights:
            flight.close()
        for peer in peers:
            peer.close()
        engine.close()
        self._engine = None
        self._ranges.clear()
        while self._managed:
            try:
                self._managed.popitem()[1].free()
            except BufferError:
                pass  # a view of it exists: the pages go with the view

    def __enter__(self) -> TransferEngine:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except MooncakeError:
            pass  # nobody is left to tell

    # ---- Memory

    def allocate_managed_buffer(self, length: int) -> int:
        """Allocates and registers `length` bytes that processes of this host can map; the address, or 0."""
        try:
            memory = Memory(length)
        except MooncakeError as error:
            _log("warning", "allocate_managed_buffer: %s", error)
            return 0
        if self.register_memory(memory.address, length) != 0:
            return 0
        self._managed[memory.address] = memory
        return memory.address

    def free_managed_buffer(self, buffer_addr: int, length: int) -> int:
        """Unregisters and frees what allocate_managed_buffer() gave."""
        memory = self._managed.get(buffer_addr)
        if memory is None or memory.size != length:
            _log("warning", "free_managed_buffer: no buffer of %d bytes at %#x", length, buffer_addr)
            return -1
        result = self.unregister_memory(buffer_addr)
        if result == 0:
            del self._managed[buffer_addr]
            try:
                memory.free()
            except errors.Busy as error:
                self._managed[buffer_addr] = memory
                _log("warning", "free_managed_buffer: %s", error)
                return -4
        return result

    def register_memory(self, buffer_addr: int, capacity: int, location: str = "*") -> int:
        """Lends memory to peers, for reading and writing. The caller keeps it mapped until it is unregistered."""
        _text(location, "location")
        words((buffer_addr, capacity))
        if self._engine is None:
            return self._not_open("register_memory")
        try:
            self._engine.register_range(buffer_addr, capacity, location, int(Access.BOTH))
        except MooncakeError as error:
            _log("warning", "register_memory(%#x, %d): %s", buffer_addr, capacity, error)
            return _code(error)
        self._ranges.append(buffer_addr)
        return 0

    def unregister_memory(self, buffer_addr: int) -> int:
        """When it returns 0, no peer reaches the memory any more."""
        words((buffer_addr,))
        if self._engine is None:
            return self._not_open("unregister_memory")
        try:
            self._engine.unregister_range(buffer_addr)
        except MooncakeError as error:
            _log("warning", "unregister_memory(%#x): %s", buffer_addr, error)
            return _code(error)
        try:
            self._ranges.remove(buffer_addr)
        except ValueError:
            pass  # registered through get_engine()
        return 0

    def batch_register_memory(self, buffer_addresses: list[int], capacities: list[int], location: str = "*") -> int:
        """Registers all or none."""
        addresses, sizes = words(buffer_addresses), words(capacities)
        if len(addresses) != len(sizes):
            _log("warning", "batch_register_memory: %d addresses, %d capacities", len(addresses), len(sizes))
            return -1
        for done, (address, size) in enumerate(zip(addresses, sizes)):
            result = self.register_memory(address, size, location)
            if result != 0:
                for earlier in addresses[:done]:
                    self.unregister_memory(earlier)
                return result
        return 0

    def batch_unregister_memory(self, buffer_addresses: list[int]) -> int:
        """Unregisters each; the first failure is the result, the others are unregistered all the same."""
        results = [self.unregister_memory(address) for address in words(buffer_addresses)]
        return next((result for result in results if result != 0), 0)

    def write_bytes_to_buffer(self, dest_address: int, src_ptr: Union[str, bytes], length: int) -> int:
        """Copies the first `length` bytes of src_ptr (bytes, or str as UTF-8) to an address of this process."""
        data = src_ptr.encode() if isinstance(src_ptr, str) else bytes(src_ptr)
        words((dest_address, length))
        if length > len(data):
            _log("warning", "write_bytes_to_buffer: %d bytes wanted of %d", length, len(data))
            return -1
        try:
            store_bytes(dest_address, data[:length])
        except ValueError as error:
            _log("warning", "write_bytes_to_buffer: %s", error)
            return -1
        return 0

    def read_bytes_from_buffer(self, source_address: int, length: int) -> bytes:
        """`length` bytes from an address of this process. ValueError if they can't be read."""
        words((source_address, length))
        return load_bytes(source_address, length)

    def get_first_buffer_address(self, segment_name: str) -> int:
        """The address of the first memory that this engine registered, when the name is its own; 0 if there is none.
        NotImplementedError for another engine: peers don't list their memory, tell addresses by a notification."""
        if self._engine is None:
            return 0
        if _text(segment_name, "segment_name") != self._engine.address:
            raise NotImplementedError("a peer does not list its memory; let it send the address in a notification")
        return self._ranges[0] if self._ranges else 0

    # ---- Transfers

    def transfer_sync_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Writes `length` bytes from the local address to the peer's; returns when the peer has them."""
        _check_hint(transport_hint)
        return self._transfer(target_hostname, 1, (buffer,), (peer_buffer_address,), (length,))

    def transfer_sync_read(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Reads `length` bytes from the peer's address to the local one."""
        _check_hint(transport_hint)
        return self._transfer(target_hostname, 0, (buffer,), (peer_buffer_address,), (length,))

    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Many writes to one peer as one batch; 0 only when all of them are done."""
        _check_hint(transport_hint)
        return self._transfer(target_hostname, 1, buffers, peer_buffer_addresses, lengths)

    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Many reads from one peer as one batch; 0 only when all of them are done."""
        _check_hint(transport_hint)
        return self._transfer(target_hostname, 0, buffers, peer_buffer_addresses, lengths)

    def transfer_sync(
        self,
        target_hostname: str,
        buffer: int,
        peer_buffer_address: int,
        length: int,
        opcode: TransferOpcode,
        notify: Optional[TransferNotify] = None,
        transport_hint: str = "",
    ) -> int:
        """A read or a write, then the notification, if there is one, into the peer's queue."""
        _check_hint(transport_hint)
        return self._transfer(
            target_hostname, TransferOpcode(opcode), (buffer,), (peer_buffer_address,), (length,), notify
        )

    def batch_transfer_sync(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        opcode: TransferOpcode,
        notify: Optional[TransferNotify] = None,
        transport_hint: str = "",
    ) -> int:
        """Many reads or writes as one batch, then the notification, if there is one."""
        _check_hint(transport_hint)
        return self._transfer(target_hostname, TransferOpcode(opcode), buffers, peer_buffer_addresses, lengths, notify)

    def batch_transfer_async_write(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Begins a batch of writes; its id for transfer_check_status() or get_batch_transfer_status(), or 0."""
        _check_hint(transport_hint)
        return self._begin(target_hostname, 1, buffers, peer_buffer_addresses, lengths)

    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Begins a batch of reads; its id, or 0."""
        _check_hint(transport_hint)
        return self._begin(target_hostname, 0, buffers, peer_buffer_addresses, lengths)

    def batch_transfer_async(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        opcode: TransferOpcode,
        transport_hint: str = "",
    ) -> int:
        """Begins a batch of reads or writes; its id, or 0."""
        _check_hint(transport_hint)
        return self._begin(target_hostname, TransferOpcode(opcode), buffers, peer_buffer_addresses, lengths)

    def transfer_submit_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Begins one write; its id, or 0."""
        _check_hint(transport_hint)
        return self._begin(target_hostname, 1, (buffer,), (peer_buffer_address,), (length,))

    def transfer_check_status(self, batch_id: int) -> int:
        """1 when all of the batch is done, 0 while pending, -1 failed, -2 timed out. Any but 0 ends the id."""
        words((batch_id,))
        return self._finish(batch_id, 0.0)

    def get_batch_transfer_status(self, batch_ids: list[int]) -> int:
        """Waits for all the batches: 0 when all are done, else -1. The ids end with it."""
        results = [self._finish(batch_id, None) for batch_id in words(batch_ids)]
        return 0 if all(result == 1 for result in results) else -1

    def _peer(self, target: str) -> Peer:
        """The opened peer of that name. Called without the lock: opening may take seconds."""
        peer = self._peers.get(target)
        if peer is None:
            opened = self._running().connect(target)
            with self._lock:
                peer = self._peers.setdefault(target, opened)
            if peer is not opened:
                opened.close()
        return peer

    def _drop(self, target: str, peer: Peer) -> None:
        """Forgets a peer that is gone, so that the next call resolves the name again."""
        with self._lock:
            if self._peers.get(target) is peer:
                del self._peers[target]
        peer.close()

    def _start(
        self,
        target: str,
        opcode: int,
        local: array[int],
        remote: array[int],
        length: array[int],
        *,
        driven: bool = False,
    ) -> _Flight:
        """Submits one batch; nothing was begun if it raises. driven: the caller waits for it at once."""
        peer = self._peer(target)
        engine = self._running()
        packed = (
            pack_columns(peer.id, opcode, local, remote, length)
            if len(local) != 1
            else pack_one(peer.id, opcode, local[0], remote[0], length[0])
        )
        flight = _Flight(engine, target, peer, len(local))
        try:
            try:
                flight.batch.start(engine.handle, packed, driven=driven)
            except errors.NotRegistered:
                if not flight.lend(local, length):
                    raise
                flight.batch.start(engine.handle, packed, driven=driven)
        except BaseException as error:
            flight.close()
            if isinstance(error, _LOST):
                self._drop(target, peer)
            raise
        return flight

    def _transfer(
        self,
        target: str,
        opcode: int,
        buffers: Iterable[int],
        peer_buffers: Iterable[int],
        lengths: Iterable[int],
        notify: Optional[TransferNotify] = None,
    ) -> int:
        _text(target, "target_hostname")
        if notify is not None and not isinstance(notify, TransferNotify):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"notify must be a TransferNotify, not {type(notify).__name__}")
        local, remote, length = words(buffers), words(peer_buffers), words(lengths)
        if not self._well_formed(local, remote, length):
            return -1
        try:
            if local:
                self._run(target, opcode, local, remote, length)
            if notify is not None:
                self._peer(target).notify(notify.name, notify.msg)
        except MooncakeError as error:
            _log("warning", "transfer with %s: %s", target, error)
            return -1
        return 0

    def _run(self, target: str, opcode: int, local: array[int], remote: array[int], length: array[int]) -> None:
        """One batch to its end; once more if its peer was restarted before anything of it was begun."""
        for attempt in (0, 1):
            try:
                flight = self._start(target, opcode, local, remote, length, driven=True)
            except _UNBEGUN:
                if attempt:
                    raise
                continue
            try:
                status = flight.batch.poll(None)
                if status == 0:
                    return
                try:
                    flight.batch.check(status)
                except MooncakeError as error:
                    if isinstance(error, _LOST):
                        self._drop(target, flight.peer)
                    if attempt or not _untouched(flight.batch):
                        raise
            finally:
                flight.close()

    def _begin(
        self, target: str, opcode: int, buffers: Iterable[int], peer_buffers: Iterable[int], lengths: Iterable[int]
    ) -> int:
        _text(target, "target_hostname")
        local, remote, length = words(buffers), words(peer_buffers), words(lengths)
        if not self._well_formed(local, remote, length):
            return 0
        for attempt in (0, 1):
            try:
                flight = self._start(target, opcode, local, remote, length)
            except _UNBEGUN as error:
                if not attempt:
                    continue
                _log("warning", "transfer with %s: %s", target, error)
                return 0
            except MooncakeError as error:
                _log("warning", "transfer with %s: %s", target, error)
                return 0
            self._flights[flight.batch.id] = flight
            return flight.batch.id
        return 0

    def _finish(self, batch_id: int, timeout: Optional[float]) -> int:
        """1 done, 0 pending, -1 failed, -2 timed out; all but pending end the flight."""
        flight = self._flights.get(batch_id)
        if flight is None:
            _log("warning", "no transfer has the id %d", batch_id)
            return -1
        status = flight.batch.poll(timeout)
        if status == PENDING:
            return 0
        self._flights.pop(batch_id, None)
        try:
            flight.batch.check(status)
        except MooncakeError as error:
            _log("warning", "transfer with %s: %s", flight.target, error)
            if isinstance(error, _LOST):
                self._drop(flight.target, flight.peer)
            return -2 if isinstance(error, errors.Timeout) else -1
        finally:
            flight.close()
        return 1

    def _well_formed(self, local: array[int], remote: array[int], length: array[int]) -> bool:
        if self._engine is None:
            self._not_open("transfer")
            return False
        if len(local) == len(remote) == len(length):
            return True
        _log("warning", "transfer: %d buffers, %d peer buffers, %d lengths", len(local), len(remote), len(length))
        return False

    def _running(self) -> Engine:
        """The engine, for a call that found it open; another thread may have closed it since."""
        engine = self._engine
        if engine is None:
            raise error_for(lib.MC_ERR_CLOSED)
        return engine

    def _not_open(self, what: str) -> int:
        _log("warning", "%s: the engine is not initialised", what)
        return -1

    # ---- Peers

    def get_notifies(self) -> list[TransferNotify]:
        """Takes all notifications that have arrived."""
        notifies: list[TransferNotify] = []
        while self._engine is not None:
            try:
                arrived = self._engine.receive(0.0)
            except MooncakeError as error:
                _log("warning", "get_notifies: %s", error)
                break
            if arrived is None:
                break
            name, message = arrived.name.decode("utf-8", "replace"), arrived.message.decode("utf-8", "replace")
            notifies.append(TransferNotify(name, message))
        return notifies

    def send_probe(self, peer_server_name: str) -> int:
        """0 if the peer is alive, else negative; takes at most 3 s once the peer is known."""
        _text(peer_server_name, "peer_server_name")
        if self._engine is None:
            return self._not_open("send_probe")
        for attempt in (0, 1):
            try:
                peer = self._peer(peer_server_name)
            except MooncakeError as error:
                _log("warning", "send_probe: %s: %s", peer_server_name, error)
                return -1
            try:
                peer.probe(_PROBE_SECONDS)
                return 0
            except MooncakeError as error:
                if isinstance(error, _LOST):
                    self._drop(peer_server_name, peer)
                    if not attempt:
                        continue  # what was known is gone; is there somebody new at the address?
                _log("warning", "send_probe: %s: %s", peer_server_name, error)
                return -1
        return -1

    def warmup_efa_segment(self, segment_name: str) -> int:
        """Does nothing: no EFA path needs it. Returns 0."""
        _text(segment_name, "segment_name")
        return 0

    def get_local_topology(self, device_name: Optional[str] = None) -> str:
        """NotImplementedError: there is no device whose distance would matter to these paths."""
        raise NotImplementedError("the topology of devices is not known to these paths (self, shm, tcp)")


def _untouched(batch: Batch) -> bool:
    """Whether every request failed for a restarted peer before a byte of it was moved or sent."""
    return all(row.code == lib.MC_ERR_STALE_PEER and row.bytes == 0 and not row.indeterminate for row in batch.status())
