"""SharedSegment: one span of memory that all ranks of a host map, made by one of them.

The owner makes a file in /dev/shm, of its user alone; the others learn its name by the blobs that the ranks exchange.
Each rank that has mapped it counts itself in the file's last page, under the file's lock, and the last one removes the
name: nothing is left when the processes end. If a rank never comes, the owner removes the name when it lets go.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from errno import ENOSPC
from operator import index
from typing import Any, NamedTuple, Optional, Union

from .._native import Unique, ffi
from ._compat_values import log, text_of

__all__ = ["SharedSegment"]

_FOLDER = "/dev/shm"
_FILE = re.compile(r"mooncake-[A-Za-z0-9_.-]{1,128}-[0-9a-f]{32}")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_WORLD_MAX = 4096
_SIZE_MAX = 1 << 47

# A blob: magic, version, world size, rank, owner's rank, size, then the segment's name and, of the owner, the file's.
_HEAD = struct.Struct("<4sIIIIQBB")
_MAGIC, _VERSION = b"MSEG", 1
_MAPPED = struct.Struct("<Q")  # how many ranks have mapped it, at the beginning of the last page


class _Blob(NamedTuple):
    world_size: int
    rank: int
    owner: int
    size: int
    name: str
    file: str


def _pack(blob: _Blob) -> bytes:
    name, file = blob.name.encode(), blob.file.encode()
    return _HEAD.pack(_MAGIC, _VERSION, *blob[:4], len(name), len(file)) + name + file


def _parse(data: Union[bytes, str]) -> _Blob:
    """ValueError if the bytes are no blob. A str is one whose bytes somebody decoded as latin-1."""
    data = data.encode("latin-1") if isinstance(data, str) else bytes(memoryview(data))
    if len(data) < _HEAD.size:
        raise ValueError("a blob is cut short")
    magic, version, world_size, rank, owner, size, name_length, file_length = _HEAD.unpack_from(data)
    if magic != _MAGIC or version != _VERSION or len(data) != _HEAD.size + name_length + file_length:
        raise ValueError("a blob is none of a SharedSegment")
    text = data[_HEAD.size :].decode("ascii", "replace")
    blob = _Blob(world_size, rank, owner, size, text[:name_length], text[name_length:])
    if _NAME.fullmatch(blob.name) is None or bool(blob.file) != (rank == owner):
        raise ValueError("a blob has a wrong name")
    if blob.file and _FILE.fullmatch(blob.file) is None:
        raise ValueError("a blob names no file of a SharedSegment")
    return blob


class SharedSegment(Unique):
    """`size` bytes of zeroed memory of one owner that all ranks map. Every rank calls create(), the ranks exchange the
    blobs that it gives, and every rank calls complete() with all of them. ValueError for what doesn't fit."""

    def __init__(self) -> None:
        self._blob: Optional[_Blob] = None
        self._descriptor = -1
        self._map: Any = None
        self._address = 0

    @staticmethod
    def supported(mmap: bool = True, host_register: bool = False) -> bool:
        """Whether create() takes these: host memory, shared and not registered with a device."""
        return bool(mmap) and not host_register and os.path.isdir(_FOLDER)

    @staticmethod
    def create(
        name: str,
        size: int,
        world_size: int,
        rank_id: int,
        owner_rank: int = 0,
        device_id: int = 0,
        mmap: bool = True,
        host_register: bool = False,
    ) -> tuple[SharedSegment, bytes]:
        """This rank's part, and the blob that the other ranks need of it.

        name: letters, digits, "_", "." and "-"; device_id has no effect. NotImplementedError for what supported() says
        no to, OSError if there isn't so much memory.
        """
        if not SharedSegment.supported(mmap, host_register):
            raise NotImplementedError("a SharedSegment is of host memory, mapped and not registered with a device")
        if _NAME.fullmatch(text_of(name, "name")) is None:
            raise ValueError(f"a name has 1 to 128 letters, digits, '_', '.' and '-', not {name!r}")
        size, world_size, rank_id, owner_rank = map(index, (size, world_size, rank_id, owner_rank))
        if not 0 < size <= _SIZE_MAX:
            raise ValueError(f"a size is a number of bytes above 0, not {size!r}")
        if not 0 < world_size <= _WORLD_MAX or not 0 <= rank_id < world_size or not 0 <= owner_rank < world_size:
            raise ValueError(
                f"rank {rank_id} and owner {owner_rank} of {world_size}: at most {_WORLD_MAX} ranks, from 0"
            )
        segment = SharedSegment()
        file = f"mooncake-{name}-{os.urandom(16).hex()}" if rank_id == owner_rank else ""
        segment._blob = _Blob(world_size, rank_id, owner_rank, size, name, file)
        if file:
            segment._make()
        return segment, _pack(segment._blob)

    def complete(self, blobs: Sequence[Union[bytes, str]]) -> None:
        """Maps the segment. blobs: those of all ranks, in any order; this rank's too. A str is the bytes as latin-1."""
        mine = self._blob
        if mine is None or self._map is not None:
            raise ValueError("a segment is completed once, after create()")
        parsed = [_parse(blob) for blob in blobs]
        if any(blob[0] != mine[0] or blob[2:5] != mine[2:5] for blob in parsed):
            raise ValueError("a blob is of another segment, or of another size or owner")
        if sorted(blob.rank for blob in parsed) != list(range(mine.world_size)):
            raise ValueError(f"{len(parsed)} blobs are not one of each of {mine.world_size} ranks")
        owner = next(blob for blob in parsed if blob.file)
        if mine.file and owner.file != mine.file:
            raise ValueError("a blob is of another segment of the same name")
        if self._descriptor < 0:
            self._open(owner.file)
        self._map_it(f"{_FOLDER}/{owner.file}")

    def ready(self) -> bool:
        """Whether this rank has mapped it."""
        return self._map is not None

    def base_addr(self) -> int:
        """Where it begins in this process; 0 before complete(). Its memory may be registered with an engine."""
        return self._address

    def device_addr(self) -> int:
        """0: no device has mapped it."""
        return 0

    def size(self) -> int:
        """In bytes."""
        return 0 if self._blob is None else self._blob.size

    def close(self) -> None:
        """Unmaps it. BufferError while views of it exist; a second call does nothing."""
        if self._map is not None:
            self._map.close()
            self._map, self._address = None, 0
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._blob is not None and self._blob.file:
            try:
                os.unlink(f"{_FOLDER}/{self._blob.file}")
            except OSError:
                pass  # all ranks have mapped it, and the last one removed the name
        self._blob = None

    def __del__(self) -> None:
        try:
            self.close()
        except BufferError:
            pass  # the view keeps the memory

    def _make(self) -> None:
        """The owner's file, with all its memory."""
        assert self._blob is not None
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(f"{_FOLDER}/{self._blob.file}", flags, 0o600)
        room = os.fstatvfs(self._descriptor)
        if self._length() > room.f_bavail * room.f_frsize:  # asked first: it takes long to fail
            raise OSError(ENOSPC, os.strerror(ENOSPC), _FOLDER)
        os.posix_fallocate(self._descriptor, 0, self._length())

    def _open(self, file: str) -> None:
        """The file of another rank; ValueError if it isn't what the blobs say."""
        descriptor = os.open(f"{_FOLDER}/{file}", os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_size != self._length() or found.st_mode & 0o177777 != 0o100600:
            os.close(descriptor)
            raise ValueError(f"{file} is not the segment that its owner made")
        self._descriptor = descriptor

    def _map_it(self, file: str) -> None:
        import fcntl
        import mmap

        assert self._blob is not None
        mapped = mmap.mmap(self._descriptor, self._blob.size)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            place = self._length() - mmap.PAGESIZE
            count = _MAPPED.unpack(os.pread(self._descriptor, _MAPPED.size, place))[0] + 1
            if count > self._blob.world_size:
                raise ValueError(f"{file} is not the segment that its owner made")
            os.pwrite(self._descriptor, _MAPPED.pack(count), place)
            if count == self._blob.world_size:
                try:
                    os.unlink(file)
                except OSError as error:
                    log("warning", "SharedSegment: %s", error)
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # the map has a descriptor too, which would keep it
        os.close(self._descriptor)
        self._descriptor = -1
        self._map = mapped
        self._address = int(ffi.cast("uintptr_t", ffi.from_buffer(mapped)))

    def _length(self) -> int:
        """Of the file: the segment in whole pages, and one to count in."""
        import mmap

        assert self._blob is not None
        return (self._blob.size + mmap.PAGESIZE - 1) // mmap.PAGESIZE * mmap.PAGESIZE + mmap.PAGESIZE
