"""Files of settings for mooncake_master: what they say, what flags say beside them, and what is wrong with them."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from pathlib import Path
from typing import Callable

import pytest
from program import PATIENCE, Program

ROOT = Path(__file__).resolve().parents[2]
FLAGS = ROOT / "libmooncake" / "programs" / "master_flags.def"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str, name: str = "master.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return path

    return write


def refused(programs: Path, path: Path, *flags: str) -> str:
    """The one line with which the program refuses the file."""
    result = subprocess.run(
        [programs / "mooncake_master", "--port=0", "--metrics_host=", f"--config_path={path}", *flags],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    return result.stderr


@pytest.mark.parametrize("form", ["yaml", "json", "json with tabs", "json in one line"])
def test_settings_are_those_of_the_flags(
    begin: Callable[..., Program], free_port: int, write: Callable[..., Path], form: str
) -> None:
    settings = {
        "rpc_port": free_port,
        "rpc_address": "127.0.0.1",
        "metrics_host": "",
        "eviction_ratio": 0.1,
        "client_live_ttl_sec": 30,
        "default_kv_soft_pin_ttl": "30m",
        "allow_evict_soft_pinned_objects": False,
        "enable_ha": False,
        "cluster_id": "one",
    }
    if form == "yaml":
        text = "# a comment\n---\n" + "".join(f"{name}: {json.dumps(value)}\n" for name, value in settings.items())
    else:
        text = json.dumps(settings, indent="\t" if "tabs" in form else None if "line" in form else 2)
    master = begin("mooncake_master", f"--config-path={write(text, form)}")
    assert master.address() == f"127.0.0.1:{free_port}"
    assert master.end() == 0
    assert master.errors() == "mooncake_master: warning: accepted without an effect: --enable_ha, --cluster_id\n"


def test_flags_win_over_the_file_wherever_they_stand(
    begin: Callable[..., Program], free_port: int, write: Callable[..., Path]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = write(f"rpc_port: {taken.getsockname()[1]}\nmetrics-host: 192.0.2.1\n")
        for flags in (
            (f"--rpc_port={free_port}", "--metrics_host=", f"--config_path={path}"),
            (f"--config_path={path}", "-rpc-port", str(free_port), "--metrics_host="),
        ):
            master = begin("mooncake_master", *flags)
            assert master.address() == f"127.0.0.1:{free_port}"
            assert master.end() == 0


def test_every_flag_is_a_setting(begin: Callable[..., Program], write: Callable[..., Path]) -> None:
    lines = []
    for name, kind, default in re.findall(r'^FLAG\((\w+), (\w+), "([^"]*)"', FLAGS.read_text(), re.MULTILINE):
        if name not in ("config_path", "port", "metrics_host", "state_file"):
            lines.append(f"{name}: {json.dumps(default) if kind in ('TEXT', 'SIZE') else default}\n")
    assert len(lines) > 90
    master = begin("mooncake_master", "--port=0", "--metrics_host=", f"--config_path={write(''.join(lines))}")
    assert master.address().startswith("127.0.0.1:")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "\n\n---\n{}\n...\n"])
def test_a_file_may_say_nothing(begin: Callable[..., Program], write: Callable[..., Path], text: str) -> None:
    master = begin("mooncake_master", "--port=0", "--metrics_host=", f"--config_path={write(text)}")
    if text == "---\n":  # a document whose value is null
        assert master.ended() == 2
    else:
        assert master.address().startswith("127.0.0.1:")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("rpc_prt: 5\n", 1, '"rpc_prt" is no setting; is rpc_port meant?'),
        ("\n\nrpc_port: 5\nxyzzyxyzzy: 1\n", 4, '"xyzzyxyzzy" is no setting'),
        ("flagfile: x\n", 1, '"flagfile" is no setting'),
        ("rpc_port: abc\n", 1, "rpc_port: abc isn't a number from 0 to 65535"),
        ('# one\nrpc_port: "5"\n', 2, 'rpc_port: "5" isn\'t a number from 0 to 65535'),
        ("rpc_port: 65536\n", 1, "rpc_port: 65536 isn't a number from 0 to 65535"),
        ("rpc_port: -1\n", 1, "rpc_port: -1 isn't a number"),
        ("rpc_port: 1.5\n", 1, "rpc_port: 1.5 isn't a number"),
        ("rpc_port:\n", 1, "rpc_port: nothing isn't a number"),
        ('{"rpc_port": null}', 1, "rpc_port: null isn't a number"),
        ('{\n "enable_ha": "true"\n}', 2, 'enable_ha: "true" isn\'t true or false'),
        ("enable_ha: 1\n", 1, "enable_ha: 1 isn't true or false"),
        ("cluster_id: 5\n", 1, "cluster_id: 5 isn't a text"),
        ("cluster_id: true\n", 1, "cluster_id: true isn't a text"),
        ("eviction_ratio: 1.5\n", 1, "eviction_ratio: 1.5 isn't a number from 0 to 1"),
        ("cluster_id: [a, b]\n", 1, "cluster_id: one plain value is needed"),
        ("a: 1\n", 1, '"a" is no setting'),
        ("master:\n  rpc_port: 5\n", 1, "master: one plain value is needed"),
        ('cluster_id: "a\\0b"\n', 1, "cluster_id: one plain value is needed"),
        ("cluster_id: &x a\npod_name: *x\n", 2, "pod_name: one plain value is needed"),
        ("rpc_port: 5\nrpc_port: 6\n", 2, "rpc_port is there twice"),
        ("rpc_port: 5\nrpc-port: 6\n", 2, "rpc_port is there twice"),
        ("? [a]\n: b\n", 1, "the name of a setting is needed here"),
        ("- a\n", 1, "settings are needed"),
        ("just words\n", 1, "settings are needed"),
        ("rpc_port: 5\n---\nport: 6\n", 2, "there is a second document"),
        ('{"rpc_port": 5,\n "port" 6}', 2, ""),
        ("rpc_port: 5\n\tport: 6\n", 2, ""),
        ('rpc_port: "5\n', 2, ""),
        ("cluster_id: a\npod_name: \udcff\n", 2, "invalid"),
        ("cluster_id: a\x01b\n", 1, "control characters"),
        ("{" * 5000, 1, ""),
        ("rpc_port: 5" + "\n" * 100 + "x: 1\n", 101, '"x" is no setting'),
    ],
)
def test_what_is_wrong_is_named_with_file_and_line(
    programs: Path, write: Callable[..., Path], text: str, line: int, words: str
) -> None:
    path = write(text)
    said = refused(programs, path)
    assert said.startswith(f"mooncake_master: {path}:{line}: "), said
    assert words in said


def test_a_wrong_value_is_an_error_also_where_a_flag_wins(programs: Path, write: Callable[..., Path]) -> None:
    assert ":1: rpc_port: abc isn't" in refused(programs, write("rpc_port: abc\n"), "--rpc_port=0")


def test_a_file_that_cannot_be_read_is_named(programs: Path, tmp_path: Path, write: Callable[..., Path]) -> None:
    assert "/nowhere/at/all: No such file" in refused(programs, Path("/nowhere/at/all"))
    assert f"{tmp_path}: Is a directory" in refused(programs, tmp_path)
    assert "has more than 1048576 bytes" in refused(programs, write("#" * (1 << 20) + "\n"))
