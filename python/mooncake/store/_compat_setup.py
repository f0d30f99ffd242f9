"""What MooncakeDistributedStore.setup() takes, in each of its forms, and the store that it opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from .. import errors
from ..engine import Engine, TransferEngine
from ..engine._compat_values import listen_address
from ._compat_values import flag_of, log, text_of, word_of
from ._options import parse_size
from ._store import Store, connect

__all__ = ["Setup", "from_mapping", "open_compatible", "setup"]

DEFAULT_MASTER = "127.0.0.1:50051"
_MASTER_PORT = "50051"
_SEGMENT_DEFAULT = 16 << 20
_SEGMENT_LEAST = 64 << 10
_SPELLINGS = {"master_server_address": "master_server_addr", "device_name": "rdma_devices"}
_ELSEWHERE = ("ipc_socket_path",)


class Setup(NamedTuple):
    """The arguments of setup(), checked."""

    local_hostname: str
    metadata_server: str
    global_segment_size: int
    local_buffer_size: int
    protocol: str
    rdma_devices: str
    master_server_addr: str
    engine: Optional[Engine] = None
    enable_ssd_offload: bool = False
    ssd_offload_path: str = ""
    tenant_id: str = "default"
    enable_client_http_server: bool = False
    client_http_port: int = 9300


def setup(
    local_hostname: str,
    metadata_server: str,
    global_segment_size: int,
    local_buffer_size: int,
    protocol: str,
    rdma_devices: str,
    master_server_addr: str,
    engine: object = None,
    enable_ssd_offload: bool = False,
    ssd_offload_path: str = "",
    tenant_id: str = "default",
    enable_client_http_server: bool = False,
    client_http_port: int = 9300,
) -> Setup:
    """The arguments as they are given one by one. TypeError names what is wrong."""
    if isinstance(engine, TransferEngine):
        engine = engine.get_engine()
    if engine is not None and not isinstance(engine, Engine):
        raise TypeError(f"engine must be what TransferEngine.get_engine() returns, not {type(engine).__name__}")
    return Setup(
        text_of(local_hostname, "local_hostname"),
        text_of(metadata_server, "metadata_server"),
        word_of(global_segment_size, "global_segment_size"),
        word_of(local_buffer_size, "local_buffer_size"),
        text_of(protocol, "protocol"),
        text_of(rdma_devices, "rdma_devices"),
        text_of(master_server_addr, "master_server_addr"),
        engine,
        flag_of(enable_ssd_offload, "enable_ssd_offload"),
        text_of(ssd_offload_path, "ssd_offload_path"),
        text_of(tenant_id, "tenant_id"),
        flag_of(enable_client_http_server, "enable_client_http_server"),
        word_of(client_http_port, "client_http_port"),
    )


def _truth(value: object, what: str) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    found = words.get(str(value).strip().lower())
    if found is None:
        raise ValueError(f"{what} must be true or false, not {value!r}")
    return found


def from_mapping(config: Mapping[str, Any]) -> Setup:
    """The arguments as they stand in a dict, where sizes may be texts like "4 GB", flags "true", and some names have
    two spellings. ValueError for what makes no sense; unknown names are passed over with a line in the log."""
    given: dict[str, Any] = {}
    for name, value in config.items():
        name = _SPELLINGS.get(name, name)
        if name in Setup._fields:
            if value is not None:
                given[name] = value
        elif name not in _ELSEWHERE:
            log("info", "setup: %r is not known", name)
    if not given.get("local_hostname"):
        raise ValueError("local_hostname is missing")
    for name in ("global_segment_size", "local_buffer_size"):
        given[name] = parse_size(given.get(name, _SEGMENT_DEFAULT), name)
    for name in ("enable_ssd_offload", "enable_client_http_server"):
        given[name] = _truth(given.get(name, False), name)
    given["client_http_port"] = int(given.get("client_http_port", 9300))
    given.setdefault("metadata_server", "P2PHANDSHAKE")
    given.setdefault("protocol", "tcp")
    given.setdefault("rdma_devices", "")
    given.setdefault("master_server_addr", DEFAULT_MASTER)
    return setup(**given)


def open_compatible(wanted: Setup) -> Store:
    """Opens the store, listening at the host and port of local_hostname; at any port if that one is taken."""
    for name in ("enable_ssd_offload", "enable_client_http_server"):
        if getattr(wanted, name):
            log("warning", "setup: %s is not available, and has no effect", name)
    master: Optional[str] = wanted.master_server_addr
    if not master:
        master = None
    elif ":" not in master:
        master = f"{master}:{_MASTER_PORT}"
    tenant = wanted.tenant_id
    size = wanted.global_segment_size and max(wanted.global_segment_size, _SEGMENT_LEAST)
    if wanted.engine is not None:
        return connect(master, segment_size=size, tenant=tenant, engine=wanted.engine)
    listen, may_be_taken = listen_address(wanted.local_hostname)
    try:
        return connect(master, segment_size=size, tenant=tenant, listen=listen)
    except errors.System:
        if not may_be_taken:
            raise
        return connect(master, segment_size=size, tenant=tenant, listen=listen.rpartition(":")[0])
