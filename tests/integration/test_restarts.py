"""A peer that comes back under its old name, at its old virtual addresses, as programs of the compatible engine see it:
what they call next reaches the new process, without anything that they would have to do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

HERE = Path(__file__).resolve().parent
PLACE, LATE, SIZE = 0x620000000000, 0x630000000000, 3 << 20
RECOVERY = 2.0  # seconds


class Program:
    def __init__(self, listen: str, protocol: str, place: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, HERE / "engine_actor.py", listen, protocol, str(place), str(SIZE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.address = self._line()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, "it has ended"
        return line

    def ask(self, *words: object) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return int(self._line())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def run() -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def run(listen: str, protocol: str, place: int) -> Program:
        started.append(Program(listen, protocol, place))
        return started[-1]

    yield run
    for program in started:
        program.kill()


# Fault 9.
@pytest.mark.parametrize("protocol", ["shm", "tcp"])
def test_a_peer_that_was_restarted_is_reached_by_the_next_call(run: Callable[..., Program], protocol: str) -> None:
    client = run("127.0.0.1", protocol, PLACE + (1 << 32))
    target = run("127.0.0.1", protocol, PLACE)
    name = target.address
    target.ask("fill", 1)
    assert client.ask("read", name, PLACE, SIZE) == 0
    assert client.ask("get", SIZE - 1) == 1
    for value in (2, 3):
        target.kill()
        assert client.ask("read", name, PLACE, SIZE) < 0  # nobody is there
        target = run(name, protocol, PLACE)
        assert target.address == name
        target.ask("fill", value)
        back = time.monotonic()
        while client.ask("read", name, PLACE, SIZE) != 0:
            assert time.monotonic() - back < RECOVERY
        assert client.ask("get", 0) == client.ask("get", SIZE - 1) == value  # never the old bytes
        client.ask("fill", 100 + value)
        assert client.ask("write", name, PLACE, SIZE) == 0
        assert target.ask("get", SIZE - 1) == 100 + value
    assert client.ask("write", name, LATE, 4096) < 0
    assert target.ask("map", LATE, 4096) == 0  # registered after the peer was opened
    assert client.ask("write", name, LATE, 4096) == 0
