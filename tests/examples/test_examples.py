"""The examples, built against an installed prefix as their first lines say, do their work; in any pair of languages."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
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
OLD = "the old C"  # the reference's interface
PAIRS = [
    *((one, one) for one in [*LANGUAGES, OLD]),
    *zip(LANGUAGES, LANGUAGES[1:] + LANGUAGES[:1]),
    ("C", OLD),
    (OLD, "C"),
]
STRICT = ["-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror"]


def pkg_config(*words: str, package: str = "mooncake") -> list[str]:
    command = ["pkg-config", *words, package]
    return subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, text=True).stdout.split()


def build(language: str, program: Path) -> list[str]:
    """The command that runs the example of the program's name. Skips where the language isn't installed."""
    environment = ENVIRONMENT
    flags = pkg_config("--cflags", "--libs")
    if language in ("ctypes", "Python"):
        name = f"{program.name}.py" if language == "Python" else f"{program.name}_ctypes.py"
        return [str(PREFIX / "bin" / "python"), str(EXAMPLES / name)]
    if language == "C":
        command = ["gcc", "-std=gnu11", *STRICT, EXAMPLES / f"{program.name}.c", "-o", program, *flags]
    elif language == "the old C":
        flags = pkg_config("--cflags", "--libs", package="transfer_engine")
        command = ["gcc", "-std=gnu11", *STRICT, EXAMPLES / "transfer_engine_c.c", "-o", program, *flags]
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
    built: dict[tuple[str, str], list[str]] = {}

    def command(language: str, example: str = "transfer") -> list[str]:
        if (language, example) not in built:
            built[language, example] = build(language, tmp_path_factory.mktemp("example") / example)
        return built[language, example]

    return command


def finish(process: subprocess.Popen[str], words: str | None = None) -> str:
    output, _ = process.communicate(words, timeout=SECONDS)
    assert process.returncode == 0, output
    return output


def start(command: list[str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, *words],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="session")
def master() -> Iterator[str]:
    """Where a mooncake_master listens."""
    process = start([str(PREFIX / "bin" / "mooncake_master")], "--port=0")
    try:
        said = ""
        while " serves at " not in said:  # beside it what it waits for
            said = process.stdout.readline()
            assert said
        yield said.split()[-1]
    finally:
        process.terminate()
        assert process.wait(SECONDS) == 0


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


def test_a_failure_of_the_old_interface_is_said_in_words_beside_its_number(commands):
    process = start(commands(OLD), "write", "127.0.0.1:1", "0x1000")
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "open segment: error -102\n" in output
    assert "openSegment: 127.0.0.1:1: " in output


STORE_LANGUAGES = ["C", "Python"]


def what_was_read(writer: str, reader: str) -> str:
    """What the example prints in one language after the one in another language has put it."""
    if reader == "C":
        blocks = "block 0: there\nblock 1: there\nblock 2: no such key\n"
    else:
        blocks = "blocks: [4096, 4096, None]\n"
    return f"{SIZE} bytes: hello from {writer}\n{blocks}"


@pytest.mark.parametrize("reader", STORE_LANGUAGES)
@pytest.mark.parametrize("owner", STORE_LANGUAGES)
def test_what_one_process_puts_into_the_store_another_reads(commands, master: str, owner: str, reader: str):
    reading = commands(reader, "store")
    process = start(commands(owner, "store"), "own", master)
    try:
        assert process.stdout.readline() == "ready\n"
        assert finish(start(reading, "read", master)) == what_was_read(owner, reader)
        assert finish(process, "\n") == ""
    finally:
        process.kill()
        process.wait()
    gone = start(reading, "read", master)
    output, _ = gone.communicate(timeout=SECONDS)
    assert gone.returncode == 1
    assert "MC_ERR_NOT_FOUND" in output  # what it held has gone with it


@pytest.mark.parametrize("language", STORE_LANGUAGES)
def test_the_store_needs_no_other_process(commands, language: str):
    assert finish(start(commands(language, "store"), "alone")) == what_was_read(language, language)


@pytest.mark.parametrize("language", STORE_LANGUAGES)
def test_a_master_that_is_not_there_is_said_in_words(commands, language: str):
    process = start(commands(language, "store"), "read", "127.0.0.1:1")
    output, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 1
    assert "MC_ERR_UNREACHABLE" in output
    assert "127.0.0.1:1" in output
