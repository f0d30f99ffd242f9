"""One exception class per status code, each also the built-in that a caller would expect."""

from __future__ import annotations

import builtins
import pickle
import re

import pytest
from support import INCLUDE

from mooncake import errors
from mooncake._errors import error_for
from mooncake._native import ffi, lib

ROWS = re.findall(r'X\((\w+), (-?\d+), ([01]), "(\w*)",\s*"([^"]*)"\)', (INCLUDE / "mooncake" / "error.h").read_text())


def test_the_table_was_found() -> None:
    assert len(ROWS) > 20


@pytest.mark.parametrize(("name", "code", "retryable", "base", "text"), [row for row in ROWS if row[0] != "OK"])
def test_a_code_has_its_class(name: str, code: str, retryable: str, base: str, text: str) -> None:
    error = error_for(int(code))
    assert isinstance(error, errors.MooncakeError)
    assert isinstance(error, getattr(builtins, base))
    assert type(error).__name__ in errors.__all__
    assert (error.code, error.name, error.retryable) == (int(code), f"MC_{name}", retryable == "1")
    assert error.message == text
    assert str(error) == f"{text} (MC_{name})"


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_the_library_knows_the_same_names_texts_and_retries(row: tuple[str, ...]) -> None:
    code = int(row[1])
    assert ffi.string(lib.mc_status_name(code)).decode() == f"MC_{row[0]}"
    assert ffi.string(lib.mc_status_text(code)).decode() == row[4]
    assert lib.mc_status_retryable(code) == int(row[2])


def test_words_and_errno_of_the_library_are_kept() -> None:
    error = error_for(lib.MC_ERR_SYSTEM, "bind to 10.0.0.1: in use", 98)
    assert isinstance(error, OSError)
    assert (error.message, error.errno) == ("bind to 10.0.0.1: in use", 98)
    assert str(error) == "bind to 10.0.0.1: in use (MC_ERR_SYSTEM)"


def test_an_exception_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(error_for(lib.MC_ERR_TIMEOUT, "too late", 7)))
    assert type(error) is errors.Timeout
    assert (error.code, error.message, error.errno) == (lib.MC_ERR_TIMEOUT, "too late", 7)


def test_a_code_that_this_package_does_not_know_is_still_an_exception() -> None:
    error = error_for(-12345)
    assert type(error) is errors.MooncakeError
    assert error.code == -12345
    assert "-12345" in str(error)
