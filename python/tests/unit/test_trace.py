"""A trace is read exactly, or refused with line and reason; the generated one is like the recorded hour."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from mooncake.cli._trace import Request, TraceError, find_trace, generate_trace, read_trace

GOOD = {"timestamp": 5, "input_length": 700, "output_length": 9, "hash_ids": [0, 7]}


def lines(*rows: Any) -> bytes:
    return b"".join(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows)


def test_a_trace_is_read_plain_and_compressed(tmp_path: Path) -> None:
    text = lines(GOOD, b"\n", {**GOOD, "timestamp": 8, "extra": None})
    (tmp_path / "plain").write_bytes(text)
    (tmp_path / "packed").write_bytes(gzip.compress(text))
    expected = [Request(5, 700, 9, (0, 7)), Request(8, 700, 9, (0, 7))]
    assert read_trace(tmp_path / "plain") == expected
    assert read_trace(tmp_path / "packed") == expected
    assert read_trace(tmp_path / "plain", limit=1) == expected[:1]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{\n", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 100000 + b"\n", "not JSON"),
        ([1], "not an object"),
        ({**GOOD, "timestamp": None}, "timestamp must be a whole number"),
        ({**GOOD, "timestamp": -1}, "timestamp must be a whole number"),
        ({**GOOD, "timestamp": 4}, "timestamp 4 is before the last one, 5"),
        ({**GOOD, "output_length": 1.5}, "output_length must be a whole number"),
        ({**GOOD, "output_length": True}, "output_length must be a whole number"),
        ({name: value for name, value in GOOD.items() if name != "input_length"}, "input_length must be"),
        ({name: value for name, value in GOOD.items() if name != "hash_ids"}, "hash_ids must be a list"),
        ({**GOOD, "hash_ids": [0, "7"]}, "hash_ids must be a list"),
        ({**GOOD, "hash_ids": [0, -7]}, "hash_ids must be a list"),
        ({**GOOD, "hash_ids": [0, 2**64]}, "hash_ids must be a list"),
        ({**GOOD, "hash_ids": [0]}, "700 tokens has 2 blocks, and hash_ids 1"),
    ],
)
def test_a_malformed_line_is_refused_with_its_number_and_the_reason(tmp_path: Path, bad: Any, reason: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(lines(GOOD, bad, GOOD))
    with pytest.raises(TraceError, match=reason) as caught:
        read_trace(path)
    assert caught.value.line == 2
    assert str(caught.value).startswith(f"{path}, line 2: ")


def test_a_cut_compressed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(lines(*[{**GOOD, "timestamp": at} for at in range(5, 5000)]))[:-400])
    with pytest.raises(TraceError, match="damaged or cut") as caught:
        read_trace(path)
    assert caught.value.line is not None
    assert caught.value.line > 1


def test_an_empty_and_an_absent_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(TraceError, match="no requests in it"):
        read_trace(tmp_path / "empty")
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "absent")


def test_the_recorded_trace_is_found_beside_the_repository(tmp_path: Path) -> None:
    data = tmp_path / "shared" / "data"
    data.mkdir(parents=True)
    inside = tmp_path / "repository" / "some" / "folder"
    inside.mkdir(parents=True)
    assert find_trace(inside) is None or tmp_path not in find_trace(inside).parents  # type: ignore[union-attr]
    (data / "conversation_trace.jsonl.gz").write_bytes(b"")
    assert find_trace(inside) == data / "conversation_trace.jsonl.gz"


def test_the_generated_trace_has_the_statistics_of_the_recorded_hour() -> None:
    trace = generate_trace()
    lengths = sorted(len(request.hash_ids) for request in trace)
    accesses, distinct = sum(lengths), len({i for request in trace for i in request.hash_ids})
    assert len(trace) == 12031
    assert accesses == pytest.approx(288500, rel=0.05)
    assert distinct == pytest.approx(182790, rel=0.05)
    assert 1 - distinct / accesses == pytest.approx(0.3664, abs=0.03)
    for share, recorded in ((0.25, 5), (0.5, 14), (0.75, 31), (0.9, 54), (0.95, 78), (0.99, 167), (1, 247)):
        assert lengths[int(share * (len(lengths) - 1))] == pytest.approx(recorded, rel=0.15, abs=1)


def test_the_generated_trace_is_the_same_each_time_and_well_formed(tmp_path: Path) -> None:
    trace = generate_trace(300, seed=4)
    assert trace == generate_trace(300, seed=4)
    assert trace != generate_trace(300, seed=5)
    path = tmp_path / "trace"
    path.write_bytes(lines(*[request._asdict() for request in trace]))
    assert read_trace(path) == trace
