"""Traces of a chat service: one request a line, with the ids of its prompt's blocks of 512 tokens; equal ids mean equal
prefixes. Read from a file, or made by a seeded generator with the statistics of a recorded hour."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Optional, Union, cast

__all__ = ["BLOCK_TOKENS", "Request", "TraceError", "choose_trace", "find_trace", "generate_trace", "read_trace"]

BLOCK_TOKENS = 512
_LARGEST = 2**64 - 1
_NAME = Path("shared/data/conversation_trace.jsonl.gz")
_SEED = 1


class Request(NamedTuple):
    """timestamp: ms since the first request; lengths in tokens; hash_ids: one per block of the prompt."""

    timestamp: int
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


class TraceError(ValueError):
    """A trace that can't be used: which file, which line, and why."""

    def __init__(self, path: object, line: Optional[int], reason: str) -> None:
        super().__init__(f"{path}: {reason}" if line is None else f"{path}, line {line}: {reason}")
        self.line = line
        self.reason = reason


def find_trace(start: Path) -> Optional[Path]:
    """The recorded trace in `shared/data` beside `start` or beside a directory above it, if it is there."""
    for folder in (start, *start.parents):
        path = folder.parent / _NAME
        if path.is_file():
            return path
    return None


def choose_trace(path: Optional[str], limit: Optional[int] = None) -> tuple[list[Request], str]:
    """The requests of the named file, else of the recorded trace, else of one that is made; and words on where they are
    from."""
    found = Path(path) if path is not None else find_trace(Path.cwd())
    if found is not None:
        return read_trace(found, limit), f"recorded, {found}"
    made = generate_trace(seed=_SEED) if limit is None else generate_trace(limit, _SEED)
    return made, f"made here by the seeded generator (seed {_SEED}): no recorded trace was found"


def read_trace(path: Union[str, Path], limit: Optional[int] = None) -> list[Request]:
    """The requests of a JSON-lines file, plain or gzip; at most `limit`. TraceError says which line is bad, and why."""
    requests: list[Request] = []
    number = 0
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path, "rb") if packed else open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if limit is not None and len(requests) == limit:
                    break
                if line.strip():
                    requests.append(_parse(path, number, line, requests[-1].timestamp if requests else 0))
    except OSError as error:
        raise TraceError(path, number + 1 if number else None, error.strerror or str(error)) from None
    except (EOFError, zlib.error) as error:
        raise TraceError(path, number + 1, f"the compressed file is damaged or cut: {error}") from None
    if not requests:
        raise TraceError(path, None, "no requests in it")
    return requests


def _parse(path: object, number: int, line: bytes, earliest: int) -> Request:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(path, number, f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise TraceError(path, number, "not an object")
    fields = cast("dict[str, Any]", row)
    values: list[int] = []
    for name in ("timestamp", "input_length", "output_length"):
        value: Any = fields.get(name)
        if not _is_count(value):
            raise TraceError(path, number, f"{name} must be a whole number, 0 or more, not {value!r:.40}")
        values.append(value)
    ids = fields.get("hash_ids")
    if not isinstance(ids, list) or not all(map(_is_count, cast("list[Any]", ids))):
        raise TraceError(path, number, "hash_ids must be a list of whole numbers from 0 to 2^64 - 1")
    prompt = tuple(cast("list[int]", ids))
    blocks = -(-values[1] // BLOCK_TOKENS)
    if len(prompt) != blocks:
        raise TraceError(
            path, number, f"an input of {values[1]} tokens has {blocks} blocks, and hash_ids {len(prompt)}"
        )
    if values[0] < earliest:
        raise TraceError(path, number, f"timestamp {values[0]} is before the last one, {earliest}")
    return Request(values[0], values[1], values[2], prompt)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST


# From the recorded hour: quantiles of the length in blocks of a prompt without history, of the blocks that a follow-up
# adds, of how many requests earlier its history is, and of the tokens answered; rounded so that straight lines between
# them give the hour's sums.
_STEPS = (0.0, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_FRESH = (2, 2, 2, 3, 10, 25, 45, 70, 155, 247)
_ADDED = (1, 1, 1, 2, 2, 6, 17, 26, 45, 160)
_BACK = (5, 99, 141, 229, 422, 901, 1660, 2129, 5101, 10514)
_ANSWER = (1, 10, 24, 156, 350, 472, 597, 698, 1115, 2000)
_FOLLOWS = 0.387
_LONGEST = 247


def _draw(source: random.Random, quantiles: tuple[int, ...]) -> int:
    """A number whose distribution has these quantiles at _STEPS."""
    point = source.random()
    step = bisect_right(_STEPS, point) - 1
    low, high = quantiles[step], quantiles[step + 1]
    return round(low + (high - low) * (point - _STEPS[step]) / (_STEPS[step + 1] - _STEPS[step]))


def generate_trace(count: int = 12031, seed: int = 1) -> list[Request]:
    """`count` requests like those of the recorded hour: as long, and with as many blocks seen before.

    Every prompt begins with the same block (the system's part); a follow-up repeats an earlier prompt but for its last
    block, which was not full, and adds some.
    """
    source = random.Random(seed)
    return list(_generate(source, count))


def _generate(source: random.Random, count: int) -> Iterator[Request]:
    prompts: list[tuple[int, ...]] = []
    next_id, now = 1, 0
    for _ in range(count):
        start: tuple[int, ...] = (0,)
        if source.random() < _FOLLOWS:
            back = _draw(source, _BACK)
            if back <= len(prompts):
                start = prompts[-back][: _LONGEST - 1]
                start = start[:-1] if len(start) > 2 else start
            added = max(1, _draw(source, _ADDED))
        else:
            added = _draw(source, _FRESH) - 1
        added = min(added, _LONGEST - len(start))
        prompt = start + tuple(range(next_id, next_id + added))
        next_id += added
        prompts.append(prompt)
        tokens = len(prompt) * BLOCK_TOKENS - source.randrange(BLOCK_TOKENS)
        yield Request(now, tokens, _draw(source, _ANSWER), prompt)
        now += 3000 if source.random() < 0.098 else 0
