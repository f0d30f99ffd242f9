"""The loaded native library, and the few helpers that every binding needs. Importing this loads the library.

ffi and lib are cffi's; each call through lib releases the GIL. Times in Python are seconds, in C nanoseconds.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any, Callable, NoReturn, Optional

from . import _abi  # pyright: ignore[reportMissingTypeStubs]
from ._errors import error_for
from ._loader import load

__all__ = [
    "PENDING",
    "SLICE_NS",
    "Unique",
    "c_string",
    "check",
    "deadline",
    "ffi",
    "lib",
    "nanoseconds",
    "new_error",
    "read_text",
    "wait_in_slices",
]

ffi: Any = _abi.ffi
lib: Any = load(ffi)

PENDING: int = lib.MC_ERR_PENDING

SLICE_NS = 50_000_000
"""The longest that a call stays in C: between two slices Python handles signals, so that Ctrl-C is heard."""

_FOREVER: int = lib.MC_FOREVER
_ERROR_HEAD = (ffi.sizeof("struct mc_error"),)


class Unique:
    """Neither copied nor pickled: what a copy stands for would end with it, and with it that of the original."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} can be neither copied nor pickled")


def new_error() -> Any:
    """A struct mc_error for the library to fill."""
    return ffi.new("struct mc_error *", _ERROR_HEAD)


def c_string(text: str) -> bytes:
    """The text as C takes it. errors.InvalidArgument for a NUL in it: C would see another text, which ends there."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a str is needed, not {type(text).__name__}")
    if "\0" in text:
        raise error_for(lib.MC_ERR_INVALID_ARGUMENT, f"there is a NUL in {text!r}")
    return text.encode()


def check(status: int, error: Any = None) -> int:
    """The status itself if it is no error; else the exception for it, with the words that the library gave."""
    if status >= 0:
        return status
    if error is None or error.code != status:
        raise error_for(status)
    raise error_for(status, ffi.string(error.message).decode("utf-8", "replace"), error.system_errno)


def nanoseconds(timeout: Optional[float]) -> int:
    """Seconds as the library takes them; None is for ever. ValueError for a negative number or NaN."""
    if timeout is None:
        return _FOREVER
    if not timeout >= 0:
        raise ValueError(f"a timeout is a number of seconds, 0 or more, not {timeout!r}")
    value = timeout * 1e9
    return int(value) if value < _FOREVER else _FOREVER


def deadline(timeout: Optional[float]) -> int:
    """Seconds from now as the library takes deadlines: None is its default, and at once is the least it knows."""
    return 0 if timeout is None else max(1, nanoseconds(timeout))


def wait_in_slices(call: Callable[[int], int], timeout: Optional[float]) -> int:
    """Repeats call(timeout in ns) until it answers anything but MC_ERR_PENDING or the time is over."""
    limit = nanoseconds(timeout)
    status = call(min(limit, SLICE_NS))
    if status != PENDING or limit <= SLICE_NS:
        return status
    end = monotonic_ns() + limit - SLICE_NS
    while status == PENDING and (left := end - monotonic_ns()) > 0:
        status = call(min(left, SLICE_NS))
    return status


def read_text(call: Callable[[Any, int], int]) -> str:
    """The text of a call that writes at most `size` bytes and returns the whole length."""
    size = 256
    while True:
        buffer = ffi.new("char[]", size)
        length = check(call(buffer, size))
        if length < size:
            return ffi.string(buffer).decode("utf-8", "replace")
        size = length + 1
