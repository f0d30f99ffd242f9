"""The examples, built against an installed prefix as their first lines say, move a buffer; in any pair of languages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PREFIX = Path(os.environ.get("MOONCAKE_TEST_PREFIX", ROOT / "build" / "venv"))
ENVIRONMENT = {
    **os.environ,
    "PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig"),
    "LD_LIBRARY_PATH": str(PREFIX / "lib"),
}
SIZE = 1 << 20
SECONDS = 30
LANGUAGES = ["C", "C++", "ctypes", "Python", "Go", "Rust"]
PAIRS = [(one, one) for one in LANGUAGES] + list(zip(LANGUAGES, LANGUAGES[1:] + LANGUAGES[:1]))
STRICT = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]


def pkg_config(*words: str) -> list[str]:
    command = ["pkg-config", *words, "mooncake"]
    return subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout.split()


def build(language: str, program: Path) -> list[str]:
    """The command that runs the example. Skips where the language isn't installed."""
    environment = ENVIRONMENT
    flags = pkg_config("--cflags", "--libs")
    if language in ("ctypes", "Python"):
        name = "transfer.py" if language == "Python" else "transfer_ctypes.py"
        return [str(PREFIX / "bin" / "python"), str(EXAMPLES / name)]
    if language == "C":
        command = ["gcc", "-std=gnu11", *STRICT, EXAMPLES / "transfer.c", "-o", program, *flags]
    elif language == "C++":
        command = ["g++", "-std=c++11", *STRICT, EXAMPLES / "transfer.cpp", "-o", program, *flags]
    elif language == "Go":
        if shutil.which("go") is None:
            pytest.skip("go is not installed")
        environment = {**ENVIRONMENT, "GOCACHE": str(program.parent / "go-cache"), "GOFLAGS": "", "GO111MODULE": "off"}
        command = ["go", "build", "-o", program, EXAMPLES / "transfer.go"]
    else:
        if shutil.which("rustc") is None:
            pytest.skip("rustc is not installed")
        paths = pkg_config("--libs-only-L")
        command = ["rustc", "--edition", "2021", "-D", "warnings", EXAMPLES / "transfer.rs", "-o", program, *paths]
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return [str(program)]


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory):
    """Builds each example when it is first needed."""
    built: dict[str, list[str]] = {}

    def command(language: str) -> list[str]:
        if language not in built:
            built[language] = build(language, tmp_path_factory.mktemp("example") / "transfer")
        return built[language]

    return command


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, output
    return output


def start(command: list[str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, *words],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(("server", "writer"), PAIRS)
def test_what_one_process_writes_is_in_the_others_memory(commands, server: str, writer: str):
    serving, writing = commands(server), commands(writer)
    process = start(serving, "serve")
    try:
        address, remote = process.stdout.readline().split()
        finish(start(writing, "write", address, remote))
        assert finish(process).strip() == f"written: {SIZE} bytes: hello from {writer}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_failure_is_said_in_words(commands, language: str):
    process = start(commands(language), "write", "127.0.0.1:1", "0x1000")
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "MC_ERR_UNREACHABLE" in output
    assert "127.0.0.1:1" in output
