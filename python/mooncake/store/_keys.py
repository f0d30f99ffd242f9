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
    try:
        return [str.encode(key) for key in items]  # pyright: ignore[reportArgumentType] # mostly they are all str
    except TypeError:
        return [key_bytes(key, f"{what}[{index}]") for index, key in enumerate(items)]


_CHARS, _LENGTHS, _KEYS = ffi.typeof("char[]"), ffi.typeof("uint32_t[]"), ffi.typeof("struct mc_keys *")


class PackedKeys:
    """A struct mc_keys with what it points to."""

    __slots__ = ("_blob", "_lengths", "cell", "count")

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._blob: Any = ffi.from_buffer(_CHARS, b"".join(keys))
        self._lengths: Any = ffi.from_buffer(_LENGTHS, array("I", map(len, keys)))
        self.count = len(keys)
        self.cell: Any = ffi.new(_KEYS, (self._blob, self._lengths, self.count))
