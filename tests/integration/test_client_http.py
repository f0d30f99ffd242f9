"""mooncake_client over HTTP: whether it is well, and what it has moved."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
from pathlib import Path
from typing import Callable

from program import PATIENCE, Program, Store

SMALL = "--global_segment_size=1MB"


class Client:
    """An owner with HTTP at a free port."""

    def __init__(self, begin: Callable[..., Program], master: str, *flags: str) -> None:
        self.program = begin(
            "mooncake_client",
            "--port=0",
            f"--master_server_address={master}",
            SMALL,
            "--enable_http_server",
            "--http_port=0",
            *flags,
        )
        found = re.fullmatch(r"mooncake_client: HTTP at (127\.0\.0\.1):(\d+)", self.program.line("stderr"))
        assert found
        self.host, self.port = found[1], int(found[2])

    def ask(self, path: str, method: str = "GET") -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()


def test_an_owner_is_healthy_from_when_it_has_joined_the_pool(begin: Callable[..., Program], free_port: int) -> None:
    client = Client(begin, f"127.0.0.1:{free_port}")
    assert "no master" in client.program.line("stderr")
    assert client.ask("/health") == (503, "unavailable\n")
    assert "\nmooncake_client_healthy 0\n" in client.ask("/metrics")[1]
    assert client.ask("/metrics/summary") == (200, "{}\n")
    begin("mooncake_master", f"--rpc_port={free_port}").address()
    client.program.address()
    assert client.ask("/health") == (200, "OK\n")
    assert "\nmooncake_client_healthy 1\n" in client.ask("/metrics")[1]
    assert client.program.end() == 0


def test_an_owner_tells_what_it_holds_and_has_moved(begin: Callable[..., Program], library: Path) -> None:
    master = begin("mooncake_master", "--port=0").address()
    client = Client(begin, master)
    client.program.address()
    store = Store(library, master)
    store.put(b"key", b"x" * 100_000)
    assert store.get(b"key") == b"x" * 100_000
    status, text = client.ask("/metrics/summary")
    segment = json.loads(text)["segment"]
    assert status == 200
    assert segment["size"] == 1 << 20
    assert segment["live"] >= 1
    status, text = client.ask("/metrics")
    assert status == 200
    assert "# TYPE mooncake_transfer_" in text
    assert client.ask("/nothing")[0] == 404
    assert client.ask("/health", "POST")[0] == 405
    store.close()
    assert client.program.end() == 0


def test_a_taken_port_is_status_1(begin: Callable[..., Program]) -> None:
    master = begin("mooncake_master", "--port=0").address()
    first = Client(begin, master)
    first.program.address()
    second = begin(
        "mooncake_client",
        "--port=0",
        f"--master_server_address={master}",
        SMALL,
        "--enable_http_server",
        f"--http_port={first.port}",
    )
    assert second.ended() == 1
    assert "Address already in use" in second.errors()
