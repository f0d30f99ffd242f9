"""SharedSegment: one span of memory that all ranks of a host map."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mooncake.engine import Access, Engine, SharedSegment

SIZE = 100_000


def files(name: str) -> list[str]:
    return [file for file in os.listdir("/dev/shm") if name in file]


@pytest.fixture
def name() -> str:
    return f"test-{os.getpid()}-{os.urandom(4).hex()}"


def ranks(name: str, count: int, owner: int = 0, size: int = SIZE) -> tuple[list[SharedSegment], list[bytes]]:
    made = [SharedSegment.create(name, size, count, rank, owner) for rank in range(count)]
    return [segment for segment, _ in made], [blob for _, blob in made]


def complete(segment: SharedSegment, blobs: list[bytes]) -> None:
    segment.complete(blobs)


def test_what_one_rank_writes_all_others_see(name: str) -> None:
    segments, blobs = ranks(name, 3, owner=1)
    assert len(files(name)) == 1
    for segment in segments:
        assert not segment.ready()
        assert (segment.base_addr(), segment.device_addr(), segment.size()) == (0, 0, SIZE)
        complete(segment, blobs[::-1])
        assert segment.ready()
    assert files(name) == [], "its name is gone when all have mapped it"
    assert len({segment.base_addr() for segment in segments}) == 3
    assert ctypes.string_at(segments[0].base_addr(), SIZE) == bytes(SIZE)
    ctypes.memmove(segments[0].base_addr() + SIZE - 5, b"hello", 5)
    assert ctypes.string_at(segments[2].base_addr() + SIZE - 5, 5) == b"hello"


def test_it_can_be_registered_with_an_engine(name: str) -> None:
    (segment,), blobs = ranks(name, 1)
    complete(segment, blobs)
    with Engine() as engine, engine.connect(engine.address) as peer:
        region = engine.register(segment.base_addr(), SIZE, access=Access.BOTH)
        peer.write(segment.base_addr(), segment.base_addr() + 1000, 8)
        region.unregister()


RANK = """
import ctypes, sys
from mooncake.engine import SharedSegment
segment, blob = SharedSegment.create(sys.argv[1], int(sys.argv[2]), 2, 1)
print(blob.hex(), flush=True)
segment.complete([bytes.fromhex(sys.stdin.readline()), blob])
print(ctypes.string_at(segment.base_addr(), 5).decode(), flush=True)
ctypes.memmove(segment.base_addr(), b"reply", 5)
print("done", flush=True)
"""


def test_processes_share_it(name: str) -> None:
    segment, blob = SharedSegment.create(name, SIZE, 2, 0)
    command = [sys.executable, "-c", RANK, name, str(SIZE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        complete(segment, [blob, bytes.fromhex(other.stdout.readline())])
        ctypes.memmove(segment.base_addr(), b"hello", 5)
        other.stdin.write(blob.hex() + "\n")
        other.stdin.flush()
        assert other.stdout.readline() == "hello\n"
        assert other.stdout.readline() == "done\n"
        assert other.wait(10) == 0
    assert ctypes.string_at(segment.base_addr(), 5) == b"reply"
    assert files(name) == []


def test_a_rank_that_never_comes_leaves_nothing_behind(name: str) -> None:
    segments, blobs = ranks(name, 2)
    complete(segments[0], blobs)
    assert len(files(name)) == 1
    segments[0].close()
    segments[0].close()
    assert files(name) == []
    with pytest.raises(OSError, match="No such file"):
        complete(segments[1], blobs)
    segment, _ = SharedSegment.create(name, SIZE, 2, 0)
    assert len(files(name)) == 1
    del segment
    gc.collect()
    assert files(name) == []


def test_blobs_that_do_not_fit_are_refused(name: str) -> None:
    segments, blobs = ranks(name, 2)
    _, other = ranks(name + "x", 2)
    _, larger = ranks(name, 2, size=SIZE + 1)
    _, again = ranks(name, 2)
    mine = segments[1]
    for wrong in (
        [], blobs[:1], [blobs[0]] * 2, blobs + blobs[:1], [other[0], blobs[1]], [larger[0], blobs[1]], [b"", blobs[1]],
        [blobs[0][:-1], blobs[1]], [blobs[0] + b"x", blobs[1]], [b"x" * 40, blobs[1]],
        [blobs[0].replace(b"mooncake-", b"/etc/../x"), blobs[1]],
    ):  # fmt: skip
        with pytest.raises(ValueError):  # noqa: PT011 - the words differ
            complete(mine, wrong)
    with pytest.raises(ValueError, match="of another segment"):
        complete(segments[0], [again[0], again[1]])
    assert not mine.ready()
    complete(mine, blobs)
    with pytest.raises(ValueError, match="once"):
        complete(mine, blobs)
    with pytest.raises(ValueError, match="once"):
        complete(SharedSegment(), blobs)


def test_a_file_that_is_not_the_owner_s_is_refused(name: str) -> None:
    segments, blobs = ranks(name, 2)
    (file,) = files(name)
    path = Path("/dev/shm", file)
    path.chmod(0o644)
    with pytest.raises(ValueError, match="not the segment"):
        complete(segments[1], blobs)
    path.chmod(0o600)
    with path.open("r+b") as opened:
        opened.truncate(10)
    with pytest.raises(ValueError, match="not the segment"):
        complete(segments[1], blobs)
    size = (SIZE + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE + mmap.PAGESIZE
    path.write_bytes(bytes(size - mmap.PAGESIZE) + b"\xff" * mmap.PAGESIZE)  # so many ranks are there already
    for _ in range(2):  # the first one leaves the lock
        with pytest.raises(ValueError, match="not the segment"):
            complete(segments[1], blobs)
        segments[1] = SharedSegment.create(name, SIZE, 2, 1)[0]
    path.unlink()
    path.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="Too many levels"):
        complete(segments[1], blobs)
    segments[0].close()


def test_create_says_what_it_does_not_take(name: str) -> None:
    assert SharedSegment.supported()
    assert not SharedSegment.supported(mmap=False)
    assert not SharedSegment.supported(host_register=True)
    with pytest.raises(NotImplementedError):
        SharedSegment.create(name, SIZE, 1, 0, host_register=True)
    for wrong in ("", "a/b", "..\0", "x" * 129, "a b"):
        with pytest.raises(ValueError, match="a name has"):
            SharedSegment.create(wrong, SIZE, 1, 0)
    for size in (0, -1, 1 << 60):
        with pytest.raises(ValueError, match="size"):
            SharedSegment.create(name, size, 1, 0)
    for world, rank, owner in ((0, 0, 0), (1, 1, 0), (2, 0, 2), (2, -1, 0), (5000, 0, 0)):
        with pytest.raises(ValueError, match="ranks"):
            SharedSegment.create(name, SIZE, world, rank, owner)
    with pytest.raises(TypeError):
        SharedSegment.create(7, SIZE, 1, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        SharedSegment.create(name, SIZE, 1.5, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        complete(SharedSegment.create(name, SIZE, 1, 0)[0], [1 << 50])  # type: ignore[list-item]
    with pytest.raises(OSError, match="No space"):
        SharedSegment.create(name, 1 << 46, 1, 0)
    gc.collect()
    assert files(name) == []
