"""One engine under an RpcInterface, with the thread that takes its notifications.

Any thread sends; the endpoint's thread takes what arrives and never waits for a peer: answers go to whoever waits for
them, requests to the workers. Workers are daemon threads that are started when there is something to do.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from time import monotonic, sleep
from typing import Any, Callable, Optional

from .. import errors
from .._errors import MooncakeError
from .._native import lib
from . import _rpc_wire as wire
from ._compat_values import log, log_trouble
from ._engine import Access, Engine, Region
from ._memory import alloc
from ._peer import Peer

__all__ = ["Endpoint", "Workers"]

_BACKLOG_MAX = 4096
"""Requests that wait for a worker; further ones are dropped, and their senders time out."""

_GONE = (errors.StalePeer, errors.Unreachable, errors.ConnectionLost, errors.InvalidHandle)
_UNSENT = (errors.StalePeer, errors.Unreachable, errors.InvalidHandle)


class Workers:
    """At most `limit` threads, started on demand, which run what is submitted."""

    def __init__(self, limit: int) -> None:
        self._limit = max(1, limit)
        self._changed = threading.Condition()
        self._jobs: deque[Callable[[], None]] = deque()
        self._threads = self._idle = 0
        self._closed = False

    def submit(self, job: Callable[[], None]) -> bool:
        """False if too many jobs wait already, or the workers are closed."""
        with self._changed:
            if self._closed or len(self._jobs) >= _BACKLOG_MAX:
                return False
            self._jobs.append(job)
            if self._idle < len(self._jobs) and self._threads < self._limit:
                self._threads += 1
                threading.Thread(target=self._work, name="mooncake-rpc", daemon=True).start()
            self._changed.notify()
        return True

    def close(self) -> None:
        """What waits is dropped; what runs is let end."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                while not self._jobs and not self._closed:
                    self._changed.wait()
                self._idle -= 1
                if self._closed:
                    return
                job = self._jobs.popleft()
            try:
                job()
            except BaseException as error:  # a worker outlives its jobs
                log("error", "rpc: %r", error)


class _Call:
    """A request that waits for its answer."""

    __slots__ = ("answered", "status")

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.status = 0


class Endpoint:
    """serve: gets each request (sender, message), in the endpoint's thread. peers_max: how many peers are kept open."""

    def __init__(
        self, engine: Engine, peers_max: int, serve: Optional[Callable[[Endpoint, str, wire.Message], None]] = None
    ) -> None:
        self.engine = engine
        self._serve = serve
        self._peers_max = max(1, peers_max)
        self._lock = threading.Lock()
        self._peers: dict[str, Peer] = {}
        self._calls: dict[bytes, _Call] = {}
        self._lent: list[tuple[Region, Any]] = []  # what could not be taken back yet, because a peer was reading it
        self._wake = os.pipe()
        self._thread = threading.Thread(target=self._receive, name="mooncake-rpc", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread and closes the engine; calls that wait answer MC_ERR_CLOSED."""
        if self.engine.closed:
            return
        os.write(self._wake[1], b"x")
        if self._thread is not threading.current_thread():
            self._thread.join()
        with self._lock:
            calls, self._calls = list(self._calls.values()), {}
            peers, self._peers = list(self._peers.values()), {}
        for call in calls:
            call.status = lib.MC_ERR_CLOSED
            call.answered.set()
        for peer in peers:
            peer.close()
        try:
            self.engine.close()
        except MooncakeError as error:
            log("warning", "rpc: %s", error)
        for descriptor in self._wake:
            os.close(descriptor)

    def send(self, target: str, message: wire.Message, data: Any, timeout: float) -> int:
        """Sends a request with `data` (a contiguous buffer) and waits for the answer: its status, or a negative one."""
        end = monotonic() + timeout
        call, region, keep = _Call(), None, None
        message = message._replace(id=os.urandom(16), length=data.nbytes)
        with self._lock:
            self._calls[message.id] = call
        try:
            if data.nbytes <= wire.INLINE_MAX:
                message = message._replace(data=data.tobytes())
            else:
                region, keep = self._lend(data)
                message = message._replace(address=region.address)
            self.tell(target, wire.pack(message), end)
            if not call.answered.wait(max(0.0, end - monotonic())):
                return int(lib.MC_ERR_TIMEOUT)
            return call.status
        except MooncakeError as error:
            log_trouble("rpc", target, error)
            return error.code
        finally:
            with self._lock:
                self._calls.pop(message.id, None)
            if region is not None:
                self._take_back(region, keep)

    def tell(self, target: str, packed: bytes, end: float) -> None:
        """Puts a message into the queue of the engine at `target`; while that is full, again and again."""
        pause, again = 0.001, True
        while True:
            peer = self.peer(target)
            left = max(0.001, end - monotonic())
            try:
                return peer.notify(wire.NAME, packed, left)
            except errors.QueueFull:
                if pause > left:
                    raise
                sleep(pause)
                pause = min(2 * pause, 0.1)
            except _GONE as error:
                self._forget(target, peer)
                if not (again and isinstance(error, _UNSENT)):  # with the connection lost it may have arrived
                    raise
                again = False

    def fetch(self, sender: str, message: wire.Message) -> bytearray:
        """Reads the bytes of a request from its sender. They are allocated when their last one has been read, so that
        nobody has memory taken here that isn't lent there."""
        peer = self.peer(sender)
        try:
            last = bytearray(1)
            with self.engine.register(last, access=Access.NONE):
                peer.read(last, message.address + message.length - 1)
            data = bytearray(message.length)
            with self.engine.register(data, access=Access.NONE):
                peer.read(data, message.address)
        except _GONE:
            self._forget(sender, peer)
            raise
        return data

    def peer(self, address: str) -> Peer:
        """The peer at the address; the one that was opened first goes when there are too many."""
        peer = self._peers.get(address)
        if peer is None:
            opened = self.engine.connect(address)  # without the lock: it may take seconds
            with self._lock:
                peer = self._peers.setdefault(address, opened)
                if len(self._peers) > self._peers_max:
                    self._peers.pop(next(iter(self._peers)))
        return peer

    def _forget(self, address: str, peer: Peer) -> None:
        with self._lock:
            if self._peers.get(address) is peer:
                del self._peers[address]

    def _lend(self, data: Any) -> tuple[Region, Any]:
        """Registers the bytes for reading, or a copy of them if part of them is registered in another way."""
        while True:
            try:
                region, keep = self._lent.pop()
            except IndexError:
                break
            if not self._take_back(region, keep):
                break
        try:
            return self.engine.register(data, access=Access.READ), data
        except errors.Overlap:
            copy = alloc(data.nbytes)
            copy.view[:] = data
            return self.engine.register(copy, access=Access.READ), copy

    def _take_back(self, region: Region, keep: Any) -> bool:
        try:
            region.unregister()
        except errors.Busy:  # it is being read, for longer than a second: the next send() tries again
            self._lent.append((region, keep))
            return False
        except MooncakeError:
            pass  # the engine is closed, and nobody reaches the bytes any more
        return True

    def _receive(self) -> None:
        from select import POLLIN, poll

        poller = poll()
        poller.register(self.engine.fileno(), POLLIN)
        poller.register(self._wake[0], POLLIN)
        while not any(descriptor == self._wake[0] for descriptor, _ in poller.poll()):
            try:
                while (arrived := self.engine.receive(0.0)) is not None:
                    self._take(arrived.sender, arrived.name, arrived.message)
            except MooncakeError as error:
                log("warning", "rpc: %s", error)
                return

    def _take(self, sender: str, name: bytes, packed: bytes) -> None:
        try:
            if name != wire.NAME:
                raise ValueError("another notification")
            message = wire.parse(packed)
        except ValueError as error:
            log("warning", "rpc: %s sends what is no message: %s", sender, error)
            return
        if message.kind == wire.ANSWER:
            with self._lock:
                call = self._calls.pop(message.id, None)
            if call is not None:
                call.status = message.status
                call.answered.set()
        elif self._serve is not None:
            self._serve(self, sender, message)
