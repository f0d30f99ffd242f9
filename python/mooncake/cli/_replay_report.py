"""What came out of replays, as a table and as plain figures."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._replay_worker import Tally
from ._report import percentile

__all__ = ["Outcome", "table", "verdict"]


_LEGEND = (
    "hit ratio: blocks found, without a gap from their request's first on; LRU: by a simulated cache as large",
    "keys: in the master's index at the end; get and put: one call for all blocks of a request that are read or put",
    "GB/s: of one worker, while it is in such a call; a block of it: its share of the time of its call",
)


class Outcome(NamedTuple):
    """A pass over the trace. accesses: blocks that the requests name; keys: in the master's index at the end."""

    transport: str
    block_size: int
    capacity: int
    accesses: int
    tally: Tally
    seconds: float
    keys: int

    @property
    def hit_ratio(self) -> float:
        return self.tally.hits / self.accesses if self.accesses else 0.0

    @property
    def evicted(self) -> int:
        """Nothing is removed, so that what was put and is no more was evicted."""
        return self.tally.put - self.keys

    def figures(self) -> dict[str, Any]:
        """All of it, in bytes and seconds."""
        tally = self.tally
        return {
            "transport": self.transport,
            "requests": tally.requests,
            "blocks": self.accesses,
            "block_size": self.block_size,
            "capacity": self.capacity,
            "hits": tally.hits,
            "hit_ratio": self.hit_ratio,
            "put": tally.put,
            "read": tally.got,
            "evicted": self.evicted,
            "keys": self.keys,
            "present": tally.present,
            "stock": tally.mean_stock,
            "checked": tally.checked,
            "wrong": tally.wrong,
            "seconds": self.seconds,
            "get": _call_figures(tally.get_seconds, tally.get_blocks, self.block_size),
            "put_calls": _call_figures(tally.put_seconds, tally.put_blocks, self.block_size),
        }


def _each(seconds: Sequence[float], blocks: Sequence[int]) -> list[float]:
    """A block's share of the seconds of its call, for each block."""
    shares: list[float] = []
    for time, count in zip(seconds, blocks):
        shares += [time / max(1, count)] * count
    return shares


def _call_figures(seconds: array[float], blocks: array[int], size: int) -> dict[str, Any]:
    shares = _each(seconds, blocks)
    total = sum(seconds)
    return {
        "calls": len(seconds),
        "bytes": sum(blocks) * size,
        "bytes_per_second": sum(blocks) * size / total if total else 0.0,
        "call_p50": percentile(seconds, 0.5),
        "call_p99": percentile(seconds, 0.99),
        "block_p50": percentile(shares, 0.5),
        "block_p99": percentile(shares, 0.99),
    }


def table(outcomes: Sequence[Outcome], simulated: float) -> str:
    """A row for each pass, and one for each kind of call in it; `simulated`: the hit ratio of a simulated LRU."""
    lines = [
        f"{'':<6}{'requests':>10}{'seconds':>9}{'hit ratio':>11}{'LRU':>8}{'put':>10}{'evicted':>10}{'keys':>9}"
        f"{'wrong':>7}"
    ]
    for outcome in outcomes:
        tally = outcome.tally
        lines.append(
            f"{outcome.transport:<6}{tally.requests:>10,}{outcome.seconds:>9.1f}{outcome.hit_ratio:>11.4f}"
            f"{simulated:>8.4f}{tally.put:>10,}{outcome.evicted:>10,}{outcome.keys:>9,}{tally.wrong:>7,}"
        )
    lines += ["", f"{'':<33}{'a call':>18}{'a block of it':>19}"]
    lines.append(f"{'':<10}{'calls':>9}{'GB':>7}{'GB/s':>7}{'p50 µs':>9}{'p99 µs':>9}{'p50 µs':>10}{'p99 µs':>9}")
    for outcome in outcomes:
        figures = outcome.figures()
        for name, key in (("get", "get"), ("put", "put_calls")):
            row = figures[key]
            lines.append(
                f"{outcome.transport:<6}{name:<4}{row['calls']:>9,}{row['bytes'] / 1e9:>7.2f}"
                f"{row['bytes_per_second'] / 1e9:>7.2f}{row['call_p50'] * 1e6:>9,.0f}{row['call_p99'] * 1e6:>9,.0f}"
                f"{row['block_p50'] * 1e6:>10,.1f}{row['block_p99'] * 1e6:>9,.1f}"
            )
    return "\n".join([*lines, "", *_LEGEND])


def verdict(outcomes: Sequence[Outcome], seconds: float) -> tuple[str, int]:
    """Words on the bytes, and the exit status."""
    wrong = [f"WRONG: {outcome.transport}, {words}" for outcome in outcomes for words in outcome.tally.words]
    count = sum(outcome.tally.wrong for outcome in outcomes)
    if count:
        return "\n".join([*wrong, f"{count:,} blocks were wrong"]), 1
    checked = sum(outcome.tally.checked for outcome in outcomes)
    return f"{checked:,} blocks checked, every byte right; {seconds:.0f} s in all", 0
