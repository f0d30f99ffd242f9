"""store.py - shares objects with other processes through a store.

python store.py own MASTER              lends memory to the pool, puts an object, and waits
python store.py read MASTER             in another terminal: reads it, where it is
python store.py alone                   all in one process: no master, no network

MASTER is where `mooncake_master` listens, 127.0.0.1:50051 if nothing else was said. After `make build`, `python` is
build/venv/bin/python.
"""

import sys

import mooncake
from mooncake import errors
from mooncake.store import Store

SIZE = 1 << 20


def put(store: Store, text: str) -> None:
    # put() would leave an older object alone; upsert() takes its place, and nobody reads the old one from then on.
    store.upsert("greeting", text.encode().ljust(SIZE, b"\0"))
    store.put_many({"block 0": b"0" * 4096, "block 1": b"1" * 4096}, replace=True)


def read(store: Store) -> None:
    view = store.get_view("greeting")  # the owner's memory itself if it is on this host; else a copy
    print(f"{len(view)} bytes: {bytes(view[:100]).split(bytes(1))[0].decode()}")
    print("blocks:", [block and len(block) for block in store.get_many(["block 0", "block 1", "block 2"])])


def own(master: str) -> None:
    with mooncake.connect(master, segment_size="64MiB") as store:
        put(store, "hello from Python")
        print("ready", flush=True)
        sys.stdin.readline()  # Enter: the memory, with what it holds, leaves the pool


def main() -> None:
    if sys.argv[1:2] == ["own"] and len(sys.argv) == 3:
        own(sys.argv[2])
    elif sys.argv[1:2] == ["read"] and len(sys.argv) == 3:
        with mooncake.connect(sys.argv[2]) as store:
            read(store)
    elif sys.argv[1:] == ["alone"]:
        with mooncake.connect() as store:
            put(store, "hello from Python")
            read(store)
    else:
        sys.exit(__doc__)


try:
    main()
except errors.MooncakeError as error:
    sys.exit(f"{error}{', may succeed later' if error.retryable else ''}")
