"""The methods of MooncakeDistributedStore on objects in pieces: several buffers for one, and parts of one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Optional

from . import _calls
from ._compat_base import EXISTS, CompatibleBase, listed
from ._compat_values import INVALID, ReplicateConfig, column_of, config_options, flag_of, log
from ._keys import Key, keys_bytes
from ._pieces import Pieces, RaggedError

__all__ = ["PieceMethods", "pieces_of", "rows_of"]

_Rows = Sequence[Sequence[int]]


def rows_of(values: Any, what: str) -> list[Any]:
    """A list of lists; TypeError for what is none."""
    rows = listed(values, what)
    for index, row in enumerate(rows):
        if isinstance(row, (str, bytes, bytearray)) or not hasattr(row, "__len__"):
            raise TypeError(f"{what}[{index}] must be a list, not {type(row).__name__}")
    return rows


def pieces_of(
    what: str, count: int, addresses: _Rows, lengths: _Rows, offsets: Optional[_Rows] = None
) -> Optional[Pieces]:
    """The pieces of `count` objects, or None with a line in the log if the lists differ in length."""
    rows = [rows_of(addresses, "all_buffer_ptrs"), rows_of(lengths, "all_sizes")]
    if offsets is not None:
        rows.append(rows_of(offsets, "offsets"))
    try:
        if any(len(row) != count for row in rows):
            raise RaggedError("lists of different lengths")
        return Pieces(*rows)
    except RaggedError as error:
        log("warning", "%s: %s", what, error)
        return None


class PieceMethods(CompatibleBase):
    """A size or offset that doesn't fit is -600, and so is a list that is longer than another one."""

    def batch_put_from_multi_buffers(
        self,
        keys: list[Key],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        config: Optional[ReplicateConfig] = None,
    ) -> list[int]:
        """batch_put_from() of values that lie in several buffers, one behind the other; 0 or a failure of each."""
        what, names = "batch_put_from_multi_buffers", keys_bytes(keys)
        pieces = pieces_of(what, len(names), all_buffer_ptrs, all_sizes)
        return self._put_pieces(what, names, pieces, config)

    def batch_get_into_multi_buffers(
        self,
        keys: list[Key],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        prefer_alloc_in_same_node: bool = False,
    ) -> list[int]:
        """batch_get_into() that fills several buffers for each value, one behind the other; the value's length or a
        failure of each. prefer_alloc_in_same_node: without effect, the nearest replica is read anyway."""
        what, names = "batch_get_into_multi_buffers", keys_bytes(keys)
        flag_of(prefer_alloc_in_same_node, "prefer_alloc_in_same_node")
        pieces = pieces_of(what, len(names), all_buffer_ptrs, all_sizes)
        return self._get_pieces(what, names, pieces, ranges=False)

    def get_into_ranges(
        self,
        buffer_ptrs: list[int],
        all_keys: list[list[Key]],
        all_dst_offsets: list[list[list[int]]],
        all_src_offsets: list[list[list[int]]],
        all_sizes: list[list[list[int]]],
    ) -> list[list[list[int]]]:
        """Reads parts of values. Into buffer i, of object all_keys[i][k], part by part: all_sizes[i][k][p] bytes from
        all_src_offsets[i][k][p] in the value to all_dst_offsets[i][k][p] in the buffer. How many bytes, or a failure,
        of each part; a failure is that of the whole object."""
        what, buffers = "get_into_ranges", column_of(buffer_ptrs, "buffer_ptrs")
        groups = [keys_bytes(group, f"all_keys[{index}]") for index, group in enumerate(listed(all_keys, "all_keys"))]
        columns = [
            [rows_of(rows, f"{name}[{index}]") for index, rows in enumerate(listed(values, name))]
            for name, values in (
                ("all_dst_offsets", all_dst_offsets),
                ("all_src_offsets", all_src_offsets),
                ("all_sizes", all_sizes),
            )
        ]
        targets, sources, sizes = columns
        shape = [len(group) for group in groups]
        if len(buffers) != len(groups) or any([len(rows) for rows in column] != shape for column in columns):
            log("warning", "%s: lists of different lengths", what)
            return [[[INVALID] * len(row) for row in rows] for rows in sizes]
        addresses = [[[buffer + offset for offset in row] for row in rows] for buffer, rows in zip(buffers, targets)]
        flat: list[list[list[int]]] = [list(chain.from_iterable(column)) for column in (addresses, sizes, sources)]
        names = list(chain.from_iterable(groups))
        read = iter(self._get_pieces(what, names, pieces_of(what, len(names), *flat), ranges=True))
        return [[_each(next(read), row) for row in rows] for rows in sizes]

    # ---- Sessions of reading

    def batch_get_session_start(self, keys: list[Key]) -> list[int]:
        """Looks up where the objects are, so that reads of their parts ask nobody; 0 or a failure of each. An object
        that is removed or evicted meanwhile isn't held: its next read says -704."""
        names = keys_bytes(keys)
        sizes = self._batch(
            "batch_get_session_start", names, lambda handle, error: _calls.size_batch(handle, names, 0, error)
        )
        return [min(size, 0) for size in sizes]

    def batch_get_into_multi_buffer_ranges(
        self,
        keys: list[Key],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        all_src_offsets: list[list[int]],
    ) -> list[int]:
        """Reads parts of each value: all_sizes[i][p] bytes from all_src_offsets[i][p] on to all_buffer_ptrs[i][p]; how
        many bytes in all, or a failure, of each object."""
        what, names = "batch_get_into_multi_buffer_ranges", keys_bytes(keys)
        pieces = pieces_of(what, len(names), all_buffer_ptrs, all_sizes, all_src_offsets)
        return self._get_pieces(what, names, pieces, ranges=True)

    def batch_get_session_end(self, keys: list[Key]) -> int:
        """Nothing is held by a session of reading. 0."""
        keys_bytes(keys)
        return 0 if self._store is not None else self._code("batch_get_session_end")

    # ---- Within

    def _put_pieces(
        self, what: str, names: list[bytes], pieces: Optional[Pieces], config: Optional[ReplicateConfig]
    ) -> list[int]:
        options, _keep = config_options(config, self._hostname, upsert="upsert" in what)
        if pieces is None:
            return [INVALID] * len(names)
        statuses = self._batch(
            what, names, lambda handle, error: _calls.put_pieces(handle, names, pieces, options, error)
        )
        return [0 if status == EXISTS else status for status in statuses]

    def _get_pieces(self, what: str, names: list[bytes], pieces: Optional[Pieces], *, ranges: bool) -> list[int]:
        if pieces is None:
            return [INVALID] * len(names)
        return self._batch(
            what, names, lambda handle, error: _calls.get_pieces(handle, names, pieces, ranges, 0, error)
        )


def _each(result: int, sizes: list[int]) -> list[int]:
    """What became of each part of an object."""
    return list(sizes) if result >= 0 else [result] * len(sizes)
