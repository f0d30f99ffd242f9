"""group_native.py - the groups of run.py that are C programs: transfer, latency, cost, scale."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from processes import BENCH, HERE, PREFIX, Figures, said

TRIES = 3  # runs of a program, each with new processes and connections; of each figure the median


def build_program(name: str) -> Path:
    """Compiles a C program against the installed library, as any user would."""
    program = BENCH / f"bench_{name}"
    sources = [HERE / f"bench_{name}.c", *(path for path in sorted(HERE.glob("*.c")) if not path.match("bench_*"))]
    flags = said(
        "pkg-config", "--cflags", "--libs", "mooncake", env={**os.environ, "PKG_CONFIG_PATH": PREFIX / "lib/pkgconfig"}
    ).split()
    options = ["-std=gnu11", "-O2", "-D_GNU_SOURCE", "-pthread"]
    said(os.environ.get("CC", "cc"), *options, *sources, *flags, f"-Wl,-rpath,{PREFIX}/lib", "-o", program)
    return program


def run_program(name: str, quick: bool, tries: int = TRIES) -> Figures:
    program = build_program(name)
    seen: dict[str, list[float]] = {}
    for _ in range(1 if quick else tries):
        for line in said(program, *["--quick"] * quick).splitlines():
            figure, value = line.split()
            seen.setdefault(figure, []).append(float(value))
    return {figure: statistics.median(values) for figure, values in seen.items()}


def transfer(quick: bool) -> Figures:
    return run_program("transfer", quick)


def latency(quick: bool) -> Figures:
    return run_program("latency", quick)


def cost(quick: bool) -> Figures:
    return run_program("cost", quick)


def scale(quick: bool) -> Figures:
    return run_program("scale", quick)


def short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def cell(figures: Figures, name: str, versus: str) -> str:
    """The ratio, with microseconds of ours in brackets."""
    ratio = figures.get(f"{name}.{versus}")
    return "" if ratio is None else f"{short(ratio)} ({short(figures[f'{name}.us'])})"
