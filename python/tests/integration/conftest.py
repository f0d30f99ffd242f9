"""Engines, peers and buffers of the integration tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import pytest
from support import OtherProcess, SameProcess

from mooncake.engine import Engine, Memory, Peer, TransferEngine, alloc

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
