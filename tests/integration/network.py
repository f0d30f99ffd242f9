"""Network namespaces of their own, with cables between them; what the kernel counts in them.

Only root can make them; elsewhere the fixture `network` skips its tests, with the reason.
"""

from __future__ import annotations

import os
import subprocess


class Network:
    """Namespaces, and what is in them; all go with close()."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def add(self) -> str:
        """A namespace with a loopback that is up."""
        name = f"mooncake-{os.getpid()}-{len(self._names)}"
        ip("netns", "add", name)
        self._names.append(name)
        ip("-n", name, "link", "set", "lo", "up")
        return name

    def link(self, one: str, interface: str, other: str, far: str = "up0") -> None:
        """A cable between two namespaces."""
        ip("link", "add", interface, "netns", one, "type", "veth", "peer", "name", far, "netns", other)
        for name, end in ((one, interface), (other, far)):
            ip("-n", name, "link", "set", end, "up")

    def address(self, name: str, interface: str, address: str) -> None:
        ip("-n", name, "address", "add", address, "dev", interface, *(["nodad"] if ":" in address else []))

    def close(self) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def within(name: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", name)


def counter(name: str, protocol: str, field: str) -> int:
    """A number of /proc/net/snmp in a namespace."""
    done = subprocess.run([*within(name), "cat", "/proc/net/snmp"], capture_output=True, text=True, check=True)
    names, numbers = (line.split()[1:] for line in done.stdout.splitlines() if line.startswith(f"{protocol}:"))
    return int(dict(zip(names, numbers))[field])
