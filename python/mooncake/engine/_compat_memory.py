"""The memory half of TransferEngine: buffers of its own, registration by address, and bytes copied in and out.

As in the rest of the compatible interface a failure is a negative number and a line in the log.
"""

from __future__ import annotations

from typing import Optional, Union

from .. import errors
from .._errors import MooncakeError
from ._compat_values import code_of, log, text_of
from ._engine import Access, Engine
from ._memory import Memory, load_bytes, store_bytes
from ._requests import words

__all__ = ["EngineMemory"]


class EngineMemory:
    """What TransferEngine is built on: an engine that is there or not, and the memory that was registered with it."""

    def __init__(self) -> None:
        self._engine: Optional[Engine] = None
        self._managed: dict[int, Memory] = {}
        self._ranges: list[int] = []

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
        self._ranges.append(buffer_addr)
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
        try:
            self._ranges.remove(buffer_addr)
        except ValueError:
            pass  # registered through get_engine()
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
        """Copies the first `length` bytes of src_ptr (bytes, or str as UTF-8) to an address of this process."""
        data = src_ptr.encode() if isinstance(src_ptr, str) else bytes(src_ptr)
        words((dest_address, length))
        if length > len(data):
            log("warning", "write_bytes_to_buffer: %d bytes wanted of %d", length, len(data))
            return -1
        try:
            store_bytes(dest_address, data[:length])
        except ValueError as error:
            log("warning", "write_bytes_to_buffer: %s", error)
            return -1
        return 0

    def read_bytes_from_buffer(self, source_address: int, length: int) -> bytes:
        """`length` bytes from an address of this process. ValueError if they can't be read."""
        words((source_address, length))
        return load_bytes(source_address, length)

    def get_first_buffer_address(self, segment_name: str) -> int:
        """The address of the first memory that this engine registered, when the name is its own; 0 if there is none.
        NotImplementedError for another engine: peers don't list their memory, tell addresses by a notification."""
        if self._engine is None:
            return 0
        if text_of(segment_name, "segment_name") != self._engine.address:
            raise NotImplementedError("a peer does not list its memory; let it send the address in a notification")
        return self._ranges[0] if self._ranges else 0

    def _forget_memory(self) -> None:
        """Frees the managed buffers, once the engine is closed."""
        self._ranges.clear()
        while self._managed:
            try:
                self._managed.popitem()[1].free()
            except BufferError:
                pass  # a view of it exists: the pages go with the view

    def _not_open(self, what: str) -> int:
        log("warning", "%s: the engine is not initialised", what)
        return -1
