"""The harness measures what it promises; how fast anything is, is not a test."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PREFIX = Path(os.environ.get("MOONCAKE_TEST_PREFIX", sys.prefix))
SIZES = ("64B", "4KiB", "64KiB", "1MiB", "16MiB", "64MiB")


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [str(PREFIX / "bin" / "python"), str(HERE / "run.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    output = tmp_path_factory.mktemp("bench") / "figures.json"
    done = run("--quick", "--output", str(output))
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(output.read_text())


def test_the_result_is_one_flat_object_of_names_to_positive_numbers(figures: dict[str, float]) -> None:
    assert isinstance(figures, dict)
    bad = [
        name
        for name, value in figures.items()
        if type(value) not in (int, float) or not math.isfinite(value) or value <= 0
    ]
    assert figures and not bad


@pytest.mark.parametrize("op", ["read", "write"])
@pytest.mark.parametrize(("path", "versus"), [("shm", "memcpy"), ("tcp", "raw_socket")])
def test_each_path_is_compared_with_its_limit_at_each_size_in_both_patterns(
    figures: dict[str, float], path: str, versus: str, op: str
) -> None:
    stems = [f"transfer.{path}.{op}.{size}" for size in SIZES]
    names = [f"{stem}{pattern}.vs_{versus}" for stem in stems for pattern in ("", ".hot", ".walk")]
    names += [f"{stem}.{unit}" for stem in stems for unit in ("us", "gbps")]
    names += [f"transfer.{path}.{op}.batch128x4KiB.items_per_s", f"transfer.{path}.{op}.1MiB.threads4.vs_{versus}"]
    assert [name for name in names if name not in figures] == []


def test_the_short_name_means_the_walk(figures: dict[str, float]) -> None:
    assert figures["transfer.shm.write.1MiB.vs_memcpy"] == figures["transfer.shm.write.1MiB.walk.vs_memcpy"]


def test_two_connections_are_compared_with_two_sockets(figures: dict[str, float]) -> None:
    assert "transfer.tcp2.write.1MiB.vs_raw_sockets" in figures


def test_python_imports_and_sizes_are_measured(figures: dict[str, float]) -> None:
    names = ["python.tcp.write.1MiB.us", "python.shm.read.1MiB.gbps", "python.import.mooncake.ms"]
    names += ["python.import.mooncake.engine.ms", "wheel.bytes", "so.stripped.bytes"]
    assert [name for name in names if name not in figures] == []


def test_an_unknown_group_is_refused(tmp_path: Path) -> None:
    done = run("--only", "nothing", "--output", str(tmp_path / "figures.json"))
    assert done.returncode != 0 and "nothing" in done.stderr
    assert not (tmp_path / "figures.json").exists()
