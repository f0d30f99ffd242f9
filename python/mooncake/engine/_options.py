"""How an engine is opened: keyword arguments as the struct of the library. Engine and the store take the same ones."""

from __future__ import annotations

from typing import Any, Optional

from .._native import c_string, deadline, ffi, lib, nanoseconds

__all__ = ["engine_options"]


def engine_options(
    listen: Optional[str] = None,
    advertise: Optional[str] = None,
    protocol: Optional[str] = None,
    key_file: Optional[str] = None,
    connect_timeout: Optional[float] = None,
    lanes: int = 0,
    notifications: int = 0,
    checksum: bool = False,
    directory: Optional[str] = None,
    name: Optional[str] = None,
    busy_poll: float = 0.0,
) -> tuple[Any, list[Any]]:
    """A struct mc_engine_options, and the texts that must stay alive as long as it is used."""
    options = ffi.new("struct mc_engine_options *")
    options.struct_size = ffi.sizeof("struct mc_engine_options")
    options.flags = lib.MC_ENGINE_CHECKSUM if checksum else 0
    texts = [
        ffi.NULL if value is None else ffi.new("char[]", c_string(value))
        for value in (listen, advertise, protocol, key_file, directory, name)
    ]
    options.listen, options.advertise, options.protocol, options.key_file, options.directory, options.name = texts
    options.connect_timeout_ns = deadline(connect_timeout)
    options.lanes = lanes
    options.notifications = notifications
    options.busy_poll_us = min(nanoseconds(busy_poll) // 1000, 2**32 - 1)  # the library refuses more than it takes
    return options, texts
