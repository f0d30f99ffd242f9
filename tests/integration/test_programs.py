"""mooncake_master and mooncake_client as users start them: flags, the one line, signals, exit statuses, a pool."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Callable

import pytest
from program import NO_SPACE, NOT_FOUND, PATIENCE, SOFT_PIN, Program, Store, StoreError

ROOT = Path(__file__).resolve().parents[2]
FLAG = re.compile(r'FLAG\((\w+), (\w+), "([^"]*)", (WORKS|IGNORED), "([^"]*)"\)')
PROGRAMS = ("mooncake_master", "mooncake_client")
SMALL = "--global_segment_size=1MB"


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def finished(programs: Path, name: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([programs / name, *flags], capture_output=True, text=True, timeout=PATIENCE, check=False)


# ---- Flags


def definitions(name: str) -> list[tuple[str, ...]]:
    """(name, type, default, WORKS or IGNORED, words) of each flag in the program's .def file."""
    text = (ROOT / "libmooncake" / "programs" / f"{name.removeprefix('mooncake_')}_flags.def").read_text()
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("/*")]
    matches = [FLAG.fullmatch(line) for line in lines]
    assert None not in matches, lines[matches.index(None)]
    return [match.groups() for match in matches if match is not None]


def rows(name: str) -> list[str]:
    """The table of flags as docs/programs.md has it."""
    table = ["| Flag | Type | Default | Effect | Meaning |", "|---|---|---|---|---|"]
    for flag, kind, default, effect, words in definitions(name):
        shown = f"`{default}`" if default else "none"
        table.append(f"| `--{flag}` | {kind.lower()} | {shown} | {'yes' if effect == 'WORKS' else 'no'} | {words} |")
    return table


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_page_of_the_programs_has_every_flag_with_its_type_default_and_words(name: str) -> None:
    page = (ROOT / "docs" / "programs.md").read_text().split(f"## Flags of {name}\n")[1].split("\n## ")[0]
    there = [line for line in page.splitlines() if line.startswith("|")]
    assert there == rows(name)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_lists_every_flag_with_words_and_default(programs: Path, name: str) -> None:
    result = finished(programs, name, "--help")
    assert result.returncode == 0
    assert result.stderr == ""
    working, _, ignored = result.stdout.partition("\nAccepted without an effect:\n")
    for flag, kind, default, effect, words in definitions(name):
        part = working if effect == "WORKS" else ignored
        assert f"  --[no]{flag}\n" in part if kind == "BOOL" else f"  --{flag}=" in part
        quoted = f'"{default}"' if kind in ("TEXT", "SIZE") else default
        assert f"      {words} (default {quoted})\n" in part


@pytest.mark.parametrize("name", PROGRAMS)
def test_version_is_one_line(programs: Path, name: str) -> None:
    result = finished(programs, name, "--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(rf"{name} \d+\.\d+\.\S+\n", result.stdout)


@pytest.mark.parametrize(
    ("name", "flags", "words"),
    [
        ("mooncake_master", ["--rpc_prt=0"], "--rpc_prt: unknown flag; is --rpc_port meant?"),
        ("mooncake_master", ["--rpc_port=65536"], '--rpc_port: "65536" isn\'t a number from 0 to 65535'),
        ("mooncake_master", ["--enable_ha=perhaps"], '--enable_ha: "perhaps" isn\'t true or false'),
        ("mooncake_master", ["--metrics_port"], "--metrics_port: its value is missing"),
        ("mooncake_master", ["serve"], '"serve" isn\'t a flag'),
        ("mooncake_master", ["--rpc_address=1.2.3.4:5"], "--rpc_address: the port is that of --rpc_port"),
        ("mooncake_master", ["--rpc_address="], "--rpc_address: "),
        ("mooncake_master", ["--policy=best"], "--policy: there is no such policy"),
        ("mooncake_master", ["--client_ttl=0"], "--client_ttl: must be more than 0"),
        ("mooncake_master", ["--flagfile=/nowhere/at/all"], "No such file"),
        ("mooncake_client", ["--global_segment_sise=1GB"], "is --global_segment_size meant?"),
        ("mooncake_client", ["--global_segment_size=4XB"], '--global_segment_size: "4XB" isn\'t a size'),
        ("mooncake_client", ["--global_segment_size=1KB"], "--global_segment_size: at least 64 KB"),
        ("mooncake_client", ["--master_server_address=somewhere"], "--master_server_address: it takes host:port"),
        ("mooncake_client", ["--host=1.2.3.4:5"], "--host: the port is that of --port"),
    ],
)
def test_wrong_flags_are_one_line_that_names_them_and_status_2(
    programs: Path, name: str, flags: list[str], words: str
) -> None:
    result = finished(programs, name, *flags)
    assert result.returncode == 2
    assert result.stdout == ""
    assert words in result.stderr
    assert result.stderr.startswith(f"{name}: ")
    assert result.stderr.count("\n") == 1


def test_the_flags_with_which_transferqueue_starts_a_master_are_taken(
    begin: Callable[..., Program], free_port: int, another_port: int
) -> None:
    master = begin(
        "mooncake_master",
        "-client_ttl=30",
        "-default_kv_lease_ttl=999999",
        "-default_kv_soft_pin_ttl=999999",
        "--allow_evict_soft_pinned_objects=false",
        "--rpc_address=127.0.0.1",
        f"--rpc_port={free_port}",
        "--enable_offload=false",
        "--enable_disk_eviction=false",
        "--root_fs_dir=/tmp/nowhere",
        "--cluster_id=one",
        "--enable_http_metadata_server=true",
        "--http_metadata_server_host=127.0.0.1",
        f"--http_metadata_server_port={another_port}",
    )
    assert master.address() == f"127.0.0.1:{free_port}"
    assert master.end() == 0
    assert master.errors() == (
        "mooncake_master: warning: accepted without an effect: --default_kv_lease_ttl, --cluster_id, --enable_offload, "
        "--enable_disk_eviction, --root_fs_dir\n"
    )


def test_flags_may_come_from_a_file(begin: Callable[..., Program], tmp_path: Path) -> None:
    (tmp_path / "flags").write_text("# where\n--port=0\n-rpc_address=127.0.0.1\n--noallow_evict_soft_pinned_objects\n")
    master = begin("mooncake_master", f"--flagfile={tmp_path / 'flags'}")
    assert master.address().startswith("127.0.0.1:")


# ---- A master's life


def test_a_master_says_in_one_line_where_it_serves(begin: Callable[..., Program]) -> None:
    master = begin("mooncake_master", "--port", "0")
    line = master.line()
    match = re.fullmatch(r"mooncake_master \S+ serves at 127\.0\.0\.1:(\d+)", line)
    assert match, line
    socket.create_connection(("127.0.0.1", int(match[1])), PATIENCE).close()
    assert master.end() == 0
    assert master.line() == ""
    assert master.errors() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_master_within_two_seconds_and_its_port_is_free_again(
    begin: Callable[..., Program], number: int
) -> None:
    master = begin("mooncake_master", "--port=0")
    address = master.address()
    told = time.monotonic()
    assert master.end(number) == 0
    assert time.monotonic() - told < 3  # 2 s, and the time that a busy machine takes
    again = begin("mooncake_master", f"--rpc_port={port_of(address)}")
    assert again.address() == address


def test_a_taken_port_is_status_1_with_words(begin: Callable[..., Program]) -> None:
    first = begin("mooncake_master", "--port=0")
    address = first.address()
    second = begin("mooncake_master", f"--rpc_port={port_of(address)}")
    assert second.ended() == 1
    assert second.line() == ""
    words = second.errors()
    assert address in words
    assert "Address already in use" in words


def test_a_master_on_all_addresses_needs_no_more_words(begin: Callable[..., Program]) -> None:
    master = begin("mooncake_master", "--rpc_address=0.0.0.0", "--port=0")
    assert master.address().rpartition(":")[0] not in ("0.0.0.0", "")
    named = begin("mooncake_master", "--rpc_address=0.0.0.0", "--port=0", "--advertise=localhost")
    assert named.address().startswith("localhost:")


def test_a_key_file_that_is_not_there_is_status_1_with_words(programs: Path) -> None:
    result = finished(programs, "mooncake_master", "--port=0", "--key_file=/nowhere/key")
    assert result.returncode == 1
    assert "/nowhere/key" in result.stderr


def test_a_state_file_keeps_an_epoch_that_rises_with_each_start(begin: Callable[..., Program], tmp_path: Path) -> None:
    path = tmp_path / "state"
    epochs = []
    for _ in range(2):
        master = begin("mooncake_master", "--port=0", f"--state_file={path}")
        master.address()
        epochs.append(int(re.findall(r"^epoch (\d+)$", path.read_text(), re.MULTILINE)[0]))
        assert master.end() == 0
    assert epochs[1] > epochs[0] > 0


def test_a_state_file_that_is_something_else_is_status_1_and_stays_as_it_is(programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("a letter\n")
    result = finished(programs, "mooncake_master", "--port=0", f"--state_file={path}")
    assert result.returncode == 1
    assert str(path) in result.stderr
    assert path.read_text() == "a letter\n"


def test_a_master_whose_output_nobody_reads_serves_all_the_same(begin: Callable[..., Program], free_port: int) -> None:
    master = begin("mooncake_master", f"--rpc_port={free_port}")
    master.stop_listening()
    begin("mooncake_client", "--port=0", f"--master_server_address=127.0.0.1:{free_port}", SMALL).address()
    assert master.end() == 0


def test_a_second_signal_ends_a_master_at_once(begin: Callable[..., Program], library: Path) -> None:
    """While it drains: a remove waits for an owner that doesn't answer."""
    master = begin("mooncake_master", "--port=0")
    address = master.address()
    owner = begin("mooncake_client", "--port=0", f"--master_server_address={address}", SMALL)
    owner.address()
    store = Store(library, address)
    store.put(b"key", b"value")
    assert store.get(b"key") == b"value"
    os.kill(owner.process.pid, signal.SIGSTOP)

    def remove() -> None:
        with contextlib.suppress(StoreError):
            store.remove(b"key")

    thread = threading.Thread(target=remove)
    thread.start()
    time.sleep(0.2)  # it is on its way or there: a later one would be refused, and nothing in progress
    master.process.send_signal(signal.SIGTERM)
    assert "in progress" in master.line("stderr")
    assert master.end() == -signal.SIGTERM
    owner.kill()
    thread.join(PATIENCE)
    store.close()


# ---- Owners


def test_an_owner_says_in_one_line_what_it_owns_and_where(begin: Callable[..., Program]) -> None:
    master = begin("mooncake_master", "--port=0").address()
    client = begin("mooncake_client", "--port=0", f"--master_server_address={master}", "--global_segment_size=1536 KB")
    line = client.line()
    match = re.fullmatch(r"mooncake_client \S+ owns 1536 KB at 127\.0\.0\.1:(\d+)", line)
    assert match, line
    socket.create_connection(("127.0.0.1", int(match[1])), PATIENCE).close()
    assert client.end() == 0
    assert client.line() == ""
    assert client.errors() == ""


def test_an_owner_waits_for_a_master_that_comes_later_and_says_so_once(
    begin: Callable[..., Program], free_port: int
) -> None:
    client = begin("mooncake_client", "--port=0", f"--master_server_address=127.0.0.1:{free_port}", SMALL)
    assert f"warning: no master at 127.0.0.1:{free_port} yet, waiting for it 60 s" in client.line("stderr")
    begin("mooncake_master", f"--rpc_port={free_port}").address()
    client.address()
    assert client.end(signal.SIGINT) == 0
    assert client.errors() == ""


def test_an_owner_gives_up_when_no_master_comes_in_time(programs: Path, free_port: int) -> None:
    where = f"127.0.0.1:{free_port}"
    result = finished(
        programs, "mooncake_client", "--port=0", f"--master_server_address={where}", SMALL, "--max_wait_time=0"
    )
    assert result.returncode == 1
    assert result.stdout == ""
    assert where in result.stderr


def test_a_signal_ends_an_owner_that_waits_for_its_master(begin: Callable[..., Program], free_port: int) -> None:
    client = begin("mooncake_client", "--port=0", f"--master_server_address=127.0.0.1:{free_port}", SMALL)
    assert "no master" in client.line("stderr")
    assert client.end() == 0


def test_an_owner_whose_port_is_taken_ends_with_status_1_at_once(begin: Callable[..., Program]) -> None:
    master = begin("mooncake_master", "--port=0").address()
    port = port_of(master)
    client = begin("mooncake_client", f"--port={port}", f"--master_server_address={master}", SMALL)
    assert client.ended() == 1
    assert "Address already in use" in client.errors()


def test_flags_of_an_owner_without_an_effect_are_named(begin: Callable[..., Program]) -> None:
    master = begin("mooncake_master", "--port=0").address()
    client = begin(
        "mooncake_client",
        "--host=127.0.0.1",
        "--port=0",
        f"--master_server_address={master}",
        "--metadata_server=P2PHANDSHAKE",
        "--protocol=rdma",
        "--device_names=mlx5_0",
        SMALL,
    )
    client.address()
    assert client.end() == 0
    assert client.errors() == (
        "mooncake_client: warning: accepted without an effect: --metadata_server, --device_names\n"
        'mooncake_client: warning: --protocol: "rdma": the best path to each peer is taken\n'
    )


# ---- A pool


@pytest.mark.parametrize("protocol", ["tcp", "shm"])
def test_what_is_put_lies_in_the_owner_s_memory_and_goes_with_it(
    begin: Callable[..., Program], library: Path, protocol: str
) -> None:
    master = begin("mooncake_master", "--port=0").address()
    client = begin("mooncake_client", "--port=0", f"--master_server_address={master}", f"--protocol={protocol}", SMALL)
    client.address()
    writer, reader = Store(library, master), Store(library, master)
    writer.put(b"key", b"value" * 1000)
    assert reader.get(b"key") == b"value" * 1000
    writer.close()
    assert reader.get(b"key") == b"value" * 1000
    assert client.end() == 0
    late = Store(library, master)
    with pytest.raises(StoreError) as caught:
        late.get(b"key")
    assert caught.value.status == NOT_FOUND
    late.close()
    reader.close()


def test_what_an_owner_holds_survives_its_killed_master(
    begin: Callable[..., Program], library: Path, free_port: int, tmp_path: Path
) -> None:
    flags = (f"--rpc_port={free_port}", f"--state_file={tmp_path / 'state'}")
    master = begin("mooncake_master", *flags)
    where = master.address()
    begin("mooncake_client", "--port=0", f"--master_server_address={where}", SMALL).address()
    store = Store(library, where, timeout=PATIENCE)
    store.put(b"key", b"value")
    assert store.get(b"key") == b"value"
    master.kill()
    assert begin("mooncake_master", *flags).address() == where
    fresh = Store(library, where, timeout=PATIENCE)
    assert fresh.get(b"key") == b"value"
    fresh.put(b"another", b"one")
    assert store.get(b"another") == b"one"
    fresh.close()
    store.close()


@pytest.mark.parametrize(
    ("flags", "room"),
    [
        ([], True),
        (["--noallow_evict_soft_pinned_objects"], False),
        (["--noallow_evict_soft_pinned_objects", "--default_kv_soft_pin_ttl=1ms"], True),
    ],
)
def test_soft_pinned_objects_go_last_or_never_or_when_their_time_is_over(
    begin: Callable[..., Program], library: Path, flags: list[str], room: bool
) -> None:
    master = begin("mooncake_master", "--port=0", *flags).address()
    begin("mooncake_client", "--port=0", f"--master_server_address={master}", SMALL).address()
    store = Store(library, master, timeout=2.0)
    outcomes = []
    for number in range(15):
        try:
            store.put(b"key %d" % number, b"x" * 100_000, SOFT_PIN)
            outcomes.append(0)
        except StoreError as error:
            outcomes.append(error.status)
            break
    assert set(outcomes) == ({0} if room else {0, NO_SPACE})
    store.close()


@pytest.mark.parametrize("low", [False, True])
def test_objects_are_evicted_from_the_watermark_on(begin: Callable[..., Program], library: Path, low: bool) -> None:
    flags = ("--eviction_high_watermark_ratio=0.3", "--eviction_ratio=0.1") if low else ()
    master = begin("mooncake_master", "--port=0", *flags).address()
    owner = begin("mooncake_client", "--port=0", f"--master_server_address={master}", "--global_segment_size=8MB")
    owner.address()
    store = Store(library, master)
    keys = [b"key %d" % number for number in range(160)]
    for key in keys:  # three quarters of the memory; what is reserved in stock counts as used
        store.put(key, b"x" * 40_000)
    deadline = time.monotonic() + PATIENCE
    while low and sum(map(store.has, keys)) > 64:
        assert time.monotonic() < deadline
    found = sum(map(store.has, keys))
    assert 8 <= found <= 64 if low else found == 160
    store.close()


def test_an_owner_that_was_killed_is_given_up_after_the_time_of_client_ttl(
    begin: Callable[..., Program], library: Path
) -> None:
    master = begin("mooncake_master", "--port=0", "--client_ttl=1").address()
    owner = begin("mooncake_client", "--port=0", f"--master_server_address={master}", SMALL)
    owner.address()
    store = Store(library, master)
    store.put(b"key", b"value")
    owner.kill()
    killed = time.monotonic()
    while store.has(b"key"):
        assert time.monotonic() - killed < 5  # by default it would be 10 s
    store.close()
