"""MooncakeDistributedStore answers what the programs that call it rely on, within a process and between processes."""

from __future__ import annotations

import ctypes
import random
import socket
import threading
import time
from typing import Any

from support import Cluster

from mooncake.engine import TransferEngine
from mooncake.store import MooncakeDistributedStore, ObjectDataType, ReplicateConfig, SoftPinAction

DATA = random.Random(4).randbytes(4 << 20)


class Pages:
    """Memory of the caller, as the connectors have it: pages of equal size at an address."""

    def __init__(self, count: int, size: int) -> None:
        self.memory = (ctypes.c_char * (count * size))()
        self.base = ctypes.addressof(self.memory)
        self.pointers = [self.base + index * size for index in range(count)]
        self.sizes = [size] * count

    def fill(self) -> bytes:
        self.memory[:] = DATA[: len(self.memory)]
        return bytes(self.memory)

    def clear(self) -> None:
        ctypes.memset(self.base, 0, len(self.memory))


def setup(master: str, segment: int = 0, **more: Any) -> MooncakeDistributedStore:
    made = MooncakeDistributedStore()
    assert made.setup("127.0.0.1", "P2PHANDSHAKE", segment, 16 << 20, "tcp", "", master, **more) == 0
    return made


def test_missing_is_none_or_empty_bytes_and_empty_is_a_value(old_store: MooncakeDistributedStore) -> None:
    """Fault 26: get() can't tell them apart; the other calls do."""
    assert old_store.put("empty", b"") == 0
    assert old_store.get("empty") == old_store.get("missing") == b""
    assert (old_store.is_exist("empty"), old_store.is_exist("missing")) == (1, 0)
    assert (old_store.get_size("empty"), old_store.get_size("missing")) == (0, -704)
    assert old_store.get_buffer("empty") == b""
    assert old_store.get_buffer("missing") is None
    page = Pages(1, 16)
    assert old_store.get_into("empty", page.base, 16) == 0
    assert old_store.get_into("missing", page.base, 16) == -704


def test_one_bad_item_in_a_batch_spoils_no_other(old_store: MooncakeDistributedStore) -> None:
    """Fault 27."""
    pages = Pages(4, 4096)
    whole = pages.fill()
    keys = ["a", "", "k" * 5000, "b"]
    assert old_store.batch_put_from(keys, pages.pointers, pages.sizes) == [0, -400, -400, 0]
    assert old_store.batch_put_from(["a", "c"], pages.pointers[:2], [4096, 4096]) == [0, 0]
    pages.clear()
    sizes = [4096, 4096, 100, 4096]
    assert old_store.batch_get_into(["a", "missing", "b", "c"], pages.pointers, sizes) == [4096, -704, -600, 4096]
    assert pages.memory[:4096] == whole[:4096]
    assert pages.memory[12288:] == whole[4096:8192]
    assert old_store.batch_is_exist(["a", "missing", "b"]) == [1, 0, 1]
    assert old_store.put_batch(["d", ""], [b"4", b"5"]) == -400
    assert old_store.get("d") == b"4"
    assert old_store.batch_remove(["a", "missing", "b", "c", "d"]) == [0, -704, 0, 0, 0]
    assert old_store.remove_all() == 0, "no residue"


CALLS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("put", ("k", b"v"), -600),
    ("upsert", ("k", b"v"), -600),
    ("put_parts", ("k", b"v", b"w"), -600),
    ("upsert_parts", ("k", b"v", b"w"), -600),
    ("put_batch", (["k"], [b"v"]), -600),
    ("upsert_batch", (["k"], [b"v"]), -600),
    ("put_from", ("k", 4096, 1), -600),
    ("upsert_from", ("k", 4096, 1), -600),
    ("batch_put_from", (["k", "l"], [4096, 4096], [1, 1]), [-600, -600]),
    ("batch_upsert_from", (["k"], [4096], [1]), [-600]),
    ("get", ("k",), b""),
    ("get_batch", (["k", "l"],), [b"", b""]),
    ("get_buffer", ("k",), None),
    ("batch_get_buffer", (["k", "l"],), [None, None]),
    ("get_into", ("k", 4096, 1), -600),
    ("batch_get_into", (["k", "l"], [4096, 4096], [1, 1]), [-600, -600]),
    ("is_exist", ("k",), -600),
    ("batch_is_exist", (["k", "l"],), [-600, -600]),
    ("get_size", ("k",), -600),
    ("remove", ("k",), -600),
    ("batch_remove", (["k"],), [-600]),
    ("remove_all", (), -600),
    ("remove_by_regex", (".*",), -600),
    ("register_buffer", (4096, 1), -600),
    ("unregister_buffer", (4096,), -600),
    ("health_check", (), 1),
    ("close", (), 0),
]


def test_calls_before_setup_and_after_close_are_codes() -> None:
    """Fault 28."""
    store = MooncakeDistributedStore()
    assert store.get_hostname() == ""
    for _ in range(2):
        for name, arguments, expected in CALLS:
            assert getattr(store, name)(*arguments) == expected, name
        assert store.setup("localhost", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", "") == 0
        assert store.health_check() == 0
        assert store.put("k", b"v") == 0
        assert store.close() == 0
        assert store.close() == 0


def call_until_closed(
    store: MooncakeDistributedStore, which: int, begun: threading.Barrier, results: list[Any]
) -> None:
    """Makes calls of one kind, and notes what they answer or raise."""
    page = Pages(1, 1 << 20)
    calls: list[Any] = [
        lambda: store.put(f"n{random.random()}", DATA[:5000]),
        lambda: store.get_into("k", page.base, 1 << 20),
        lambda: store.batch_is_exist(["k", "l"])[0],
        lambda: store.get("k")[:0],
    ]
    begun.wait()
    try:
        while store.health_check() == 0:
            results.append(calls[which % 4]())
    except BaseException as error:
        results.append(error)


def test_close_during_calls_ends_them_with_codes() -> None:
    """Fault 28."""
    for _ in range(5):
        store, results, begun = setup("", 16 << 20), list[Any](), threading.Barrier(9)
        store.put("k", DATA[: 1 << 20])
        threads = [
            threading.Thread(target=call_until_closed, args=(store, which, begun, results)) for which in range(8)
        ]
        for thread in threads:
            thread.start()
        begun.wait()
        assert store.close() == 0
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert set(results) <= {b"", 0, 1, 1 << 20, -600, -900}
        assert store.get("k") == b""


def test_a_put_of_an_existing_key_is_0_and_changes_nothing(old_store: MooncakeDistributedStore) -> None:
    assert old_store.put("a", b"old") == old_store.put("a", b"new") == 0
    assert old_store.get("a") == b"old"
    assert old_store.upsert("a", DATA) == 0
    assert old_store.get("a") == DATA
    assert old_store.upsert(b"a", b"short") == 0
    assert old_store.get("a") == b"short"


def test_keys_are_removed_by_pattern_over_many_pages(old_store: MooncakeDistributedStore) -> None:
    for part in range(10):
        keys = [f"{part}/{index}" for index in range(900)]
        assert old_store.put_batch(keys, [b"x"] * 900) == 0
    assert old_store.remove_by_regex("^3/") == 900
    assert old_store.remove_by_regex("/[0-9]$") == 90
    assert old_store.remove_by_regex("^3/") == 0
    assert old_store.remove_by_regex("(") == old_store.remove_by_regex("x" * 5000) == -600
    assert old_store.is_exist("4/10") == 1
    assert old_store.remove_all(force=True) == 9 * 890


def test_setup_without_anybody_there_is_a_code_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    start = time.monotonic()
    store = MooncakeDistributedStore()
    assert store.setup("localhost", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", f"127.0.0.1:{port}") == -900
    assert store.setup("localhost", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", "a:b:c") == -600
    assert store.setup("localhost:notaport", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", "") == -600
    assert time.monotonic() - start < 8
    assert store.health_check() == 1
    assert store.setup("localhost", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", "") == 0
    assert store.close() == 0


def test_a_taken_port_becomes_another_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        store = MooncakeDistributedStore()
        assert store.setup(f"127.0.0.1:{port}", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", "") == 0
        assert store.get_hostname() not in (f"127.0.0.1:{port}", "127.0.0.1:0")
        assert store.close() == 0
    assert store.setup(f"127.0.0.1:{port}", "P2PHANDSHAKE", 16 << 20, 0, "rdma", "mlx5_0", "") == 0
    assert store.get_hostname() == f"127.0.0.1:{port}"
    assert store.close() == 0


def test_the_transfer_engine_is_shared() -> None:
    with TransferEngine() as engine:
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
        store = MooncakeDistributedStore()
        arguments = ("127.0.0.1", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", "", engine.get_engine())
        assert store.setup(*arguments) == 0
        assert store.get_hostname() == f"127.0.0.1:{engine.get_rpc_port()}"
        assert store.put("a", b"1") == 0
        assert store.get("a") == b"1"
        assert store.close() == 0


def test_many_threads_use_one_store(old_store: MooncakeDistributedStore) -> None:
    failures: list[str] = []

    def work(number: int) -> None:
        page = Pages(1, 5000)
        if old_store.register_buffer(page.base, 5000) != 0:
            failures.append("register")
        for index in range(50):
            key, value = f"{number}/{index}", DATA[index : index + 5000]
            page.memory[:] = value
            if old_store.put_from(key, page.base, 5000) != 0 or old_store.put("shared", value) != 0:
                failures.append(f"put {key}")
            page.clear()
            if old_store.get_into(key, page.base, 5000) != 5000 or bytes(page.memory) != value:
                failures.append(f"get {key}")
            if len(old_store.get("shared")) != 5000:
                failures.append("shared")
        if old_store.unregister_buffer(page.base) != 0:
            failures.append("unregister")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert old_store.remove_all() == 8 * 50 + 1


# ---- What the known programs do, in their words


def test_sglang_pages_go_through_the_pool(cluster: Cluster) -> None:
    owner = cluster.client(64 << 20)
    store = setup(cluster.address, engine=None, enable_ssd_offload=False, ssd_offload_path="", tenant_id="default")
    pages = Pages(64, 16384)
    whole = pages.fill()
    assert store.register_buffer(pages.base, len(pages.memory)) == 0
    keys = [f"hash{index}_k" for index in range(64)]
    assert store.batch_is_exist(keys) == [0] * 64
    assert store.batch_put_from(keys, pages.pointers, pages.sizes) == [0] * 64
    assert store.batch_is_exist(keys) == [1] * 64
    pages.clear()
    results = store.batch_get_into(keys, pages.pointers, pages.sizes)
    assert results == [16384] * 64
    assert all(type(result) is int for result in results)
    assert bytes(pages.memory) == whole
    assert bytes.fromhex(owner.ask("get", "hash3_k")) == whole[3 * 16384 : 4 * 16384]
    assert store.put("sglang_mooncake_warmup", bytes(4096)) == 0
    assert store.is_exist("sglang_mooncake_warmup") == 1
    assert store.get("sglang_mooncake_warmup") == bytes(4096)
    assert store.unregister_buffer(pages.base) == 0
    assert store.remove_all() == 65
    assert store.close() == 0


def test_vllm_options_and_replicas(cluster: Cluster) -> None:
    for _ in range(2):
        cluster.client(64 << 20)
    store = setup(cluster.address, 16 << 20, tenant_id="default")
    config = ReplicateConfig()
    config.data_type, config.group_ids = ObjectDataType.TENSOR, ["g"]
    config.replica_num, config.preferred_segment = 2, cluster.clients[0].address
    config.soft_pin_action = SoftPinAction.ENABLE
    pages = Pages(8, 4096)
    whole = pages.fill()
    keys = [f"k{index}" for index in range(8)]
    assert store.batch_put_from(keys, pages.pointers, pages.sizes, config) == [0] * 8
    pages.clear()
    assert store.batch_get_into(keys, pages.pointers, pages.sizes) == [4096] * 8
    assert bytes(pages.memory) == whole
    assert store.remove_all(force=True) == 8
    assert store.close() == 0


def test_lmcache_chunks_and_a_dict_of_texts(cluster: Cluster) -> None:
    cluster.client(64 << 20)
    store = MooncakeDistributedStore()
    config = {
        "local_hostname": "127.0.0.1",
        "metadata_server": "P2PHANDSHAKE",
        "global_segment_size": "16777216",
        "local_buffer_size": "16777216",
        "protocol": "tcp",
        "device_name": "",
        "master_server_address": cluster.address,
    }
    assert store.setup(config) == 0
    assert store.get_hostname().startswith("127.0.0.1:")
    chunk = (ctypes.c_ubyte * 5000).from_buffer_copy(DATA)
    assert store.put_parts("chunk", b"meta", memoryview(chunk)) == 0
    found = store.batch_get_buffer(["chunk", "missing"])
    assert found[1] is None
    assert found[0] is not None
    assert memoryview(found[0]).tobytes() == b"meta" + DATA[:5000]
    assert store.put_from("zero-copy", ctypes.addressof(chunk), 5000, ReplicateConfig()) == 0
    assert store.get("zero-copy") == DATA[:5000]
    assert bool(store.is_exist("zero-copy")) is True
    assert bool(store.is_exist("missing")) is False
    assert store.close() == 0


def test_transfer_queue_upserts_at_other_sizes(cluster: Cluster) -> None:
    cluster.client(64 << 20)
    writer, reader = setup(cluster.address), setup(cluster.address)
    config = ReplicateConfig()
    config.with_hard_pin = True
    memory = Pages(1, 1 << 20)
    whole = memory.fill()
    threads = [
        threading.Thread(target=writer.register_buffer, args=(memory.base + part * 65536, 65536)) for part in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for size in (100, 5000, 262_144, 1):
        assert writer.batch_upsert_from(["a", "b"], [memory.base, memory.base + 7], [size, size], config=config) == [
            0,
            0,
        ]
        page = Pages(2, 300_000)
        assert reader.batch_get_into(["a", "b"], page.pointers, page.sizes) == [size, size]
        assert page.memory[:size] == whole[:size]
        assert page.memory[300_000 : 300_000 + size] == whole[7 : 7 + size]
    assert reader.batch_remove(["a", "missing"], force=True) == [0, -704]
    assert writer.get("a") == b""
    assert writer.close() == reader.close() == 0


def test_tenants_have_keys_of_their_own(cluster: Cluster) -> None:
    cluster.client(64 << 20)
    red, blue, plain = (setup(cluster.address, tenant_id=tenant) for tenant in ("red", "blue", "default"))
    assert [store.put("key", value) for store, value in ((red, b"r"), (blue, b"b"), (plain, b"p"))] == [0, 0, 0]
    assert [store.get("key") for store in (red, blue, plain)] == [b"r", b"b", b"p"]
    assert red.remove_all() == 1
    assert [store.is_exist("key") for store in (red, blue, plain)] == [0, 1, 1]
    for store in (red, blue, plain):
        assert store.close() == 0
