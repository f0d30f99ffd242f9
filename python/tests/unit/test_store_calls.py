"""Store makes Python of what the library answers."""

from __future__ import annotations

import array
import gc
import random
from collections.abc import Iterator
from typing import Any

import pytest
from fake_store import Fake

from mooncake import errors
from mooncake._native import lib
from mooncake.store import Store, connect

LARGE = random.Random(2).randbytes(200_000)


@pytest.fixture
def store(fake: Fake) -> Iterator[Store]:
    made = connect()
    yield made
    fake.fail = 0
    made.close()


def test_without_a_url_the_master_is_inside(fake: Fake) -> None:
    connect()
    assert fake.opened["flags"] == lib.MC_STORE_EMBEDDED
    assert (fake.opened["master"], fake.opened["segment_size"], fake.opened["timeout"]) == (None, 0, 0)


@pytest.mark.parametrize("url", ["host:1", "mooncake://host:1", "mooncake://host:1/"])
def test_a_url_names_the_master(fake: Fake, url: str) -> None:
    connect(url, segment_size="1MiB", name="mine", timeout=2, view_bytes="1k", verify=True, listen="127.0.0.1")
    assert fake.opened == {
        "master": "host:1",
        "name": "mine",
        "listen": "127.0.0.1",
        "shared": False,
        "flags": lib.MC_STORE_VERIFY,
        "segment_size": 1 << 20,
        "timeout": 2_000_000_000,
        "view_bytes": 1024,
    }


def test_another_scheme_is_refused(fake: Fake) -> None:
    with pytest.raises(ValueError, match=r"mooncake://host:port, not 'etcd://a:1'"):
        connect("etcd://a:1")


def test_it_is_a_mapping_of_keys_to_bytes(store: Store, fake: Fake) -> None:
    store["a"] = b"1"
    store[b"\xff"] = bytearray(b"22")
    store["a"] = array.array("I", [7])
    assert store["a"] == b"\x07\0\0\0"
    assert store.get(b"\xff") == b"22"
    assert (store.get("b"), store.get("b", 5)) == (None, 5)
    assert "a" in store
    assert "b" not in store
    for index in range(10):
        store[f"k{index}"] = b""
    assert store["k3"] == b""
    assert sorted(store) == sorted([b"a", b"\xff", *(b"k%d" % index for index in range(10))])
    assert fake.calls.count("list") == fake.calls.count("page_free") == 5
    del store["a"]
    for call in (lambda: store["a"], lambda: store.size("a"), lambda: store.remove("a"), lambda: store.get_view("a")):
        with pytest.raises(KeyError) as caught:
            call()
        assert isinstance(caught.value, errors.NotFound)
        assert caught.value.code == lib.MC_ERR_NOT_FOUND
    with pytest.raises(errors.NotFound):
        del store["a"]
    assert store.clear() == 11
    assert list(store) == []


def test_put_leaves_an_existing_value_alone_and_upsert_does_not(store: Store) -> None:
    store.put("a", b"old")
    with pytest.raises(errors.AlreadyExists):
        store.put("a", b"new")
    assert store["a"] == b"old"
    store.put("a", b"new", replace=True)
    assert store["a"] == b"new"
    store.upsert("a", b"newer")
    assert store["a"] == b"newer"


def test_options_are_handed_on(store: Store, fake: Fake) -> None:
    store.put("a", b"", replicas=2, soft_pin=True, prefer=["x"], timeout=3)
    assert fake.options[-1] == {
        "flags": lib.MC_PUT_SOFT_PIN, "replicas": 2, "prefer": ["x"], "timeout": 3_000_000_000
    }  # fmt: skip
    store.put_many({"b": b""}, hard_pin=True, replace=True)
    assert fake.options[-1]["flags"] == lib.MC_PUT_HARD_PIN | lib.MC_PUT_UPSERT


def test_values_need_a_contiguous_buffer(store: Store) -> None:
    for wrong in ("text", 5, None, [1]):
        with pytest.raises(TypeError, match=f"value must be an object with a buffer, not {type(wrong).__name__}"):
            store.put("a", wrong)
    with pytest.raises(BufferError):
        store.put("a", memoryview(b"abcd")[::2])
    with pytest.raises(TypeError, match="the value of 'b' must be an object with a buffer, not str"):
        store.put_many({"a": b"1", "b": "text"})
    with pytest.raises(BufferError, match="not writable"):
        store.get_into("a", b"read-only")
    with pytest.raises(BufferError, match="not writable"):
        store.get_many_into(["a"], [b"read-only"])
    assert list(store) == []


def test_large_and_small_values_are_whole(store: Store, fake: Fake) -> None:
    for length in (0, 1, 2, 65535, 65536, 65537, 200_000):
        store["a"] = LARGE[:length]
        del fake.calls[:]
        assert store["a"] == LARGE[:length]
        assert fake.calls == (["get"] if length <= 65536 else ["get", "size", "get"])
        assert store["a"] == LARGE[:length]
        assert len(fake.calls) == (2 if length <= 65536 else 4), "large ones of equal length take one call"
    store["a"] = LARGE[:100_000]
    assert store["a"] == LARGE[:100_000]
    assert fake.calls[-1] == "get"
    store["a"] = LARGE[:5]
    assert store["a"] == LARGE[:5]
    values = {str(length): LARGE[:length] for length in (0, 1, 2)}
    store.put_many(values)
    assert store.get_many(values) == list(values.values())
    assert b"".join(map(bytes, store.get_many(["1"] * 3))) == LARGE[:1] * 3  # type: ignore[arg-type]
    assert bytes(0) == b""
    assert bytes(1)[0] == 0, "what CPython shares was not written to"


def test_a_value_that_changes_between_the_calls_is_read_again(store: Store, fake: Fake) -> None:
    store["a"] = LARGE[:100_000]
    sizes = [200_000, 70_000]

    def change(name: str) -> None:
        if name == "get" and fake.calls[-2] == "size" and sizes:
            fake.objects[b"a"] = LARGE[: sizes.pop(0)]

    fake.before = change
    assert store["a"] == LARGE[:70_000]


def test_views_are_read_only_and_released_with_the_last_reference(store: Store, fake: Fake) -> None:
    store["a"], store["empty"] = LARGE, b""
    view = store.get_view("a")
    part = view[10:20]
    assert view.readonly
    assert bytes(view) == LARGE
    store.close()
    del view
    gc.collect()
    assert "release" not in fake.calls
    assert bytes(part) == LARGE[10:20]
    del part
    gc.collect()
    assert fake.calls[-1] == "release"
    assert not fake.views
    with connect() as again:
        assert again.get_view("empty") == b""
        views = again.get_views(["a", "missing", "empty"])
        assert views[1] is None
        assert views[0] == LARGE
        assert views[2] == b""
    views.clear()
    gc.collect()
    assert not fake.views


def test_a_value_goes_into_a_buffer(store: Store) -> None:
    from mooncake.engine import alloc

    store["a"] = b"12345"
    buffer = bytearray(8)
    assert store.get_into("a", buffer) == 5
    assert buffer == b"12345\0\0\0"
    with pytest.raises(errors.BufferTooSmall):
        store.get_into("a", memoryview(buffer)[:4])
    with alloc(4096) as memory:
        assert store.get_into("a", memory) == 5
        assert store.get_into("a", memory.address + 8, 100) == 5
        assert bytes(memory.view[:13]) == b"12345\0\0\x0012345"
        store["b"] = memory
    assert store.size("b") == 4096


def test_many_at_once(store: Store, fake: Fake) -> None:
    values = {f"k{index}": LARGE[: index * 1000] for index in range(50)}
    assert store.put_many(values) == [True] * 50
    assert store.put_many([("k3", b"other"), ("new", b"n")]) == [False, True]
    assert store.put_many({"new": b"newer"}, replace=True) == [True]
    del fake.calls[:]
    assert store.get_many(["new", "missing", *values]) == [b"newer", None, *values.values()]
    assert fake.calls == ["size_batch", "get_batch"]
    buffers = [bytearray(10) for _ in range(2)]
    assert store.get_many_into(["missing", "new"], buffers) == [None, 5]
    assert buffers == [bytes(10), b"newer" + bytes(5)]
    assert store.sizes(["k2", "missing"]) == [2000, None]
    assert store.exists_many(["k2", "missing"]) == [True, False]
    assert store.remove_many(["k2", "missing", "k2"]) == [True, False, False]
    assert store.get_many([]) == store.put_many({}) == store.remove_many(iter([])) == []
    with pytest.raises(ValueError, match="1 keys and 0 buffers"):
        store.get_many_into(["a"], [])


def test_more_than_the_library_takes_at_once_is_cut(store: Store, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    from mooncake.store import _calls

    monkeypatch.setattr(_calls, "_PART", 3)
    values = {f"k{index}": b"%d" % index for index in range(10)}
    assert store.put_many(values) == [True] * 10
    assert fake.calls.count("put_batch") == 4
    assert store.get_many(values) == list(values.values())
    assert [bytes(view or b"?") for view in store.get_views(values)] == list(values.values())
    fake.item_fails[b"k7"] = lib.MC_ERR_NO_SPACE
    with pytest.raises(errors.NoSpace) as caught:
        store.put_many(values)
    assert [index for index, result in enumerate(caught.value.results or []) if result is not False] == [7]


def test_a_failed_item_raises_with_the_results_of_all(store: Store, fake: Fake) -> None:
    fake.item_fails[b"b"] = lib.MC_ERR_NO_SPACE
    with pytest.raises(errors.NoSpace, match="words of the fake") as caught:
        store.put_many({"a": b"1", "b": b"2", "c": b"3"})
    assert caught.value.results == [True, caught.value, True]
    assert store.get("c") == b"3"
    fake.item_fails = {b"a": lib.MC_ERR_CHECKSUM_MISMATCH}
    with pytest.raises(errors.ChecksumMismatch) as caught_again:
        store.get_many(["missing", "a", "c"])
    assert caught_again.value.results == [None, caught_again.value, b"3"]
    with pytest.raises(errors.ChecksumMismatch):
        store.get("a")


def test_a_failed_call_fails_all_its_items(store: Store, fake: Fake) -> None:
    store["a"] = b"1"
    fake.fail = lib.MC_ERR_UNAVAILABLE
    calls: list[Any] = [
        lambda: store["a"],
        lambda: store.get("a"),
        lambda: store.put("b", b""),
        lambda: store.get_many(["a", "b"]),
        lambda: store.put_many({"a": b"", "b": b""}),
        lambda: store.get_views(["a", "b"]),
        lambda: store.get_many_into(["a"], [bytearray(8)]),
        lambda: store.exists_many(["a", "b"]),
        lambda: store.remove_many(["a", "b"]),
        lambda: "a" in store,
        lambda: list(store),
        lambda: store.clear(),
        lambda: store.register(bytearray(8)),
    ]
    for call in calls:
        with pytest.raises(errors.Unavailable, match="words of the fake"):
            call()
    assert not store.healthy


def test_a_closed_store_says_so(store: Store) -> None:
    assert store.healthy
    assert store.address == "127.0.0.1:5"
    assert "127.0.0.1:5" in repr(store)
    store.close()
    store.close()
    assert store.closed
    assert "closed" in repr(store)
    assert not store.healthy
    calls: list[Any] = [
        lambda: store["a"],
        lambda: store.put("a", b""),
        lambda: store.get_many(["a"]),
        lambda: store.address,
        lambda: store.stats(),
        lambda: list(store),
        lambda: store.register(bytearray(8)),
    ]
    for call in calls:
        with pytest.raises(errors.Closed, match="the store is closed"):
            call()


def test_memory_is_registered_for_a_block(store: Store, fake: Fake) -> None:
    buffer = bytearray(100)
    with store.register(buffer) as registration:
        assert fake.registered == {registration.address: 100}
        with pytest.raises(BufferError):
            buffer.extend(b"1")
        registration.unregister()
    assert not fake.registered
    buffer.extend(b"1")
    with pytest.raises(errors.NotRegistered):
        store.unregister_range(4096)


def test_stats_is_a_dict(store: Store) -> None:
    store["a"] = b""
    assert store.stats()["master"]["keys"] == 1
