"""Deadlines of opening, with and without a master that answers."""

from __future__ import annotations

import socket
import statistics
import time

import pytest
from actor import ActorError
from cluster import MB, UNREACHABLE, Cluster, free_port


@pytest.mark.parametrize("silent", [False, True])
def test_a_store_without_a_master_is_refused_within_3_s(local_cluster: Cluster, silent: bool) -> None:
    """Nobody listens there, or somebody does who never says a word."""
    actor = local_cluster.bare_actor()
    with socket.socket() as listener:
        if silent:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
        port = listener.getsockname()[1] if silent else free_port()
        began = time.monotonic()
        with pytest.raises(ActorError) as caught:
            actor.ask("open", f"127.0.0.1:{port}", 0, "-", 10_000)
        assert time.monotonic() - began < 3.5
    assert caught.value.status == UNREACHABLE
    assert f"127.0.0.1:{port}" in caught.value.words


def test_a_store_with_a_segment_of_256_mib_is_open_at_once(local_cluster: Cluster) -> None:
    local_cluster.start_master()
    took = []
    for _ in range(20):
        actor = local_cluster.bare_actor()
        took.append(int(actor.ask("open", local_cluster.address, 256 * MB, "-", 10_000)[0]) / 1e6)
        actor.ask("close")
        actor.end()
    print(f"opening with a segment of 256 MiB: median {statistics.median(took):.1f} ms, {max(took):.1f} ms at most")
    assert statistics.median(took) < 300
