"""RpcInterface: bytes and tensors, answered when the other side's callback has returned."""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from mooncake.engine import CoroRPCInterface, Engine, ReceivedData, ReceivedTensor, RpcInterface, alloc
from mooncake.engine import _rpc_wire as wire

DATA = os.urandom(1 << 20)


@pytest.fixture
def server() -> Iterator[RpcInterface]:
    with RpcInterface() as opened:
        assert opened.initialize_server("127.0.0.1:0", 4)
        assert opened.start_server()
        yield opened


@pytest.fixture
def client() -> Iterator[RpcInterface]:
    with RpcInterface() as opened:
        assert opened.initialize_client(10, 10)
        yield opened


@pytest.mark.parametrize("size", [0, 1, 1000, wire.INLINE_MAX, wire.INLINE_MAX + 1, len(DATA)])
def test_what_is_sent_has_been_received_when_send_returns(
    server: RpcInterface, client: RpcInterface, size: int
) -> None:
    got: list[ReceivedData] = []
    server.set_data_receive_callback(got.append)
    assert client.send_data(server.address, DATA[:size]) == 0
    (data,) = got
    assert data.data_size == size
    assert data.get_bytes() == DATA[:size]
    assert data.get_memory_view() == DATA[:size]
    assert data.get_memory_view().readonly
    assert data.source_address.startswith("127.0.0.1:")


def test_anything_with_a_buffer_can_be_sent(server: RpcInterface, client: RpcInterface) -> None:
    got: list[bytes] = []
    server.set_data_receive_callback(lambda data: got.append(data.get_bytes()))
    for data in (b"bytes", bytearray(b"array"), memoryview(DATA)[10:90_000], "grüß", array("d", [1.5])):
        assert client.send_data(server.address, data) == 0
    assert got == [b"bytes", b"array", DATA[10:90_000], "grüß".encode(), array("d", [1.5]).tobytes()]
    for wrong in (memoryview(DATA)[::2], 7, None):
        with pytest.raises((TypeError, BufferError)):
            client.send_data(server.address, wrong)


def test_parts_of_one_buffer_can_be_sent_at_once(server: RpcInterface, client: RpcInterface) -> None:
    got: queue.Queue[bytes] = queue.Queue()
    server.set_data_receive_callback(lambda data: got.put(data.get_bytes()))
    view = memoryview(bytearray(DATA))
    parts = [view[k * 1000 : k * 1000 + 100_000] for k in range(20)]
    threads = [threading.Thread(target=client.send_data, args=(server.address, part)) for part in parts * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got.get_nowait() for _ in range(40)) == sorted(bytes(part) for part in parts * 2)


def test_tensors_have_shape_and_dtype(server: RpcInterface, client: RpcInterface) -> None:
    got: list[ReceivedTensor] = []
    server.set_tensor_receive_callback(got.append)
    numbers = array("f", range(12))
    assert client.send_tensor(server.address, memoryview(numbers).cast("B").cast("f", (3, 4))) == 0
    assert (got[0].shape, got[0].dtype, got[0].total_bytes, got[0].get_data_size()) == ([3, 4], "float32", 48, 48)
    assert got[0].get_data_as_bytes() == numbers.tobytes()
    assert got[0].get_memory_view().cast("f", (3, 4)).tolist()[2] == [8.0, 9.0, 10.0, 11.0]

    class Tensor(bytearray):
        dtype = "bfloat16"

    assert client.send_tensor(server.address, Tensor(DATA)) == 0
    assert (got[1].dtype, got[1].shape, got[1].get_data_as_bytes()) == ("bfloat16", [len(DATA)], DATA)
    Tensor.dtype = "[('field', '<i4')]"
    assert client.send_tensor(server.address, Tensor(b"x")) < 0


def test_objects_and_pointers_are_no_tensors(server: RpcInterface, client: RpcInterface) -> None:
    import ctypes

    for kind in (ctypes.py_object * 2, ctypes.c_void_p * 2):
        with pytest.raises(TypeError):
            client.send_tensor(server.address, kind())


def test_numpy_arrays_are_tensors(server: RpcInterface, client: RpcInterface) -> None:
    numpy = pytest.importorskip("numpy")
    got: list[ReceivedTensor] = []
    server.set_tensor_receive_callback(got.append)
    for value in (numpy.arange(24, dtype="int16").reshape(2, 3, 4), numpy.ones((300, 300)).T[::2], numpy.float32(3)):
        assert client.send_tensor(server.address, value) == 0
        back = numpy.frombuffer(got[-1].get_memory_view(), dtype=got[-1].dtype).reshape(got[-1].shape)
        assert (back == value).all()


def test_sends_can_be_awaited(server: RpcInterface, client: RpcInterface) -> None:
    got: queue.Queue[bytes] = queue.Queue()
    server.set_data_receive_callback(lambda data: got.put(data.get_bytes()))

    async def send() -> None:
        loop = asyncio.get_running_loop()
        sends = [client.send_data_async(server.address, DATA[: 5000 * k], loop) for k in range(20)]
        assert await asyncio.gather(*sends) == [0] * 20
        assert await client.send_tensor_async(server.address, array("i", [1]), loop) < 0
        with pytest.raises(TypeError):
            await client.send_data_async(server.address, 7, loop)

    asyncio.run(asyncio.wait_for(send(), 30))
    assert sorted(len(got.get_nowait()) for _ in range(20)) == [5000 * k for k in range(20)]


def test_a_failure_is_negative(server: RpcInterface, client: RpcInterface, caplog: pytest.LogCaptureFixture) -> None:
    assert client.send_data(server.address, b"nobody listens to it") < 0

    def fail(data: ReceivedData) -> None:
        raise KeyError("mine")

    with caplog.at_level(logging.WARNING, "mooncake.engine"):
        server.set_data_receive_callback(fail)
        assert client.send_data(server.address, b"x") < 0
        assert "KeyError('mine')" in caplog.text
    server.set_data_receive_callback(lambda data: None)
    assert client.send_data(server.address, b"x") == 0
    server.max_bytes = 50_000
    assert client.send_data(server.address, DATA) < 0
    assert client.send_data(server.address, DATA[:50_000]) == 0
    for wrong in ("127.0.0.1:1", "127.0.0.1", "", "no.such.host.invalid:5"):
        assert client.send_data(wrong, b"x") < 0
    with pytest.raises(TypeError):
        client.send_data(7, b"x")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        server.set_data_receive_callback(7)  # type: ignore[arg-type]
    assert RpcInterface().send_data(server.address, b"x") < 0


def test_a_send_waits_no_longer_than_its_time(server: RpcInterface) -> None:
    go_on = threading.Event()
    server.set_data_receive_callback(lambda data: go_on.wait(20))
    with RpcInterface() as client:
        assert client.initialize_client(10, 1)
        start = time.monotonic()
        assert client.send_data(server.address, DATA) < 0
        assert time.monotonic() - start < 5
        go_on.set()
        server.set_data_receive_callback(lambda data: None)
        assert client.send_data(server.address, DATA) == 0


def test_a_callback_may_send(server: RpcInterface, client: RpcInterface) -> None:
    got: list[bytes] = []
    with RpcInterface() as both:
        assert both.initialize("127.0.0.1:0", 2)
        assert both.start_server()
        both.set_data_receive_callback(lambda data: got.append(data.get_bytes()))
        assert server.initialize_client()
        server.set_data_receive_callback(lambda data: got.append(bytes([server.send_data(both.address, b"on")])))
        assert client.send_data(server.address, b"x") == 0
    assert got == [b"on", b"\0"]


def test_hostile_messages_reach_no_callback_and_take_no_memory(
    server: RpcInterface, client: RpcInterface, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[bytes] = []
    server.set_data_receive_callback(lambda data: got.append(data.get_bytes()))
    with Engine() as engine, alloc(4096) as memory, engine.register(memory), engine.connect(server.address) as peer:
        before = resident()
        for address, length in ((memory.address, 1 << 30), (8, 1 << 31), (memory.address + 4095, 2), (1, 2**63)):
            peer.notify(wire.NAME, wire.pack(wire.Message(wire.DATA, os.urandom(16), 0, address, length)))
            arrived = engine.receive(10)
            assert arrived is not None
            assert wire.parse(arrived.message).status < 0
        for noise in (b"", b"\x01", os.urandom(60), os.urandom(60_000)):
            peer.notify(wire.NAME, noise)
            peer.notify("another", noise)
        peer.notify(wire.NAME, wire.pack(wire.Message(wire.ANSWER, os.urandom(16), -5)))
        assert resident() - before < 100 << 20
    assert client.send_data(server.address, b"still there") == 0
    assert got == [b"still there"]


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_server_is_stopped_and_started_again(client: RpcInterface, caplog: pytest.LogCaptureFixture) -> None:
    with CoroRPCInterface() as server:
        assert not server.start_server()
        assert server.address == ""
        assert server.initialize_server("127.0.0.1:0")
        assert not server.initialize_server("127.0.0.1:0")
        assert server.start_server_async()
        assert not server.start_server()
        with RpcInterface() as other:
            assert other.initialize_server(server.address)
            assert not other.start_server(), "the port is taken"
        address = server.address
        server.set_data_receive_callback(lambda data: None)
        assert client.send_data(address, b"x") == 0
        server.stop_server()
        server.stop_server()
        assert client.send_data(address, b"x") < 0
        assert server.start_server()
        assert client.send_data(server.address, b"x") == 0
    assert not RpcInterface().initialize(pool_size=0)
    assert not RpcInterface().initialize_server("127.0.0.1:0", 0)


def test_a_server_may_listen_on_every_address(client: RpcInterface) -> None:
    with RpcInterface() as server:
        assert server.initialize("0.0.0.0:0", 1)
        assert server.start_server()
        server.set_data_receive_callback(lambda data: None)
        port = server.address.rpartition(":")[2]
        assert client.send_data(f"127.0.0.1:{port}", DATA) == 0
        assert client.send_data(server.address, DATA) == 0


def test_an_idle_interface_uses_no_processor(server: RpcInterface, client: RpcInterface) -> None:
    server.set_data_receive_callback(lambda data: None)
    assert client.send_data(server.address, DATA) == 0
    before = time.process_time()
    time.sleep(1)
    assert time.process_time() - before < 0.02


ENDS = """
from mooncake.engine import RpcInterface
server, client = RpcInterface(), RpcInterface()
assert server.initialize("127.0.0.1:0") and server.start_server() and client.initialize()
server.set_data_receive_callback(lambda data: print(data.data_size, flush=True))
assert client.send_data(server.address, bytes(100_000)) == 0
"""


def test_a_program_may_end_with_everything_open() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "100000\n", "")


SERVER = """
import sys
from mooncake.engine import RpcInterface
server = RpcInterface()
assert server.initialize("127.0.0.1:0") and server.start_server()
server.set_data_receive_callback(lambda data: print(data.data_size, sum(data.get_memory_view()[:100]), flush=True))
print(server.address, flush=True)
sys.stdin.read()
"""


def test_another_process_receives(client: RpcInterface) -> None:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER], **pipes) as there:
        assert there.stdout is not None
        address = there.stdout.readline().strip()
        assert client.send_data(address, b"\x01" * 5_000_000) == 0
        assert there.stdout.readline() == "5000000 100\n"
        there.kill()
        there.wait()
        start = time.monotonic()
        assert client.send_data(address, b"x") < 0
        assert time.monotonic() - start < 9


def test_a_callback_that_wants_to_end_the_program_ends_no_worker(server: RpcInterface, client: RpcInterface) -> None:
    def leave(_: ReceivedData) -> None:
        raise SystemExit(3)

    def interrupt(_: ReceivedData) -> None:
        raise KeyboardInterrupt

    for callback in (leave, interrupt):
        server.set_data_receive_callback(callback)
        for _ in range(5):  # there are 4 workers
            assert client.send_data(server.address, b"x") == -1
    server.set_data_receive_callback(lambda _: None)
    assert client.send_data(server.address, b"x") == 0


@pytest.mark.parametrize("timeout", [float("inf"), 1e300])
def test_a_send_may_take_for_ever(server: RpcInterface, timeout: float) -> None:
    server.set_data_receive_callback(lambda _: None)
    with RpcInterface() as client:
        assert client.initialize_client(1, timeout)  # pyright: ignore
        assert client.send_data(server.address, b"x") == 0
