"""The small values of the compatible interface: its two types, the arguments it checks, its result codes, its log."""

from __future__ import annotations

from enum import IntEnum
from typing import Optional

from .. import errors
from .._errors import MooncakeError

__all__ = [
    "TransferNotify",
    "TransferOpcode",
    "check_hint",
    "code_of",
    "directory_of",
    "listen_address",
    "log",
    "log_trouble",
    "protocol_of",
    "text_of",
]

_HINTS = frozenset(
    " ascend ascend_direct barex bufio cxi cxl efa gds hip io_uring maca mnnvl mpcomm musa nccl nvlink nvlink_intra"
    " nvmeof rdma self shm sunrise_link tcp tpu ub ubshmem".split(" ")
)


class TransferOpcode(IntEnum):
    """The direction of a transfer, seen from the caller."""

    Read = 0
    Write = 1


class TransferNotify:
    """A notification: a name and a message, both text."""

    def __init__(self, name: str = "", msg: str = "") -> None:
        self.name = name
        self.msg = msg

    def __repr__(self) -> str:
        return f"TransferNotify(name={self.name!r}, msg={self.msg!r})"


def log(level: str, text: str, *values: object) -> None:
    """A line in the log "mooncake.engine". logging is imported by the first one: most programs never write any."""
    import logging

    getattr(logging.getLogger("mooncake.engine"), level)(text, *values)


def log_trouble(what: str, target: str, error: object) -> None:
    """A warning that names the target once: most of the library's words about a peer have its address."""
    words = str(error)
    log("warning", "%s: %s", what, words if target in words else f"{target}: {words}")


def text_of(value: object, what: str) -> str:
    """The value, if it is a str; else TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return value


def check_hint(hint: object) -> None:
    """TypeError or ValueError for what is no transport that the reference knows. A known one has no effect."""
    if text_of(hint, "transport_hint") not in _HINTS:
        raise ValueError(f"unknown transport_hint {hint!r}")


def code_of(error: MooncakeError) -> int:
    """The number that programs written for the reference know: -1 invalid, -3 not registered, -4 busy, -7 overlap."""
    if isinstance(error, errors.NotRegistered):
        return -3
    if isinstance(error, errors.Busy):
        return -4
    return -7 if isinstance(error, errors.Overlap) else -1


def listen_address(name: str) -> tuple[str, bool]:
    """The address to listen on, and whether it has a port that may turn out to be taken."""
    if name.startswith("["):
        return name, not name.endswith("]")
    if name.count(":") > 1:
        return f"[{name}]", False
    return name, ":" in name and not name.endswith(":0")


def protocol_of(protocol: str) -> Optional[str]:
    """The one transport that a protocol of the reference names; None if it names none or several. ValueError for what
    is none there."""
    names = {name.strip().lower() for name in protocol.split(",")}
    unknown = names - _HINTS
    if unknown:
        raise ValueError(f"unknown protocol {sorted(unknown)[0]!r}")
    return names.pop() or None if len(names) == 1 else None


def directory_of(metadata_server: str, metadata_type: str = "") -> str:
    """The directory of a connection string of the reference. ValueError, with words, for those that aren't built."""
    if metadata_server == "P2PHANDSHAKE":
        return "p2p"
    scheme, separator, _ = metadata_server.partition("://")
    if not separator:
        scheme = metadata_type or "etcd"  # a bare address is one of etcd, in the reference too
        metadata_server = f"{scheme}://{metadata_server}"
    if scheme not in ("http", "https"):
        raise ValueError(
            f"metadata server {metadata_server!r}: {scheme} is not available, P2PHANDSHAKE and http:// are"
        )
    return metadata_server
