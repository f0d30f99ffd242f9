"""The interface is that of the committed dump, and the comparison complains about planted breaks."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import pytest
from conftest import ROOT, run

DUMP = ROOT / "tests" / "abi" / "libmooncake.abi"
MACHINE = "x86_64"  # what the dump was made on

pytestmark = [
    pytest.mark.skipif(not DUMP.exists(), reason="tests/abi/libmooncake.abi is not there (make it by tools/abi-dump)"),
    pytest.mark.skipif(platform.machine() != MACHINE, reason=f"the dump is of {MACHINE}"),
]


def differences(library: Path) -> str:
    """What abidiff has to say against the dump; empty if nothing."""
    output = run("abidiff", DUMP, library, status=None)
    if not output:
        run("abidiff", DUMP, library)
    return output


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of our own to plant breaks in."""
    root = tmp_path_factory.mktemp("variant")
    for name in ("include", "libmooncake", "pkgconfig"):
        shutil.copytree(ROOT / name, root / name)
    for name in ("meson.build", "meson_options.txt"):
        shutil.copy(ROOT / name, root)
    # A planted struct has another size, which the library's own assertions would refuse before abidiff sees it.
    run("meson", "setup", root / "build", root, "-Dbuildtype=debug", "-Dtests=disabled", "-Dprograms=false",
        "-Dwerror_own=false", "-Dc_args=-D_Static_assert(...)=")  # fmt: skip
    return root


def build(root: Path) -> Path:
    run("ninja", "-C", root / "build", "libmooncake/libmooncake.so.1.0.0")
    return root / "build" / "libmooncake" / "libmooncake.so.1.0.0"


def test_the_interface_is_that_of_the_dump(library: Path):
    assert differences(library) == ""


def test_a_field_in_the_middle_of_a_struct_is_a_break(copy: Path):
    header = copy / "include" / "mooncake" / "transfer.h"
    text = header.read_text()
    header.write_text(text.replace("    uint64_t remote; ", "    uint64_t planted;\n    uint64_t remote; ", 1))
    try:
        assert header.read_text() != text
        assert "planted" in differences(build(copy))
    finally:
        header.write_text(text)


def test_a_removed_function_is_a_break(copy: Path):
    names = copy / "libmooncake" / "libmooncake.map"
    text = names.read_text()
    names.write_text(text.replace("        mc_batch_cancel;\n", "", 1))
    try:
        assert names.read_text() != text
        assert "mc_batch_cancel" in differences(build(copy))
    finally:
        names.write_text(text)
