"""What the methods of MooncakeDistributedStore share: the store, and how results become numbers of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

from .._native import ffi, lib, new_error
from ._compat_values import INVALID, code_of, log
from ._store import Store

__all__ = ["EXISTS", "NOT_FOUND", "CompatibleBase", "listed"]

EXISTS: int = lib.MC_ERR_ALREADY_EXISTS
NOT_FOUND: int = lib.MC_ERR_NOT_FOUND
_NO_SPACE: int = lib.MC_ERR_NO_SPACE


class CompatibleBase:
    """The store of a MooncakeDistributedStore, once it is set up."""

    def __init__(self) -> None:
        self._store: Optional[Store] = None
        self._hostname = ""

    def _batch(self, what: str, names: Union[Sequence[bytes], int], call: Callable[[Any, Any], list[int]]) -> list[int]:
        """The results of a batch call. names: its keys, or how many there are if the columns differ in length."""
        if isinstance(names, int):
            log("warning", "%s: columns of different lengths", what)
            return [INVALID] * names
        error, store = new_error(), self._store
        if store is None:
            return [self._code(what)] * len(names)
        return self._codes(what, call(store.handle, error), error)

    def _code(self, what: str, result: Optional[int] = None, error: Any = None) -> int:
        """The result, if it is none of a failure; else the reference's number for it, and a line in the log. Without a
        result: the store is not set up."""
        if result is None:
            log("warning", "%s: the store is not set up", what)
            return INVALID
        if result < 0:
            return self._codes(what, [result], error)[0]
        return result

    def _codes(self, what: str, results: list[int], error: Any) -> list[int]:
        """As _code(), for a batch: one line in the log."""
        if not results or min(results) >= 0:
            return results
        failed = [result for result in results if result < 0]
        told = [result for result in failed if result not in (NOT_FOUND, EXISTS)]
        if told:
            same = error.code == told[0]
            words = ffi.string(error.message if same else lib.mc_status_text(told[0])).decode("utf-8", "replace")
            name = ffi.string(lib.mc_status_name(told[0])).decode()
            level = "info" if told[0] == _NO_SPACE else "warning"
            log(level, "%s: %d of %d failed: %s (%s)", what, len(told), len(results), words, name)
        return [result if result >= 0 else code_of(result) for result in results]


def listed(values: Any, what: str) -> list[Any]:
    """The values as a list; TypeError for what is none."""
    if isinstance(values, (str, bytes, bytearray)):
        raise TypeError(f"{what} must be a list, not {type(values).__name__}")
    try:
        return list(values)
    except TypeError:
        raise TypeError(f"{what} must be a list, not {type(values).__name__}") from None
