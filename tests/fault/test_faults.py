"""Each fault of README.md has the tests that are named there, and those say its number."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"^(?:/\*|#) Faults? (\d+(?: and \d+)*)\.", re.MULTILINE)
FUNCTION = re.compile(r"^(?:static void|def) (\w+)\(", re.MULTILINE)
EXPECTED = {*range(4, 19)} - {10, 11}


def marked() -> dict[int, set[str]]:
    """The tests below comments with a number."""
    found: dict[int, set[str]] = {}
    for path in [*ROOT.glob("tests/*/**/*.c"), *ROOT.glob("tests/*/**/*.py")]:
        text = path.read_text()
        for mark in MARK.finditer(text):
            function = FUNCTION.search(text, mark.end())
            assert function, f"{path}: nothing below {mark[0]}"
            for number in mark[1].split(" and "):
                found.setdefault(int(number), set()).add(function[1])
    return found


def listed() -> dict[int, set[str]]:
    rows = (Path(__file__).parent / "README.md").read_text().splitlines()
    cells = [row.split("|") for row in rows if re.match(r"\| \d+ \|", row)]
    return {int(cell[1]): set(re.findall(r"`(\w+)`", cell[3])) for cell in cells}


def test_each_fault_has_the_tests_that_the_table_names() -> None:
    table, comments = listed(), marked()
    assert set(table) == EXPECTED
    for number in sorted(table):
        assert table[number] == comments.get(number), f"fault {number}"
