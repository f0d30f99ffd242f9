#!/usr/bin/env python3
"""run.py - `make bench`: engine and store beside memcpy, raw sockets and the reference, into one flat JSON object.

    tests/bench/run.py [--quick] [--only GROUP ...] [--output FILE] [--markdown]

Run by the Python of the virtual environment in which library and package are installed. Groups: transfer (C programs),
python (from Python, beside the reference wheel where it can be installed), store (the same, of a store between
processes), import (times), size (of wheel and library).
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

from group_store import store
from processes import BENCH, HERE, PREFIX, ROOT, Answering, Figures, note, reference_interpreter, said

SIZES = {"64B": 64, "4KiB": 4 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20, "16MiB": 16 << 20, "64MiB": 64 << 20}
SPAN = 256 << 20
LIMITS = {"shm": "memcpy", "tcp": "raw_socket", "tcp2": "raw_sockets"}
PATTERNS = ("walk", "hot")


# ---- From C ----------------------------------------------------------------------------------------------------------


def build_program() -> Path:
    """Compiles the C program against the installed library, as any user would."""
    program, sources = BENCH / "bench_transfer", sorted(HERE.glob("*.c"))
    flags = said(
        "pkg-config", "--cflags", "--libs", "mooncake", env={**os.environ, "PKG_CONFIG_PATH": PREFIX / "lib/pkgconfig"}
    ).split()
    options = ["-std=gnu11", "-O2", "-D_GNU_SOURCE", "-pthread"]
    said(os.environ.get("CC", "cc"), *options, *sources, *flags, f"-Wl,-rpath,{PREFIX}/lib", "-o", program)
    return program


def transfer(quick: bool) -> Figures:
    """Several runs of the program, each with new processes and connections; of each figure the median."""
    program = build_program()
    seen: dict[str, list[float]] = {}
    for _ in range(1 if quick else 3):
        for line in said(program, *["--quick"] * quick).splitlines():
            name, value = line.split()
            seen.setdefault(name, []).append(float(value))
    return {name: statistics.median(values) for name, values in seen.items()}


# ---- From Python -----------------------------------------------------------------------------------------------------


class Pair:
    """A target and a caller process of one package and protocol."""

    def __init__(self, interpreter: Path, protocol: str) -> None:
        self.processes: list[Answering] = []
        peer, address = self.start(interpreter, "target", protocol).split()
        self.start(interpreter, "caller", protocol, peer, address)

    def start(self, interpreter: Path, *words: str) -> str:
        self.processes.append(Answering(BENCH / "python.log", interpreter, HERE / "bench_python.py", *words))
        return self.processes[-1].answer()

    def ask(self, *words: object) -> str:
        return self.processes[-1].ask(*words)

    def close(self) -> None:
        for process in reversed(self.processes):
            process.close()


def compare(pairs: dict[str, Pair], op: str, size: int, items: int, quick: bool) -> dict[str, list[float]]:
    """Seconds a call, of each pair in each round; the pairs take turns, and the walk goes on from one to the next."""
    step, first, seconds = size * items, 0, 0.0
    for pair in pairs.values():
        pair.ask("check", op, size, items)
        seconds = max(seconds, float(pair.ask("time", op, size, items, 1, 0)))
    calls = max(1, min(1000, int((0.002 if quick else 0.02) / seconds)))
    times: dict[str, list[float]] = {name: [] for name in pairs}
    for turn in range(2 if quick else 9):
        order = list(pairs)[turn % len(pairs) :] + list(pairs)[: turn % len(pairs)]
        for name in order:
            times[name].append(float(pairs[name].ask("time", op, size, items, calls, first)) / calls)
            first = (first + calls * step) % SPAN
    return times


def from_python(quick: bool) -> Figures:
    figures: Figures = {}
    (BENCH / "python.log").write_text("")
    reference = None if quick else reference_interpreter("mooncake.engine")
    pairs: dict[str, Pair] = {}
    try:
        for protocol in ("shm", "tcp"):
            pairs[protocol] = Pair(Path(sys.executable), protocol)
        if reference is not None:
            pairs["reference"] = Pair(reference, "tcp")
        work = [(name, size, 1) for name, size in SIZES.items() if not quick or name in ("64B", "1MiB")]
        work += [(f"batch128x{name}", SIZES[name], 128) for name in ("4KiB", "64KiB") if not quick]
        for op in ("read", "write"):
            for name, size, items in work:
                times = compare(pairs, op, size, items, quick)
                for pair, values in times.items():
                    figures[f"python.{pair}.{op}.{name}.us"] = statistics.median(values) * 1e6
                    figures[f"python.{pair}.{op}.{name}.gbps"] = size * items / statistics.median(values) * 1e-9
                    if reference is not None and pair != "reference":
                        ratios = [theirs / ours for theirs, ours in zip(times["reference"], values)]
                        figures[f"python.{pair}.{op}.{name}.vs_reference"] = statistics.median(ratios)
    finally:
        for pair in pairs.values():
            pair.close()
    return figures


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
    "python": from_python,
    "store": store,
    "import": import_times,
    "size": sizes,
}


def short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


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


def cell(figures: Figures, name: str, versus: str) -> str:
    """The ratio, with microseconds of ours in brackets."""
    ratio = figures.get(f"{name}.{versus}")
    return "" if ratio is None else f"{short(ratio)} ({short(figures[f'{name}.us'])})"


def transfer_table(figures: Figures) -> list[str]:
    columns = ("64B", "4KiB", "64KiB", "1MiB", "16MiB", "64MiB", "batch128x4KiB", "batch128x64KiB")
    paths = [(path, pattern) for path in LIMITS for pattern in PATTERNS]
    stems = [(f"transfer.{path}", f".{pattern}", f"vs_{LIMITS[path]}") for path, pattern in paths]
    stems += [(f"python.{path}", "", "vs_reference") for path in ("shm", "tcp")]
    rows = []
    for stem, pattern, versus in stems:
        for op in ("write", "read"):
            # Batches always walk.
            suffixes = [pattern if "x" not in column or pattern == ".hot" else "" for column in columns]
            names = [f"{stem}.{op}.{column}{suffix}" for column, suffix in zip(columns, suffixes)]
            rows.append((f"{stem}.{op}{pattern} {versus}", [cell(figures, name, versus) for name in names]))
    return table(columns, rows)


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
    return "\n".join(transfer_table(figures) + store_tables(figures)).lstrip()


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
    if bad := [name for name, value in figures.items() if not (math.isfinite(value) and value > 0)]:
        raise SystemExit(f"bench: not positive numbers: {', '.join(bad)}")
    print(markdown(figures)) if options.markdown else show(figures)
    options.output.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    print(f"{len(figures)} figures in {options.output}")


if __name__ == "__main__":
    main()
