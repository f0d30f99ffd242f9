"""A program of the user's own finds the installed library by pkg-config, from C and C++, and by dlopen."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
from conftest import ROOT, run

HERE = Path(__file__).resolve().parent
COMPILERS = {"C": ["gcc", "-std=c99", "-x", "c"], "C++": ["g++", "-std=c++11", "-x", "c++"]}


def project_version() -> str:
    match = re.search(r"version: '([^']+)'", (ROOT / "meson.build").read_text())
    assert match
    return match[1]


def pkg_config(prefix: Path, *words: str) -> list[str]:
    return run("pkg-config", *words, "mooncake", env={"PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}).split()


@pytest.mark.parametrize("language", COMPILERS)
def test_a_program_built_by_pkg_config_moves_a_buffer(tmp_path: Path, prefix: Path, language: str):
    program = tmp_path / "consumer"
    strict = ["-pedantic", "-Wall", "-Wextra", "-Werror"]
    flags = pkg_config(prefix, "--cflags"), pkg_config(prefix, "--libs")
    run(*COMPILERS[language], *strict, HERE / "consumer.c", "-o", program, *flags[0], "-x", "none", *flags[1])
    output = run(program, env={"LD_LIBRARY_PATH": str(prefix / "lib")})
    assert output.strip() == project_version()


def test_pkg_config_and_the_library_name_the_same_version(prefix: Path, library: Path):
    loaded = ctypes.CDLL(str(library))
    loaded.mc_version.restype = ctypes.c_char_p
    assert loaded.mc_version().decode() == project_version()
    assert pkg_config(prefix, "--modversion") == [project_version()]


def test_a_program_opens_the_library_at_run_time(tmp_path: Path, library: Path):
    program = tmp_path / "loader"
    run("gcc", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", HERE / "loader.c", "-o", program, "-ldl")
    assert run(program, library).split() == [project_version()] * 2
