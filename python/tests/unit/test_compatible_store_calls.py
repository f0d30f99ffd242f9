"""MooncakeDistributedStore turns what the library answers into the reference's results."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from fake_store import Fake

from mooncake._native import lib
from mooncake.engine import TransferEngine
from mooncake.store import MooncakeDistributedStore, ReplicateConfig, SoftPinAction

SETUP = ("localhost:17812", "P2PHANDSHAKE", 1 << 20, 1 << 20, "tcp", "", "127.0.0.1:50051")
NAMES = "local_hostname metadata_server global_segment_size local_buffer_size protocol rdma_devices master_server_addr"


@pytest.fixture
def store(fake: Fake) -> Iterator[MooncakeDistributedStore]:
    made = MooncakeDistributedStore()
    assert made.setup(*SETUP) == 0
    yield made
    fake.fail = 0
    made.close()


def test_setup_takes_positions_keywords_and_a_dict_in_both_spellings(fake: Fake) -> None:
    keywords = dict(zip(NAMES.split(), SETUP))
    texts: dict[str, Any] = {name: str(value) for name, value in keywords.items()}
    other = {**texts, "global_segment_size": "1 MB", "something": "else", "engine": None, "enable_ssd_offload": "false"}
    other["master_server_address"] = other.pop("master_server_addr")
    other["device_name"] = other.pop("rdma_devices")
    calls: list[Any] = [
        lambda s: s.setup(*SETUP),
        lambda s: s.setup(*SETUP, None, False, "", "default", False, 9300),
        lambda s: s.setup(*SETUP, None, enable_ssd_offload=False, ssd_offload_path="", tenant_id="default"),
        lambda s: s.setup(**keywords),
        lambda s: s.setup(**keywords, engine=None),
        lambda s: s.setup(texts),
        lambda s: s.setup(config=texts),
        lambda s: s.setup(other),
    ]
    for call in calls:
        fake.opened = {}
        assert call(MooncakeDistributedStore()) == 0
        assert fake.opened["master"] == "127.0.0.1:50051"
        assert fake.opened["listen"] == "localhost:17812"
        assert fake.opened["segment_size"] == 1 << 20


def test_setup_of_a_dict_has_defaults(fake: Fake) -> None:
    assert MooncakeDistributedStore().setup({"local_hostname": "localhost"}) == 0
    assert fake.opened["master"] == "127.0.0.1:50051"
    assert fake.opened["segment_size"] == 16 << 20
    for wrong in (
        {},
        {"local_hostname": "a", "global_segment_size": "many"},
        {"local_hostname": "a", "enable_ssd_offload": "?"},
    ):
        assert MooncakeDistributedStore().setup(wrong) == -600
    with pytest.raises(TypeError, match="protocol must be a str, not int"):
        MooncakeDistributedStore().setup({"local_hostname": "a", "protocol": 5})


def test_setup_without_a_master_has_it_inside(fake: Fake) -> None:
    assert MooncakeDistributedStore().setup(*SETUP[:-1], "") == 0
    assert fake.opened["flags"] == lib.MC_STORE_EMBEDDED
    assert MooncakeDistributedStore().setup(*SETUP[:-1], "somehost") == 0
    assert fake.opened["master"] == "somehost:50051"


def test_a_small_segment_is_made_large_enough_and_none_is_none(fake: Fake) -> None:
    assert MooncakeDistributedStore().setup(*SETUP[:2], 1024, *SETUP[3:]) == 0
    assert fake.opened["segment_size"] == 65536
    assert MooncakeDistributedStore().setup(*SETUP[:2], 0, *SETUP[3:]) == 0
    assert fake.opened["segment_size"] == 0


def test_setup_shares_an_engine(fake: Fake) -> None:
    with TransferEngine() as engine:
        assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
        assert MooncakeDistributedStore().setup(*SETUP, engine.get_engine()) == 0
        assert fake.opened["shared"]
        assert MooncakeDistributedStore().setup(*SETUP, engine=engine) == 0
    with pytest.raises(TypeError, match=r"engine must be .*, not str"):
        MooncakeDistributedStore().setup(*SETUP, "engine")


def test_setup_names_what_is_wrong(fake: Fake) -> None:
    for index, name in enumerate(NAMES.split()):
        wrong = list(SETUP)
        wrong[index] = None  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=f"{name} must be a .*, not NoneType|{name} must be an int, not NoneType"):
            MooncakeDistributedStore().setup(*wrong)
    with pytest.raises(TypeError, match="session_ids"):
        MooncakeDistributedStore().setup(*SETUP, session_ids=[])
    with pytest.raises(TypeError, match="master_server_addr"):
        MooncakeDistributedStore().setup(*SETUP[:-1])
    with pytest.raises(TypeError, match="config, a dict, alone"):
        MooncakeDistributedStore().setup(*SETUP, config={})
    assert "enable_ssd_offload" in (MooncakeDistributedStore.setup.__doc__ or "")


def test_setup_answers_codes_and_only_once(fake: Fake, store: MooncakeDistributedStore) -> None:
    assert store.setup(*SETUP) == -600
    for status, code in ((lib.MC_ERR_UNREACHABLE, -900), (lib.MC_ERR_ADDRESS, -600), (lib.MC_ERR_NO_MEMORY, -200)):
        fake.fail = status
        assert MooncakeDistributedStore().setup(*SETUP) == code


def test_init_all_is_a_setup_on_this_host(fake: Fake) -> None:
    assert MooncakeDistributedStore().init_all("tcp", "", 1 << 20) == 0
    assert fake.opened["master"] == "127.0.0.1:50051"
    assert fake.opened["listen"] == "localhost"
    with pytest.raises(TypeError):
        MooncakeDistributedStore().init_all("tcp", "", "1")  # type: ignore[arg-type]


def test_putting_and_getting(store: MooncakeDistributedStore, fake: Fake) -> None:
    assert store.put("a", b"1") == 0
    assert store.put("a", b"2") == 0, "an existing key is no failure"
    assert store.get("a") == store.get(b"a") == b"1"
    assert store.upsert("a", bytearray(b"3")) == 0
    assert store.get("a") == b"3"
    assert store.get("missing") == b""
    assert store.put_parts("p", b"12", memoryview((ctypes.c_ubyte * 2)(51, 52)), bytearray(b"5")) == 0
    assert store.get("p") == b"12345"
    assert store.put_parts("one", b"1") == store.put_parts("none") == 0
    assert store.upsert_parts("p", b"6", b"7", config=ReplicateConfig()) == 0
    assert store.get("p") == b"67"
    assert store.put_batch(["x", "y"], [b"1", bytearray(b"2")]) == 0
    assert store.upsert_batch(["x", b"y"], [b"3", b"4"]) == 0
    assert store.get_batch(["x", "missing", "y"]) == [b"3", b"", b"4"]
    assert (store.get_size("p"), store.get_size("missing")) == (2, -704)
    assert (store.is_exist("p"), store.is_exist("missing")) == (1, 0)
    assert store.batch_is_exist(["p", "missing"]) == [1, 0]
    assert store.get_hostname() == "127.0.0.1:5"
    assert store.health_check() == 0
    fake.fail = lib.MC_ERR_UNAVAILABLE
    assert store.health_check() == 2


def test_buffers_are_objects_with_a_buffer(store: MooncakeDistributedStore) -> None:
    store.put("a", b"12345")
    handle = store.get_buffer("a")
    assert handle is not None
    assert (handle.size(), len(handle), bytes(handle)) == (5, 5, b"12345")
    assert ctypes.string_at(handle.ptr(), handle.size()) == b"12345"
    memoryview(handle)[0] = 65
    assert store.get("a") == b"12345"
    assert store.get_buffer("missing") is None
    found = store.batch_get_buffer(["missing", "a"])
    assert found[0] is None
    assert found[1] == b"12345"


def test_values_at_addresses(store: MooncakeDistributedStore) -> None:
    memory = (ctypes.c_char * 100)(*b"0123456789")
    base = ctypes.addressof(memory)
    assert store.register_buffer(base, 100) == 0
    assert store.put_from("a", base, 5) == 0
    assert store.upsert_from("a", base + 1, 5, config=ReplicateConfig()) == 0
    assert store.batch_put_from(["b", "c", "a"], [base, base + 2], [1, 2]) == [-600] * 3
    assert store.batch_put_from(["b", "c", "a"], [base, base + 2, base], [1, 2, 3]) == [0, 0, 0]
    assert store.batch_upsert_from(["c"], [base + 3], [3]) == [0]
    assert store.get_batch(["a", "b", "c"]) == [b"12345", b"0", b"345"]
    assert store.get_into("a", base + 50, 50) == 5
    assert store.get_into("a", base + 50, 4) == -600
    assert store.get_into("missing", base, 4) == -704
    assert store.batch_get_into(["c", "missing", "a"], [base + 60, base, base], [3, 3, 3]) == [3, -704, -600]
    assert memory[50:55] == b"12345"
    assert memory[60:63] == b"345"
    assert store.unregister_buffer(base) == 0
    assert store.unregister_buffer(base) == -600


def test_removing(store: MooncakeDistributedStore, fake: Fake) -> None:
    for index in range(20):
        store.put(f"k{index}", b"")
    store.put(b"\xff9", b"")
    assert store.remove("k0") == 0
    assert store.remove("k0", force=True) == -704
    assert store.batch_remove(["k1", "k1", "k2"], force=True) == [0, -704, 0]
    assert store.remove_by_regex("^k1[0-9]$") == 10
    assert store.remove_by_regex("9") == 2
    assert store.remove_by_regex("nothing", True) == 0
    assert store.remove_by_regex("(") == -600
    assert store.remove_all(force=True) == 6
    assert fake.objects == {}


def test_a_config_says_how_a_value_is_stored(store: MooncakeDistributedStore, fake: Fake) -> None:
    config = ReplicateConfig()
    store.put("a", b"", config)
    assert fake.options[-1] == {}
    config.replica_num, config.soft_pin_action, config.with_hard_pin = 99, SoftPinAction.ENABLE, True
    config.preferred_segments, config.preferred_segment = ["b"], "a"
    store.batch_put_from(["a"], [0], [0], config=config)
    assert fake.options[-1] == {
        "flags": lib.MC_PUT_SOFT_PIN | lib.MC_PUT_HARD_PIN, "replicas": 8, "prefer": ["a", "b"], "timeout": 0
    }  # fmt: skip
    config = ReplicateConfig()
    config.prefer_alloc_in_same_node = True
    store.upsert_batch(["a"], [b""], config)
    assert fake.options[-1]["prefer"] == ["127.0.0.1:5"]
    assert fake.options[-1]["flags"] == lib.MC_PUT_UPSERT
    with pytest.raises(TypeError, match="config must be a ReplicateConfig, not dict"):
        store.put("a", b"", {})  # type: ignore[arg-type]


def test_failures_are_numbers_and_lines_in_the_log(
    store: MooncakeDistributedStore, fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    fake.item_fails[b"b"] = lib.MC_ERR_NO_SPACE
    with caplog.at_level(logging.INFO, "mooncake.store"):
        assert store.batch_put_from(["a", "b", "c"], [0, 0, 0], [0, 0, 0]) == [0, -200, 0]
        assert "1 of 3 failed: words of the fake (MC_ERR_NO_SPACE)" in caplog.text
        caplog.clear()
        assert store.get("missing") == b""
        assert caplog.text == ""
        fake.fail = lib.MC_ERR_TIMEOUT
        assert store.put("a", b"") == store.get_size("a") == store.is_exist("a") == store.remove("a") == -901
        assert store.batch_is_exist(["a", "b"]) == store.batch_remove(["a", "b"]) == [-901, -901]
        assert store.put_batch(["a"], [b""]) == store.remove_all() == store.remove_by_regex(".") == -901
        assert store.get("a") == b""
        assert store.get_batch(["a", "b"]) == [b"", b""]
        assert store.get_buffer("a") is None
        assert store.register_buffer(4096, 1) == -901
        assert "words of the fake (MC_ERR_TIMEOUT)" in caplog.text


def test_wrong_types_are_named(store: MooncakeDistributedStore) -> None:
    calls: list[tuple[Any, str]] = [
        (lambda: store.put(5, b""), "key must be a str or bytes, not int"),  # type: ignore[arg-type]
        (lambda: store.put("a", "text"), "value must be an object with a buffer, not str"),
        (lambda: store.put_parts("a", b"", 5), r"parts\[1\] must be an object with a buffer, not int"),
        (lambda: store.put_batch("ab", [b""]), "keys must be a sequence of str or bytes, not str"),  # type: ignore[arg-type]
        (lambda: store.put_batch(["a"], b"1"), "values must be a list, not bytes"),  # type: ignore[arg-type]
        (lambda: store.put_batch(["a"], [1]), r"values\[0\] must be an object with a buffer, not int"),
        (lambda: store.get(None), "key must be a str or bytes, not NoneType"),  # type: ignore[arg-type]
        (lambda: store.get_batch([None]), r"keys\[0\] must be a str or bytes, not NoneType"),  # type: ignore[list-item]
        (lambda: store.put_from("a", "1", 1), "buffer_ptr must be an int, not str"),  # type: ignore[arg-type]
        (lambda: store.get_into("a", 1, None), "size must be an int, not NoneType"),  # type: ignore[arg-type]
        (lambda: store.batch_put_from(["a"], [1.5], [1]), r"buffer_ptrs\[0\] must be an int, not float"),  # type: ignore[list-item]
        (lambda: store.batch_get_into(["a"], [1], 1), "sizes must be a list of int, not int"),  # type: ignore[arg-type]
        (lambda: store.remove("a", 1), "force must be a bool, not int"),  # type: ignore[arg-type]
        (lambda: store.remove_by_regex(b"a"), "regex_pattern must be a str, not bytes"),  # type: ignore[arg-type]
        (lambda: store.register_buffer(None, 1), "buffer_ptr must be an int, not NoneType"),  # type: ignore[arg-type]
    ]
    for call, words in calls:
        with pytest.raises(TypeError, match=words):
            call()


def test_what_is_not_built_says_so(store: MooncakeDistributedStore) -> None:
    import mooncake.store
    from mooncake.store import _later

    names = " ".join(_later.METHODS.values()).split()
    assert len(set(names)) == len(names) > 40
    for name in names:
        assert hasattr(store, name)
        with pytest.raises(NotImplementedError, match=f"{name} is not available: it is of "):
            getattr(store, name)("any", thing=1)
    for name in _later.CLASSES:
        with pytest.raises(NotImplementedError, match=f"{name} is not available"):
            getattr(mooncake.store, name)()
    with pytest.raises(NotImplementedError, match="NUMA"):
        mooncake.store.bind_to_numa_node(0)
    assert not hasattr(store, "no_such_method")
