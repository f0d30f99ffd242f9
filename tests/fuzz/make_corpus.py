#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets: valid, cut and hostile inputs, in corpus/<target>/<name>.

The files are committed, and replayed in every test run; inputs that a fuzzer finds are added beside them. Running this
again changes nothing unless a seed below has changed.
"""

from __future__ import annotations

import struct
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def seal(data: bytes) -> bytes:
    return data + struct.pack("<I", crc32c(data))


def header(
    kind: int,
    payload: int = 0,
    *,
    flags: int = 0,
    status: int = 0,
    address: int = 0x7F0000001000,
    length: int = 0,
    zero: int = 0,
) -> bytes:
    return seal(
        struct.pack("<HHiQQQQQIII", kind, flags, status, 7, address, length, 0x7F0000002000, 42, 0, payload, zero)
    )


def hello(lowest: int = 1, highest: int = 1, flags: int = 0, zeros: bytes = bytes(12)) -> bytes:
    return seal(b"mooncake" + struct.pack("<HHI", lowest, highest, flags) + bytes(range(64)) + zeros)


def proof(status: int = 0, version: int = 1, zeros: bytes = bytes(14)) -> bytes:
    return seal(b"mooncake" + struct.pack("<iH", status, version) + zeros + bytes(range(32)))


def text(data: bytes, length: int | None = None) -> bytes:
    return struct.pack("<I", len(data) if length is None else length) + data


def frames() -> dict[str, bytes]:
    write = header(2, 16, flags=3, length=16)
    return {
        "empty": b"",
        "ping": header(16),
        "read": header(1, length=4096),
        "read-reply-more": header(0x8001, 5, flags=6) + b"bytes" + header(0x8001),
        "write": write + bytes(16),
        "several": write + bytes(16) + header(16) + header(1, length=1),
        "cut-header": header(16)[:63],
        "cut-payload": write + bytes(15),
        "cut-second-header": header(16) + header(16)[:1],
        "wrong-checksum": header(16)[:-1] + b"\xff",
        "reserved-set": header(16, zero=1),
        "payload-at-limit": header(2, 64 << 20),
        "payload-above-limit": header(2, (64 << 20) + 1),
        "message-above-limit": header(18, (1 << 20) + 1),
        "payload-near-2-32": header(2, 0xFFFFFFFF),
        "range-near-2-64": header(1, address=2**64 - 1, length=2**64 - 1),
        "unknown-type-and-flags": header(0x7FFF, 3, flags=0xFFFF) + b"abc",
        "all-ones": b"\xff" * 64,
        "http": b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: nothing of the kind\r\nAccept: */*\r\n\r\n",
    }


def prefaces() -> dict[str, bytes]:
    return {
        "empty": b"",
        "hello": hello(flags=1),
        "hello-range": hello(1, 65535),
        "hello-future": hello(2, 3, flags=0xFFFFFFFF),
        "hello-inverted": hello(2, 1),
        "hello-zero": hello(0, 1),
        "hello-reserved-set": hello(zeros=bytes(11) + b"\x01"),
        "hello-cut": hello()[:95],
        "hello-wrong-checksum": hello()[:-1] + b"\x00",
        "hello-wrong-magic": seal(b"MOONCAKE" + hello()[8:-4]),
        "proof": proof(),
        "proof-refused": proof(-2018, 0),
        "proof-positive-status": proof(2**31 - 1, 65535),
        "proof-reserved-set": proof(zeros=b"\x01" + bytes(13)),
        "proof-cut": proof()[:63],
        "proof-wrong-checksum": proof()[:-1] + b"\x00",
        "all-ones": b"\xff" * 96,
        "http": b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: nothing of the kind\r\nAccept: */*\r\n\r\n" * 2,
    }


SEGMENT = bytes(range(0x10, 0x20))
CLIENT = bytes(range(0x20, 0x30))


def items(*parts: bytes) -> bytes:
    """A list, with its length in front: the value of a BYTES field."""
    return text(b"".join(text(part) for part in parts))


def place(slot: int = 4096) -> bytes:
    return SEGMENT + struct.pack("<QQQ", slot, 7, 65536)


def stamp(*floors: bytes) -> bytes:
    return struct.pack("<QQQQ", 3, 5_000_000_000, 12, 4) + items(*floors)


def publication(sequence: int = 5, places: bytes | None = None) -> bytes:
    head = struct.pack("<QIQQQ", sequence, 1, 0, 0, 1000)
    return head + text(b"key") + (items(place(), place(4160)) if places is None else places)


def location(places: bytes) -> bytes:
    return struct.pack("<QQQ", 3, 9, 1000) + places


def verdict(status: int = 0) -> bytes:
    return struct.pack("<QiQQ", 5, status, 3, 9)


def finding(status: int, *locations: bytes) -> bytes:
    return struct.pack("<i", status) + items(*locations)


def holding(state: int = 2) -> bytes:
    return struct.pack("<IQQQQQQ", state, 4096, 7, 65536, 1000, 3, 9) + text(b"key")


def store_messages() -> dict[str, bytes]:
    """One of each of the store's messages, whole, by number and name."""
    grant = struct.pack("<QQQ", 4096, 7, 65536)
    stamped = text(stamp(SEGMENT + struct.pack("<Q", 11)))
    owner = SEGMENT + text(b"127.0.0.1:1") + text(b"pool") + struct.pack("<QQI", 1 << 30, 1 << 20, 1)
    return {
        "6-attach": CLIENT + text(b"127.0.0.1:1") + SEGMENT,
        "7-attached": SEGMENT + struct.pack("<QQQI", 0x7F0000001000, 1 << 30, 0x7F0000000000, 1024),
        "8-reserve": CLIENT + SEGMENT + struct.pack("<QQQI", 3, 2, 4096, 8),
        "9-reserved": items(grant, grant),
        "10-release": CLIENT + SEGMENT + items(grant) + items(struct.pack("<Q", 3)),
        "11-released": b"",
        "12-publish": CLIENT + struct.pack("<QQ", 3, 2) + items(publication(5), publication(6)),
        "13-published": stamped + items(verdict(), verdict(-705)),
        "14-lookup": CLIENT + struct.pack("<QI", 3, 1) + items(b"key", b"other"),
        "15-located": stamped
        + items(finding(0, location(items(place())), location(items(place(4160)))), finding(-704)),
        "16-remove": CLIENT + struct.pack("<QQ", 3, 2) + items(struct.pack("<Q", 5) + text(b"key")),
        "17-removed": stamped + items(verdict(-704)),
        "18-list": CLIENT + struct.pack("<QQI", 3, 1 << 63, 100),
        "19-listed": stamped + struct.pack("<Q", 0) + items(b"key", b"other"),
        "20-beat": CLIENT + struct.pack("<QQ", 3, 1) + text(bytes(range(32))),
        "21-beaten": stamped + struct.pack("<Q", 2) + items(owner, owner),
        "22-mount": SEGMENT + struct.pack("<QII", 3, 0, 1) + owner[16:-4] + items(holding(), holding(1)) + owner[-4:],
        "23-mounted": struct.pack("<Q", 3),
        "24-poll": SEGMENT
        + struct.pack("<QQQ", 3, 1 << 20, 0)
        + items(struct.pack("<IQQ", 1, 4096, 7))
        + struct.pack("<I", 1),
        "25-commands": struct.pack("<Q", 3) + items(struct.pack("<IQQQQ", 2, 4096, 7, 3, 9)),
        "26-unmount": SEGMENT + struct.pack("<Q", 3),
        "27-unmounted": b"",
        "28-probe": CLIENT + struct.pack("<Q", 3) + text(bytes(range(32))),
        "29-probed": stamped + text(b"\x01\x00"),
    }


def lists() -> dict[str, bytes]:
    publish, lookup = b"\x0c" + CLIENT + struct.pack("<QQ", 3, 2), b"\x0e" + CLIENT + struct.pack("<QI", 3, 1)
    whole = {name: bytes([int(name.split("-")[0])]) + body for name, body in store_messages().items()}
    return {
        **{name: body for name, body in whole.items() if name.split("-")[1] not in ("attach", "attached")},
        "empty": b"",
        "unknown": b"\xff" + items(b"key"),
        "no-fields": b"\x0c",
        "list-empty": publish + items(),
        "list-many-of-nothing": publish + text(bytes(4) * 5000),
        "list-cut-length": lookup + text(text(b"key") + b"\x03\x00\x00"),
        "list-cut-item": lookup + text(text(b"key") + text(b"oth", 4)),
        "list-length-near-2-32": lookup + text(text(b"key", 0xFFFFFFFF)),
        "list-length-wraps-position": lookup + text(text(b"key") + text(b"key", 0xFFFFFFF8)),
        "list-length-2-31": lookup + text(text(b"key", 1 << 31)),
        "list-ends-with-body-but-not-item": lookup + text(text(b"key", 0xFF), 7),
        "record-cut-in-field": publish + items(publication()[:-1]),
        "record-cut-between-fields": publish + items(publication()[:8], publication()[:12], publication()[:43]),
        "record-longer": publish + items(publication() + b"of a later version", publication()),
        "record-length-near-2-32": publish + items(publication()[:36] + text(b"key", 0xFFFFFFFF)),
        "nested-cut-item": publish + items(publication(5, text(text(place()[:-1], 40)))),
        "nested-cut-record": publish + items(publication(5, items(place()[:-1]))),
        "nested-longer-than-record": publish + items(publication(5, text(text(place()), 45))),
        "nested-length-near-2-32": publish + items(publication(5, text(text(place(), 0xFFFFFFD4)))),
        "nested-many": publish + items(publication(5, items(*[place()] * 200))),
        "nested-thrice-cut": b"\x0f" + text(b"") + items(finding(0, location(text(text(place()[:-1], 40))))),
        "stamp-cut": b"\x0d" + text(stamp()[:-1]) + items(verdict()),
        "stamp-empty": b"\x0d" + text(b"") + items(verdict()),
        "stamp-floor-cut": b"\x0d" + text(stamp(SEGMENT + bytes(7))) + items(verdict()),
        "all-ones": b"\x0c" + b"\xff" * 128,
    }


def records() -> dict[str, bytes]:
    """By the numbers that fuzz_message.c gives them."""
    return {
        "record-place": b"\x80" + place(),
        "record-stamp": b"\x81" + stamp(SEGMENT + struct.pack("<Q", 11)),
        "record-stamp-cut": b"\x81" + stamp()[:-1],
        "record-publication": b"\x85" + publication(),
        "record-publication-cut-key": b"\x85" + publication()[:42],
        "record-publication-longer": b"\x85" + publication() + b"of a later version",
        "record-finding": b"\x87" + finding(0, location(items(place()))),
        "record-owner-length-2-31": b"\x8a" + SEGMENT + text(b"127.0.0.1:1", 1 << 31),
        "record-holding": b"\x8b" + holding(),
        "record-none": b"\xfe",
        **{f"record-{kind:02x}-numbers": bytes([kind]) + bytes(range(1, 101)) for kind in range(0x80, 0x8E)},
        **{f"record-{kind:02x}-zeros": bytes([kind]) + bytes(100) for kind in range(0x80, 0x8E)},
    }


def messages() -> dict[str, bytes]:
    notify = text(b"127.0.0.1:1") + text(b"kv") + text(b"ready")
    invitation = text(b"\x00mooncake") + bytes(range(32))
    store = {name: bytes([int(name.split("-")[0])]) + body for name, body in store_messages().items()}
    return {
        **store,
        **{f"{name}-cut": body[:-1] for name, body in store.items() if len(body) > 1},
        **{f"{name}-longer": body + b"of a later version" for name, body in store.items()},
        **records(),
        "empty": b"",
        "unknown": b"\xff" + notify,
        "ping": b"\x00",
        "ping-longer": b"\x00" + notify,
        "pong": b"\x01",
        "notify": b"\x02" + notify,
        "notify-no-fields": b"\x02",
        "notify-one-field": b"\x02" + text(b"127.0.0.1:1"),
        "notify-empty-fields": b"\x02" + text(b"") * 3,
        "notify-longer": b"\x02" + notify + text(b"of a later version"),
        "notify-cut-length": b"\x02" + notify[:-7],
        "notify-cut-bytes": b"\x02" + notify[:-1],
        "notify-length-near-2-32": b"\x02" + text(b"a", 0xFFFFFFFF),
        "notify-length-wraps-position": b"\x02" + text(b"abc") + text(b"a", 0xFFFFFFF8),
        "notify-length-2-31": b"\x02" + text(b"a", 1 << 31),
        "notified": b"\x03",
        "invite": b"\x04",
        "invitation": b"\x05" + invitation,
        "invitation-cut-id": b"\x05" + invitation[:-1],
        "invitation-one-id": b"\x05" + invitation[:-16],
        "all-ones": b"\x02" + b"\xff" * 64,
    }


def page_step(kind: int, slot: int = 0, value: int = 0) -> bytes:
    """One of fuzz_regions.c."""
    return struct.pack("<B", kind) + slot.to_bytes(3, "little") + struct.pack("<Q", value % 2**64)


def page_slot(slot: int, key: int, base: int, length: int, memory: int, offset: int, size: int, access: int) -> bytes:
    fields = (key, base, length, memory, offset, size, access)
    return b"".join(page_step(field, slot, value) for field, value in enumerate(fields))


def pages() -> dict[str, bytes]:
    note, used, refresh, give, find, inside = 7, 10, 11, 13, 14, 15
    base = 0x7F0000001000
    opened = page_slot(3, 5, base, 4096, 1, 8192, 16384, 3) + page_step(note, 3)
    looks = page_step(give, 3) + page_step(inside, 3, 64 * 8) + page_step(find, 16, base + 4080)
    closed = page_step(0, 3, 8) + page_step(note, 3) + page_step(refresh)
    again = page_slot(3, 9, base, 100, 0, 0, 0, 1) + page_step(note, 3) + page_step(refresh)
    many = b"".join(page_slot(n, 5, base + 4096 * (n * 7 % 300), 4096, 0, 0, 0, 3) for n in range(300))
    seeds = {
        "empty": b"",
        "region": opened + page_step(refresh) + looks,
        "region-that-closes": opened + page_step(refresh) + looks + closed + looks,
        "region-that-opens-again": opened + page_step(refresh) + closed + again + looks,
        "slots-used-too-many": page_step(used, 0, 2**32 - 1) + page_step(8, 0, 2**63) + page_step(refresh),
        "changes-run-backwards": opened + page_step(refresh) + page_step(8, 0, 0) + page_step(refresh),
        "log-beyond-slots": page_step(9, 0, 2**32 - 1) + page_step(8, 0, 1) + page_step(refresh),
        "many": many + page_step(used, 0, 300) + page_step(8, 0, 5000) + page_step(refresh) + looks,
        "two-at-one-address": page_slot(4, 5, base, 8, 0, 0, 0, 3) + page_step(note, 4) + opened + page_step(refresh),
        "two-sizes-of-one-memory": opened
        + page_slot(4, 5, base + 8192, 4096, 1, 0, 4096, 3)
        + page_step(note, 4)
        + page_step(refresh)
        + page_step(give, 3)
        + page_step(give, 4)
        + page_step(inside, 4, 64 * 4096),
    }
    lies = {
        "wraps-around": (5, 2**64 - 8, 4096, 1, 0, 4096, 3),
        "length-0": (5, base, 0, 1, 0, 4096, 3),
        "beyond-its-memory": (5, base, 4096, 1, 1, 4096, 3),
        "offset-near-2-64": (5, base, 4096, 1, 2**64 - 4096, 4096, 3),
        "not-aligned-like-its-memory": (5, base, 4096, 1, 4, 8192, 3),
        "memory-near-2-64": (5, base, 4096, 1, 0, 2**64 - 1, 3),
        "rights-unknown": (5, base, 4096, 0, 0, 0, 2**64 - 1),
        "closing": (6, base, 4096, 1, 0, 4096, 3),
        "state-3": (7, base, 4096, 1, 0, 4096, 3),
    }
    seeds |= {name: page_slot(3, *lie) + page_step(note, 3) + page_step(refresh) + looks for name, lie in lies.items()}
    return seeds


def rings() -> dict[str, bytes]:
    """Steps of fuzz_ring.c, behind the byte that says which side this is."""

    def step(kind: int, value: int = 0, line: int = 0) -> bytes:
        return struct.pack("<BQ", kind | line << 3, value % 2**64)

    receive, send, word, peek, sleep, ring, heed = 0, 1, 2, 4, 5, 6, 7
    seeds = {"empty": b"", "full": b"\0" + step(send, 70000) + step(send, 1) + step(peek, 2) + step(sleep, 3)}
    for name, value in {"1": 1, "size": 65536, "too-far": 65537, "near-2-64": 2**64 - 1, "half": 2**63}.items():
        lines = b"".join(step(word, value, line) for line in range(8))
        calls = step(receive, 100 | 50 << 32) + step(send, 100 | 65536 << 32) + step(sleep, 3) + step(peek, 3)
        seeds[f"positions-{name}"] = b"\0" + lines + calls + calls
        seeds[f"positions-{name}-guest"] = b"\1" + calls + lines + calls
    seeds["bell-broken"] = b"\0" + step(ring, 5) + step(heed, 1) + step(heed, 0) + step(receive, 9) + step(send, 9)
    return seeds


def packets() -> dict[str, bytes]:
    """Packets of fuzz_packet.c, behind a byte: bit 0, more may come; 1 to 3, the kind; 4, place for one descriptor."""

    def packet(kind: int, fds: int = 0, length: int = 40, status: int = 0) -> bytes:
        data = struct.pack("<Ii16sQII", kind, status, bytes(range(16)), 5, 3, 0)
        return bytes([fds, length]) + (data + bytes(200))[:length]

    def waits(kind: int, room: int = 2) -> bytes:
        return bytes([kind << 1 | (16 if room == 1 else 0)])

    welcome, mapped, ringed = 2, 4, 6
    return {
        "empty": b"",
        "welcome": waits(welcome) + packet(welcome, 2),
        "mapped": waits(mapped, 1) + packet(mapped, 1),
        "ringed": waits(ringed) + packet(ringed, 2),
        "refused": waits(mapped, 1) + packet(mapped, 0, status=-2009),
        "too-many-descriptors": waits(mapped, 1) + packet(mapped, 2) + packet(mapped, 8) + packet(mapped, 1),
        "another-kind": waits(mapped, 1) + packet(welcome, 2) + packet(mapped, 1),
        "short": waits(mapped, 1) + packet(mapped, 1, 39) + packet(mapped, 1, 1),
        "long": waits(mapped, 1) + packet(mapped, 1, 41) + packet(mapped, 1, 200),
        "nothing": waits(mapped, 1) + packet(mapped, 0, 0),
        "nothing-with-descriptors": waits(mapped, 1) + packet(mapped, 3, 0),
        "silence": b"\x09",
        "many": waits(mapped, 1) + packet(mapped, 1) * 20,
    }


def main() -> None:
    targets = {
        "frame": frames(),
        "items": lists(),
        "message": messages(),
        "packet": packets(),
        "preface": prefaces(),
        "regions": pages(),
        "ring": rings(),
    }
    for target, seeds in targets.items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (CORPUS / target / name).write_bytes(data)


if __name__ == "__main__":
    main()
