"""Cluster keys: who has the key is served, nobody else is, and nothing that was overheard opens a connection."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from pathlib import Path
from typing import Callable

import actor as status
import peer as wire
import pytest
from actor import Actor, ActorError
from peer import Frame, Hello, Peer, PeerError, Proof, Server, make_proof

KEY = b"a cluster key, long enough"
SIZE = 4096


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_bytes(KEY + b"\n")
    return path


@pytest.fixture
def other_key_file(tmp_path: Path) -> Path:
    path = tmp_path / "other-key"
    path.write_bytes(KEY + b"!")
    return path


def where(target: Actor) -> tuple[str, int]:
    host, port = target.address.rsplit(":", 1)
    return host, int(port)


def refused(wanted: int, actor: Actor, *words: object) -> str:
    with pytest.raises(ActorError) as caught:
        actor.ask(*words)
    assert caught.value.status == wanted, caught.value.words
    return caught.value.words


@pytest.mark.parametrize("protocol", ["tcp", "shm"])
def test_engines_with_the_same_key_talk(start: Callable[..., Actor], key_file: Path, protocol: str) -> None:
    client = start(key_file=key_file, protocol=protocol)
    target = start(environment={"MC_KEY_FILE": str(key_file)}, protocol=protocol)
    local, remote = client.alloc(SIZE), target.alloc(SIZE)
    peer = client.peer(target.address)
    client.fill(local, SIZE, 1)
    client.ask("write", peer, local, remote, SIZE, 5000)
    assert target.differing(remote, SIZE, 1) == 0
    assert client.path(peer) == protocol


def test_the_python_peer_with_the_key_is_served_and_serves(start: Callable[..., Actor], key_file: Path) -> None:
    actor = start(key_file=key_file, lanes=1)
    base = actor.alloc(SIZE)
    with Peer(*where(actor), key=KEY) as client:
        client.write(base, b"with the key")
    assert actor.peek(base, 12) == b"with the key"
    server = Server(bytearray(SIZE), key=KEY)
    host, port = server.start()
    try:
        actor.ask("write", actor.peer(f"{host}:{port}"), base, server.base, 12, 5000)
        assert server.memory[:12] == b"with the key"
    finally:
        server.stop()


@pytest.mark.parametrize("client_has", ["none", "key", "other"])
@pytest.mark.parametrize("target_has", ["none", "key", "other"])
def test_engines_whose_keys_differ_do_not_talk(
    start: Callable[..., Actor], key_file: Path, other_key_file: Path, client_has: str, target_has: str
) -> None:
    files: dict[str, object] = {"none": "-", "key": key_file, "other": other_key_file}
    client, target = start(key_file=files[client_has]), start(key_file=files[target_has])
    if client_has == target_has:
        client.ask("probe", client.peer(target.address), 5000)
    else:
        assert target.address in refused(status.AUTHENTICATION, client, "peer", 0, target.address)


@pytest.mark.parametrize("key", [None, KEY + b"!"])
def test_who_has_not_the_key_is_told_nothing_and_served_nothing(
    start: Callable[..., Actor], key_file: Path, key: bytes | None
) -> None:
    target = start(key_file=key_file)
    base = target.alloc(SIZE)
    client = Hello(1, 1, wire.HAS_KEY if key else 0, os.urandom(16), bytes(16), os.urandom(32)).pack()
    with socket.create_connection(where(target), 5) as stranger:
        stranger.sendall(client)
        server = stranger.recv(96, socket.MSG_WAITALL)
        write = Frame(wire.WRITE, address=base, length=1, payload_size=1, id=1).pack() + b"x"
        stranger.sendall(Proof(0, 0, make_proof(key, "client", client, server)).pack() + write)
        verdict = Proof.unpack(stranger.recv(64, socket.MSG_WAITALL))
        assert (verdict.status, verdict.proof) == (wire.AUTHENTICATION, bytes(32))
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    assert target.peek(base, 1) == b"\0"


def test_a_proof_cannot_be_used_again(start: Callable[..., Actor], key_file: Path) -> None:
    target = start(key_file=key_file)
    client = Hello(1, 1, wire.HAS_KEY, os.urandom(16), bytes(16), os.urandom(32)).pack()
    with socket.create_connection(where(target), 5) as honest:
        honest.sendall(client)
        server = honest.recv(96, socket.MSG_WAITALL)
        proof = Proof(0, 0, make_proof(KEY, "client", client, server)).pack()
        honest.sendall(proof)
        accept = honest.recv(64, socket.MSG_WAITALL)
        assert Proof.unpack(accept).status == 0
    for again in (proof, Proof(0, 0, Proof.unpack(accept).proof).pack()):
        with socket.create_connection(where(target), 5) as thief:
            thief.sendall(client)
            assert thief.recv(96, socket.MSG_WAITALL)[48:80] != server[48:80]
            thief.sendall(again)
            assert Proof.unpack(thief.recv(64, socket.MSG_WAITALL)).status == wire.AUTHENTICATION


def test_a_server_that_throws_the_client_s_own_proof_back_is_refused(
    start: Callable[..., Actor], key_file: Path
) -> None:
    client = start(key_file=key_file)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client.begin("peer", 0, f"127.0.0.1:{listener.getsockname()[1]}")
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(5)
            assert len(connection.recv(96, socket.MSG_WAITALL)) == 96
            connection.sendall(Hello(1, 1, wire.HAS_KEY, bytes(range(16)), bytes(16), bytes(32)).pack())
            proof = Proof.unpack(connection.recv(64, socket.MSG_WAITALL))
            connection.sendall(Proof(0, 1, proof.proof).pack())
            with pytest.raises(ActorError) as caught:
                client.finish()
            assert caught.value.status == status.AUTHENTICATION


def test_a_server_without_the_key_gets_no_proof(start: Callable[..., Actor], key_file: Path) -> None:
    client = start(key_file=key_file)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client.begin("peer", 0, f"127.0.0.1:{listener.getsockname()[1]}")
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(5)
            connection.recv(96, socket.MSG_WAITALL)
            connection.sendall(Hello(1, 1, 0, bytes(range(16)), bytes(16), bytes(32)).pack())
            assert connection.recv(64, socket.MSG_WAITALL) == b""
        with pytest.raises(ActorError) as caught:
            client.finish()
        assert caught.value.status == status.AUTHENTICATION


@pytest.mark.parametrize(
    ("content", "wanted"),
    [(b"", "fewer"), (b"fifteen bytes..", "fewer"), (b"fifteen bytes..\n", "fewer"), (b"x" * 4098, "more")],
)
def test_a_key_file_of_a_wrong_size_is_refused_with_words(
    start: Callable[..., Actor], tmp_path: Path, content: bytes, wanted: str
) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    said = refused(status.INVALID_ARGUMENT, start(engine=False), "open", "-", "-", path, 0, 0, 0)
    assert str(path) in said and wanted in said


def test_a_key_file_that_is_not_there_or_no_file_is_refused_with_words(
    start: Callable[..., Actor], tmp_path: Path
) -> None:
    actor = start(engine=False)
    said = refused(status.SYSTEM, actor, "open", "-", "-", tmp_path / "absent", 0, 0, 0)
    assert "absent" in said and "No such file" in said
    assert str(tmp_path) in refused(status.INVALID_ARGUMENT, actor, "open", "-", "-", tmp_path, 0, 0, 0)


WITHOUT_LIBCRYPTO = r"""
#include <dlfcn.h>
#include <string.h>

/* A machine without libcrypto: its dlopen fails, every other goes through. */
void *dlopen(const char *name, int flags) {
    void *(*real)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");

    return real(name != NULL && strstr(name, "libcrypto") != NULL ? "libcrypto-that-is-not-here.so" : name, flags);
}
"""


def test_a_key_without_libcrypto_is_refused_with_words_and_no_key_is_fine(
    start: Callable[..., Actor], key_file: Path, tmp_path: Path
) -> None:
    source, library = tmp_path / "without.c", tmp_path / "without.so"
    source.write_text(WITHOUT_LIBCRYPTO)
    subprocess.run(["cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    actor = start(engine=False, environment={"LD_PRELOAD": str(library)})
    said = refused(status.NOT_SUPPORTED, actor, "open", "-", "-", key_file, 0, 0, 0)
    assert "libcrypto" in said
    assert "libcrypto-that-is-not-here.so" in " ".join(actor.ask("capabilities"))
    actor.open()


def test_the_peer_s_key_is_checked_before_its_version_and_incarnation(
    start: Callable[..., Actor], key_file: Path
) -> None:
    target = start(key_file=key_file)
    for options in ({"versions": (2, 3)}, {"expected": bytes(range(16))}):
        with pytest.raises(PeerError) as caught:
            Peer(*where(target), key=KEY + b"!", **options)
        assert caught.value.status == wire.AUTHENTICATION
