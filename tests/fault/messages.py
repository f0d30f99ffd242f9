"""The store's messages in plain Python, right and wrong in many ways; the fields are those of messages.def."""

from __future__ import annotations

import random
import struct

ATTACH, RESERVE, RELEASE, PUBLISH, LOOKUP, REMOVE, LIST, BEAT, MOUNT, POLL, UNMOUNT = range(6, 28, 2)

# U: U32, L: U64, I: ID, B: BYTES; a list's items are named behind it.
PLACE = "ILLL"
SHAPES: dict[int, tuple[str, str]] = {
    ATTACH: ("IBI", ""),
    RESERVE: ("IILLLU", ""),
    RELEASE: ("IIBB", "LLL"),
    PUBLISH: ("ILLB", "LULLLBB"),
    LOOKUP: ("ILUB", "key"),
    REMOVE: ("ILLB", "LB"),
    LIST: ("ILLU", ""),
    BEAT: ("ILLB", "II"),
    MOUNT: ("ILUUBBLLBU", "ULLLLLLB"),
    POLL: ("ILLLBU", "ULL"),
    UNMOUNT: ("IL", ""),
}
NUMBERS = [0, 1, 2, 3, 63, 64, 4096, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 62, (1 << 63) - 1, (1 << 64) - 1]


def pack(*fields: int | bytes | tuple[int]) -> bytes:
    """Integers are U64, one in a tuple U32; 16 bytes in a bytearray are an ID, other bytes BYTES."""
    parts = []
    for part in fields:
        if isinstance(part, tuple):
            parts.append(struct.pack("<I", part[0]))
        elif isinstance(part, int):
            parts.append(struct.pack("<Q", part))
        elif isinstance(part, bytearray):
            parts.append(bytes(part))
        else:
            parts.append(struct.pack("<I", len(part)) + part)
    return b"".join(parts)


def items(*bodies: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(body)) + body for body in bodies)


class Nonsense:
    """Makes bodies that nobody in his right mind would send. `ids` are segments and clients that exist."""

    def __init__(self, seed: int, ids: list[bytes], keys: list[bytes], slots: list[int]) -> None:
        self.chance = random.Random(seed)
        self.ids, self.keys, self.slots = ids, keys, slots

    def number(self) -> int:
        kind = self.chance.randrange(4)
        if kind == 0:
            return self.chance.getrandbits(64)
        if kind == 1:
            return self.chance.choice(self.slots)
        return self.chance.choice(NUMBERS) if kind == 2 else self.chance.randrange(100)

    def id(self) -> bytes:
        return self.chance.choice([*self.ids, self.chance.randbytes(16), bytes(16)])

    def some_bytes(self) -> bytes:
        kind = self.chance.randrange(5)
        if kind == 0:
            return self.chance.randbytes(self.chance.randrange(200))
        if kind == 1:
            return self.places()
        if kind == 2:
            return b"127.0.0.1:%d" % self.chance.randrange(1 << 16)
        return self.chance.choice(self.keys) if kind == 3 else b"x" * self.chance.choice([0, 4096, 4097, 70000])

    def places(self) -> bytes:
        return items(*(self.fields(PLACE) for _ in range(self.chance.choice([0, 1, 1, 2, 9]))))

    def list_of(self, shape: str) -> bytes:
        count = self.chance.choice([0, 1, 2, 10, 1000])
        if shape == "key":
            return items(*(self.some_bytes() for _ in range(min(count, 100))))
        return items(*(self.fields(shape) for _ in range(min(count, 100))))

    def fields(self, shape: str, item: str = "") -> bytes:
        last = len(shape) - 1
        body = []
        for index, kind in enumerate(shape):
            if kind == "I":
                body.append(self.id())
            elif kind == "L":
                body.append(struct.pack("<Q", self.number()))
            elif kind == "U":
                body.append(struct.pack("<I", self.number() & 0xFFFFFFFF))
            else:
                inner = self.list_of(item) if item and index == last else self.some_bytes()
                length = len(inner)
                if self.chance.randrange(12) == 0:
                    length = self.number() & 0xFFFFFFFF  # and so much doesn't come
                body.append(struct.pack("<I", length) + inner)
        return b"".join(body)

    def message(self) -> tuple[int, bytes]:
        kind = self.chance.choice(list(SHAPES))
        body = self.chance.randbytes(self.chance.randrange(300))
        if self.chance.randrange(8) != 0:
            body = self.fields(*SHAPES[kind])
            if kind == RESERVE:  # not all that there is: a stranger's reservations may stay for ever
                body = body[:-4] + struct.pack("<I", self.chance.randrange(2))
        if self.chance.randrange(6) == 0:
            body = body[: self.chance.randrange(len(body) + 1)]
        if self.chance.randrange(10) == 0:
            body += self.chance.randbytes(40)
        return kind, body[: 1 << 20]
