"""The directory of engines that mooncake_master keeps: the protocol of existing deployments, and its bounds."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import urllib.parse
from typing import Callable

import pytest
from actor import Actor
from program import PATIENCE, Program

KEY_MAX = 1024
VALUE_MAX = 1 << 20
SIZE = 1 << 16


class Server:
    def __init__(self, begin: Callable[..., Program], *flags: str) -> None:
        self.program = begin(
            "mooncake_master", "--port=0", "--enable_http_metadata_server", "--http_metadata_server_port=0", *flags
        )
        line = self.program.line("stderr")
        found = re.fullmatch(r"mooncake_master: directory at (http://([^:]+):(\d+)/metadata)", line)
        assert found, line
        self.url, self.host, self.port = found[1], found[2], int(found[3])

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def key(self, method: str, key: str | bytes, body: bytes | None = None) -> tuple[int, bytes]:
        return self.ask(method, f"/metadata?key={urllib.parse.quote(key, safe='')}", body)


@pytest.fixture
def server(begin: Callable[..., Program]) -> Server:
    return Server(begin)


def test_values_are_kept_under_their_keys(server: Server) -> None:
    assert server.key("GET", "mooncake/ram/one")[0] == 404
    assert server.key("PUT", "mooncake/ram/one", b'{"a": 1}')[0] == 200
    assert server.key("GET", "mooncake/ram/one") == (200, b'{"a": 1}')
    assert server.key("PUT", "mooncake/ram/one", b"other")[0] == 200
    assert server.key("GET", "mooncake/ram/one") == (200, b"other")
    assert server.key("GET", "mooncake/ram/on")[0] == 404
    assert server.key("DELETE", "mooncake/ram/one")[0] == 200
    assert server.key("DELETE", "mooncake/ram/one")[0] == 404
    assert server.key("GET", "mooncake/ram/one")[0] == 404
    assert server.ask("GET", "/health") == (200, b"OK\n")


def test_keys_and_values_are_any_bytes(server: Server) -> None:
    key, value = bytes(range(256)), bytes(range(255, -1, -1)) * 100
    assert server.key("PUT", key, value)[0] == 200
    assert server.key("GET", key) == (200, value)
    assert server.key("PUT", b"empty", b"")[0] == 200
    assert server.key("GET", b"empty") == (200, b"")


@pytest.mark.parametrize("key", ["mooncake/rpc_meta/one", "mooncake/cluster/rpc_meta/one", "rpc_meta/one"])
def test_where_an_engine_listens_is_not_replaced_by_another_value(server: Server, key: str) -> None:
    assert server.key("PUT", key, b"one")[0] == 200
    assert server.key("PUT", key, b"one")[0] == 200
    assert server.key("PUT", key, b"two")[0] == 400
    assert server.key("GET", key) == (200, b"one")
    assert server.key("DELETE", key)[0] == 200
    assert server.key("PUT", key, b"two")[0] == 200


def test_engines_find_each_other_in_the_master_s_directory(server: Server, start: Callable[..., Actor]) -> None:
    reason = json.loads(" ".join(start(engine=False).ask("capabilities")))["directories"]["http"]
    if reason != "yes":
        pytest.skip(f"no directories by http: {reason}")
    one, other = start(directory=server.url, name="one"), start(directory=server.url, name="other")
    source, target = one.alloc(SIZE), other.alloc(SIZE)
    one.fill(source, SIZE, 1)
    one.ask("write", one.peer("other"), source, target, SIZE, 10_000)
    assert other.differing(target, SIZE, 1) == 0
    former = other.address
    other.end()  # without a word to the directory
    again = start(directory=server.url, name="other")
    assert again.address != former
    target = again.alloc(SIZE)
    one.ask("write", one.peer("other"), source, target, SIZE, 10_000)
    assert again.differing(target, SIZE, 1) == 0
    again.ask("close", 0)
    assert server.key("GET", "mooncake/rpc_meta/other")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/metadata", 400),
        ("GET", "/metadata?key=", 400),
        ("GET", "/metadata?key=%", 400),
        ("GET", "/metadata?key=%g0", 400),
        ("GET", "/metadata?key=" + "x" * KEY_MAX, 404),
        ("GET", "/metadata?key=" + "x" * (KEY_MAX + 1), 400),
        ("POST", "/metadata?key=a", 405),
        ("PATCH", "/metadata?key=a", 405),
        ("PUT", "/health", 405),
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
    ],
)
def test_what_is_malformed_or_unknown_is_refused(server: Server, method: str, path: str, status: int) -> None:
    assert server.ask(method, path)[0] == status


def test_values_are_bounded_one_by_one_and_together(server: Server) -> None:
    assert server.key("PUT", "large", b"x" * VALUE_MAX)[0] == 200
    with contextlib.suppress(ConnectionError):  # it answers before it has read all of it
        assert server.key("PUT", "larger", b"x" * (VALUE_MAX + 1))[0] == 413
    codes = [server.key("PUT", f"key {number}", b"x" * VALUE_MAX)[0] for number in range(66)]
    assert codes.count(200) == 62  # with the one above, and the keys: below 64 MiB
    assert set(codes) == {200, 507}
    assert server.key("DELETE", "large")[0] == 200
    assert server.key("PUT", "key 70", b"x" * VALUE_MAX)[0] == 200
    assert server.key("PUT", "key 71", b"x" * VALUE_MAX)[0] == 507
    assert server.key("PUT", "key 0", b"x" * VALUE_MAX)[0] == 200  # takes no more room


def test_a_body_without_a_length_is_bounded_too(server: Server) -> None:
    with socket.create_connection((server.host, server.port), PATIENCE) as connection:
        connection.sendall(b"PUT /metadata?key=a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 16 * VALUE_MAX:
                connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                sent += 65536
        assert sent < 16 * VALUE_MAX
    assert server.key("GET", "a")[0] == 404


def test_a_taken_port_is_status_1(begin: Callable[..., Program], server: Server) -> None:
    server.program.address()
    second = begin(
        "mooncake_master",
        "--port=0",
        "--enable_http_metadata_server",
        f"--http_metadata_server_port={server.port}",
    )
    assert second.ended() == 1
    assert "Address already in use" in second.errors()
