"""Every wrong byte of a block is seen, and the pool gives no place away that is in use."""

from __future__ import annotations

import ctypes
import random

import pytest

from mooncake.cli._blocks import Blocks, Pool, Wrong

SIZE = 4096


class Room:
    """Memory for some blocks."""

    def __init__(self, count: int) -> None:
        self.memory = bytearray(count * SIZE)
        self.view = memoryview(self.memory)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))

    def check(self, blocks: Blocks, offset: int, block_id: int) -> None:
        blocks.check(self.view, offset, self.address + offset, block_id)


@pytest.fixture(scope="module")
def blocks() -> Blocks:
    return Blocks(SIZE)


@pytest.mark.parametrize("block_id", [0, 1, 182789, 2**24, 2**64 - 1])
def test_a_block_that_was_filled_is_right(blocks: Blocks, block_id: int) -> None:
    room = Room(3)
    blocks.fill(room.view, SIZE, block_id)
    room.check(blocks, SIZE, block_id)
    assert not any(room.view[:SIZE])
    assert not any(room.view[2 * SIZE :])


@pytest.mark.parametrize("place", [0, 7, 8, 9, 2000, SIZE - 1])
def test_one_wrong_byte_is_seen_and_named(blocks: Blocks, place: int) -> None:
    room = Room(1)
    blocks.fill(room.view, 0, 5)
    room.view[place] ^= 0x80
    with pytest.raises(Wrong, match=f"block 5: 1 of {SIZE} bytes are wrong, the first at {place}:"):
        room.check(blocks, 0, 5)


@pytest.mark.parametrize("shift", [-8, -1, 1, 3, 8, 64])
def test_a_misplaced_block_is_seen(blocks: Blocks, shift: int) -> None:
    room = Room(3)
    blocks.fill(room.view, SIZE + shift, 9)
    with pytest.raises(Wrong):
        room.check(blocks, SIZE, 9)


def test_no_two_blocks_are_equal(blocks: Blocks) -> None:
    room = Room(1)
    contents: set[bytes] = set()
    ids = [*range(500), *range(2**24, 2**24 + 500), *(2**40 + k for k in range(500))]
    for block_id in ids:
        blocks.fill(room.view, 0, block_id)
        contents.add(bytes(room.view))
    assert len(contents) == len(ids)


def test_a_poisoned_block_is_wrong(blocks: Blocks) -> None:
    room = Room(1)
    blocks.fill(room.view, 0, 5)
    blocks.poison(room.address)
    with pytest.raises(Wrong):
        room.check(blocks, 0, 5)


def test_a_block_has_a_least_size() -> None:
    with pytest.raises(ValueError, match="at least 64 bytes"):
        Blocks(63)


def test_a_pool_places_what_it_does_not_hold_and_gives_away_the_oldest() -> None:
    pool = Pool(3)
    assert pool.place([1, 2, 3]) == [(0, 0), (1, 1), (2, 2)]
    assert pool.place([3, 1]) == []
    assert pool.place([1, 4]) == [(1, 1)]
    assert pool.slot(4) == 1
    assert pool.place([1, 1, 5, 1]) == [(2, 2)]
    assert pool.place([1, 2, 3, 4]) is None


def test_a_pool_never_gives_one_slot_to_two_blocks_of_a_request() -> None:
    source, pool = random.Random(3), Pool(20)
    where: dict[int, int] = {}
    for _ in range(500):
        request = [source.randrange(60) for _ in range(source.randrange(1, 20))]
        placed = pool.place(request)
        assert placed is not None
        for position, slot in placed:
            where = {block: place for block, place in where.items() if place != slot}
            where[request[position]] = slot
        assert {block: pool.slot(block) for block in request} == {block: where[block] for block in request}
        assert len({pool.slot(block) for block in request}) == len(set(request))
