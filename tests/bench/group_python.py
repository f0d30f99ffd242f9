"""group_python.py - the group `python` of run.py: TransferEngine from Python, beside the reference's.

A pair is a target and a caller, each a process (bench_python.py). The pairs run at the same time and take turns.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path

from group_native import build_program
from processes import BENCH, HERE, Answering, Figures, reference_interpreter, said

SIZES = {"64B": 64, "4KiB": 4 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20, "16MiB": 16 << 20, "64MiB": 64 << 20}
SPAN = 256 << 20


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

    def cpu(self) -> float:
        """Processor seconds of both so far."""
        return sum(float(process.ask("cpu")) for process in self.processes)

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


def throughput(pairs: dict[str, Pair], quick: bool) -> Figures:
    figures: Figures = {}
    work = [(name, size, 1) for name, size in SIZES.items() if not quick or name in ("64B", "1MiB")]
    work += [(f"batch128x{name}", SIZES[name], 128) for name in ("4KiB", "64KiB") if not quick]
    for op in ("read", "write"):
        for name, size, items in work:
            times = compare(pairs, op, size, items, quick)
            for pair, values in times.items():
                figures[f"python.{pair}.{op}.{name}.us"] = statistics.median(values) * 1e6
                figures[f"python.{pair}.{op}.{name}.gbps"] = size * items / statistics.median(values) * 1e-9
                if items > 1:
                    figures[f"python.{pair}.{op}.{name}.items_per_s"] = items / statistics.median(values)
                if "reference" in times and pair != "reference":
                    ratios = [theirs / ours for theirs, ours in zip(times["reference"], values)]
                    figures[f"python.{pair}.{op}.{name}.vs_reference"] = statistics.median(ratios)
    return figures


def latency(pairs: dict[str, Pair], quick: bool) -> Figures:
    """The median of calls of 4 KiB that are timed one by one, and what it is above memcpy from C, timed alike; the
    caller of the `shm` pair and memcpy take turns."""
    figures: Figures = {}
    memcpy = build_program("memcpy")
    calls = 50 if quick else 2000
    for op in ("read", "write"):
        times: dict[str, list[float]] = {name: [] for name in pairs}
        over: list[float] = []
        for turn in range(2 if quick else 9):
            for name, pair in pairs.items():
                times[name].append(float(pair.ask("each", op, SIZES["4KiB"], 1, calls, turn * calls * SIZES["4KiB"])))
            over.append(times["shm"][-1] - float(said(memcpy)))
        for name, values in times.items():
            figures[f"python.{name}.{op}.4KiB.p50_us"] = statistics.median(values) * 1e6
        figures[f"python.shm.{op}.4KiB.over_memcpy_us"] = statistics.median(over) * 1e6
    return figures


def cost(pairs: dict[str, Pair], quick: bool) -> Figures:
    """Processor seconds per GB in calls of 64 MiB, of caller and target together."""
    figures: Figures = {}
    calls = 1 if quick else 16
    for op in ("read", "write"):
        for name, pair in pairs.items():
            before = pair.cpu()
            pair.ask("time", op, SIZES["64MiB"], 1, calls, 0)
            figures[f"python.{name}.{op}.64MiB.cpu_s_per_gb"] = (pair.cpu() - before) / (SIZES["64MiB"] * calls * 1e-9)
        for name in pairs:
            if "reference" in pairs and name != "reference":
                stem = f"{op}.64MiB.cpu"
                theirs = figures[f"python.reference.{stem}_s_per_gb"]
                figures[f"python.{name}.{stem}_vs_reference"] = theirs / figures[f"python.{name}.{stem}_s_per_gb"]
    return figures


def from_python(quick: bool) -> Figures:
    (BENCH / "python.log").write_text("")
    reference = None if quick else reference_interpreter("mooncake.engine")
    pairs: dict[str, Pair] = {}
    try:
        for protocol in ("shm", "tcp"):
            pairs[protocol] = Pair(Path(sys.executable), protocol)
        if reference is not None:
            pairs["reference"] = Pair(reference, "tcp")
        return throughput(pairs, quick) | latency(pairs, quick) | cost(pairs, quick)
    finally:
        for pair in pairs.values():
            pair.close()
