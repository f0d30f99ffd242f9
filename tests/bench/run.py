#!/usr/bin/env python3
"""run.py - `make bench`: engine and store beside memcpy, raw sockets and the reference, into one flat JSON object.

    tests/bench/run.py [--quick] [--only GROUP ...] [--output FILE] [--markdown]

Run by the Python of the virtual environment in which library and package are installed. Groups: transfer, latency,
cost, scale (C programs), python (from Python, beside the reference wheel where it can be installed), store (the same,
of a store between processes), import (times), size (of wheel and library).
docs/performance.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Callable

from goals import judged
from group_native import cell, cost, latency, scale, short, transfer
from group_python import from_python
from group_store import store
from processes import BENCH, PREFIX, ROOT, Figures, note, said

LIMITS = [
    ("shm", "memcpy"), ("shm", "streaming"), ("shm_crc", "memcpy"), ("shm_crc", "streaming"), ("pvm", "process_vm"),
    ("tcp", "raw_socket"), ("tcp2", "raw_sockets"), ("tcp_crc", "raw_socket"), ("tcp2_crc", "raw_sockets"),
]  # fmt: skip
PATTERNS = ("walk", "hot")


# ---- Imports and sizes -----------------------------------------------------------------------------------------------


def timed(program: str) -> tuple[float, float]:
    """Milliseconds of a Python program: elapsed, and of processor time, which hardly suffers from others."""
    begun = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", program], cwd=BENCH)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"bench: {program}: ended with status {process.returncode}")
    return elapsed * 1e3, (usage.ru_utime + usage.ru_stime) * 1e3


def import_times(quick: bool) -> Figures:
    """What an import adds to a bare interpreter; the three take turns."""
    programs = {"": "pass", "mooncake": "import mooncake", "mooncake.engine": "import mooncake.engine"}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for turn in range(4 if quick else 16):
        for name, program in programs.items():
            measured = timed(program)
            if turn > 0:  # the first writes the caches
                times[name].append(measured)
    bare = [statistics.median(column) for column in zip(*times.pop(""))]
    figures = {"python.bare.ms": bare[0], "python.bare.cpu_ms": bare[1]}
    for name, measured_of in times.items():
        whole = [statistics.median(column) for column in zip(*measured_of)]
        # Noise may be more than a small import takes; the figure is still a positive number.
        figures[f"python.import.{name}.ms"] = max(whole[0] - bare[0], 0.01)
        figures[f"python.import.{name}.cpu_ms"] = max(whole[1] - bare[1], 0.01)
    return figures


def sizes(quick: bool) -> Figures:
    wheels = BENCH / "wheel"
    options = ["-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--no-index"]
    for old in wheels.glob("*.whl"):
        old.unlink()
    said(
        PREFIX / "bin/pip", "wheel", *options, "-w", wheels, ROOT / "python",
        env={**os.environ, "PATH": f"{PREFIX}/bin:{os.environ['PATH']}"},
    )  # fmt: skip
    wheel = next(wheels.glob("*.whl"))
    stripped = BENCH / "libmooncake.stripped.so"
    said("strip", "-o", stripped, PREFIX / "lib/libmooncake.so.1")
    return {"wheel.bytes": wheel.stat().st_size, "so.stripped.bytes": stripped.stat().st_size}


# ---- The table -------------------------------------------------------------------------------------------------------

GROUPS: dict[str, Callable[[bool], Figures]] = {
    "transfer": transfer,
    "latency": latency,
    "cost": cost,
    "scale": scale,
    "python": from_python,
    "store": store,
    "import": import_times,
    "size": sizes,
}


def show(figures: Figures) -> None:
    """One line for each thing measured: its name, then its figures."""
    rows: dict[str, list[str]] = {}
    for name, value in figures.items():
        thing, unit = name.rsplit(".", 1)
        if f"{thing}.walk.{unit}" not in figures:  # the short name again
            rows.setdefault(thing, []).append(f"{unit} {short(value)}")
    width = max(map(len, rows), default=0)
    for thing, words in rows.items():
        print(f"{thing:<{width}}  " + "".join(f"{word:<22}" for word in words).rstrip())


def table(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Lines of Markdown; rows without a figure are left out, and a table without rows."""
    lines = [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows if any(cells)]
    return ["", "| | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|", *lines] if lines else []


def transfer_table(figures: Figures) -> list[str]:
    columns = ("64B", "4KiB", "64KiB", "1MiB", "8MiB", "16MiB", "64MiB", "batch128x4KiB", "batch128x64KiB")
    stems = [(f"transfer.{path}", f".{pattern}", f"vs_{limit}") for path, limit in LIMITS for pattern in PATTERNS]
    stems += [(f"python.{path}", "", "vs_reference") for path in ("shm", "tcp")]
    rows = []
    for stem, pattern, versus in stems:
        for op in ("write", "read"):
            # Batches always walk.
            suffixes = [pattern if "x" not in column or pattern == ".hot" else "" for column in columns]
            names = [f"{stem}.{op}.{column}{suffix}" for column, suffix in zip(columns, suffixes)]
            rows.append((f"{stem}.{op}{pattern} {versus}", [cell(figures, name, versus) for name in names]))
    return table(columns, rows)


def other_tables(figures: Figures) -> list[str]:
    """Four threads beside one, and what isn't a rate."""
    columns = ("64KiB.threads4", "1MiB.threads4")
    stems = [f"transfer.{path}.{op}" for path in dict(LIMITS) for op in ("write", "read")]
    threads = [(stem, [cell(figures, f"{stem}.{column}", "vs_one_thread") for column in columns]) for stem in stems]
    threads = [(f"{stem} vs_one_thread", cells) for stem, cells in threads]
    single = ("transfer.", "store.", "python.import", "python.bare", "wheel.", "so.")
    named = [name for name in figures if not name.startswith(single)]
    named = [
        name for name in named if not name.startswith("python.") or "p50" in name or "over" in name or "cpu" in name
    ]
    return table(columns, threads) + table(("",), [(name, [short(figures[name])]) for name in named])


def store_tables(figures: Figures) -> list[str]:
    small: list[tuple[str, list[str]]] = []
    columns = [f"{batch}{size}" for batch in ("", "batch32x") for size in ("1KiB", "64KiB", "1MiB", "16MiB")]
    stems = [(f"store.{path}.{op}", versus) for op in ("get", "put") for path in ("shm", "tcp")
             for versus in ("vs_reference", "vs_memcpy")]  # fmt: skip
    rows = [(f"{stem} {versus}", [cell(figures, f"{stem}.{column}", versus) for column in columns])
            for stem, versus in stems]  # fmt: skip
    calls = ("exist.us", "exist.batch1000.us", "setup.ms")
    for who in ("shm", "tcp", "reference"):
        values = [figures.get(f"store.{who}.{call}") for call in calls]
        small.append((f"store.{who}", ["" if value is None else short(value) for value in values]))
    return table(columns, rows) + table(calls, small)


def markdown(figures: Figures) -> str:
    """The tables of docs/performance.md."""
    goals = table(("wanted", "measured", "held"), judged(figures))
    return "\n".join(goals + transfer_table(figures) + other_tables(figures) + store_tables(figures)).lstrip()


def acceptable(name: str, value: float) -> bool:
    """An idle process may take nothing, and a difference of two times be anything."""
    return math.isfinite(value) and (value > 0 or ("over_memcpy" in name) or (value == 0 and "idle" in name))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures, prints a table and writes build/bench/latest.json.")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes: tests the harness, not us")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), help="these groups")
    parser.add_argument("--output", type=Path, default=BENCH / "latest.json")
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/performance.md instead")
    options = parser.parse_args()
    if not (PREFIX / "lib/libmooncake.so.1").exists():
        parser.error(f"no library in {PREFIX}: run `make build`, and this with build/venv/bin/python")
    BENCH.mkdir(parents=True, exist_ok=True)
    figures: Figures = {}
    for group in options.only:
        begun = time.monotonic()
        figures |= GROUPS[group](options.quick)
        note(f"{group}: {time.monotonic() - begun:.0f} s")
    if bad := [name for name, value in figures.items() if not acceptable(name, value)]:
        raise SystemExit(f"bench: not positive numbers: {', '.join(bad)}")
    print(markdown(figures)) if options.markdown else show(figures)
    options.output.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    print(f"{len(figures)} figures in {options.output}")


if __name__ == "__main__":
    main()
