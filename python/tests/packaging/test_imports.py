"""Imports are light, and quick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "torch_npu", "numpy", "vllm", "cffi", "pycparser", "ctypes", "logging", "asyncio", "multiprocessing")
CAPABILITIES = ("mooncake.engine", "mooncake.store")


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=True
    )
    return done.stdout


def loaded_by(statement: str) -> set[str]:
    code = f"import sys, json; old = set(sys.modules)\n{statement}\nprint(json.dumps(sorted(set(sys.modules) - old)))"
    return set(json.loads(python(code)))


def test_import_mooncake_loads_nothing_else() -> None:
    assert {name for name in loaded_by("import mooncake") if name != "__future__"} == {"mooncake"}


def test_import_mooncake_needs_no_library(tmp_path: Path) -> None:
    assert (
        python("import mooncake, mooncake.errors; print('fine')", MOONCAKE_LIBRARY=str(tmp_path / "no.so")) == "fine\n"
    )


@pytest.mark.parametrize("module", CAPABILITIES)
def test_a_capability_without_a_library_is_one_import_error(module: str, tmp_path: Path) -> None:
    code = f"try:\n    import {module}\nexcept ImportError as error:\n    print(str(error).splitlines()[0])"
    assert "MOONCAKE_LIBRARY names a library" in python(code, MOONCAKE_LIBRARY=str(tmp_path / "no.so"))


@pytest.mark.parametrize("module", CAPABILITIES)
def test_a_capability_loads_nothing_heavy(module: str) -> None:
    assert loaded_by(f"import {module}").isdisjoint(HEAVY)


def test_connect_is_the_store_s() -> None:
    assert python("import mooncake, mooncake.store; print(mooncake.connect is mooncake.store.connect)") == "True\n"


@pytest.mark.parametrize(
    ("module", "milliseconds"), [("mooncake", 20), ("mooncake.engine", 60), ("mooncake.store", 90)]
)
def test_an_import_is_quick(module: str, milliseconds: int, tmp_path: Path) -> None:
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    # Processor time: what else runs on the machine makes an import slow, not the package.
    code = f"import time; start = time.process_time(); import {module}; print(time.process_time() - start)"
    assert min(float(python(code, **compiled)) for _ in range(9)) * 1000 < milliseconds


def test_the_version_is_known() -> None:
    from importlib.metadata import version

    import mooncake

    assert mooncake.__version__ == version("mooncake")
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = mooncake.nothing_of_this_name  # type: ignore[attr-defined]
