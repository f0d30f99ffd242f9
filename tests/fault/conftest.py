"""Fixtures: the programs under test, the actor built against the library, and clusters that end with their test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT / "tests" / "integration"))  # actor.py and peer.py

from cluster import Cluster  # noqa: E402

TRANSPORTS = {"shm": {}, "tcp": {"MC_FORCE_TCP": "1"}}


@pytest.fixture(scope="session")
def prefix() -> Path:
    """MOONCAKE_TEST_PREFIX, or where `make build` installs."""
    path = Path(os.environ.get("MOONCAKE_TEST_PREFIX", ROOT / "build" / "venv"))
    assert (path / "bin" / "mooncake_master").exists(), f"{path}/bin/mooncake_master is missing: run make build"
    return path


@pytest.fixture(scope="session")
def actor_program(tmp_path_factory: pytest.TempPathFactory, prefix: Path) -> Path:
    library = Path(os.environ.get("MOONCAKE_LIBRARY", prefix / "lib" / "libmooncake.so.1"))
    program = tmp_path_factory.mktemp("programs") / "store_actor"
    sources = [HERE / name for name in ("store_actor.c", "load.c", "value.c")]
    flags = ["-O2", "-g", "-Wall", "-Wextra", "-std=gnu11", "-D_GNU_SOURCE", f"-I{ROOT / 'include'}"]
    link = [library, f"-Wl,-rpath,{library.parent}", "-pthread", "-o", program]
    subprocess.run(["cc", *flags, *map(str, [*sources, *link])], check=True)
    return program


@pytest.fixture
def make_cluster(prefix: Path, actor_program: Path, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(transport: str = "shm") -> Cluster:
        folder = tmp_path / f"cluster-{len(made)}"
        folder.mkdir()
        made.append(Cluster(prefix / "bin", actor_program, folder, TRANSPORTS[transport]))
        return made[-1]

    yield make
    for cluster in made:
        cluster.end()


@pytest.fixture(params=list(TRANSPORTS))
def cluster(request: pytest.FixtureRequest, make_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster without processes yet, once over shared memory and once over TCP."""
    return make_cluster(request.param)


@pytest.fixture
def local_cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """The same over the cheapest paths."""
    return make_cluster()
