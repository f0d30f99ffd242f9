"""What a call of the store that takes its time does to the rest of the process: other threads, buffers, signals."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import mooncake
from mooncake import errors
from mooncake.store import MooncakeDistributedStore, Store

PART = 8 << 20


@contextmanager
def counting() -> Iterator[list[float]]:
    """A thread that counts; what it saw as its longest pause, in seconds, is there at the end."""
    stop, pauses = threading.Event(), [0.0]

    def count() -> None:
        last = time.monotonic()
        while not stop.is_set():
            now = time.monotonic()
            pauses[0] = max(pauses[0], now - last)
            last = now

    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield pauses
    finally:
        stop.set()
        thread.join()


def full(store: Store) -> None:
    """Fills the pool of 64 MiB with what can't be evicted, so that no PART fits any more."""
    assert store.put_many({f"full{index}": bytes(PART) for index in range(7)}, hard_pin=True) == [True] * 7


def test_other_threads_run_while_a_put_waits_for_space(store: Store) -> None:
    full(store)
    with counting() as pauses:
        start = time.monotonic()
        with pytest.raises(errors.NoSpace):
            store.put("a", bytes(PART), timeout=1)
        took = time.monotonic() - start
    assert took > 0.5
    assert pauses[0] < took / 2


def test_other_threads_run_while_a_setup_waits_for_a_master() -> None:
    with counting() as pauses:
        start = time.monotonic()
        with pytest.raises(errors.Unreachable):
            mooncake.connect("127.0.0.1:1")
        took = time.monotonic() - start
    assert pauses[0] < max(0.25, took / 2)


def test_other_threads_run_while_large_values_move() -> None:
    with mooncake.connect(segment_size="600MiB") as store:
        value = bytes(256 << 20)
        with counting() as pauses:
            start = time.monotonic()
            store["a"] = value
            put = time.monotonic() - start
            got = store["a"]
            store.get_into("a", bytearray(0) if len(got) != len(value) else memoryview(bytearray(len(value))))
            took = time.monotonic() - start
        assert len(got) == len(value)
        assert put < took
        assert pauses[0] < took / 2


def test_a_buffer_can_t_be_resized_while_a_call_uses_it(store: Store) -> None:
    full(store)
    value = bytearray(PART)
    failed: list[str] = []

    def put() -> None:
        try:
            store.put("a", value, timeout=2)
        except errors.NoSpace as error:
            failed.append(str(error))

    thread = threading.Thread(target=put)
    thread.start()
    refused = 0
    while thread.is_alive() and not refused:
        try:
            value.append(1)
            value.pop()
        except BufferError:
            refused += 1
    thread.join()
    assert refused
    value.append(1)


def test_close_ends_a_put_that_waits() -> None:
    store = mooncake.connect(segment_size="64MiB")
    full(store)
    ended: list[type[BaseException]] = []

    def put() -> None:
        try:
            store.put("a", bytes(PART), timeout=20)
        except errors.MooncakeError as error:
            ended.append(type(error))

    thread = threading.Thread(target=put)
    thread.start()
    while not store.stats():
        pass
    start = time.monotonic()
    store.close()
    thread.join(10)
    assert time.monotonic() - start < 5
    assert ended in ([errors.Closed], [errors.InvalidHandle])


def test_closing_from_many_threads_is_closing_once() -> None:
    old = MooncakeDistributedStore()
    assert old.setup("localhost", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", "") == 0
    results: list[int] = []
    store = mooncake.connect(segment_size="16MiB")

    def close() -> None:
        store.close()
        results.append(old.close())

    threads = [threading.Thread(target=close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [0] * 8
    assert store.closed
