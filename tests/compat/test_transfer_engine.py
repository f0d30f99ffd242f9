"""libtransfer_engine.so, installed: its names, what it needs, and programs in four languages that are linked to it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from shim import COMPILERS, ENVIRONMENT, PREFIX, build, check_elf, declared, exported, pkg_config, run

HERE = Path(__file__).resolve().parent
LIBRARY = PREFIX / "lib" / "libtransfer_engine.so"
SECONDS = 30

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


def test_exported_and_declared_names_are_exactly_the_reference_s():
    assert exported(LIBRARY) == declared("transfer_engine_c.h") == sorted(NAMES)


def test_it_has_the_reference_s_soname_and_needs_libmooncake_alone():
    check_elf(LIBRARY)


@pytest.mark.parametrize("language", COMPILERS)
def test_two_processes_do_what_nixl_does(tmp_path: Path, language: str):
    program = build(language, HERE / "nixl.c", tmp_path / "nixl", "transfer_engine")
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
    run(build("C", HERE / "both.c", tmp_path / "both", "transfer_engine", "mooncake"))


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
