"""TransferEngine answers what the programs that call it rely on."""

from __future__ import annotations

import ctypes
import json
import logging
import random
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from mooncake.engine import Engine, RpcInterface, TransferEngine, TransferNotify, TransferOpcode

DATA = random.Random(1).randbytes(100_000)
SIZE = len(DATA)


def rows(file: str) -> list[str]:
    return Path(file).read_text().splitlines()


def filled(old: TransferEngine, size: int = 1 << 20) -> int:
    address = old.allocate_managed_buffer(size)
    assert address
    assert old.write_bytes_to_buffer(address, DATA, SIZE) == 0  # type: ignore[arg-type]
    return address


def test_a_write_and_a_read_return_0(old: TransferEngine, old_there: Any) -> None:
    address = filled(old)
    assert old.transfer_sync_write(old_there.address, address, old_there.base, SIZE) == 0
    assert old_there.read(0, SIZE) == DATA
    assert old.transfer_sync_read(old_there.address, address + 200_000, old_there.base, SIZE) == 0
    assert old.read_bytes_from_buffer(address + 200_000, SIZE) == DATA


def test_a_transfer_with_an_opcode_may_notify(old: TransferEngine, old_there: Any, path: str) -> None:
    address, notify = filled(old), TransferNotify("done", "7")
    target = old_there.address
    assert old.transfer_sync(target, address, old_there.base, SIZE, TransferOpcode.Write, notify) == 0
    assert old.transfer_sync(target, address, old_there.base, 8, TransferOpcode.Read) == 0
    assert (
        old.batch_transfer_sync(target, [address], [old_there.base + SIZE], [8], TransferOpcode.Write, notify=notify)
        == 0
    )
    assert old_there.read(0, SIZE + 8) == DATA + DATA[:8]
    if path == "self":
        assert [(n.name, n.msg) for n in old.get_notifies()] == [("done", "7")] * 2
    else:
        assert [old_there.ask("receive", 10)[1:] for _ in range(2)] == [["done", "7"]] * 2
    assert old.get_notifies() == []


def test_a_batch_moves_all_its_parts(old: TransferEngine, old_there: Any) -> None:
    address, count, part = filled(old), 50, 1000
    local = [address + part * k for k in range(count)]
    remote = [old_there.base + part * (count - 1 - k) for k in range(count)]
    assert old.batch_transfer_sync_write(old_there.address, local, remote, [part] * count) == 0
    got = old_there.read(0, count * part)
    assert all(got[part * (count - 1 - k) :][:part] == DATA[part * k :][:part] for k in range(count))
    back = [place + 500_000 for place in local]
    assert old.batch_transfer_sync_read(old_there.address, back, remote, [part] * count) == 0
    assert old.read_bytes_from_buffer(address + 500_000, count * part) == DATA[: count * part]
    assert old.batch_transfer_sync_write(old_there.address, [], [], []) == 0


def test_asynchronous_batches_have_ids(old: TransferEngine, old_there: Any) -> None:
    address, target = filled(old), old_there.address
    begun = [
        old.batch_transfer_async_write(target, [address], [old_there.base], [SIZE]),
        old.batch_transfer_async(target, [address], [old_there.base + SIZE], [8], TransferOpcode.Write),
        old.transfer_submit_write(target, address, old_there.base + SIZE + 8, 8),
    ]
    assert len(set(begun)) == 3
    assert 0 not in begun
    for batch in begun[:2]:
        result = 0
        while result == 0:
            result = old.transfer_check_status(batch)
        assert result == 1
        assert old.transfer_check_status(batch) == -1  # the id has ended
    assert old.get_batch_transfer_status(begun[2:]) == 0
    assert old.get_batch_transfer_status(begun) == -1
    assert old.get_batch_transfer_status([]) == 0
    assert old_there.read(0, SIZE + 16) == DATA + DATA[:8] * 2
    read = old.batch_transfer_async_read(target, [address + 500_000], [old_there.base], [SIZE])
    assert old.get_batch_transfer_status([read]) == 0
    assert old.read_bytes_from_buffer(address + 500_000, SIZE) == DATA


def test_a_failed_transfer_is_negative_and_logged(
    old: TransferEngine, old_there: Any, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = filled(old)
    beyond = old_there.base + old_there.size
    with caplog.at_level(logging.WARNING, "mooncake.engine"):
        assert old.transfer_sync_write(old_there.address, address, beyond, 8) < 0
    assert old_there.address in caplog.text
    assert "MC_ERR_NOT_REGISTERED" in caplog.text or path == "shm"  # which knows of no such range
    assert old.batch_transfer_sync_read(old_there.address, [address] * 2, [old_there.base, beyond], [8, 8]) < 0
    batch = old.batch_transfer_async_write(old_there.address, [address], [beyond], [8])
    assert batch == 0 or old.get_batch_transfer_status([batch]) == -1


def test_a_local_buffer_need_not_be_registered(old: TransferEngine, old_there: Any) -> None:
    source = ctypes.create_string_buffer(DATA, SIZE)
    target = ctypes.create_string_buffer(SIZE)
    begin, end = ctypes.addressof(source), ctypes.addressof(target)
    assert old.transfer_sync_write(old_there.address, begin, old_there.base, SIZE) == 0
    halves = [end, end + SIZE // 2]
    remote = [old_there.base, old_there.base + SIZE // 2]
    assert old.batch_transfer_sync_read(old_there.address, halves, remote, [SIZE // 2, SIZE - SIZE // 2]) == 0
    assert target.raw == DATA
    overlapping = old.batch_transfer_sync_write(
        old_there.address, [begin, begin + 10, begin], [old_there.base + SIZE * k for k in range(3)], [100, 100, 100]
    )
    assert overlapping == 0
    batch = old.batch_transfer_async_write(old_there.address, [begin], [old_there.base], [SIZE])
    assert old.get_batch_transfer_status([batch]) == 0
    assert old.register_memory(begin, SIZE) == 0, "nothing of it stayed registered"
    assert old.unregister_memory(begin) == 0


def test_registration_answers_as_programs_expect(old: TransferEngine, path: str) -> None:
    buffer = ctypes.create_string_buffer(8192)
    address = ctypes.addressof(buffer)
    assert old.register_memory(address, 8192) == 0
    assert old.register_memory(address + 4096, 4096) == -7
    assert old.unregister_memory(address) == 0
    assert old.unregister_memory(address) == -3
    assert old.register_memory(address, 0) < 0
    assert old.register_memory(0, 8) < 0
    assert old.batch_register_memory([address, address + 4096], [4096, 4096]) == 0
    assert old.batch_unregister_memory([address, address + 4096]) == 0
    assert old.batch_register_memory([address, address + 2048], [4096, 4096]) == -7
    assert old.unregister_memory(address) != 0, "all or none"
    assert old.batch_register_memory([address], [1, 2]) < 0
    assert old.batch_unregister_memory([address]) < 0


def test_managed_buffers_are_registered_memory(old: TransferEngine, path: str) -> None:
    own = f"127.0.0.1:{old.get_rpc_port()}"
    address = old.allocate_managed_buffer(4096)
    assert old.transfer_sync_write(own, address, address + 100, 100) == 0
    assert old.get_first_buffer_address(own) == address
    assert old.free_managed_buffer(address, 1) < 0
    assert old.free_managed_buffer(address, 4096) == 0
    assert old.free_managed_buffer(address, 4096) < 0
    assert old.get_first_buffer_address(own) == 0
    assert old.allocate_managed_buffer(0) == 0
    assert old.allocate_managed_buffer(1 << 60) == 0


def test_a_probe_is_0_for_the_living(old: TransferEngine, old_there: Any, path: str) -> None:
    assert old.send_probe(old_there.address) == 0
    if path != "self":
        old_there.end()
        assert old.send_probe(old_there.address) < 0


@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_a_restarted_peer_is_resolved_again(old: TransferEngine, path: str, spawn: Any) -> None:
    address = filled(old)
    first = spawn(path)
    assert old.transfer_sync_write(first.address, address, first.base, 8) == 0
    first.end()
    end = time.monotonic() + 1
    while old.transfer_sync_write(first.address, address, first.base, 8) == 0:
        assert time.monotonic() < end, "it was killed a second ago"
    second = spawn(path, listen=first.address)
    assert second.address == first.address
    assert old.transfer_sync_write(first.address, address, second.base, 8) == 0
    assert second.read(0, 8) == DATA[:8]
    second.end()
    third = spawn(path, listen=first.address)
    assert old.send_probe(first.address) == 0
    assert old.transfer_sync_write(first.address, address, third.base, 8) == 0


def test_the_port_is_the_given_one_or_any_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with TransferEngine() as engine:
            assert engine.initialize(f"127.0.0.1:{port}", "P2PHANDSHAKE", "tcp", "") == 0
            assert engine.get_rpc_port() not in (0, port)
    with TransferEngine() as engine:
        assert engine.initialize(f"127.0.0.1:{port}", "P2PHANDSHAKE", "rdma", "mlx5_0") == 0
        assert engine.get_rpc_port() == port


@pytest.mark.parametrize("value", ["1", "0", "yes"])
def test_mc_force_tcp_restricts_the_paths_whatever_its_value(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MC_FORCE_TCP", value)
    with TransferEngine() as engine:
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "shm", "") == 0
        with engine.get_engine().connect(engine.get_engine().address) as peer:
            reasons = {path["transport"]: path["reason"] for path in peer.explain()["transports"]}
    assert "tcp" in reasons["shm"]
    assert reasons["tcp"] == ""


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("::1", "[::1]:"),
        ("[::1]", "[::1]:"),
        ("[::1]:0", "[::1]:"),
        ("127.0.0.1", "127.0.0.1:"),
        ("localhost:0", "localhost:"),
    ],
)
def test_an_engine_listens_where_it_was_told(name: str, address: str) -> None:
    with TransferEngine() as engine:
        assert engine.initialize(name, "P2PHANDSHAKE", "", "") == 0
        own = engine.get_engine().address
        assert own == f"{address}{engine.get_rpc_port()}"
        assert engine.send_probe(own) == 0
        there = {row.split()[1] for kind in ("tcp", "tcp6") for row in rows(f"/proc/net/{kind}")[1:]}
        port = f"{engine.get_rpc_port():04X}"
        assert not {f"{'0' * 8}:{port}", f"{'0' * 32}:{port}"} & there, "and nowhere else"


def test_a_scoped_address_is_one_to_listen_on() -> None:
    scoped = [row.split() for row in rows("/proc/net/if_inet6") if row.startswith("fe80")]
    if not scoped:
        print("no interface of this machine has a link-local address")
        pytest.skip("no link-local address")
    word, interface = scoped[0][0], scoped[0][-1]
    name = ":".join(word[k : k + 4] for k in range(0, 32, 4)) + "%" + interface
    with TransferEngine() as engine:
        assert engine.initialize(name, "P2PHANDSHAKE", "tcp", "") == 0
        assert engine.send_probe(engine.get_engine().address) == 0


@pytest.mark.parametrize(
    ("protocol", "usable"),
    [("tcp", {"self", "tcp"}), ("TCP", {"self", "tcp"}), ("shm", {"self", "shm"}), ("", {"self", "shm", "tcp"}),
     ("rdma", {"self", "shm", "tcp"}), ("efa", {"self", "shm", "tcp"}), ("rdma,tcp", {"self", "shm", "tcp"})],
)  # fmt: skip
def test_protocol_means_what_it_says(
    protocol: str, usable: set[str], spawn: Any, caplog: pytest.LogCaptureFixture
) -> None:
    there = spawn("any")
    with TransferEngine() as engine, caplog.at_level(logging.WARNING, "mooncake.engine"):
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", protocol, "") == 0
        with engine.get_engine().connect(there.address) as peer:
            found = {path["transport"] for path in peer.explain()["transports"] if path["usable"]}
    assert found == usable - {"self"}
    assert ("best path" in caplog.text) == (protocol in ("rdma", "efa")), "what the machine hasn't is warned about"


def test_bytes_are_written_and_read_within_registered_memory_only(old: TransferEngine, path: str) -> None:
    buffer, stranger = ctypes.create_string_buffer(100), ctypes.create_string_buffer(100)
    address, other = ctypes.addressof(buffer), ctypes.addressof(stranger)
    managed = old.allocate_managed_buffer(4096)
    assert old.register_memory(address + 10, 50) == 0
    assert old.write_bytes_to_buffer(address + 10, b"x" * 60, 50) == 0  # type: ignore[arg-type]
    assert buffer.raw == bytes(10) + b"x" * 50 + bytes(40)
    assert old.read_bytes_from_buffer(address + 59, 1) == b"x"
    for wrong, length in ((address + 9, 2), (address + 10, 51), (address + 60, 1), (other, 1), (managed, 4097), (0, 1)):
        assert old.write_bytes_to_buffer(wrong, b"y" * 5000, length) == -1  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="not all of one registered buffer"):
            old.read_bytes_from_buffer(wrong, length)
    with old.get_engine().register(stranger):
        assert old.write_bytes_to_buffer(other, "text", 4) == 0
    assert old.unregister_memory(address + 10) == 0
    assert old.write_bytes_to_buffer(address + 10, b"y", 1) == -1  # type: ignore[arg-type]


def test_the_first_buffer_of_a_peer_is_known_on_this_host_or_0(old_there: Any, path: str) -> None:
    with TransferEngine() as engine:
        assert engine.get_first_buffer_address("127.0.0.1:1") == 0
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "", "") == 0
        assert engine.get_first_buffer_address("127.0.0.1:1") == 0
        first = engine.get_first_buffer_address(old_there.address)
        assert first == old_there.base if path == "shm" else first in (0, old_there.base)


@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_a_range_that_was_mapped_and_is_no_more_is_out_of_reach(old: TransferEngine, spawn: Any, path: str) -> None:
    address = filled(old)
    there = spawn(path)
    for _ in range(5):
        assert old.transfer_sync_write(there.address, address, there.base, 8) == 0
    there.ask("unregister")
    assert old.transfer_sync_write(there.address, address, there.base, 8) == -1
    assert old.transfer_sync_read(there.address, address, there.base, 8) == -1


def test_initialize_says_no_once(caplog: pytest.LogCaptureFixture) -> None:
    with TransferEngine() as engine:
        with caplog.at_level(logging.INFO, "mooncake.engine"):
            assert engine.initialize("127.0.0.1", "etcd://127.0.0.1:2379", "tcp", "") == -1
            assert "P2PHANDSHAKE" in caplog.text
            for server in ("127.0.0.1:2379", "redis://127.0.0.1", "", "gopher://127.0.0.1/metadata"):
                caplog.clear()
                assert engine.initialize("127.0.0.1", server, "tcp", "") == -1
                assert "P2PHANDSHAKE" in caplog.text
            assert engine.initialize_ext("127.0.0.1", "127.0.0.1:2379", "tcp", "", "redis") == -1
            assert "redis" in caplog.text
            assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "carrier pigeon", "") == -1
            assert engine.initialize("127.0.0.1:notaport", "P2PHANDSHAKE", "tcp", "") == -1
            assert engine.initialize("", "P2PHANDSHAKE", "tcp", "") in (0, -1)
        engine.close()
        with caplog.at_level(logging.INFO, "mooncake.engine"):
            caplog.clear()
            assert engine.initialize_ext("127.0.0.1", "P2PHANDSHAKE", "rdma", "", "p2p") == 0
            assert "'rdma'" in caplog.text
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == -1


def test_the_topology_is_the_reference_s_matrix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = {"cpu:0": [["mlx5_0"], ["mlx5_1", "mlx5_2"]], "cuda:0": [["mlx5_1"], []]}
    file = tmp_path / "topology.json"
    file.write_text(json.dumps(matrix))
    with TransferEngine() as engine:
        here = json.loads(engine.get_local_topology())
        assert "cpu:0" in here
        assert all(len(lists) == 2 for lists in here.values())
        monkeypatch.setenv("MC_CUSTOM_TOPO_JSON", str(file))
        assert json.loads(engine.get_local_topology()) == matrix
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
        monkeypatch.delenv("MC_CUSTOM_TOPO_JSON")
        assert json.loads(engine.get_local_topology()) == matrix == engine.get_engine().topology()
        filtered = {"cpu:0": [["mlx5_0"], ["mlx5_2"]], "cuda:0": [[], []]}
        assert json.loads(engine.get_local_topology("mlx5_0, mlx5_2")) == filtered
        assert json.loads(engine.get_local_topology("")) == matrix


def test_the_engine_beneath_can_be_shared() -> None:
    with TransferEngine() as engine:
        assert engine.get_engine_ptr() == 0
        with pytest.raises(ValueError, match="not initialised"):
            engine.get_engine()
        engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "")
        assert isinstance(engine.get_engine(), Engine)
        assert engine.get_engine_ptr() != 0
        assert engine.get_engine().address == f"127.0.0.1:{engine.get_rpc_port()}"


def test_the_log_names_a_peer_that_is_not_there_once(old: TransferEngine, caplog: pytest.LogCaptureFixture) -> None:
    buffer = old.allocate_managed_buffer(4096)
    with caplog.at_level(logging.WARNING, "mooncake.engine"):
        assert old.send_probe("127.0.0.1:1") < 0
        assert old.transfer_sync_write("127.0.0.1:1", buffer, buffer, 8) < 0
        assert old.get_first_buffer_address("127.0.0.1:1") == 0
        with RpcInterface() as client:
            assert client.initialize_client(1, 5)
            assert client.send_data("127.0.0.1:1", b"x") < 0
    words = "127.0.0.1:1: no engine answers at the address (MC_ERR_UNREACHABLE)"
    assert caplog.messages == [
        f"{what}: {words}" for what in ("send_probe", "transfer", "get_first_buffer_address", "rpc")
    ]
