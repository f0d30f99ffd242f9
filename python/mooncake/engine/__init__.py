"""The transfer engine: one-sided reads and writes between registered memory of processes, by the fastest shared path.

Two interfaces to the same engine:

* `Engine`, `Peer`, `Memory`, `Batch`, `Queue`: for new programs; failures raise `mooncake.errors`.
* `TransferEngine`, `TransferOpcode`, `TransferNotify`: the names and results that existing programs call; failures are
  negative numbers.

Importing this module loads the native library, or raises one ImportError that says where it was looked for.
"""

from ._batch import Batch, Completion, Queue, RequestStatus, Statuses
from ._compat import TransferEngine
from ._compat_values import TransferNotify, TransferOpcode
from ._engine import Access, Engine, Notification, Region
from ._memory import Memory, alloc
from ._peer import Peer
from ._requests import READ, WRITE, Request

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._rpc import CoroRPCInterface, ReceivedData, ReceivedTensor, RpcInterface
    from ._shared_segment import SharedSegment

__all__ = [
    "READ",
    "SUPPORT_CUDA",
    "SUPPORT_EFA",
    "SUPPORT_HIP",
    "SUPPORT_INTRA_NVLINK",
    "SUPPORT_MNNVL",
    "SUPPORT_MUSA",
    "WRITE",
    "Access",
    "Batch",
    "Completion",
    "CoroRPCInterface",
    "Engine",
    "InnerTransferEngine",
    "Memory",
    "Notification",
    "Peer",
    "Queue",
    "Read",
    "ReceivedData",
    "ReceivedTensor",
    "Region",
    "Request",
    "RequestStatus",
    "RpcInterface",
    "SharedSegment",
    "Statuses",
    "TransferEngine",
    "TransferNotify",
    "TransferOpcode",
    "Write",
    "alloc",
]

InnerTransferEngine = Engine
"""What TransferEngine.get_engine() returns."""

Read = TransferOpcode.Read
Write = TransferOpcode.Write

SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False

_LATER = {
    "CoroRPCInterface": "_rpc",
    "ReceivedData": "_rpc",
    "ReceivedTensor": "_rpc",
    "RpcInterface": "_rpc",
    "SharedSegment": "_shared_segment",
}


def __getattr__(name: str) -> object:
    """What few programs need is imported when it is asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
