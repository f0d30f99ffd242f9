"""mooncake_bench transfer and transfer_engine_bench as users start them: alone, in two roles, verified, interrupted."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest
from program import PATIENCE, Program

ROOT = Path(__file__).resolve().parents[2]
FLAG = re.compile(r'FLAG\((\w+), (\w+), "([^"]*)", (WORKS|IGNORED), "([^"]*)"\)')
NAMES = ("mooncake_bench", "transfer_engine_bench")
SHORT = ("--duration=50ms", "--buffer_size=4MB", "--block_size=4K", "--operation=write")
FIELDS = {
    "operation", "path", "block_size", "batch_size", "threads", "pattern", "memory", "checksum", "busy_poll_us",
    "verified", "seconds", "operations", "ops_per_s", "gb_per_s", "p50_us", "p90_us", "p99_us", "max_us", "failures",
    "wrong", "cpu_s_per_gb", "target_cpu_s_per_gb",
}  # fmt: skip


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of the programs under test: what `make build` installs."""
    path = Path(os.environ.get("MOONCAKE_TEST_PREFIX", ROOT / "build" / "venv")) / "bin"
    assert (path / "mooncake_bench").exists(), f"{path}/mooncake_bench is missing: run make build"
    return path


@pytest.fixture
def begin(programs: Path) -> Iterator[Callable[..., Program]]:
    """Starts `mooncake_bench transfer`, and ends it with the test."""
    started: list[Program] = []

    def begin(*flags: str) -> Program:
        started.append(Program(programs / "mooncake_bench", "transfer", *flags))
        return started[-1]

    yield begin
    for program in started:
        program.kill()


def command(name: str) -> list[str]:
    return [name, "transfer"] if name == "mooncake_bench" else [name]


def finished(programs: Path, *flags: str, name: str = "mooncake_bench") -> subprocess.CompletedProcess[str]:
    words = command(name)
    return subprocess.run(
        [programs / words[0], *words[1:], *flags], capture_output=True, text=True, timeout=60, check=False
    )


def results(output: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


# ---- Flags


def definitions() -> list[tuple[str, ...]]:
    text = (ROOT / "libmooncake" / "programs" / "bench_flags.def").read_text()
    return [match.groups() for match in map(FLAG.fullmatch, text.splitlines()) if match is not None]


def test_the_page_of_the_programs_has_every_flag_with_its_type_default_and_words() -> None:
    page = (ROOT / "docs" / "programs.md").read_text().split("## Flags of mooncake_bench transfer\n")[1]
    there = [line for line in page.split("\n## ")[0].splitlines() if line.startswith("|")]
    rows = ["| Flag | Type | Default | Effect | Meaning |", "|---|---|---|---|---|"]
    for flag, kind, default, effect, words in definitions():
        shown = f"`{default}`" if default else "none"
        rows.append(f"| `--{flag}` | {kind.lower()} | {shown} | {'yes' if effect == 'WORKS' else 'no'} | {words} |")
    assert there == rows


def test_every_line_of_the_table_of_flags_is_one() -> None:
    lines = (ROOT / "libmooncake" / "programs" / "bench_flags.def").read_text().splitlines()
    assert len(definitions()) == sum(line.startswith("FLAG(") for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_help_lists_every_flag(programs: Path, name: str) -> None:
    result = finished(programs, "--help", name=name)
    assert (result.returncode, result.stderr) == (0, "")
    for flag, kind, _, _, words in definitions():
        assert (f"  --[no]{flag}\n" if kind == "BOOL" else f"  --{flag}=") in result.stdout
        assert f"      {words} (default " in result.stdout


def test_the_command_has_to_be_named(programs: Path) -> None:
    for words, status, said in (
        ([], 2, "Usage: mooncake_bench transfer"),
        (["--help"], 0, "Usage: mooncake_bench transfer"),
        (["--version"], 0, "mooncake_bench "),
        (["store"], 2, '"store" isn\'t a command; there is: transfer'),
        (["--duration=1"], 2, "isn't a command"),
    ):
        result = subprocess.run(
            [programs / "mooncake_bench", *words], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert result.returncode == status
        assert said in (result.stderr if status else result.stdout)
        assert (result.stdout if status else result.stderr) == ""


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--mode=both"], "--mode: target or initiator"),
        (["--mode=initiator"], "--segment_id: an initiator needs its target's address"),
        (["--mode=target", "--segment_id=127.0.0.1:1"], "--segment_id: is for an initiator"),
        (["--operation=write,delete"], "--operation: a list of write, read and mix"),
        (["--operation="], "--operation: a list"),
        (["--block_size=4K,,64K"], "--block_size: a list"),
        (["--block_size=0"], "--block_size: a list"),
        (["--block_size=" + ",".join(["1"] * 33)], "--block_size: a list of at most 32"),
        (["--block_size=" + "1" * 40], "--block_size: a list"),
        (["--batch_size=0"], "--batch_size: a list"),
        (["--batch_size=1048577"], "--batch_size: a list"),
        (["--threads=257"], "--threads: a list"),
        (["--block_size=3MB", "--buffer_size=4MB"], "--block_size: above a thread's part"),
        (["--block_size=1MB", "--buffer_size=4MB", "--threads=1,4"], "--block_size: above a thread's part"),
        (["--buffer_size=1"], "--buffer_size: at least"),
        (["--duration=0"], "--duration: above 0"),
        (["--pattern=straight"], "--pattern: walk, random or hot"),
        (["--memory=gpu"], "--memory: mapped or ordinary"),
        (["--report_unit=furlong"], "--report_unit: GB"),
        (["--report_precision=10"], "--report_precision: at most 9"),
        (["--busy_poll_us=1000001"], "--busy_poll_us: at most"),
        (["--local_server_name=a:b:c"], "--local_server_name: "),
        (["--blocksize=1"], "--blocksize: unknown flag; is --block_size meant?"),
    ],
)
@pytest.mark.parametrize("name", NAMES)
def test_wrong_flags_are_one_line_that_names_them_and_status_2(
    programs: Path, flags: list[str], words: str, name: str
) -> None:
    result = finished(programs, *flags, name=name)
    assert (result.returncode, result.stdout) == (2, "")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_flags_of_the_reference_are_taken_and_those_without_a_meaning_named_once(programs: Path) -> None:
    result = finished(
        programs, "--operation=read", "--protocol=rdma", "--metadata_server=P2PHANDSHAKE", "--device_name=mlx5_2",
        "--nic_priority_matrix={}", "--auto_discovery=true", "--buffer_size=67108864", "--batch_size=128",
        "--block_size=65536", "--threads=2", "--duration=1", "--report_unit=GiB", "--report_precision=3",
        "--backend=classic", "--gpu_id=-1", "--init_mem=false", "--local_server_name=127.0.0.1",
        name="transfer_engine_bench",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    warnings = result.stderr.splitlines()
    named = "--device_name, --nic_priority_matrix, --auto_discovery, --backend, --gpu_id, --init_mem"
    assert warnings[0] == f"transfer_engine_bench: warning: accepted without an effect: {named}"
    assert len(warnings) == 2
    assert '"rdma": the best path is taken' in warnings[1]
    head, line = result.stdout.splitlines()
    assert "GiB/s" in head
    assert line.split()[0] == "read"
    assert line.split()[2:5] == ["64K", "128", "2"]
    assert re.fullmatch(r"\d+\.\d{3}", line.split()[6])


# ---- Measuring


def test_alone_it_measures_all_combinations_over_loopback(programs: Path) -> None:
    result = finished(
        programs, "--duration=30ms", "--buffer_size=4MB", "--block_size=1K,64K", "--batch_size=1,8", "--threads=1,2",
        "--operation=write,read,mix", "--json",
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    found = results(result.stdout)
    assert len({(r["operation"], r["block_size"], r["batch_size"], r["threads"]) for r in found}) == 24
    for one in found:
        assert set(one) == FIELDS
        assert one["failures"] == one["wrong"] == 0
        assert one["operations"] > 0
        assert one["ops_per_s"] * one["seconds"] == pytest.approx(one["operations"], rel=0.01)
        assert one["gb_per_s"] * 1e9 == pytest.approx(one["ops_per_s"] * one["block_size"], rel=0.01)
        assert 0 < one["p50_us"] <= one["p90_us"] <= one["p99_us"] <= one["max_us"]
        assert one["seconds"] >= 0.03  # since all threads have begun
        assert one["cpu_s_per_gb"] > 0
        assert one["target_cpu_s_per_gb"] >= 0


def test_without_flags_it_shows_a_table(programs: Path) -> None:
    result = finished(programs, "--duration=20ms")
    assert (result.returncode, result.stderr) == (0, "")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0][:2] == ["oper", "path"]
    assert [(line[0], line[2]) for line in lines[1:]] == [
        (operation, block) for operation in ("write", "read") for block in ("4K", "64K", "1M", "16M")
    ]


@pytest.mark.parametrize("protocol", ["tcp", "shm"])
def test_the_path_that_was_taken_is_told(programs: Path, protocol: str) -> None:
    result = finished(programs, *SHORT, f"--protocol={protocol}", "--json")
    assert result.returncode == 0, result.stderr
    assert [one["path"] for one in results(result.stdout)] == [protocol]


@pytest.mark.parametrize("extra", [["--checksum", "--protocol=tcp"], ["--memory=ordinary"], ["--busy_poll_us=50"]])
def test_options_reach_both_ends(programs: Path, extra: list[str]) -> None:
    result = finished(programs, *SHORT, *extra, "--json", "--verify")
    assert (result.returncode, result.stderr) == (0, "")
    one = results(result.stdout)[0]
    assert one["checksum"] is ("--checksum" in extra)
    assert one["memory"] == ("ordinary" if "--memory=ordinary" in extra else "mapped")
    assert one["busy_poll_us"] == (50 if "--busy_poll_us=50" in extra else 0)


def test_what_the_environment_says_is_told_as_well(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MC_BUSY_POLL_US", "70")
    monkeypatch.setenv("MC_CHECKSUM", "1")
    for flags, polls in (([], 70), (["--busy_poll_us=50"], 50)):
        one = results(finished(programs, *SHORT, *flags, "--json").stdout)[0]
        assert (one["checksum"], one["busy_poll_us"]) == (True, polls)
    monkeypatch.setenv("MC_BUSY_POLL_US", "never")
    result = finished(programs, *SHORT)
    assert result.returncode == 1
    assert "MC_BUSY_POLL_US" in result.stderr


@pytest.mark.parametrize("pattern", ["walk", "random", "hot"])
@pytest.mark.parametrize("protocol", ["tcp", "shm"])
def test_all_bytes_of_all_patterns_are_right(programs: Path, pattern: str, protocol: str) -> None:
    result = finished(
        programs, "--duration=20ms", "--buffer_size=2MB", "--block_size=513,100000", "--batch_size=1,40",
        "--threads=3", "--operation=write,read,mix", f"--pattern={pattern}", f"--protocol={protocol}", "--verify",
        "--json",
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    assert all(one["verified"] and one["wrong"] == 0 and one["operations"] > 0 for one in results(result.stdout))


# ---- Two roles


def target_of(program: Program) -> tuple[str, int, int]:
    """(host:port, address and size of its memory) as a target says."""
    line = program.line()
    match = re.fullmatch(r"mooncake_bench \S+ target at (\S+) lends (\d+) bytes at 0x([0-9a-f]+)", line)
    assert match, line or program.errors()
    return match[1], int(match[3], 16), int(match[2])


def test_an_initiator_needs_its_target_s_address_alone(begin: Callable[..., Program], programs: Path) -> None:
    target = begin("--mode=target", "--buffer_size=4MB", "--seed=77")
    where, _, size = target_of(target)
    assert size == 4 << 20
    for name in NAMES:
        result = finished(programs, *SHORT, f"--segment_id={where}", "--json", "--verify", "--operation=mix", name=name)
        assert (result.returncode, result.stderr) == (0, "")
        one = results(result.stdout)[0]
        assert one["wrong"] == one["failures"] == 0
        assert one["target_cpu_s_per_gb"] is None
    assert target.end() == 0
    assert target.errors() == ""


def test_the_smaller_of_the_two_memories_counts(begin: Callable[..., Program], programs: Path) -> None:
    where, _, _ = target_of(begin("--mode=target", "--buffer_size=1MB"))
    flags = ("--buffer_size=64MB", "--duration=30ms", f"--segment_id={where}", "--operation=write", "--verify")
    assert finished(programs, *flags, "--block_size=512K").returncode == 0
    result = finished(programs, *flags, "--block_size=1M")
    assert result.returncode == 1
    assert "more than a thread's part of the target's memory" in result.stderr


def test_a_target_that_is_not_there_is_status_1_with_words(programs: Path) -> None:
    result = finished(programs, *SHORT, "--segment_id=127.0.0.1:1")
    assert (result.returncode, result.stdout) == (1, "")
    assert "127.0.0.1:1" in result.stderr


def test_an_engine_that_is_no_target_is_status_1_with_words(programs: Path, library: Path) -> None:
    other = Engine(library)
    result = finished(programs, *SHORT, f"--segment_id={other.address()}")
    other.close()
    assert (result.returncode, result.stdout) == (1, "")
    assert "is no target of this program" in result.stderr


def test_a_target_that_is_killed_ends_the_measurement_with_status_1(begin: Callable[..., Program]) -> None:
    target = begin("--mode=target", "--buffer_size=4MB")
    where, _, _ = target_of(target)
    flags = ("--buffer_size=4MB", "--block_size=64K", "--operation=write", "--duration=60", "--protocol=tcp", "--json")
    initiator = begin(*flags, f"--segment_id={where}")
    wait_until_busy(initiator)
    target.kill()
    assert initiator.ended() == 1
    assert results(initiator.line())[0]["failures"] > 0
    assert initiator.errors() != ""


class Engine:
    """An engine of the test's own, over ctypes."""

    def __init__(self, library: Path) -> None:
        self.calls = ctypes.CDLL(str(library))
        self.calls.mc_engine_address.restype = ctypes.c_int64
        self.handle = ctypes.c_void_p()
        assert self.calls.mc_engine_open(None, ctypes.byref(self.handle), None) == 0

    def address(self) -> str:
        text = ctypes.create_string_buffer(288)
        assert self.calls.mc_engine_address(self.handle, text, ctypes.c_size_t(288)) > 0
        return text.value.decode()

    def open(self, where: str) -> ctypes.c_uint64:
        """A peer, and a page of memory to write from."""
        self.page = ctypes.create_string_buffer(4096)
        assert self.calls.mc_engine_register(self.handle, self.page, ctypes.c_uint64(4096), None, 0, None) == 0
        peer = ctypes.c_uint64()
        assert self.calls.mc_peer_open(self.handle, where.encode(), ctypes.byref(peer), None) == 0
        return peer

    def write(self, peer: ctypes.c_uint64, remote: int, byte: int) -> None:
        """Writes a page of one byte into a peer's memory."""
        ctypes.memset(self.page, byte, 4096)
        length, patience = ctypes.c_uint64(4096), ctypes.c_uint64(0)
        assert self.calls.mc_peer_write(peer, self.page, ctypes.c_uint64(remote), length, patience, None) == 0

    def close(self) -> None:
        assert self.calls.mc_engine_close(self.handle) == 0


def wait_until_busy(program: Program) -> None:
    """Until it has used some processor time, which it does when it measures."""
    deadline = time.monotonic() + PATIENCE
    stat = Path(f"/proc/{program.process.pid}/stat")
    while sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) < 10:
        assert time.monotonic() < deadline
        assert program.process.poll() is None
        select.select([], [], [], 0.01)


@pytest.mark.parametrize("operation", ["read", "write"])
def test_a_wrong_byte_in_the_target_s_memory_is_found(
    begin: Callable[..., Program], library: Path, operation: str
) -> None:
    where, memory, size = target_of(begin("--mode=target", "--buffer_size=1MB"))
    other = Engine(library)
    initiator = begin(
        "--buffer_size=1MB", "--block_size=4K", f"--operation={operation}", "--duration=1", "--verify", "--json",
        f"--segment_id={where}", "--pattern=hot", "--protocol=tcp",
    )  # fmt: skip
    peer = other.open(where)
    deadline = time.monotonic() + PATIENCE
    # What is read stays wrong. What is written is read back at once: the test's bytes have to come between the two.
    while not select.select([initiator.process.stdout], [], [], 0)[0]:
        assert time.monotonic() < deadline
        other.write(peer, memory + (size // 2 if operation == "write" else 0), 0x55)
    other.close()
    assert results(initiator.line())[0]["wrong"] > 0
    assert initiator.ended() == 1
    assert re.search(
        rf"byte \d+ of the target's memory \(0x[0-9a-f]+\) is wrong after a {operation} of 4096 bytes",
        initiator.errors(),
    )


# ---- Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_the_report_so_far(begin: Callable[..., Program], number: signal.Signals) -> None:
    program = begin("--json", "--buffer_size=4MB", "--block_size=4K,8K", "--operation=write,read", "--duration=60")
    wait_until_busy(program)
    children = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children").read_text().split()
    assert len(children) == 1
    assert program.end(number) == 0
    one = results(program.line())[0]
    assert one["operations"] > 0
    assert one["seconds"] < 60
    assert program.line() == ""  # the other combinations aren't measured
    assert program.errors() == ""
    with contextlib.suppress(FileNotFoundError):  # and its child has gone with it
        assert "mooncake_bench" not in Path(f"/proc/{children[0]}/cmdline").read_text()


def test_a_signal_ends_it_also_when_the_target_does_not_answer(begin: Callable[..., Program]) -> None:
    """A request would wait for half a minute, and each that verifies it for another one."""
    target = begin("--mode=target", "--buffer_size=1MB")
    where, _, _ = target_of(target)
    program = begin(
        "--buffer_size=1MB", "--block_size=4K", "--batch_size=8", "--operation=write", "--duration=60", "--verify",
        f"--segment_id={where}", "--protocol=tcp",
    )  # fmt: skip
    wait_until_busy(program)
    target.process.send_signal(signal.SIGSTOP)
    select.select([], [], [], 0.3)
    begun = time.monotonic()
    assert program.end(signal.SIGINT) == 0
    assert time.monotonic() - begun < 10
    assert program.errors() == ""


def test_a_child_ends_with_its_killed_parent(begin: Callable[..., Program]) -> None:
    program = begin("--json", "--buffer_size=4MB", "--block_size=4K", "--duration=60")
    wait_until_busy(program)
    child = Path(f"/proc/{program.process.pid}/task/{program.process.pid}/children").read_text().split()[0]
    program.kill()
    deadline = time.monotonic() + PATIENCE
    while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes() != b"":
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)


def test_a_signal_ends_a_target(begin: Callable[..., Program]) -> None:
    target = begin("--mode=target", "--buffer_size=1MB")
    target_of(target)
    assert target.end(signal.SIGINT) == 0
    assert target.line() == ""
    assert target.errors() == ""
