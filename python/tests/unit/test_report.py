"""The demo's bar, its lines and its table."""

from __future__ import annotations

import io

from mooncake.cli._report import Progress, Row, percentile, table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_percentile_is_the_smallest_value_that_the_share_does_not_exceed() -> None:
    assert percentile([], 0.5) == 0
    assert percentile([3.0], 0.99) == 3
    assert percentile([4.0, 1.0, 3.0, 2.0], 0.5) == 2
    assert percentile([float(value) for value in range(1, 101)], 0.99) == 99


def test_the_table_shows_bytes_rate_and_percentiles() -> None:
    text = table([Row("shm", 2, 1000, 1_000_000, [0.25, 0.25]), Row("tcp", 0, 0, 16384, [])])
    assert text.splitlines()[1].split() == ["shm", "2", "1,000", "1.00", "2.00", "250,000", "250,000"]
    assert text.splitlines()[2].split() == ["tcp", "0", "0", "0.00", "0.00", "0", "0"]


def test_progress_is_a_bar_on_a_terminal_and_few_lines_elsewhere() -> None:
    bar, lines = Terminal(), io.StringIO()
    for stream in (bar, lines):
        progress = Progress(100, stream)
        for done in range(1, 101):
            progress.show("shm", done)
        progress.end()
    assert "[" + "#" * 40 + "] 100 of 100" in bar.getvalue()
    assert lines.getvalue().splitlines()[-1] == "shm: 100 of 100 requests"
    assert len(lines.getvalue().splitlines()) == 4
