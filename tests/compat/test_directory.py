"""libtransfer_engine.so with a metadata server: engines are opened by their names there."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PREFIX = Path(os.environ.get("MOONCAKE_TEST_PREFIX", ROOT / "build" / "venv"))
SERVER = ROOT / "tests" / "contract" / "directory" / "metadata_server.py"
COMPLETED = 4


class Request(ctypes.Structure):
    _fields_ = [
        ("opcode", ctypes.c_int),
        ("source", ctypes.c_void_p),
        ("target_id", ctypes.c_int32),
        ("target_offset", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
    ]


class Status(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("transferred_bytes", ctypes.c_uint64)]


@pytest.fixture(scope="module")
def calls() -> ctypes.CDLL:
    """The shim, where the library has directories by http."""
    main = ctypes.CDLL(str(PREFIX / "lib" / "libmooncake.so.1"))
    text = ctypes.create_string_buffer(65536)
    main.mc_capabilities(text, ctypes.c_size_t(len(text)))
    reason = json.loads(text.value)["directories"]["http"]
    if reason != "yes":
        pytest.skip(f"no directories by http: {reason}")
    shim = ctypes.CDLL(str(PREFIX / "lib" / "libtransfer_engine.so"))
    shim.createTransferEngine.restype = ctypes.c_void_p
    shim.allocateBatchID.restype = ctypes.c_uint64
    return shim


@pytest.fixture
def server() -> Iterator[bytes]:
    """The URL of a metadata server."""
    process = subprocess.Popen([sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield f"http://127.0.0.1:{int(process.stdout.readline())}/metadata".encode()
    process.kill()
    process.communicate()


class Engine:
    def __init__(self, calls: ctypes.CDLL, url: bytes, name: bytes, ip: bytes = b"127.0.0.1") -> None:
        self.calls = calls
        self.buffer = ctypes.create_string_buffer(4096)
        self.handle = ctypes.c_void_p(calls.createTransferEngine(url, name, ip, ctypes.c_uint64(0), 1))
        assert self.handle
        assert calls.registerLocalMemory(self.handle, self.buffer, ctypes.c_size_t(4096), b"*", 1) == 0

    def open(self, name: bytes, cached: bool = True) -> int:
        call = self.calls.openSegment if cached else self.calls.openSegmentNoCache
        return call(self.handle, name)

    def write(self, segment: int, other: Engine, byte: int) -> int:
        """Fills the other's buffer; the state in which it ends."""
        ctypes.memset(self.buffer, byte, 4096)
        batch = ctypes.c_uint64(self.calls.allocateBatchID(self.handle, ctypes.c_size_t(1)))
        request = Request(1, ctypes.addressof(self.buffer), segment, ctypes.addressof(other.buffer), 4096)
        assert self.calls.submitTransfer(self.handle, batch, ctypes.byref(request), ctypes.c_size_t(1)) == 0
        state = Status()
        while state.status < 2:
            assert self.calls.getTransferStatus(self.handle, batch, ctypes.c_size_t(0), ctypes.byref(state)) == 0
        assert self.calls.freeBatchID(self.handle, batch) == 0
        return state.status

    def close(self) -> None:
        self.calls.destroyTransferEngine(self.handle)


def test_engines_are_opened_by_their_names_in_a_directory(calls: ctypes.CDLL, server: bytes):
    here, there = Engine(calls, server, b"prefill-0"), Engine(calls, server, b"decode-0")
    segment = here.open(b"decode-0")
    assert segment >= 1
    assert here.open(b"decode-0", cached=False) == segment
    assert here.write(segment, there, 7) == COMPLETED
    assert there.buffer.raw == b"\7" * 4096
    assert here.open(b"decode-1") == -101
    here.close()
    there.close()


def test_a_name_that_is_no_address_says_nothing_of_the_port(calls: ctypes.CDLL, server: bytes):
    for name in (b"rank:1234567", b"rank:99999999999999999999", b"rank:8000/0"):
        here = Engine(calls, server, name)
        assert here.open(name) >= 1
        here.close()


def test_a_name_may_be_an_address_and_then_says_where_to_listen(calls: ctypes.CDLL, server: bytes):
    here, there = Engine(calls, server, b"127.0.0.1", b""), Engine(calls, server, b"127.0.0.2:0", b"")
    text = ctypes.create_string_buffer(64)
    assert calls.getLocalIpAndPort(there.handle, text, ctypes.c_size_t(64)) == 0
    assert text.value.startswith(b"127.0.0.2:")
    assert here.open(b"127.0.0.2:0") >= 1
    here.close()
    there.close()


def test_the_name_is_looked_up_again_where_nothing_may_be_cached(calls: ctypes.CDLL, server: bytes):
    here, first = Engine(calls, server, b"here"), Engine(calls, server, b"there")
    segment = here.open(b"there")
    links = ctypes.create_string_buffer(65536)
    assert calls.showLinks(here.handle, links, ctypes.c_size_t(len(links)), 1) == 0
    if b'"peer":"' not in links.value:
        pytest.skip("mc_peer_explain doesn't say where a peer was found")
    second = Engine(calls, server, b"there")  # the name leads to it now; the first one is alive
    assert here.open(b"there") == segment
    fresh = here.open(b"there", cached=False)
    assert fresh > segment
    assert here.open(b"there") == fresh
    assert here.write(fresh, second, 1) == COMPLETED
    assert here.write(segment, first, 2) == COMPLETED
    assert (first.buffer.raw[:1], second.buffer.raw[:1]) == (b"\2", b"\1")
    for engine in (here, first, second):
        engine.close()


def test_a_peer_that_was_restarted_elsewhere_is_found_under_its_name(calls: ctypes.CDLL, server: bytes):
    here, old = Engine(calls, server, b"here"), Engine(calls, server, b"there")
    segment = here.open(b"there")
    old.close()
    new = Engine(calls, server, b"there")
    fresh = here.open(b"there")
    assert fresh > segment
    assert here.write(fresh, new, 3) == COMPLETED
    assert new.buffer.raw[:1] == b"\3"
    here.close()
    new.close()
