"""The wheel: small, pure, complete, and built without a trace in the source tree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import PYTHON


def sources() -> set[str]:
    return {
        path.relative_to(PYTHON).as_posix()
        for path in (PYTHON / "mooncake").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }


def version() -> str:
    match = re.search(r'^version = "(.+)"$', (PYTHON / "pyproject.toml").read_text(), re.M)
    assert match is not None
    return match[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MOONCAKE_TEST_WHEEL, or one that is built here."""
    given = os.environ.get("MOONCAKE_TEST_WHEEL")
    if given:
        return Path(given)
    folder = tmp_path_factory.mktemp("wheel")
    before = {path for path in PYTHON.rglob("*") if "__pycache__" not in path.parts}
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps",
         "--no-index", f"--config-settings=build-dir={folder}/build", "-w", folder, PYTHON],
        check=True,
    )  # fmt: skip
    assert {path for path in PYTHON.rglob("*") if "__pycache__" not in path.parts} == before, "left in the source tree"
    (built,) = folder.glob("*.whl")
    return built


def test_its_name_has_the_version_of_pyproject_and_the_pure_tag(wheel: Path) -> None:
    assert wheel.name == f"mooncake-{version()}-py3-none-any.whl"


def test_it_is_below_300_kilobytes(wheel: Path) -> None:
    assert wheel.stat().st_size < 300_000


def test_it_holds_the_sources_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    info = {name for name in names if name.startswith(f"mooncake-{version()}.dist-info/")}
    assert names - info == sources()
    assert {Path(name).name for name in info} == {"METADATA", "WHEEL", "RECORD", "entry_points.txt"}


def test_its_metadata_says_what_it_needs(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"mooncake-{version()}.dist-info/METADATA").decode()
        scripts = archive.read(f"mooncake-{version()}.dist-info/entry_points.txt").decode()
    assert re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)[0].replace(" ", "") == "cffi>=1.15"
    assert "Requires-Python: >=3.9" in metadata
    assert "mooncake-demo = mooncake.cli.demo:main" in scripts
    assert "mooncake = mooncake.cli.main:main" in scripts


def test_it_works_outside_the_repository(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = "import mooncake, mooncake.engine; print(mooncake.__version__, mooncake.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [version(), str(tmp_path / "mooncake" / "__init__.py")]
