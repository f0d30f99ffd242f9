"""Objects in pieces through MooncakeDistributedStore: several buffers for one, parts of one, sessions of reading."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import pytest
from support import Cluster

from mooncake.store import MooncakeDistributedStore, ReplicaStatus

DATA = random.Random(6).randbytes(1 << 20)


class Room:
    """Memory of the caller, at an address."""

    def __init__(self, size: int, content: bytes = b"") -> None:
        self.memory = (ctypes.c_char * size)()
        self.memory[: len(content)] = content
        self.base = ctypes.addressof(self.memory)

    def __getitem__(self, part: slice) -> bytes:
        return bytes(self.memory[part])


def setup(master: str) -> MooncakeDistributedStore:
    made = MooncakeDistributedStore()
    assert made.setup("127.0.0.1", "P2PHANDSHAKE", 0, 0, "tcp", "", master) == 0
    return made


def test_layers_of_blocks_are_put_from_many_buffers_and_read_into_others(cluster: Cluster) -> None:
    """As the connectors do: each block of each layer lies somewhere else."""
    cluster.client(64 << 20)
    writer, reader = setup(cluster.address), setup(cluster.address)
    source, target = Room(1 << 20, DATA), Room(1 << 20)
    layers, size, blocks = 61, 700, 20
    order = random.Random(7).sample(range(layers * blocks), layers * blocks)
    keys = [f"block-{block}" for block in range(blocks)]
    rows = [order[block * layers : (block + 1) * layers] for block in range(blocks)]
    pointers = [[source.base + place * size for place in row] for row in rows]
    sizes = [[size] * layers] * blocks
    assert writer.batch_put_from_multi_buffers(keys, pointers, sizes) == [0] * blocks
    assert writer.batch_put_from_multi_buffers(keys[:1], pointers[:1], sizes[:1]) == [0], "it is there"
    value = b"".join(DATA[place * size : (place + 1) * size] for place in rows[0])
    assert reader.get("block-0") == value
    back = [[target.base + place * size for place in row] for row in rows]
    for _ in range(2):
        ctypes.memset(target.base, 0, 1 << 20)
        assert reader.batch_get_into_multi_buffers([*keys, "no"], [*back, back[0]], [*sizes, sizes[0]]) == [
            *([layers * size] * blocks),
            -704,
        ]
        assert target[: layers * blocks * size] == DATA[: layers * blocks * size]
    assert reader.batch_get_into_multi_buffers(keys[:1], [back[0][:-1]], [sizes[0][:-1]]) == [-600], "too small"
    for store in (writer, reader):
        assert store.close() == 0


def test_parts_are_read_in_a_session(old_store: MooncakeDistributedStore) -> None:
    """The direct linker's calls: a layer of each page at a time."""
    assert old_store.put("page-a", DATA[:4096]) == old_store.put("page-b", DATA[4096:8192]) == 0
    keys = ["page-a", "page-b"]
    assert old_store.batch_get_session_start([*keys, "page-c"]) == [0, 0, -704]
    room = Room(8192)
    for layer in range(4):
        pointers = [
            [room.base + page * 4096 + layer * 1024, room.base + page * 4096 + layer * 1024 + 24] for page in (0, 1)
        ]
        assert old_store.batch_get_into_multi_buffer_ranges(
            keys, pointers, [[24, 1000]] * 2, [[layer * 1024, layer * 1024 + 24]] * 2
        ) == [1024, 1024]
    assert room[:8192] == DATA[:8192]
    assert old_store.batch_get_into_multi_buffer_ranges(["page-a"], [[room.base]], [[97]], [[4000]]) == [-600]
    assert old_store.batch_get_session_end(keys) == 0


def test_layers_are_written_in_sessions_as_they_come(cluster: Cluster) -> None:
    """As layer-wise connectors do; the pages are found when they are ended, not before."""
    cluster.client(64 << 20)
    writer, reader = setup(cluster.address), setup(cluster.address)
    source = Room(1 << 20, DATA)
    layers, size, pages = 16, 1000, 5
    keys = [f"page-{page}" for page in range(pages)]
    assert writer.batch_put_session_start(keys, [layers * size] * pages) == [0] * pages
    assert writer.batch_put_session_start(keys[:1], [5]) == [-600], "it has a session"
    for layer in reversed(range(layers)):
        pointers = [[source.base + (page * layers + layer) * size] for page in range(pages)]
        assert (
            writer.batch_put_from_multi_buffer_ranges(keys, pointers, [[size]] * pages, [[layer * size]] * pages)
            == [size] * pages
        )
        if layer:
            assert writer.batch_put_session_end(keys[:1]) == [-600], "bytes are missing"
            assert reader.batch_is_exist(keys) == [0] * pages
    assert writer.batch_put_session_end(keys) == [0] * pages
    assert b"".join(reader.get_batch(list(keys))) == DATA[: pages * layers * size]
    assert writer.batch_put_session_end(keys[:1]) == writer.batch_put_session_revoke(keys[:1]) != [0]
    assert writer.batch_put_session_start([keys[0], "page-new"], [5, 5]) == [-705, 0], "it is there"
    assert writer.batch_put_session_revoke(["page-new"]) == [0]
    assert writer.batch_put_session_start(["page-new"], [5]) == [0]
    for store in (writer, reader):
        assert store.close() == 0


def test_ranges_go_to_offsets_of_buffers(old_store: MooncakeDistributedStore) -> None:
    assert old_store.put("a", b"0123456789") == old_store.put("b", b"abcdefghij") == 0
    one, two = Room(8), Room(8)
    assert old_store.get_into_ranges(
        [one.base, two.base],
        [["a", "b"], ["b", "missing", "a"]],
        [[[0, 6], [2]], [[0], [1], [7, 0]]],
        [[[8, 0], [1]], [[9], [0], [10, 0]]],
        [[[2, 2], [4]], [[1], [1], [0, 0]]],
    ) == [[[2, 2], [4]], [[1], [-704], [0, 0]]]
    assert one[:8] == b"89bcde01"
    assert two[:8] == b"j" + bytes(7)
    assert old_store.get_into_ranges([one.base], [["a"]], [[[0, 0]]], [[[0, 4]]], [[[1, 7]]]) == [[[-600, -600]]]
    assert old_store.get_into_ranges([], [], [], [], []) == []


def test_metadata_goes_before_the_bytes(old_store: MooncakeDistributedStore) -> None:
    head, body = Room(4, b"head"), Room(6, b"a body")
    assert old_store.put_from_with_metadata("both", body.base, head.base, 6, 4) == 0
    assert old_store.get("both") == b"heada body"
    assert old_store.put_parts("parts", b"", memoryview(b"one "), bytearray(b"value")) == 0
    assert old_store.put_parts("none") == 0
    assert (old_store.get("parts"), old_store.get_size("none")) == (b"one value", 0)
    assert old_store.upsert_parts("parts", b"an", b"other") == 0
    assert old_store.get("parts") == b"another"


def test_lists_that_differ_in_length_are_refused_whole(old_store: MooncakeDistributedStore) -> None:
    room = Room(8, b"12345678")
    put, get = old_store.batch_put_from_multi_buffers, old_store.batch_get_into_multi_buffers
    assert put(["a", "b"], [[room.base]], [[1], [1]]) == [-600, -600]
    assert put(["a"], [[room.base, room.base]], [[1]]) == [-600]
    assert get(["a"], [[room.base]], [[1], [1]]) == [-600]
    assert old_store.batch_get_into_multi_buffer_ranges(["a"], [[room.base]], [[1]], [[]]) == [-600]
    assert old_store.get_into_ranges([room.base], [["a"]], [[[0]]], [[[0]], []], [[[1]]]) == [[[-600]]]
    assert put([], [], []) == get([], [], []) == []
    assert old_store.is_exist("a") == 0


def test_wrong_pieces_are_named(old_store: MooncakeDistributedStore) -> None:
    calls: list[tuple[Any, type[Exception], str]] = [
        (([["x"]], [[1]]), TypeError, r"buffer pointers\[0\] must be an int, not str"),
        (([5], [[1]]), TypeError, r"all_buffer_ptrs\[0\] must be a list, not int"),
        (([[5]], ["1"]), TypeError, r"all_sizes\[0\] must be a list, not str"),
        (([[5]], [[-1]]), ValueError, r"sizes\[0\] must be from 0 to 2\*\*64 - 1, not -1"),
        (([[2**64]], [[1]]), ValueError, r"buffer pointers\[0\] must be from 0"),
    ]
    for (pointers, sizes), error, words in calls:
        with pytest.raises(error, match=words):
            old_store.batch_put_from_multi_buffers(["a"], pointers, sizes)
    assert old_store.batch_put_from_multi_buffers(["a"], [[0]], [[1]]) == [-600]
    assert old_store.batch_put_from_multi_buffers(["a"], [[4096]], [[2**64 - 1]]) == [-600]


def test_replicas_are_described_and_cleared(old_store: MooncakeDistributedStore) -> None:
    assert old_store.put("a", b"12345") == old_store.put("b", b"") == 0
    (replica,) = old_store.get_replica_desc("a")
    assert (replica.is_memory_replica(), replica.is_disk_replica(), replica.is_local_disk_replica()) == (1, 0, 0)
    assert replica.status == ReplicaStatus.COMPLETE
    buffer = replica.get_memory_descriptor().buffer_descriptor
    assert (buffer.size, buffer.transport_endpoint) == (5, old_store.get_hostname())
    with pytest.raises(RuntimeError):
        replica.get_disk_descriptor()
    assert list(old_store.batch_get_replica_desc(["a", "missing", "b"])) == ["a", "b"]
    assert old_store.get_replica_desc("missing") == []
    assert old_store.batch_get_replica_desc([]) == {}
    assert old_store.batch_replica_clear(["a"], "elsewhere") == []
    assert old_store.batch_replica_clear(["a", "missing"], buffer.segment) == ["a"]
    assert old_store.batch_replica_clear(["b", "a"]) == ["b"]
    assert old_store.remove_all() == 0
