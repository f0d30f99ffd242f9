"""TransferEngine with the names, order, defaults and results that existing programs call; a thin layer over Engine.

A failed transfer is a negative number here, never an exception, and a line in the log "mooncake.engine" says why.
Wrong argument types raise TypeError, integers out of range ValueError. Peers are named by host:port in each call, are
opened on first use, and resolved again when they were restarted. Local memory that was never registered is registered
for the time of the call. Safe to use from many threads.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Optional

from .. import errors
from .._errors import MooncakeError
from .._native import ffi
from ._compat_memory import EngineMemory
from ._compat_values import (
    TransferNotify,
    TransferOpcode,
    check_hint,
    directory_of,
    listen_address,
    log,
    log_trouble,
    protocol_of,
    text_of,
)
from ._engine import Engine
from ._flights import Flights
from ._peer import Peer
from ._requests import READ, WRITE, words

__all__ = ["TransferEngine"]

_PROBE_SECONDS = 3.0


class TransferEngine(EngineMemory):
    """One-sided reads and writes between the registered memory of processes, by host:port and address.

    Addresses are integers, lengths bytes. Unless a method says otherwise it returns 0 for success and a negative
    number for failure. Also a context manager; close() or the end of the object closes the engine.
    """

    def __init__(self) -> None:
        super().__init__()
        self._flights: Optional[Flights] = None  # there while _engine is
        self._peers: dict[str, Peer] = {}  # those of _flights

    # ---- Life

    def initialize(self, local_hostname: str, metadata_server: str, protocol: str, device_name: str) -> int:
        """Opens the engine.

        local_hostname: the host or host:port to listen on ("::1", "[::1]:5000" and names, too); a port that is left out
        or taken becomes any free one (see get_rpc_port). metadata_server: "P2PHANDSHAKE", or "http://host:port/path",
        where the engine is then known as local_hostname. protocol: "tcp" or "shm" restricts the paths to it; "" and
        several take the best to each peer, and so does, with a warning, one that this machine hasn't ("rdma").
        MC_FORCE_TCP in the environment, whatever its value, restricts them to TCP. device_name: not used by these
        paths.
        """
        return self.initialize_ext(local_hostname, metadata_server, protocol, device_name, "")

    def initialize_ext(
        self, local_hostname: str, metadata_server: str, protocol: str, device_name: str, metadata_type: str
    ) -> int:
        """As initialize(); metadata_type: the kind of directory ("http"), where metadata_server doesn't say it."""
        text_of(local_hostname, "local_hostname")
        text_of(metadata_server, "metadata_server")
        text_of(protocol, "protocol")
        text_of(device_name, "device_name")
        text_of(metadata_type, "metadata_type")
        with self._opening:
            if self._engine is not None:
                log("warning", "initialize: the engine is already initialised")
                return -1
            try:
                directory = directory_of(metadata_server, metadata_type)
                engine = _open(local_hostname, directory, protocol_of(protocol))
            except (MooncakeError, ValueError) as error:
                log("warning", "initialize: %s", error)
                return -1
            self._name = local_hostname
            self._engine, self._flights = engine, Flights(engine, self._peers)
        return 0

    def get_rpc_port(self) -> int:
        """The port that peers name; -1 before initialize()."""
        return -1 if self._engine is None or self._engine.closed else int(self._engine.address.rpartition(":")[2])

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
        if self._engine is None or self._flights is None:
            return
        self._flights.close()
        self._engine.close()
        self._engine = self._flights = None
        self._forget_memory()

    def __enter__(self) -> TransferEngine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            self.close()
        except MooncakeError:
            pass  # nobody is left to tell

    # ---- Transfers

    def transfer_sync_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Writes `length` bytes from the local address to the peer's; returns when the peer has them."""
        peer = self._peers.get(target_hostname)
        if peer is not None and type(buffer) is int and transport_hint == "":
            try:
                peer.write(buffer, peer_buffer_address, length)
                return 0
            except MooncakeError as error:
                if not self._may_repeat(error, target_hostname, peer):
                    return -1
        check_hint(transport_hint)
        return self._transfer(target_hostname, WRITE, (buffer,), (peer_buffer_address,), (length,))

    def transfer_sync_read(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Reads `length` bytes from the peer's address to the local one."""
        peer = self._peers.get(target_hostname)
        if peer is not None and type(buffer) is int and transport_hint == "":
            try:
                peer.read(buffer, peer_buffer_address, length)
                return 0
            except MooncakeError as error:
                if not self._may_repeat(error, target_hostname, peer):
                    return -1
        check_hint(transport_hint)
        return self._transfer(target_hostname, READ, (buffer,), (peer_buffer_address,), (length,))

    def batch_transfer_sync_write(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Many writes to one peer as one batch; 0 only when all of them are done."""
        check_hint(transport_hint)
        return self._transfer(target_hostname, WRITE, buffers, peer_buffer_addresses, lengths)

    def batch_transfer_sync_read(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Many reads from one peer as one batch; 0 only when all of them are done."""
        check_hint(transport_hint)
        return self._transfer(target_hostname, READ, buffers, peer_buffer_addresses, lengths)

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
        """A read or a write; when it is done the notification, if there is one, is put into the peer's queue."""
        opcode = TransferOpcode(opcode)
        if notify is None:
            single = self.transfer_sync_write if opcode else self.transfer_sync_read
            return single(target_hostname, buffer, peer_buffer_address, length, transport_hint)
        check_hint(transport_hint)
        return self._transfer(target_hostname, opcode, (buffer,), (peer_buffer_address,), (length,), notify)

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
        """Many reads or writes as one batch; when all are done, the notification, if there is one."""
        check_hint(transport_hint)
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
        check_hint(transport_hint)
        return self._begin(target_hostname, WRITE, buffers, peer_buffer_addresses, lengths)

    def batch_transfer_async_read(
        self,
        target_hostname: str,
        buffers: list[int],
        peer_buffer_addresses: list[int],
        lengths: list[int],
        transport_hint: str = "",
    ) -> int:
        """Begins a batch of reads; its id, or 0."""
        check_hint(transport_hint)
        return self._begin(target_hostname, READ, buffers, peer_buffer_addresses, lengths)

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
        check_hint(transport_hint)
        return self._begin(target_hostname, TransferOpcode(opcode), buffers, peer_buffer_addresses, lengths)

    def transfer_submit_write(
        self, target_hostname: str, buffer: int, peer_buffer_address: int, length: int, transport_hint: str = ""
    ) -> int:
        """Begins one write; its id, or 0."""
        check_hint(transport_hint)
        return self._begin(target_hostname, WRITE, (buffer,), (peer_buffer_address,), (length,))

    def transfer_check_status(self, batch_id: int) -> int:
        """1 when all of the batch is done, 0 while pending, -1 failed, -2 timed out. Any but 0 ends the id."""
        words((batch_id,))
        return self._finish(batch_id, 0.0)

    def get_batch_transfer_status(self, batch_ids: list[int]) -> int:
        """Waits for all the batches: 0 when all are done, else -1. The ids end with it."""
        results = [self._finish(batch_id, None) for batch_id in words(batch_ids)]
        return 0 if all(result == 1 for result in results) else -1

    def _may_repeat(self, error: MooncakeError, target: str, peer: Peer) -> bool:
        """Whether _transfer() shall try again; if not, a line in the log."""
        if self._flights is not None and self._flights.may_repeat(error, target, peer):
            return True
        log_trouble("transfer", target, error)
        return False

    def _transfer(
        self,
        target: str,
        opcode: int,
        buffers: Iterable[int],
        peer_buffers: Iterable[int],
        lengths: Iterable[int],
        notify: Optional[TransferNotify] = None,
    ) -> int:
        """A batch to its end, with the notification; 0 or -1."""
        if notify is not None and not isinstance(notify, TransferNotify):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"notify must be a TransferNotify, not {type(notify).__name__}")
        columns = self._columns(target, buffers, peer_buffers, lengths)
        flights = self._flights
        if columns is None or flights is None:
            return -1
        try:
            message = None if notify is None else (notify.name, notify.msg)
            if columns[0]:
                flights.run(target, opcode, *columns, message)
            elif message is not None:
                flights.peer(target).notify(*message)
        except MooncakeError as error:
            log_trouble("transfer", target, error)
            return -1
        return 0

    def _begin(
        self, target: str, opcode: int, buffers: Iterable[int], peer_buffers: Iterable[int], lengths: Iterable[int]
    ) -> int:
        """The id of a batch that flies now, or 0."""
        columns = self._columns(target, buffers, peer_buffers, lengths)
        flights = self._flights
        if columns is None or flights is None:
            return 0
        try:
            return flights.begin(target, opcode, *columns)
        except MooncakeError as error:
            log_trouble("transfer", target, error)
            return 0

    def _columns(
        self, target: str, buffers: Iterable[int], peer_buffers: Iterable[int], lengths: Iterable[int]
    ) -> Optional[tuple[array[int], array[int], array[int]]]:
        """The columns of a batch; None, and a line in the log, if they differ in length or there is no engine."""
        text_of(target, "target_hostname")
        local, remote, length = words(buffers), words(peer_buffers), words(lengths)
        if self._flights is None:
            self._not_open("transfer")
            return None
        if not len(local) == len(remote) == len(length):
            log("warning", "transfer: %d buffers, %d peer buffers, %d lengths", len(local), len(remote), len(length))
            return None
        return local, remote, length

    def _finish(self, batch_id: int, timeout: Optional[float]) -> int:
        """1 done, 0 pending, -1 failed, -2 timed out."""
        if self._flights is None:
            return self._not_open("transfer")
        try:
            return int(self._flights.finish(batch_id, timeout))
        except MooncakeError as error:
            log("warning", "transfer %d: %s", batch_id, error)
            return -2 if isinstance(error, errors.Timeout) else -1

    # ---- Peers

    def get_notifies(self) -> list[TransferNotify]:
        """Takes all notifications that have arrived."""
        notifies: list[TransferNotify] = []
        while self._engine is not None:
            try:
                arrived = self._engine.receive(0.0)
            except MooncakeError as error:
                log("warning", "get_notifies: %s", error)
                break
            if arrived is None:
                break
            name, message = arrived.name.decode("utf-8", "replace"), arrived.message.decode("utf-8", "replace")
            notifies.append(TransferNotify(name, message))
        return notifies

    def send_probe(self, peer_server_name: str) -> int:
        """0 if the peer is alive, else negative; takes at most 3 s once the peer is known."""
        text_of(peer_server_name, "peer_server_name")
        if self._flights is None:
            return self._not_open("send_probe")
        try:
            self._flights.probe(peer_server_name, _PROBE_SECONDS)
        except MooncakeError as error:
            log_trouble("send_probe", peer_server_name, error)
            return -1
        return 0

    def warmup_efa_segment(self, segment_name: str) -> int:
        """Does nothing: no EFA path needs it. Returns 0."""
        text_of(segment_name, "segment_name")
        return 0

    def get_local_topology(self, device_name: Optional[str] = None) -> str:
        """How near network cards are to memory, as JSON: {"cpu:0": [[preferred cards], [others]], …}.

        device_name: leaves only the cards that it names, with commas between them. Works before initialize(), too;
        "{}" if it can't be found out.
        """
        import json

        if device_name is not None:
            text_of(device_name, "device_name")
        try:
            if self._engine is not None:
                matrix = self._engine.topology()
            else:
                with Engine("127.0.0.1", directory="p2p") as engine:
                    matrix = engine.topology()
        except MooncakeError as error:
            log("warning", "get_local_topology: %s", error)
            return "{}"
        wanted = {name.strip() for name in (device_name or "").split(",")} - {""}
        if wanted:
            matrix = {
                place: [[card for card in cards if card in wanted] for cards in lists]
                for place, lists in matrix.items()
            }
        return json.dumps(matrix)


def _open(local_hostname: str, directory: str, protocol: Optional[str]) -> Engine:
    """The engine, on the port that was named if it is free, by the protocol that was named if the machine has it."""
    listen, may_be_taken = listen_address(local_hostname)
    name = None if directory == "p2p" else local_hostname
    try:
        return Engine(listen, protocol=protocol, directory=directory, name=name)
    except errors.System as error:
        if not may_be_taken:
            raise
        log("warning", "initialize: %s; any free port is taken", error)
        return _open(listen.rpartition(":")[0], directory, protocol)
    except errors.NotSupported as error:
        if protocol is None:
            raise
        log("warning", "initialize: protocol %r: %s; the best path to each peer is taken", protocol, error)
        return _open(local_hostname, directory, None)
