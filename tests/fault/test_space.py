"""Space: what is probed is evicted all the same, what dead writers held comes back, and one of many writers wins."""

from __future__ import annotations

import random
import time

from cluster import EXISTS, MB, NO_SPACE, NOT_FOUND, OK, Cluster, wait_for

SEED = 24


def test_probed_keys_make_room_for_a_put_within_a_second(cluster: Cluster) -> None:
    """A pool filled with keys that are asked for all the time, by exists and size: neither is a use or a hold."""
    cluster.start_master()
    cluster.actor(4 * MB)
    writer, prober = cluster.actor(), cluster.actor()
    count = 60  # half as much again as there is room for
    for number in range(count):
        assert writer.status("put", f"key-{number}", number, 100_000) == OK
    for number in range(count):
        assert prober.status("exists", f"key-{number}") in (0, 1)
        assert prober.status("size", f"key-{number}") in (100_000, NOT_FOUND)
    for number in range(10):
        prober.begin("exists", f"key-{number}")
        began = time.monotonic()
        assert writer.status("put", f"large-{number}", number, 600_000) == OK
        assert time.monotonic() - began < 1
        assert prober.outcome() in (0, 1)
        assert writer.version(f"large-{number}") == number


def test_of_32_processes_that_put_one_key_one_wins_and_all_read_its_value(cluster: Cluster) -> None:
    cluster.start_master()
    cluster.actor(16 * MB)
    writers = [cluster.actor() for _ in range(32)]
    for turn in range(3):
        for number, writer in enumerate(writers):
            writer.begin("put", f"key-{turn}", 1 + number, 10_000 + number)
        outcomes = [writer.outcome() for writer in writers]
        assert sorted(outcomes) == [EXISTS] * 31 + [OK]
        winner = 1 + outcomes.index(OK)
        for writer in writers:
            writer.begin("get", f"key-{turn}")
        for writer in writers:
            version, length = map(int, writer.finish())
            assert (version, length) == (winner, 10_000 + winner - 1)


def test_a_writer_that_is_killed_within_a_put_leaves_nothing(cluster: Cluster) -> None:
    """Killed at random points of puts of 1 MiB; what it had reserved comes back when it is proved gone."""
    chance = random.Random(SEED)
    cluster.start_master()
    owners = [cluster.actor(16 * MB), cluster.actor(16 * MB)]
    within = 0
    for turn in range(12):
        writer = cluster.actor(place=turn)
        writer.ask("load", "fresh", turn, 1, 0, 1, MB, 10_000)
        wait_for(lambda turn=turn: cluster.place(turn).good >= 2, "puts are done")
        time.sleep(chance.random() / 100)
        writer.stop()
        within += cluster.busy(writer)
        writer.kill()
    assert within >= 3
    last = cluster.actor()
    began = time.monotonic()
    for number in range(40):  # more than the pool has
        assert last.status("put", f"last-{number}", number, MB) == OK
    assert time.monotonic() - began < 20
    listed, read, gone = map(int, last.ask("all"))
    assert read > 0 and read + gone == listed
    assert last.status("removeall") >= 0
    last.ask("close")
    cluster.space_comes_back(owners)


def test_a_full_pool_without_anything_to_evict_says_so_in_time(cluster: Cluster) -> None:
    """A value larger than any owner's memory."""
    cluster.start_master()
    cluster.actor(1 * MB)
    writer = cluster.actor()
    began = time.monotonic()
    assert writer.status("put", "key", 1, 2 * MB, 1000) == NO_SPACE
    assert time.monotonic() - began < 2
    assert writer.status("put", "key", 2, 100_000) == OK
    assert writer.version("key") == 2
