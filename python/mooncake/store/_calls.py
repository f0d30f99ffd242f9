"""The calls of the library in the form that both interfaces use: handles and bytes in, statuses and values out.

Nothing here raises for a status. A batch gives one result per item, in order, in parts as large as the library takes;
where a whole call fails, its status is the result of all of its items. Each call releases the GIL, and the library
copies values straight into the object that the caller gets.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from time import monotonic_ns
from typing import Any, Callable, Optional, Union

from .._native import ffi, lib, new_error
from ._keys import PackedKeys
from ._pieces import Pieces

__all__ = [
    "exists_batch",
    "get_at",
    "get_batch",
    "get_pieces",
    "list_page",
    "put_batch",
    "put_begin",
    "put_end",
    "put_pieces",
    "put_revoke",
    "put_write",
    "read_batch",
    "read_many",
    "read_value",
    "remove_batch",
    "replicas_batch",
    "size_batch",
    "view_many",
    "view_value",
]

TOO_SMALL: int = lib.MC_ERR_BUFFER_TOO_SMALL
_PART: int = lib.MC_STORE_BATCH_MAX
_SMALL = 64 << 10  # values up to here are read in one call, through a buffer that is kept
_KEPT = 8
_TYPES = {"i": ffi.typeof("int32_t[]"), "q": ffi.typeof("int64_t[]")}
_UNSET = {"i": -(2**31), "q": -(2**63)}  # what no call answers: the item was not reached
_IN_PLACE = sys.implementation.name == "cpython"  # the memory of a bytes object can be filled before it is shown

_HINT_MAX = 16 << 20

_buffers: list[Any] = []
_hint = [0]  # the length of the value that was read last, if it was large: blocks are mostly of one size


def _parts(count: int) -> Iterable[slice]:
    return (slice(start, min(start + _PART, count)) for start in range(0, count, _PART))


def _run(
    keys: Sequence[bytes], kind: str, call: Callable[[slice, Any, Any], int], parts: Optional[Iterable[slice]] = None
) -> list[int]:
    """The column of results of a batch call(part, keys, column), which may take several calls."""
    results: list[int] = []
    unset = _UNSET[kind]
    for part in _parts(len(keys)) if parts is None else parts:
        packed = PackedKeys(keys if part == slice(0, len(keys)) else keys[part])
        column = array(kind, (unset,)) * packed.count
        status = call(part, packed.cell, ffi.from_buffer(_TYPES[kind], column))
        if status < 0 and unset in column:
            column = array(kind, [status if result == unset else result for result in column])
        results += column
    return results


# ---- Writing


def put_batch(
    handle: Any, keys: Sequence[bytes], addresses: array[int], lengths: array[int], options: Any, error: Any
) -> list[int]:
    """Puts lengths[i] bytes at addresses[i] under key i."""

    def call(part: slice, packed: Any, column: Any) -> int:
        values = ffi.from_buffer("void *[]", addresses[part])
        sizes = ffi.from_buffer("uint64_t[]", lengths[part])
        return lib.mc_store_put_batch(handle, packed, values, sizes, options, column, error)

    return _run(keys, "i", call)


def put_pieces(handle: Any, keys: Sequence[bytes], pieces: Pieces, options: Any, error: Any) -> list[int]:
    """Puts under key i what its pieces hold."""

    def call(part: slice, packed: Any, column: Any) -> int:
        return lib.mc_store_put_pieces(handle, packed, *pieces.cells(part), options, column, error)

    return _run(keys, "i", call, pieces.parts())


# ---- Puts in steps; ids of puts are a column


def put_begin(
    handle: Any, keys: Sequence[bytes], lengths: array[int], options: Any, puts: array[int], error: Any
) -> list[int]:
    """The status of each; its id goes to puts[i]."""
    ids = ffi.from_buffer("uint64_t[]", puts)

    def call(part: slice, packed: Any, column: Any) -> int:
        sizes = ffi.from_buffer("uint64_t[]", lengths[part])
        return lib.mc_store_put_begin(handle, packed, sizes, options, ids + part.start, column, error)

    return _run(keys, "i", call)


def _run_puts(
    puts: array[int], kind: str, call: Callable[[Any, int, slice, Any], int], parts: Iterable[slice]
) -> list[int]:
    """The column of results of a batch call(ids, count, part, column)."""
    results: list[int] = []
    for part in parts:
        ids = puts[part]
        column = array(kind, (_UNSET[kind],)) * len(ids)
        status = call(ffi.from_buffer("uint64_t[]", ids), len(ids), part, ffi.from_buffer(_TYPES[kind], column))
        results += [status if result == _UNSET[kind] else result for result in column]
    return results


def put_write(handle: Any, puts: array[int], pieces: Pieces, error: Any) -> list[int]:
    """Writes the pieces at their offsets; how many bytes or a status of each."""
    return _run_puts(
        puts,
        "q",
        lambda ids, count, part, column: lib.mc_store_put_write(
            handle, ids, count, *pieces.cells(part), 0, column, error
        ),
        pieces.parts(),
    )


def put_end(handle: Any, puts: array[int], error: Any) -> list[int]:
    """The status of each."""
    return _run_puts(
        puts,
        "i",
        lambda ids, count, _, column: lib.mc_store_put_end(handle, ids, count, 0, column, error),
        _parts(len(puts)),
    )


def put_revoke(handle: Any, puts: array[int], error: Any) -> list[int]:
    """The status of each."""
    return _run_puts(
        puts,
        "i",
        lambda ids, count, _, column: lib.mc_store_put_revoke(handle, ids, count, column, error),
        _parts(len(puts)),
    )


# ---- Removing


def remove_batch(handle: Any, keys: Sequence[bytes], timeout_ns: int, error: Any) -> list[int]:
    """The status of each."""
    return _run(
        keys, "i", lambda _, packed, column: lib.mc_store_remove_batch(handle, packed, timeout_ns, column, error)
    )


# ---- Asking


def exists_batch(handle: Any, keys: Sequence[bytes], timeout_ns: int, error: Any) -> list[int]:
    """1, 0 or a status of each."""
    return _run(
        keys, "i", lambda _, packed, column: lib.mc_store_exists_batch(handle, packed, timeout_ns, column, error)
    )


def size_batch(handle: Any, keys: Sequence[bytes], timeout_ns: int, error: Any) -> list[int]:
    """The length or a status of each."""
    return _run(keys, "q", lambda _, packed, column: lib.mc_store_size_batch(handle, packed, timeout_ns, column, error))


def replicas_batch(
    handle: Any, keys: Sequence[bytes], cells: Any, capacity: int, timeout_ns: int, error: Any
) -> list[int]:
    """How many replicas or a status of each; `capacity` of them from cells[i * capacity] on."""
    stride = ffi.sizeof("struct mc_replica")

    def call(part: slice, packed: Any, column: Any) -> int:
        first = cells + part.start * capacity
        return lib.mc_store_replicas(handle, packed, timeout_ns, first, capacity, stride, column, error)

    return _run(keys, "i", call)


def list_page(handle: Any, cursor: Any, limit: int, error: Any) -> Union[list[bytes], int]:
    """The keys of the next page, or a status."""
    pages = ffi.new("struct mc_page **")
    status: int = lib.mc_store_list(handle, cursor, limit, 0, pages, error)
    if status < 0:
        return status
    page = pages[0]
    try:
        lengths: list[int] = ffi.unpack(page.lengths, page.count) if page.count else []
        blob: bytes = ffi.buffer(page.bytes, sum(lengths))[:] if page.count else b""
    finally:
        lib.mc_page_free(page)
    keys: list[bytes] = []
    start = 0
    for length in lengths:
        keys.append(blob[start : start + length])
        start += length
    return keys


# ---- Reading

# mc_store_get with the address as an integer: a call costs half without a pointer and an error of its own.
_get_at: Any = ffi.cast(
    "int64_t (*)(mc_store *, const void *, size_t, uintptr_t, uint64_t, uint64_t, struct mc_error *)", lib.mc_store_get
)
_errors: list[Any] = []


def get_at(handle: Any, key: bytes, address: int, capacity: int) -> tuple[int, Any]:
    """The length of the value that was copied to the address, or a status with its error. TypeError or OverflowError
    for numbers that are none."""
    try:
        error = _errors.pop()
    except IndexError:
        error = new_error()
    length: int = _get_at(handle, key, len(key), address, capacity, 0, error)
    if length < 0:
        return length, error
    _errors.append(error)
    return length, None


def get_batch(
    handle: Any, keys: Sequence[bytes], addresses: array[int], capacities: array[int], timeout_ns: int, error: Any
) -> list[int]:
    """Value i to addresses[i]; the length or a status of each."""

    def call(part: slice, packed: Any, column: Any) -> int:
        buffers = ffi.from_buffer("void *[]", addresses[part])
        sizes = ffi.from_buffer("uint64_t[]", capacities[part])
        return lib.mc_store_get_batch(handle, packed, buffers, sizes, timeout_ns, column, error)

    return _run(keys, "q", call)


def get_pieces(
    handle: Any, keys: Sequence[bytes], pieces: Pieces, ranges: bool, timeout_ns: int, error: Any
) -> list[int]:
    """Value i, or with `ranges` the parts of it at their offsets, to its pieces; how many bytes or a status of each."""
    flags = lib.MC_GET_RANGES if ranges else 0

    def call(part: slice, packed: Any, column: Any) -> int:
        return lib.mc_store_get_pieces(handle, packed, *pieces.cells(part), flags, timeout_ns, column, error)

    return _run(keys, "q", call, pieces.parts())


def _blank(size: int) -> Any:
    """An object of at least `size` bytes that nobody else has, for the library to fill. CPython shares bytes objects of
    length 0 and 1 only."""
    return bytes(max(size, 2)) if _IN_PLACE else bytearray(size)


def _filled(blank: Any, length: int) -> bytes:
    return bytes(blank) if len(blank) == length else bytes(blank[:length])


def _read_small(handle: Any, key: bytes, timeout_ns: int, error: Any) -> Union[bytes, int]:
    """The value, or a status: that the buffer was too small among them."""
    try:
        buffer = _buffers.pop()
    except IndexError:
        buffer = ffi.new("char[]", _SMALL)
    length: int = lib.mc_store_get(handle, key, len(key), buffer, _SMALL, timeout_ns, error)
    value: Union[bytes, int] = ffi.unpack(buffer, length) if length >= 0 else length
    if len(_buffers) < _KEPT:
        _buffers.append(buffer)
    return value


def _read_large(handle: Any, key: bytes, size: int, timeout_ns: int, error: Any) -> Union[bytes, int]:
    """The same for a value of probably `size` bytes, copied to where it stays."""
    blank = _blank(size)
    length: int = lib.mc_store_get(handle, key, len(key), ffi.from_buffer("char[]", blank), size, timeout_ns, error)
    return length if length < 0 else _filled(blank, length)


def read_value(handle: Any, key: bytes, timeout_ns: int, error: Any) -> Union[bytes, int]:
    """The value, or a status. One call for a small value, and for one that is as long as the last large one was."""
    end = monotonic_ns() + timeout_ns if timeout_ns else 0
    hint = _hint[0]
    value = _read_large(handle, key, hint, timeout_ns, error) if hint else _read_small(handle, key, timeout_ns, error)
    while isinstance(value, int) and value == TOO_SMALL:  # again where a longer value came between the two calls
        left = max(1, end - monotonic_ns()) if timeout_ns else 0
        size: int = lib.mc_store_size(handle, key, len(key), left, error)
        left = max(1, end - monotonic_ns()) if timeout_ns else 0
        value = size if size < 0 else _read_large(handle, key, size, left, error)
    if not isinstance(value, int) and len(value) != hint:
        _hint[0] = len(value) if _SMALL < len(value) <= _HINT_MAX else 0
    return value


def read_batch(
    handle: Any, keys: Sequence[bytes], timeout_ns: int, error: Any, blank: Callable[[int], Any] = _blank
) -> tuple[list[int], list[Any]]:
    """The length or a status of each, and the objects made by blank(size) with the values in them."""
    results = size_batch(handle, keys, timeout_ns, error)
    objects: list[Any] = [None if size < 0 else blank(size) for size in results]
    wanted = [index for index, size in enumerate(results) if size >= 0]
    while wanted:
        pinned = [ffi.from_buffer("char[]", objects[index]) for index in wanted]
        addresses = array("Q", [int(ffi.cast("uintptr_t", pin)) for pin in pinned])
        capacities = array("Q", [results[index] for index in wanted])
        lengths = get_batch(handle, [keys[index] for index in wanted], addresses, capacities, timeout_ns, error)
        del pinned
        again: list[int] = []
        for index, length in zip(wanted, lengths):
            results[index] = length
            if length == TOO_SMALL:
                again.append(index)
        if again:
            sizes = size_batch(handle, [keys[index] for index in again], timeout_ns, error)
            for index, size in zip(again, sizes):
                results[index] = size
                objects[index] = None if size < 0 else blank(size)
        wanted = [index for index in again if results[index] >= 0]
    return results, objects


def read_many(handle: Any, keys: Sequence[bytes], timeout_ns: int, error: Any) -> list[Union[bytes, int]]:
    """The value or a status of each."""
    results, objects = read_batch(handle, keys, timeout_ns, error)
    return [result if result < 0 else _filled(blank, result) for result, blank in zip(results, objects)]


# ---- Views


class _Release:
    """What becomes of a view that nobody looks at any more."""

    __slots__ = ("_view",)

    def __init__(self, view: int) -> None:
        self._view = view

    def __call__(self, pointer: Any) -> None:
        lib.mc_view_release(self._view)


def _borrow(view: int, data: Any, length: int) -> memoryview:
    """The memory of a view, which is released with the last memoryview on it."""
    if not length:
        lib.mc_view_release(view)
        return memoryview(b"")
    pointer = ffi.gc(ffi.cast("char *", data), _Release(view))
    return memoryview(ffi.buffer(pointer, length)).toreadonly()


def view_value(handle: Any, key: bytes, timeout_ns: int, error: Any) -> Union[memoryview, int]:
    """The value where it is, read-only, or a status."""
    view, data = ffi.new("uint64_t *"), ffi.new("void **")
    length: int = lib.mc_store_view(handle, key, len(key), timeout_ns, view, data, error)
    return length if length < 0 else _borrow(view[0], data[0], length)


def view_many(handle: Any, keys: Sequence[bytes], timeout_ns: int, error: Any) -> list[Union[memoryview, int]]:
    """The value where it is or a status, of each."""
    views, data = ffi.new("uint64_t[]", len(keys)), ffi.new("void *[]", len(keys))

    def call(part: slice, packed: Any, column: Any) -> int:
        start = part.start
        return lib.mc_store_view_batch(handle, packed, timeout_ns, views + start, data + start, column, error)

    lengths = _run(keys, "q", call)
    return [length if length < 0 else _borrow(views[i], data[i], length) for i, length in enumerate(lengths)]
