"""goals.py - the figures of the transfer engine that are to be held, beside what was measured."""

from __future__ import annotations

from typing import NamedTuple

from processes import Figures


class Goal(NamedTuple):
    words: str
    names: list[str]  # the worst of these counts
    least: float | None = None
    most: float | None = None


def both(stem: str, rest: str) -> list[str]:
    return [f"{stem}.{op}.{rest}" for op in ("write", "read")]


def walks(path: str, sizes: tuple[str, ...], versus: str) -> list[str]:
    return [name for size in sizes for name in both(f"transfer.{path}", f"{size}.walk.vs_{versus}")]


LARGE = ("1MiB", "8MiB", "16MiB", "64MiB")
TCP = (("tcp", "raw_socket"), ("tcp2", "raw_sockets"))

GOALS = [
    Goal("mapped, walk, 1–64 MiB, of memcpy", walks("shm", LARGE, "memcpy"), least=1.6),
    Goal("… with checksum", walks("shm_crc", LARGE, "memcpy"), least=1.6),
    Goal("… of streaming stores", walks("shm", LARGE, "streaming"), least=0.9),
    Goal("… with checksum", walks("shm_crc", LARGE, "streaming"), least=0.9),
    Goal("mapped, hot, 1 MiB, of memcpy", both("transfer.shm", "1MiB.hot.vs_memcpy"), least=0.9),
    Goal("mapped, 64 KiB, hot and walk, of memcpy",
         [name for p in ("hot", "walk") for name in both("transfer.shm", f"64KiB.{p}.vs_memcpy")], least=0.8),
    Goal("mapped, 4 KiB write, more than memcpy, C, µs",
         [f"latency.shm.write.4KiB.{pattern}.over_memcpy_us" for pattern in ("hot", "walk")], most=0.3),
    Goal("… from Python, µs", ["python.shm.write.4KiB.over_memcpy_us"], most=1.5),
    Goal("ordinary memory, of process_vm", walks("pvm", ("4KiB", "64KiB", *LARGE), "process_vm"), least=0.95),
    *(Goal(f"{path}, 1 MiB, of {limit}", walks(path, ("1MiB",), limit), least=0.95) for path, limit in TCP),
    *(Goal(f"{path}, 8–64 MiB, of {limit}", walks(path, LARGE[1:], limit), least=0.85) for path, limit in TCP),
    *(Goal(f"{path} with checksum, 1–64 MiB, of {limit}", walks(f"{path}_crc", LARGE, limit), least=0.75)
      for path, limit in TCP),
    Goal("tcp, 4 KiB p50, times ping-pong is of it",
         [name for p in ("hot", "walk") for name in both("latency.tcp", f"4KiB.{p}.vs_raw_socket")], least=0.8),
    Goal("… busy polling on both ends",
         [name for p in ("hot", "walk") for name in both("latency.tcp_busy", f"4KiB.{p}.vs_raw_socket")], least=4),
    *(Goal(f"{path}, batches of 128 × 4 KiB, items/s", both(f"transfer.{path}", "batch128x4KiB.items_per_s"),
           least=400_000) for path, _ in TCP),
    *(Goal(f"{path}, four threads, of one",
           [name for size in ("64KiB", "1MiB") for name in both(f"transfer.{path}", f"{size}.threads4.vs_one_thread")],
           least=1) for path in ("shm", "pvm", "tcp", "tcp2")),
    Goal("processor per GB, the reference's by ours", both("python.tcp", "64MiB.cpu_vs_reference"), least=2),
    Goal("idle, % of a processor", [f"cost.{path}.idle.cpu_percent" for path in ("shm", "tcp")], most=0.049),
    Goal("threads", [f"cost.{path}.threads" for path in ("shm", "tcp")], most=3),
    Goal("resident beside buffers, bytes", [f"cost.{path}.resident_bytes" for path in ("shm", "tcp")], most=10e6),
    *(Goal(f"100,000 regions, {path}, s", [f"scale.{path}.regions.seconds", f"scale.{path}.regions_shuffled.seconds"],
           most=1) for path in ("tcp", "shm")),
]  # fmt: skip


def judged(figures: Figures) -> list[tuple[str, list[str]]]:
    """Rows of wanted, measured (the worst) and held, of the goals of which there is a figure."""
    rows = []
    for goal in GOALS:
        values = [figures[name] for name in goal.names if name in figures]
        if not values:
            continue
        worst = min(values) if goal.least is not None else max(values)
        bound = goal.least if goal.least is not None else goal.most
        assert bound is not None
        held = worst >= bound if goal.least is not None else worst <= bound
        wanted = f"{'≥' if goal.least is not None else '≤'} {bound:,g}"
        rows.append(
            (goal.words, [wanted, f"{worst:,.3g}" if worst < 1000 else f"{worst:,.0f}", "yes" if held else "no"])
        )
    return rows
