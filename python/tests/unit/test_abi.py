"""The generated modules are what the headers say, and the structs lie in memory as C lays them out."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import INCLUDE, PYTHON

from mooncake._abi import ffi


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("make_abi", PYTHON / "tools" / "make_abi.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def headers() -> str:
    return "".join((INCLUDE / "mooncake" / name).read_text() for name in tool().HEADERS)


def structs() -> list[str]:
    """Those with a body; the others are opaque handles."""
    names = re.findall(r"^struct (\w+) \{", headers(), re.M)
    assert len(names) >= 7
    return names


@pytest.mark.parametrize(("name", "make"), [("_abi.py", "make_abi"), ("errors.py", "make_errors")])
def test_the_committed_module_is_what_the_headers_generate(name: str, make: str) -> None:
    generated = getattr(tool(), make)(INCLUDE)
    assert (PYTHON / "mooncake" / name).read_text() == generated, "run python/tools/make_abi.py"


def test_every_function_of_the_headers_is_bound() -> None:
    named = set(re.findall(r"^MC_API [\w *]*?\b(mc_\w+)\(", headers(), re.M))
    bound = set(re.findall(r"mc_\w+", (PYTHON / "mooncake" / "_abi.py").read_text()))
    assert len(named) > 30
    assert named <= bound


def test_sizes_and_offsets_of_all_structs_are_those_of_the_c_compiler(tmp_path: Path) -> None:
    lines: list[str] = []
    expected: list[str] = []
    for name in structs():
        kind = ffi.typeof(f"struct {name}")
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        expected.append(f"{name} {ffi.sizeof(kind)}")
        for field, details in kind.fields:
            lines.append(f'printf("{name}.{field} %zu %zu\\n", offsetof(struct {name}, {field}),')
            lines.append(f"       sizeof(((struct {name} *)0)->{field}));")
            expected.append(f"{name}.{field} {details.offset} {ffi.sizeof(details.type)}")
    source = tmp_path / "layout.c"
    source.write_text(
        "#include <mooncake/mooncake.h>\n#include <stdio.h>\nint main(void)\n{\n"
        + "\n".join(lines)
        + "\nreturn 0;\n}\n"
    )
    program = tmp_path / "layout"
    subprocess.run(["cc", "-I", INCLUDE, "-o", program, source], check=True)
    found = subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines()
    assert found == expected


def test_constants_have_the_values_of_the_c_compiler(tmp_path: Path) -> None:
    from mooncake._native import lib

    bound = re.findall(r"MC_[A-Z0-9_]+", (PYTHON / "mooncake" / "_abi.py").read_text())
    names = sorted(set(bound))
    assert "MC_FOREVER" in names
    assert "MC_ERR_BUSY" in names
    prints = "\n".join(f'printf("{name} %lld\\n", (long long)({name}));' for name in names)
    source = tmp_path / "constants.c"
    source.write_text(
        f"#include <mooncake/mooncake.h>\n#include <stdio.h>\nint main(void)\n{{\n{prints}\nreturn 0;\n}}\n"
    )
    program = tmp_path / "constants"
    subprocess.run(["cc", "-I", INCLUDE, "-o", program, source], check=True)
    found = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    for name, value in zip(found[0::2], found[1::2]):
        assert getattr(lib, name) % 2**64 == int(value) % 2**64, name
