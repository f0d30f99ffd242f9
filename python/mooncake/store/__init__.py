"""The store: a distributed cache of immutable objects in the pooled memory of its clients.

Two interfaces to the same pool:

* `connect`, `Store`: for new programs; a mapping, whose failures raise `mooncake.errors`.
* `MooncakeDistributedStore`, `ReplicateConfig`: the names and results that existing programs call; failures are
  negative numbers.

Importing this module loads the native library, or raises one ImportError that says where it was looked for.
"""

from ._compat import MooncakeDistributedStore
from ._compat_replicas import Descriptor, DiskDescriptor, MemoryDescriptor, ReplicaDescriptor
from ._compat_values import (
    BufferHandle,
    ObjectDataType,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
)
from ._keys import Key
from ._later import later_class, later_function
from ._store import Registration, Store, connect

__all__ = [
    "ACTIVATION",
    "COMPLETE",
    "FAILED",
    "GENERAL",
    "GRADIENT",
    "INITIALIZED",
    "KVCACHE",
    "METADATA",
    "OPTIMIZER_STATE",
    "PENDING",
    "PROCESSING",
    "REMOVED",
    "REPLICA_COPY",
    "REPLICA_MOVE",
    "SAMPLE",
    "SUCCESS",
    "TENSOR",
    "UNDEFINED",
    "UNKNOWN",
    "WEIGHT",
    "BufferHandle",
    "BufferLease",
    "BufferLeaseView",
    "BufferPool",
    "Descriptor",
    "DiskDescriptor",
    "EngramStore",
    "EngramStoreConfig",
    "Key",
    "MemoryDescriptor",
    "MooncakeDistributedNoFRegister",
    "MooncakeDistributedStore",
    "MooncakeHostMemAllocator",
    "ObjectDataType",
    "ParallelAxis",
    "QueryTaskResponse",
    "ReadTarget",
    "RegisteredBufferLease",
    "RegisteredBufferLeaseView",
    "RegisteredBufferPool",
    "Registration",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "Store",
    "TaskStatus",
    "TaskType",
    "TensorParallelism",
    "bind_to_numa_node",
    "connect",
]

UNKNOWN = ObjectDataType.UNKNOWN
KVCACHE = ObjectDataType.KVCACHE
TENSOR = ObjectDataType.TENSOR
WEIGHT = ObjectDataType.WEIGHT
SAMPLE = ObjectDataType.SAMPLE
ACTIVATION = ObjectDataType.ACTIVATION
GRADIENT = ObjectDataType.GRADIENT
OPTIMIZER_STATE = ObjectDataType.OPTIMIZER_STATE
METADATA = ObjectDataType.METADATA
GENERAL = ObjectDataType.GENERAL
UNDEFINED = ReplicaStatus.UNDEFINED
INITIALIZED = ReplicaStatus.INITIALIZED
COMPLETE = ReplicaStatus.COMPLETE
REMOVED = ReplicaStatus.REMOVED
PENDING = TaskStatus.PENDING
PROCESSING = TaskStatus.PROCESSING
FAILED = TaskStatus.FAILED
SUCCESS = TaskStatus.SUCCESS
REPLICA_COPY = TaskType.REPLICA_COPY
REPLICA_MOVE = TaskType.REPLICA_MOVE

BufferLease = later_class("BufferLease")
BufferLeaseView = later_class("BufferLeaseView")
BufferPool = later_class("BufferPool")
EngramStore = later_class("EngramStore")
EngramStoreConfig = later_class("EngramStoreConfig")
MooncakeDistributedNoFRegister = later_class("MooncakeDistributedNoFRegister")
MooncakeHostMemAllocator = later_class("MooncakeHostMemAllocator")
ParallelAxis = later_class("ParallelAxis")
QueryTaskResponse = later_class("QueryTaskResponse")
ReadTarget = later_class("ReadTarget")
RegisteredBufferLease = later_class("RegisteredBufferLease")
RegisteredBufferLeaseView = later_class("RegisteredBufferLeaseView")
RegisteredBufferPool = later_class("RegisteredBufferPool")
TensorParallelism = later_class("TensorParallelism")
bind_to_numa_node = later_function("bind_to_numa_node", "binding to NUMA nodes")
