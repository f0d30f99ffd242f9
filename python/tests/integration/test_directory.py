"""Engines that are found by name, in a metadata server as existing deployments have it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from mooncake import errors
from mooncake.engine import Engine, TransferEngine, alloc


class Server(ThreadingHTTPServer):
    """Values by key, in memory."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.values: dict[str, bytes] = {}
        self.url = f"http://127.0.0.1:{self.server_address[1]}/metadata"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def handle_one(self) -> None:
        key = parse_qs(urlsplit(self.path).query).get("key", [""])[0]
        values, body, code = self.server.values, b"", 200
        if self.command == "PUT":
            values[key] = self.rfile.read(int(self.headers["Content-Length"]))
        elif key not in values:
            code, body = 404, b"not found"
        elif self.command == "GET":
            body = values[key]
        else:
            del values[key]
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_DELETE = handle_one

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as opened:
        threading.Thread(target=opened.serve_forever, daemon=True).start()
        try:
            Engine(directory=opened.url).close()
        except errors.NotSupported as error:
            print("no directory by http on this machine:", error)
            pytest.skip(str(error))
        yield opened
        opened.shutdown()


def test_engines_are_found_by_name_while_they_are_open(server: Server) -> None:
    with (
        Engine(directory=server.url, name="decode-0") as target,
        Engine(directory=server.url) as engine,
        alloc(4096) as memory,
        target.register(memory),
        engine.register(memory),
    ):
        memory.view[:5] = b"hello"
        with engine.connect("decode-0") as peer:
            peer.write(memory, memory.address + 5, 5)
            peer.notify("done")
        assert memory.view[:10] == b"hellohello"
        assert target.receive(10) == (engine.address, b"done", b"")
        with pytest.raises(errors.NameNotFound):
            engine.connect("decode-1")
    assert not any("decode-0" in key for key in server.values)


def test_transfer_engine_names_peers_of_the_directory(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with TransferEngine() as target, TransferEngine() as engine:
        assert target.initialize("127.0.0.1", server.url, "tcp", "") == 0
        assert engine.initialize_ext("localhost", server.url.partition("//")[2], "tcp", "", "http") == 0
        there, here = target.allocate_managed_buffer(4096), engine.allocate_managed_buffer(4096)
        assert engine.write_bytes_to_buffer(here, "hello", 5) == 0
        assert engine.transfer_sync_write("127.0.0.1", here, there, 5) == 0
        assert target.read_bytes_from_buffer(there, 5) == b"hello"
        assert engine.send_probe("127.0.0.1") == 0
        assert engine.get_first_buffer_address("localhost") == here
        assert engine.send_probe("nobody") < 0
        address = target.get_engine().address
        assert engine.transfer_sync_read(address, here + 100, there, 5) == 0


def test_a_restarted_engine_is_found_again_by_its_name(server: Server) -> None:
    with TransferEngine() as engine:
        assert engine.initialize("localhost", server.url, "tcp", "") == 0
        here = engine.allocate_managed_buffer(4096)
        for _ in range(3):
            with TransferEngine() as target:
                assert target.initialize("127.0.0.1", server.url, "tcp", "") == 0
                there = target.allocate_managed_buffer(4096)
                assert engine.transfer_sync_write("127.0.0.1", here, there, 5) == 0


def test_a_directory_that_does_not_answer_is_minus_one(caplog: pytest.LogCaptureFixture) -> None:
    with TransferEngine() as engine, caplog.at_level(logging.WARNING, "mooncake.engine"):
        assert engine.initialize("127.0.0.1", "http://127.0.0.1:1/metadata", "tcp", "") == -1
        assert "http://127.0.0.1:1" in caplog.text or "127.0.0.1:1" in caplog.text
