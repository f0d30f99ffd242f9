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


def messages() -> dict[str, bytes]:
    notify = text(b"127.0.0.1:1") + text(b"kv") + text(b"ready")
    invitation = text(b"\x00mooncake") + bytes(range(32))
    return {
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


def main() -> None:
    for target, seeds in (("frame", frames()), ("preface", prefaces()), ("message", messages())):
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, data in seeds.items():
            (CORPUS / target / name).write_bytes(data)


if __name__ == "__main__":
    main()
