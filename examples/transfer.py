"""transfer.py - moves a buffer into another process.

python transfer.py serve                    lends a buffer, prints ADDRESS REMOTE, and waits
python transfer.py write ADDRESS REMOTE     in another terminal: fills it

After `make build`, `python` is build/venv/bin/python.
"""

import sys

from mooncake import errors
from mooncake.engine import Access, Engine, alloc

SIZE = 1 << 20


def serve() -> None:
    with Engine() as engine, alloc(SIZE) as memory, engine.register(memory, access=Access.WRITE):
        print(engine.address, hex(memory.address), flush=True)
        # The write needs nothing from this process. It hears of it only because the other one tells it.
        note = engine.receive(timeout=None)
        text = bytes(memory.view[:100]).split(b"\0")[0]
        print(f"{note.name.decode()}: {note.message.decode()} bytes: {text.decode()}")


def write(address: str, remote: int) -> None:
    # The writer's own end needs no rights for others.
    with Engine() as engine, alloc(SIZE) as memory, engine.register(memory, access=Access.NONE):
        memory.view[:17] = b"hello from Python"
        with engine.connect(address) as peer:
            peer.write(memory, remote)
            print("paths:", [path["transport"] for path in peer.explain()["transports"] if path["usable"]])
            peer.notify("written", str(SIZE))


try:
    if sys.argv[1:2] == ["serve"] and len(sys.argv) == 2:
        serve()
    elif sys.argv[1:2] == ["write"] and len(sys.argv) == 4:
        write(sys.argv[2], int(sys.argv[3], 0))
    else:
        sys.exit(__doc__)
except errors.MooncakeError as error:
    sys.exit(f"{error}{', may succeed later' if error.retryable else ''}")
