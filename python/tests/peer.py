"""The other process of a test: an engine with registered memory that does what it is told on standard input.

    peer.py PROTOCOL SIZE LISTEN

Writes [address, base] and then one line of JSON for each line that it reads: ["read", offset, length],
["write", offset, hex], ["receive", seconds], ["notify", address, name, message], ["unregister"].
"""

from __future__ import annotations

import json
import sys
from typing import Any, Optional

from mooncake.engine import Engine, alloc


def say(value: Any) -> None:
    print(json.dumps(value), flush=True)


def main(protocol: str, size: int, listen: str) -> None:
    kind: Optional[str] = protocol if protocol in ("shm", "tcp") else None
    with Engine(listen, protocol=kind) as engine, alloc(size) as memory:
        view = memory.view
        region = engine.register(memory)
        say([engine.address, memory.address])
        for line in sys.stdin:
            what, *words = json.loads(line)
            if what == "read":
                say(bytes(view[words[0] : words[0] + words[1]]).hex())
            elif what == "write":
                data = bytes.fromhex(words[1])
                view[words[0] : words[0] + len(data)] = data
                say(len(data))
            elif what == "receive":
                got = engine.receive(words[0])
                say(got and [got.sender, got.name.decode(), got.message.decode()])
            elif what == "notify":
                with engine.connect(words[0]) as peer:
                    peer.notify(words[1], words[2])
                say(True)
            elif what == "unregister":
                region.unregister()
                say(True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
