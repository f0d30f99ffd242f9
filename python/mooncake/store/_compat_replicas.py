"""Where objects are: the reference's descriptors of replicas, and the methods of MooncakeDistributedStore on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn, Optional

from .._native import ffi, lib
from . import _calls
from ._compat_base import CompatibleBase
from ._compat_values import ReplicaStatus, log, text_of
from ._keys import Key, keys_bytes

__all__ = ["Descriptor", "DiskDescriptor", "MemoryDescriptor", "ReplicaDescriptor", "ReplicaMethods"]


class Descriptor:
    """A replica's memory. size: of the value. buffer_address: of the value in its segment, from its beginning.
    transport_endpoint: "host:port" of the owner. segment: its name."""

    __slots__ = ("buffer_address", "segment", "size", "transport_endpoint")

    def __init__(self, size: int = 0, buffer_address: int = 0, transport_endpoint: str = "", segment: str = "") -> None:
        self.size = size
        self.buffer_address = buffer_address
        self.transport_endpoint = transport_endpoint
        self.segment = segment

    def __repr__(self) -> str:
        return f"<Descriptor of {self.size} bytes in {self.segment!r} at {self.transport_endpoint}>"


class MemoryDescriptor:
    """A replica in memory: buffer_descriptor."""

    __slots__ = ("buffer_descriptor",)

    def __init__(self, buffer_descriptor: Optional[Descriptor] = None) -> None:
        self.buffer_descriptor = buffer_descriptor or Descriptor()


class DiskDescriptor:
    """A replica on a disk, of which there are none. file_path, object_size."""

    __slots__ = ("file_path", "object_size")

    def __init__(self) -> None:
        self.file_path = ""
        self.object_size = 0


class ReplicaDescriptor:
    """A replica: its status, and where it is. All are in memory."""

    __slots__ = ("_memory", "status")

    def __init__(self, memory: Optional[MemoryDescriptor] = None) -> None:
        self._memory = memory or MemoryDescriptor()
        self.status = ReplicaStatus.COMPLETE

    def is_memory_replica(self) -> bool:
        """True."""
        return True

    def is_disk_replica(self) -> bool:
        """False."""
        return False

    def is_local_disk_replica(self) -> bool:
        """False."""
        return False

    def get_memory_descriptor(self) -> MemoryDescriptor:
        """Where in memory it is."""
        return self._memory

    def get_disk_descriptor(self) -> NoReturn:
        """RuntimeError: it is on no disk."""
        raise RuntimeError("the replica is in memory, not on a disk")


def _text(chars: object) -> str:
    words: bytes = ffi.string(chars)
    return words.decode("utf-8", "replace")


class ReplicaMethods(CompatibleBase):
    """What the master says may be out of date when it comes."""

    def get_replica_desc(self, key: Key) -> list[ReplicaDescriptor]:
        """The replicas of the object; none if it isn't there."""
        return next(iter(self._replicas("get_replica_desc", keys_bytes([key]))))

    def batch_get_replica_desc(self, keys: list[Key]) -> dict[str, list[ReplicaDescriptor]]:
        """The replicas of each object that is there."""
        found = self._replicas("batch_get_replica_desc", keys_bytes(keys))
        names = [key if isinstance(key, str) else key.decode("utf-8", "surrogateescape") for key in keys]
        return {name: replicas for name, replicas in zip(names, found) if replicas}

    def batch_replica_clear(self, keys: list[Key], segment_name: str = "") -> list[str]:
        """Removes objects, with a segment's name those that have all of their replicas there; the keys of those that
        were removed."""
        text_of(segment_name, "segment_name")
        wanted = keys_bytes(keys)
        names = [key if isinstance(key, str) else key.decode("utf-8", "surrogateescape") for key in keys]
        if segment_name:
            found = self._replicas("batch_replica_clear", wanted)
            there = [
                bool(replicas)
                and all(each.get_memory_descriptor().buffer_descriptor.segment == segment_name for each in replicas)
                for replicas in found
            ]
            for name, replicas, inside in zip(names, found, there):
                if replicas and not inside:
                    log("info", "batch_replica_clear: %r has replicas elsewhere, and stays", name)
            wanted = [key for key, inside in zip(wanted, there) if inside]
            names = [name for name, inside in zip(names, there) if inside]
        if not wanted:
            return []
        results = self._batch(
            "batch_replica_clear", wanted, lambda handle, error: _calls.remove_batch(handle, wanted, 0, error)
        )
        return [name for name, result in zip(names, results) if result == 0]

    def _replicas(self, what: str, keys: Sequence[bytes]) -> list[list[ReplicaDescriptor]]:
        """Of each key, its replicas."""
        most: int = lib.MC_REPLICAS_MAX
        cells = ffi.new("struct mc_replica[]", len(keys) * most)
        counts = self._batch(
            what, keys, lambda handle, error: _calls.replicas_batch(handle, keys, cells, most, 0, error)
        )
        return [
            [
                ReplicaDescriptor(
                    MemoryDescriptor(Descriptor(cell.length, cell.offset, _text(cell.address), _text(cell.segment)))
                )
                for cell in (cells[index * most + k] for k in range(max(count, 0)))
            ]
            for index, count in enumerate(counts)
        ]
