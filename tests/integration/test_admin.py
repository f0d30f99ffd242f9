"""The administration of mooncake_master over HTTP: health, metrics, segments, keys; its token, and its bounds."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from program import PATIENCE, Program, Store

TOKEN = "0123456789abcdef"
SMALL = "--global_segment_size=1MB"
CONNECTIONS = 64  # as programs/web.c has it …
SILENCE = 15.0  # … with the seconds that a connection may say nothing


class Answer:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self.body = answer.read()

    @property
    def json(self) -> dict:
        return json.loads(self.body)

    @property
    def lines(self) -> list[str]:
        return self.body.decode().splitlines()


class Master:
    """A master with its administration, both at free ports."""

    def __init__(self, begin: Callable[..., Program], *flags: str, environment: dict[str, str] | None = None) -> None:
        self.program = begin("mooncake_master", "--port=0", "--metrics_port=0", *flags, environment=environment)
        line = self.program.line("stderr")
        found = re.fullmatch(r"mooncake_master: HTTP at (\S+):(\d+)", line)
        assert found, line
        self.host, self.port = found[1], int(found[2])

    def ask(
        self, path: str, method: str = "GET", headers: dict[str, str] | None = None, patience: float = PATIENCE
    ) -> Answer:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=patience)
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers or {})
            return Answer(connection.getresponse())

    def metrics(self) -> dict[str, float]:
        answer = self.ask("/metrics")
        assert answer.status == 200
        lines = [line.rpartition(" ") for line in answer.lines if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), PATIENCE)


@pytest.fixture
def master(begin: Callable[..., Program]) -> Master:
    master = Master(begin)
    master.address = master.program.address()  # type: ignore[attr-defined]
    return master


@pytest.fixture
def store(begin: Callable[..., Program], master: Master, library: Path) -> Iterator[Store]:
    """One over a megabyte of an owner named "one"."""
    address = master.address  # type: ignore[attr-defined]
    begin("mooncake_client", "--port=0", "--name=one", f"--master_server_address={address}", SMALL).address()
    store = Store(library, address)
    yield store
    store.close()


def quoted(key: bytes) -> str:
    return urllib.parse.quote(key, safe="")


# ---- Health


def test_a_master_that_serves_is_healthy(master: Master) -> None:
    answer = master.ask("/health")
    assert answer.status == 200
    assert answer.json["status"] == "ok"
    assert answer.json["ready"] is True


def test_a_master_that_waits_for_its_owners_is_not_healthy_and_then_is(
    begin: Callable[..., Program], tmp_path: Path
) -> None:
    state = tmp_path / "state"
    first = Master(begin, f"--state_file={state}")
    owner = begin("mooncake_client", "--port=0", f"--master_server_address={first.program.address()}", SMALL)
    owner.address()
    first.program.kill()
    owner.kill()
    again = Master(begin, f"--state_file={state}")  # its owner doesn't come back: it waits 3 s
    answer = again.ask("/health")
    assert answer.status == 503
    assert answer.json["ready"] is False
    for path in ("/get_all_keys", "/get_all_segments", "/query_key?key=a", "/batch_query_keys?keys=a"):
        refused = again.ask(path)
        assert refused.status == 503, path
        assert (refused.json["success"], refused.json["error_code"]) == (False, -1011)
    assert again.metrics()["mooncake_master_serves"] == 0
    again.program.address()
    assert again.ask("/health").status == 200
    assert again.metrics()["mooncake_master_serves"] == 1


def test_a_master_that_ends_is_not_healthy(begin: Callable[..., Program], master: Master, library: Path) -> None:
    """It drains: a remove waits for an owner that doesn't answer."""
    address = master.address  # type: ignore[attr-defined]
    owner = begin("mooncake_client", "--port=0", f"--master_server_address={address}", SMALL)
    owner.address()
    store = Store(library, address)
    store.put(b"key", b"value")
    assert store.get(b"key") == b"value"
    os.kill(owner.process.pid, signal.SIGSTOP)
    thread = threading.Thread(target=remove_quietly, args=(store,))
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while master.metrics()["mooncake_master_waiting_requests"] == 0:
        assert time.monotonic() < deadline
    master.program.process.send_signal(signal.SIGTERM)
    assert "in progress" in master.program.line("stderr")
    assert master.ask("/health").status == 503
    master.program.process.send_signal(signal.SIGTERM)
    owner.kill()
    thread.join(PATIENCE)
    store.close()


def remove_quietly(store: Store) -> None:
    with contextlib.suppress(Exception):
        store.remove(b"key")


# ---- Metrics


def test_metrics_count_what_clients_do(master: Master, store: Store) -> None:
    before = master.metrics()
    for number in range(5):
        store.put(b"key %d" % number, b"x" * 10_000)
    assert store.has(b"key 1")
    assert not store.has(b"nothing")
    store.remove(b"key 4")
    after = master.metrics()
    grown = {name: after[name] - before[name] for name in after}
    assert after["master_key_count"] == 4
    assert after["master_total_capacity_bytes"] == 1 << 20
    assert after['segment_total_capacity_bytes{segment="one"}'] == 1 << 20
    assert 40_000 < after['segment_allocated_bytes{segment="one"}'] <= 1 << 20
    assert after["master_allocated_bytes"] == after['segment_allocated_bytes{segment="one"}']
    assert grown["mooncake_master_keys_put_total"] == 5
    assert grown["mooncake_master_keys_removed_total"] == 1
    assert grown["master_batch_put_end_requests_total"] == 5
    assert grown["master_batch_remove_requests_total"] == 1
    assert grown["mooncake_master_keys_probed_total"] >= grown["mooncake_master_keys_present_total"]


def test_metrics_are_in_prometheus_format_with_help_and_type_for_each_name(master: Master, store: Store) -> None:
    answer = master.ask("/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    known: set[str] = set()
    series: set[str] = set()
    for line in answer.lines:
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in known
            known.add(name)
        elif line.startswith("# TYPE "):
            kind = line.split(" ")[3]
            assert kind == ("counter" if line.split(" ")[2].endswith("_total") else "gauge")
        else:
            match = re.fullmatch(r'([a-z_]+)(\{\w+="(?:[^"\\]|\\.)*"(?:,\w+="[^"]*")*\})? \d+', line)
            assert match, line
            assert match[1] in known
            assert line.rpartition(" ")[0] not in series
            series.add(line.rpartition(" ")[0])


def test_segments_of_one_name_are_series_of_their_own(begin: Callable[..., Program], master: Master) -> None:
    address = master.address  # type: ignore[attr-defined]
    for _ in range(2):
        begin("mooncake_client", "--port=0", '--name=a "b\\', f"--master_server_address={address}", SMALL).address()
    names = [name for name in master.metrics() if name.startswith("segment_total_capacity_bytes")]
    assert len(names) == 2
    assert all(name.startswith('segment_total_capacity_bytes{segment="a \\"b\\\\",id="') for name in names)


def test_the_summary_is_for_people(master: Master, store: Store) -> None:
    store.put(b"key", b"value")
    answer = master.ask("/metrics/summary")
    assert answer.status == 200
    assert "Keys: 1; put 1" in answer.body.decode()
    assert "in 1 segments" in answer.body.decode()


# ---- Segments


def test_segments_are_listed_by_name_and_described(master: Master, store: Store) -> None:
    assert master.ask("/get_all_segments").lines == ["one"]
    assert master.ask("/query_segment?segment=one").lines[0] == "one"
    used, capacity = master.ask("/query_segment?segment=o%6Ee").lines[1:]
    assert int(used.removeprefix("Used(bytes): ")) > 0
    assert capacity == f"Capacity(bytes): {1 << 20}"
    detail = master.ask("/get_segments_detail").json
    assert detail["total_segments"] == 1
    assert detail["segments"][0]["segment_name"] == "one"
    assert detail["segments"][0]["allocator_capacity_bytes"] == 1 << 20
    missing = master.ask("/query_segment?segment=two")
    assert (missing.status, missing.json["error_code"]) == (404, -101)


def test_a_segment_that_drains_is_shown_as_such(master: Master, store: Store) -> None:
    def states() -> dict[str, str]:
        segments = master.ask("/get_segments_detail").json["segments"]
        return {segment["segment_name"]: segment["status"] for segment in segments}

    more = store.mount(1 << 20, "two")
    assert states() == {"one": "MOUNTED", "two": "MOUNTED"}
    store.unmount(more, grace=600)
    deadline = time.monotonic() + PATIENCE
    while states()["two"] == "MOUNTED":
        assert time.monotonic() < deadline
    assert states() == {"one": "MOUNTED", "two": "GRACEFULLY_UNMOUNTING"}
    store.unmount(more)
    assert states() == {"one": "MOUNTED"}


# ---- Keys


def test_a_key_s_replicas_are_told(master: Master, store: Store) -> None:
    store.put(b"a/b+c %\xff\x00", b"x" * 1000)
    answer = master.ask(f"/query_key?key={quoted(b'a/b+c %') + '%FF%00'}")
    assert answer.status == 200
    (replica,) = answer.json["data"]
    assert replica["size_"] == 1000
    assert replica["segment"] == "one"
    assert re.fullmatch(r"127\.0\.0\.1:\d+", replica["transport_endpoint_"])
    missing = master.ask("/query_key?key=a")
    assert (missing.status, missing.json["error_code"]) == (404, -704)


def test_a_batch_of_keys_is_told_key_by_key(master: Master, store: Store) -> None:
    store.put(b"one", b"x" * 10)
    store.put(b"with,comma", b"x" * 20)
    data = master.ask("/batch_query_keys?keys=one,missing,with%2Ccomma").json["data"]
    assert list(data) == ["one", "missing", "with,comma"]
    assert data["one"]["values"][0]["size_"] == 10
    assert data["missing"] == {"ok": False, "error": "OBJECT_NOT_FOUND"}
    assert data["with,comma"]["values"][0]["size_"] == 20


def test_a_question_about_a_key_is_no_use_of_it(master: Master, store: Store) -> None:
    store.put(b"key", b"value")
    before = master.metrics()
    master.ask("/query_key?key=key")
    master.ask("/get_all_keys")
    after = master.metrics()
    uses = [name for name in after if "looked_up" in name or "probed" in name or "read" in name]
    assert len(uses) == 3
    assert [after[name] for name in uses] == [before[name] for name in uses]


def test_the_listing_without_a_limit_is_whole_and_with_one_it_is_paged(master: Master, store: Store) -> None:
    keys = {b"key %d" % number for number in range(2500)} | {b"a\nb", b"100%"}
    for key in keys:
        store.put(key, b"")
    whole = master.ask("/get_all_keys")
    assert len(whole.lines) == len(keys)
    assert {urllib.parse.unquote_to_bytes(line) for line in whole.lines} == keys
    assert "a%0Ab" in whole.lines
    assert "100%25" in whole.lines
    pages: list[str] = []
    cursor, count = "0", 0
    while True:
        page = master.ask(f"/get_all_keys?limit=100&cursor={cursor}")
        assert page.status == 200
        pages += page.lines
        count += 1
        if page.headers["X-Next-Cursor"] is None:
            break
        cursor = page.headers["X-Next-Cursor"]
    assert count > 10
    assert sorted(pages) == sorted(whole.lines)


# ---- Writes


def with_token(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("source", ["file", "environment"])
def test_all_keys_are_removed_for_whoever_shows_the_token(
    begin: Callable[..., Program], library: Path, tmp_path: Path, source: str
) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    flags = [f"--admin_token_file={path}"] if source == "file" else []
    environment = {"MOONCAKE_ADMIN_TOKEN": TOKEN} if source == "environment" else {}
    master = Master(begin, *flags, environment=environment)
    address = master.program.address()
    begin("mooncake_client", "--port=0", f"--master_server_address={address}", SMALL).address()
    store = Store(library, address)
    for number in range(300):
        store.put(b"key %d" % number, b"x")
    for headers in ({}, with_token(TOKEN[:-1]), with_token(TOKEN + "x"), with_token(TOKEN[:-1] + "x"), with_token("")):
        refused = master.ask("/api/v1/remove_all", "POST", headers)
        assert refused.status == 401, headers
        assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert refused.json["success"] is False
    assert store.has(b"key 7")
    answer = master.ask("/api/v1/remove_all?force=true", "POST", with_token(TOKEN))
    assert (answer.status, answer.json) == (200, {"success": True, "removed": 300})
    assert not store.has(b"key 7")
    assert master.ask("/api/v1/drain_jobs", "POST", with_token(TOKEN)).status == 501
    store.close()


def test_a_removal_that_waits_keeps_nobody_else_waiting_and_ends_with_the_master(
    begin: Callable[..., Program], library: Path
) -> None:
    """Its owner is stopped, and can't say that it has done it."""
    master = Master(begin, environment={"MOONCAKE_ADMIN_TOKEN": TOKEN})
    address = master.program.address()
    owner = begin("mooncake_client", "--port=0", f"--master_server_address={address}", SMALL)
    owner.address()
    store = Store(library, address)
    store.put(b"key", b"value")
    assert store.get(b"key") == b"value"
    store.close()
    os.kill(owner.process.pid, signal.SIGSTOP)
    answers: list[int] = []

    def remove() -> None:
        with contextlib.suppress(OSError):
            answers.append(master.ask("/api/v1/remove_all", "POST", with_token(TOKEN)).status)

    thread = threading.Thread(target=remove)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while master.metrics()["mooncake_master_waiting_requests"] == 0:
        assert time.monotonic() < deadline
    assert master.ask("/health").status == 200
    assert master.ask("/api/v1/remove_all", "POST", with_token(TOKEN)).status == 503
    assert master.program.end() == 0
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert answers in ([], [503])


def test_a_master_without_a_token_refuses_all_writes(master: Master, store: Store) -> None:
    store.put(b"key", b"value")
    for path, method in [
        ("/api/v1/remove_all", "POST"),
        ("/api/v1/drain_jobs", "POST"),
        ("/api/v1/tenant_quotas", "PUT"),
        ("/api/v1/tenant_quotas", "DELETE"),
    ]:
        for headers in ({}, with_token(""), with_token(TOKEN)):
            assert master.ask(path, method, headers).status == 403, path
    assert store.has(b"key")


@pytest.mark.parametrize("text", ["short", "x" * 1025, "has a space in it", "not\x01printable....."])
def test_a_token_that_is_none_is_an_error(programs: Path, tmp_path: Path, text: str) -> None:
    path = tmp_path / "token"
    path.write_text(text)
    result = subprocess.run(
        [programs / "mooncake_master", "--port=0", "--metrics_port=0", f"--admin_token_file={path}"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 2
    assert "--admin_token_file: " in result.stderr
    assert text not in result.stderr


# ---- Where it listens


def listening(program: Program) -> set[str]:
    """The hosts at which the process listens."""
    inodes = set()
    for entry in Path(f"/proc/{program.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            match = re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink()))
            if match:
                inodes.add(match[1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(fields[1].partition(":")[0])
    return found


def test_nothing_but_loopback_is_listened_on_unless_told(begin: Callable[..., Program]) -> None:
    master = Master(begin)
    master.program.address()
    assert listening(master.program) == {"0100007F"}
    told = Master(begin, "--metrics_host=0.0.0.0")
    told.program.address()
    assert listening(told.program) == {"0100007F", "00000000"}


def test_without_a_host_there_is_no_http(begin: Callable[..., Program]) -> None:
    master = begin("mooncake_master", "--port=0", "--metrics_host=")
    master.address()
    assert len(listening(master)) == 1
    assert master.end() == 0
    assert master.errors() == ""


def test_a_taken_port_that_was_named_is_status_1(begin: Callable[..., Program]) -> None:
    first = Master(begin)
    first.program.address()
    second = begin("mooncake_master", "--port=0", f"--metrics_port={first.port}")
    assert second.ended() == 1
    assert "Address already in use" in second.errors()


# ---- Hostile and clumsy clients


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/query_key", 400),
        ("/query_key?key=", 400),
        ("/query_key?key=%", 400),
        ("/query_key?key=%4", 400),
        ("/query_key?key=%zz", 400),
        ("/query_key?key=" + "x" * 5000, 404),
        ("/batch_query_keys", 400),
        ("/batch_query_keys?keys=", 400),
        ("/batch_query_keys?keys=a,,b", 400),
        ("/batch_query_keys?keys=" + "a," * 1000 + "a", 400),
        ("/batch_query_keys?keys=a,%x", 400),
        ("/query_segment?segment=%", 400),
        ("/get_all_keys?limit=0", 400),
        ("/get_all_keys?limit=10001", 400),
        ("/get_all_keys?limit=-1", 400),
        ("/get_all_keys?cursor=18446744073709551616", 400),
        ("/get_all_keys?cursor=18446744073709551615", 200),
        ("/nothing", 404),
        ("/health/", 404),
        ("/%68ealth", 404),
        ("/../health", 404),
    ],
)
def test_what_is_malformed_or_unknown_is_refused(master: Master, path: str, status: int) -> None:
    answer = master.ask(path)
    assert answer.status == status
    assert status == 200 or answer.json["success"] is False
    assert master.ask("/health").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_refused(master: Master, method: str) -> None:
    assert master.ask("/health", method).status == 405
    assert master.ask("/health", "HEAD").body == b""


def spoken(master: Master, sent: bytes) -> bytes:
    """What comes back until the master closes the connection."""
    with master.connect() as connection:
        with contextlib.suppress(OSError):
            connection.sendall(sent)
        got = b""
        with contextlib.suppress(OSError):
            while part := connection.recv(65536):
                got += part
        return got


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 41"),
        (b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 200_000 + b"\r\n\r\n", b"HTTP/1.1 4"),
        (b"POST /api/v1/remove_all HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", b"HTTP/1.1 413"),
        (b"POST /health HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n", b"HTTP/1.1 4"),
        (b"POST /health HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", b""),
    ],
)
def test_heads_and_bodies_beyond_the_bounds_are_refused_and_the_connection_closed(
    master: Master, sent: bytes, answer: bytes
) -> None:
    assert spoken(master, sent).startswith(answer)
    assert master.ask("/health").status == 200


def test_what_is_no_http_harms_nobody(master: Master) -> None:
    for sent in (b"\x00\xff" * 1000 + b"\r\n\r\n", b"\r\n" * 10_000, b"GET", b"MCPR" + bytes(100)):
        with master.connect() as connection:
            connection.sendall(sent)
            assert master.ask("/health").status == 200


def test_clients_that_keep_connections_and_say_nothing_keep_nobody_out(master: Master) -> None:
    silent = [master.connect() for _ in range(3 * CONNECTIONS)]
    slow = [master.connect() for _ in range(CONNECTIONS)]
    for connection in slow:
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /health HTTP/1.1\r\nX: ")
    for _ in range(5):
        assert master.ask("/health", patience=SILENCE - 5).status == 200  # before any of them has been silent too long
    descriptors = len(list(Path(f"/proc/{master.program.process.pid}/fd").iterdir()))
    assert descriptors < 2 * CONNECTIONS
    for connection in silent + slow:
        connection.close()


def test_a_reader_that_is_slow_keeps_nobody_else_waiting(master: Master, store: Store) -> None:
    for number in range(2000):
        store.put(b"%04d" % number + b"k" * 1000, b"")
    with master.connect() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /get_all_keys HTTP/1.1\r\nHost: a\r\n\r\n")
        assert slow.recv(100)
        for _ in range(5):
            assert master.ask("/health").status == 200


def test_many_askers_at_a_time_are_all_answered(master: Master, store: Store) -> None:
    wrong: list[object] = []

    def ask() -> None:
        for _ in range(20):
            try:
                if master.ask("/metrics").status != 200:
                    wrong.append("status")
            except OSError as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert wrong == []
    assert master.program.end() == 0
