"""RpcInterface: bytes and tensors from process to process, each answered when the other side's callback has returned.

Large ones are lent by the sender and read one-sided by the receiver, by the fastest path that they share. As elsewhere
in the compatible interface failures are False or negative numbers, with a line in the log.
"""

from __future__ import annotations

import sys
import threading
from time import monotonic
from typing import Any, Callable, Optional

from .._errors import MooncakeError, error_for
from .._native import Unique, ffi, lib
from . import _rpc_wire as wire
from ._compat_values import log, log_trouble, text_of
from ._engine import Engine
from ._rpc_endpoint import Endpoint, Workers

__all__ = ["CoroRPCInterface", "ReceivedData", "ReceivedTensor", "RpcInterface"]

_FORMATS = {
    "?": "bool", "b": "int8", "B": "uint8", "c": "uint8", "h": "int16", "H": "uint16", "i": "int32", "I": "uint32",
    "l": "int64", "L": "uint64", "q": "int64", "Q": "uint64", "e": "float16", "f": "float32", "d": "float64",
}  # fmt: skip


class ReceivedData:
    """What a data callback gets: bytes, and the address of the sender."""

    def __init__(self, source_address: str = "", data: bytes | bytearray = b"") -> None:
        self.source_address = source_address
        self._data = data

    @property
    def data_size(self) -> int:
        """In bytes."""
        return len(self._data)

    def get_bytes(self) -> bytes:
        """A copy of the bytes."""
        return bytes(self._data)

    def get_memory_view(self) -> memoryview:
        """The bytes themselves, read-only. They live as long as a view of them."""
        return memoryview(self._data).toreadonly()


class ReceivedTensor:
    """What a tensor callback gets. dtype: as str(tensor.dtype) says it at the sender; shape: a list of int."""

    def __init__(
        self,
        source_address: str = "",
        data: bytes | bytearray = b"",
        shape: tuple[int, ...] = (),
        dtype: str = "",
    ) -> None:
        self.source_address = source_address
        self.shape = list(shape)
        self.dtype = dtype
        self._data = data

    @property
    def total_bytes(self) -> int:
        """Of the elements."""
        return len(self._data)

    def get_data_size(self) -> int:
        """As total_bytes."""
        return len(self._data)

    def get_data_as_bytes(self) -> bytes:
        """A copy of the elements, in C order."""
        return bytes(self._data)

    def get_memory_view(self) -> memoryview:
        """The bytes of the elements, in C order and read-only; numpy.frombuffer or torch.frombuffer make them one."""
        return memoryview(self._data).toreadonly()


class RpcInterface(Unique):
    """Sends bytes and tensors to the RpcInterface that listens at an address, and receives them by callbacks.

    Callbacks run in threads of the interface, several at once. Also a context manager; close() ends it.
    """

    max_bytes = 4 << 30
    """What is received in one message at most."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timeout = 30.0
        self._pool_size = 100
        self._clients: Optional[dict[str, Endpoint]] = None  # by the local host that leads to a target
        self._senders: Optional[Workers] = None
        self._listen: Optional[str] = None
        self._threads = 8
        self._server: Optional[Endpoint] = None
        self._workers: Optional[Workers] = None
        self._on_data: Optional[Callable[[ReceivedData], Any]] = None
        self._on_tensor: Optional[Callable[[ReceivedTensor], Any]] = None

    # ---- Life

    def initialize(
        self, listen_address: str = "", thread_count: int = 0, timeout_seconds: int = 30, pool_size: int = 100
    ) -> bool:
        """A client, and with an address a server too, which start_server() starts."""
        if not self.initialize_client(pool_size, timeout_seconds):
            return False
        return not listen_address or self.initialize_server(listen_address, thread_count or 8, timeout_seconds)

    def initialize_client(self, pool_size: int = 100, timeout_seconds: int = 30) -> bool:
        """pool_size: how many peers are kept connected, and asynchronous sends run at once; timeout_seconds: what a
        send may take."""
        if pool_size < 1 or not timeout_seconds > 0:
            log("warning", "rpc: pool_size and timeout_seconds must be above 0")
            return False
        self._pool_size, self._timeout = pool_size, min(float(timeout_seconds), threading.TIMEOUT_MAX)
        with self._lock:
            if self._clients is None:
                self._clients, self._senders = {}, Workers(pool_size)
        return True

    def initialize_server(self, listen_address: str, thread_count: int = 8, timeout_seconds: int = 30) -> bool:
        """Binds the address ("host:port"; "0.0.0.0:port" is every one). thread_count: callbacks that run at once."""
        text_of(listen_address, "listen_address")
        if thread_count < 1 or not timeout_seconds > 0:
            log("warning", "rpc: thread_count and timeout_seconds must be above 0")
            return False
        if self._listen is not None:
            log("warning", "rpc: the server is initialised already")
            return False
        self._listen, self._threads = listen_address, thread_count
        self._timeout = min(float(timeout_seconds), threading.TIMEOUT_MAX)
        return True

    def start_server(self) -> bool:
        """From now on messages are received; returns at once. False if the address can't be bound."""
        with self._lock:
            if self._listen is None or self._server is not None:
                log("warning", "rpc: start_server: %s", "not initialised" if self._listen is None else "it runs")
                return False
            try:
                engine = Engine(self._listen, advertise=_advertised(self._listen))
            except (MooncakeError, OSError) as error:
                log("warning", "rpc: start_server: %s", error)
                return False
            self._workers = Workers(self._threads)
            self._server = Endpoint(engine, self._pool_size, self._receive)
        return True

    def start_server_async(self) -> bool:
        """As start_server()."""
        return self.start_server()

    def stop_server(self) -> None:
        """Nothing is received any more; start_server() may start it again."""
        with self._lock:
            server, self._server = self._server, None
            workers, self._workers = self._workers, None
        if workers is not None:
            workers.close()
        if server is not None:
            server.close()

    def close(self) -> None:
        """Stops the server and ends what is being sent; a second call does nothing."""
        self.stop_server()
        with self._lock:
            clients, self._clients = self._clients, None
            senders, self._senders = self._senders, None
        if senders is not None:
            senders.close()
        for endpoint in (clients or {}).values():
            endpoint.close()

    def __enter__(self) -> RpcInterface:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not sys.is_finalizing():  # then its threads don't run any more, and can't be waited for
            self.close()

    @property
    def address(self) -> str:
        """The "host:port" of the running server; empty if there is none."""
        return "" if self._server is None else self._server.engine.address

    # ---- Sending

    def send_data(self, target_address: str, data: object) -> int:
        """Sends what has a buffer, or a str as UTF-8. 0 when the other side's callback has returned, else negative."""
        view = _flat(data.encode() if isinstance(data, str) else data)
        return self._send(target_address, wire.Message(wire.DATA, b""), view)

    def send_tensor(self, target_address: str, tensor: object) -> int:
        """Sends a torch tensor, a numpy array, or another object with a typed buffer, as send_data() does."""
        view, dtype, shape, itemsize = _tensor_of(tensor)
        return self._send(target_address, wire.Message(wire.TENSOR, b"", 0, 0, 0, dtype, itemsize, shape), view)

    def send_data_async(self, target_address: str, data: object, loop: object) -> Any:
        """send_data() as a future of the asyncio loop. Don't change the data before it is done."""
        return self._later(loop, lambda: self.send_data(target_address, data))

    def send_tensor_async(self, target_address: str, tensor: object, loop: object) -> Any:
        """send_tensor() as a future of the asyncio loop. Don't change the tensor before it is done."""
        return self._later(loop, lambda: self.send_tensor(target_address, tensor))

    def _send(self, target: str, message: wire.Message, data: memoryview) -> int:
        text_of(target, "target_address")
        try:
            wire.pack(message._replace(id=bytes(16)))
            endpoint = self._client_for(target)
        except (MooncakeError, OSError, ValueError) as error:
            log_trouble("rpc", target, error)
            return error.code if isinstance(error, MooncakeError) else int(lib.MC_ERR_INTERNAL)
        return endpoint.send(target, message, data, self._timeout)

    def _client_for(self, target: str) -> Endpoint:
        """The endpoint at the local address from which the target is reached, so that it can answer there."""
        if self._clients is None:
            raise ValueError("the client is not initialised")
        host = _local_host(target)
        endpoint = self._clients.get(host)
        if endpoint is None:
            with self._lock:
                clients = self._clients
                endpoint = clients.get(host)
                if endpoint is None:
                    endpoint = clients[host] = Endpoint(Engine(host), self._pool_size)
        return endpoint

    def _later(self, loop: Any, send: Callable[[], int]) -> Any:
        future = loop.create_future()

        def settle(value: Any, error: Optional[BaseException] = None) -> None:
            if not future.done():
                future.set_exception(error) if error is not None else future.set_result(value)

        def job() -> None:
            try:
                outcome: tuple[Any, ...] = (send(),)
            except Exception as error:
                outcome = (None, error)
            try:
                loop.call_soon_threadsafe(settle, *outcome)
            except RuntimeError:
                pass  # the loop is closed, and nobody waits any more

        if self._senders is None or not self._senders.submit(job):
            log("warning", "rpc: %s", "the client is not initialised" if self._senders is None else "too many sends")
            future.set_result(int(lib.MC_ERR_TOO_MANY))
        return future

    # ---- Receiving

    def set_data_receive_callback(self, callback: Callable[[ReceivedData], Any]) -> None:
        """Is called with each ReceivedData."""
        self._on_data = _callable(callback)

    def set_tensor_receive_callback(self, callback: Callable[[ReceivedTensor], Any]) -> None:
        """Is called with each ReceivedTensor."""
        self._on_tensor = _callable(callback)

    def _receive(self, endpoint: Endpoint, sender: str, message: wire.Message) -> None:
        """In the endpoint's thread: hands the request to a worker."""
        workers = self._workers
        if workers is None or not workers.submit(lambda: self._serve(endpoint, sender, message)):
            log("warning", "rpc: a message of %s is dropped, too many wait", sender)

    def _serve(self, endpoint: Endpoint, sender: str, message: wire.Message) -> None:
        """In a worker: fetches the bytes, calls back, answers."""
        status = 0
        try:
            if message.length > self.max_bytes:
                status = int(lib.MC_ERR_TOO_LARGE)
            else:
                self._deliver(sender, message, endpoint.fetch(sender, message) if message.address else message.data)
        except MooncakeError as error:
            log_trouble("rpc", sender, error)
            status = error.code
        except BaseException as error:  # also sys.exit(): whoever waits for the answer gets one, and the worker goes on
            log("error", "rpc: the callback for a message of %s failed: %r", sender, error)
            status = int(lib.MC_ERR_INTERNAL)
        try:
            endpoint.tell(sender, wire.pack(wire.Message(wire.ANSWER, message.id, status)), monotonic() + self._timeout)
        except MooncakeError as error:
            log_trouble("rpc: no answer goes out", sender, error)

    def _deliver(self, sender: str, message: wire.Message, data: bytes | bytearray) -> None:
        if message.kind == wire.DATA and self._on_data is not None:
            self._on_data(ReceivedData(sender, data))
        elif message.kind == wire.TENSOR and self._on_tensor is not None:
            self._on_tensor(ReceivedTensor(sender, data, message.shape, message.dtype))
        else:
            raise error_for(lib.MC_ERR_NOT_SUPPORTED, "there is no callback for it")


CoroRPCInterface = RpcInterface


def _callable(callback: Any) -> Any:
    if not callable(callback):
        raise TypeError(f"a callback must be callable, not {type(callback).__name__}")
    return callback


def _flat(value: Any) -> memoryview:
    """The bytes of a contiguous buffer of any type; TypeError or BufferError for another one."""
    return memoryview(ffi.buffer(ffi.from_buffer(value)))


def _tensor_of(tensor: Any) -> tuple[memoryview, str, tuple[int, ...], int]:
    """(bytes, dtype, shape, itemsize). torch is used where the program has loaded it."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        flat: Any = tensor.detach().cpu().contiguous()
        data = _flat(flat.reshape(-1).view(torch.uint8).numpy())
        return data, str(tensor.dtype), tuple(tensor.shape), tensor.element_size()
    view = memoryview(tensor)
    if "O" in view.format or "P" in view.format:
        raise TypeError("a tensor of Python objects or pointers means nothing to another process")
    if not view.c_contiguous and hasattr(tensor, "copy"):
        tensor = tensor.copy(order="C")
    dtype = getattr(tensor, "dtype", None)
    name = _FORMATS.get(view.format.lstrip("@=<"), view.format) if dtype is None else str(dtype)
    return _flat(tensor), name, view.shape or (), view.itemsize


def _host_and_port(address: str) -> tuple[str, str]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def _route(host: str, port: str) -> str:
    """The local address from which a host is reached. Sends nothing: a UDP socket only looks for the way."""
    import socket

    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(place)
        found = probe.getsockname()[0]
    return f"[{found}]" if ":" in found else found


def _local_host(target: str) -> str:
    host, port = _host_and_port(target)
    if not host or not port.isdigit():
        raise ValueError(f"an address is host:port, not {target!r}")
    return _route(host, port)


def _advertised(listen: str) -> Optional[str]:
    """For a server that listens on every address: the one from which the default route leaves."""
    host, port = _host_and_port(listen) if ":" in listen else (listen, "")
    if host not in ("0.0.0.0", "::", ""):
        return None
    for outside, inside in (("192.0.2.1", "127.0.0.1"), ("2001:db8::1", "[::1]")):
        if (":" in outside) == (host == "::"):
            try:
                return _route(outside, port or "9")
            except OSError:
                return inside
    return None
