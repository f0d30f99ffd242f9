"""What an engine counts is what happened, once, in both formats; the Prometheus text keeps to its grammar."""

from __future__ import annotations

import json
import re
from typing import Any, Callable, NamedTuple

import actor as status
import pytest
from actor import Actor, ActorError

Start = Callable[..., Actor]

SIZE = 1 << 12
LARGE = 1 << 20
TIMEOUT = 10_000
JSON, PROMETHEUS = 0, 1
BUCKETS = {125e-9 * 2**i for i in range(30)}

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\+Inf|-Inf|NaN|[-+0-9.e]+)")


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


class Family(NamedTuple):
    kind: str
    samples: list[Sample]


def labels_of(text: str | None) -> dict[str, str]:
    labels: dict[str, str] = {}
    while text:
        match = LABEL.match(text)
        assert match, text
        assert match[1] not in labels
        labels[match[1]] = re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape[1], escape[1]), match[2])
        text = text[match.end() :]
    return labels


def parse(text: str) -> dict[str, Family]:
    """The families of a text in version 0.0.4: each has one HELP, then one TYPE, then all its samples."""
    families: dict[str, Family] = {}
    helped = name = ""
    assert text.endswith("\n")
    for line in text[:-1].split("\n"):
        if match := re.fullmatch(rf"# HELP ({NAME}) (\S.*)", line):
            helped = match[1]
            assert helped not in families
        elif match := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line):
            name = match[1]
            assert name == helped
            families[name] = Family(match[2], [])
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            suffixes = ("_bucket", "_sum", "_count") if families[name].kind == "histogram" else ("",)
            assert match[1] in [name + suffix for suffix in suffixes], line
            sample = Sample(match[1], labels_of(match[2]), float(match[3]))
            assert all((sample.name, sample.labels) != other[:2] for other in families[name].samples), line
            families[name].samples.append(sample)
    for name, family in families.items():
        assert (family.kind == "counter") == name.endswith("_total")
        if family.kind == "histogram":
            check_histogram(name, family)
    return families


def check_histogram(name: str, family: Family) -> None:
    """Buckets rise, end with +Inf, and that one is the count."""
    series: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in family.samples:
        key = tuple(sorted((label, value) for label, value in sample.labels.items() if label != "le"))
        series.setdefault(key, []).append(sample)
    for samples in series.values():
        buckets = [sample for sample in samples if sample.name == f"{name}_bucket"]
        bounds = [float(sample.labels["le"]) for sample in buckets]
        values = [sample.value for sample in buckets]
        assert bounds == sorted(set(bounds))
        assert values == sorted(values)
        assert bounds[-1] == float("inf")
        assert all(any(abs(bound / known - 1) < 1e-6 for known in BUCKETS) for bound in bounds[:-1])
        (count,) = [sample.value for sample in samples if sample.name == f"{name}_count"]
        (total,) = [sample.value for sample in samples if sample.name == f"{name}_sum"]
        assert count == values[-1] > 0
        assert total > 0


class Metrics:
    """Both texts of an actor's engine, read when it is at rest."""

    def __init__(self, actor: Actor, engine: int = 0) -> None:
        self.json: dict[str, Any] = json.loads(bytes.fromhex(actor.ask("metrics", engine, JSON)[0]))
        self.families = parse(bytes.fromhex(actor.ask("metrics", engine, PROMETHEUS)[0]).decode())

    def value(self, name: str, **labels: str) -> float:
        """The one sample with these labels; 0 if there is none."""
        samples = self.families[f"mooncake_transfer_{name}"].samples
        found = [sample.value for sample in samples if labels.items() <= sample.labels.items()]
        assert len(found) <= 1
        return found[0] if found else 0

    def link(self, peer: str, transport: str) -> dict[str, Any]:
        (link,) = [link for link in self.json["links"] if (link["peer"], link["transport"]) == (peer, transport)]
        return link

    def latency(self, peer: str, transport: str, size: str) -> int:
        """How many requests were observed; the same in both texts."""
        latency = self.link(peer, transport)["latency"][size]
        name = "mooncake_transfer_latency_seconds"
        counts = [
            sample.value
            for sample in self.families[name].samples
            if sample.name == f"{name}_count" and sample.labels == {"peer": peer, "transport": transport, "size": size}
        ]
        assert [latency["count"]] == (counts or [0])
        assert sum(count for _, count in latency["buckets"]) == latency["count"]
        return latency["count"]


def transfer(actor: Actor, opcode: str, peer: int, local: int, remote: int, size: int, wanted: int = status.OK) -> None:
    try:
        actor.ask(opcode, peer, local, remote, size, TIMEOUT)
        got = status.OK
    except ActorError as error:
        got = error.status
    assert got == wanted


def seventy_and_thirty(actor: Actor, there: Actor) -> None:
    """70 requests that complete (40 reads, 20 small writes and 10 large ones) and 30 writes that fail."""
    local, remote = actor.alloc(LARGE), there.alloc(LARGE)
    closed = there.alloc(SIZE, access=status.READ_RIGHT)
    peer = actor.peer(there.address)
    for _ in range(40):
        transfer(actor, "read", peer, local, remote, SIZE)
    for _ in range(20):
        transfer(actor, "write", peer, local, remote, SIZE)
    for _ in range(10):
        transfer(actor, "write", peer, local, remote, LARGE)
    for _ in range(30):
        transfer(actor, "write", peer, local, closed, SIZE, status.ACCESS_DENIED)


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_seventy_completed_and_thirty_failed_requests_read_exactly_so(start: Start, transport: str) -> None:
    actor, there = start(protocol=transport if transport == "tcp" else "-"), start()
    seventy_and_thirty(actor, there)
    metrics = Metrics(actor)
    links = metrics.json["links"]
    assert sum(sum(link["requests"].values()) for link in links) == 100
    assert sum(link["completed"] for link in links) == 70
    assert sum(link["failed"] for link in links) == 30
    total = metrics.json["total"]
    assert total["requests"] == {"read": 40, "write": 60}
    assert (total["completed"], total["failed"]) == (70, 30)
    assert total["bytes"] == {"read": 40 * SIZE, "write": 20 * SIZE + 10 * LARGE}
    assert total["failures"] == {"MC_ERR_ACCESS_DENIED": 30}
    for link in links:
        where = {"peer": link["peer"], "transport": link["transport"]}
        assert link["peer"] == there.address
        for opcode in ("read", "write"):
            assert metrics.value("requests_total", **where, opcode=opcode) == link["requests"][opcode]
            assert metrics.value("bytes_total", **where, opcode=opcode) == link["bytes"][opcode]
        for code, count in link["failures"].items():
            assert metrics.value("failures_total", **where, status=code) == count
    link = metrics.link(there.address, transport)
    assert link["completed"] == 70
    assert metrics.latency(there.address, transport, "small") == 3 + 2  # of 40 and of 20, one in 16
    assert metrics.latency(there.address, transport, "large") == 10


def test_each_peer_and_each_engine_counts_its_own(start: Start) -> None:
    actor, one, other = start(), start(), start()
    local = actor.alloc(SIZE)
    for there, times in ((one, 3), (other, 5)):
        peer, remote = actor.peer(there.address), there.alloc(SIZE)
        for _ in range(times):
            transfer(actor, "write", peer, local, remote, SIZE)
        actor.ask("peer_close", peer)
    metrics = Metrics(actor)
    assert metrics.link(one.address, "shm")["completed"] == 3
    assert metrics.link(other.address, "shm")["completed"] == 5
    assert metrics.value("requests_total", peer=other.address, transport="shm", opcode="write") == 5
    assert metrics.json["open_peers"] == metrics.value("open_peers") == 0
    assert Metrics(one).json["links"] == []


def test_requests_of_a_batch_are_counted_one_by_one(start: Start) -> None:
    actor, there = start(protocol="tcp"), start()
    local, remote, peer = actor.alloc(LARGE), there.alloc(LARGE), actor.peer(there.address)
    for _ in range(4):
        batch = actor.ask("submit", 0, "write", peer, local, remote, SIZE, 100)[0]
        actor.ask("wait", batch, TIMEOUT)
        actor.ask("batch_free", batch)
    metrics = Metrics(actor)
    requests = metrics.link(there.address, "tcp")["requests"]["write"]
    assert requests == metrics.json["total"]["completed"] > 0
    assert metrics.latency(there.address, "tcp", "small") == -(-requests // 16)
    assert metrics.json["batches_in_flight"] == metrics.value("batches_in_flight") == 0


def test_regions_sessions_notifications_and_connections_are_counted(start: Start) -> None:
    there, actor = start(), start(protocol="tcp")
    actor.alloc(SIZE)
    actor.alloc(LARGE)
    peer = actor.peer(there.address)
    for _ in range(3):
        actor.ask("notify", peer, "00", "01", TIMEOUT)
    mine, theirs = Metrics(actor), Metrics(there)
    assert mine.json["regions"] == {"count": 2, "bytes": SIZE + LARGE}
    assert mine.value("registered_regions") == 2
    assert mine.value("registered_bytes") == SIZE + LARGE
    assert mine.json["open_peers"] == mine.value("open_peers") == 1
    assert mine.value("notifications_sent_total", peer=there.address) == 3
    assert mine.value("connects_total", peer=there.address) >= 1
    assert mine.value("losses_total", peer=there.address) == 0
    assert theirs.json["notifications"] == {"received": 3, "overflowed": 0}
    assert theirs.value("sessions_accepted_total") == theirs.json["sessions"]["accepted"] >= 1
    assert theirs.value("sessions_refused_total") == 0
    there.end()
    with pytest.raises(ActorError):
        actor.ask("notify", peer, "00", "01", TIMEOUT)
    mine = Metrics(actor)
    assert mine.value("notifications_unsent_total", peer=there.address) == 1
    assert mine.value("losses_total", peer=there.address) >= 1


def test_what_overflows_a_queue_is_counted(start: Start) -> None:
    there, actor = start(environment={"MC_NOTIFICATIONS": "2"}), start()
    peer = actor.peer(there.address)
    for _ in range(2):
        actor.ask("notify", peer, "00", "01", TIMEOUT)
    for _ in range(3):
        with pytest.raises(ActorError):
            actor.ask("notify", peer, "00", "01", TIMEOUT)
    assert Metrics(there).json["notifications"] == {"received": 2, "overflowed": 3}
    assert Metrics(there).value("notifications_overflowed_total") == 3
    (row,) = Metrics(actor).json["peers"]
    assert (row["notified"], row["unnotified"]) == (2, 3)


def test_strangers_are_counted(start: Start, tmp_path: Any) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef")
    there, actor = start(key_file=key), start()
    with pytest.raises(ActorError):
        actor.peer(there.address)
    assert Metrics(there).value("sessions_refused_total") >= 1
    assert Metrics(actor).json["peers"] == []


def test_a_text_may_be_read_while_transfers_go_on(start: Start) -> None:
    actor, there = start(), start()
    local, remote = actor.alloc(SIZE), there.alloc(SIZE)
    peer = actor.peer(there.address)
    storm = actor.ask("storm", "write", peer, local, remote, SIZE, TIMEOUT)[0]
    seen = 0
    for _ in range(30):
        completed = Metrics(actor).json["total"]["completed"]
        assert completed >= seen
        seen = completed
    actor.ask("calm", storm)
    assert seen > 0


def test_other_formats_are_refused(start: Start) -> None:
    actor = start()
    with pytest.raises(ActorError) as caught:
        actor.ask("metrics", 0, 2)
    assert caught.value.status == status.INVALID_ARGUMENT
