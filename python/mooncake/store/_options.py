"""How a store is opened and an object put: Python values as the structs of the library."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Optional, Union

from .._native import c_string, check, deadline, ffi, lib, new_error

__all__ = ["PathType", "Size", "mount", "open_store", "parse_size", "put_options"]

Size = Union[int, str]
"""A number of bytes, or a text like "512MiB" or "4 gb"; units are powers of 1024."""

PathType = Union[str, "os.PathLike[str]"]
"""Where a file is."""

_UNITS = ("", "k", "m", "g", "t")
_REPLICAS_MAX: int = lib.MC_REPLICAS_MAX
_SIZE_MAX = 2**64 - 1


def parse_size(value: Size, what: str = "size") -> int:
    """The bytes that a size stands for. TypeError, or ValueError with words."""
    if isinstance(value, str):
        text = value.strip().lower()
        number = text.rstrip("bikmgt ")
        unit = text[len(number) :].strip()
        factor = unit.removesuffix("ib") if len(unit) == 3 else unit.removesuffix("b")
        try:
            if factor not in _UNITS:
                raise ValueError
            size = int(float(number) * 1024 ** _UNITS.index(factor)) if "." in number else int(number)
            size = size if "." in number else size * 1024 ** _UNITS.index(factor)
        except ValueError:
            raise ValueError(
                f"{what} must be a number of bytes, or one with a unit like 512MiB, not {value!r}"
            ) from None
    elif isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        size = value
    else:
        raise TypeError(f"{what} must be an int or a str, not {type(value).__name__}")
    if not 0 <= size <= _SIZE_MAX:
        raise ValueError(f"{what} must be a number of bytes from 0 to 2**64 - 1, not {value!r}")
    return size


def _text(value: Optional[str]) -> Any:
    return ffi.NULL if value is None else ffi.new("char[]", c_string(value))


def open_store(
    master: Optional[str],
    name: Optional[str],
    segment_size: int,
    timeout: Optional[float],
    view_bytes: int,
    verify: bool,
    engine: Any,
    engine_options: Any,
    tenant: Optional[str] = None,
) -> Any:
    """The handle of an opened store. Without a master it is in this process."""
    options = ffi.new("struct mc_store_options *")
    options.struct_size = ffi.sizeof("struct mc_store_options")
    options.flags = (lib.MC_STORE_VERIFY if verify else 0) | (lib.MC_STORE_EMBEDDED if master is None else 0)
    texts = (_text(master), _text(name), _text(tenant))
    options.master, options.name, options.tenant = texts
    options.segment_size = segment_size
    options.engine = engine
    options.engine_options = engine_options
    options.timeout_ns = deadline(timeout)
    options.view_bytes = view_bytes
    handles, error = ffi.new("mc_store **"), new_error()
    check(lib.mc_store_open(options, handles, error), error)
    return handles[0]


def _path(path: Optional[PathType]) -> Any:
    raw = b"" if path is None else os.fsencode(path)
    if 0 in raw:
        raise ValueError(f"there is a NUL in {path!r}")
    return ffi.NULL if path is None else ffi.new("char[]", raw)


def mount(
    handle: Any, size: int, name: Optional[str], path: Optional[PathType], offset: int, timeout: Optional[float]
) -> str:
    """The id of a segment that was added to the pool."""
    options = ffi.new("struct mc_segment_options *")
    options.struct_size = ffi.sizeof("struct mc_segment_options")
    options.size, options.offset, options.timeout_ns = size, offset, deadline(timeout)
    texts = (_text(name), _path(path))
    options.name, options.path = texts
    text, error = ffi.new("char[]", lib.MC_SEGMENT_ID_SIZE), new_error()
    check(lib.mc_store_mount(handle, options, text, error), error)
    return ffi.string(text).decode()


def put_options(
    replicas: int = 1,
    soft_pin: bool = False,
    hard_pin: bool = False,
    prefer: Iterable[str] = (),
    timeout: Optional[float] = None,
    *,
    upsert: bool = False,
) -> tuple[Any, Any]:
    """A struct mc_put_options (NULL where nothing is asked for), and what must stay alive as long as it is used.

    upsert: for the batch call, which has no form of its own for it.
    """
    if isinstance(prefer, str):
        raise TypeError("prefer must be a sequence of segment names, not a str")
    names = [ffi.new("char[]", c_string(name)) for name in prefer]
    if replicas == 1 and not (soft_pin or hard_pin or names or upsert) and timeout is None:
        return ffi.NULL, None
    if not 1 <= replicas <= _REPLICAS_MAX:
        raise ValueError(f"replicas must be from 1 to {_REPLICAS_MAX}, not {replicas!r}")
    options = ffi.new("struct mc_put_options *")
    options.struct_size = ffi.sizeof("struct mc_put_options")
    options.flags = (
        (lib.MC_PUT_SOFT_PIN if soft_pin else 0)
        | (lib.MC_PUT_HARD_PIN if hard_pin else 0)
        | (lib.MC_PUT_UPSERT if upsert else 0)
    )
    options.replicas = replicas
    options.timeout_ns = deadline(timeout)
    column = ffi.new("char *[]", names)
    options.preferred, options.preferred_count = column, len(names)
    return options, (names, column)
