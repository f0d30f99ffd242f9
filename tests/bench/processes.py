"""processes.py - what the groups of run.py share: paths, words for people, processes, and the reference wheel."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PREFIX = Path(sys.prefix)
BENCH = ROOT / "build" / "bench"
REFERENCE = "mooncake-transfer-engine-non-cuda"
REFERENCE_NEEDS = ("libibverbs1", "libnuma1", "libcurl4")
PATIENCE = 10  # seconds that a process gets to end by itself

Figures = dict[str, float]


def said(*command: object, **options: object) -> str:
    """The output of a command; SystemExit with its words if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)  # type: ignore
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(map(str, command))}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def note(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Answering:
    """A process that answers a line with a line "= …". What else it prints is passed over; its stderr is logged."""

    def __init__(self, log: Path, *command: object, env: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("a") as stderr:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr,
                text=True, cwd=BENCH, env=env,
            )  # fmt: skip

    def answer(self) -> str:
        """The next line that isn't a log line of the package itself."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("= "):
                return line[2:].strip()
        words = " ".join(self.process.args)  # type: ignore[arg-type]
        raise SystemExit(f"bench: {words}: ended with status {self.process.wait()}; see {self.log}")

    def ask(self, *words: object) -> str:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # answer() says what became of it
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        """Ends its input, and it if that doesn't help."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, with words of its own
            self.process.stdin.close()
        end(self.process, terminate=False)
        self.process.stdout.close()


def end(process: subprocess.Popen[str] | subprocess.Popen[bytes], terminate: bool = True) -> None:
    if terminate:
        process.terminate()
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def reference_interpreter(module: str) -> Path | None:
    """The Python of an environment in which that module of the reference wheel can be imported; None, with a reason
    printed, if there can't be one."""
    venv = BENCH / "reference-venv"
    python = venv / "bin" / "python"
    check = [str(python), "-c", f"import {module}"]
    if not python.exists() or subprocess.run(check, capture_output=True, check=False).returncode != 0:
        if os.geteuid() == 0:
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *REFERENCE_NEEDS]
            for command in (["apt-get", "update", "-qq"], install):
                if subprocess.run(command, capture_output=True, env=environment, check=False).returncode != 0:
                    note(f"{' '.join(command)} failed")
                    break
        for command in ([sys.executable, "-m", "venv", venv], [venv / "bin/pip", "install", "-q", REFERENCE]):
            done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                note(f"no reference: {' '.join(map(str, command))}: {done.stderr.strip()[-200:]}")
                return None
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        note(f"no reference: it needs {', '.join(REFERENCE_NEEDS)}: {done.stderr.strip().splitlines()[-1]}")
        return None
    return python
