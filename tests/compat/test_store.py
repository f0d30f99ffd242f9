"""libmooncake_store.so, installed: its names, what it needs, and programs that are linked to it or open it."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from shim import COMPILERS, PREFIX, build, check_elf, declared, exported, run

HERE = Path(__file__).resolve().parent / "store"
LIBRARY = PREFIX / "lib" / "libmooncake_store.so"

# Of the reference's public header, and set_etcd_tls_config of some of its releases.
NAMES = re.findall(
    r"\w+",
    """
mooncake_store_batch_get_into mooncake_store_batch_is_exist mooncake_store_batch_put_from mooncake_store_create
mooncake_store_destroy mooncake_store_get_hostname mooncake_store_get_into mooncake_store_get_size
mooncake_store_health_check mooncake_store_init_all mooncake_store_is_exist mooncake_store_put mooncake_store_put_from
mooncake_store_register_buffer mooncake_store_remove mooncake_store_remove_all mooncake_store_remove_by_regex
mooncake_store_set_etcd_tls_config mooncake_store_setup mooncake_store_unregister_buffer
""",
)


def test_exported_and_declared_names_are_exactly_the_reference_s():
    assert exported(LIBRARY) == declared("store_c.h") == sorted(NAMES)


def test_it_has_the_reference_s_soname_and_needs_libmooncake_alone():
    check_elf(LIBRARY)


@pytest.mark.parametrize("language", COMPILERS)
def test_a_program_joins_a_pool(tmp_path: Path, language: str):
    program = build(language, HERE / "caller.c", tmp_path / "caller", "mooncake_store")
    run(program)  # alone, with the master inside
    master = subprocess.Popen(
        [PREFIX / "bin" / "mooncake_master", "--port=0", "--metrics_port=0"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert master.stdout is not None
        found = re.search(r"\d+\.\d+\.\d+\.\d+:\d+", master.stdout.readline())
        assert found is not None
        run(program, found[0], "owner")
    finally:
        master.terminate()
        assert master.wait(30) == 0


def test_a_program_links_without_pkg_config(tmp_path: Path):
    program = tmp_path / "caller"
    run("gcc", "-I", PREFIX / "include" / "mooncake" / "compat", HERE / "caller.c", "-o", program,
        "-L", PREFIX / "lib", "-lmooncake_store", f"-Wl,-rpath,{PREFIX / 'lib'}")  # fmt: skip
    run(program)


def test_both_shims_and_the_library_are_in_one_process():
    store = ctypes.CDLL(str(LIBRARY))
    engine = ctypes.CDLL(str(PREFIX / "lib" / "libtransfer_engine.so"))
    store.mooncake_store_create.restype = engine.createTransferEngine.restype = ctypes.c_void_p
    one = store.mooncake_store_create()
    other = engine.createTransferEngine(b"P2PHANDSHAKE", b"127.0.0.1", b"", ctypes.c_uint64(0), 1)
    assert one
    assert other
    assert store.mooncake_store_health_check(ctypes.c_void_p(one)) == 1
    assert store.mooncake_store_health_check(ctypes.c_void_p(other)) in (-1, 1)
    engine.destroyTransferEngine(ctypes.c_void_p(other))
    store.mooncake_store_destroy(ctypes.c_void_p(one))


def test_a_rust_program_opens_it(tmp_path: Path):
    if shutil.which("rustc") is None:
        pytest.skip("rustc is not installed")
    program = tmp_path / "caller"
    run("rustc", "--edition", "2021", "-D", "warnings", HERE / "caller.rs", "-o", program)
    run(program, LIBRARY)
