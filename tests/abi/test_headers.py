"""Each public header stands alone, in the oldest C and C++ that we promise, and no struct has hidden padding."""

from pathlib import Path

import pytest
from conftest import ROOT, run

HEADERS = sorted(path.relative_to(ROOT / "include").as_posix() for path in (ROOT / "include").rglob("*.h"))
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Wpadded", "-Werror", "-fsyntax-only"]
LANGUAGES = {
    "C99": ["gcc", "-std=c99", "-x", "c", "-Wstrict-prototypes"],
    "C99 with clang": ["clang", "-std=c99", "-x", "c", "-Wstrict-prototypes"],
    "C++11": ["g++", "-std=c++11", "-x", "c++", "-Wold-style-cast"],
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("header", HEADERS)
def test_a_header_compiles_alone(tmp_path: Path, header: str, language: str):
    source = tmp_path / "alone.c"
    source.write_text(f"#include <{header}>\n#include <{header}>\nint main(void) {{ return 0; }}\n")
    run(*LANGUAGES[language], *STRICT, "-I", ROOT / "include", source)


@pytest.mark.parametrize("language", ["C99", "C++11"])  # clang lays out only what is used
def test_a_struct_with_padding_is_found(tmp_path: Path, language: str):
    source = tmp_path / "padded.c"
    source.write_text("struct padded { unsigned first; void *second; };\nstruct padded planted;\n")
    assert "pad" in run(*LANGUAGES[language], *STRICT, source, status=None)
    run(*LANGUAGES[language], *STRICT, source, status=1)


def test_installed_headers_are_the_public_ones(prefix: Path):
    installed = sorted(
        path.relative_to(prefix / "include").as_posix() for path in prefix.rglob("include/mooncake/**/*.h")
    )
    assert installed == HEADERS
