"""How the demo shows its progress and its results."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import NamedTuple, TextIO

__all__ = ["Progress", "Row", "percentile", "table"]


class Progress:
    """A bar on a terminal; elsewhere a line for each quarter."""

    _WIDTH = 40

    def __init__(self, total: int, stream: TextIO = sys.stderr) -> None:
        self._total = max(1, total)
        self._stream = stream
        self._bar = stream.isatty()
        self._shown: tuple[str, int] = ("", 0)

    def show(self, path: str, done: int) -> None:
        """`done` of the total requests went this path."""
        if self._bar:
            full = self._WIDTH * done // self._total
            line = f"\r{path:<11}[{'#' * full}{'.' * (self._WIDTH - full)}] {done:,} of {self._total:,}"
            self._stream.write(line)
            self._stream.flush()
            return
        quarter = 4 * done // self._total
        if self._shown != (path, quarter) and quarter:
            self._shown = (path, quarter)
            self._stream.write(f"{path}: {done:,} of {self._total:,} requests\n")
            self._stream.flush()

    def end(self) -> None:
        """Leaves the line free for what comes next."""
        if self._bar:
            self._stream.write("\r\033[K")
            self._stream.flush()


class Row(NamedTuple):
    """A path: its batches' seconds, and how many bytes they moved in all."""

    path: str
    requests: int
    blocks: int
    size: int
    seconds: Sequence[float]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values don't exceed; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def table(rows: Sequence[Row]) -> str:
    """The rows as text. Times are those of a request's batch until all of it is there."""
    lines = [f"{'':<11}{'requests':>10}{'blocks':>10}{'GB':>8}{'GB/s':>8}{'p50 µs':>9}{'p99 µs':>9}"]
    for row in rows:
        size = row.blocks * row.size / 1e9
        rate = size / sum(row.seconds) if row.seconds else 0.0
        p50, p99 = (percentile(row.seconds, share) * 1e6 for share in (0.5, 0.99))
        lines.append(
            f"{row.path:<11}{row.requests:>10,}{row.blocks:>10,}{size:>8.2f}{rate:>8.2f}{p50:>9,.0f}{p99:>9,.0f}"
        )
    return "\n".join(lines)
