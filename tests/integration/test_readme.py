"""What the README shows works as it stands there: its programs are taken out of it and run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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


def test_the_python_of_the_readme_moves_a_buffer() -> None:
    first, second = blocks("python")
    second = second.replace("{", "{{").replace("}", "}}")
    second, addresses = re.subn(r"127\.0\.0\.1:\d+", "{0}", second)
    second, remotes = re.subn(r"\b\d{12,}\b", "{1}", second)
    assert (addresses, remotes) == (1, 1)
    output = both_roles([sys.executable, "-c", first], [sys.executable, "-c", second])
    assert "b'hello'" in output and "b'done'" in output


def test_the_c_program_of_the_readme_moves_a_buffer(tmp_path: Path) -> None:
    (program,) = blocks("c")
    prefix = Path(sys.prefix)
    (tmp_path / "hello.c").write_text(program)
    command = re.search(r"^    (cc hello\.c .*)$", README, re.MULTILINE)
    assert command is not None
    environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    line = command[1].replace("$PWD/build/venv", str(prefix))
    subprocess.run(["sh", "-c", line], cwd=tmp_path, env=environment, check=True)
    output = both_roles([str(tmp_path / "hello")], [str(tmp_path / "hello"), "{0}", "{1}"])
    assert output == "done: hello\n"
