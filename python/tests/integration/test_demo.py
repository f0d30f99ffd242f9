"""The demo moves a short trace, and sees a wrong byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import heed_interrupts

from mooncake.cli._demo_sides import Config
from mooncake.cli._trace import Request, generate_trace
from mooncake.cli.demo import DemoError, main, report, run

SIZE = 4096
TRACE = generate_trace(60, seed=3)


def write(path: Path, rows: int = 60) -> Path:
    path.write_text("".join(json.dumps(request._asdict()) + "\n" for request in TRACE[:rows]))
    return path


def test_a_short_trace_crosses_both_transports(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "mooncake.cli.demo",
        "--trace",
        str(write(tmp_path / "trace")),
        "--pool-size",
        "8000000",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines() if line and line.split()[0].isalpha()]
    assert [name for name in names if name in ("shm", "tcp", "memcpy", "raw")] == ["shm", "tcp", "memcpy", "raw"]
    checked = 2 * sum(len(request.hash_ids) for request in TRACE)
    assert f"{checked:,} blocks checked, every byte right" in done.stdout
    assert f"recorded, {tmp_path}/trace" in done.stdout


def test_without_a_recorded_trace_one_is_made_and_the_output_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mooncake.cli._trace.find_trace", lambda start: None)
    assert main(["--requests", "5", "--transport", "tcp", "--block-size", "64", "--pool-size", "1000000"]) == 0
    assert "made here by the seeded generator" in capsys.readouterr().out


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_one_wrong_byte_is_found_and_the_status_says_so(transport: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = Config(SIZE, 4096 * 2000, (transport,), compare=False, corrupt=2)
    results = run(config, TRACE[:5])
    (result,) = results
    assert len(result.wrong) == 1
    assert result.wrong[0].startswith(f"{transport}, request 3, block ")
    assert f"1 of {SIZE} bytes are wrong, the first at {SIZE - 1}" in result.wrong[0]
    assert report(config, 5, results, 1.0) == 1
    assert "WRONG" in capsys.readouterr().out


def test_a_small_pool_moves_evicted_blocks_again() -> None:
    turns = [(1, 2, 3), (4, 5), (1, 2, 3), (4, 5), (5, 4, 5)]
    trace = [Request(0, 512 * len(ids), 1, ids) for ids in turns]
    small, large = (run(Config(64, 64 * slots, ("shm",), compare=False), trace)[0] for slots in (3, 5))
    assert small.wrong == large.wrong == []
    assert small.checked == large.checked == 13
    assert large.moved == 5
    assert small.moved == 9


def test_a_pool_smaller_than_a_request_is_an_error() -> None:
    with pytest.raises(DemoError, match="more blocks than the pool holds"):
        run(Config(64, 64, ("shm",), compare=False), TRACE)


def test_a_malformed_trace_ends_with_line_and_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "trace", 3)
    path.write_text(path.read_text() + '{"timestamp": 1e9}\n')
    assert main(["--trace", str(path)]) == 2
    assert f"{path}, line 4: timestamp must be a whole number" in capsys.readouterr().err


def test_ctrl_c_ends_the_demo_and_both_its_processes(tmp_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "mooncake.cli.demo", "--pool-size", "16384000"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    assert demo.stderr is not None
    assert demo.stderr.readline().startswith("shm: ")
    os.killpg(demo.pid, signal.SIGINT)
    assert demo.wait(10) == 130
    assert demo.stderr.read() == ""


@pytest.mark.parametrize(
    "words",
    [["--transport", "pigeon"], ["--transport", ""], ["--block-size", "8"], ["--pool-size", "1"], ["--requests", "0"]],
)
def test_wrong_arguments_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err
