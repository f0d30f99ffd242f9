"""A reader that is stopped in the middle of large reads while what it reads goes away and its space is used again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from actor import ActorError
from cluster import MB, NOT_FOUND, OK, Cluster, StoreActor

LARGE = 24 * MB
SEED = 20
WANTED = 2  # times that it was stopped within a read
TRIES = 200


def remove(writer: StoreActor, key: str) -> None:
    assert writer.status("remove", key) == OK


def overwrite(writer: StoreActor, key: str) -> None:
    assert writer.status("upsert", key, 1_000_000, LARGE) == OK
    assert writer.version(key) == 1_000_000


def evict(writer: StoreActor, key: str) -> None:
    del key  # what is put afterwards takes its space


def stopped_within(cluster: Cluster, reader: StoreActor, *command: object, chance: random.Random) -> list[str] | None:
    """Has it begin a command and stops it. None if that was within the command, else the answer."""
    calls = cluster.place(reader.number).calls
    reader.begin(*command)
    while not cluster.busy(reader) and cluster.place(reader.number).calls == calls:
        pass
    time.sleep(chance.random() / 300)
    reader.stop()
    if cluster.busy(reader):
        return None
    reader.go_on()
    return reader.finish(20)


@pytest.mark.parametrize("go_away", [remove, overwrite, evict])
@pytest.mark.parametrize("how", ["get", "getbatch"])
def test_a_reader_that_was_stopped_within_a_read_gets_the_old_bytes_or_an_error(
    cluster: Cluster, how: str, go_away: Callable[[StoreActor, str], None]
) -> None:
    chance = random.Random(SEED)
    cluster.start_master()
    cluster.actor(64 * MB)
    writer, reader = cluster.actor(), cluster.actor(place=0)
    within = got = 0
    for turn in range(TRIES):
        key = f"key-{within}-0"
        if turn == 0 or words is None:  # noqa: F821 - of the turn before
            assert writer.status("put", key, within, LARGE) == OK
        words = stopped_within(
            cluster, reader, how, *([f"key-{within}-", 1] if how == "getbatch" else [key]), chance=chance
        )
        if words is not None:
            assert int(words[0]) == within
            continue
        go_away(writer, key)
        for number in range(3):
            assert writer.status("put", f"next-{within}-{number}", number, LARGE) == OK
        reader.go_on()
        version = reader.outcome(20)
        assert version in (within, 1_000_000) or version < -1, version
        got += version >= 0
        within += 1
        if within == WANTED:
            break
    assert within == WANTED
    print(f"{how}, {go_away.__name__}: {got} of {within} reads got the value")
    for number in range(3):
        assert writer.status("put", f"last-{number}", number, LARGE) == OK
        assert reader.version(f"last-{number}") == number


@pytest.mark.parametrize("go_away", [remove, overwrite, evict])
def test_a_reader_that_was_stopped_with_a_view_finds_it_as_it_was(
    cluster: Cluster, go_away: Callable[[StoreActor, str], None]
) -> None:
    chance = random.Random(SEED)
    cluster.start_master()
    cluster.actor(96 * MB)
    writer, reader = cluster.actor(), cluster.actor(place=0)
    for turn in range(3):
        key = f"key-{turn}"
        assert writer.status("put", key, turn, LARGE) == OK
        words = stopped_within(cluster, reader, "view", key, chance=chance)
        if words is not None:
            reader.stop()
        go_away(writer, key)
        for number in range(4):
            assert writer.status("put", f"next-{turn}-{number}", number, LARGE) == OK
        reader.go_on()
        try:
            view, version, _ = words or reader.finish(20)
        except ActorError as error:
            assert words is None and error.status != -1
            continue
        assert int(version) in (turn, 1_000_000)
        assert reader.status("look", key, view) == int(version)
        assert reader.status("release", view) == OK


def test_a_view_outlives_whatever_happens_to_its_object(cluster: Cluster) -> None:
    """Removed, its space wanted, and at last the owner killed."""
    cluster.start_master()
    owner = cluster.actor(16 * MB)
    writer, reader = cluster.actor(patience=3), cluster.actor()
    assert writer.status("put", "key", 7, 5 * MB) == OK
    view, version, length = reader.ask("view", "key")
    assert (int(version), int(length)) == (7, 5 * MB)
    assert writer.status("remove", "key") == OK
    assert reader.version("key") == NOT_FOUND
    for number in range(20):
        assert writer.status("put", f"next-{number}", number, 2 * MB) == OK
        assert reader.status("look", "key", view) == 7
    owner.kill()
    assert reader.status("look", "key", view) == 7
    assert reader.status("release", view) == OK
