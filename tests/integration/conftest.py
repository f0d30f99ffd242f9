"""Fixtures: the library under test, the actor program built against it, and processes that end with their test."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from actor import Actor
from network import Network
from program import Program

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def library() -> Path:
    """MOONCAKE_LIBRARY, or what `make build` installs."""
    prefix = Path(os.environ.get("MOONCAKE_TEST_PREFIX", ROOT / "build" / "venv"))
    path = Path(os.environ.get("MOONCAKE_LIBRARY", prefix / "lib" / "libmooncake.so.1"))
    assert path.exists(), f"{path} is missing: run make build"
    return path


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Callable[..., Path]:
    """Compiles a C file of this folder against the public headers and a library (default: the one under test)."""
    folder = tmp_path_factory.mktemp("programs")

    def build(source: str, name: str, *flags: str, compiler: str = "cc", against: Path = library) -> Path:
        program = folder / name
        command = [
            compiler,
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-std=gnu11",
            "-D_GNU_SOURCE",
            f"-I{ROOT / 'include'}",
            *flags,
        ]
        link = [str(against), f"-Wl,-rpath,{against.parent}", "-pthread", "-ldl", "-o", str(program)]
        subprocess.run([*command, str(HERE / source), *link], check=True)
        return program

    return build


@pytest.fixture(scope="session")
def program(compile_c: Callable[..., Path]) -> Path:
    return compile_c("actor.c", "actor")


@pytest.fixture
def start(program: Path) -> Iterator[Callable[..., Actor]]:
    """Starts actors, and ends them with the test. An actor has an engine at once, unless `engine` is false."""
    started: list[Actor] = []

    def start(
        *,
        engine: bool = True,
        environment: dict[str, str] | None = None,
        inside: tuple[str, ...] = (),
        **options: object,
    ) -> Actor:
        actor = Actor(program, environment=environment, inside=inside)
        started.append(actor)
        if engine:
            actor.open(**options)  # type: ignore[arg-type]
        return actor

    yield start
    for actor in started:
        actor.end()


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the programs under test: what `make build` installs."""
    path = Path(os.environ.get("MOONCAKE_TEST_PREFIX", ROOT / "build" / "venv")) / "bin"
    assert (path / "mooncake_master").exists(), f"{path}/mooncake_master is missing: run make build"
    return path


@pytest.fixture
def begin(programs: Path, tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs, and ends them with the test. Masters get a state file, so that they serve at once, and no
    administration, whose port is the same for all, unless the flags say something of it."""
    started: list[Program] = []

    def begin(name: str, *flags: str, environment: dict[str, str] | None = None) -> Program:
        if name == "mooncake_master" and not any("state_file" in flag for flag in flags):
            flags = (*flags, f"--state_file={tmp_path / f'state-{len(started)}'}")
        if name == "mooncake_master" and not any("metrics" in flag for flag in flags):
            flags = (*flags, "--metrics_host=")
        started.append(Program(programs / name, *flags, environment=environment))
        return started[-1]

    yield begin
    for program in started:
        program.kill()


def some_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def free_port() -> int:
    """A port that nobody listens on now."""
    return some_port()


@pytest.fixture
def another_port(free_port: int) -> int:
    """One more."""
    while (port := some_port()) == free_port:
        pass
    return port


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many descriptors as this process may have."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def network() -> Iterator[Network]:
    if shutil.which("ip") is None:
        pytest.skip("no network namespaces: the program ip is not there")
    network = Network()
    try:
        try:
            network.add()
        except RuntimeError as error:
            pytest.skip(f"no network namespaces: {error}")
        yield network
    finally:
        network.close()
