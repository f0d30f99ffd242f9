"""Network namespaces of their own: the same address twice on one host, no IPv4, links that lose everything."""

from __future__ import annotations

import time
from typing import Callable

import actor as status
import pytest
from actor import Actor, ActorError
from network import Network, ip, within

SIZE = 3 << 20


def exchange(client: Actor, target: Actor, peer: int, local: int, remote: int, seed: int) -> None:
    """Bytes there and back again."""
    client.fill(local, SIZE, seed)
    client.ask("write", peer, local, remote, SIZE, 9000)
    assert target.differing(remote, SIZE, seed) == 0
    client.fill(local, SIZE, 0)
    client.ask("read", peer, local, remote, SIZE, 9000)
    assert client.differing(local, SIZE, seed) == 0


# Fault 7.
def test_two_namespaces_with_the_same_address_are_told_apart_and_never_mapped_as_one_host(
    start: Callable[..., Actor], network: Network
) -> None:
    """Each has fe80::1 and the same port; for the client they differ by the interface only."""
    middle, port = network.add(), 7000
    ends = []
    for interface in ("to-a", "to-b"):
        end = network.add()
        network.link(middle, interface, end)
        network.address(middle, interface, "fe80::2/64")
        network.address(end, "up0", "fe80::1/64")
        ends.append((interface, start(inside=within(end), listen=f"[fe80::1%up0]:{port}")))
    client = start(inside=within(middle), listen="[::1]:0")
    local = client.alloc(SIZE)
    for seed, (interface, target) in enumerate(ends):
        remote = target.alloc(SIZE)
        peer = client.peer(f"[fe80::1%{interface}]:{port}")
        paths = client.explain(peer)
        assert not paths["shm"]["usable"]
        assert "namespace" in paths["shm"]["reason"]
        exchange(client, target, peer, local, remote, 10 + seed)


# Fault 7.
def test_two_namespaces_with_the_same_ipv4_address_reach_their_own_engines(
    start: Callable[..., Actor], network: Network
) -> None:
    for seed in range(2):
        name = network.add()
        target = start(inside=within(name), listen="127.0.0.1:7000")
        client = start(inside=within(name))
        local, remote = client.alloc(SIZE), target.alloc(SIZE)
        peer = client.peer("127.0.0.1:7000")
        assert client.path(peer) == "shm"
        exchange(client, target, peer, local, remote, seed)
        # the neighbour goes on listening at the same address


def test_engines_in_two_namespaces_of_one_host_talk_by_tcp(start: Callable[..., Actor], network: Network) -> None:
    one, other = network.add(), network.add()
    network.link(one, "eth0", other, "eth0")
    network.address(one, "eth0", "10.77.0.1/24")
    network.address(other, "eth0", "10.77.0.2/24")
    client = start(inside=within(one), listen="10.77.0.1:0")
    target = start(inside=within(other), listen="10.77.0.2:0")
    local, remote = client.alloc(SIZE), target.alloc(SIZE)
    peer = client.peer(target.address)
    assert client.path(peer) == "tcp"
    exchange(client, target, peer, local, remote, 1)
    client.ask("notify", peer, "00", "00", 9000)
    assert bytes.fromhex(target.ask("receive", 0, 9000)[0]).decode() == client.address
    only_mapped = start(inside=within(one), protocol="shm")
    mine = only_mapped.alloc(SIZE)
    with pytest.raises(ActorError) as caught:
        only_mapped.ask("write", only_mapped.peer(target.address), mine, remote, SIZE, 9000)
    assert caught.value.status == status.NOT_SUPPORTED


# Fault 8.
@pytest.mark.parametrize("path", ["shm", "tcp"])
@pytest.mark.parametrize("host", ["[::1]", "[fe80::1%lo]", "[fd00::7]", "[0:0:0:0:0:0:0:1]"])
def test_a_host_without_ipv4_is_served_end_to_end(
    start: Callable[..., Actor], network: Network, host: str, path: str
) -> None:
    name = network.add()
    ip("-n", name, "address", "delete", "127.0.0.1/8", "dev", "lo")
    network.address(name, "lo", "fe80::1/64")
    network.address(name, "lo", "fd00::7/128")
    target = start(inside=within(name), listen=f"{host}:0", protocol=path)
    client = start(inside=within(name), listen=f"{host}:0", protocol=path)
    local, remote = client.alloc(SIZE), target.alloc(SIZE)
    peer = client.peer(target.address)
    assert client.path(peer) == path
    exchange(client, target, peer, local, remote, 1)
    client.ask("notify", peer, "01", "02", 9000)
    sender = bytes.fromhex(target.ask("receive", 0, 9000)[0]).decode()
    assert sender == client.address
    back = target.peer(sender)
    exchange(target, client, back, remote, local, 2)


def test_without_ipv4_the_default_address_is_refused_with_words(start: Callable[..., Actor], network: Network) -> None:
    name = network.add()
    ip("-n", name, "address", "delete", "127.0.0.1/8", "dev", "lo")
    with pytest.raises(ActorError) as caught:
        start(inside=within(name))
    assert caught.value.status == status.SYSTEM
    assert "127.0.0.1" in caught.value.words
    start(inside=within(name), listen="[::1]:0")


def test_a_network_that_loses_everything_is_unreachable_at_the_connect_timeout(
    start: Callable[..., Actor], network: Network
) -> None:
    one, other = network.add(), network.add()
    network.link(one, "eth0", other, "eth0")
    network.address(one, "eth0", "10.77.0.1/24")
    ip("-n", one, "neighbour", "add", "10.77.0.2", "lladdr", "02:00:00:00:00:01", "dev", "eth0")
    client = start(inside=within(one), connect_ms=400)
    begun = time.monotonic()
    with pytest.raises(ActorError) as caught:
        client.peer("10.77.0.2:7000")
    assert caught.value.status == status.UNREACHABLE
    assert "10.77.0.2:7000" in caught.value.words
    assert 0.4 <= time.monotonic() - begun < 2


def test_a_link_that_goes_down_ends_a_transfer_at_its_deadline_and_it_goes_on_when_the_link_is_back(
    start: Callable[..., Actor], network: Network
) -> None:
    one, other = network.add(), network.add()
    network.link(one, "eth0", other, "eth0")
    network.address(one, "eth0", "10.77.0.1/24")
    network.address(other, "eth0", "10.77.0.2/24")
    client = start(inside=within(one), listen="10.77.0.1:0")
    target = start(inside=within(other), listen="10.77.0.2:0")
    local, remote = client.alloc(SIZE), target.alloc(SIZE)
    peer = client.peer(target.address)
    number = client.ask("storm", "write", peer, local, remote, SIZE, 500)[0]
    ip("-n", other, "link", "set", "eth0", "down")
    down = time.monotonic()
    _, when, outcome, words = client.ended(number)
    assert outcome == status.TIMEOUT, words
    assert when - down < 1
    ip("-n", other, "link", "set", "eth0", "up")
    fresh = target.alloc(SIZE)  # the writes that timed out may still arrive at the old place
    exchange(client, target, peer, local, fresh, 3)
