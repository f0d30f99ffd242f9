"""Keys, sizes and options of the store: what is taken, what is refused and with which words."""

from __future__ import annotations

from typing import Any

import pytest

from mooncake._native import ffi, lib
from mooncake.store import ObjectDataType, ReplicateConfig, SoftPinAction
from mooncake.store._compat_values import code_of, column_of, word_of
from mooncake.store._keys import PackedKeys, key_bytes, keys_bytes
from mooncake.store._options import parse_size, put_options


def test_a_key_is_a_str_or_bytes() -> None:
    assert key_bytes("grüß") == "grüß".encode()
    assert key_bytes(b"\0\xff") == b"\0\xff"
    assert keys_bytes(iter(["a", b"b"])) == [b"a", b"b"]
    for wrong in (None, 1, 1.5, ["a"], bytearray(b"a")):
        with pytest.raises(TypeError, match=f"key must be a str or bytes, not {type(wrong).__name__}"):
            key_bytes(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"keys\[1\] must be a str or bytes, not int"):
        keys_bytes(["a", 1])  # type: ignore[list-item]
    for many in ("ab", b"ab", 5, None):
        with pytest.raises(TypeError, match=f"keys must be a sequence of str or bytes, not {type(many).__name__}"):
            keys_bytes(many)  # type: ignore[arg-type]


def test_packed_keys_are_one_blob_with_lengths() -> None:
    packed = PackedKeys([b"one", b"", b"three\0"])
    keys = packed.cell
    assert keys.count == 3
    assert list(keys.lengths[0:3]) == [3, 0, 6]
    assert bytes(ffi.buffer(ffi.cast("char *", keys.bytes), 9)) == b"onethree\0"


@pytest.mark.parametrize(
    ("text", "size"),
    [(0, 0), ("0", 0), (5, 5), ("12", 12), ("3gb", 3 << 30), ("4 GB", 4 << 30), ("16MiB", 16 << 20), ("1.5g", 3 << 29),
     (" 2 k ", 2048), ("1T", 1 << 40), ("7b", 7), ("0.5KiB", 512)],
)  # fmt: skip
def test_sizes_have_units_of_1024(text: Any, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "gb", "1x", "-1", "1 2", "1kk", "0x10", "nan", "inf", "1e30", "99999999999 tb", -1]
)
def test_what_is_no_size_is_a_value_error_with_the_name(text: Any) -> None:
    with pytest.raises(ValueError, match="segment_size must be a number of bytes"):
        parse_size(text, "segment_size")


def test_a_size_is_an_int_or_a_str() -> None:
    with pytest.raises(TypeError, match="size must be an int or a str, not float"):
        parse_size(1.5)  # type: ignore[arg-type]


def test_options_are_null_where_nothing_is_asked_for() -> None:
    assert put_options()[0] == ffi.NULL
    options, _keep = put_options(3, True, True, ["a", "b"], 1.5, upsert=True)
    assert options.struct_size == ffi.sizeof("struct mc_put_options")
    assert options.flags == lib.MC_PUT_SOFT_PIN | lib.MC_PUT_HARD_PIN | lib.MC_PUT_UPSERT
    assert (options.replicas, options.preferred_count, options.timeout_ns) == (3, 2, 1_500_000_000)
    assert [ffi.string(options.preferred[index]) for index in range(2)] == [b"a", b"b"]
    for wrong in (0, 9, -1):
        with pytest.raises(ValueError, match="replicas must be from 1 to 8"):
            put_options(wrong)
    with pytest.raises(TypeError, match="prefer must be a sequence"):
        put_options(prefer="a")


def test_addresses_and_sizes_are_integers_of_64_bits() -> None:
    assert word_of(2**64 - 1, "size") == 2**64 - 1
    assert list(column_of(range(3), "sizes")) == [0, 1, 2]
    for wrong in ("1", 1.0, None, b"1"):
        with pytest.raises(TypeError, match=f"size must be an int, not {type(wrong).__name__}"):
            word_of(wrong, "size")
        with pytest.raises(TypeError, match=rf"sizes\[1\] must be an int, not {type(wrong).__name__}"):
            column_of([1, wrong], "sizes")  # type: ignore[list-item]
    for number in (-1, 2**64):
        with pytest.raises(ValueError, match="size must be from 0 to"):
            word_of(number, "size")
        with pytest.raises(ValueError, match=r"sizes\[0\] must be from 0 to"):
            column_of([number], "sizes")
    for wrong in ("12", b"12", 5, None):
        with pytest.raises(TypeError, match=f"sizes must be a list of int, not {type(wrong).__name__}"):
            column_of(wrong, "sizes")  # type: ignore[arg-type]


def test_the_codes_are_the_reference_s() -> None:
    kept = (-1, -101, -200, -400, -600, -704, -705, -801, -1012)
    assert [code_of(code) for code in kept] == list(kept)
    assert code_of(lib.MC_ERR_TIMEOUT) == -901
    assert code_of(lib.MC_ERR_UNREACHABLE) == code_of(lib.MC_ERR_UNAVAILABLE) == -900
    assert code_of(lib.MC_ERR_CLOSED) == code_of(lib.MC_ERR_BUFFER_TOO_SMALL) == -600
    assert code_of(lib.MC_ERR_NO_MEMORY) == -200
    assert all(code_of(code) > -2000 for code in range(-2100, -1999))


def test_a_config_has_the_reference_s_attributes_and_defaults() -> None:
    config = ReplicateConfig()
    names = (
        "replica_num nof_replica_num dfs_replica_num soft_pin_action soft_pin_ttl_ms with_hard_pin preferred_segments"
        " preferred_segment preferred_nof_segments prefer_alloc_in_same_node data_type group_ids"
    )
    assert [getattr(config, name) for name in names.split()] == [
        1, 0, 0, SoftPinAction.PRESERVE, None, False, [], "", [], False, ObjectDataType.UNKNOWN, None
    ]  # fmt: skip
    assert not hasattr(config, "session_ids")
    config.replica_num, config.group_ids, config.data_type = 2, ["g"], ObjectDataType.TENSOR
    config.preferred_segments = ["a"]
    assert "replica_num=2" in repr(config)
    assert ReplicateConfig().preferred_segments == []
    with pytest.raises(AttributeError, match="session_ids"):
        config.session_ids = []  # type: ignore[attr-defined]
    for name, wrong in (
        ("replica_num", "2"),
        ("replica_num", True),
        ("with_hard_pin", 1),
        ("preferred_segment", None),
        ("preferred_segments", "a"),
        ("data_type", 2),
    ):
        with pytest.raises(TypeError, match=f"{name} must be .*, not {type(wrong).__name__}"):
            setattr(config, name, wrong)
    with pytest.raises(TypeError, match=r"preferred_segments\[1\] must be a str, not int"):
        config.preferred_segments = ["a", 1]  # type: ignore[list-item]
