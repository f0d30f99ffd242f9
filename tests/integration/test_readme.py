"""What the README shows works as it stands there: its programs are taken out of it and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import mooncake
import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def both_roles(first: list[str], second: list[str], timeout: float = 30) -> str:
    """Runs the program that waits, then the one that writes; words {0} and {1} of the latter are what the first
    printed last on its first line. Returns the rest of what the first printed."""
    waiting = subprocess.Popen(first, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        assert waiting.stdout is not None
        address, remote = waiting.stdout.readline().split()[-2:]
        subprocess.run([word.format(address, remote) for word in second], check=True, timeout=timeout)
        output, _ = waiting.communicate(timeout=timeout)
    finally:
        waiting.kill()
        waiting.wait()
    assert waiting.returncode == 0
    return output


def test_the_store_of_the_readme_is_a_mapping() -> None:
    output = subprocess.run([sys.executable, "-c", blocks("python")[0]], check=True, capture_output=True, text=True)
    assert output.stdout == "b'value' True [b'key']\n"


@pytest.fixture()
def master() -> Iterator[str]:
    """Where a mooncake_master listens."""
    command = [str(Path(sys.prefix) / "bin" / "mooncake_master"), "--port=0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_the_processes_of_the_readme_share_a_pool(master: str) -> None:
    owner, reader = (program.replace("127.0.0.1:50051", master) for program in blocks("python")[1:3])
    owner = owner.replace("1 << 30", "1 << 24").replace("input(", "print('ready', flush=True); input(")
    owning = subprocess.Popen([sys.executable, "-c", owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert owning.stdout is not None
        assert owning.stdout.readline() == "ready\n"
        output = subprocess.run([sys.executable, "-c", reader], check=True, capture_output=True, text=True, timeout=30)
        assert output.stdout == f"{1 << 20} None\n"
        owning.communicate("\n", timeout=30)
        assert owning.returncode == 0
    finally:
        owning.kill()
        owning.wait()


def test_the_engines_of_the_readme_move_a_buffer() -> None:
    first, second = blocks("python")[3:]
    second = second.replace("{", "{{").replace("}", "}}")
    second, addresses = re.subn(r"127\.0\.0\.1:\d+", "{0}", second)
    second, remotes = re.subn(r"\b\d{12,}\b", "{1}", second)
    assert (addresses, remotes) == (1, 1)
    output = both_roles([sys.executable, "-c", first], [sys.executable, "-c", second])
    assert "b'hello'" in output and "b'done'" in output


def test_the_c_program_of_the_readme_gets_what_it_put(tmp_path: Path, master: str) -> None:
    (program,) = blocks("c")
    prefix = Path(sys.prefix)
    (tmp_path / "hello.c").write_text(program)
    command = re.search(r"^    (cc hello\.c .*)$", README, re.MULTILINE)
    assert command is not None
    line = command[1].replace("$PWD/build/venv", str(prefix))
    environment = {key: value for key, value in os.environ.items() if key != "MOONCAKE_MASTER"}
    environment["PKG_CONFIG_PATH"] = str(prefix / "lib" / "pkgconfig")
    with mooncake.connect(master, segment_size="1MiB") as store:
        for where, there in ({}, False), ({"MOONCAKE_MASTER": master}, True):
            output = subprocess.run(
                ["sh", "-c", line],
                cwd=tmp_path,
                env={**environment, **where},
                check=True,
                capture_output=True,
                text=True,
            )
            assert output.stdout == "value\n"
            assert ("key" in store) is there
