"""Fixtures that all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Callable

import pytest
from support import OtherProcess


@pytest.fixture(params=["self", "shm", "tcp"])
def path(request: pytest.FixtureRequest) -> str:
    """Each path between two engines."""
    return str(request.param)


@pytest.fixture
def spawn() -> Iterator[Callable[..., OtherProcess]]:
    """Starts other processes, and ends them with the test."""
    started: list[OtherProcess] = []

    def start(*arguments: Any, **options: Any) -> OtherProcess:
        started.append(OtherProcess(*arguments, **options))
        return started[-1]

    yield start
    for process in started:
        process.end()
