"""libtransfer_engine.so, installed: its names, what it needs, and programs in four languages that are linked to it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PREFIX = Path(os.environ.get("MOONCAKE_TEST_PREFIX", ROOT / "build" / "venv"))
LIBRARY = PREFIX / "lib" / "libtransfer_engine.so"
ENVIRONMENT = {**os.environ, "PKG_CONFIG_PATH": str(PREFIX / "lib" / "pkgconfig")}
SECONDS = 30
STRICT = ["-pedantic", "-Wall", "-Wextra", "-Werror"]
COMPILERS = {"C": ["gcc", "-std=c99", "-x", "c"], "C++": ["g++", "-std=c++11", "-x", "c++"]}
LIBC = re.compile(r"libc\.so\.6|ld-linux.*\.so\.\d+|lib(pthread|dl|rt)\.so\.\d+")

# Of the reference's public header.
NAMES = re.findall(
    r"\w+",
    """
allocateBatchID closeSegment createTransferEngine destroyTransferEngine discoverTopology enableGracefulShutdown
freeBatchID freeNotifsMsgBuf genNotifyInEngine getLocalIpAndPort getNicLoadStats getNotifsFromEngine getTransferStatus
installTransport openSegment openSegmentNoCache registerLocalMemory registerLocalMemoryBatch removeLocalSegment
showLinks submitTransfer submitTransferWithNotify syncSegmentCache uninstallTransport unregisterLocalMemory
unregisterLocalMemoryBatch warmupEfaSegment
""",
)


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


def build(language: str, source: str, program: Path, *packages: str) -> Path:
    """Compiles as a user would, with an rpath, for what is not installed for good."""
    flags = pkg_config("--cflags", *packages)
    libraries = pkg_config("--libs", *packages)
    run(*COMPILERS[language], *STRICT, HERE / source, "-o", program, *flags, "-x", "none", *libraries,
        f"-Wl,-rpath,{PREFIX / 'lib'}")  # fmt: skip
    return program


def test_exported_names_are_exactly_the_reference_s():
    output = run("nm", "-D", "--defined-only", LIBRARY)
    assert sorted(line.split()[-1] for line in output.splitlines()) == sorted(NAMES)


def test_the_header_declares_every_name():
    header = (PREFIX / "include" / "mooncake" / "compat" / "transfer_engine_c.h").read_text()
    declared = re.findall(r"^(?:void|int|[a-z_]+_t) \*?(\w+)\(", header, re.MULTILINE)
    assert sorted(declared) == sorted(NAMES)


def test_it_has_the_reference_s_soname_and_needs_libmooncake_alone():
    entries = run("readelf", "-dW", LIBRARY)
    assert re.findall(r"SONAME.*\[(.*)\]", entries) == ["libtransfer_engine.so"]
    needed = re.findall(r"NEEDED.*\[(.*)\]", entries)
    assert [name for name in needed if not LIBC.fullmatch(name)] == ["libmooncake.so.1"]
    assert "TEXTREL" not in entries
    assert "NODELETE" in entries


@pytest.mark.parametrize("language", COMPILERS)
def test_two_processes_do_what_nixl_does(tmp_path: Path, language: str):
    program = build(language, "nixl.c", tmp_path / "nixl", "transfer_engine")
    needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-dW", program))
    assert "libtransfer_engine.so" in needed
    assert "libmooncake.so.1" not in needed
    target = subprocess.Popen([program, "target"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert target.stdout is not None
        address, remote = target.stdout.readline().split()
        done = subprocess.run([program, "initiator", address, remote], capture_output=True, text=True, timeout=SECONDS)
        assert (done.returncode, done.stderr) == (0, "")
        _, errors = target.communicate(timeout=SECONDS)
        assert (target.returncode, errors) == (0, "")
    finally:
        target.kill()
        target.communicate()


def test_both_libraries_work_in_one_process(tmp_path: Path):
    run(build("C", "both.c", tmp_path / "both", "transfer_engine", "mooncake"))


def test_a_program_links_without_pkg_config(tmp_path: Path):
    program = tmp_path / "nixl"
    run("gcc", "-I", PREFIX / "include" / "mooncake" / "compat", HERE / "nixl.c", "-o", program, "-L", PREFIX / "lib",
        "-ltransfer_engine", f"-Wl,-rpath,{PREFIX / 'lib'}")  # fmt: skip
    assert subprocess.run([program]).returncode == 2  # it runs, and wants arguments


def test_a_rust_program_works(tmp_path: Path):
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed")
    program = tmp_path / "caller"
    run("rustc", "--edition", "2021", "-D", "warnings", HERE / "caller.rs", "-o", program, "-L", PREFIX / "lib",
        "-C", f"link-arg=-Wl,-rpath,{PREFIX / 'lib'}")  # fmt: skip
    run(program)


def test_a_go_program_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    flags = " ".join(pkg_config("--cflags", "transfer_engine"))
    libraries = " ".join(pkg_config("--libs", "transfer_engine"))
    for name, value in {
        "CGO_CFLAGS": flags,
        "CGO_LDFLAGS": f"{libraries} -Wl,-rpath,{PREFIX / 'lib'}",
        "GOCACHE": str(tmp_path / "cache"),
        "GOFLAGS": "",
        "GO111MODULE": "off",
    }.items():
        monkeypatch.setitem(ENVIRONMENT, name, value)
    program = tmp_path / "caller"
    run("go", "build", "-o", program, HERE / "caller.go")
    run(program)
