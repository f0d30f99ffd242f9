"""Every message and record of messages.def is among the seeds of the fuzz targets, which each test run replays."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORDS_BEGIN = 0x80  # as in fuzz_message.c


def first_bytes(target: str) -> set[int]:
    files = (ROOT / "tests" / "fuzz" / "corpus" / target).iterdir()
    return {data[0] for data in (file.read_bytes() for file in files) if data}


def test_every_message_and_record_is_replayed() -> None:
    rows = (ROOT / "libmooncake" / "wire" / "messages.def").read_text()
    messages = {int(number): name for name, number in re.findall(r"^MESSAGE\((\w+), \w+, (\d+),", rows, re.MULTILINE)}
    records = re.findall(r"^RECORD\((\w+),", rows, re.MULTILINE)
    wanted = {**messages, **{RECORDS_BEGIN + index: name for index, name in enumerate(records)}}
    assert len(messages) > 20 and len(records) > 5
    missing = {name for number, name in wanted.items() if number not in first_bytes("message")}
    assert missing == set()


def test_every_target_has_seeds_and_is_replayed() -> None:
    build = (ROOT / "tests" / "fuzz" / "meson.build").read_text()
    targets = {path.stem.removeprefix("fuzz_") for path in (ROOT / "tests" / "fuzz").glob("fuzz_*.c")}
    assert targets == {path.name for path in (ROOT / "tests" / "fuzz" / "corpus").iterdir()}
    assert targets == set(re.findall(r"'(\w+)'", re.search(r"foreach target : \[(.*?)\]", build)[1]))  # type: ignore[index]
