"""What the eviction policies reach on the recorded trace, by the simulator that has their code."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SIMULATE = ROOT / "build" / "check" / "gcc" / "tests" / "eviction" / "simulate-eviction"
TRACE = ROOT.parent / "shared" / "data" / "conversation_trace.jsonl.gz"
CAPACITIES = ("1000", "3000", "10000", "30000")


def simulate(policy: str, requests: str, *capacities: str) -> dict[str, float]:
    done = subprocess.run(
        [SIMULATE, policy, *capacities], input=requests, capture_output=True, text=True, timeout=120, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture(autouse=True)
def built() -> None:
    if not SIMULATE.exists():
        pytest.skip(f"{SIMULATE} is not there: make check builds it")


def test_hazard_finds_more_of_the_recorded_hour_than_lru_at_each_size() -> None:
    if not TRACE.exists():
        pytest.skip("the recorded trace is not here")
    with gzip.open(TRACE, "rt") as lines:
        requests = "\n".join(" ".join(map(str, json.loads(line)["hash_ids"])) for line in lines)
    lru, hazard = (simulate(policy, requests, *CAPACITIES) for policy in ("lru", "hazard"))
    assert [lru[capacity] for capacity in CAPACITIES] == [0.0445, 0.0650, 0.2112, 0.3257], "as others have measured it"
    # Floors that hold under any names of the blocks, not the aims: .233 at 10,000 is not reached, and .078 at 1,000 not
    # by every naming (docs/eviction.md).
    for capacity, wanted in zip(CAPACITIES, (0.077, 0.130, 0.230, 0.330)):
        assert hazard[capacity] >= wanted > lru[capacity]


def test_what_is_no_request_or_policy_is_refused() -> None:
    assert simulate("hazard", "1 2 3\n1 2 3\n", "2") == {"policy": "hazard", "accesses": 6, "2": 0.3333}
    for words, text in ((["best", "10"], ""), (["lru", "10"], "1 two 3\n"), (["lru"], "")):
        done = subprocess.run([SIMULATE, *words], input=text, capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stdout) == (2, "")
