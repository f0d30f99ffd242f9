"""What the tests share: paths, a compiler, and the other process of a transfer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

PYTHON = Path(__file__).resolve().parent.parent
INCLUDE = PYTHON.parent / "include"
PEER = Path(__file__).resolve().parent / "peer.py"
STORE_PEER = Path(__file__).resolve().parent / "store_peer.py"


def heed_interrupts() -> None:
    """Between fork and exec: SIGINT acts, also where whoever runs the tests in the background had it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Asked:
    """A process that answers a line of JSON with a line of JSON."""

    process: subprocess.Popen[str]

    def start(self, program: Path, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(program), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the other process has ended"
        return json.loads(line)

    def ask(self, *words: Any) -> Any:
        """Has the process do something; see its file."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def stop(self) -> None:
        """SIGSTOP; returns when it has stopped."""
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class OtherProcess(Asked):
    """An engine in a process of its own (peer.py), with `size` bytes of memory at `base`."""

    def __init__(self, protocol: str, *, size: int = 1 << 20, listen: str = "127.0.0.1") -> None:
        self.start(PEER, protocol, size, listen)
        self.size = size
        self.address, self.base = self.answer()

    def read(self, offset: int, length: int) -> bytes:
        return bytes.fromhex(self.ask("read", offset, length))

    def write(self, offset: int, data: bytes) -> None:
        self.ask("write", offset, data.hex())


class StoreProcess(Asked):
    """A client of the pool in a process of its own (store_peer.py), with `size` bytes in the pool."""

    def __init__(self, master: str, size: int) -> None:
        self.start(STORE_PEER, master, size)
        self.address: str = self.answer()


class Cluster:
    """A master and the clients of a test, each a process; the master is the program mooncake_master. With a state file
    it has to wait for nobody of a former life."""

    def __init__(self, state_file: Path) -> None:
        self._state_file = str(state_file)
        self._start("0")
        self.clients: list[StoreProcess] = []

    def _start(self, port: str) -> None:
        program = shutil.which("mooncake_master")
        assert program is not None, "mooncake_master is not in PATH"
        command = [program, "--port", port, "--metrics_host=", "--client_ttl", "2", "--state_file", self._state_file]
        self.master = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.master.stdout is not None
        self.address = self.master.stdout.readline().split()[-1]

    def restart_master(self) -> None:
        """Kills the master, and starts another one at its address."""
        self.master.kill()
        self.master.communicate()
        self._start(self.address.rpartition(":")[2])

    def client(self, size: int = 0) -> StoreProcess:
        """Starts one with `size` bytes of memory for the pool."""
        self.clients.append(StoreProcess(self.address, size))
        return self.clients[-1]

    def end(self) -> None:
        for client in self.clients:
            client.end()
        self.master.kill()
        self.master.communicate()


class SameProcess:
    """The same, played by an engine of this process that is its own peer."""

    def __init__(self, engine: Any, size: int = 1 << 20) -> None:
        from mooncake.engine import alloc

        self.size = size
        self.address = engine.address
        self._memory = alloc(size)
        self._region = engine.register(self._memory)
        self.base = self._memory.address

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._memory.view[offset : offset + length])

    def write(self, offset: int, data: bytes) -> None:
        self._memory.view[offset : offset + len(data)] = data

    def end(self) -> None:
        self._region.unregister()
        self._memory.free()


def compile_library(folder: Path, source: str, name: str = "libmooncake.so.1") -> Path:
    """A shared library from C source."""
    code = folder / "library.c"
    code.write_text(source)
    library = folder / name
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", library, code], check=True)
    return library
