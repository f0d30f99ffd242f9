"""What the tests of the shims share: where they are installed, and programs that are built against them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PREFIX = Path(os.environ.get("MOONCAKE_TEST_PREFIX", ROOT / "build" / "venv"))
ENVIRONMENT = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig")}
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror"]
COMPILERS = {"C": ["gcc", "-std=c99", "-x", "c"], "C++": ["g++", "-std=c++11", "-x", "c++"]}
LIBC = re.compile(r"libc\.so\.6|ld-linux.*\.so\.\d+|lib(pthread|dl|rt)\.so\.\d+")


def run(*command: object) -> str:
    """A command's output; fails the test unless it ends with status 0."""
    done = subprocess.run(
        [str(word) for word in command],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"{command}: status {done.returncode}\n{done.stdout}"
    return done.stdout


def pkg_config(*words: str) -> list[str]:
    return run("pkg-config", *words).split()


def build(language: str, source: Path, program: Path, *packages: str) -> Path:
    """Compiles as a user would, with an rpath, for what is not installed for good."""
    flags = pkg_config("--cflags", *packages)
    libraries = pkg_config("--libs", *packages)
    run(*COMPILERS[language], *STRICT, source, "-o", program, *flags, "-x", "none", *libraries,
        f"-Wl,-rpath,{PREFIX / 'lib'}")  # fmt: skip
    return program


def exported(library: Path) -> list[str]:
    """The names that a library defines for others, sorted."""
    output = run("nm", "-D", "--defined-only", library)
    return sorted(line.split()[-1] for line in output.splitlines())


def declared(header: str) -> list[str]:
    """The functions that a header of the shims declares, sorted."""
    text = (PREFIX / "include" / "mooncake" / "compat" / header).read_text()
    return sorted(re.findall(r"^(?:MOONCAKE_STORE_API )?(?:void|int|[a-z_0-9]+_t) \*?(\w+)\(", text, re.MULTILINE))


def check_elf(library: Path) -> None:
    """It has its file name as soname, needs libmooncake alone, and stays once it is loaded."""
    entries = run("readelf", "-dW", library)
    assert re.findall(r"SONAME.*\[(.*)\]", entries) == [library.name]
    needed = re.findall(r"NEEDED.*\[(.*)\]", entries)
    assert [name for name in needed if not LIBC.fullmatch(name)] == ["libmooncake.so.1"]
    assert "TEXTREL" not in entries
    assert "NODELETE" in entries
