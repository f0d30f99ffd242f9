"""Columns of struct mc_piece: which memory goes with which part of which object."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Any, Optional

from .._native import ffi, lib
from ._compat_values import column_of

__all__ = ["Pieces", "RaggedError"]

_WORDS = 3  # of a struct mc_piece: address, length, offset
_KEYS_MAX: int = lib.MC_STORE_BATCH_MAX
_PIECES_MAX: int = lib.MC_STORE_PIECES_MAX
_COLUMN, _COUNTS = ffi.typeof("struct mc_piece[]"), ffi.typeof("uint32_t[]")


class RaggedError(ValueError):
    """Lists that should be of one length aren't."""


class Pieces:
    """Of each object in turn, its pieces. RaggedError for rows of different lengths; other values than integers are a
    TypeError, those beyond 64 bits a ValueError."""

    __slots__ = ("_ends", "_words", "counts")

    def __init__(
        self,
        addresses: Sequence[Sequence[int]],
        lengths: Sequence[Sequence[int]],
        offsets: Optional[Sequence[Sequence[int]]] = None,
    ) -> None:
        self.counts = array("I", map(len, addresses))
        columns = [("buffer pointers", addresses), ("sizes", lengths)]
        if offsets is not None:
            columns.append(("offsets", offsets))
        for what, rows in columns:
            if array("I", map(len, rows)) != self.counts:
                raise RaggedError(f"there are not as many {what} as buffer pointers")
        self._ends = array("Q", accumulate(self.counts))
        self._words = array("Q", bytes(8 * _WORDS * sum(self.counts)))
        for index, (what, rows) in enumerate(columns):
            self._words[index::_WORDS] = column_of(list(chain.from_iterable(rows)), what)

    def parts(self) -> Iterable[slice]:
        """The objects in parts as large as the library takes in a call."""
        begin = before = 0
        for index, end in enumerate(self._ends):
            if index - begin == _KEYS_MAX or (end - before > _PIECES_MAX and index > begin):
                yield slice(begin, index)
                begin, before = index, end - self.counts[index]
        if self.counts:
            yield slice(begin, len(self.counts))

    def cells(self, part: slice) -> tuple[Any, Any]:
        """The struct mc_piece[] and the counts of a part."""
        start: int = part.start
        stop: int = part.stop
        first = self._ends[start - 1] if start else 0
        last = self._ends[stop - 1] if stop else 0
        words = self._words[first * _WORDS : last * _WORDS] or array("Q", bytes(8 * _WORDS))
        return ffi.from_buffer(_COLUMN, words), ffi.from_buffer(_COUNTS, self.counts[part])
