"""Segments come and go while a store is open: what Python programs are told, and what they find."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from support import Cluster

import mooncake
from mooncake.store import MooncakeDistributedStore

MB = 1 << 20


def state_of(store: Any, segment: str) -> str:
    return next((one["state"] for one in store.segments() if one["id"] == segment), "gone")


def test_a_store_lists_the_segments_of_the_pool_with_its_own_first() -> None:
    with mooncake.connect(segment_size="8MB", name="first") as store:
        more = store.mount("4MB", name="more")
        first, second = store.segments()
        assert (first["name"], first["size"], first["state"], first["own"]) == ("first", 8 * MB, "serving", True)
        assert (second["name"], second["id"], second["address"]) == ("more", more, store.address)
        assert store.stats()["segment"]["size"] == 12 * MB
        with mooncake.connect(store.address) as other:
            other.put("key", bytes(MB), prefer=["more"])
            assert [one["own"] for one in other.segments()] == [False, False]
            assert store.segments()[1]["used"] >= MB


def test_a_segment_drains_and_goes() -> None:
    with mooncake.connect(segment_size="8MB", name="first") as store:
        more = store.mount("4MB", name="more")
        store.put("old", b"value", prefer=["more"])
        store.put("kept", b"value", prefer=["first"])
        store.unmount(more, grace=600)
        assert state_of(store, more) == "draining"
        assert store["old"] == b"value"
        store.unmount(more)
        assert state_of(store, more) == "gone"
        assert "old" not in store
        assert store["kept"] == b"value"
        with pytest.raises(mooncake.errors.SegmentNotFound):
            store.unmount(more)


def test_a_file_is_a_segment(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(4 * MB))
    with mooncake.connect(segment_size="8MB") as store:
        segment = store.mount(path=path, name="file")
        store.put("key", b"in the file", prefer=["file"])
        assert b"in the file" in path.read_bytes()
        with pytest.raises(mooncake.errors.Busy):
            store.mount(path=str(path))
        store.unmount(segment)
        store.mount("1MB", path=path, offset=3 * MB)
        with pytest.raises(mooncake.errors.InvalidArgument, match="fewer than"):
            store.mount("8MB", path=path)
        with pytest.raises(mooncake.errors.System, match="No such file"):
            store.mount(path=tmp_path / "nothing")
        with pytest.raises(TypeError):
            store.mount()
        with pytest.raises(ValueError, match="NUL"):
            store.mount(path="a\0b")
    with pytest.raises(mooncake.errors.Closed):
        store.mount("1MB")
    with pytest.raises(mooncake.errors.Closed):
        store.segments()


def test_the_reference_s_methods_give_what_its_programs_expect(
    old_store: MooncakeDistributedStore, tmp_path: Path
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(4 * MB))
    made = old_store.mount_segment(str(path), 2 * MB, 4096, protocol="tcp", location="cpu:0")
    assert (made["ret"], [type(one) for one in made["segment_ids"]]) == (0, [str])
    fresh = old_store.allocate_and_mount_segment(3 * MB + 1)
    assert (fresh["ret"], fresh["allocated_size"], len(fresh["segment_ids"])) == (0, 3 * MB + 4096, 1)
    assert old_store.put("key", bytes(MB)) == 0
    assert old_store.unmount_segment(made["segment_ids"]) == 0
    assert old_store.unmount_segment(made["segment_ids"]) == -101
    assert old_store.unmount_and_free_segment(fresh["segment_ids"], 1) == 0
    end = time.monotonic() + 10
    while old_store.unmount_and_free_segment(fresh["segment_ids"], 600) == 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert time.monotonic() < end  # a longer grace doesn't prolong it
    assert old_store.unmount_segment(["no id", made["segment_ids"][0]]) == -600
    assert old_store.unmount_segment([]) == 0


def test_the_reference_s_methods_refuse_what_makes_no_sense(
    old_store: MooncakeDistributedStore, tmp_path: Path
) -> None:
    refused = {"ret": -600, "segment_ids": []}
    assert old_store.mount_segment(str(tmp_path), MB) == refused
    assert old_store.mount_segment("a\0b", MB) == refused
    assert old_store.mount_segment("", MB) == old_store.mount_segment("/dev/shm/x", 0) == refused
    assert old_store.mount_segment(str(tmp_path / "nothing"), MB)["ret"] < 0
    assert old_store.allocate_and_mount_segment(0) == {**refused, "allocated_size": 0}
    closed = MooncakeDistributedStore()
    assert closed.mount_segment("/tmp/x", MB) == refused
    assert closed.unmount_and_free_segment(["x"]) == -600
    with pytest.raises(TypeError):
        old_store.unmount_segment("not a list")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="grace"):
        old_store.unmount_segment([], -1)


def test_each_segment_is_mounted_again_at_a_master_that_was_restarted(cluster: Cluster) -> None:
    with mooncake.connect(cluster.address, segment_size="8MB", name="first") as store:
        more = store.mount("4MB", name="more")
        going = store.mount("4MB", name="going")
        store.put("1", b"one", prefer=["first"])
        store.put("2", b"two", prefer=["more"])
        store.put("3", b"three", prefer=["going"])
        store.unmount(going, grace=600)
        cluster.restart_master()
        end = time.monotonic() + 30
        while time.monotonic() < end and not store.healthy:
            time.sleep(0.01)
        assert [store.get(key, timeout=20) for key in ("1", "2", "3")] == [b"one", b"two", b"three"]
        assert (state_of(store, more), state_of(store, going)) == ("serving", "draining")
        with mooncake.connect(cluster.address) as other:
            while time.monotonic() < end and state_of(other, going) != "draining":
                time.sleep(0.01)
            assert state_of(other, going) == "draining"
            other.put("4", b"four", prefer=["going"])
        store.unmount(going)
        assert (store.get("3"), store["4"]) == (None, b"four")
