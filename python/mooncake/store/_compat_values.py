"""The small values of the compatible interface: its types, the arguments it checks, its result codes, its log."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Optional

from .._native import ffi, lib
from ._options import put_options

__all__ = [
    "INVALID",
    "BufferHandle",
    "ObjectDataType",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "TaskStatus",
    "TaskType",
    "buffer_of",
    "code_of",
    "column_of",
    "config_options",
    "flag_of",
    "log",
    "text_of",
    "word_of",
]

INVALID = -600
"""The reference's code for arguments that make no sense, and for calls before setup() and after close()."""

# The library's own codes as the numbers that programs written for the reference know: -200 no space now, -600 invalid,
# -900 no answer, -901 no answer in time. Codes that aren't here are the reference's already.
_CODES: dict[int, int] = {
    lib.MC_ERR_BUFFER_TOO_SMALL: INVALID,
    lib.MC_ERR_INVALID_HANDLE: INVALID,
    lib.MC_ERR_CLOSED: INVALID,
    lib.MC_ERR_FORKED: INVALID,
    lib.MC_ERR_NOT_REGISTERED: INVALID,
    lib.MC_ERR_OVERLAP: INVALID,
    lib.MC_ERR_ADDRESS: INVALID,
    lib.MC_ERR_TOO_LARGE: -200,
    lib.MC_ERR_NO_MEMORY: -200,
    lib.MC_ERR_TOO_MANY: -200,
    lib.MC_ERR_UNAVAILABLE: -900,
    lib.MC_ERR_UNREACHABLE: -900,
    lib.MC_ERR_CONNECTION_LOST: -900,
    lib.MC_ERR_STALE_PEER: -900,
    lib.MC_ERR_AUTHENTICATION: -900,
    lib.MC_ERR_NAME_NOT_FOUND: -900,
    lib.MC_ERR_GONE: -900,
    lib.MC_ERR_EPOCH: -900,
    lib.MC_ERR_EXPELLED: -900,
    lib.MC_ERR_TIMEOUT: -901,
    lib.MC_ERR_PENDING: -901,
    lib.MC_ERR_INDETERMINATE: -901,
}


def code_of(status: int) -> int:
    """The number that stands for a status of the library."""
    return _CODES.get(status, status if status > -2000 else lib.MC_ERR_INTERNAL)


def log(level: str, text: str, *values: object) -> None:
    """A line in the log "mooncake.store". logging is imported by the first one: most programs never write any."""
    import logging

    getattr(logging.getLogger("mooncake.store"), level)(text, *values)


# ---- Arguments


def text_of(value: object, what: str) -> str:
    """The value, if it is a str; else TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return value


def flag_of(value: object, what: str) -> bool:
    """The value, if it is a bool; else TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"{what} must be a bool, not {type(value).__name__}")
    return value


def word_of(value: object, what: str) -> int:
    """An address or a size: TypeError for anything but an integer, ValueError out of 64 bits."""
    try:
        number = operator.index(value)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise TypeError(f"{what} must be an int, not {type(value).__name__}") from None
    if not 0 <= number < 2**64:
        raise ValueError(f"{what} must be from 0 to 2**64 - 1, not {number}")
    return number


def column_of(values: Iterable[int], what: str) -> array[int]:
    """A column of addresses or sizes, checked as by word_of."""
    if isinstance(values, (str, bytes, bytearray)):
        raise TypeError(f"{what} must be a list of int, not {type(values).__name__}")
    try:
        items = values if isinstance(values, list) else list(values)
    except TypeError:
        raise TypeError(f"{what} must be a list of int, not {type(values).__name__}") from None
    try:
        return array("Q", items)
    except (TypeError, OverflowError):
        return array("Q", [word_of(item, f"{what}[{index}]") for index, item in enumerate(items)])


def buffer_of(value: Any, what: str) -> Any:
    """The memory of an object with a buffer, as long as the result lives; else TypeError."""
    try:
        return ffi.from_buffer("char[]", value)
    except TypeError:
        raise TypeError(f"{what} must be an object with a buffer, not {type(value).__name__}") from None


# ---- Types


class ObjectDataType(IntEnum):
    """What an object is used for; kept for the caller, without effect."""

    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


class ReplicaStatus(IntEnum):
    """Where a replica stands."""

    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class SoftPinAction(IntEnum):
    """Whether an object is pinned softly, that is evicted last. PRESERVE: as without one."""

    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class TaskStatus(IntEnum):
    """Where a task stands."""

    PENDING = 0
    PROCESSING = 1
    FAILED = 2
    SUCCESS = 3


class TaskType(IntEnum):
    """What a task does."""

    REPLICA_COPY = 0
    REPLICA_MOVE = 1


_Config = dict[str, tuple[tuple[type, ...], Any]]

_FIELDS: _Config = {
    "replica_num": ((int,), 1),
    "nof_replica_num": ((int,), 0),
    "dfs_replica_num": ((int,), 0),
    "soft_pin_action": ((SoftPinAction,), SoftPinAction.PRESERVE),
    "soft_pin_ttl_ms": ((int, type(None)), None),
    "with_hard_pin": ((bool,), False),
    "preferred_segments": ((list, tuple), ()),
    "preferred_segment": ((str,), ""),
    "preferred_nof_segments": ((list, tuple), ()),
    "prefer_alloc_in_same_node": ((bool,), False),
    "data_type": ((ObjectDataType,), ObjectDataType.UNKNOWN),
    "group_ids": ((list, tuple, type(None)), None),
}


class ReplicateConfig:
    """How an object is stored.

    replica_num: copies in different segments, as many as there are, at most 8. soft_pin_action: ENABLE has it evicted
    last. with_hard_pin: never evicted. preferred_segments: names (get_hostname() of their owners) to be tried first;
    preferred_segment, if set, goes before them. prefer_alloc_in_same_node: the own segment first, if no other is named.
    The rest is kept and has no effect: nof_replica_num, dfs_replica_num, preferred_nof_segments, soft_pin_ttl_ms,
    data_type, group_ids. Other names can't be set; a value of another type is a TypeError.
    """

    __slots__ = tuple(_FIELDS)

    replica_num: int
    nof_replica_num: int
    dfs_replica_num: int
    soft_pin_action: SoftPinAction
    soft_pin_ttl_ms: Optional[int]
    with_hard_pin: bool
    preferred_segments: list[str]
    preferred_segment: str
    preferred_nof_segments: list[str]
    prefer_alloc_in_same_node: bool
    data_type: ObjectDataType
    group_ids: Optional[list[str]]

    def __init__(self) -> None:
        for name, (kinds, default) in _FIELDS.items():
            object.__setattr__(self, name, [] if kinds[0] is list and default is not None else default)

    def __setattr__(self, name: str, value: object) -> None:
        known = _FIELDS.get(name)
        if known is None:
            raise AttributeError(f"ReplicateConfig has no attribute {name!r}")
        kinds = known[0]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError(f"{name} must be {kinds[0].__name__}, not {type(value).__name__}")
        if isinstance(value, (list, tuple)):
            value = [text_of(item, f"{name}[{index}]") for index, item in enumerate(value)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        changed = (f"{name}={getattr(self, name)!r}" for name in _FIELDS if getattr(self, name) != _DEFAULT[name])
        return f"ReplicateConfig({', '.join(changed)})"


_DEFAULT: dict[str, Any] = {name: getattr(ReplicateConfig(), name) for name in _FIELDS}


def config_options(config: Optional[ReplicateConfig], hostname: str, *, upsert: bool = False) -> tuple[Any, Any]:
    """The options of the library, and what must stay alive as long as they are used. hostname: of the own segment."""
    if config is None:
        return put_options(upsert=upsert)
    if not isinstance(config, ReplicateConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"config must be a ReplicateConfig, not {type(config).__name__}")
    prefer = config.preferred_segments
    if config.preferred_segment:
        prefer = [config.preferred_segment, *prefer]
    if config.prefer_alloc_in_same_node and not prefer:
        prefer = [hostname]
    return put_options(
        min(max(config.replica_num, 1), lib.MC_REPLICAS_MAX),
        config.soft_pin_action == SoftPinAction.ENABLE,
        config.with_hard_pin,
        prefer,
        upsert=upsert,
    )


class BufferHandle(bytearray):
    """A value that get_buffer() copied: an object with a buffer and a length, at ptr()."""

    def ptr(self) -> int:
        """The address of the first byte; valid as long as this object lives and isn't resized."""
        return int(ffi.cast("uintptr_t", ffi.from_buffer("char[]", self)))

    def size(self) -> int:
        """The length in bytes."""
        return len(self)

    def __repr__(self) -> str:
        return f"<mooncake.store.BufferHandle of {len(self)} bytes>"
