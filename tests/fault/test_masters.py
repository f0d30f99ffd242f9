"""A master that is killed and started again at its port, with and without its state."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
from cluster import EXISTS, INDETERMINATE, MB, NOT_FOUND, OK, TIMEOUT, UNAVAILABLE, UNREACHABLE, Cluster, wait_for

CLEAN = {OK, EXISTS, INDETERMINATE, TIMEOUT, UNAVAILABLE, UNREACHABLE}
KEYS = 50
WAYS = [("shm", True), ("shm", False), ("tcp", True)]


def fill(cluster: Cluster) -> None:
    writer = cluster.actor()
    for number in range(KEYS):
        assert writer.status("put", f"key-{number}", number, 1000 * number + 100) == OK
    assert writer.status("upsert", "key-1", 1001, 5000) == OK
    assert writer.status("remove", "key-2") == OK
    writer.ask("close")


def expected(number: int) -> int:
    return {1: 1001, 2: NOT_FOUND}.get(number, number)


@pytest.mark.parametrize(("transport", "state"), WAYS)
def test_keys_of_living_owners_come_back_with_their_values(
    make_cluster: Callable[..., Cluster], transport: str, state: bool
) -> None:
    cluster = make_cluster(transport)
    cluster.start_master(state=state)
    owners = [cluster.actor(8 * MB), cluster.actor(8 * MB)]
    fill(cluster)
    reader = cluster.actor()
    for number in range(KEYS):
        assert reader.version(f"key-{number}") == expected(number)
    assert cluster.master is not None
    for turn in range(2):
        cluster.master.kill()
        cluster.start_master()
        fresh = cluster.actor()
        for who in (reader, fresh, owners[0]):
            for number in range(KEYS):
                wanted = expected(number)
                assert who.version(f"key-{number}") == wanted
        assert fresh.status("put", f"new-{turn}", turn, 100_000) == OK
        assert reader.version(f"new-{turn}") == turn
        listed, read, gone = map(int, fresh.ask("all"))
        assert (listed, read, gone) == (KEYS - 1 + turn + 1, KEYS - 1 + turn + 1, 0)


@pytest.mark.parametrize(("transport", "state"), WAYS)
def test_writes_meanwhile_are_done_or_refused_and_reads_are_right(
    make_cluster: Callable[..., Cluster], transport: str, state: bool
) -> None:
    cluster = make_cluster(transport)
    cluster.start_master(state=state)
    for _ in range(2):
        cluster.actor(8 * MB)
    fill(cluster)
    writer, reader = cluster.actor(patience=1), cluster.actor(patience=1)
    outcomes: dict[int, int] = {}
    assert cluster.master is not None
    for number in range(30):
        if number == 5:
            cluster.master.kill()
        if number == 7:
            cluster.start_master()
        outcomes[number] = writer.status("put", f"meanwhile-{number}", number, 20_000)
        version = reader.version(f"key-{number}")
        assert version == expected(number) or version in CLEAN, version
    assert set(outcomes.values()) <= CLEAN
    assert outcomes[29] == OK
    for number, status in outcomes.items():
        version = reader.version(f"meanwhile-{number}")
        assert version == number or (status != OK and version == NOT_FOUND), (status, version)


def test_a_master_that_was_stopped_goes_on_where_it_was(cluster: Cluster) -> None:
    cluster.start_master()
    cluster.actor(8 * MB)
    fill(cluster)
    writer, reader = cluster.actor(patience=1), cluster.actor(patience=1)
    assert cluster.master is not None
    cluster.master.signal(signal.SIGSTOP)
    began = time.monotonic()
    assert writer.status("put", "meanwhile", 1, 1000) in CLEAN - {OK, EXISTS}
    assert reader.version("key-5") in {5, *CLEAN} - {OK}
    assert time.monotonic() - began < 5
    time.sleep(3)  # longer than the owner's time to live
    cluster.master.signal(signal.SIGCONT)
    wait_for(lambda: writer.status("put", f"after-{time.monotonic()}", 1, 1000) == OK, "puts are done", 10)
    for number in range(KEYS):
        assert reader.version(f"key-{number}") in (expected(number), NOT_FOUND)
    assert reader.version("meanwhile") in (1, NOT_FOUND)


def test_an_owner_that_dies_with_the_master_is_not_waited_for_for_ever(cluster: Cluster) -> None:
    cluster.start_master()
    owners = [cluster.actor(8 * MB), cluster.actor(8 * MB)]
    fill(cluster)
    assert cluster.master is not None
    cluster.master.kill()
    owners[0].kill()
    cluster.start_master()
    began = time.monotonic()
    fresh = cluster.bare_actor()
    wait_for(lambda: fresh.status("open", cluster.address, 0, "-", 10_000) >= 0, "the master serves", 10)
    found = [fresh.version(f"key-{number}") for number in range(KEYS)]
    for number, version in enumerate(found):
        assert version in (expected(number), NOT_FOUND)
    assert any(version >= 0 for version in found)
    assert fresh.status("put", "new", 1, 1000) == OK
    assert time.monotonic() - began < 15
