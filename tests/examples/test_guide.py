"""What docs/guide.md shows runs: all snippets of a language, in order, as one program."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from test_examples import ENVIRONMENT, PREFIX, ROOT, STRICT, pkg_config

DOCS = ROOT / "docs"
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


def snippets(language: str) -> str:
    pieces = re.findall(PIECE.format(language), (DOCS / "guide.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(pieces) > 5
    return "\n".join(shown or hidden for shown, hidden in pieces)


def run(*command: object) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(
        words, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_snippets_in_c_run(tmp_path: Path):
    source, program = tmp_path / "guide.c", tmp_path / "guide"
    source.write_text(f"{BEFORE}{snippets('c')}return 0;\n}}\n")
    run("gcc", *STRICT, source, "-o", program, *pkg_config("--cflags", "--libs"))
    assert "says written 1048576" in run(program)


def test_the_snippets_in_python_run(tmp_path: Path):
    source = tmp_path / "guide.py"
    source.write_text(snippets("python"))
    output = run(PREFIX / "bin" / "python", source)
    assert "b'written' b'1048576' b'hello'" in output
    assert "(MC_ERR_NOT_REGISTERED) False" in output


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
