"""The simulated cache that a replay is compared with gives the known figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from mooncake.cli._lru import simulate_lru
from mooncake.cli._trace import find_trace, generate_trace, read_trace


def test_the_least_recently_used_block_gives_way() -> None:
    assert simulate_lru([(1,), (2,), (1,), (3,), (1,), (2,)], 2) == 2
    assert simulate_lru([(1,), (2,), (1,), (3,), (1,), (2,)], 3) == 3


def test_a_hit_counts_only_behind_hits() -> None:
    assert simulate_lru([(1, 2, 3), (1, 9, 3), (1, 9, 3)], 10) == 4


def test_what_was_named_behind_a_miss_was_used() -> None:
    assert simulate_lru([(1,), (2,), (9, 1), (3,), (1,)], 3) == 1


def test_a_larger_cache_finds_no_less() -> None:
    trace = [request.hash_ids for request in generate_trace(1500)]
    found = [simulate_lru(trace, capacity) for capacity in (100, 1000, 5000, 100_000)]
    assert found == sorted(found)
    seen: set[int] = set()
    repeated = 0
    for request in trace:
        repeated += sum(block_id in seen for block_id in request)
        seen.update(request)
    assert found[-1] <= repeated


@pytest.mark.parametrize(("capacity", "ratio"), [(1000, 0.0445), (3000, 0.0650), (10_000, 0.2112), (30_000, 0.3257)])
def test_the_recorded_hour_has_its_published_hit_ratios(capacity: int, ratio: float) -> None:
    path = find_trace(Path(__file__).resolve().parent)
    if path is None:
        pytest.skip("the recorded trace is not here")
    trace = [request.hash_ids for request in read_trace(path)]
    accesses = sum(map(len, trace))
    assert simulate_lru(trace, capacity) / accesses == pytest.approx(ratio, abs=0.00005)
