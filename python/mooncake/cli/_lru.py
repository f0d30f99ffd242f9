"""A cache simulated: what the least-recently-used policy would find of a trace at a given capacity."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

__all__ = ["simulate_lru"]


def simulate_lru(requests: Iterable[Sequence[int]], capacity: int) -> int:
    """How many of the blocks that the requests name are found by a cache of `capacity` blocks that sees them in order.

    A hit counts only while all earlier blocks of the request hit too, for a cached prefix can be used no further. Every
    block is used when it is named, whether that counted or not, and is there afterwards.
    """
    held: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for request in requests:
        prefix = True
        for block_id in request:
            if block_id in held:
                held.move_to_end(block_id)
                hits += prefix
                continue
            prefix = False
            held[block_id] = None
            if len(held) > capacity:
                held.popitem(last=False)
    return hits
