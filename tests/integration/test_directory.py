"""Engines that find each other by name in a directory, over http."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import actor as status
import pytest
from actor import Actor, ActorError
from conftest import ROOT

SERVER = ROOT / "tests" / "contract" / "directory" / "metadata_server.py"
SIZE = 1 << 16

Start = Callable[..., Actor]


class Server:
    """The metadata server, in a process of its own; `key` is what it has of a name."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.base = f"http://127.0.0.1:{int(self.process.stdout.readline())}"
        self.url = f"{self.base}/metadata"

    def request(self, method: str, name: str, body: bytes | None = None) -> bytes:
        key = urllib.parse.quote(f"mooncake/rpc_meta/{name}", safe="")
        asked = urllib.request.Request(f"{self.url}?key={key}", data=body, method=method)
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=10) as answer:
            return answer.read()

    def key(self, name: str) -> str | None:
        """The address under a name, or None."""
        try:
            value = json.loads(self.request("GET", name))
        except urllib.error.HTTPError as error:
            assert error.code == 404
            return None
        return f"{value['ip_or_host_name']}:{value['rpc_port']}"

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.end()


@pytest.fixture(autouse=True)
def needs_http(start: Start) -> None:
    reason = json.loads(" ".join(start(engine=False).ask("capabilities")))["directories"]["http"]
    if reason != "yes":
        pytest.skip(f"no directories by http: {reason}")


def refused(wanted: int, actor: Actor, *command: object) -> str:
    """The words with which a command is refused."""
    with pytest.raises(ActorError) as caught:
        actor.ask(*command)
    assert caught.value.status == wanted, caught.value.words
    return caught.value.words


def refused_open(wanted: int, actor: Actor, **options: str) -> str:
    with pytest.raises(ActorError) as caught:
        actor.open(**options)  # type: ignore[arg-type]
    assert caught.value.status == wanted, caught.value.words
    return caught.value.words


def write_and_check(actor: Actor, peer: int, there: Actor, target: int, seed: int) -> None:
    source = actor.alloc(SIZE)
    actor.fill(source, SIZE, seed)
    actor.ask("write", peer, source, target, SIZE, 10_000)
    assert there.differing(target, SIZE, seed) == 0


def test_two_engines_find_each_other_by_name(server: Server, start: Start) -> None:
    one = start(directory=server.url, name="prefill-0")
    other = start(directory=server.url, name="decode-0")
    write_and_check(one, one.peer("decode-0"), other, other.alloc(SIZE), 1)
    write_and_check(other, other.peer("prefill-0"), one, one.alloc(SIZE), 2)


def test_the_environment_names_the_directory_and_the_address_is_the_default_name(server: Server, start: Start) -> None:
    environment = {"MC_METADATA_SERVER": server.url}
    one, other = start(environment=environment), start(environment=environment)
    assert server.key(one.address) == one.address
    write_and_check(one, one.peer(other.address), other, other.alloc(SIZE), 3)


def test_an_address_that_is_no_name_is_opened_as_it_is(server: Server, start: Start) -> None:
    one, other = start(directory=server.url, name="one"), start()
    assert server.key(other.address) is None
    write_and_check(one, one.peer(other.address), other, other.alloc(SIZE), 4)


def test_what_is_advertised_is_published(server: Server, start: Start) -> None:
    environment = {"MC_TCP_BIND_ADDRESS": "localhost"}
    actor = start(environment=environment, listen="127.0.0.1:0", directory=server.url, name="one")
    assert actor.address.startswith("localhost:")
    assert server.key("one") == actor.address


def test_an_unknown_name_is_not_found_and_both_are_named(server: Server, start: Start) -> None:
    one = start(directory=server.url, name="one")
    said = refused(status.NAME_NOT_FOUND, one, "peer", 0, "nobody")
    assert "nobody" in said
    assert server.url in said
    assert "nobody" in refused(status.INVALID_ARGUMENT, one, "peer", 0, "nobody" * 50)


def test_an_address_of_the_directory_that_nobody_is_at_is_named_with_the_name(server: Server, start: Start) -> None:
    one, other = start(directory=server.url, name="one"), start(directory=server.url, name="other")
    other.end()
    assert server.key("other") == other.address
    said = refused(status.UNREACHABLE, one, "peer", 0, "other")
    assert '"other"' in said
    assert other.address in said


def test_what_the_directory_says_is_only_an_address(server: Server, start: Start) -> None:
    """The incarnation is the one that answers, whatever the name stood for."""
    one, other, third = (start(directory=server.url, name=name) for name in ("one", "other", "third"))
    host, port = third.address.rsplit(":", 1)
    server.request("PUT", "other", json.dumps({"ip_or_host_name": host, "rpc_port": int(port)}).encode())
    write_and_check(one, one.peer("other"), third, third.alloc(SIZE), 5)
    assert other.address != third.address


def test_an_engine_that_was_restarted_under_its_name_is_found_by_it(server: Server, start: Start) -> None:
    one, other = start(directory=server.url, name="one"), start(directory=server.url, name="other")
    peer = one.peer("other")
    former = other.address
    other.end()
    again = start(listen=former, directory=server.url, name="other")
    assert server.key("other") == again.address == former
    source = one.alloc(SIZE)
    with pytest.raises(ActorError) as caught:
        for _ in range(50):  # the first may still find the end of the connection
            try:
                one.ask("write", peer, source, again.alloc(SIZE), SIZE, 10_000)
            except ActorError as error:
                if error.status != status.CONNECTION_LOST:
                    raise
    assert caught.value.status == status.STALE_PEER
    write_and_check(one, one.peer("other"), again, again.alloc(SIZE), 6)


def test_a_closed_engine_is_no_longer_in_the_directory(server: Server, start: Start) -> None:
    actor = start(directory=server.url, name="one")
    assert server.key("one") == actor.address
    actor.ask("close", 0)
    assert server.key("one") is None


def test_a_name_that_another_engine_has_taken_stays_when_the_first_closes(server: Server, start: Start) -> None:
    first = start(directory=server.url, name="one")
    second = start(directory=server.url, name="one")
    first.ask("close", 0)
    assert server.key("one") == second.address


def test_a_directory_that_is_not_there_keeps_an_engine_from_opening(server: Server, start: Start) -> None:
    url = server.url
    server.end()
    actor = start(engine=False)
    assert url in refused_open(status.UNREACHABLE, actor, directory=url, name="one")
    assert actor.open() == 0


def test_an_engine_closes_without_its_directory(server: Server, start: Start) -> None:
    actor = start(directory=server.url, name="one")
    server.end()
    begin = time.monotonic()
    actor.ask("close", 0)
    assert time.monotonic() - begin < 6


def test_a_server_in_trouble_is_not_a_name_that_is_not_there(server: Server, start: Start) -> None:
    """Else a peer could be taken for the engine at the address that its name looks like."""
    other = start()
    actor = start(engine=False)
    assert "500" in refused_open(status.UNREACHABLE, actor, directory=f"{server.base}/status/500", name="one")
    actor.open(directory=server.url, name="one")
    server.end()
    assert server.url in refused(status.UNREACHABLE, actor, "peer", 0, other.address)


def test_a_certificate_that_nobody_vouches_for_is_refused(start: Start, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the program openssl is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"),
            *("-keyout", key, "-out", certificate),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the client hangs up
                context.wrap_socket(listener.accept()[0], server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"https://localhost:{listener.getsockname()[1]}/metadata"
        assert "certificate" in refused_open(status.UNREACHABLE, start(engine=False), directory=url, name="one")
        thread.join()


def test_names_need_a_directory(start: Start) -> None:
    actor = start(engine=False)
    assert "one" in refused_open(status.INVALID_ARGUMENT, actor, name="one")
    assert "one" in refused_open(status.INVALID_ARGUMENT, actor, directory="P2PHANDSHAKE", name="one")
    assert "redis" in refused_open(status.NOT_SUPPORTED, actor, directory="redis://127.0.0.1:6379", name="one")
    assert "etcd" in refused_open(status.NOT_SUPPORTED, actor, directory="127.0.0.1:2379", name="one")
    assert "ftp" in refused_open(status.INVALID_ARGUMENT, actor, directory="ftp://127.0.0.1", name="one")
    actor.open(directory="p2p")
    assert refused(status.ADDRESS, actor, "peer", 0, "one")
