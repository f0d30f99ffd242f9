#!/usr/bin/env python3
"""check.py - runs every test and lint of the tree and counts them.

    tools/check.py [--only SUITE ...] [--list]

Each suite writes its own log under build/check/ and one line here; a failed test's output is shown. C tests run three
times: as built by gcc, and under address+undefined and thread sanitizers. Builds are incremental. The last line is
"N passed, N failed" with ", N skipped" if there are any; the exit status is 0 only if nothing failed and something ran.
Needs Python 3.9 and what tools/setup installs.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

ROOT = Path(__file__).resolve().parent.parent
CHECK = ROOT / "build" / "check"
VENV = ROOT / "build" / "venv"
JOBS = os.cpu_count() or 1
SHOWN_LINES = 80  # of a failed test's output


@dataclass
class Result:
    """What a suite found: how many tests passed, and (name, words) of the others."""

    passed: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped


class Log:
    """A suite's log file, and the commands that write to it."""

    def __init__(self, name: str) -> None:
        CHECK.mkdir(parents=True, exist_ok=True)
        self.path = CHECK / f"{name}.log"
        self.path.write_text("")

    def run(self, *command: object, env: dict[str, str] | None = None, timeout: float = 900) -> tuple[int, str]:
        """Runs a command in the root; its status (124 past the timeout) and its output, which is also in the log."""
        words = [str(word) for word in command]
        process = subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
            status = process.returncode
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            status, output = 124, f"{output}\nstopped after {timeout:.0f} s\n"
        with self.path.open("a") as file:
            file.write(f"$ {shlex.join(words)}\n{output}\n")
        return status, output


def parse_tap(output: str) -> Result:
    """Counts a TAP stream. A plan that isn't kept is a failure."""
    result, planned, seen, other = Result(), None, 0, ""
    for line in output.splitlines():
        match = re.match(r"(not )?ok\b\s*\d*\s*-?\s*([^#]*)(?:#\s*SKIP\S*\s*(.*))?", line, re.IGNORECASE)
        if plan := re.match(r"1\.\.(\d+)", line):
            planned = int(plan[1])
        elif match:
            seen += 1
            name = match[2].strip()
            if match[3] is not None:  # cmocka writes the name where the reason should be
                result.skipped.append((name, match[3].strip()) if name else (match[3].strip(), other))
            elif match[1]:
                result.failed.append((name, ""))
            else:
                result.passed += 1
        if not match and line.strip("# "):
            other = line.strip("# ")  # cmocka's skip() takes no reason: what was printed last is it
    if planned is None or planned != seen:
        result.failed.append(("all planned tests ran", f"{planned} planned, {seen} ran"))
    return result


def parse_meson(directory: Path, variant: str, status: int, output: str) -> Result:
    """Counts what `meson test` left in its log, test by test."""
    result = Result()
    log = directory / "meson-logs" / "testlog.json"
    for line in log.read_text().splitlines() if log.exists() else []:
        test = json.loads(line)
        words = test.get("stdout", "") + test.get("stderr", "")
        counts = parse_tap(test.get("stdout", ""))
        # meson takes the "not ok # SKIP" of older cmocka for a failure.
        fine = test["result"] in ("OK", "SKIP") or (counts.skipped and test["returncode"] == 0)
        if not fine and not counts.failed:
            counts.failed.append(("runs to its end", f"{test['result']}, status {test['returncode']}"))
        for index, (name, why) in enumerate(counts.failed):
            shown = f"{why}\n{words}" if index == 0 else ""
            counts.failed[index] = (f"{variant}: {test['name']}: {name}", shown)
        counts.skipped = [(f"{variant}: {test['name']}: {name}", why) for name, why in counts.skipped]
        result.add(counts)
    if status != 0 and not result.failed and not result.skipped:
        result.failed.append((f"{variant}: meson test", output))
    return result


def parse_junit(path: Path, suite: str, status: int, output: str) -> Result:
    """Counts what pytest left in its JUnit file."""
    result = Result()
    for case in ElementTree.parse(path).iter("testcase") if path.exists() else []:
        name = f"{case.get('classname')}.{case.get('name')}"
        bad = [part for part in case if part.tag in ("failure", "error")]
        skip = case.find("skipped")
        if bad:
            result.failed.append((name, "\n".join(part.text or "" for part in bad)))
        elif skip is not None:
            result.skipped.append((name, skip.get("message", "")))
        else:
            result.passed += 1
    if status not in (0, 5) and not result.failed:  # 5: no tests there
        result.failed.append((suite, output))
    return result


def one_test(name: str, status: int, output: str) -> Result:
    return Result(passed=1) if status == 0 else Result(failed=[(name, output)])


SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "halt_on_error=1:detect_stack_use_after_return=1:strict_init_order=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0:second_deadlock_stack=1",
}


def sanitizer(kinds: str) -> list[str]:
    flags = "-fno-omit-frame-pointer -fno-sanitize-recover=all"
    return [f"-Db_sanitize={kinds}", "-Db_lundef=false", f"-Dc_args={flags}"]


def native(variant: str, compiler: str, *options: str, tests: bool = True) -> Result:
    """Configures, builds and tests the C side in build/check/<variant>. A build that fails is one failed test."""
    log, directory = Log(variant), CHECK / variant
    command = ["meson", "setup", str(directory), "-Dtests=enabled", "-Dwerror_own=true", *options]
    said = directory / "configured.txt"
    wanted = shlex.join([compiler, *command])
    if not said.exists() or said.read_text() != wanted:
        shutil.rmtree(directory, ignore_errors=True)
        status, output = log.run(*command, env={"CC": compiler})
        if status != 0:
            return one_test(f"{variant}: configures", status, output)
        said.write_text(wanted)
    status, output = log.run("ninja", "-C", directory)
    if status != 0 or not tests:
        return one_test(f"{variant}: builds without warnings", status, output)
    result = Result(passed=1)
    (directory / "meson-logs" / "testlog.json").unlink(missing_ok=True)
    multiplier = "4" if "-Db_sanitize" in wanted else "1"
    status, output = log.run(
        "meson", "test", "-C", directory, "--no-rebuild", "--no-suite", "bench",
        "--timeout-multiplier", multiplier, env=SANITIZER_ENVIRONMENT,
    )  # fmt: skip
    result.add(parse_meson(directory, variant, status, output))
    return result


def pytest(suite: str, *paths: str) -> Result:
    present = [path for path in paths if (ROOT / path).exists()]
    if not present:
        return Result()
    log, junit = Log(suite), CHECK / f"{suite}.xml"
    junit.unlink(missing_ok=True)
    status, output = log.run(
        VENV / "bin" / "pytest", "-q", "-ra", "--tb=short", "-p", "no:cacheprovider", f"--junitxml={junit}", *present,
        env={
            "PYTHONDONTWRITEBYTECODE": "1",
            "MOONCAKE_TEST_PREFIX": str(VENV),
            "PATH": f"{VENV}/bin:{os.environ['PATH']}",
        },
    )  # fmt: skip
    return parse_junit(junit, suite, status, output)


def fault() -> Result:
    """Its files at the same time: most of their seconds are waits for leases and times to live."""
    result = Result()
    files = sorted((ROOT / "tests" / "fault").glob("test_*.py"))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for one in pool.map(lambda file: pytest(f"fault-{file.stem}", str(file.relative_to(ROOT))), files):
            result.add(one)
    return result


def build() -> Result:
    return one_test("make build", *Log("build").run("make", "build"))


def tracked(*patterns: str) -> list[str]:
    names = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split("\0")  # fmt: skip
    return sorted({name for name in names if name and (ROOT / name).exists()})


def ruff() -> Result:
    result, log = Result(), Log("ruff")
    program = VENV / "bin" / "ruff"
    result.add(one_test("ruff check", *log.run(program, "check", "--no-cache", ".")))
    result.add(one_test("ruff format", *log.run(program, "format", "--no-cache", "--diff", ".")))
    return result


def pyright() -> Result:
    if not (ROOT / "python" / "pyrightconfig.json").exists():
        return Result(skipped=[("pyright", "python/pyrightconfig.json is not there")])
    command = [VENV / "bin" / "pyright", "--project", "python", "--pythonpath", VENV / "bin" / "python"]
    return one_test("pyright", *Log("pyright").run(*command))


def clang_format() -> Result:
    files = tracked("*.c", "*.h")
    return one_test("clang-format", *Log("clang-format").run("clang-format", "--dry-run", "-Werror", *files))


def clang_tidy() -> Result:
    database = CHECK / "clang"
    if not (database / "compile_commands.json").exists():
        return Result(failed=[("clang-tidy", "the clang build has left no compile_commands.json")])
    # A file that is built twice is looked at once: at a second look clang-tidy 14 takes each va_list for uninitialised.
    once = {command["file"]: command for command in json.loads((database / "compile_commands.json").read_text())}
    database = CHECK / "tidy"
    database.mkdir(exist_ok=True)
    (database / "compile_commands.json").write_text(json.dumps(list(once.values())))
    log, files = Log("clang-tidy"), tracked("libmooncake/*.c")
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        runs = list(pool.map(lambda name: log.run("clang-tidy", "-p", database, "--quiet", name), files))
    bad = "".join(output for status, output in runs if status != 0)
    return one_test("clang-tidy", 1 if bad else 0, bad)


SUITES: dict[str, Callable[[], Result]] = {
    "build": build,
    "gcc": lambda: native("gcc", "gcc"),
    "clang": lambda: native("clang", "clang", tests=False),
    "address": lambda: native("address", "gcc", *sanitizer("address,undefined")),
    "thread": lambda: native("thread", "clang", *sanitizer("thread")),
    "abi": lambda: pytest("abi", "tests/abi", "tests/layering"),
    "compat": lambda: pytest("compat", "tests/compat"),
    "python": lambda: pytest("python", "python/tests"),
    "integration": lambda: pytest("integration", "tests/integration"),
    "fault": fault,
    "bench": lambda: pytest("bench", "tests/bench"),
    "examples": lambda: pytest("examples", "tests/examples"),
    "ruff": ruff,
    "pyright": pyright,
    "clang-format": clang_format,
    "clang-tidy": clang_tidy,
}
GROUPS = {"lint": ["clang", "ruff", "pyright", "clang-format", "clang-tidy"]}


def show(name: str, result: Result, seconds: float) -> None:
    words = [f"{result.passed} passed"]
    words += [f"{len(result.failed)} failed"] if result.failed else []
    words += [f"{len(result.skipped)} skipped"] if result.skipped else []
    print(f"  {name:<13} {', '.join(words)}, {seconds:.0f} s", flush=True)
    for test, reason in result.skipped:
        print(f"    skipped: {test}: {reason or 'no reason given'}")
    for test, output in result.failed:
        print(f"    FAILED: {test}")
        for line in output.splitlines()[-SHOWN_LINES:]:
            print(f"      {line}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs all tests and lints; logs are under build/check/.")
    parser.add_argument("--only", nargs="+", metavar="SUITE", default=list(SUITES), help="these suites, or: lint")
    parser.add_argument("--list", action="store_true", help="name the suites and end")
    options = parser.parse_args()
    if options.list:
        print("\n".join(SUITES))
        return 0
    names = [name for word in options.only for name in GROUPS.get(word, [word])]
    unknown = sorted(set(names) - set(SUITES))
    if unknown:
        parser.error(f"no such suite: {', '.join(unknown)}")
    total = Result()
    for name in names:
        start = time.monotonic()
        try:
            result = SUITES[name]()
        except Exception:  # a program that isn't there, a log that isn't JSON: still one closing line
            result = Result(failed=[(f"{name}: runs", traceback.format_exc())])
        show(name, result, time.monotonic() - start)
        total.add(result)
    skipped = f", {len(total.skipped)} skipped" if total.skipped else ""
    print(f"{total.passed} passed, {len(total.failed)} failed{skipped}", flush=True)
    return 0 if total.passed and not total.failed else 1


if __name__ == "__main__":
    sys.exit(main())
