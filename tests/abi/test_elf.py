"""What the shared library's ELF file promises: its names, what it needs, and how it is loaded."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

from conftest import ROOT, run

LIBC = re.compile(r"libc\.so\.6|ld-linux.*\.so\.\d+|lib(pthread|dl|rt)\.so\.\d+")


def dynamic(library: Path) -> dict[str, list[str]]:
    """The entries of the dynamic section, by tag."""
    entries: dict[str, list[str]] = {}
    for tag, value in re.findall(r"^\s*0x[0-9a-f]+\s+\((\w+)\)\s+(.*)$", run("readelf", "-dW", library), re.MULTILINE):
        bracketed = re.search(r"\[(.*)\]", value)
        entries.setdefault(tag, []).append(bracketed[1] if bracketed else value.strip())
    return entries


def exported(library: Path) -> dict[str, str]:
    """Name to version of each defined dynamic symbol."""
    output = run("nm", "-D", "--defined-only", "--with-symbol-versions", library)
    found = {}
    for line in output.splitlines():
        kind, name = line.split()[-2:]
        if kind != "A":  # the version's own name
            name, _, version = name.partition("@@")
            found[name] = version
    return found


def names_in_map() -> list[str]:
    text = (ROOT / "libmooncake" / "libmooncake.map").read_text()
    return re.findall(r"^\s+(\w+);$", text, re.MULTILINE)


def test_exported_names_are_those_of_the_map(library: Path):
    assert sorted(exported(library)) == sorted(names_in_map())


def test_every_exported_name_begins_with_mc_and_has_a_version(library: Path):
    for name, version in exported(library).items():
        assert name.startswith("mc_")
        assert version.startswith("MOONCAKE_"), name


def test_the_map_lists_every_function_of_the_headers():
    declared = set()
    for header in (ROOT / "include" / "mooncake").glob("*.h"):
        declared |= set(re.findall(r"^MC_API [^;(]*?\b(mc_\w+)\(", header.read_text(), re.MULTILINE))
    assert sorted(declared) == sorted(names_in_map())


def test_it_needs_libc_only(library: Path):
    assert [name for name in dynamic(library).get("NEEDED", []) if not LIBC.fullmatch(name)] == []


def test_its_soname_is_for_ever(library: Path):
    assert dynamic(library)["SONAME"] == ["libmooncake.so.1"]


def test_it_is_bound_at_load_never_unloaded_and_has_no_text_relocations(library: Path):
    entries = dynamic(library)
    flags = " ".join(entries.get("FLAGS", []) + entries.get("FLAGS_1", []))
    assert "NOW" in flags
    assert "NODELETE" in flags
    assert "TEXTREL" not in flags
    assert "TEXTREL" not in entries


def test_it_looks_for_libraries_where_the_system_says(library: Path):
    assert not {"RPATH", "RUNPATH"} & set(dynamic(library))


def test_its_stack_is_not_executable(library: Path):
    stack = [line for line in run("readelf", "-lW", library).splitlines() if "GNU_STACK" in line]
    assert stack
    assert "RWE" not in stack[0]


def test_it_is_below_one_megabyte_stripped(library: Path, tmp_path: Path):
    run("strip", "-o", tmp_path / "stripped.so", library)
    assert (tmp_path / "stripped.so").stat().st_size < 1_000_000


def test_it_names_the_libraries_that_it_opens_when_used(library: Path, tmp_path: Path):
    run("objcopy", "-O", "binary", "--only-section=.note.dlopen", library, tmp_path / "note")
    note, sonames = (tmp_path / "note").read_bytes(), []
    while note:
        owner_size, size, kind = struct.unpack_from("=III", note)
        text = 12 + (owner_size + 3) // 4 * 4
        assert (kind, note[12 : 12 + owner_size]) == (0x407C0C0A, b"FDO\0")
        for entry in json.loads(note[text : text + size].rstrip(b"\0")):
            assert entry["feature"]
            assert entry["description"]
            assert entry["priority"] in ("required", "recommended", "suggested")
            sonames += entry["soname"]
        note = note[text + (size + 3) // 4 * 4 :]
    assert {"libcrypto.so.3", "libcurl.so.4", "libjansson.so.4", "libpcre2-8.so.0"} <= set(sonames)
