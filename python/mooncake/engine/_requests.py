"""Requests, and how many of them become one packed array: columns in C speed, no Python loop per field."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from .._native import ffi, lib
from ._memory import Span, span_of

if TYPE_CHECKING:
    from ._peer import Peer

__all__ = [
    "OUT_OF_RANGE",
    "READ",
    "WRITE",
    "Column",
    "Request",
    "as_bytes",
    "pack_columns",
    "pack_one",
    "pack_requests",
    "words",
]

OUT_OF_RANGE = "addresses and lengths are integers from 0 to 2**64 - 1"

READ: int = lib.MC_READ
WRITE: int = lib.MC_WRITE
_GUARD: int = lib.MC_REQUEST_GUARD
_CHECKSUM: int = lib.MC_REQUEST_CHECKSUM

# struct mc_request as 64-bit words: peer, opcode and flags, local, remote, length, guard address, guard value.
_WORDS: int = ffi.sizeof("struct mc_request") // 8
_ONE = struct.Struct("=QIIQQQQQ")
_OPCODE_SHIFT, _FLAGS_SHIFT = (0, 32) if sys.byteorder == "little" else (32, 0)

Column = Any
"""64-bit integers: an array, a numpy array or another buffer of them, or any iterable of int."""


class Request(NamedTuple):
    """One transfer of a batch.

    opcode: READ (peer to local) or WRITE (local to peer); local: a buffer, a Memory or an address; remote: the peer's
    virtual address; length: in bytes, may be left out where `local` has one; guard: (address, value) of a 64-bit word
    of the peer that must hold the value before the first byte and after the last; checksum: the status is to have the
    CRC32C of the bytes, taken while they are copied.
    """

    peer: Peer
    opcode: int
    local: Span
    remote: int
    length: Optional[int] = None
    guard: Optional[tuple[int, int]] = None
    checksum: bool = False


def as_bytes(value: Union[str, bytes]) -> bytes:
    """A text as UTF-8, or what has a buffer as bytes."""
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))


def words(values: Column) -> array[int]:
    """A column of unsigned 64-bit words. TypeError for anything but integers, ValueError out of range."""
    kind: Any = type(values)  # pyright: ignore[reportUnknownVariableType]
    if kind is array and values.typecode == "Q":
        return values
    if kind in (str, bytes, bytearray):
        raise TypeError(f"a sequence of integers is needed, not {kind.__name__}")
    if kind not in (list, tuple, range):
        try:
            return _words_of(memoryview(values))
        except (TypeError, NotImplementedError):  # no buffer of numbers: an iterable, or array() says what is wrong
            pass
    try:
        return array("Q", values)
    except OverflowError:
        raise ValueError(OUT_OF_RANGE) from None


def _words_of(view: memoryview) -> array[int]:
    """A column from a buffer: copied as it is if it has 64-bit integers, one by one otherwise."""
    if view.ndim != 1:
        raise ValueError(f"a column has one dimension, not {view.ndim}")
    if view.format not in ("Q", "L", "N", "q", "l", "n") or view.itemsize != 8:
        return words(view.tolist())
    column = array("Q")
    column.frombytes(view.tobytes())
    if view.format.islower() and max(column, default=0) >> 63:
        raise ValueError(OUT_OF_RANGE)
    return column


def pack_one(
    peer: int,
    opcode: int,
    local: int,
    remote: int,
    length: int,
    guard: Optional[tuple[int, int]] = None,
    flags: int = 0,
) -> bytes:
    """One struct mc_request."""
    try:
        if guard is None:
            return _ONE.pack(peer, opcode, flags, local, remote, length, 0, 0)
        return _ONE.pack(peer, opcode, flags | _GUARD, local, remote, length, guard[0], guard[1])
    except struct.error:
        for value in (local, remote, length, *(guard or ())):
            if not hasattr(value, "__index__"):
                raise TypeError(f"addresses and lengths are integers, not {type(value).__name__}") from None
        raise ValueError(OUT_OF_RANGE) from None


def pack_columns(
    peer: int, opcode: int, local: array[int], remote: array[int], length: array[int], flags: int = 0
) -> array[int]:
    """As many requests as the columns are long; they must be equally long."""
    if not 0 <= opcode < 2**32:  # above that it would be flags
        raise ValueError(f"no opcode {opcode}")
    count = len(local)
    packed = array("Q", bytes(count * _WORDS * 8))
    packed[0::_WORDS] = array("Q", (peer,)) * count
    packed[1::_WORDS] = array("Q", (opcode << _OPCODE_SHIFT | flags << _FLAGS_SHIFT,)) * count
    packed[2::_WORDS] = local
    packed[3::_WORDS] = remote
    packed[4::_WORDS] = length
    return packed


def pack_requests(requests: Iterable[Request]) -> tuple[bytes, list[Any]]:
    """The packed array and what must stay alive until the batch is terminal."""
    parts: list[bytes] = []
    keep: list[Any] = []
    for peer, opcode, local, remote, length, guard, checksum in requests:
        address, size, owner = span_of(local, length, writable=opcode == READ)
        parts.append(pack_one(peer.id, opcode, address, remote, size, guard, _CHECKSUM if checksum else 0))
        if owner is not None:
            keep.append(owner)
    return b"".join(parts), keep
