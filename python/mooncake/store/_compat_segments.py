"""The methods of MooncakeDistributedStore that add memory to the pool, and take it away again."""

from __future__ import annotations

from typing import Any

from .._errors import MooncakeError
from ._compat_base import CompatibleBase, listed
from ._compat_values import INVALID, code_of, log, text_of, word_of

__all__ = ["SegmentMethods"]

_PAGE = 4096
_LEAST = 64 << 10


class SegmentMethods(CompatibleBase):
    """Segments beside the one of setup(). They have this client's name. protocol and location are not used."""

    def mount_segment(
        self, path: str, size: int, offset: int = 0, protocol: str = "tcp", location: str = ""
    ) -> dict[str, Any]:
        """`size` bytes at `offset` (a multiple of the page size) of a file join the pool; a shared memory object is one
        in /dev/shm. {"ret": 0, "segment_ids": [id]}, or with a failure as "ret" and no ids."""
        where, length, start = text_of(path, "path"), word_of(size, "size"), word_of(offset, "offset")
        _check_hints(protocol, location)
        if not length or not where:
            log("warning", "mount_segment: no size, or no path")
            return {"ret": INVALID, "segment_ids": []}
        return self._mount("mount_segment", length, path=where, offset=start)

    def unmount_segment(self, segment_ids: list[str], grace_period_seconds: int = 0) -> int:
        """Takes these segments out of the pool, with what they hold. With a grace they can be read for so long, and
        take nothing new; without one they have gone at the end. All are tried; the first failure, or 0: -101 for an id
        that isn't this client's."""
        return self._unmount("unmount_segment", segment_ids, grace_period_seconds)

    def allocate_and_mount_segment(self, size: int, protocol: str = "tcp", location: str = "") -> dict[str, Any]:
        """Fresh memory of this process joins the pool: `size` bytes, at least 64 KiB, rounded up to whole pages. As
        mount_segment(), and "allocated_size": the bytes."""
        length = word_of(size, "size")
        _check_hints(protocol, location)
        if not length:
            log("warning", "allocate_and_mount_segment: no size")
            return {"ret": INVALID, "segment_ids": [], "allocated_size": 0}
        allocated = (max(length, _LEAST) + _PAGE - 1) // _PAGE * _PAGE
        result = self._mount("allocate_and_mount_segment", allocated)
        return {**result, "allocated_size": allocated if result["ret"] == 0 else 0}

    def unmount_and_free_segment(self, segment_ids: list[str], grace_period_seconds: int = 0) -> int:
        """As unmount_segment(); the memory goes back to the system with the last view of it."""
        return self._unmount("unmount_and_free_segment", segment_ids, grace_period_seconds)

    def _mount(self, what: str, size: int, **source: Any) -> dict[str, Any]:
        store = self._store
        if store is None:
            return {"ret": self._code(what), "segment_ids": []}
        try:
            return {"ret": 0, "segment_ids": [store.mount(size, **source)]}
        except (MooncakeError, ValueError) as error:
            log("warning", "%s: %s", what, error)
            return {"ret": code_of(error.code) if isinstance(error, MooncakeError) else INVALID, "segment_ids": []}

    def _unmount(self, what: str, segment_ids: list[str], grace_period_seconds: int) -> int:
        ids = [text_of(one, "segment_ids[…]") for one in listed(segment_ids, "segment_ids")]
        grace = word_of(grace_period_seconds, "grace_period_seconds")
        store, first = self._store, 0
        if store is None:
            return self._code(what)
        for one in ids:
            try:
                store.unmount(one, grace=grace)
            except (MooncakeError, ValueError) as error:
                log("warning", "%s: %s: %s", what, one, error)
                first = first or (code_of(error.code) if isinstance(error, MooncakeError) else INVALID)
        return first


def _check_hints(protocol: str, location: str) -> None:
    text_of(protocol, "protocol")
    text_of(location, "location")
