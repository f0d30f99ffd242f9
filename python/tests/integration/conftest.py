"""Engines, peers, buffers and stores of the integration tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from support import Cluster, OtherProcess, SameProcess

import mooncake
from mooncake.engine import Engine, Memory, Peer, TransferEngine, alloc
from mooncake.store import MooncakeDistributedStore, Store

Spawn = Callable[..., OtherProcess]


@pytest.fixture
def engine(path: str) -> Iterator[Engine]:
    """An engine whose only path to `there` is `path`."""
    with Engine("127.0.0.1", protocol=path if path in ("shm", "tcp") else None) as opened:
        yield opened


@pytest.fixture
def there(path: str, engine: Engine, spawn: Spawn) -> Iterator[Any]:
    """The other end of `path`, with 1 MiB of registered memory."""
    end = SameProcess(engine) if path == "self" else spawn(path)
    yield end
    end.end()


@pytest.fixture
def peer(engine: Engine, there: Any) -> Iterator[Peer]:
    with engine.connect(there.address) as opened:
        yield opened


@pytest.fixture
def memory(engine: Engine) -> Iterator[Memory]:
    """1 MiB, registered with the engine."""
    with alloc(1 << 20) as allocated, engine.register(allocated):
        yield allocated


@pytest.fixture
def old(path: str) -> Iterator[TransferEngine]:
    """The compatible engine, for the same paths."""
    with TransferEngine() as opened:
        assert opened.initialize("127.0.0.1", "P2PHANDSHAKE", path, "") == 0
        yield opened


@pytest.fixture
def old_there(path: str, old: TransferEngine, spawn: Spawn) -> Iterator[Any]:
    """The other end for the compatible engine."""
    end = SameProcess(old.get_engine()) if path == "self" else spawn(path)
    yield end
    end.end()


@pytest.fixture
def store() -> Iterator[Store]:
    """A store whose master and memory, 64 MiB, are in this process."""
    with mooncake.connect(segment_size="64MiB") as opened:
        yield opened


@pytest.fixture
def old_store() -> Iterator[MooncakeDistributedStore]:
    """The compatible store, with master and memory in this process."""
    opened = MooncakeDistributedStore()
    assert opened.setup("localhost", "P2PHANDSHAKE", 64 << 20, 16 << 20, "tcp", "", "") == 0
    yield opened
    assert opened.close() == 0


@pytest.fixture(params=["shm", "tcp"])
def route(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the processes of a cluster reach each other."""
    if request.param == "tcp":
        monkeypatch.setenv("MC_FORCE_TCP", "1")
    return str(request.param)


@pytest.fixture
def cluster(route: str, tmp_path: Path) -> Iterator[Cluster]:
    """A master of its own, with no clients yet."""
    if shutil.which("mooncake_master") is None:
        pytest.skip("the program mooncake_master is not installed")
    made = Cluster(tmp_path / "state")
    yield made
    made.end()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Store]:
    """A client without memory of the cluster that has one owner of 64 MiB, cluster.clients[0]."""
    cluster.client(64 << 20)
    with mooncake.connect(cluster.address) as opened:
        yield opened
