"""The memory half of TransferEngine: buffers of its own, registration by address, and bytes copied in and out.

As in the rest of the compatible interface a failure is a negative number and a line in the log.
"""

from __future__ import annotations

from bisect import bisect_right
from threading import Lock
from typing import Optional, Union

from .. import errors
from .._errors import MooncakeError
from .._native import Unique
from ._compat_values import code_of, log, log_trouble, text_of
from ._engine import Access, Engine
from ._memory import Memory, load_bytes, store_bytes
from ._requests import as_bytes, words

__all__ = ["EngineMemory"]


class EngineMemory(Unique):
    """What TransferEngine is built on: an engine that is there or not, and the memory that was registered with it."""

    def __init__(self) -> None:
        self._engine: Optional[Engine] = None
        self._opening = Lock()
        self._name = ""  # under which it is in the directory
        self._managed: dict[int, Memory] = {}
        self._ranges: dict[int, tuple[int, int]] = {}  # by address: length, and how often it is registered
        self._sorted: Optional[list[int]] = None  # the addresses, when somebody needed them in order

    def allocate_managed_buffer(self, length: int) -> int:
        """Allocates and registers `length` bytes that processes of this host can map; the address, or 0."""
        try:
            memory = Memory(length)
        except MooncakeError as error:
            log("warning", "allocate_managed_buffer: %s", error)
            return 0
        if self.register_memory(memory.address, length) != 0:
            return 0
        self._managed[memory.address] = memory
        return memory.address

    def free_managed_buffer(self, buffer_addr: int, length: int) -> int:
        """Unregisters and frees what allocate_managed_buffer() gave."""
        words((buffer_addr, length))
        memory = self._managed.get(buffer_addr)
        if memory is None or memory.size != length:
            log("warning", "free_managed_buffer: no buffer of %d bytes at %#x", length, buffer_addr)
            return -1
        result = self.unregister_memory(buffer_addr)
        if result == 0:
            del self._managed[buffer_addr]
            try:
                memory.free()
            except errors.Busy as error:
                self._managed[buffer_addr] = memory
                log("warning", "free_managed_buffer: %s", error)
                return -4
        return result

    def register_memory(self, buffer_addr: int, capacity: int, location: str = "*") -> int:
        """Lends memory to peers, for reading and writing. The caller keeps it mapped until it is unregistered."""
        text_of(location, "location")
        words((buffer_addr, capacity))
        if self._engine is None:
            return self._not_open("register_memory")
        try:
            self._engine.register_range(buffer_addr, capacity, location, int(Access.BOTH))
        except MooncakeError as error:
            log("warning", "register_memory(%#x, %d): %s", buffer_addr, capacity, error)
            return code_of(error)
        _, count = self._ranges.get(buffer_addr, (0, 0))
        self._ranges[buffer_addr] = capacity, count + 1
        if not count:
            self._sorted = None
        return 0

    def unregister_memory(self, buffer_addr: int) -> int:
        """When it returns 0, no peer reaches the memory any more."""
        words((buffer_addr,))
        if self._engine is None:
            return self._not_open("unregister_memory")
        try:
            self._engine.unregister_range(buffer_addr)
        except MooncakeError as error:
            log("warning", "unregister_memory(%#x): %s", buffer_addr, error)
            return code_of(error)
        length, count = self._ranges.pop(buffer_addr, (0, 0))  # none if it was registered through get_engine()
        if count > 1:
            self._ranges[buffer_addr] = length, count - 1
        else:
            self._sorted = None
        return 0

    def batch_register_memory(self, buffer_addresses: list[int], capacities: list[int], location: str = "*") -> int:
        """Registers all or none."""
        addresses, sizes = words(buffer_addresses), words(capacities)
        if len(addresses) != len(sizes):
            log("warning", "batch_register_memory: %d addresses, %d capacities", len(addresses), len(sizes))
            return -1
        for done, (address, size) in enumerate(zip(addresses, sizes)):
            result = self.register_memory(address, size, location)
            if result != 0:
                for earlier in addresses[:done]:
                    self.unregister_memory(earlier)
                return result
        return 0

    def batch_unregister_memory(self, buffer_addresses: list[int]) -> int:
        """Unregisters each; the first failure is the result, the others are unregistered all the same."""
        results = [self.unregister_memory(address) for address in words(buffer_addresses)]
        return next((result for result in results if result != 0), 0)

    def write_bytes_to_buffer(self, dest_address: int, src_ptr: Union[str, bytes], length: int) -> int:
        """Copies the first `length` bytes of src_ptr (bytes, or str as UTF-8) into memory that is registered here."""
        data = as_bytes(src_ptr)
        words((dest_address, length))
        if length > len(data):
            log("warning", "write_bytes_to_buffer: %d bytes wanted of %d", length, len(data))
            return -1
        try:
            self._check_inside(dest_address, length)
            store_bytes(dest_address, data[:length])
        except ValueError as error:
            log("warning", "write_bytes_to_buffer: %s", error)
            return -1
        return 0

    def read_bytes_from_buffer(self, source_address: int, length: int) -> bytes:
        """`length` bytes of memory that is registered here. ValueError if they aren't all of one registration."""
        words((source_address, length))
        self._check_inside(source_address, length)
        return load_bytes(source_address, length)

    def _check_inside(self, address: int, length: int) -> None:
        """ValueError unless all of the range is registered."""
        if self._sorted is None:
            self._sorted = sorted(self._ranges)
        place = bisect_right(self._sorted, address)
        if place:
            begin = self._sorted[place - 1]
            if address + length <= begin + self._ranges[begin][0]:
                return
        for region in () if self._engine is None else tuple(self._engine.regions):  # of get_engine()
            if region.address <= address and address + length <= region.address + region.length:
                return
        raise ValueError(f"{length} bytes at {address:#x} are not all of one registered buffer")

    def get_first_buffer_address(self, segment_name: str) -> int:
        """The address of the first memory that the engine of that name, or host:port, has registered; 0 if there is
        none, or if it can't be known: that of another engine is for a peer on the same host, whose memory this process
        sees. A peer elsewhere tells its addresses itself, for example in a notification."""
        text_of(segment_name, "segment_name")
        if self._engine is None:
            return 0
        try:
            if segment_name in (self._engine.address, self._name):
                return next(iter(self._ranges), 0)
            with self._engine.connect(segment_name) as peer:
                regions = peer.explain()["regions"]
        except MooncakeError as error:
            log_trouble("get_first_buffer_address", segment_name, error)
            return 0
        if not regions:
            log("warning", "get_first_buffer_address: no memory of %s is known here", segment_name)
        return regions[0]["base"] if regions else 0

    def _forget_memory(self) -> None:
        """Frees the managed buffers, once the engine is closed."""
        self._ranges.clear()
        self._sorted = None
        while self._managed:
            try:
                self._managed.popitem()[1].free()
            except BufferError:
                pass  # a view of it exists: the pages go with the view

    def _not_open(self, what: str) -> int:
        log("warning", "%s: the engine is not initialised", what)
        return -1
