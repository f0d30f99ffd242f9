"""Random transfers, cancels, unregistrations and killed peers: one terminal state each, and nothing crashes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Callable

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 3
OPTIONS = {
    "ASAN_OPTIONS": "halt_on_error=1:detect_stack_use_after_return=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0:second_deadlock_stack=1",
}


def soak(program: Path, seed: int, protocol: str, memory: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MC_")}
    done = subprocess.run(
        [program, str(SECONDS), str(seed), protocol, memory],
        env={**environment, **OPTIONS},
        capture_output=True,
        text=True,
        timeout=120,
    )
    print(done.stdout)
    assert done.returncode == 0, f"seed {seed}: status {done.returncode}\n{done.stdout}{done.stderr}"


# Fault 6.
@pytest.mark.parametrize(
    ("protocol", "memory"), [("-", "alloc"), ("shm", "alloc"), ("-", "map"), ("shm", "map"), ("tcp", "alloc")]
)
def test_every_request_reaches_one_terminal_state_whatever_happens(
    compile_c: Callable[..., Path], protocol: str, memory: str
) -> None:
    soak(compile_c("soak.c", "soak"), 1, protocol, memory)


# Fault 6.
@pytest.mark.parametrize(("protocol", "memory"), [("-", "alloc"), ("-", "map"), ("tcp", "map")])
@pytest.mark.parametrize(
    ("variant", "compiler", "flag"),
    [("address", "gcc", "-fsanitize=address,undefined"), ("thread", "clang", "-fsanitize=thread")],
)
def test_the_sanitizers_have_nothing_to_say_meanwhile(
    compile_c: Callable[..., Path], variant: str, compiler: str, flag: str, protocol: str, memory: str
) -> None:
    """With the library that the C tests of that sanitizer use; MOONCAKE_SANITIZED is where both builds are."""
    builds = Path(os.environ.get("MOONCAKE_SANITIZED", ROOT / "build" / "check"))
    library = builds / variant / "libmooncake" / "libmooncake.so.1"
    if not library.exists():
        pytest.skip(f"{library} is not there: make check builds it")
    soak(compile_c("soak.c", f"soak-{variant}", flag, compiler=compiler, against=library), 2, protocol, memory)
