"""docs/protocol.md says what the sources say: messages, status codes, limits, and a worked example that comes out."""

from __future__ import annotations

import re
from pathlib import Path

from peer import Hello, Proof, make_proof

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()


def source(name: str) -> str:
    return (ROOT / name).read_text()


def table_after(marker: str) -> list[list[str]]:
    """The rows of the first table behind a line that contains `marker`, without its two head lines."""
    lines = PAGE[PAGE.index(marker) :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_messages_are_those_of_messages_def() -> None:
    text = source("libmooncake/wire/messages.def")
    fields = {
        name: ", ".join(f"`{field}` {kind}" for kind, field in re.findall(r"(\w+)\((\w+)\)", words))
        for name, words in re.findall(r"#define (FIELDS_\w+)\(U32, U64, ID, BYTES\)(.*(?:\\\n.*)*)", text)
    }
    expected = [
        [number, name, str(16 + int(number)) if int(number) % 2 == 0 else "", fields[kind]]
        for name, number, kind in re.findall(r"^MESSAGE\((\w+), \w+, (\d+), (\w+)\)", text, re.MULTILINE)
    ]
    assert expected
    assert table_after("checked against libmooncake/wire/messages.def") == expected


def test_the_status_codes_are_those_of_error_h() -> None:
    known = {
        f"`MC_{name}`": (code, text)
        for name, code, text in re.findall(
            r'X\((\w+), (-?\d+), [01], "\w*", "(.*?)"\)', source("include/mooncake/error.h")
        )
    }
    rows = table_after("checked against include/mooncake/error.h")
    assert rows
    for code, name, text in rows:
        assert known[name] == (code, text)
    named = set(re.findall(r"`MC_\w+`", PAGE))
    assert named == {row[1] for row in rows}


def test_the_limits_are_those_of_the_headers() -> None:
    constants = {}
    headers = (
        "libmooncake/wire/frame.h",
        "libmooncake/net/auth.h",
        "include/mooncake/transfer.h",
        "include/mooncake/types.h",
    )
    for header in headers:
        for name, value, shift in re.findall(r"#define (\w+) \(?(\d+)u?(?: << (\d+))?\)?", source(header)):
            constants[name] = int(value) << int(shift or 0)
    limits = dict(table_after("## Limits and time-outs"))
    assert limits["length of one READ or WRITE"].startswith(f"{constants['FRAME_PAYLOAD_MAX']} bytes")
    assert limits["a message"] == f"{constants['FRAME_MESSAGE_MAX']} bytes"
    assert limits["`name` and `message` of a NOTIFY together"] == f"{constants['MC_NOTIFICATION_MAX']} bytes"
    assert limits["`sender` of a NOTIFY"] == f"{constants['MC_ADDRESS_MAX'] - 1} bytes"
    assert limits["cluster key"] == f"{constants['AUTH_KEY_MIN']} to {constants['AUTH_KEY_MAX']} bytes"


def test_the_types_and_flags_are_those_of_frame_h() -> None:
    text = source("libmooncake/wire/frame.h")
    types = {row[1]: row[0] for row in table_after("leaves unused")}
    for name in ("READ", "WRITE"):
        assert re.search(rf"FRAME_{name} = {types[name]},", text)
    assert "#define FRAME_CALL 16u" in text
    flags = {row[1]: row[0] for row in table_after("| flag | name |")}
    assert flags == dict(re.findall(r"#define FRAME_FLAG_(\w+) (\d+)u", text))


def test_the_worked_example_comes_out() -> None:
    example = PAGE[PAGE.index("### Worked example") :].split("```")[1]
    said = {
        label.strip(): bytes.fromhex(digits)
        for label, digits in re.findall(r"^(\w[A-Za-z ]{14})((?:[0-9a-f]{2}\s+)+)", example, re.MULTILINE)
    }
    key = bytes(range(0x20))
    client = Hello(1, 1, 1, bytes(range(0xA0, 0xB0)), bytes(range(0xB0, 0xC0)), bytes(range(0x40, 0x60))).pack()
    server = Hello(1, 1, 1, bytes(range(0xB0, 0xC0)), bytes(16), bytes(range(0x60, 0x80))).pack()
    assert said == {
        "key": key,
        "client HELLO": client,
        "server HELLO": server,
        "client PROOF": Proof(0, 0, make_proof(key, "client", client, server)).pack(),
        "server ACCEPT": Proof(0, 1, make_proof(key, "server", client, server)).pack(),
    }
