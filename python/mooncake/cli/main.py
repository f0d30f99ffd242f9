"""The command `mooncake`: what follows it says which program runs, with the rest of the words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Optional

__all__ = ["main"]

_PROGRAMS = {
    "replay": "replays an hour of a chat service against a pool of memory, and checks every byte",
    "demo": "moves the KV blocks of an hour of chat between two processes, and checks every byte",
}


def main(words: Optional[Sequence[str]] = None) -> int:
    """The exit status of the program; 2 if there is no such program."""
    arguments = list(sys.argv[1:] if words is None else words)
    name = arguments[0] if arguments else "--help"
    if name == "--version":
        from mooncake import __version__

        print(f"mooncake {__version__}")
        return 0
    if name in ("-h", "--help"):
        print("usage: mooncake PROGRAM [OPTION ...]\n")
        print("\n".join(f"  {program:<8} {what}" for program, what in _PROGRAMS.items()))
        print("\n`mooncake PROGRAM --help` lists a program's options.")
        return 0 if arguments else 2
    if name not in _PROGRAMS:
        print(f"mooncake: there is no program {name!r}; there are {', '.join(_PROGRAMS)}", file=sys.stderr)
        return 2
    from importlib import import_module

    status: int = import_module(f"mooncake.cli.{name}").main(arguments[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
