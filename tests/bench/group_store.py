"""group_store.py - the group `store` of run.py: a store between processes, beside the reference's and memcpy.

A cluster is a master, an owner with the whole pool and a caller with none of it, each a process. The clusters and the
memcpy run at the same time and take turns.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from processes import BENCH, HERE, PATIENCE, PREFIX, Answering, Figures, end, note, reference_interpreter

LOG = BENCH / "store.log"
SIZES = {"1KiB": 1 << 10, "64KiB": 64 << 10, "1MiB": 1 << 20, "16MiB": 16 << 20}
BATCH = 32
EXISTS = 1000
KEYS_MAX = 4096  # of a walk; 256 MiB of 64 KiB
SEGMENT = 256 << 20  # of a store that is set up


class Effort(NamedTuple):
    sizes: tuple[str, ...]
    span: int  # bytes of a walk, at most
    pool: int
    rounds: int
    seconds: float  # of a round of the slowest, about
    opens: int


QUICK = Effort(("1KiB", "1MiB"), 32 << 20, 64 << 20, 2, 0.002, 2)
WHOLE = Effort(tuple(SIZES), BATCH * (16 << 20), 768 << 20, 9, 0.04, 7)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def environment(**more: str) -> dict[str, str]:
    """Without settings of whoever runs this."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "MOONCAKE_"))} | more


class Unusable(Exception):
    """Says why a cluster can't be had."""


class Cluster:
    def __init__(self, interpreter: Path, env: dict[str, str]) -> None:
        self.interpreter, self.env = interpreter, env
        self.master: subprocess.Popen[bytes] | None = None
        self.address = "-"
        self.clients: list[Answering] = []

    def start_master(self, program: Path, *flags: str) -> None:
        """At a free port; returns when it accepts connections."""
        port = free_port()
        command = [str(program), f"--rpc_port={port}", "--rpc_address=127.0.0.1", *flags]
        with LOG.open("a") as log:
            self.master = subprocess.Popen(command, stdout=log, stderr=log, cwd=BENCH, env=self.env)
        deadline = time.monotonic() + PATIENCE
        while not answers(port):
            if self.master.poll() is not None:
                raise Unusable(f"its master ended with status {self.master.returncode}; see {LOG}")
            if time.monotonic() > deadline:
                raise Unusable(f"its master accepts no connection within {PATIENCE} s; see {LOG}")
            time.sleep(0.01)
        self.address = f"127.0.0.1:{port}"

    def start(self, role: str, *words: object) -> Answering:
        command = (self.interpreter, HERE / "bench_store.py", role, self.address, *words)
        self.clients.append(Answering(LOG, *command, env=self.env))
        try:
            self.clients[-1].answer()
        except SystemExit as error:
            raise Unusable(str(error)) from None
        return self.clients[-1]

    def close(self) -> None:
        for client in reversed(self.clients):
            client.close()
        if self.master is not None:
            end(self.master)


class Clusters:
    """Those that can be had, by the name that their figures have; and of each the process that is asked."""

    def __init__(self, effort: Effort, quick: bool, state: Path) -> None:
        self.effort, self.quick, self.state = effort, quick, state
        self.all: dict[str, Cluster] = {}
        self.callers: dict[str, Answering] = {}
        self.openers: dict[str, Answering] = {}

    def start(self) -> None:
        plain = self.all["memcpy"] = Cluster(Path(sys.executable), environment())
        self.callers["memcpy"] = plain.start("memcpy", 0, self.effort.span)
        self.add("shm", Path(sys.executable), PREFIX / "bin/mooncake_master", environment())
        self.add("tcp", Path(sys.executable), PREFIX / "bin/mooncake_master", environment(MC_FORCE_TCP="1"))
        reference = None if self.quick else reference_interpreter("mooncake.store")
        if reference is None:
            return
        try:
            self.add("reference", reference, reference.with_name("mooncake_master"), environment())
        except (Unusable, OSError) as error:
            note(f"no reference for the store: {error}")
            self.all.pop("reference").close()

    def add(self, name: str, interpreter: Path, master: Path, env: dict[str, str]) -> None:
        cluster = self.all[name] = Cluster(interpreter, env)
        if name == "reference":
            flags = [f"--metrics_port={free_port()}", "--metrics_host=127.0.0.1", "--enable_http_metadata_server=false"]
        else:  # with a state file it waits for nobody of a former life
            flags = [f"--state_file={self.state / name}"]
        cluster.start_master(master, *flags)
        opener = cluster.start("opener")
        cluster.start("owner", self.effort.pool)
        caller = cluster.start("caller", self.effort.pool, self.effort.span)
        self.openers[name], self.callers[name] = opener, caller

    def ask_all(self, *words: object) -> None:
        for caller in self.callers.values():
            caller.ask(*words)

    def close(self) -> None:
        for cluster in self.all.values():
            cluster.close()


def in_turns(names: list[str], round_: int) -> list[str]:
    return names[round_ % len(names) :] + names[: round_ % len(names)]


def compare(callers: dict[str, Answering], op: str, items: int, count: int, effort: Effort) -> dict[str, list[float]]:
    """Seconds a call, of each in each round. All make the same calls; the walk goes on from one to the next."""
    usable = count - count % items
    seconds = 0.0
    for caller in callers.values():
        caller.ask("time", op, items, 1, 0)  # for the second is what the others are like
        seconds = max(seconds, float(caller.ask("time", op, items, 1, 0)))
    calls = max(1, min(1000, usable // items, int(effort.seconds / seconds)))
    times: dict[str, list[float]] = {name: [] for name in callers}
    first = 0
    for round_ in range(effort.rounds):
        for name in in_turns(list(callers), round_):
            times[name].append(float(callers[name].ask("time", op, items, calls, first)) / calls)
            first = (first + calls * items) % usable
    return times


def ratios(times: dict[str, list[float]], what: str, figures: Figures) -> None:
    """Of the rounds' ratios the median; what is not there is not compared."""
    for ours in ("shm", "tcp"):
        for other in ("reference", "memcpy"):
            if other in times:
                rounds = [theirs / mine for theirs, mine in zip(times[other], times[ours])]
                figures[f"store.{ours}.{what}.vs_{other}"] = statistics.median(rounds)


def measure_data(clusters: Clusters, figures: Figures) -> None:
    effort = clusters.effort
    for name in effort.sizes:
        size = SIZES[name]
        count = min(KEYS_MAX, effort.span // size)
        clusters.ask_all("plan", size, count)
        for items in (1, BATCH):
            clusters.ask_all("check", items)
        for op in ("put", "get"):
            if op == "get":
                clusters.ask_all("fill")
            for items in (1, BATCH):
                what = f"{op}.{name}" if items == 1 else f"{op}.batch{items}x{name}"
                times = compare(clusters.callers, op, items, count, effort)
                for who, values in times.items():
                    figures[f"store.{who}.{what}.us"] = statistics.median(values) * 1e6
                    figures[f"store.{who}.{what}.gbps"] = size * items / statistics.median(values) * 1e-9
                ratios(times, what, figures)
        clusters.ask_all("clear")


def measure_exists(clusters: Clusters, figures: Figures) -> None:
    stores = {name: caller for name, caller in clusters.callers.items() if name != "memcpy"}
    for caller in stores.values():
        caller.ask("plan", 1 << 10, KEYS_MAX)
        caller.ask("fill")
    for items in (1, EXISTS):
        what = "exist" if items == 1 else f"exist.batch{items}"
        times = compare(stores, "exist", items, KEYS_MAX, clusters.effort)
        for who, values in times.items():
            figures[f"store.{who}.{what}.us"] = statistics.median(values) * 1e6
            figures[f"store.{who}.{what}.items_per_s"] = items / statistics.median(values)
        ratios(times, what, figures)
    for caller in stores.values():
        caller.ask("clear")


def measure_setup(clusters: Clusters, figures: Figures) -> None:
    times: dict[str, list[float]] = {name: [] for name in clusters.openers}
    for round_ in range(clusters.effort.opens):
        for name in in_turns(list(times), round_):
            times[name].append(float(clusters.openers[name].ask("open", SEGMENT)))
    for who, values in times.items():
        figures[f"store.{who}.setup.ms"] = statistics.median(values) * 1e3
    ratios(times, "setup", figures)


def store(quick: bool) -> Figures:
    figures: Figures = {}
    LOG.write_text("")
    with tempfile.TemporaryDirectory(prefix="bench-store-") as state:
        clusters = Clusters(QUICK if quick else WHOLE, quick, Path(state))
        try:
            clusters.start()
            measure_setup(clusters, figures)
            for name, caller in clusters.callers.items():
                if name != "memcpy":
                    caller.ask("touch")
            measure_data(clusters, figures)
            measure_exists(clusters, figures)
        except Unusable as error:
            raise SystemExit(f"bench: {error}") from None
        finally:
            clusters.close()
    return figures
