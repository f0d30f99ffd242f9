"""Public names whose parts are not built: they can be imported and asked about, and say so when they are used."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["CoroRPCInterface", "ReceivedData", "ReceivedTensor", "RpcInterface", "SharedSegment"]


class RpcInterface:
    """Messages and tensors between processes. Not available: the constructor raises NotImplementedError."""

    def __init__(self) -> None:
        raise NotImplementedError("RpcInterface is not available; Peer.notify and Engine.receive carry messages")


CoroRPCInterface = RpcInterface


class ReceivedData:
    """What an RpcInterface hands to its callback."""

    def __init__(self) -> None:
        raise NotImplementedError("ReceivedData comes from an RpcInterface, which is not available")


class ReceivedTensor:
    """What an RpcInterface hands to its callback."""

    def __init__(self) -> None:
        raise NotImplementedError("ReceivedTensor comes from an RpcInterface, which is not available")


class SharedSegment:
    """One segment over the memory of many ranks. Not available: supported() is False, create() raises."""

    def __init__(self) -> None:
        raise NotImplementedError("SharedSegment is not available; alloc() gives memory that processes of a host map")

    @staticmethod
    def supported(mmap: bool = True, host_register: bool = False) -> bool:
        """False."""
        return False

    @staticmethod
    def create(
        name: str,
        size: int,
        world_size: int,
        rank_id: int,
        owner_rank: int = 0,
        device_id: int = 0,
        mmap: bool = True,
        host_register: bool = False,
    ) -> NoReturn:
        """NotImplementedError."""
        raise NotImplementedError("SharedSegment is not available; alloc() gives memory that processes of a host map")
