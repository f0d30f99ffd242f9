"""The harness measures what it promises; how fast anything is, is not a test."""

from __future__ import annotations

import ctypes
import json
import math
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from bench_store import Caller, Plain
from goals import GOALS, judged
from group_store import Cluster, Unusable, environment
from processes import BENCH
from run import acceptable

HERE = Path(__file__).resolve().parent
PREFIX = Path(os.environ.get("MOONCAKE_TEST_PREFIX", sys.prefix))
SIZES = ("64B", "4KiB", "64KiB", "1MiB", "8MiB", "16MiB", "64MiB")


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [str(PREFIX / "bin" / "python"), str(HERE / "run.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    output = tmp_path_factory.mktemp("bench") / "figures.json"
    done = run("--quick", "--output", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(output.read_text())


def test_the_result_is_one_flat_object_of_names_to_numbers(figures: dict[str, float]) -> None:
    assert isinstance(figures, dict)
    bad = [name for name, value in figures.items() if type(value) not in (int, float) or not math.isfinite(value)]
    assert figures and not bad


def test_only_an_idle_processor_and_a_difference_may_be_nothing() -> None:
    assert acceptable("cost.shm.idle.cpu_percent", 0.0) and not acceptable("cost.shm.idle.cpu_percent", -1.0)
    assert acceptable("latency.shm.write.4KiB.hot.over_memcpy_us", -0.01)
    assert not acceptable("transfer.shm.write.1MiB.us", 0.0) and not acceptable("a.over_memcpy_us", math.nan)


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize(("path", "versus"), [("shm", "memcpy"), ("tcp", "raw_socket")])
def test_each_path_is_compared_with_its_limit_at_each_size_in_both_patterns(
    figures: dict[str, float], path: str, versus: str, op: str
) -> None:
    stems = [f"transfer.{path}.{op}.{size}" for size in SIZES]
    names = [f"{stem}{pattern}.vs_{versus}" for stem in stems for pattern in ("", ".hot", ".walk")]
    names += [f"{stem}.{unit}" for stem in stems for unit in ("us", "gbps")]
    names += [f"transfer.{path}.{op}.batch128x4KiB.items_per_s"]
    names += [f"transfer.{path}.{op}.1MiB.threads4.vs_{limit}" for limit in (versus, "one_thread")]
    assert [name for name in names if name not in figures] == []


def test_the_short_name_means_the_walk(figures: dict[str, float]) -> None:
    assert figures["transfer.shm.write.1MiB.vs_memcpy"] == figures["transfer.shm.write.1MiB.walk.vs_memcpy"]


def test_two_connections_are_compared_with_two_sockets(figures: dict[str, float]) -> None:
    assert "transfer.tcp2.write.1MiB.vs_raw_sockets" in figures


def test_streaming_stores_and_checksums_are_measured(figures: dict[str, float]) -> None:
    names = ["tcp_crc.write.8MiB.vs_raw_socket", "tcp2_crc.read.1MiB.vs_raw_sockets"]
    if platform.machine() == "x86_64":
        names.append("shm.write.1MiB.vs_streaming")
    assert [name for name in names if f"transfer.{name}" not in figures] == []


def test_small_calls_are_timed_one_by_one(figures: dict[str, float]) -> None:
    names = [f"{who}.{op}.4KiB.walk" for op in ("read", "write") for who in ("shm", "tcp", "memcpy", "raw_socket")]
    assert [name for name in names if f"latency.{name}.us" not in figures] == []
    rest = ["latency.shm.write.4KiB.hot.over_memcpy_us", "latency.tcp.write.4KiB.hot.vs_raw_socket"]
    rest += ["latency.tcp_busy.read.4KiB.walk.vs_raw_socket", "latency.tcp_busy.read.4KiB.walk.vs_raw_spinning"]
    rest += ["python.shm.write.4KiB.over_memcpy_us", "python.tcp.read.4KiB.p50_us"]
    assert [name for name in rest if name not in figures] == []


def test_what_an_engine_takes_is_measured(figures: dict[str, float]) -> None:
    names = [f"cost.{path}.{what}" for path in ("shm", "tcp") for what in ("idle.cpu_percent", "threads")]
    names += ["cost.tcp.resident_bytes", "cost.tcp.write.64MiB.cpu_s_per_gb", "python.tcp.read.64MiB.cpu_s_per_gb"]
    names += [f"scale.{path}.peers.{side}_bytes_each" for path in ("shm", "tcp") for side in ("hub", "guest")]
    names += ["scale.shm.peers_opened.us_each", "scale.tcp.regions.seconds", "scale.shm.regions_shuffled.seconds"]
    assert [name for name in names if name not in figures] == []


@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_bytes_that_arrive_in_a_wrong_place_are_an_end(figures: dict[str, float], path: str) -> None:
    command = [BENCH / "bench_transfer", "--quick", "--spoil", path]  # built for the figures
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "not those that were sent" in done.stderr and not done.stdout


def test_python_imports_and_sizes_are_measured(figures: dict[str, float]) -> None:
    names = ["python.tcp.write.1MiB.us", "python.shm.read.1MiB.gbps", "python.import.mooncake.ms"]
    names += ["python.import.mooncake.engine.ms", "wheel.bytes", "so.stripped.bytes"]
    assert [name for name in names if name not in figures] == []


@pytest.mark.parametrize("op", ["put", "get"])
def test_a_store_is_measured_by_each_path_singly_and_in_batches_beside_memcpy(
    figures: dict[str, float], op: str
) -> None:
    forms = [f"{op}.{batch}{size}" for size in ("1KiB", "1MiB") for batch in ("", "batch32x")]
    names = [
        f"store.{who}.{form}.{unit}" for who in ("shm", "tcp", "memcpy") for form in forms for unit in ("us", "gbps")
    ]
    names += [f"store.{path}.{form}.vs_memcpy" for path in ("shm", "tcp") for form in forms]
    assert [name for name in names if name not in figures] == []


def test_asking_for_keys_and_setting_a_store_up_are_measured(figures: dict[str, float]) -> None:
    names = ["exist.us", "exist.batch1000.us", "exist.batch1000.items_per_s", "setup.ms"]
    assert [name for name in names for path in ("shm", "tcp") if f"store.{path}.{name}" not in figures] == []


def test_every_figure_to_hold_is_measured(figures: dict[str, float]) -> None:
    ours = [name for goal in GOALS for name in goal.names if "reference" not in name]
    missing = [name for name in ours if name not in figures]
    assert [name for name in missing if not name.startswith("transfer.pvm") and "streaming" not in name] == []


def test_a_figure_is_held_only_if_the_worst_of_it_is() -> None:
    hot, walk = [f"latency.shm.write.4KiB.{pattern}.over_memcpy_us" for pattern in ("hot", "walk")]
    assert [cells[2] for _, cells in judged({hot: 0.2, walk: 0.3})] == ["yes"]
    assert [cells[1:] for _, cells in judged({hot: 0.2, walk: 0.31})] == [["0.31", "no"]]
    assert [cells[2] for _, cells in judged({"transfer.shm.write.1MiB.hot.vs_memcpy": 0.89})] == ["no"]


def test_a_quick_run_does_without_the_reference(figures: dict[str, float]) -> None:
    assert [name for name in figures if "reference" in name] == []


class Damaging(Plain):
    """Its third value comes with a wrong byte at its end."""

    def get_into(self, key: str, address: int, size: int) -> int:
        found = super().get_into(key, address, size)
        if int(key) == 2:
            ctypes.memset(address + size - 1, 0xEE, 1)
        return found


class Failing(Plain):
    """Its third key can't be put."""

    def put_from(self, key: str, address: int, size: int) -> int:
        return -200 if int(key) == 2 else super().put_from(key, address, size)


class Keeping(Plain):
    """Nothing can be removed, so that the next put is none."""

    def batch_remove(self, keys: list[str], force: bool) -> list[int]:
        return [-706] * len(keys)


@pytest.mark.parametrize(
    ("kind", "words"),
    [(Damaging, "value 2 of 4096 bytes"), (Failing, "the first is -200"), (Keeping, "the first is -706")],
)
def test_a_store_that_answers_wrong_is_not_measured(kind: type[Plain], words: str) -> None:
    caller = Caller(kind(64 << 10), 0, 64 << 10)
    caller.plan(4096, 16)
    with pytest.raises(SystemExit, match=words):
        caller.check(4)


def test_puts_are_removed_and_every_value_of_a_walk_is_right() -> None:
    caller = Caller(Plain(64 << 10), 0, 64 << 10)
    caller.plan(4096, 16)
    assert caller.check(1) == caller.check(4) == caller.fill() == "ok"
    assert caller.time("put", 4, 3, 12) > 0
    assert caller.time("get", 1, 40, 3) > 0


def test_a_master_that_does_not_come_up_is_a_reason_and_leaves_no_process() -> None:
    BENCH.mkdir(parents=True, exist_ok=True)
    cluster = Cluster(Path(sys.executable), environment())
    with pytest.raises(Unusable, match="its master ended with status 1"):
        cluster.start_master(Path("/bin/false"))
    cluster.close()
    assert cluster.master is not None and cluster.master.returncode == 1


def test_an_unknown_group_is_refused(tmp_path: Path) -> None:
    done = run("--only", "nothing", "--output", str(tmp_path / "figures.json"))
    assert done.returncode != 0 and "nothing" in done.stderr
    assert not (tmp_path / "figures.json").exists()
