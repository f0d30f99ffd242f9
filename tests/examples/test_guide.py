"""What docs/guide.md shows runs: all snippets of a language, in order, as one program."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_examples import ENVIRONMENT, PREFIX, ROOT, STRICT, pkg_config

DOCS = ROOT / "docs"
MASTER = "127.0.0.1:50051"
# A snippet, or a hidden line that stands for what passes between the two processes.
PIECE = r"^```{0}\n(.*?)^```$|^<!-- {0}: (.*?) -->$"
BEFORE = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <mooncake/mooncake.h>

static struct mc_error error = MC_ERROR_INIT;

static void check(int64_t status) {
    if (status < 0) {
        printf("%lld %s\\n", (long long)status, error.message);
        exit(1);
    }
}

int main(void) {
"""


def snippets(language: str, master: str) -> str:
    """All of them, with the master where it is and segments of modest size."""
    pieces = re.findall(PIECE.format(language), (DOCS / "guide.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(pieces) > 12
    program = "\n".join(shown or hidden for shown, hidden in pieces)
    assert MASTER in program
    return program.replace(MASTER, master).replace("1GiB", "64MiB")


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the guide's master listens, started as it says, with its owner."""
    text = (DOCS / "guide.md").read_text()
    address = MASTER
    processes: list[subprocess.Popen[str]] = []
    try:
        for name in ("mooncake_master", "mooncake_client"):
            line = re.search(rf"^    ({name} .*)$", text, re.MULTILINE)
            assert line is not None
            words = shlex.split(line[1].replace(MASTER, address).replace("16 GB", "64 MB"))
            words = [word.replace("/var/lib/mooncake", str(tmp_path_factory.getbasetemp())) for word in words]
            command = [str(PREFIX / "bin" / words[0]), *words[1:], "--port=0"]
            process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
            processes.append(process)
            assert process.stdout is not None
            said = process.stdout.readline()
            address = said.split()[-1] if name == "mooncake_master" else address
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
            assert process.wait(30) == 0


def run(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_snippets_in_c_run(tmp_path: Path, master: str):
    source, program = tmp_path / "guide.c", tmp_path / "guide"
    source.write_text(f"{BEFORE}{snippets('c', master)}return 0;\n}}\n")
    run("gcc", *STRICT, source, "-o", program, *pkg_config("--cflags", "--libs"))
    output = run(program)
    assert "says written 1048576" in output
    assert "16384 bytes, the first 118" in output  # 'v'
    assert "block 2: 0" in output
    assert '"cache":{' in output


def test_the_snippets_in_python_run(tmp_path: Path, master: str):
    source = tmp_path / "guide.py"
    source.write_text(snippets("python", master))
    output = run(PREFIX / "bin" / "python", source)
    assert "b'written' b'1048576' b'hello'" in output
    assert "(MC_ERR_NOT_REGISTERED) False" in output
    assert "b'value' None True" in output
    assert "True {'size': " in output
    assert "0 b'value' -704" in output
    assert re.search(r"^127\.0\.0\.1:\d+ b'block 7'\n0$", output, re.MULTILINE)
    assert len(re.findall(r"^True 0x[0-9a-f]+ 1048576$", output, re.MULTILINE)) == 2


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_the_links_of_a_page_lead_somewhere(page: str):
    text = (DOCS / page).read_text()
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        linked = DOCS / path if path else DOCS / page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}, (
                target
            )
