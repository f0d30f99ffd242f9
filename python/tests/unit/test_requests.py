"""Packed requests are the C structs, byte by byte."""

from __future__ import annotations

from array import array
from typing import Any

import pytest

from mooncake._native import ffi, lib
from mooncake.engine._memory import Memory, load_bytes, span_of, store_bytes
from mooncake.engine._requests import pack_columns, pack_one, words

BIG = 2**64 - 1


def as_struct(**fields: Any) -> bytes:
    request = ffi.new("struct mc_request *", fields)
    return bytes(ffi.buffer(request))


def test_one_request_is_the_c_struct() -> None:
    expected = as_struct(peer=BIG, opcode=1, local=ffi.cast("void *", 5), remote=BIG, length=7)
    assert pack_one(BIG, 1, 5, BIG, 7) == expected
    guarded = as_struct(peer=1, flags=lib.MC_REQUEST_GUARD, remote=3, length=4, guard_address=8, guard_value=BIG)
    assert pack_one(1, 0, 0, 3, 4, (8, BIG)) == guarded


def test_columns_are_the_c_structs() -> None:
    local, remote, length = words([1, 2, 3]), words([4, 5, BIG]), words([7, 0, 9])
    expected = b"".join(
        as_struct(peer=6, opcode=1, local=ffi.cast("void *", a), remote=b, length=c)
        for a, b, c in zip(local, remote, length)
    )
    assert pack_columns(6, 1, local, remote, length).tobytes() == expected


def test_a_column_is_made_of_whole_numbers_only() -> None:
    assert words([0, BIG]) == array("Q", [0, BIG])
    assert words(range(3)) == array("Q", [0, 1, 2])
    for wrong in (["1"], [1.0], [None], b"12345678", "12345678", 7, None):
        with pytest.raises(TypeError):
            words(wrong)  # type: ignore[arg-type]
    for wrong in ([-1], [2**64]):
        with pytest.raises(ValueError, match="from 0 to"):
            words(wrong)
    with pytest.raises(TypeError):
        pack_one(1, 0, "5", 0, 0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="from 0 to"):
        pack_one(1, 0, -5, 0, 0)


def test_a_column_may_be_an_array_of_numbers() -> None:
    for column in (array("Q", [1, 2]), array("q", [1, 2]), array("i", [1, 2]), memoryview(array("L", [1, 2, 3]))[:2]):
        assert words(column) == array("Q", [1, 2])
    assert words(memoryview(array("Q", range(6)))[::2]) == array("Q", [0, 2, 4])
    assert words(iter([1, 2])) == words({1: 0, 2: 0}) == array("Q", [1, 2])
    assert words(array("Q")) == words(array("q")) == array("Q")
    with pytest.raises(ValueError, match="from 0 to"):
        words(array("q", [1, -1]))
    with pytest.raises(TypeError):
        words(array("d", [1.0]))
    with pytest.raises(ValueError, match="one dimension"):
        words(memoryview(bytearray(32)).cast("B").cast("Q", (2, 2)))


def test_numpy_columns_are_taken() -> None:
    numpy = pytest.importorskip("numpy")
    for kind in ("uint64", "int64", "int32", "uint8"):
        assert words(numpy.arange(5, dtype=kind)) == array("Q", range(5))
        assert words(numpy.arange(10, dtype=kind)[::2]) == array("Q", range(0, 10, 2))
    for wrong in (numpy.zeros(3), numpy.array(["a"])):
        with pytest.raises(TypeError):
            words(wrong)
    with pytest.raises(ValueError, match="from 0 to"):
        words(numpy.array([-1]))


def test_flags_are_in_their_place() -> None:
    one, column = words([1]), words([3])
    expected = as_struct(peer=6, opcode=1, flags=lib.MC_REQUEST_CHECKSUM, local=ffi.cast("void *", 1), length=3)
    assert pack_columns(6, 1, one, words([0]), column, lib.MC_REQUEST_CHECKSUM).tobytes() == expected
    assert pack_one(6, 1, 1, 0, 3, None, lib.MC_REQUEST_CHECKSUM) == expected


def test_a_span_is_an_address_a_buffer_or_memory() -> None:
    assert span_of(4096, 10)[:2] == (4096, 10)
    with pytest.raises(TypeError, match="needs a length"):
        span_of(4096)
    buffer = bytearray(b"0123456789")
    address, length, _keep = span_of(buffer)
    assert length == 10
    assert load_bytes(address, length) == buffer
    assert span_of(memoryview(buffer)[2:6])[:2] == (address + 2, 4)
    assert span_of(buffer, 3)[:2] == (address, 3)
    for wrong in (11, -1):
        with pytest.raises(ValueError, match="does not fit"):
            span_of(buffer, wrong)
    with pytest.raises(BufferError):
        span_of(b"read only", writable=True)
    with pytest.raises(TypeError):
        span_of(object())
    with Memory(100) as memory:
        assert span_of(memory)[:2] == (memory.address, 100)
    with pytest.raises(ValueError, match="freed"):
        span_of(memory)


def test_a_wrong_address_is_an_error_and_not_a_crash() -> None:
    buffer = bytearray(8)
    address = span_of(buffer)[0]
    store_bytes(address, b"12345678")
    assert buffer == b"12345678"
    for wrong in (0, 8, 2**47, 2**63 + 5, BIG):
        with pytest.raises(ValueError, match="readable bytes"):
            load_bytes(wrong, 8)
        with pytest.raises(ValueError, match="writable bytes"):
            store_bytes(wrong, b"12345678")
    for wrong in (2**40, 2**63, BIG):
        with pytest.raises(ValueError, match="readable bytes"):
            load_bytes(address, wrong)
