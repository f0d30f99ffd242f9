"""The methods of MooncakeDistributedStore that put values in steps: reserve, write by parts, publish."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from typing import Any, Optional

from .._native import lib
from . import _calls
from ._compat_base import CompatibleBase
from ._compat_pieces import pieces_of
from ._compat_values import INVALID, ReplicateConfig, column_of, config_options, log
from ._keys import Key, keys_bytes

__all__ = ["SessionMethods"]

_GOES_ON = (lib.MC_ERR_INVALID_ARGUMENT, lib.MC_ERR_BUSY)  # a session that couldn't be ended


class SessionMethods(CompatibleBase):
    """A key has one session at a time, until it is ended or revoked."""

    def __init__(self) -> None:
        super().__init__()
        self._puts: dict[bytes, int] = {}  # the library's id of each session; 0 while it is begun
        self._puts_lock = threading.Lock()

    def batch_put_session_start(
        self, keys: list[Key], sizes: list[int], config: Optional[ReplicateConfig] = None
    ) -> list[int]:
        """Reserves room for values of these sizes; 0 or a failure of each: -705 if the key is there, -600 if it has a
        session. Nobody finds the values before batch_put_session_end()."""
        what, names, lengths = "batch_put_session_start", keys_bytes(keys), column_of(sizes, "sizes")
        options, _keep = config_options(config, self._hostname)
        if len(names) != len(lengths):
            return self._batch(what, len(names), lambda handle, error: [])
        with self._puts_lock:
            fresh = list({name: index for index, name in enumerate(names) if name not in self._puts}.values())
            self._puts.update((names[index], 0) for index in fresh)
        begun = [names[index] for index in fresh]
        if len(begun) < len(names):
            log("warning", "%s: %d of %d keys have a session", what, len(names) - len(begun), len(names))
        puts = array("Q", bytes(8 * len(begun)))
        column = array("Q", [lengths[index] for index in fresh])
        statuses = self._batch(
            what, begun, lambda handle, error: _calls.put_begin(handle, begun, column, options, puts, error)
        )
        results = [INVALID] * len(names)
        with self._puts_lock:
            for index, status, put in zip(fresh, statuses, puts):
                results[index] = status
                if status == 0:
                    self._puts[names[index]] = put
                else:
                    del self._puts[names[index]]
        return results

    def batch_put_from_multi_buffer_ranges(
        self,
        keys: list[Key],
        all_buffer_ptrs: list[list[int]],
        all_sizes: list[list[int]],
        all_dst_offsets: list[list[int]],
    ) -> list[int]:
        """Writes parts of values: all_sizes[i][p] bytes at all_buffer_ptrs[i][p] to all_dst_offsets[i][p] in value i;
        how many bytes in all, or a failure, of each key. Each byte can be written once. -600 without a session."""
        what, names = "batch_put_from_multi_buffer_ranges", keys_bytes(keys)
        pieces = pieces_of(what, len(names), all_buffer_ptrs, all_sizes, all_dst_offsets)
        if pieces is None:
            return [INVALID] * len(names)
        puts = self._ids(names)
        return self._batch(what, names, lambda handle, error: _calls.put_write(handle, puts, pieces, error))

    def batch_put_session_end(self, keys: list[Key]) -> list[int]:
        """Publishes the values; 0 or a failure of each: -600 if bytes are missing, and then the session goes on."""
        return self._last("batch_put_session_end", keys_bytes(keys), _calls.put_end)

    def batch_put_session_revoke(self, keys: list[Key]) -> list[int]:
        """Gives the room back; 0 or a failure of each."""
        return self._last("batch_put_session_revoke", keys_bytes(keys), _calls.put_revoke)

    # ---- Within

    def _ids(self, names: list[bytes]) -> array[int]:
        """The library's ids; 0, which is none, for keys without a session."""
        with self._puts_lock:
            return array("Q", [self._puts.get(name, 0) for name in names])

    def _last(self, what: str, names: list[bytes], call: Callable[[Any, array[int], Any], list[int]]) -> list[int]:
        puts = self._ids(names)

        def end(handle: Any, error: Any) -> list[int]:
            statuses = call(handle, puts, error)
            with self._puts_lock:
                for name, put, status in zip(names, puts, statuses):
                    if status not in _GOES_ON and self._puts.get(name) == put:
                        del self._puts[name]
            return statuses

        return self._batch(what, names, end)
