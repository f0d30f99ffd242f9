"""A metadata server for tests, on a free port of 127.0.0.1: well-behaved at /metadata, and hostile elsewhere.

    metadata_server.py

Writes its port as one line, serves until standard input ends. Keys are those of `?key=`; GET, PUT and DELETE.

    /metadata      as the servers of existing deployments
    /strict        the same, but another value for a key that has one is refused
    /status/CODE   answers with this code, and an address
    /value/BYTES   answers every GET with these bytes (%XX)
    /redirect      sends to /metadata
    /huge, /endless   answers more than anybody wants, with and without a length
    /drip          a byte now and then, for ever
    /silent        no answer
    /cut           closes in the middle
    /garbage       no HTTP
"""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Callable
from urllib.parse import parse_qs, unquote_to_bytes, urlsplit

ADDRESS = b'{"ip_or_host_name": "127.0.0.1", "rpc_port": 7}'

values: dict[str, bytes] = {}
ended = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""

    def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def metadata(self, rest: str, key: str, body: bytes) -> None:
        if self.command == "PUT":
            values[key] = body
        elif key not in values:
            self.answer(404, b"metadata not found")
            return
        elif self.command == "DELETE":
            del values[key]
        self.answer(200, values[key] if self.command == "GET" else b"")

    def strict(self, rest: str, key: str, body: bytes) -> None:
        if self.command == "PUT" and values.get(key, body) != body:
            self.answer(400, b"duplicate rpc_meta key")
        else:
            self.metadata(rest, key, body)

    def status(self, rest: str, key: str, body: bytes) -> None:
        self.answer(int(rest), ADDRESS if rest not in ("204", "304") else b"")

    def value(self, rest: str, key: str, body: bytes) -> None:
        self.answer(200, unquote_to_bytes(rest))

    def redirect(self, rest: str, key: str, body: bytes) -> None:
        self.answer(302, Location=f"/metadata?{urlsplit(self.path).query}")

    def huge(self, rest: str, key: str, body: bytes) -> None:
        self.answer(200, ADDRESS + b" " * (1 << 20))

    def endless(self, rest: str, key: str, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        while not ended.is_set():
            self.wfile.write(b" " * 4096)

    def drip(self, rest: str, key: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "60000")
        self.end_headers()
        while not ended.wait(0.1):
            self.wfile.write(b" ")
            self.wfile.flush()

    def silent(self, rest: str, key: str, body: bytes) -> None:
        ended.wait()

    def cut(self, rest: str, key: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(ADDRESS)
        self.close_connection = True

    def garbage(self, rest: str, key: str, body: bytes) -> None:
        self.wfile.write(b"\0\1\2\3 no HTTP at all\r\n\r\n" + ADDRESS)

    def handle_request(self) -> None:
        parts = urlsplit(self.path)
        _, what, *rest = parts.path.split("/", 2)
        key = parse_qs(parts.query, keep_blank_values=True).get("key", [""])[0]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pages = (
            self.metadata, self.strict, self.status, self.value, self.redirect, self.huge, self.endless, self.drip,
            self.silent, self.cut, self.garbage,
        )  # fmt: skip
        methods: dict[str, Callable[[str, str, bytes], None]] = {page.__name__: page for page in pages}
        try:
            if what in methods:
                methods[what](rest[0] if rest else "", key, body)
            else:
                self.answer(404, b"no such page")
        except OSError:  # whoever asked has had enough
            self.close_connection = True

    do_GET = do_PUT = do_DELETE = handle_request


def main() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.block_on_close = False
        print(server.server_address[1], flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
        ended.set()
        server.shutdown()


if __name__ == "__main__":
    main()
