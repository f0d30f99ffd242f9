"""Each call with arguments that make no sense: a clear error, never a crash, and the engine works on."""

from __future__ import annotations

import copy
import pickle
import socket
import threading
import time
from typing import Any

import pytest

from mooncake import errors
from mooncake.engine import (
    READ,
    WRITE,
    Engine,
    Queue,
    Request,
    RpcInterface,
    SharedSegment,
    TransferEngine,
    TransferNotify,
    TransferOpcode,
    alloc,
)

HUGE = 2**64 - 1
MISTYPED = ("1", 1.0, None, b"1", [1], object())


@pytest.fixture
def path() -> str:
    return "self"


def test_calls_before_initialize_and_after_close_are_negative() -> None:
    engine = TransferEngine()
    for _ in range(2):
        assert engine.get_rpc_port() == -1
        assert engine.register_memory(4096, 1) == -1
        assert engine.unregister_memory(4096) == -1
        assert engine.batch_register_memory([4096], [1]) == -1
        assert engine.batch_unregister_memory([4096]) == -1
        assert engine.transfer_sync_write("127.0.0.1:1", 1, 1, 1) == -1
        assert engine.transfer_sync_read("127.0.0.1:1", 1, 1, 1) == -1
        assert engine.batch_transfer_sync_write("127.0.0.1:1", [1], [1], [1]) == -1
        assert engine.batch_transfer_async_read("127.0.0.1:1", [1], [1], [1]) == 0
        assert engine.transfer_submit_write("127.0.0.1:1", 1, 1, 1) == 0
        assert engine.transfer_check_status(1) == -1
        assert engine.get_batch_transfer_status([1]) == -1
        assert engine.send_probe("127.0.0.1:1") == -1
        assert engine.get_notifies() == []
        assert engine.allocate_managed_buffer(4096) == 0
        assert engine.free_managed_buffer(4096, 4096) < 0
        assert engine.get_first_buffer_address("127.0.0.1:1") == 0
        engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
        engine.close()
        engine.close()


def test_strings_are_strings(old: TransferEngine) -> None:
    for wrong in (None, 1, b"127.0.0.1", ["127.0.0.1"]):
        for call in (
            lambda: TransferEngine().initialize(wrong, "P2PHANDSHAKE", "tcp", ""),  # noqa: B023
            lambda: TransferEngine().initialize("127.0.0.1", wrong, "tcp", ""),  # noqa: B023
            lambda: TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", wrong, ""),  # noqa: B023
            lambda: TransferEngine().initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", wrong),  # noqa: B023
            lambda: old.transfer_sync_write(wrong, 1, 1, 1),  # noqa: B023
            lambda: old.batch_transfer_async_write(wrong, [1], [1], [1]),  # noqa: B023
            lambda: old.transfer_sync_write("127.0.0.1:1", 1, 1, 1, wrong),  # noqa: B023
            lambda: old.send_probe(wrong),  # noqa: B023
            lambda: old.register_memory(1, 1, wrong),  # noqa: B023
            lambda: old.warmup_efa_segment(wrong),  # noqa: B023
            lambda: old.get_first_buffer_address(wrong),  # noqa: B023
        ):
            with pytest.raises(TypeError):
                call()


def test_integers_are_integers_of_64_bits(old: TransferEngine) -> None:
    target = f"127.0.0.1:{old.get_rpc_port()}"
    calls: list[Any] = [
        lambda x: old.transfer_sync_write(target, x, 1, 1),
        lambda x: old.transfer_sync_read(target, 1, x, 1),
        lambda x: old.transfer_sync(target, 1, 1, x, TransferOpcode.Read),
        lambda x: old.batch_transfer_sync_write(target, [x], [1], [1]),
        lambda x: old.batch_transfer_sync_read(target, [1], [x], [1]),
        lambda x: old.batch_transfer_async_write(target, [1], [1], [x]),
        lambda x: old.transfer_submit_write(target, x, 1, 1),
        lambda x: old.register_memory(x, 1),
        lambda x: old.register_memory(1, x),
        lambda x: old.unregister_memory(x),
        lambda x: old.batch_register_memory([x], [1]),
        lambda x: old.batch_unregister_memory([x]),
        lambda x: old.transfer_check_status(x),
        lambda x: old.get_batch_transfer_status([x]),
        lambda x: old.read_bytes_from_buffer(x, 1),
        lambda x: old.write_bytes_to_buffer(x, "1", 1),
    ]
    for call in calls:
        for wrong in MISTYPED:
            with pytest.raises(TypeError):
                call(wrong)
        for wrong in (-1, HUGE + 1):
            with pytest.raises(ValueError, match="from 0 to"):
                call(wrong)
    for wrong in (*MISTYPED, -1, HUGE + 1):
        with pytest.raises((TypeError, ValueError)):
            old.allocate_managed_buffer(wrong)  # type: ignore[arg-type]


def test_senseless_numbers_are_negative(old: TransferEngine) -> None:
    target = f"127.0.0.1:{old.get_rpc_port()}"
    address = old.allocate_managed_buffer(4096)
    for local, remote, length in (
        (0, address, 1),
        (address, 0, 1),
        (HUGE, address, 1),
        (address, HUGE, 1),
        (address, address, HUGE),
        (address, address, 4097),
        (address + 1, address, 4096),
        (address, address + 1, 4096),
        (HUGE - 10, HUGE - 10, 100),
        (1, 1, 1),
    ):
        assert old.transfer_sync_write(target, local, remote, length) < 0
        assert old.transfer_sync_read(target, local, remote, length) < 0
    for address_, length in ((0, 1), (1, 0), (HUGE, 1), (1, HUGE), (HUGE, HUGE), (4096, 4096)):
        assert old.register_memory(address_, length) < 0
    assert old.register_memory(address + 8192 * 1024, 1, "nowhere:9") < 0
    assert old.transfer_sync_write(target, address, address + 100, 100) == 0


def test_lists_of_unequal_length_are_negative(old: TransferEngine) -> None:
    target = f"127.0.0.1:{old.get_rpc_port()}"
    assert old.batch_transfer_sync_write(target, [1, 2], [1], [1]) < 0
    assert old.batch_transfer_sync_read(target, [1], [1, 2], [1]) < 0
    assert old.batch_transfer_sync(target, [1], [1], [], TransferOpcode.Read) < 0
    assert old.batch_transfer_async_write(target, [1], [1], []) == 0
    assert old.batch_transfer_async_write(target, [], [], []) == 0


@pytest.mark.parametrize("name", ["", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:x", "127.0.0.1:70000",
                                  "127.0.0.1:1:1", "a b:1", "\x00:1", "[::1:5", "é:5"])  # fmt: skip
def test_a_malformed_peer_name_is_negative(old: TransferEngine, name: str) -> None:
    address = old.allocate_managed_buffer(4096)
    assert old.transfer_sync_write(name, address, address, 1) < 0
    assert old.send_probe(name) < 0
    with pytest.raises((errors.Address, errors.NameNotFound, errors.Unreachable, errors.InvalidArgument)):
        old.get_engine().connect(name)


def test_nobody_at_the_address_is_an_error_with_the_address_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with Engine("127.0.0.1", connect_timeout=2) as engine:
        start = time.monotonic()
        with pytest.raises(errors.Unreachable, match=f"127.0.0.1:{port}"):
            engine.connect(f"127.0.0.1:{port}")
        assert time.monotonic() - start < 3


def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Engine("127.0.0.1", connect_timeout=1) as engine:
        start = time.monotonic()
        with pytest.raises((errors.Unreachable, errors.Timeout)):
            engine.connect(f"127.0.0.1:{server.getsockname()[1]}")
        assert time.monotonic() - start < 3


def test_unknown_hints_opcodes_and_notifications_are_refused(old: TransferEngine) -> None:
    target = f"127.0.0.1:{old.get_rpc_port()}"
    address = old.allocate_managed_buffer(4096)
    with pytest.raises(ValueError, match="transport_hint"):
        old.transfer_sync_write(target, address, address, 1, "carrier pigeon")
    assert old.transfer_sync_write(target, address, address + 8, 8, "rdma") == 0
    with pytest.raises(ValueError, match="7"):
        old.transfer_sync(target, address, address, 1, 7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        old.transfer_sync(target, address, address, 1, TransferOpcode.Read, "done")  # type: ignore[arg-type]
    notify = TransferNotify()
    assert (notify.name, notify.msg) == ("", "")


def test_bytes_are_copied_in_and_out_within_bounds(old: TransferEngine) -> None:
    address = old.allocate_managed_buffer(4096)
    assert old.write_bytes_to_buffer(address, "grüß", 3) == 0
    assert old.read_bytes_from_buffer(address, 4) == "grü".encode()[:3] + b"\x00"
    assert old.read_bytes_from_buffer(address, 0) == b""
    assert old.write_bytes_to_buffer(address, "abc", 4) < 0
    assert old.write_bytes_to_buffer(8, "abc", 3) < 0
    assert old.write_bytes_to_buffer(HUGE, "abc", 3) < 0
    for wrong, length in ((0, 1), (8, 1), (HUGE, 1), (address, 2**40), (address, HUGE)):
        with pytest.raises(ValueError, match="registered buffer"):
            old.read_bytes_from_buffer(wrong, length)


def test_what_is_not_needed_is_0(old: TransferEngine) -> None:
    assert old.warmup_efa_segment("any") == 0
    with pytest.raises(TypeError):
        old.warmup_efa_segment(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        old.get_local_topology(7)  # type: ignore[arg-type]


def test_addresses_of_single_transfers_are_checked(old: TransferEngine) -> None:
    engine = old.get_engine()
    with alloc(4096) as memory, engine.register(memory), engine.connect(engine.address) as peer:
        here = memory.address
        for _ in range(2):  # as a batch, and when it is known that none is needed
            for move in (peer.read, peer.write):
                for wrong in (-1, HUGE + 1, -HUGE):
                    for arguments in ((wrong, here, 8), (here, wrong, 8), (here, here, wrong)):
                        with pytest.raises((ValueError, errors.NotRegistered)):
                            move(*arguments)
                for wrong in (2**63, HUGE, 2**63 - 1):
                    for arguments in ((wrong, here, 8), (here, wrong, 8), (here, here, wrong)):
                        with pytest.raises((errors.NotRegistered, errors.InvalidArgument)):
                            move(*arguments)
                for wrong in ("1", 1.5, [1]):
                    for arguments in ((here, wrong, 8), (here, here, wrong)):
                        with pytest.raises(TypeError):
                            move(*arguments)
                move(here, here + 100, 8)


def test_options_of_an_engine_are_checked() -> None:
    with Engine(
        directory="p2p", busy_poll=0.00005, lanes=4, notifications=10, checksum=True, connect_timeout=1
    ) as engine:
        assert engine.address.startswith("127.0.0.1:")
    for wrong in ({"busy_poll": 2.0}, {"busy_poll": 1e9}, {"lanes": 17}, {"name": "of no directory"}):
        with pytest.raises(errors.InvalidArgument):
            Engine(**wrong)  # type: ignore[arg-type]
    for wrong in ({"busy_poll": -1.0}, {"connect_timeout": -1.0}):
        with pytest.raises(ValueError, match="timeout"):
            Engine(**wrong)  # type: ignore[arg-type]
    for wrong in ({"directory": "redis://127.0.0.1"}, {"directory": "127.0.0.1:2379"}, {"protocol": "rdma"}):
        with pytest.raises(errors.NotSupported):
            Engine(**wrong)  # type: ignore[arg-type]


def test_the_new_interface_refuses_what_makes_no_sense(old: TransferEngine) -> None:
    engine = old.get_engine()
    with alloc(4096) as memory, engine.register(memory), engine.connect(engine.address) as peer:
        with pytest.raises(errors.InvalidArgument):
            alloc(0)
        for wrong in (-1, HUGE + 1):
            with pytest.raises(ValueError, match="size"):
                alloc(wrong)
        with pytest.raises(errors.NoMemory):
            alloc(1 << 60)
        with pytest.raises(ValueError, match="does not fit"):
            peer.write(memory, memory.address, 5000)
        with pytest.raises(errors.NotRegistered):
            peer.write(bytearray(8), memory.address)
        with pytest.raises(ValueError, match="seconds"):
            peer.write(memory, memory.address, 8, timeout=-1)
        with pytest.raises(ValueError, match="seconds"):
            engine.receive(float("nan"))
        with pytest.raises(ValueError, match="columns"):
            peer.submit(WRITE, [1], [], [1])
        with pytest.raises(errors.InvalidArgument):
            engine.submit([])
        with pytest.raises(errors.InvalidArgument):
            engine.submit([Request(peer, 7, memory, memory.address, 8)])
        with pytest.raises(errors.InvalidArgument):
            engine.register(memory.address, 0)
        with pytest.raises(ValueError, match="from 0 to"):
            engine.register(memory.address, -1)
        with pytest.raises(TypeError):
            engine.register(memory.address)
        with pytest.raises((errors.Address, errors.NameNotFound)):
            Engine("not an address")
        with pytest.raises(errors.NotSupported):
            Engine(protocol="carrier pigeon")
        with pytest.raises(errors.InvalidArgument):
            Engine(lanes=17)
        with Queue() as queue, pytest.raises(ValueError, match="at least 1"):
            queue.reap(0)
    with pytest.raises(errors.InvalidHandle):
        peer.read(bytearray(8), 0)
    with pytest.raises(errors.InvalidHandle):
        engine.submit([Request(peer, READ, bytearray(8), 0)])
    with pytest.raises(errors.InvalidHandle):
        peer.notify("to nobody")
    with pytest.raises(errors.InvalidHandle):
        peer.probe()


def test_a_nul_in_a_text_does_not_end_it(old: TransferEngine) -> None:
    """C sees a text up to its NUL: another one, which would be taken."""
    me = old.get_engine().address
    with alloc(4096) as memory:
        assert old.register_memory(memory.address, 4096) == 0
        for name in (me + "\0", me + "\0behind", "\0" + me):
            assert old.transfer_sync_write(name, memory.address, memory.address, 8) == -1
            assert old.batch_transfer_sync_write(name, [memory.address], [memory.address], [8]) == -1
            assert old.send_probe(name) == -1
            assert old.get_first_buffer_address(name) == 0
        assert old.register_memory(memory.address + 4096, 1, "*\0") == -1
        assert old.unregister_memory(memory.address) == 0
    assert TransferEngine().initialize("127.0.0.1\0", "P2PHANDSHAKE", "", "") == -1
    for option in ("listen", "advertise", "protocol", "key_file", "directory", "name"):
        with pytest.raises(errors.InvalidArgument, match="NUL"):
            Engine(**{"listen": "127.0.0.1", option: "127.0.0.1\0"})


def test_what_is_no_text_is_not_copied_in(old: TransferEngine) -> None:
    buffer = old.allocate_managed_buffer(4096)
    assert old.write_bytes_to_buffer(buffer, b"12345", 5) == 0
    for wrong in (5, [0, 0, 0, 0, 0], None, 2**50):
        with pytest.raises(TypeError):
            old.write_bytes_to_buffer(buffer, wrong, 5)  # pyright: ignore
    assert old.read_bytes_from_buffer(buffer, 5) == b"12345"
    with pytest.raises(TypeError):
        old.free_managed_buffer("x", 4096)  # pyright: ignore
    assert old.free_managed_buffer(buffer, 4096) == 0


def test_an_opcode_is_no_flags(old: TransferEngine) -> None:
    engine = old.get_engine()
    with alloc(4096) as memory, engine.register(memory), engine.connect(engine.address) as peer:
        for opcode in (2**33 + WRITE, -1, 2**64):
            with pytest.raises(ValueError, match="opcode"):
                peer.transfer(opcode, [memory.address], [memory.address], [8])


def test_an_engine_that_somebody_else_closed_has_no_port() -> None:
    with TransferEngine() as engine:
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "", "") == 0
        address = engine.get_engine().address
        engine.get_engine().close()
        assert engine.get_rpc_port() == -1
        assert engine.get_first_buffer_address(address) == 0


def test_what_stands_for_something_is_not_copied(old: TransferEngine) -> None:
    """The end of a copy would close the engine of the original."""
    engine = old.get_engine()
    with alloc(4096) as memory, engine.register(memory) as region, engine.connect(engine.address) as peer:
        with Queue() as queue, peer.submit(WRITE, [memory.address], [memory.address + 8], [8]) as batch:
            for thing in (engine, region, peer, queue, batch, memory, old, RpcInterface(), SharedSegment()):
                for copied in (copy.copy, copy.deepcopy, pickle.dumps):
                    with pytest.raises(TypeError, match=f"a {type(thing).__name__} can be neither"):
                        copied(thing)
        peer.write(memory, memory.address, 8)


def test_of_threads_that_initialize_one_engine_one_succeeds() -> None:
    with TransferEngine() as engine:
        results: list[int] = []
        barrier = threading.Barrier(8)

        def initialize() -> None:
            barrier.wait()
            results.append(engine.initialize("127.0.0.1", "P2PHANDSHAKE", "", ""))

        threads = [threading.Thread(target=initialize) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(results) == [-1] * 7 + [0]
