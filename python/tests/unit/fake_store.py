"""A store of the library's interface in a dict, for tests of what Python makes of it.

Fake stands in the place of `lib`: what it doesn't have comes from the real one. It answers `fail`, if that is set, in
the place of each call, or `item_fails[key]` in the place of an item; `before` is called first, with the call's name.
"""

from __future__ import annotations

import operator
import re
from typing import Any, Callable, Optional

from mooncake._native import ffi, lib

OK = 0
NOT_FOUND, EXISTS, TOO_SMALL = lib.MC_ERR_NOT_FOUND, lib.MC_ERR_ALREADY_EXISTS, lib.MC_ERR_BUFFER_TOO_SMALL
INVALID_HANDLE = lib.MC_ERR_INVALID_HANDLE


def taken(pointer: Any, length: int) -> bytes:
    """What a pointer points to; cffi passes bytes as they are."""
    return pointer[:length] if isinstance(pointer, bytes) else bytes(ffi.buffer(ffi.cast("char *", pointer), length))


def rows_of_pieces(keys: Any, pieces: Any, counts: Any) -> list[list[Any]]:
    """The pieces of each object."""
    rows: list[list[Any]] = []
    first = 0
    for index in range(keys.count):
        rows.append([pieces[first + k] for k in range(counts[index])])
        first += counts[index]
    return rows


class Fake:
    def __init__(self) -> None:
        self.objects: dict[bytes, bytes] = {}
        self.calls: list[str] = []
        self.options: list[dict[str, Any]] = []
        self.opened: dict[str, Any] = {}
        self.views: dict[int, Any] = {}
        self.registered: dict[int, int] = {}
        self.fail = OK
        self.item_fails: dict[bytes, int] = {}
        self.before: Callable[[str], None] = lambda name: None
        self.open = False
        self.page = 3
        self._handle: Any = ffi.cast("mc_store *", 4096)

    def __getattr__(self, name: str) -> Any:
        return getattr(lib, name)

    # ---- What each call does first

    def _begin(self, name: str, handle: Any, error: Any = None) -> int:
        self.calls.append(name)
        self.before(name)
        status = self.fail if self.open and handle == self._handle else INVALID_HANDLE
        return self._told(status, error)

    def _told(self, status: int, error: Any) -> int:
        if status < 0 and error is not None and error != ffi.NULL:
            error.code = status
            error.message = b"words of the fake"
        return status

    def _items(
        self, name: str, handle: Any, keys: Any, column: Any, error: Any, one: Callable[[int, bytes], int]
    ) -> int:
        status = self._begin(name, handle, error)
        if status < 0:
            return status
        start, worst = 0, OK
        for index in range(keys.count):
            key = taken(keys.bytes + start, keys.lengths[index])
            start += keys.lengths[index]
            column[index] = self.item_fails.get(key) or one(index, key)
            worst = worst or min(column[index], 0)
        return self._told(worst, error)

    def _option(self, options: Any) -> int:
        """Notes them; the flags."""
        if options == ffi.NULL:
            self.options.append({})
            return 0
        assert options.struct_size == ffi.sizeof("struct mc_put_options")
        names = [ffi.string(options.preferred[index]).decode() for index in range(options.preferred_count)]
        self.options.append(
            {"flags": options.flags, "replicas": options.replicas, "prefer": names, "timeout": options.timeout_ns}
        )
        return options.flags

    # ---- Life

    def mc_store_open(self, options: Any, handles: Any, error: Any) -> int:
        if self.fail < 0:
            return self._told(self.fail, error)
        text = {
            name: None if getattr(options, name) == ffi.NULL else ffi.string(getattr(options, name)).decode()
            for name in ("master", "name")
        }
        engine = options.engine_options
        listen = None if engine == ffi.NULL or engine.listen == ffi.NULL else ffi.string(engine.listen).decode()
        self.opened = {
            **text,
            "listen": listen,
            "shared": options.engine != ffi.NULL,
            "flags": options.flags,
            "segment_size": options.segment_size,
            "timeout": options.timeout_ns,
            "view_bytes": options.view_bytes,
        }
        self.open = True
        handles[0] = self._handle
        return OK

    def mc_store_close(self, handle: Any) -> int:
        status = self._begin("close", handle)
        self.open = False
        return status

    def mc_store_address(self, handle: Any, text: Any, size: int) -> int:
        return self._begin("address", handle) or self._text(b"127.0.0.1:5", text, size)

    def mc_store_stats(self, handle: Any, text: Any, size: int) -> int:
        words = b'{"master": {"keys": %d}, "filler": "%s"}' % (len(self.objects), b"x" * 1000)
        return self._begin("stats", handle) or self._text(words, text, size)

    def _text(self, words: bytes, text: Any, size: int) -> int:
        part = words[: size - 1] + b"\0"
        ffi.memmove(text, part, len(part))
        return len(words)

    def mc_store_health(self, handle: Any) -> int:
        return self._begin("health", handle)

    def mc_store_register(self, handle: Any, address: Any, length: int, error: Any) -> int:
        status = self._begin("register", handle, error)
        if status == OK:
            self.registered[int(ffi.cast("uintptr_t", address))] = length
        return status

    def mc_store_unregister(self, handle: Any, address: Any, error: Any) -> int:
        status = self._begin("unregister", handle, error)
        if status == OK and self.registered.pop(int(ffi.cast("uintptr_t", address)), None) is None:
            return self._told(lib.MC_ERR_NOT_REGISTERED, error)
        return status

    # ---- One object

    def _store(self, key: bytes, value: bytes, upsert: bool) -> int:
        if not key:
            return lib.MC_ERR_INVALID_KEY
        if key in self.objects and not upsert:
            return EXISTS
        self.objects[key] = value
        return OK

    def mc_store_put(
        self, handle: Any, key: bytes, size: int, value: Any, length: int, options: Any, error: Any
    ) -> int:
        self._option(options)
        status = self._begin("put", handle, error) or self.item_fails.get(key[:size], 0)
        return self._told(status or self._store(key[:size], taken(value, length), False), error)

    def mc_store_upsert(
        self, handle: Any, key: bytes, size: int, value: Any, length: int, options: Any, error: Any
    ) -> int:
        self._option(options)
        status = self._begin("upsert", handle, error) or self.item_fails.get(key[:size], 0)
        return self._told(status or self._store(key[:size], taken(value, length), True), error)

    def _copy(self, key: bytes, buffer: Any, capacity: int) -> int:
        value = self.objects.get(key)
        if value is None:
            return NOT_FOUND
        if len(value) > capacity:
            return TOO_SMALL
        ffi.memmove(ffi.cast("char *", buffer), value, len(value))
        return len(value)

    def mc_store_get(
        self, handle: Any, key: bytes, size: int, buffer: Any, capacity: int, timeout: int, error: Any
    ) -> int:
        status = self._begin("get", handle, error) or self.item_fails.get(key, 0)
        return self._told(status or self._copy(key, buffer, capacity), error)

    def get_at(self, handle: Any, key: bytes, size: int, address: int, capacity: int, timeout: int, error: Any) -> int:
        """The same with an address, which cffi takes for an integer or refuses."""
        return self.mc_store_get(handle, key, size, operator.index(address), operator.index(capacity), timeout, error)

    def _view(self, key: bytes, views: Any, data: Any, index: int) -> int:
        value = self.objects.get(key)
        if value is None:
            return NOT_FOUND
        memory = ffi.new("char[]", value)
        view = len(self.calls) * 1000 + index
        self.views[view] = memory
        views[index], data[index] = view, ffi.cast("void *", memory)
        return len(value)

    def mc_store_view(self, handle: Any, key: bytes, size: int, timeout: int, view: Any, data: Any, error: Any) -> int:
        return self._begin("view", handle, error) or self._told(self._view(key, view, data, 0), error)

    def mc_view_release(self, view: int) -> int:
        self.calls.append("release")
        return OK if self.views.pop(view, None) is not None else INVALID_HANDLE

    def _size(self, key: bytes) -> int:
        return len(self.objects[key]) if key in self.objects else NOT_FOUND

    def mc_store_size(self, handle: Any, key: bytes, size: int, timeout: int, error: Any) -> int:
        return self._begin("size", handle, error) or self._told(self._size(key), error)

    def mc_store_exists(self, handle: Any, key: bytes, size: int, timeout: int, error: Any) -> int:
        return self._begin("exists", handle, error) or int(key in self.objects)

    def _remove(self, key: bytes) -> int:
        return OK if self.objects.pop(key, None) is not None else NOT_FOUND

    def mc_store_remove(self, handle: Any, key: bytes, size: int, timeout: int, error: Any) -> int:
        return self._begin("remove", handle, error) or self._told(self._remove(key), error)

    # ---- Many objects

    def mc_store_put_batch(
        self, handle: Any, keys: Any, values: Any, lengths: Any, options: Any, column: Any, error: Any
    ) -> int:
        upsert = bool(self._option(options) & lib.MC_PUT_UPSERT)
        return self._items(
            "put_batch", handle, keys, column, error,
            lambda index, key: self._store(key, taken(values[index], lengths[index]), upsert),
        )  # fmt: skip

    def mc_store_put_pieces(
        self, handle: Any, keys: Any, pieces: Any, counts: Any, options: Any, column: Any, error: Any
    ) -> int:
        upsert = self._option(options) & lib.MC_PUT_UPSERT != 0
        rows = rows_of_pieces(keys, pieces, counts)

        def one(index: int, key: bytes) -> int:
            value = b"".join(taken(piece.address, piece.length) for piece in rows[index])
            return self._store(key, value, upsert)

        return self._items("put_pieces", handle, keys, column, error, one)

    def mc_store_get_pieces(
        self, handle: Any, keys: Any, pieces: Any, counts: Any, flags: int, timeout: int, column: Any, error: Any
    ) -> int:
        rows = rows_of_pieces(keys, pieces, counts)

        def one(index: int, key: bytes) -> int:
            if key not in self.objects:
                return NOT_FOUND
            value, moved = self.objects[key], 0
            for piece in rows[index]:
                start = piece.offset if flags & lib.MC_GET_RANGES else moved
                part = value[start : start + piece.length]
                ffi.memmove(piece.address, part, len(part))
                moved += len(part)
            return moved

        return self._items("get_pieces", handle, keys, column, error, one)

    def mc_store_get_batch(
        self, handle: Any, keys: Any, buffers: Any, capacities: Any, timeout: int, column: Any, error: Any
    ) -> int:
        return self._items(
            "get_batch", handle, keys, column, error,
            lambda index, key: self._copy(key, buffers[index], capacities[index]),
        )  # fmt: skip

    def mc_store_view_batch(
        self, handle: Any, keys: Any, timeout: int, views: Any, data: Any, column: Any, error: Any
    ) -> int:
        return self._items(
            "view_batch", handle, keys, column, error, lambda index, key: self._view(key, views, data, index)
        )

    def mc_store_size_batch(self, handle: Any, keys: Any, timeout: int, column: Any, error: Any) -> int:
        return self._items("size_batch", handle, keys, column, error, lambda _, key: self._size(key))

    def mc_store_exists_batch(self, handle: Any, keys: Any, timeout: int, column: Any, error: Any) -> int:
        return self._items("exists_batch", handle, keys, column, error, lambda _, key: int(key in self.objects))

    def mc_store_remove_batch(self, handle: Any, keys: Any, timeout: int, column: Any, error: Any) -> int:
        return self._items("remove_batch", handle, keys, column, error, lambda _, key: self._remove(key))

    def mc_store_remove_matching(self, handle: Any, pattern: bytes, length: int, timeout: int, error: Any) -> int:
        status = self._begin("remove_matching", handle, error)
        if status < 0:
            return status
        try:
            found = [key for key in self.objects if re.search(pattern[:length], key)]
        except re.error:
            return self._told(lib.MC_ERR_INVALID_ARGUMENT, error)
        for key in found:
            del self.objects[key]
        return len(found)

    def mc_store_remove_all(self, handle: Any, timeout: int, error: Any) -> int:
        status = self._begin("remove_all", handle, error)
        if status < 0:
            return status
        count = len(self.objects)
        self.objects.clear()
        return count

    def mc_store_list(self, handle: Any, cursor: Any, limit: int, timeout: int, pages: Any, error: Any) -> int:
        status = self._begin("list", handle, error)
        if status < 0:
            return status
        keys = sorted(key for key in self.objects if key > self._last(cursor[0]))[: self.page]
        self._place: Optional[bytes] = keys[-1] if len(keys) == self.page else None
        cursor[0] = 1 if self._place else 0
        page = ffi.new("struct mc_page *")
        self._kept = (
            page,
            ffi.new("uint8_t[]", b"".join(keys) or b"\0"),
            ffi.new("uint32_t[]", [len(key) for key in keys] or [0]),
        )
        page.bytes, page.lengths, page.count = self._kept[1], self._kept[2], len(keys)
        pages[0] = page
        return OK

    def _last(self, cursor: int) -> bytes:
        return (self._place or b"") if cursor else b""

    def mc_page_free(self, page: Any) -> None:
        self.calls.append("page_free")
