"""The other process of a test of the store: a client of the pool that does what it is told on standard input.

    store_peer.py MASTER SEGMENT_SIZE

MASTER is "host:port", or "-" to have it inside. Writes its address and then one line of JSON for each line that it
reads: ["put", key, hex], ["upsert", key, hex], ["get", key], ["view", key], ["drop"] (the views), ["remove", key],
["fill", prefix, count, length]. An exception is answered with {"error": its name}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import mooncake
from mooncake.errors import MooncakeError
from mooncake.store import Store


def obey(store: Store, views: list[memoryview], what: str, words: list[Any]) -> Any:
    if what in ("put", "upsert"):
        store.put(words[0], bytes.fromhex(words[1]), replace=what == "upsert")
        return True
    if what == "fill":
        items = {f"{words[0]}{index}": b"%d." % index * words[2] for index in range(words[1])}
        return store.put_many(items).count(True)
    if what == "view":
        views.append(store.get_view(words[0]))
        return bytes(views[-1]).hex()
    if what == "drop":
        views.clear()
        return True
    if what == "remove":
        store.remove(words[0])
        return True
    value = store.get(words[0])
    return None if value is None else value.hex()


def main(master: str, size: int) -> None:
    with mooncake.connect(None if master == "-" else master, segment_size=size) as store:
        print(json.dumps(store.address), flush=True)
        views: list[memoryview] = []
        for line in sys.stdin:
            what, *words = json.loads(line)
            try:
                answer = obey(store, views, what, words)
            except MooncakeError as error:
                answer = {"error": type(error).__name__}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
