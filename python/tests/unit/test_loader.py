"""Where the library is looked for, and what is said when it isn't there or doesn't fit."""

from __future__ import annotations

import ctypes.util
import sys
from pathlib import Path
from typing import Any

import pytest
from support import compile_library

from mooncake import _loader
from mooncake._abi import ffi
from mooncake._loader import NEEDED, SONAME, VARIABLE, load


def versioned(major: int, minor: int) -> str:
    return f"unsigned mc_api_version(void) {{ return {major}u << 16 | {minor}u; }}\n"


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A system on which no library can be found."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setitem(sys.modules, "mooncake_native", None)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(_loader, "SONAME", "libmooncake-absent.so.1")
    return monkeypatch


def test_when_nothing_is_found_one_error_lists_every_attempt(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(ImportError) as caught:
        load(ffi)
    lines = str(caught.value).splitlines()
    assert [line.strip().split(":")[0] for line in lines[1:6]] == [
        VARIABLE,
        "package mooncake_native",
        f"{tmp_path}/prefix/lib",
        "soname",
        "ctypes.util.find_library",
    ]
    assert all(len(line.split(":", 1)[1].strip()) > 3 for line in lines[1:6])
    assert VARIABLE in lines[-1]


def test_the_variable_is_authoritative(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere.setenv(VARIABLE, str(tmp_path / "absent.so"))
    with pytest.raises(ImportError, match=r"MOONCAKE_LIBRARY names a library that can't be loaded.*absent\.so"):
        load(ffi)


def test_the_variable_must_be_absolute(nowhere: pytest.MonkeyPatch) -> None:
    nowhere.setenv(VARIABLE, "libmooncake.so.1")
    with pytest.raises(ImportError, match="must be an absolute path"):
        load(ffi)


def test_a_library_that_the_variable_names_is_loaded(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere.setenv(VARIABLE, str(compile_library(tmp_path, versioned(*NEEDED), "named.so")))
    assert load(ffi).mc_api_version() == NEEDED.major << 16 | NEEDED.minor


@pytest.mark.parametrize("found", [(NEEDED.major + 1, 0), (0, 9), (99, 7)])
def test_another_major_version_is_refused_with_what_was_needed_and_found(
    nowhere: pytest.MonkeyPatch, tmp_path: Path, found: tuple[int, int]
) -> None:
    path = compile_library(tmp_path, versioned(*found), "other.so")
    nowhere.setenv(VARIABLE, str(path))
    with pytest.raises(ImportError) as caught:
        load(ffi)
    assert f"needs interface {NEEDED.major}, at least {NEEDED}" in str(caught.value)
    assert f"found interface {found[0]}.{found[1]} in {path}" in str(caught.value)


def test_an_older_minor_version_is_refused_and_a_newer_one_taken(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere.setattr(_loader, "NEEDED", _loader.Version(1, 5))
    for minor, fits in ((4, False), (5, True), (6, True)):
        folder = tmp_path / str(minor)
        folder.mkdir()
        nowhere.setenv(VARIABLE, str(compile_library(folder, versioned(1, minor), f"minor{minor}.so")))
        if fits:
            load(ffi)
        else:
            with pytest.raises(ImportError, match=r"at least 1\.5.*found interface 1\.4"):
                load(ffi)


def test_a_library_of_something_else_is_named_as_such(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere.setenv(VARIABLE, str(compile_library(tmp_path, "int other;\n", "else.so")))
    with pytest.raises(ImportError, match="is not libmooncake"):
        load(ffi)


def test_the_data_wheel_comes_before_the_prefix(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "prefix" / "lib").mkdir(parents=True)
    (tmp_path / "wheel").mkdir()
    nowhere.setattr(_loader, "SONAME", SONAME)
    compile_library(tmp_path / "prefix" / "lib", versioned(9, 9))
    with pytest.raises(ImportError, match=r"found interface 9\.9"):
        load(ffi)
    path = compile_library(tmp_path / "wheel", versioned(*NEEDED), "wheel.so")
    (tmp_path / "wheel" / "mooncake_native.py").write_text(f"def library_path():\n    return {str(path)!r}\n")
    nowhere.syspath_prepend(str(tmp_path / "wheel"))
    del sys.modules["mooncake_native"]
    assert load(ffi).mc_api_version() == NEEDED.major << 16 | NEEDED.minor


def test_find_library_is_the_last_resort(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = compile_library(tmp_path, versioned(*NEEDED), "last.so")
    nowhere.setattr(ctypes.util, "find_library", lambda name: {"mooncake": str(path)}.get(name))
    assert load(ffi).mc_api_version() == NEEDED.major << 16 | NEEDED.minor


def test_the_search_stops_at_the_first_library_that_loads(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "prefix" / "lib").mkdir(parents=True)
    nowhere.setattr(_loader, "SONAME", "libmooncake-old.so.1")
    compile_library(tmp_path / "prefix" / "lib", versioned(0, 1), "libmooncake-old.so.1")

    def unexpected(name: str) -> Any:
        raise AssertionError("looked further")

    nowhere.setattr(ctypes.util, "find_library", unexpected)
    with pytest.raises(ImportError, match=r"found interface 0\.1"):
        load(ffi)
