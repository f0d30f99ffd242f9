"""A reader that is stopped in the middle of large reads while what it reads goes away and its space is used again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest
from cluster import MB, NOT_FOUND, OK, Cluster, StoreActor

LARGE = 24 * MB
SEED = 20
WANTED = 3  # times that it was stopped within a read
TRIES = 60


def remove(writer: StoreActor, key: str) -> None:
    assert writer.status("remove", key) == OK


def overwrite(writer: StoreActor, key: str) -> None:
    assert writer.status("upsert", key, 1_000_000, LARGE) == OK
    assert writer.version(key) == 1_000_000


def evict(writer: StoreActor, key: str) -> None:
    del key  # what is put afterwards takes its space


@pytest.mark.parametrize("go_away", [remove, overwrite, evict])
@pytest.mark.parametrize("how", ["get", "getbatch", "view"])
def test_a_reader_that_was_stopped_within_a_read_gets_the_old_bytes_or_an_error(
    cluster: Cluster, how: str, go_away: Callable[[StoreActor, str], None]
) -> None:
    chance = random.Random(SEED)
    cluster.start_master()
    cluster.actor(64 * MB)
    writer, reader = cluster.actor(), cluster.actor(place=0)
    within = got = 0
    for turn in range(TRIES):
        key = f"key-{turn}-0"
        assert writer.status("put", key, turn, LARGE) == OK
        reader.begin(how, *([f"key-{turn}-", 1] if how == "getbatch" else [key]))
        while not cluster.busy(reader) and cluster.place(0).calls == turn:
            pass
        time.sleep(chance.random() / 100)
        reader.stop()
        hit = cluster.busy(reader)
        if hit:
            within += 1
            go_away(writer, key)
            for number in range(3):
                assert writer.status("put", f"next-{turn}-{number}", number, LARGE) == OK
        reader.go_on()
        try:
            words = reader.finish(20)
        except Exception as error:
            assert getattr(error, "status", -1) != -1, error
            words = []
        version = int(words[1 if how == "view" else 0]) if words else NOT_FOUND
        assert version in (turn, 1_000_000) or version < -1, f"turn {turn}: {words}"
        if how == "view" and words:
            assert reader.status("look", key, words[0]) == version
            assert reader.status("release", words[0]) == OK
        got += hit and version >= 0
        if within == WANTED:
            break
    assert within == WANTED
    print(f"{how}, {go_away.__name__}: {got} of {within} reads got the value")
    for number in range(4):
        assert writer.status("put", f"last-{number}", number, LARGE) == OK
        assert reader.version(f"last-{number}") == number


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
