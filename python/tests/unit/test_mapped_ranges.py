"""A peer learns which of its ranges are mapped, asks rarely, and keeps calls that may wait interruptible."""

from __future__ import annotations

from typing import Any

import pytest

from mooncake.engine import Engine, Peer


def paths(*usable: str, regions: Any = ()) -> dict[str, Any]:
    return {"transports": [{"transport": name, "usable": True} for name in usable], "regions": list(regions)}


def region(base: int, length: int, how: str) -> dict[str, Any]:
    return {"base": base, "length": length, "how": how}


@pytest.fixture
def asked() -> list[int]:
    return []


@pytest.fixture
def peer(asked: list[int], request: pytest.FixtureRequest) -> Any:
    class Taught(Peer):
        __slots__ = ()

        def explain(self) -> dict[str, Any]:
            asked.append(1)
            return request.param

    with Engine() as engine, Taught(engine, engine.address) as opened:
        yield opened


TWO = paths("shm", "tcp", regions=[region(1000, 10, "other"), region(2000, 100, "mapped"), region(3000, 10, "mapped")])


@pytest.mark.parametrize("peer", [TWO], indirect=True)
def test_the_mapped_region_that_was_used_last_is_known(peer: Peer, asked: list[int]) -> None:
    peer.learn(1000)
    assert (peer.mapped_from, peer.mapped_to) == (0, 0)
    peer.learn(2099)
    assert (peer.mapped_from, peer.mapped_to) == (2000, 2100)
    peer.learn(2100)
    peer.learn(3000)
    assert (peer.mapped_from, peer.mapped_to) == (3000, 3010)
    assert len(asked) == 3


@pytest.mark.parametrize("peer", [TWO], indirect=True)
def test_it_asks_more_and_more_rarely(peer: Peer, asked: list[int]) -> None:
    for _ in range(1000):
        peer.learn(5)
    assert len(asked) == 10


@pytest.mark.parametrize("peer", [paths("self", "shm", "tcp"), paths("shm")], indirect=True)
def test_without_tcp_nothing_waits(peer: Peer, asked: list[int]) -> None:
    peer.learn(5)
    assert (peer.mapped_from, peer.mapped_to) == (0, 2**64)


@pytest.mark.parametrize("peer", [paths("tcp")], indirect=True)
def test_with_tcp_alone_everything_may(peer: Peer, asked: list[int]) -> None:
    peer.learn(5)
    assert (peer.mapped_from, peer.mapped_to) == (0, 0)
