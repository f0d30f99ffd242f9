"""Memory that peers can reach: allocated by the library, or any buffer of the caller.

A Memory owns its pages until it is freed or forgotten; views of it keep the pages alive. Not bound to an engine.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Optional, Union

from .._errors import error_for
from .._native import Unique, check, ffi, lib, new_error

__all__ = ["Buffer", "Memory", "Span", "alloc", "load_bytes", "span_of", "store_bytes"]

Buffer = Any
"""Any object with a contiguous buffer: bytearray, memoryview, array, mmap, numpy array …"""


class Memory(Unique):
    """`size` bytes of zeroed, page-aligned host memory that other processes of this host can map.

    address: where it begins; size: in bytes; view: a writable memoryview of all of it.
    huge: of huge pages; numa_node: on that node of the machine.
    errors.InvalidArgument for size 0 or a node that isn't there, errors.NoMemory when there isn't so much (also of huge
    pages, or on the node), errors.NotSupported where the system has no such pages.
    """

    __slots__ = ("__weakref__", "_id", "_pointer", "_view", "address", "size")

    address: int
    size: int

    def __init__(self, size: int, huge: bool = False, numa_node: Optional[int] = None) -> None:
        self._pointer: Any = None
        self._view: Any = None
        ids, addresses, error = ffi.new("uint64_t *"), ffi.new("void **"), new_error()
        options = ffi.new("struct mc_memory_options *")
        options.struct_size = ffi.sizeof("struct mc_memory_options")
        options.flags = lib.MC_MEMORY_HUGE if huge else 0
        if numa_node is not None:
            options.flags |= lib.MC_MEMORY_NUMA
            try:
                options.numa_node = numa_node
            except OverflowError:
                raise ValueError(f"a NUMA node is a number from 0 on, not {numa_node}") from None
        try:
            check(lib.mc_memory_alloc(size, options, ids, addresses, error), error)
        except OverflowError:
            raise ValueError(f"a size is a number of bytes below 2**64, not {size}") from None
        self._id: int = ids[0]
        self._pointer = ffi.gc(ffi.cast("char *", addresses[0]), _Free(self._id))
        self.address = int(ffi.cast("uintptr_t", addresses[0]))
        self.size = size

    @property
    def view(self) -> memoryview:
        """A writable memoryview of the whole. It keeps the pages alive, and free() refuses while one exists."""
        if self._pointer is None:
            raise ValueError("the memory is freed")
        buffer = self._view and self._view()
        if buffer is None:
            buffer = ffi.buffer(self._pointer, self.size)
            self._view = weakref.ref(buffer)
        return memoryview(buffer)

    def free(self) -> None:
        """Gives the pages back; a second call does nothing. errors.Busy while an engine has part of it registered,
        BufferError while views exist."""
        if self._pointer is None:
            return
        if self._view is not None and self._view() is not None:
            raise BufferError("views of the memory exist")
        status = lib.mc_memory_free(self._id)
        if status == lib.MC_ERR_BUSY:
            raise error_for(status, "an engine has part of the memory registered: unregister it first")
        check(status)
        ffi.gc(self._pointer, None)
        self._pointer = None

    def __len__(self) -> int:
        return self.size

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exception: object) -> None:
        self.free()

    def __repr__(self) -> str:
        state = "freed" if self._pointer is None else f"at {self.address:#x}"
        return f"<mooncake.engine.Memory of {self.size} bytes {state}>"


class _Free:
    """What becomes of pages that nobody free()d: given back with the last reference to them."""

    __slots__ = ("_id",)

    def __init__(self, identifier: int) -> None:
        self._id = identifier

    def __call__(self, pointer: Any) -> None:
        lib.mc_memory_free(self._id)


def alloc(size: int, huge: bool = False, numa_node: Optional[int] = None) -> Memory:
    """Memory(…): `size` bytes, a number above 0, that processes of this host can map."""
    return Memory(size, huge, numa_node)


Span = Union[int, Memory, Buffer]
"""The local end of a transfer: an address, a Memory, or any object with a contiguous buffer."""


def span_of(span: Span, length: Optional[int] = None, *, writable: bool = False) -> tuple[int, int, Any]:
    """(address, length, what must stay alive meanwhile). A given length may cut a buffer, never exceed it."""
    if isinstance(span, int):
        if length is None:
            raise TypeError("an address needs a length")
        return span, length, None
    if isinstance(span, Memory):
        if span._pointer is None:  # pyright: ignore[reportPrivateUsage]
            raise ValueError("the memory is freed")
        address, size, keep = span.address, span.size, span
    else:
        keep = ffi.from_buffer("char[]", span, require_writable=writable)
        address, size = int(ffi.cast("uintptr_t", keep)), len(keep)
    if length is None:
        length = size
    elif not 0 <= length <= size:
        raise ValueError(f"length {length} does not fit a buffer of {size} bytes")
    return address, length, keep


def _scratch() -> int:
    return os.memfd_create("mooncake-copy", os.MFD_CLOEXEC)


def store_bytes(address: int, data: bytes) -> None:
    """Copies data to an address. The kernel does it, so that a wrong address is a ValueError instead of a crash."""
    descriptor = _scratch()
    try:
        os.write(descriptor, data)
        if os.preadv(descriptor, [ffi.buffer(ffi.cast("char *", address), len(data))], 0) != len(data):
            raise OSError
    except OSError:
        raise ValueError(f"no {len(data)} writable bytes at {address:#x}") from None
    finally:
        os.close(descriptor)


def load_bytes(address: int, length: int) -> bytes:
    """Copies `length` bytes from an address, as store_bytes does."""
    descriptor = _scratch()
    try:
        if os.writev(descriptor, [ffi.buffer(ffi.cast("char *", address), length)]) != length:
            raise OSError
        return os.pread(descriptor, length, 0)
    except (OSError, OverflowError):
        raise ValueError(f"no {length} readable bytes at {address:#x}") from None
    finally:
        os.close(descriptor)
