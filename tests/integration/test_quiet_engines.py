"""An engine that nobody uses costs nothing: no processor time, no signal, no descriptor for other programs."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Callable

import pytest
from actor import Actor

SIZE = 1 << 20


def busy_pair(start: Callable[..., Actor]) -> tuple[Actor, Actor]:
    """Two processes with two engines each, which have used every path to each other."""
    actors = start(), start()
    for actor in actors:
        actor.open(protocol="tcp")
    for one, other in (actors, actors[::-1]):
        for engine in (0, 1):
            local, remote = one.alloc(SIZE, engine=engine), other.alloc(SIZE, engine=1)
            peer = one.peer(other.address, engine)
            for opcode in ("read", "write"):
                one.ask(opcode, peer, local, remote, SIZE, 9000)
            one.ask("notify", peer, "00", "00", 9000)
    return actors


def test_an_idle_engine_uses_no_processor_time(start: Callable[..., Actor]) -> None:
    actors = busy_pair(start)
    before = [actor.ticks() for actor in actors]
    time.sleep(3)
    assert [actor.ticks() - ticks < 3 for actor, ticks in zip(actors, before)] == [True, True]


def test_an_engine_that_polls_while_it_is_busy_uses_no_processor_time_when_idle(start: Callable[..., Actor]) -> None:
    actors = busy_pair(partial(start, environment={"MC_BUSY_POLL_US": "300000"}))
    time.sleep(1)
    before = [actor.ticks() for actor in actors]
    time.sleep(2)
    assert [actor.ticks() - ticks < 3 for actor, ticks in zip(actors, before)] == [True, True]


def test_an_engine_whose_peer_was_killed_uses_no_processor_time(start: Callable[..., Actor]) -> None:
    client, target = busy_pair(start)
    target.kill()
    before = client.ticks()
    time.sleep(1.5)
    assert client.ticks() - before < 3


def test_every_descriptor_is_closed_in_other_programs(start: Callable[..., Actor]) -> None:
    for actor in busy_pair(start):
        kept = {number for number, flags in actor.descriptors().items() if not flags & os.O_CLOEXEC}
        assert kept <= {0, 1, 2}
        assert len(actor.descriptors()) > 10


def test_all_signals_are_blocked_in_the_library_s_threads(start: Callable[..., Actor]) -> None:
    never = {signal.SIGKILL, signal.SIGSTOP}
    for actor in busy_pair(start):
        tasks = [task for task in Path(f"/proc/{actor.pid}/task").iterdir() if int(task.name) != actor.pid]
        assert len(tasks) >= 2
        for task in tasks:
            line = next(line for line in (task / "status").read_text().splitlines() if line.startswith("SigBlk:"))
            blocked = int(line.split()[1], 16)
            # 32 and 33 are the C library's own
            missing = [n for n in range(1, 65) if n not in (32, 33) and n not in never and not blocked >> (n - 1) & 1]
            assert missing == []


def test_closed_engines_leave_neither_threads_nor_descriptors(start: Callable[..., Actor]) -> None:
    actor = start(engine=False)
    before = actor.descriptors().keys()
    for _ in range(10):
        number = actor.open()
        other = actor.open()
        actor.ask("probe", actor.peer(actor.address, number), 9000)
        actor.ask("close", number)
        actor.ask("close", other)
    assert actor.descriptors().keys() == before
    deadline = time.monotonic() + 5
    while len(list(Path(f"/proc/{actor.pid}/task").iterdir())) > 1:
        assert time.monotonic() < deadline


@pytest.mark.parametrize("path", ["shm", "tcp"])
def test_peers_that_come_and_go_leave_nothing_behind(start: Callable[..., Actor], path: str) -> None:
    client, target = start(protocol=path), start(protocol=path)
    local, remote = client.alloc(SIZE), target.alloc(SIZE)

    def once() -> None:
        peer = client.peer(target.address)
        client.ask("write", peer, local, remote, SIZE, 9000)
        client.ask("peer_close", peer)

    def settle(actor: Actor, count: int) -> None:
        deadline = time.monotonic() + 5
        while len(actor.descriptors()) > count:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    once()
    settle(target, 12)
    counts = [len(actor.descriptors()) for actor in (client, target)]
    memory = [actor.resident() for actor in (client, target)]
    for _ in range(100):
        once()
    settle(client, counts[0])
    settle(target, counts[1])
    assert [actor.resident() - bytes < 4 << 20 for actor, bytes in zip((client, target), memory)] == [True, True]
