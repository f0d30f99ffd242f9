"""`mooncake replay` finds in a pool what a least-recently-used cache would find, checks every byte, and leaves nothing
behind, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import heed_interrupts

from mooncake.cli import _replay_worker
from mooncake.cli._blocks import Blocks
from mooncake.cli._cluster import Cluster, ClusterError, find_program, measure_footprint, segment_size
from mooncake.cli._lru import simulate_lru
from mooncake.cli._replay_report import Outcome, table, verdict
from mooncake.cli._replay_worker import KEY_LENGTH, Tally, Task, block_key, work
from mooncake.cli._trace import generate_trace
from mooncake.cli.main import main as command
from mooncake.cli.replay import Config, main, run

SIZE = 4096
CAPACITY = 1500
TRACE = generate_trace(600, seed=3)
CONFIG = Config(SIZE, CAPACITY, owners=2, workers=2, policy="lru")
SPOILED = TRACE[0].hash_ids[1]


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def named(pids: Sequence[int], name: str) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == name[:15]]


class Replaying:
    """`mooncake replay` in a process group of its own, under way."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mooncake.cli.main", "replay", "--block-size", "1KiB", "--requests", "2000", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        assert self.process.stderr is not None
        assert self.process.stderr.readline().startswith("shm: ")
        self.children = children(self.process.pid)
        assert len(self.children) >= 5

    def ends(self) -> tuple[int, str]:
        """Its status and its words, when it and all its processes are gone."""
        words = self.process.communicate(timeout=30)[1]
        end = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in self.children):
            assert time.monotonic() < end, "processes are left behind"
            time.sleep(0.01)
        return self.process.returncode, words


# ---- What it finds


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_a_replay_finds_what_a_simulated_cache_finds_and_every_byte_is_right(transport: str) -> None:
    outcome = run(CONFIG, transport, TRACE)
    tally = outcome.tally
    accesses = sum(len(request.hash_ids) for request in TRACE)
    simulated = simulate_lru([request.hash_ids for request in TRACE], CAPACITY) / accesses
    assert simulated > 0.03
    assert outcome.hit_ratio == pytest.approx(simulated, abs=0.03)
    assert (tally.wrong, tally.words) == (0, [])
    assert tally.requests == len(TRACE)
    assert tally.checked == tally.got >= tally.hits > 0
    assert tally.got + tally.put + tally.present == outcome.accesses == accesses
    assert CAPACITY * 0.9 < outcome.keys < CAPACITY * 1.1
    assert outcome.evicted > CAPACITY
    assert verdict([outcome], 1.0)[1] == 0


def test_a_pool_that_holds_everything_evicts_nothing_and_finds_all_that_was_seen() -> None:
    trace = TRACE[:60]
    prompts = [request.hash_ids for request in trace]
    outcome = run(Config(SIZE, 4000, owners=1, workers=1), "shm", trace)
    assert outcome.evicted == 0
    assert outcome.tally.hits == simulate_lru(prompts, 4000)
    assert outcome.keys == outcome.tally.put == len({block_id for prompt in prompts for block_id in prompt})


def test_a_pool_of_the_size_that_was_computed_holds_the_blocks() -> None:
    from mooncake import connect

    footprint = measure_footprint(KEY_LENGTH, SIZE)
    assert footprint.extent >= SIZE + KEY_LENGTH
    with Cluster(1, segment_size(500, footprint, 1)) as cluster, connect(cluster.address) as store:
        for block_id in range(2000):
            store.put(block_key(block_id), bytes(SIZE), timeout=10)
        assert 470 <= sum(1 for _ in store) <= 530


# ---- Wrong bytes


class Spoiled(Blocks):
    """Fills one block with a wrong byte, and checks as ever."""

    def fill(self, view: memoryview, offset: int, block_id: int) -> None:
        super().fill(view, offset, block_id)
        if block_id == SPOILED:
            view[offset + SIZE - 1] ^= 1

    def check(self, view: memoryview, offset: int, address: int, block_id: int) -> None:
        Blocks(SIZE).check(view, offset, address, block_id)


def spoil(parent: Any, next_index: Any, task: Task) -> None:
    """A worker that puts a block with a wrong byte."""
    _replay_worker.Blocks = Spoiled  # type: ignore[misc]
    work(parent, next_index, task)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_one_wrong_byte_is_found_and_the_status_says_so(transport: str) -> None:
    trace = [TRACE[0], TRACE[1], TRACE[0]]
    outcome = run(Config(SIZE, 1000, owners=1, workers=1), transport, trace, worker=spoil)
    assert outcome.tally.wrong == 1
    words, status = verdict([outcome], 1.0)
    assert f"WRONG: {transport}, request 3, block {SPOILED}: 1 of {SIZE} bytes are wrong" in words
    assert status == 1


# ---- The program


def test_the_program_prints_a_table_of_both_transports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace"
    trace.write_text("".join(json.dumps(request._asdict()) + "\n" for request in TRACE[:150]))
    assert command(["replay", "--trace", str(trace), "--capacity", "2000", "--block-size", "4KiB"]) == 0
    said = capsys.readouterr().out
    assert f"recorded, {trace}" in said
    rows = [line.split()[:2] for line in said.splitlines() if line.startswith(("shm", "tcp"))]
    assert rows == [["shm", "150"], ["tcp", "150"], ["shm", "get"], ["shm", "put"], ["tcp", "get"], ["tcp", "put"]]
    assert "every byte right" in said


def test_json_has_the_figures_and_without_a_trace_one_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mooncake.cli._trace.find_trace", lambda start: None)
    words = ["--requests", "40", "--transport", "shm", "--capacity", "1200", "--block-size", "512", "--json"]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert "made here by the seeded generator" in said["trace"]
    (figures,) = said["passes"]
    assert figures["requests"] == figures["get"]["calls"] == 40
    assert figures["put_calls"]["bytes"] == figures["put"] * 512
    assert figures["wrong"] == 0
    assert 0 <= figures["hit_ratio"] - said["simulated_lru"] + 0.03 <= 0.06


@pytest.mark.parametrize(
    "words",
    [
        ["--transport", "pigeon"],
        ["--block-size", "8"],
        ["--block-size", "many"],
        ["--owners", "0"],
        ["--workers", "0"],
        ["--requests", "0"],
    ],
)
def test_wrong_arguments_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_pool_too_small_for_the_workers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--capacity", "100", "--requests", "40"]) == 1
    assert "a pool of 100 blocks is too small" in capsys.readouterr().err


def test_a_malformed_trace_ends_with_line_and_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trace"
    path.write_text('{"timestamp": 1e9}\n')
    assert main(["--trace", str(path)]) == 2
    assert f"{path}, line 1: timestamp must be a whole number" in capsys.readouterr().err


def test_the_command_names_its_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--help"]) == 0
    assert "replay" in capsys.readouterr().out
    assert command([]) == 2
    assert command(["fly"]) == 2
    assert "there is no program 'fly'" in capsys.readouterr().err


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="the program mooncake_pilot is not installed"):
        find_program("mooncake_pilot")


def test_a_table_has_no_division_by_zero() -> None:
    assert "shm" in table([Outcome("shm", SIZE, 1, 0, Tally(), 0.0, 0)], 0.0)


# ---- Ends


@pytest.mark.parametrize(
    ("program", "words"), [("mooncake_master", "the master"), ("mooncake_client", "memory owner ")]
)
def test_a_killed_process_of_the_cluster_ends_the_replay_with_words(program: str, words: str, tmp_path: Path) -> None:
    replaying = Replaying(tmp_path)
    os.kill(named(replaying.children, program)[0], signal.SIGKILL)
    status, said = replaying.ends()
    assert status == 1
    assert f"replay: {words}" in said.replace("replay: worker", "") or f"({words}" in said
    assert "was ended by signal 9" in said


def test_a_killed_worker_ends_the_replay_with_words(tmp_path: Path) -> None:
    replaying = Replaying(tmp_path)
    workers = [pid for pid in replaying.children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(workers[0], signal.SIGKILL)
    status, said = replaying.ends()
    assert status == 1
    assert "replay: worker " in said
    assert "ended with status -9" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_replay_ends_all_its_processes(number: int, tmp_path: Path) -> None:
    replaying = Replaying(tmp_path)
    if number == signal.SIGINT:
        os.killpg(replaying.process.pid, number)  # as a terminal does
    else:
        replaying.process.send_signal(number)
    status, said = replaying.ends()
    assert status == 130
    assert "Traceback" not in said


def test_a_killed_replay_leaves_no_programs_behind(tmp_path: Path) -> None:
    replaying = Replaying(tmp_path)
    replaying.process.kill()
    assert replaying.ends()[0] == -signal.SIGKILL
