"""The base of all exceptions, and the way from a status code of the library to one.

Imports nothing: whoever only catches mooncake.errors shall not wait for `typing`. The classes are in the generated
`errors`.
"""

from __future__ import annotations

__all__ = ["MooncakeError", "error_for"]


class MooncakeError(Exception):
    """A call of the native library failed.

    code: the stable negative status code; name: its constant, e.g. "MC_ERR_BUSY"; message: one line of words;
    errno: of the system call that failed, else 0; retryable: whether the same call may succeed later as it is;
    results: of a call for many keys that failed for some of them: what became of each; untouched: of a transfer of one
    range: it is known that nothing of the remote range was changed.
    """

    code: int = -1
    name: str = "MC_ERR_INTERNAL"
    retryable: bool = False
    errno: int | None
    message: str
    results: list[object] | None = None
    untouched: bool = False

    def __init__(self, code: int, name: str, message: str, errno: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.message = message
        self.errno = errno

    def __str__(self) -> str:
        return f"{self.message} ({self.name})"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.name, self.message, self.errno)


_classes: dict[int, type[MooncakeError]] = {}


def error_for(code: int, message: str = "", errno: int = 0) -> MooncakeError:
    """The exception for a negative status; without words, those of the table are taken."""
    if not _classes:
        from . import errors

        kinds: list[type[MooncakeError]] = [getattr(errors, name) for name in errors.__all__]
        _classes.update((kind.code, kind) for kind in kinds if kind is not MooncakeError)
    kind = _classes.get(code)
    if kind is None:
        return MooncakeError(code, "MC_ERR_UNKNOWN", message or f"unknown status {code}", errno)
    return kind(code, kind.name, message or (kind.__doc__ or "").partition(": ")[2].rstrip("."), errno)
