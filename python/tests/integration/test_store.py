"""The store in one process, and between processes: what was put is what others read, or an error."""

from __future__ import annotations

import gc
import os
import random
import time
from typing import Any

import pytest
from support import Cluster

import mooncake
from mooncake import errors
from mooncake.engine import alloc
from mooncake.store import Store

DATA = random.Random(3).randbytes(9_000_000)
SIZES = (0, 1, 63, 64, 65, 4095, 4096, 4097, 65536, 65537, 262_145, 1_048_576, 1_048_577, 8_388_609)


@pytest.mark.parametrize("length", SIZES)
def test_a_value_of_any_length_is_read_as_it_was_put(store: Store, length: int) -> None:
    value = DATA[:length]
    store["a"] = value
    assert store["a"] == value
    assert store.size("a") == length
    assert store.get_view("a") == value
    buffer = bytearray(length + 1)
    assert store.get_into("a", buffer) == length
    assert buffer[:length] == value
    assert store.get_many(["a", "missing"]) == [value, None]


def test_missing_is_not_empty(store: Store) -> None:
    """Fault 26."""
    store["empty"] = b""
    assert store["empty"] == b""
    assert store.get("empty") == b""
    assert store.get("missing") is None
    assert "empty" in store
    assert "missing" not in store
    assert store.get_view("empty") == b""
    assert store.size("empty") == 0
    assert store.get_many(["empty", "missing"]) == [b"", None]
    assert store.get_many_into(["empty", "missing"], [bytearray(1), bytearray(1)]) == [0, None]
    with pytest.raises(KeyError):
        store["missing"]


def test_one_bad_item_spoils_no_other(store: Store) -> None:
    """Fault 27."""
    huge = bytearray(80 << 20)
    items: list[tuple[Any, Any]] = [("a", b"1"), ("", b"2"), ("k" * 5000, b"3"), ("big", huge), ("b", b"4")]
    with pytest.raises(errors.MooncakeError) as caught:
        store.put_many(items, timeout=0.5)
    results = caught.value.results
    assert results is not None
    assert [results[0], results[4]] == [True, True]
    assert isinstance(results[1], errors.InvalidKey)
    assert isinstance(results[2], errors.InvalidKey)
    assert isinstance(results[3], (errors.TooLarge, errors.NoSpace))
    assert caught.value is results[1]
    assert sorted(store) == [b"a", b"b"]
    assert store.get_many(["a", "b"]) == [b"1", b"4"]
    with pytest.raises(errors.InvalidKey) as bad_key:
        store.get_many(["a", "", "missing", "b"])
    assert bad_key.value.results == [b"1", bad_key.value, None, b"4"]
    assert store.remove_many(["missing", "a", "b"]) == [False, True, True]
    end = time.monotonic() + 10
    while store.stats()["segment"]["live"]:
        assert time.monotonic() < end, "the removed objects' memory stays taken"


def test_keys_are_any_bytes(store: Store) -> None:
    names = [b"\0", b"\xfe" * 4096, b"\xff" * 4093, "schlüssel".encode(), b"a/b c\n", b"a", b"A"]
    assert store.put_many({name: b"%d" % index for index, name in enumerate(names)}) == [True] * len(names)
    assert store.get_many(names) == [b"%d" % index for index in range(len(names))]
    assert store["schlüssel"] == b"3"
    assert sorted(store) == sorted(names)
    for wrong in ("", b"", "x" * 4097):
        with pytest.raises(errors.InvalidKey):
            store.put(wrong, b"")
        with pytest.raises(errors.InvalidKey):
            store.get(wrong)


def test_a_put_leaves_what_is_there_and_an_upsert_replaces_it(store: Store) -> None:
    store.put("a", b"old")
    with pytest.raises(errors.AlreadyExists):
        store.put("a", b"new")
    assert store["a"] == b"old"
    store.upsert("a", DATA)
    assert store["a"] == DATA
    store["a"] = b"short"
    assert store["a"] == b"short"


def test_many_keys_are_listed_once_each_and_cleared(store: Store) -> None:
    count = 10_000
    assert all(store.put_many({f"key/{index}": b"x" for index in range(count)}))
    listed = list(store)
    assert len(listed) == count
    assert set(listed) == {b"key/%d" % index for index in range(count)}
    assert store.clear() == count
    assert list(store) == []


def test_a_full_pool_makes_room_but_not_of_what_is_pinned(store: Store) -> None:
    part = 1 << 20
    store.put("pinned", DATA[:part], hard_pin=True)
    for index in range(200):
        store.put(f"k{index}", DATA[index : index + part], timeout=10)
    assert store["pinned"] == DATA[:part]
    assert store["k199"] == DATA[199 : 199 + part]
    assert "k0" not in store
    held = [index for index in range(200) if (value := store.get(f"k{index}")) and value != DATA[index : index + part]]
    assert held == []


def test_a_put_without_space_says_so_in_time(store: Store) -> None:
    part = 8 << 20
    assert store.put_many({f"k{index}": DATA[:part] for index in range(7)}, hard_pin=True) == [True] * 7
    start = time.monotonic()
    with pytest.raises(errors.NoSpace):
        store.put("more", DATA[:part], hard_pin=True, timeout=0.5)
    assert time.monotonic() - start < 3
    store.remove("k0")
    store.put("more", DATA[:part], hard_pin=True)


def test_views_outlive_the_object_and_the_store() -> None:
    with mooncake.connect(segment_size="64MiB") as store:
        store["a"] = DATA
        view = store.get_view("a")
        with pytest.raises(TypeError):
            view[0] = 1
        del store["a"]
        for index in range(20):
            store[f"k{index}"] = DATA[:4_000_000]
        assert view == DATA
    assert view == DATA
    part = view[1000:2000]
    del view
    gc.collect()
    assert part == DATA[1000:2000]


def test_views_are_bounded() -> None:
    with mooncake.connect(segment_size="64MiB", view_bytes="2MiB") as store:
        store["a"] = DATA[: 1 << 20]
        views = [store.get_view("a") for _ in range(2)]
        with pytest.raises(errors.TooMany):
            store.get_view("a")
        del views[0]
        store.get_view("a")


def test_memory_of_the_library_and_registered_memory_are_read_into(client: Store) -> None:
    client["a"] = DATA
    with alloc(len(DATA)) as memory:
        assert client.get_into("a", memory) == len(DATA)
        assert memory.view == DATA
    buffer = bytearray(len(DATA))
    with client.register(buffer) as registration:
        with pytest.raises(errors.Overlap):
            client.register(memoryview(buffer)[1:])
        assert client.get_into("a", registration.address, registration.length) == len(DATA)
        client["b"] = buffer
    assert buffer == DATA
    assert client["b"] == DATA


def test_processes_share_what_they_put(client: Store, cluster: Cluster) -> None:
    owner, other = cluster.clients[0], cluster.client()
    for index, length in enumerate(SIZES):
        client[f"a{index}"] = DATA[:length]
        assert client[f"a{index}"] == DATA[:length]
        assert bytes.fromhex(other.ask("get", f"a{index}")) == DATA[:length]
        owner.ask("put", f"b{index}", DATA[:length].hex())
        assert client[f"b{index}"] == DATA[:length]
        assert client.get_view(f"b{index}") == DATA[:length]
    found = client.get_many([f"b{index}" for index in range(len(SIZES))])
    assert found == [DATA[:length] for length in SIZES]
    views = client.get_views(["b3", "missing", "a9"])
    assert views == [DATA[: SIZES[3]], None, DATA[: SIZES[9]]]
    assert owner.ask("fill", "f", 1000, 50) == 1000
    assert client.get_many([f"f{index}" for index in range(1000)]) == [b"%d." % index * 50 for index in range(1000)]
    assert all(client.exists_many([f"f{index}" for index in range(1000)]))


def test_what_was_removed_or_replaced_is_read_by_nobody(client: Store, cluster: Cluster) -> None:
    owner, other = cluster.clients[0], cluster.client()
    for index in range(20):
        client["a"] = old = b"old %d" % index
        assert bytes.fromhex(other.ask("get", "a")) == old
        assert client["a"] == old
        assert owner.ask("upsert", "a", (b"new %d" % index).hex())
        assert client["a"] == b"new %d" % index
        assert bytes.fromhex(other.ask("get", "a")) == b"new %d" % index
        assert other.ask("remove", "a")
        assert client.get("a") is None
        assert owner.ask("get", "a") is None
        assert other.ask("remove", "a") == {"error": "NotFound"}


def test_a_view_in_another_process_stays_while_the_pool_is_overwritten(client: Store, cluster: Cluster) -> None:
    other = cluster.client()
    client["a"] = DATA[:100_000]
    assert bytes.fromhex(other.ask("view", "a")) == DATA[:100_000]
    view = client.get_view("a")
    client.remove("a")
    for index in range(100):
        client.put(f"k{index}", DATA[: 1 << 20], timeout=10)
    assert view == DATA[:100_000]
    assert other.ask("drop")


def test_a_view_of_a_dead_owner_s_memory_stays_readable(client: Store, cluster: Cluster) -> None:
    client["a"] = DATA
    view = client.get_view("a")
    cluster.clients[0].end()
    assert view == DATA


def gone(store: Store, key: str) -> bool:
    """Whether there is no such key; until the master knows that an owner is dead, asking may fail."""
    try:
        return store.get(key, timeout=2) is None
    except (errors.Unreachable, errors.ConnectionLost, errors.Timeout, errors.StalePeer, errors.Unavailable):
        return False


def test_the_keys_of_a_dead_owner_are_gone_and_new_ones_find_a_place(client: Store, cluster: Cluster) -> None:
    client["a"] = DATA[:100_000]
    cluster.clients[0].end()
    cluster.client(64 << 20)
    end = time.monotonic() + 20
    while not gone(client, "a"):
        assert time.monotonic() < end
    client.put("b", DATA[:100_000], timeout=10)
    assert client["b"] == DATA[:100_000]


def test_two_copies_outlive_one_owner(cluster: Cluster) -> None:
    for _ in range(2):
        cluster.client(64 << 20)
    with mooncake.connect(cluster.address) as client:
        client.put("a", DATA[:100_000], replicas=2)
        cluster.clients[0].end()
        assert client["a"] == DATA[:100_000]


def test_a_store_with_its_master_inside_serves_others() -> None:
    with mooncake.connect(segment_size="16MiB") as first, mooncake.connect(f"mooncake://{first.address}") as second:
        second["a"] = b"1"
        assert first["a"] == b"1"
        assert second.healthy
        assert [first.address, second.address] == [first.address, second.address]


def test_no_master_is_unreachable_in_time() -> None:
    start = time.monotonic()
    with pytest.raises(errors.Unreachable):
        mooncake.connect("127.0.0.1:1")
    assert time.monotonic() - start < 5
    for wrong in ("127.0.0.1", "a:b:c", "127.0.0.1:99999"):
        with pytest.raises(errors.Address):
            mooncake.connect(wrong)


def test_an_engine_can_be_shared() -> None:
    from mooncake.engine import Engine

    with Engine() as engine, mooncake.connect(segment_size="16MiB", engine=engine) as store:
        assert store.address == engine.address
        store["a"] = b"1"
        assert store["a"] == b"1"
    with Engine() as engine, pytest.raises(TypeError, match="options already"):
        mooncake.connect(engine=engine, lanes=2)


def test_a_child_of_fork_gets_an_error_and_may_open_its_own(store: Store) -> None:
    store["a"] = b"1"
    child = os.fork()
    if child == 0:
        status = 1
        try:
            try:
                store.get("a")
            except errors.Forked:
                with mooncake.connect(segment_size="16MiB") as own:
                    own["b"] = b"2"
                    status = 0 if own["b"] == b"2" else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert store["a"] == b"1"
