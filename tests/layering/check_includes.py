#!/usr/bin/env python3
"""check_includes.py - dependencies of the C rooms point downward only.

    check_includes.py [ROOT]

Reads the #includes of libmooncake/ and include/mooncake/ and names each that the order of rooms forbids.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

# A room may include itself and those of lower rank. Rooms of one rank don't know each other.
RANK = {
    "base": 0,
    "os": 1,
    "wire": 2,
    "net": 3,
    "metadata": 4,
    "topology": 4,
    "allocator": 4,
    "transports": 5,
    "transfer": 6,
    "store": 7,
    "api": 8,
    "programs": 9,
}
CORES = ("store/owner", "store/master", "store/client")  # no I/O, so base and wire alone
PUBLIC_SYSTEM = ("stddef.h", "stdint.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def room_of(path: str) -> str:
    """The room of a path below libmooncake/; parts with rules of their own ("transports/shm") are rooms too."""
    parts = path.split("/")
    if len(parts) > 2 and (parts[0] == "transports" or "/".join(parts[:2]) in CORES):
        return "/".join(parts[:2])
    return parts[0] if len(parts) > 1 else ""


def allowed(source: str, target: str) -> bool:
    """May a file of room `source` include one of room `target`?"""
    outer, target_outer = source.split("/")[0], target.split("/")[0]
    if source == target:
        return True
    if outer not in RANK or target_outer not in RANK:
        return False
    if source in CORES:
        return target in ("base", "wire")
    if outer == target_outer:
        return source == outer or target == target_outer  # a part and its own outer room, but not two parts
    return RANK[target_outer] < RANK[outer]


def problem(root: Path, source: str, bracket: str, name: str) -> str | None:
    """Why the room may not include `name`, or None. The source "public" stands for the public headers."""
    if name.startswith("mooncake/"):
        return None if bracket == "<" else "public headers are included as <mooncake/…>"
    if source == "public":
        return None if bracket == "<" and name in PUBLIC_SYSTEM else "public headers include only each other"
    target = room_of(name)
    if bracket == "<":  # the system has a folder net/ too
        return "rooms are included with quotes" if (root / "libmooncake" / name).exists() else None
    if source == "compat":
        return None if target == "compat" else "compat uses only the public headers"
    if not target:
        return "includes name the room"
    return None if allowed(source, target) else f"{source} may not depend on {target}"


def check(root: Path) -> list[str]:
    """One line for each forbidden include."""
    found = []
    for base, source in ((root / "libmooncake", None), (root / "include" / "mooncake", "public")):
        for file in sorted(base.rglob("*")):
            if file.suffix not in (".c", ".h", ".def"):
                continue
            room = source or room_of(file.relative_to(base).as_posix())
            text = file.read_text(encoding="utf-8")
            for match in INCLUDE.finditer(text):
                why = problem(root, room, match[1], match[2])
                if why:
                    line = text.count("\n", 0, match.start(2)) + 1
                    found.append(f"{file.relative_to(root)}:{line}: {match[2]}: {why}")
    return found


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    found = check(root)
    print("\n".join(found) if found else "all dependencies point downward")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
