"""What is in a block, and where a decode process keeps it.

Both processes compute the contents of a block from its id alone: the id itself, then a window of one random arena that
begins where the id says. Windows of different ids differ, the id makes them unequal for certain, and random bytes make
a block that lies wrong by even one byte look wrong.
"""

from __future__ import annotations

import ctypes
import random
import struct
from collections import OrderedDict
from collections.abc import Sequence
from typing import Optional

__all__ = ["SMALLEST_BLOCK", "Blocks", "Pool", "Wrong"]

SMALLEST_BLOCK = 64
_ARENA = 1 << 24
_SPREAD = 0x9E3779B1  # odd, so that the first 2^24 ids begin at different places
_STAMP = struct.Struct("<Q")
_POISON = 0xEE

_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_memcmp.restype = ctypes.c_int


class Wrong(ValueError):
    """A block that does not hold what its id says."""


class Blocks:
    """Fills and checks blocks of `size` bytes."""

    def __init__(self, size: int) -> None:
        if size < SMALLEST_BLOCK:
            raise ValueError(f"a block has at least {SMALLEST_BLOCK} bytes, not {size}")
        self.size = size
        self._arena = bytearray(random.Random(0x4D4F4F4E).randbytes(_ARENA + size))
        self._view = memoryview(self._arena)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._arena))

    def _window(self, block_id: int) -> int:
        return block_id * _SPREAD % _ARENA

    def fill(self, view: memoryview, offset: int, block_id: int) -> None:
        """Writes the block at view[offset:]."""
        window = self._window(block_id)
        _STAMP.pack_into(view, offset, block_id)
        view[offset + 8 : offset + self.size] = self._view[window + 8 : window + self.size]

    def poison(self, address: int) -> None:
        """Overwrites the block at an address, so that what is right there later has come there since."""
        ctypes.memset(address, _POISON, self.size)

    def check(self, view: memoryview, offset: int, address: int, block_id: int) -> None:
        """Compares every byte of the block at view[offset:], which is at `address`. Wrong says what differs."""
        window = self._window(block_id)
        if (
            _STAMP.unpack_from(view, offset)[0] == block_id
            and _memcmp(address + 8, self._address + window + 8, self.size - 8) == 0
        ):
            return
        wanted = bytearray(self.size)
        self.fill(memoryview(wanted), 0, block_id)
        found = bytes(view[offset : offset + self.size])
        wrong = [place for place, (a, b) in enumerate(zip(found, wanted)) if a != b]
        raise Wrong(
            f"block {block_id}: {len(wrong)} of {self.size} bytes are wrong, the first at {wrong[0]}: "
            f"{found[wrong[0]]:#04x} instead of {wanted[wrong[0]]:#04x}"
        )


class Pool:
    """Which block is in which of `slots` places; the least recently used one gives way."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._held: OrderedDict[int, int] = OrderedDict()
        self._free = list(range(slots - 1, -1, -1))

    def slot(self, block_id: int) -> int:
        """Where a held block is."""
        return self._held[block_id]

    def place(self, block_ids: Sequence[int]) -> Optional[list[tuple[int, int]]]:
        """Makes room for all of the blocks: (position, slot) of those that are to be written, the others are held.
        None if the pool is smaller than the request."""
        distinct = {block_id: place for place, block_id in reversed(list(enumerate(block_ids)))}
        if len(distinct) > self.slots:
            return None
        held = self._held
        missing: list[int] = []
        for block_id in sorted(distinct, key=distinct.__getitem__):
            if block_id in held:
                held.move_to_end(block_id)
            else:
                missing.append(block_id)
        placed: list[tuple[int, int]] = []
        for block_id in missing:
            slot = self._free.pop() if self._free else held.popitem(last=False)[1]
            held[block_id] = slot
            placed.append((distinct[block_id], slot))
        return placed
