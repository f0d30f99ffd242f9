"""The messages between two RpcInterfaces, each in one notification named NAME. Bytes only, nothing is ever unpickled.

A request says where the sender's bytes are (the receiver reads them one-sided) or carries them itself if they are few;
an answer carries the status of a request. Little-endian:

    u8 version, u8 kind, u16 itemsize, i32 status, 16 bytes id, u64 address, u64 length, u8 dtype length, u8 ndim
    dtype (ASCII), ndim times u64, and the bytes themselves if the address is 0

Everything is checked against everything else before it is believed; nothing here allocates by what a header says.
"""

from __future__ import annotations

import re
import struct
from math import prod
from typing import NamedTuple

__all__ = ["ANSWER", "DATA", "INLINE_MAX", "NAME", "TENSOR", "Message", "pack", "parse"]

NAME = b"mooncake.rpc"
DATA, TENSOR, ANSWER = 1, 2, 3

INLINE_MAX = 16 << 10
"""So many bytes go with the message: reading them would cost another round trip."""

_VERSION = 1
_HEAD = struct.Struct("<BBHi16sQQBB")
_DIMENSIONS_MAX = 16
_DTYPE = re.compile(rb"[A-Za-z0-9_.<>|=]{1,64}")


class Message(NamedTuple):
    """One message; what its kind doesn't need is 0 or empty. data: the bytes, if address is 0."""

    kind: int
    id: bytes
    status: int = 0
    address: int = 0
    length: int = 0
    dtype: str = ""
    itemsize: int = 0
    shape: tuple[int, ...] = ()
    data: bytes = b""


def pack(message: Message) -> bytes:
    """The bytes of a message. ValueError for a tensor that has no place in it."""
    dtype = message.dtype.encode()
    if message.kind == TENSOR and (_DTYPE.fullmatch(dtype) is None or len(message.shape) > _DIMENSIONS_MAX):
        raise ValueError(f"no tensor of {len(message.shape)} dimensions of {message.dtype!r} can be sent")
    head = _HEAD.pack(
        _VERSION, message.kind, message.itemsize, message.status, message.id, message.address, message.length,
        len(dtype), len(message.shape),
    )  # fmt: skip
    return b"".join((head, dtype, struct.pack(f"<{len(message.shape)}Q", *message.shape), message.data))


def parse(data: bytes) -> Message:
    """The message that the bytes are. ValueError if they are none."""
    if len(data) < _HEAD.size:
        raise ValueError(f"a message of {len(data)} bytes")
    version, kind, itemsize, status, identifier, address, length, letters, dimensions = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise ValueError(f"version {version}")
    begin = _HEAD.size + letters
    end = begin + 8 * dimensions
    if dimensions > _DIMENSIONS_MAX or len(data) < end:
        raise ValueError("cut short")
    dtype, shape, rest = data[_HEAD.size : begin], struct.unpack_from(f"<{dimensions}Q", data, begin), data[end:]
    if kind == ANSWER:
        if dtype or shape or rest or address or length or status > 0:
            raise ValueError("an answer with more than a status")
    elif kind == TENSOR:
        if _DTYPE.fullmatch(dtype) is None or not itemsize or prod(shape) * itemsize != length:
            raise ValueError("dtype, shape and length don't fit")
    elif kind != DATA or dtype or shape:
        raise ValueError(f"kind {kind}")
    if len(rest) != (0 if address else length):
        raise ValueError(f"{len(rest)} bytes instead of {length}")
    if address + length > 2**64:
        raise ValueError("the range wraps around")
    return Message(kind, identifier, status, address, length, dtype.decode("ascii"), itemsize, shape, rest)
