"""A process with engines of its own (actor.c), and what tests ask of it and of the kernel about it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OK = 0
INVALID_ARGUMENT = -600
NOT_SUPPORTED = -1012
SYSTEM = -2001
BUSY = -2004
PENDING = -2006
TIMEOUT = -2007
CANCELLED = -2008
NOT_REGISTERED = -2009
ACCESS_DENIED = -2011
UNREACHABLE = -2012
CONNECTION_LOST = -2013
STALE_PEER = -2014
GUARD_MISMATCH = -2015
PROTOCOL = -2016
VERSION = -2017
AUTHENTICATION = -2018
ADDRESS = -2019
NAME_NOT_FOUND = -2020

COMPLETED, TIMED_OUT, FAILED = 4, 5, 6
READ_RIGHT, WRITE_RIGHT, BOTH_RIGHTS = 1, 2, 3
CHECKSUM_FLAG = 1


class ActorError(Exception):
    """The library's refusal of a command."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class Actor:
    """A process. `ask` has it do one command of actor.c and gives the words of the answer."""

    def __init__(
        self, program: Path, *, environment: Mapping[str, str] | None = None, inside: Sequence[str] = ()
    ) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MC_")}
        self.process = subprocess.Popen(
            [*inside, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**kept, **(environment or {})},
            bufsize=0,
        )
        self.pid = self.process.pid
        self.address = ""
        self.incarnation = b""
        self._inbox = b""

    def begin(self, *words: object) -> None:
        """Has it begin a command; finish() has the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write((" ".join(str(word) for word in words) + "\n").encode())

    def finish(self, timeout: float = 60) -> list[str]:
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout
        while b"\n" not in self._inbox:
            if not select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"the actor has not answered within {timeout} s")
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                raise EOFError(f"the actor has ended with status {self.process.wait(10)}")
            self._inbox += data
        line, self._inbox = self._inbox.split(b"\n", 1)
        verdict, *words = line.decode().split(" ")
        if verdict == "ok":
            return words
        raise ActorError(int(words[0]), " ".join(words[1:]))

    def ask(self, *words: object, timeout: float = 60) -> list[str]:
        self.begin(*words)
        return self.finish(timeout)

    # What tests do most often.

    def open(
        self,
        *,
        listen: str = "127.0.0.1:0",
        protocol: str = "-",
        key_file: object = "-",
        connect_ms: int = 0,
        flags: int = 0,
        lanes: int = 0,
        directory: str = "-",
        name: str = "-",
    ) -> int:
        """Opens an engine; its address and incarnation are the actor's."""
        words = ("open", listen, protocol, key_file, connect_ms, flags, lanes, directory, name)
        number, self.address, incarnation = self.ask(*words)
        self.incarnation = bytes.fromhex(incarnation)
        return int(number)

    def alloc(self, size: int, access: int = BOTH_RIGHTS, engine: int = 0) -> int:
        """Memory that can be shared, registered; its address."""
        address = int(self.ask("alloc", size)[1])
        self.ask("register", engine, address, size, access)
        return address

    def peer(self, address: str, engine: int = 0) -> int:
        return int(self.ask("peer", engine, address)[0])

    def explain(self, peer: int) -> dict[str, Any]:
        return {path["transport"]: path for path in self._explained(peer)["transports"]}

    def regions(self, peer: int) -> list[dict[str, Any]]:
        """The regions of a peer that are known here, with their paths."""
        return self._explained(peer)["regions"]

    def _explained(self, peer: int) -> dict[str, Any]:
        told = json.loads(" ".join(self.ask("explain", peer)))
        return told if isinstance(told, dict) else {"transports": told, "regions": []}

    def metrics(self, engine: int = 0) -> dict[str, Any]:
        return json.loads(bytes.fromhex(self.ask("metrics", engine, 0)[0]))

    def path(self, peer: int) -> str:
        """The cheapest path to a peer."""
        return next(name for name, path in self.explain(peer).items() if path["usable"])

    def peek(self, address: int, length: int) -> bytes:
        return bytes.fromhex(self.ask("peek", address, length)[0])

    def poke(self, address: int, data: bytes) -> None:
        self.ask("poke", address, data.hex())

    def fill(self, address: int, length: int, seed: int) -> None:
        self.ask("fill", address, length, seed)

    def differing(self, address: int, length: int, seed: int) -> int:
        """How many bytes aren't those of fill()."""
        return int(self.ask("check", address, length, seed)[0])

    def ended(self, storm: object, how: str = "ended") -> tuple[int, float, int, str]:
        """A storm's end: transfers that completed, when it failed, status and words."""
        count, when, status, *words = self.ask(how, storm)
        return int(count), int(when) / 1e9, int(status), " ".join(words)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            while self.state() != "T":
                time.sleep(0.001)

    def state(self) -> str:
        return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.communicate()

    # What the kernel says.

    def resident(self) -> int:
        """Bytes of memory in use."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def ticks(self) -> int:
        """Clock ticks of processor time, user's and kernel's."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def descriptors(self) -> dict[int, int]:
        """The flags of each open descriptor."""
        found = {}
        for entry in Path(f"/proc/{self.pid}/fdinfo").iterdir():
            try:
                lines = entry.read_text().splitlines()
            except FileNotFoundError:  # closed since the directory was read
                continue
            flags = next(line for line in lines if line.startswith("flags:"))
            found[int(entry.name)] = int(flags.split()[1], 8)
        return found
