"""Owners that are killed, stopped, started again, or have no address."""

from __future__ import annotations

import time

from cluster import MB, NOT_FOUND, Cluster, free_port, wait_for


def test_a_killed_owner_s_keys_are_not_found_within_its_time_to_live_and_its_successor_serves(
    cluster: Cluster,
) -> None:
    """Under the same name and port: nothing of the old owner is taken for the new one's."""
    cluster.start_master()
    port = free_port()
    owner = cluster.start_client("4MB", "--name=one", port=port)
    writer, reader = cluster.actor(), cluster.actor()
    for number in range(8):
        assert writer.status("put", f"old-{number}", number, 100_000) == 0
        assert reader.version(f"old-{number}") == number
    owner.kill()
    killed = time.monotonic()
    cluster.start_client("4MB", "--name=one", port=port)
    for number in range(8):
        wait_for(lambda number=number: reader.version(f"old-{number}") == NOT_FOUND, "old keys are gone", 5)
    assert time.monotonic() - killed < 5
    for number in range(8):
        assert writer.status("put", f"new-{number}", 10 + number, 100_000) == 0
        assert reader.version(f"new-{number}") == 10 + number
        assert writer.version(f"old-{number}") == NOT_FOUND


def test_an_owner_on_all_addresses_must_say_how_it_is_reached(local_cluster: Cluster) -> None:
    local_cluster.start_master()
    for flags in (("--host=0.0.0.0",), ("--advertise=0.0.0.0",)):
        client = local_cluster.service(
            "mooncake_client", f"--master_server_address={local_cluster.address}", "--port=0", *flags
        )
        assert client.process.wait(20) in (1, 2)
        words = client.log.read_text()
        assert "0.0.0.0" in words and "advertise" in words, words


def test_a_stopped_owner_is_expelled_and_serves_again_under_a_new_segment_when_it_goes_on(cluster: Cluster) -> None:
    cluster.start_master()
    owner = cluster.actor(4 * MB, name="sleeper")
    writer, reader = cluster.actor(patience=5), cluster.actor(patience=5)
    for number in range(4):
        assert writer.status("put", f"old-{number}", number, 50_000) == 0
        assert reader.version(f"old-{number}") == number
    owner.stop()
    wait_for(lambda: writer.status("exists", "old-0") == 0, "the owner is expelled", 10)
    owner.go_on()
    wait_for(lambda: writer.status("put", f"new-{time.monotonic()}", 1, 50_000) == 0, "it serves again", 10)
    for number in range(4):
        assert reader.version(f"old-{number}") == NOT_FOUND
        assert writer.version(f"old-{number}") == NOT_FOUND
        assert writer.status("put", f"old-{number}", 10 + number, 50_000) == 0
        assert reader.version(f"old-{number}") == 10 + number
    assert writer.status("removeall") >= 4
    writer.ask("close")
    reader.ask("close")
    cluster.space_comes_back([owner])


def test_while_one_owner_is_stopped_puts_go_to_another(cluster: Cluster) -> None:
    cluster.start_master()
    owners = [cluster.actor(16 * MB), cluster.actor(16 * MB)]
    writer = cluster.actor(patience=20)
    for number in range(20):
        assert writer.status("put", f"old-{number}", number, 100_000) == 0
    owners[0].stop()
    began = time.monotonic()
    for number in range(40):
        assert writer.status("put", f"new-{number}", number, 100_000 + 3000 * number) == 0
    assert time.monotonic() - began < 10


def test_a_get_from_a_stopped_owner_ends_when_that_is_expelled(cluster: Cluster) -> None:
    """Also where the reader has never reached that owner."""
    cluster.start_master()
    owner = cluster.actor(4 * MB)
    writer, reader = cluster.actor(), cluster.actor(patience=20)
    assert writer.status("put", "key", 1, 1000) == 0
    owner.stop()
    began = time.monotonic()
    assert reader.version("key") == NOT_FOUND
    assert time.monotonic() - began < 10
