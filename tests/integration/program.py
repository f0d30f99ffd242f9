"""Programs under test, and the store's few calls that their tests need, over ctypes."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import time
from pathlib import Path

PATIENCE = 20.0  # seconds for what should take a few hundredths
NO_SPACE = -200
NOT_FOUND = -704
SOFT_PIN = 1


class Program:
    """A running program, whose output is read line by line."""

    def __init__(self, path: Path, *flags: str, environment: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [str(path), *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
        self.rest = {"stdout": b"", "stderr": b""}

    def line(self, stream: str = "stdout") -> str:
        """The next line; "" at the end."""
        pipe = getattr(self.process, stream)
        deadline = time.monotonic() + PATIENCE
        while b"\n" not in self.rest[stream]:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no line within {PATIENCE} s"
            got = os.read(pipe.fileno(), 65536)
            if not got:
                break
            self.rest[stream] += got
        line, _, self.rest[stream] = self.rest[stream].partition(b"\n")
        return line.decode()

    def address(self) -> str:
        """Where it says that it is."""
        line = self.line()
        assert line, f"it ended: {self.errors()}"
        return line.rpartition(" ")[2]

    def errors(self) -> str:
        """What is left on stderr once it has ended."""
        assert self.process.stderr is not None
        self.process.wait(PATIENCE)
        return (self.rest["stderr"] + self.process.stderr.read()).decode()

    def ended(self) -> int:
        return self.process.wait(PATIENCE)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.ended()

    def stop_listening(self) -> None:
        """Nobody reads its stdout any more."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.stdout = None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class StoreOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("master", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("segment_size", ctypes.c_uint64),
        ("engine", ctypes.c_void_p),
        ("engine_options", ctypes.c_void_p),
        ("timeout_ns", ctypes.c_uint64),
        ("view_bytes", ctypes.c_uint64),
        ("tenant", ctypes.c_char_p),
    ]


class PutOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("replicas", ctypes.c_uint32),
        ("preferred_count", ctypes.c_uint32),
        ("preferred", ctypes.c_void_p),
        ("timeout_ns", ctypes.c_uint64),
    ]


class SegmentOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("size", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("path", ctypes.c_char_p),
        ("offset", ctypes.c_uint64),
        ("timeout_ns", ctypes.c_uint64),
    ]


class StoreError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Store:
    """A store without memory of its own."""

    def __init__(self, library: Path, master: str, timeout: float = 5.0) -> None:
        self.calls = ctypes.CDLL(str(library))
        self.calls.mc_store_get.restype = ctypes.c_int64
        options = StoreOptions(master=master.encode(), timeout_ns=int(timeout * 1e9))
        options.struct_size = ctypes.sizeof(options)
        self.handle = ctypes.c_void_p()
        self.check(self.calls.mc_store_open(ctypes.byref(options), ctypes.byref(self.handle), None))

    def check(self, status: int) -> int:
        if status < 0:
            raise StoreError(status)
        return status

    def put(self, key: bytes, value: bytes, flags: int = 0) -> None:
        length, size = ctypes.c_size_t(len(key)), ctypes.c_uint64(len(value))
        options = PutOptions(struct_size=ctypes.sizeof(PutOptions), flags=flags)
        self.check(self.calls.mc_store_put(self.handle, key, length, value, size, ctypes.byref(options), None))

    def get(self, key: bytes) -> bytes:
        buffer = ctypes.create_string_buffer(1 << 20)
        length, room, patience = ctypes.c_size_t(len(key)), ctypes.c_uint64(len(buffer)), ctypes.c_uint64(0)
        found = self.calls.mc_store_get(self.handle, key, length, buffer, room, patience, None)
        return buffer.raw[: self.check(found)]

    def has(self, key: bytes) -> bool:
        length, patience = ctypes.c_size_t(len(key)), ctypes.c_uint64(0)
        return self.check(self.calls.mc_store_exists(self.handle, key, length, patience, None)) == 1

    def remove(self, key: bytes) -> None:
        length, patience = ctypes.c_size_t(len(key)), ctypes.c_uint64(0)
        self.check(self.calls.mc_store_remove(self.handle, key, length, patience, None))

    def mount(self, size: int, name: str) -> bytes:
        options = SegmentOptions(size=size, name=name.encode())
        options.struct_size = ctypes.sizeof(options)
        segment = ctypes.create_string_buffer(37)
        self.check(self.calls.mc_store_mount(self.handle, ctypes.byref(options), segment, None))
        return segment.value

    def unmount(self, segment: bytes, grace: float = 0.0) -> None:
        self.check(self.calls.mc_store_unmount(self.handle, segment, ctypes.c_uint64(int(grace * 1e9)), None))

    def close(self) -> None:
        self.check(self.calls.mc_store_close(self.handle))
