"""A cluster under load whose processes are killed and stopped at random: every byte that is read is checked.

Owners, writers and readers are processes of their own; the pool is smaller than what is written, so that objects are
evicted all the time. MOONCAKE_SOAK_SECONDS and MOONCAKE_SOAK_SEED make it longer and other.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from cluster import MB, OK, Cluster, Service, StoreActor

SECONDS = float(os.environ.get("MOONCAKE_SOAK_SECONDS", "15"))
SEED = int(os.environ.get("MOONCAKE_SOAK_SEED", "1"))
SUBJECTS = 240
LONGEST = 256 * 1024
WRITERS, READERS = 3, 3
PATIENCE = 1.5  # of each call
GOES_ON = 12.0  # seconds after a fault's end, for each process


class Load:
    """Writers at places 0 …, readers behind them, and what is done to all of them."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.chance = random.Random(seed)
        self.began = time.monotonic()
        self.deeds: list[str] = []
        self.excused: dict[int, float] = {}  # until when a place's call may take longer: it was stopped
        cluster.start_master()
        self.owners = [self.owner(number) for number in range(2)]
        self.loads = [self.load(place) for place in range(WRITERS + READERS)]

    def owner(self, number: int) -> StoreActor:
        return self.cluster.actor(3 * MB, name=f"owner-{number}")

    def load(self, place: int) -> StoreActor:
        actor = self.cluster.actor(place=place, patience=PATIENCE)
        kind, part = ("write", place) if place < WRITERS else ("read", 0)
        seed = self.chance.randrange(1 << 32)
        actor.ask("load", kind, seed, SUBJECTS, part, WRITERS, LONGEST, int(PATIENCE * 1000))
        return actor

    def say(self, words: str) -> None:
        self.deeds.append(f"{time.monotonic() - self.began:6.2f} s: {words}")

    # Looking.

    def look(self) -> None:
        """No call takes longer than it may, nothing wrong was read, and nobody has ended."""
        now = time.monotonic()
        for place, actor in enumerate(self.loads):
            state = self.cluster.place(place)
            assert state.wrong == 0, f"wrong bytes: {state}"
            assert state.stale == 0, f"what had been replaced was read: {state}"
            excused = now < self.excused.get(place, 0)
            assert excused or state.began == 0 or now - state.began / 1e9 < PATIENCE + 4, (
                f"place {place} hangs: {state}"
            )
            assert actor.process.poll() is None, f"place {place} has ended"

    def pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
            self.look()

    def done(self, place: int) -> int:
        state = self.cluster.place(place)
        return state.good if place < WRITERS else state.good + state.missing

    def goes_on(self) -> None:
        """Every process gets something done."""
        before = [self.done(place) for place in range(len(self.loads))]
        began = time.monotonic()
        while waiting := [place for place, done in enumerate(before) if self.done(place) <= done + 2]:
            assert time.monotonic() - began < GOES_ON, f"no progress: {[str(self.cluster.place(p)) for p in waiting]}"
            self.pause(0.05)
        took = time.monotonic() - began
        if took > 1:
            self.say(f"all have gone on after {took:.1f} s")

    # Doing.

    def stopped(self, who: StoreActor | Service, seconds: float) -> None:
        who.signal(signal.SIGSTOP)
        self.pause(seconds)
        who.signal(signal.SIGCONT)

    def kill_owner(self) -> None:
        number = self.chance.randrange(2)
        self.owners[number].kill()
        pause = self.chance.uniform(0, 1)
        self.say(f"owner {number} killed, for {pause:.2f} s")
        self.pause(pause)
        self.owners[number] = self.owner(number)

    def stop_owner(self) -> None:
        number, seconds = self.chance.randrange(2), self.chance.choice([0.3, 1.0, 3.5])
        self.say(f"owner {number} stopped for {seconds} s")
        self.stopped(self.owners[number], seconds)

    def kill_master(self) -> None:
        assert self.cluster.master is not None
        self.cluster.master.kill()
        pause = self.chance.uniform(0, 1)
        self.say(f"master killed, for {pause:.2f} s")
        self.pause(pause)
        self.cluster.start_master()

    def stop_master(self) -> None:
        assert self.cluster.master is not None
        seconds = self.chance.choice([0.2, 1.5])
        self.say(f"master stopped for {seconds} s")
        self.stopped(self.cluster.master, seconds)

    def kill_load(self) -> None:
        place = self.chance.randrange(len(self.loads))
        self.say(f"load {place} killed")
        self.loads[place].kill()
        self.loads[place] = self.load(place)

    def stop_load(self) -> None:
        place, seconds = self.chance.randrange(len(self.loads)), self.chance.uniform(0.1, 2)
        self.say(f"load {place} stopped for {seconds:.2f} s")
        self.excused[place] = time.monotonic() + seconds + PATIENCE + 4
        self.stopped(self.loads[place], seconds)

    def act(self) -> None:
        deed: Callable[[], Any] = self.chance.choice(
            [
                self.kill_owner,
                self.stop_owner,
                self.kill_master,
                self.stop_master,
                self.kill_load,
                self.kill_load,
                self.stop_load,
                self.stop_load,
            ]
        )
        deed()
        self.goes_on()
        self.pause(self.chance.uniform(0, 0.3))

    # The end.

    def finish(self) -> None:
        for actor in self.loads:
            actor.begin("rest")
        for actor in self.loads:
            actor.finish(PATIENCE + 10)
        self.look()
        writer, reader = self.loads[0], self.loads[-1]
        assert writer.status("put", "fresh", 77, 100_000) == OK
        assert reader.version("fresh") == 77
        listed, read, gone = map(int, reader.ask("all"))
        self.say(f"{listed} keys are listed, {read} are read, {gone} have gone")
        assert read > 0
        for actor in self.loads:
            actor.ask("close")
        sweeper = self.cluster.actor()  # what was put with unknown outcome may have come until now
        assert sweeper.status("removeall") >= 0
        assert [int(word) for word in sweeper.ask("all")] == [0, 0, 0]
        sweeper.ask("close")
        took = self.cluster.space_comes_back(self.owners)
        self.say(f"all space has come back after {took:.1f} s")


@pytest.mark.parametrize("seed", [SEED])
def test_whatever_is_killed_and_stopped_no_wrong_byte_is_read_and_all_go_on(cluster: Cluster, seed: int) -> None:
    load = Load(cluster, seed)
    try:
        load.goes_on()
        while time.monotonic() - load.began < SECONDS:
            load.act()
        load.finish()
    finally:
        print(f"seed {seed}", *load.deeds, sep="\n")
        for place in range(len(load.loads)):
            print(f"place {place}: {cluster.place(place)}")
