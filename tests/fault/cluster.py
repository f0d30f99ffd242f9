"""A store's cluster of real processes that tests kill, stop and start again; all of them end with their test."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actor import Actor, ActorError

MB = 1 << 20
OK = 0
NO_SPACE = -200
NOT_FOUND = -704
EXISTS = -705
UNAVAILABLE = -1010
TIMEOUT = -2007
UNREACHABLE = -2012
INDETERMINATE = -2024

SUBJECTS = 256  # as in load.h
PLACES = 64
SUBJECT = struct.Struct("<QQQQ")
PLACE = struct.Struct("<QQQQQQQQqQ48x")
PATIENCE = 20.0  # seconds, for what should take a few hundredths


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(true: Callable[[], bool], what: str, seconds: float = PATIENCE) -> float:
    """Waits until something is true; how long it took."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - began


class Service:
    """mooncake_master or mooncake_client. What it says on stderr is in a file."""

    def __init__(self, path: Path, flags: tuple[str, ...], environment: dict[str, str], log: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "MOONCAKE_"))}
        self.log = log
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [str(path), *flags],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**kept, **environment},
            )
        self.pid = self.process.pid

    def address(self) -> str:
        """Where it says that it is."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        line = self.process.stdout.readline().decode() if ready else ""
        assert line, f"it does not say where it is: {self.log.read_text()}"
        return line.split()[-1]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def alive(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class StoreActor(Actor):
    """A process of store_actor.c."""

    number = -1  # of its place

    def status(self, *words: object, timeout: float = 60) -> int:
        """The status of a command, or its first number."""
        try:
            return int((self.ask(*words, timeout=timeout) or ["0"])[0])
        except ActorError as error:
            return error.status

    def outcome(self, timeout: float = 60) -> int:
        """The same for a command that was begun."""
        try:
            return int((self.finish(timeout) or ["0"])[0])
        except ActorError as error:
            return error.status

    def version(self, key: str, timeout: float = 60) -> int:
        """The version of a whole value under the key, or the status; -1 would be a wrong byte."""
        found = self.status("get", key, timeout=timeout)
        assert found != -1, f"wrong bytes under {key}"
        return found

    def stats(self) -> dict[str, Any]:
        return json.loads(" ".join(self.ask("stats")))

    def stop(self) -> None:
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class Place:
    """One process's account of its load: load.h."""

    def __init__(self, fields: tuple[int, ...]) -> None:
        (
            self.calls,
            self.good,
            self.missing,
            self.failed,
            self.wrong,
            self.stale,
            self.began,
            self.longest,
            self.status,
            self.full,
        ) = fields

    def __str__(self) -> str:
        return (
            f"{self.calls} calls, {self.good} good, {self.missing} missing, {self.full} full, "
            f"{self.failed} failed (last {self.status}), longest {self.longest / 1e9:.2f} s"
        )


class Cluster:
    def __init__(self, programs: Path, actor: Path, folder: Path, environment: dict[str, str]) -> None:
        self.programs, self.actor_program, self.folder, self.environment = programs, actor, folder, environment
        self.services: list[Service] = []
        self.actors: list[StoreActor] = []
        self.port = 0
        self.master: Service | None = None
        self.master_flags: tuple[str, ...] = ()
        self.table = folder / "table"
        self.table.write_bytes(bytes(SUBJECTS * SUBJECT.size + PLACES * PLACE.size))
        with self.table.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)

    # Processes.

    def service(self, name: str, *flags: str) -> Service:
        log = self.folder / f"{name}-{len(self.services)}.log"
        service = Service(self.programs / name, flags, self.environment, log)
        self.services.append(service)
        return service

    def start_master(self, *flags: str, state: bool = True) -> str:
        """Starts the master, the first time with these flags, and afterwards at the same port with the same."""
        if self.port == 0:
            self.port = free_port()
            self.master_flags = (f"--port={self.port}", "--client_ttl=2", "--metrics_host=", *flags)
            if state:
                self.master_flags += (f"--state_file={self.folder / 'state'}",)
        self.master = self.service("mooncake_master", *self.master_flags)
        assert self.master.address() == self.address
        return self.address

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start_client(self, size: str, *flags: str, port: int = 0) -> Service:
        """An owner that is mooncake_client."""
        client = self.service(
            "mooncake_client",
            f"--master_server_address={self.address}",
            f"--global_segment_size={size}",
            f"--port={port}",
            *flags,
        )
        client.where = client.address()  # type: ignore[attr-defined]
        return client

    def actor(self, segment: int = 0, *, name: str = "-", patience: float = 10, place: int = -1) -> StoreActor:
        """A process with an open store."""
        actor = self.bare_actor()
        if place >= 0:
            actor.number = place
            actor.ask("place", self.table, place)
        actor.ask("open", self.address, segment, name, int(patience * 1000))
        return actor

    def bare_actor(self) -> StoreActor:
        actor = StoreActor(self.actor_program, environment=self.environment)
        self.actors.append(actor)
        return actor

    def end(self) -> None:
        for actor in self.actors:
            actor.end()
        for service in self.services:
            service.kill()
        self._map.close()

    # The table.

    def place(self, number: int) -> Place:
        return Place(PLACE.unpack_from(self._map, SUBJECTS * SUBJECT.size + number * PLACE.size))

    def busy(self, actor: StoreActor) -> bool:
        """Is it within a call?"""
        return self.place(actor.number).began != 0

    def space_comes_back(self, owners: list[StoreActor], seconds: float = 15) -> float:
        """Waits until nothing but pages of slots is used in the owners' segments."""

        def free() -> bool:
            segments = [owner.stats()["segment"] for owner in owners]
            return all(
                part["live"] == part["reserved"] == part["dead"] == 0 and part["used"] % 4096 == 0 for part in segments
            )

        try:
            return wait_for(free, "space comes back", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {[owner.stats() for owner in owners]}") from None
