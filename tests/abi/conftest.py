"""What the ABI tests look at: the public headers, and a library that is installed under a prefix."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def prefix() -> Path:
    """MOONCAKE_TEST_PREFIX, or what `make build` installs."""
    return Path(os.environ.get("MOONCAKE_TEST_PREFIX", ROOT / "build" / "venv"))


@pytest.fixture(scope="session")
def library(prefix: Path) -> Path:
    path = prefix / "lib" / "libmooncake.so.1"
    assert path.exists(), f"{path} is missing: run make build"
    return path


def run(*command: object, env: dict[str, str] | None = None, status: int | None = 0) -> str:
    """A command's output; fails the test unless it ends with `status` (None: any)."""
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert status is None or done.returncode == status, f"{command}: status {done.returncode}\n{done.stdout}"
    return done.stdout
