"""docs/protocol.md and docs/store-protocol.md say what the sources say: messages and records, status codes, limits, the
slot's layout, times and mistakes; and a worked example comes out."""

from __future__ import annotations

import re
from pathlib import Path

from peer import Hello, Proof, make_proof

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()
STORE_PAGE = (ROOT / "docs" / "store-protocol.md").read_text()


def source(name: str) -> str:
    return (ROOT / name).read_text()


def table_after(marker: str, page: str = PAGE) -> list[list[str]]:
    """The rows of the first table behind a line that contains `marker`, without its two head lines."""
    lines = page[page.index(marker) :].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def defined_fields() -> dict[str, list[tuple[str, str]]]:
    """Each FIELDS_NAME of messages.def, over all of its lines: (kind, field) in order."""
    text = source("libmooncake/wire/messages.def")
    definitions = re.findall(r"#define (FIELDS_\w+)\(U32, U64, ID, BYTES\)((?:.*\\\n)*.*)", text)
    return {name: re.findall(r"(\w+)\((\w+)\)", words) for name, words in definitions}


def described_fields(kind: str) -> str:
    return ", ".join(f"`{field}` {how}" for how, field in defined_fields()[kind])


def test_the_messages_are_those_of_messages_def() -> None:
    text = source("libmooncake/wire/messages.def")
    expected = [
        [number, name, str(16 + int(number)) if int(number) % 2 == 0 else "", described_fields(kind)]
        for name, number, kind in re.findall(r"^MESSAGE\((\w+), \w+, (\d+), (\w+)\)", text, re.MULTILINE)
    ]
    assert [row[0] for row in expected] == [str(number) for number in range(len(expected))]
    assert len(expected) >= 30
    assert table_after("checked against libmooncake/wire/messages.def") == expected


def test_the_records_are_those_of_messages_def() -> None:
    text = source("libmooncake/wire/messages.def")
    expected = [
        [name, described_fields(kind)] for name, kind in re.findall(r"^RECORD\((\w+), \w+, (\w+)\)", text, re.MULTILINE)
    ]
    assert expected
    assert table_after("the records of libmooncake/wire/messages.def") == expected


def test_every_set_of_fields_is_used_and_none_of_its_lines_is_missed() -> None:
    text = source("libmooncake/wire/messages.def")
    used = re.findall(r"^(?:MESSAGE|RECORD)\(.*, (FIELDS_\w+)\)", text, re.MULTILINE)
    fields = defined_fields()
    assert sorted(used) == sorted(fields)
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    assert sum(map(len, fields.values())) == len(re.findall(r"\b(?:U32|U64|ID|BYTES)\(\w+\)", code))


def test_the_lists_and_their_items_are_there() -> None:
    """What the page calls a list is a BYTES field of a message or record, and its items are records."""
    records = {row[0] for row in table_after("the records of libmooncake/wire/messages.def")}
    fields = {name for parts in defined_fields().values() for kind, name in parts if kind == "BYTES"}
    rows = table_after("Which BYTES fields are lists")
    assert {re.findall(r"`(\w+)`", row[0])[0] for row in rows} <= fields
    assert {row[1] for row in rows} - {"keys as they are"} == records - {"STAMP"}


def test_flags_and_kinds_are_those_of_message_h() -> None:
    text = source("libmooncake/wire/message.h")
    prose = " ".join(PAGE[PAGE.index("### The store's messages") : PAGE.index("## Same host")].split())
    for flag, value in re.findall(r"#define (?:PUBLISH|LOOKUP)_(\w+) (\d+)u", text):
        assert f"{value} {flag}" in prose
    kinds = {
        group: [name.strip().removeprefix(f"{group}_").removesuffix(" = 1") for name in names.split(",")]
        for group, names in (
            ("EVENT", re.findall(r"enum message_event_kind \{(.*?)\}", text)[0]),
            ("COMMAND", re.findall(r"enum message_command_kind \{(.*?)\}", text)[0]),
        )
    }
    rows = table_after("| kind of EVENT |")
    assert [[row[0], re.findall(r"\w+", row[1])[0]] for row in rows] == [
        [str(i), name] for i, name in enumerate(kinds["EVENT"], 1)
    ]
    assert [[row[2], re.findall(r"\w+", row[3])[0]] for row in rows if row[2]] == [
        [str(i), name] for i, name in enumerate(kinds["COMMAND"], 1)
    ]


def test_the_slot_is_laid_out_as_in_slot_h() -> None:
    text = source("libmooncake/wire/slot.h")
    sizes = {"uint64_t": 8, "uint32_t": 4}
    structs = {
        name: re.findall(r"^    (?:_Atomic )?(?:struct )?(\w+) (\w+);", body, re.MULTILINE)
        for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL)
    }

    def flat(name: str) -> list[tuple[str, int]]:
        parts = []
        for kind, field in structs[name]:
            parts += [(field, sizes[kind])] if kind in sizes else flat(kind)
        return parts

    offset, expected = 0, []
    for field, size in flat("slot"):
        expected.append([str(offset), str(size), f"`{field}`"])
        offset += size
    assert offset == 64
    rows = table_after("checked against libmooncake/wire/slot.h", STORE_PAGE)
    assert [row[:3] for row in rows] == expected
    states = re.findall(r"SLOT_(\w+) = (\d)", text)
    assert ", ".join(f"{number} {name}" for name, number in states) in rows[0][3]
    cells = re.findall(r"#define PIN_CELLS (\d+)u", text)[0]
    assert f"{cells} cells of 8 bytes" in table_after("A view is a read without a copy", STORE_PAGE)[0][1]


def test_the_times_are_those_of_timing_h() -> None:
    values = dict(re.findall(r"\.(\w+) = (\d+)ull", source("libmooncake/wire/timing.h")))
    units = {"s": 10**9, "ms": 10**6}
    rows = table_after("checked against libmooncake/wire/timing.h", STORE_PAGE)
    said = {}
    for name, time, _ in rows:
        number, unit = time.split()
        said[name.strip("`")] = str(int(number) * units[unit])
    assert values
    assert said == values


def test_the_mistakes_are_those_of_mistake_h() -> None:
    planted = re.findall(r'X\((\w+), "(.*?)"\)', source("libmooncake/wire/mistake.h"))
    rows = table_after("checked against libmooncake/wire/mistake.h", STORE_PAGE)
    assert planted
    assert [(row[0], row[1]) for row in rows] == planted


def test_the_store_page_has_all_rules_and_sends_each_request_of_the_store() -> None:
    rules = STORE_PAGE[STORE_PAGE.index("## Rules") : STORE_PAGE.index("## What may still happen")]
    assert re.findall(r"^(\d+)\. ", rules, re.MULTILINE) == [str(number) for number in range(1, 18)]
    requests = [row[1] for row in table_after("checked against libmooncake/wire/messages.def") if int(row[0]) >= 6]
    assert [row[0] for row in table_after("## Messages", STORE_PAGE)] == requests[::2]


def test_rules_that_the_code_cites_are_on_the_page() -> None:
    for path in sorted((ROOT / "libmooncake").rglob("*.[ch]")):
        for cited in re.findall(r"\(rules? (\d+)", path.read_text()):
            assert 1 <= int(cited) <= 17, path


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
        "libmooncake/wire/message.h",
        "libmooncake/wire/slot.h",
        "libmooncake/net/auth.h",
        "include/mooncake/transfer.h",
        "include/mooncake/types.h",
    )
    for header in headers:
        for name, value, shift in re.findall(r"#define (\w+) \(?(\d+)u?(?: << (\d+))?\)?", source(header)):
            constants[name] = int(value) << int(shift or 0)
    limits = dict(table_after("## Limits and time-outs"))
    assert limits["a key of the store"] == f"1 to {constants['KEY_MAX']} bytes"
    assert limits["`places` of one PUBLICATION or LOCATION"] == f"1 to {constants['REPLICAS_MAX']}"
    assert constants["MESSAGE_ADDRESS_MAX"] == constants["MESSAGE_NAME_MAX"]
    assert limits["`address` and `name` of a segment"] == f"{constants['MESSAGE_NAME_MAX'] - 1} bytes each"
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
