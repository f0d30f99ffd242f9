"""Requests, and how many of them become one packed array: columns in C speed, no Python loop per field."""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

from .._native import ffi, lib
from ._memory import Span, span_of

if TYPE_CHECKING:
    from ._engine import Peer

__all__ = ["READ", "WRITE", "Request", "pack_columns", "pack_one", "pack_requests", "words"]

READ: int = lib.MC_READ
WRITE: int = lib.MC_WRITE
_GUARD: int = lib.MC_REQUEST_GUARD

# struct mc_request as 64-bit words: peer, opcode and flags, local, remote, length, guard address, guard value.
_WORDS: int = ffi.sizeof("struct mc_request") // 8
_ONE = struct.Struct("=QIIQQQQQ")
_OPCODE_SHIFT = 0 if sys.byteorder == "little" else 32


class Request(NamedTuple):
    """One transfer of a batch.

    opcode: READ (peer to local) or WRITE (local to peer); local: a buffer, a Memory or an address; remote: the peer's
    virtual address; length: in bytes, may be left out where `local` has one; guard: (address, value) of a 64-bit word
    of the peer that must hold the value before the first byte and after the last.
    """

    peer: Peer
    opcode: int
    local: Span
    remote: int
    length: Optional[int] = None
    guard: Optional[tuple[int, int]] = None


def words(values: Iterable[int]) -> array[int]:
    """A column of unsigned 64-bit words. TypeError for anything but integers, ValueError out of range."""
    if isinstance(values, array) and values.typecode == "Q":
        return values
    if isinstance(values, (str, bytes, bytearray)):
        raise TypeError(f"a sequence of integers is needed, not {type(values).__name__}")
    try:
        return array("Q", values)
    except OverflowError:
        raise ValueError("addresses and lengths are integers from 0 to 2**64 - 1") from None


def pack_one(
    peer: int, opcode: int, local: int, remote: int, length: int, guard: Optional[tuple[int, int]] = None
) -> bytes:
    """One struct mc_request."""
    try:
        if guard is None:
            return _ONE.pack(peer, opcode, 0, local, remote, length, 0, 0)
        return _ONE.pack(peer, opcode, _GUARD, local, remote, length, guard[0], guard[1])
    except struct.error:
        for value in (local, remote, length, *(guard or ())):
            if not hasattr(value, "__index__"):
                raise TypeError(f"addresses and lengths are integers, not {type(value).__name__}") from None
        raise ValueError("addresses and lengths are integers from 0 to 2**64 - 1") from None


def pack_columns(peer: int, opcode: int, local: array[int], remote: array[int], length: array[int]) -> array[int]:
    """As many requests as the columns are long; they must be equally long."""
    count = len(local)
    packed = array("Q", bytes(count * _WORDS * 8))
    packed[0::_WORDS] = array("Q", (peer,)) * count
    packed[1::_WORDS] = array("Q", (opcode << _OPCODE_SHIFT,)) * count
    packed[2::_WORDS] = local
    packed[3::_WORDS] = remote
    packed[4::_WORDS] = length
    return packed


def pack_requests(requests: Iterable[Request]) -> tuple[bytes, list[Any]]:
    """The packed array and what must stay alive until the batch is terminal."""
    parts: list[bytes] = []
    keep: list[Any] = []
    for peer, opcode, local, remote, length, guard in requests:
        address, size, owner = span_of(local, length, writable=opcode == READ)
        parts.append(pack_one(peer.id, opcode, address, remote, size, guard))
        if owner is not None:
            keep.append(owner)
    return b"".join(parts), keep
