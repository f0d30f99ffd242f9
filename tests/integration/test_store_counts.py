"""A read of a known location in mapped memory costs nothing but the copy: counted from outside by strace."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest


@pytest.fixture
def master(compile_c: Callable[..., Path]) -> Iterator[str]:
    """The address of a process that has the master and a segment."""
    program = compile_c("store_owner.c", "store_owner")
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def traced(tmp_path: Path, *command: object) -> list[str]:
    """The system calls of the main thread between the two marks."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    log = tmp_path / "strace"
    run = subprocess.run(
        ["strace", "-f", "-o", log, *map(str, command)], capture_output=True, text=True, timeout=60, check=False
    )
    if "Operation not permitted" in run.stderr and not log.read_text():
        pytest.skip("this container forbids ptrace")
    assert run.returncode == 0, run.stderr
    lines = log.read_text().splitlines()
    main = lines[0].split()[0]
    own = [line for line in lines if line.split()[0] == main]
    marks = [i for i, line in enumerate(own) if re.match(r"\d+\s+getppid\(", line)]
    assert len(marks) == 2
    return [match[1] for line in own[marks[0] + 1 : marks[1]] if (match := re.match(r"\d+\s+(\w+)\(", line))]


def assert_nothing_but_the_copy(calls: list[str], reports: int) -> None:
    """A lock that the thread behind the scenes holds at that moment may be waited for, once in a thousand calls."""
    assert set(calls) <= {"write", "futex"}
    assert calls.count("write") <= reports
    assert calls.count("futex") <= 4 + 2 * reports


def test_a_get_of_a_known_location_in_mapped_memory_makes_no_system_call(
    compile_c: Callable[..., Path], master: str, tmp_path: Path
) -> None:
    program = compile_c("store_counts.c", "store_counts")
    assert_nothing_but_the_copy(traced(tmp_path, program, master, 900, 0), reports=0)


def test_nor_does_a_batch(compile_c: Callable[..., Path], master: str, tmp_path: Path) -> None:
    """But for the word to the thread behind the scenes, after each 1,024 reads, that there is something to report."""
    program = compile_c("store_counts.c", "store_counts")
    assert_nothing_but_the_copy(traced(tmp_path, program, master, 0, 100), reports=8)


def test_the_count_can_be_wrong(compile_c: Callable[..., Path], master: str, tmp_path: Path) -> None:
    """Where memory isn't mapped, each read is sent and received."""
    program = compile_c("store_counts.c", "store_counts")
    assert len(traced(tmp_path, "env", "MC_FORCE_TCP=1", program, master, 100, 0)) >= 200
