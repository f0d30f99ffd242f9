"""A pool of memory on this host for a while: a master and owners of memory, each a process of its own.

Whoever starts a Cluster ends it; its processes also end when this one dies.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Optional

__all__ = [
    "Cluster",
    "ClusterError",
    "Footprint",
    "begin_process",
    "find_program",
    "measure_footprint",
    "segment_size",
    "uninterrupted",
]

_START = 15.0  # seconds that a program may take to begin, or to end before it is killed
_END = 5.0
_PAGE = 4096
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

HIGH_WATERMARK = 0.98
"""Objects are evicted when more than this part of an owner's memory is in use …"""
EVICTION = 0.01
"""… until this part of it has become free beyond that."""

STOCK = 20
"""Places that a writer has in reserve at an owner, on the average: it asks for 32 at a time, and uses them up."""

_prctl = ctypes.CDLL(None).prctl


class ClusterError(RuntimeError):
    """A process of the cluster can't be started, or has ended."""


def find_program(name: str) -> str:
    """The path of an installed program: beside the library that MOONCAKE_LIBRARY names, in this Python's environment,
    or on the PATH."""
    places: list[Path] = []
    library = os.environ.get("MOONCAKE_LIBRARY")
    if library is not None:
        places.append(Path(library).parent.parent / "bin")
    places += [Path(sys.prefix) / "bin", Path(sys.executable).parent]
    for place in places:
        if os.access(place / name, os.X_OK):
            return str(place / name)
    found = shutil.which(name)
    if found is None:
        raise ClusterError(f"the program {name} is not installed: not in {places[0]}, nor on the PATH")
    return found


# ---- How large a pool must be


class Footprint(NamedTuple):
    """What an object takes of an owner's memory, in bytes: for itself, and for its entry in the owner's table."""

    extent: int
    slot: int


def measure_footprint(key_length: int, length: int) -> Footprint:
    """Asks a small store what it has used after some objects of this size were put."""
    from mooncake.store import connect

    with connect(segment_size=(1 << 20) + 64 * (length + length // 2 + 4096)) as store:
        slot = 64
        before = store.stats()["segment"]
        store.put_many((str(number).rjust(key_length), bytes(length)) for number in range(8))
        after = store.stats()["segment"]
        count = sum(after[state] - before[state] for state in ("live", "reserved", "dead"))
        return Footprint((after["used"] - before["used"]) // count // slot * slot, slot)


def segment_size(blocks: int, footprint: Footprint, writers: int) -> int:
    """How large an owner's memory must be so that it holds so many blocks on the average when it is full: that is,
    between the watermark and what an eviction leaves, and with what `writers` have reserved for their next puts."""
    kept = HIGH_WATERMARK - EVICTION / 2
    size = int((blocks + writers * STOCK) * sum(footprint) / kept)
    return -(-size // _PAGE) * _PAGE


# ---- Processes


_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def uninterrupted() -> Generator[None, None, None]:
    """While a process is started: none is left that nobody knows of. Interrupts are heard afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def begin_process() -> None:
    """In a process that was started so: it hears signals, and is killed when its parent dies."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _INTERRUPTS)
    _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)


class _Program:
    """A program that says one line when it is ready."""

    def __init__(self, name: str, what: str, flags: list[str], environment: dict[str, str]) -> None:
        self.what = what
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [find_program(name), *flags],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            start_new_session=True,  # Ctrl-C is for the parent, which ends this process
            preexec_fn=begin_process,
        )

    def ready(self) -> str:
        """The line that it says."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(_START):
                raise ClusterError(f"{self.what} did not begin in {_START:.0f} s")
        line = self.process.stdout.readline().rstrip("\n")
        if not line:
            self.process.wait(_START)
            raise ClusterError(self.ended() or f"{self.what} said nothing")
        return line

    def ended(self) -> Optional[str]:
        """Words, if the process is no more."""
        status = self.process.poll()
        if status is None:
            return None
        self._said.seek(0)
        said = self._said.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"{self.what} (process {self.process.pid}) {how}" + (f": {said}" if said else "")

    def ask_to_end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()

    def end(self) -> None:
        """Waits for it, a while."""
        try:
            self.process.wait(_END)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._said.close()
        if self.process.stdout is not None:
            self.process.stdout.close()


class Cluster:
    """A master at `address`, and `owners` processes with `segment` bytes of memory each."""

    def __init__(self, owners: int, segment: int, *, force_tcp: bool = False, policy: str = "hazard") -> None:
        environment = {"MC_FORCE_TCP": "1"} if force_tcp else {}
        self._programs: list[_Program] = []
        self.address = ""
        try:
            flags = [
                "--port=0",
                "--metrics_host=",
                f"--eviction_high_watermark_ratio={HIGH_WATERMARK}",
                f"--eviction_ratio={EVICTION}",
                f"--policy={policy}",
            ]
            self.address = self._start("mooncake_master", "the master", flags, environment).ready().rpartition(" ")[2]
            flags = [f"--master_server_address={self.address}", "--port=0", f"--global_segment_size={segment}"]
            for program in [
                self._start("mooncake_client", f"memory owner {number}", flags, environment)
                for number in range(1, owners + 1)
            ]:
                program.ready()
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, what: str, flags: list[str], environment: dict[str, str]) -> _Program:
        with uninterrupted():
            program = _Program(name, what, flags, environment)
            self._programs.append(program)
        return program

    @property
    def pids(self) -> list[int]:
        """Of the master, then of the owners."""
        return [program.process.pid for program in self._programs]

    def ended(self, patience: float = 0.0) -> Optional[str]:
        """Words on a process that has ended, which none should before close(); waits for one a while."""
        end = time.monotonic() + patience
        while True:
            for program in self._programs:
                words = program.ended()
                if words is not None:
                    return words
            if time.monotonic() >= end:
                return None
            time.sleep(0.02)

    def close(self) -> None:
        """Ends the owners, then the master. A second call does nothing."""
        programs, self._programs = self._programs, []
        for group in (programs[1:], programs[:1]):
            for program in group:
                program.ask_to_end()
            for program in group:
                program.end()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
