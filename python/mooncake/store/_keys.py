"""Keys, and how many of them become one blob with a column of lengths."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Union

from .._native import ffi

__all__ = ["Key", "PackedKeys", "key_bytes", "keys_bytes"]

Key = Union[str, bytes]
"""A str stands for its UTF-8 bytes."""


def key_bytes(key: Key, what: str = "key") -> bytes:
    """The key as it is stored. TypeError for anything but str and bytes."""
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        return key
    raise TypeError(f"{what} must be a str or bytes, not {type(key).__name__}")


def keys_bytes(keys: Iterable[Key], what: str = "keys") -> list[bytes]:
    """Each key as it is stored. TypeError that says which one is none."""
    if isinstance(keys, (str, bytes)):
        raise TypeError(f"{what} must be a sequence of str or bytes, not {type(keys).__name__}")
    try:
        items = list(keys)
    except TypeError:
        raise TypeError(f"{what} must be a sequence of str or bytes, not {type(keys).__name__}") from None
    return [
        key.encode() if isinstance(key, str) else key_bytes(key, f"{what}[{index}]") for index, key in enumerate(items)
    ]


class PackedKeys:
    """A struct mc_keys with what it points to."""

    __slots__ = ("_blob", "_lengths", "cell")

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._blob: Any = ffi.from_buffer("char[]", b"".join(keys))
        self._lengths: Any = ffi.from_buffer("uint32_t[]", array("I", map(len, keys)))
        self.cell: Any = ffi.new("struct mc_keys *", (self._blob, self._lengths, len(keys)))
