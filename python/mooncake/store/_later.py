"""Public names whose parts are not built: they can be imported and asked about, and say so when they are used.

A part that is built takes its names out of here.
"""

from __future__ import annotations

from typing import Any, Callable, NoReturn

__all__ = ["CLASSES", "METHODS", "LaterMethods", "later_class", "later_function"]

METHODS: dict[str, str] = {
    "tensors": """
        get_tensor batch_get_tensor put_tensor batch_put_tensor pub_tensor batch_pub_tensor upsert_tensor
        batch_upsert_tensor upsert_pub_tensor batch_upsert_pub_tensor
        get_tensor_into batch_get_tensor_into get_tensor_into_cuda batch_get_tensor_into_cuda
        put_tensor_from batch_put_tensor_from upsert_tensor_from batch_upsert_tensor_from
        get_tensor_with_tp batch_get_tensor_with_tp put_tensor_with_tp batch_put_tensor_with_tp pub_tensor_with_tp
        batch_pub_tensor_with_tp get_tensor_with_tp_into batch_get_tensor_with_tp_into put_tensor_with_tp_from
        batch_put_tensor_with_tp_from
        get_tensor_with_parallelism batch_get_tensor_with_parallelism get_tensor_with_parallelism_into
        batch_get_tensor_with_parallelism_into put_tensor_with_parallelism batch_put_tensor_with_parallelism
        put_tensor_with_parallelism_from batch_put_tensor_with_parallelism_from upsert_tensor_with_parallelism
        batch_upsert_tensor_with_parallelism upsert_tensor_with_parallelism_from
        batch_upsert_tensor_with_parallelism_from
        save_tensor_to_safetensor load_tensor_from_safetensor""",
    "the disk tier": "unmount_local_disk_segment get_offload_rpc_read_count",
    "copy and move tasks": "create_copy_task create_move_task query_task",
    "dummy clients": "setup_dummy alloc_from_mem_pool",
    "a native client object": "_get_pyclient_capsule",
}
"""The methods of MooncakeDistributedStore, by what they are part of."""

CLASSES: dict[str, str] = {
    "BufferLease": "buffer pools",
    "BufferLeaseView": "buffer pools",
    "BufferPool": "buffer pools",
    "EngramStore": "engram tables",
    "EngramStoreConfig": "engram tables",
    "MooncakeDistributedNoFRegister": "NVMe over fabrics",
    "MooncakeHostMemAllocator": "host memory for dummy clients",
    "ParallelAxis": "tensors",
    "QueryTaskResponse": "copy and move tasks",
    "ReadTarget": "tensors",
    "RegisteredBufferLease": "buffer pools",
    "RegisteredBufferLeaseView": "buffer pools",
    "RegisteredBufferPool": "buffer pools",
    "TensorParallelism": "tensors",
}
"""The classes of mooncake.store, by what they are part of."""


def later_function(name: str, part: str, where: str = "") -> Callable[..., Any]:
    """A function that can be found, and raises NotImplementedError."""
    words = f"{where}{name} is not available: it is of {part}"

    def later(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(words)

    later.__name__ = later.__qualname__ = name
    later.__doc__ = f"Not available: of {part}. NotImplementedError."
    return later


def later_class(name: str) -> type[Any]:
    """A class that can be found, and whose constructor raises NotImplementedError."""
    part = CLASSES[name]
    members = {
        "__init__": later_function(name, part),
        "__doc__": f"Not available: of {part}.",
        "__module__": __package__,
    }
    return type(name, (), members)


class LaterMethods:
    """The methods of MooncakeDistributedStore that are not built."""


for _part, _names in METHODS.items():
    for _name in _names.split():
        setattr(LaterMethods, _name, later_function(_name, _part))
