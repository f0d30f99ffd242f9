"""The transfers under TransferEngine: peers by host:port, opened on first use and again when they were restarted.

Flights belongs to one Engine. Failures raise mooncake.errors; TransferEngine makes numbers of them.
"""

from __future__ import annotations

import threading
from array import array
from typing import Optional

from .. import errors
from .._errors import MooncakeError, error_for
from .._native import PENDING, lib
from ._batch import Batch, Notify
from ._compat_values import log
from ._engine import Access, Engine
from ._peer import Peer
from ._requests import READ, pack_columns, pack_one

__all__ = ["Flights"]

# What says that a peer is gone. The paths that are left to a peer that is gone may be none at all.
_LOST = (errors.StalePeer, errors.Unreachable, errors.ConnectionLost, errors.InvalidHandle, errors.NotSupported)
_GONE_CODES = {kind.code for kind in (errors.StalePeer, errors.Unreachable, errors.ConnectionLost)}
# Answers after which another peer of the same name may be asked.
_RESTARTED = (errors.StalePeer, errors.InvalidHandle, errors.NotSupported)
# Answers after which a whole transfer may be begun again: with another peer, or when its local memory is registered.
_UNBEGUN = (*_RESTARTED, errors.NotRegistered)


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
                log("warning", "a buffer that was registered for one call stays registered: %s", error)

    def __del__(self) -> None:
        self.close()


class Flights:
    """The peers that an engine has opened by name, and its batches in flight by id. Any thread."""

    def __init__(self, engine: Engine, peers: dict[str, Peer]) -> None:
        self.engine = engine
        self._lock = threading.Lock()
        self._peers = peers
        self._flights: dict[int, _Flight] = {}

    def close(self) -> None:
        """Cancels what is in flight and forgets all peers. Usable again afterwards."""
        with self._lock:
            flights, self._flights = list(self._flights.values()), {}
            peers = list(self._peers.values())
            self._peers.clear()
        for flight in flights:
            flight.close()
        for peer in peers:
            peer.close()

    def peer(self, target: str) -> Peer:
        """The peer of that name, which is opened at the first call."""
        peer = self._peers.get(target)
        if peer is None:
            opened = self.engine.connect(target)  # without the lock: it may take seconds
            with self._lock:
                peer = self._peers.setdefault(target, opened)
            if peer is not opened:
                opened.close()
        return peer

    def probe(self, target: str, timeout: float) -> None:
        """Asks the peer for a sign of life; if the one that was known is gone, whoever is at the address now."""
        for last in (False, True):
            peer = self.peer(target)
            try:
                peer.probe(timeout)
                return
            except MooncakeError as error:
                if not self.drop_lost(error, target, peer) or last:
                    raise

    def run(
        self,
        target: str,
        opcode: int,
        local: array[int],
        remote: array[int],
        length: array[int],
        notify: Optional[Notify] = None,
    ) -> None:
        """One batch to its end; once more if its peer is gone and nothing of a write was begun."""
        for last in (False, True):
            flight = self._start(target, opcode, local, remote, length, driven=True, notify=notify)
            try:
                flight.batch.check(flight.batch.poll(None))
                if len(remote):
                    flight.peer.learn(remote[0])
                return
            except MooncakeError as error:
                self.drop_lost(error, target, flight.peer)
                if last or not _untouched(flight.batch, opcode):
                    raise
            finally:
                flight.close()

    def begin(self, target: str, opcode: int, local: array[int], remote: array[int], length: array[int]) -> int:
        """Submits a batch, which flies until finish() says that it has ended; its id."""
        flight = self._start(target, opcode, local, remote, length)
        self._flights[flight.batch.id] = flight
        return flight.batch.id

    def finish(self, batch_id: int, timeout: Optional[float]) -> bool:
        """True when all of the batch is done, False if it is pending after `timeout` seconds; any answer but that, also
        an exception, ends the flight. errors.InvalidHandle for an id that is none."""
        flight = self._flights.get(batch_id)
        if flight is None:
            raise error_for(lib.MC_ERR_INVALID_HANDLE, f"no transfer has the id {batch_id}")
        status = flight.batch.poll(timeout)
        if status == PENDING:
            return False
        self._flights.pop(batch_id, None)
        try:
            flight.batch.check(status)
        except MooncakeError as error:
            self.drop_lost(error, flight.target, flight.peer)
            raise
        finally:
            flight.close()
        return True

    def _start(
        self,
        target: str,
        opcode: int,
        local: array[int],
        remote: array[int],
        length: array[int],
        *,
        driven: bool = False,
        notify: Optional[Notify] = None,
    ) -> _Flight:
        """Submits one batch; once more if the known peer turns out to be gone. Nothing was begun if it raises."""
        try:
            return self._submit(target, opcode, local, remote, length, driven, notify)
        except _RESTARTED:
            return self._submit(target, opcode, local, remote, length, driven, notify)

    def _submit(
        self,
        target: str,
        opcode: int,
        local: array[int],
        remote: array[int],
        length: array[int],
        driven: bool,
        notify: Optional[Notify],
    ) -> _Flight:
        peer = self.peer(target)
        packed = (
            pack_columns(peer.id, opcode, local, remote, length)
            if len(local) != 1
            else pack_one(peer.id, opcode, local[0], remote[0], length[0])
        )
        flight = _Flight(self.engine, target, peer, len(local))
        try:
            try:
                flight.batch.start(self.engine.handle, packed, driven=driven, notify=notify)
            except errors.NotRegistered:
                if not flight.lend(local, length):
                    raise
                flight.batch.start(self.engine.handle, packed, driven=driven, notify=notify)
        except BaseException as error:
            flight.close()
            self.drop_lost(error, target, peer)
            raise
        return flight

    def may_repeat(self, error: MooncakeError, target: str, peer: Peer) -> bool:
        """After a failed transfer of one range: whether it may be made again, with whoever is at the address now."""
        if isinstance(error, _UNBEGUN):
            return True
        return self.drop_lost(error, target, peer) and error.untouched

    def drop_lost(self, error: BaseException, target: str, peer: Peer) -> bool:
        """Forgets the peer if the error says that it is gone, so that the next call resolves the name again."""
        if not isinstance(error, _LOST):
            return False
        with self._lock:
            if self._peers.get(target) is peer:
                del self._peers[target]
        peer.close()
        return True


def _untouched(batch: Batch, opcode: int) -> bool:
    """Whether every request failed for a peer that is gone, and a write before anything of it was moved or sent."""
    return all(
        row.code in _GONE_CODES and (opcode == READ or not (row.bytes or row.indeterminate)) for row in batch.status()
    )
