"""Planted faults: would a test have noticed?

`tests/mutants/*.toml` lists them. A copy of the tree under build/mutants is changed so that every
fault is in one build and MITHRIL_MUTANT=<number> chooses it when the process starts; then the C++
tests and the pure Python tests run on each, up to the first failure. A crash or a hang counts.

    [[fault]]
    file = "csrc/plan/plan.cc"
    what = "a buffer is free one step too early"
    right = 'last + 1'                     # found once in the file, or once in `at`
    wrong = 'last'
    at = 'interval.end = last + 1;'        # optional: text that is found once in the file

A `right` that ends in `;` is a statement (not a declaration), any other an expression that could
stand in parentheses.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "mutants" / "tree"
BUILD = TREE / "build" / "mutants"
CAUGHT = ROOT / "build" / "mutants" / "caught.json"  # fault -> the test that noticed it last
KNOWN = ROOT / "tests" / "mutants" / "caught.json"  # the same, kept: that test is tried first
SECONDS = ROOT / "build" / "mutants" / "seconds.json"  # C++ test, Python file -> what it takes
SLOW = 0.5  # seconds: C++ tests that take longer run behind the others
PY = str(ROOT / ".venv" / "bin" / "python")
ENOUGH = 0.95
NO_TESTS, UNKNOWN_TEST = 5, 4  # pytest's status when nothing was collected, or no such test
COPIED = ("benchmarks", "csrc", "cmake", "tests", "python", "scripts", "docs", "examples",
          "third_party", "Makefile", "CMakeLists.txt", "CMakePresets.json", "README.md",
          "pyproject.toml")  # fmt: skip
NOT_COPIED = {"__pycache__", "_generated", "_openblas"}
PRINTED = ("csrc/reference/", "csrc/backends/c/")  # folders of kernels in C
# They read sources, not the engine.
NOT_RUN = {"test_layout.py", "test_pages.py", "test_readme.py", "test_docstrings.py"}
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
KEYWORD = re.compile(r"(if|for|while|return|else)\b")
STRINGS = re.compile(r'"(?:\\.|[^"\\])*"')
COMMENTS = re.compile(r"//.*$", re.MULTILINE)
DECLARATION = re.compile(r"(?!return\b)(const )?[\w:]+(<.*>)? [&*]?\w+ = ")
INCLUDE = '#include "mithril_mutant.h"\n'
HEADER = """// The planted fault that this process runs with; 0 is none.
#pragma once
#ifdef __cplusplus
extern "C" int mithril_chosen_mutant;
#else
extern int mithril_chosen_mutant;
#endif
#define mithril_mutant(number) (mithril_chosen_mutant == (number))
"""
# Chosen before any constructor of C++ runs: op blocks are registered by those.
SOURCE = """#include <stdlib.h>
#include "mithril_mutant.h"
int mithril_chosen_mutant = 0;
__attribute__((constructor(101))) static void choose(void) {
  const char* text = getenv("MITHRIL_MUTANT");
  mithril_chosen_mutant = text ? atoi(text) : 0;
}
"""


@dataclass
class Fault:
    file: str
    what: str
    right: str
    wrong: str
    at: str = ""
    number: int = 0

    @property
    def key(self):
        return f"{self.file}: {self.what}"

    def place(self, text):
        """Where `right` is in the file; ValueError if that is not one place."""
        near = self.at or self.right
        if text.count(near) != 1:
            raise ValueError(f"found {text.count(near)} times: {near}")
        if near.count(self.right) != 1:
            raise ValueError(f"not once in `at`: {self.right}")
        start = text.index(near) + near.index(self.right)
        self.check_form(COMMENTS.sub("", text[:start]).rstrip())
        return start, start + len(self.right)

    def is_statement(self):
        return self.right.rstrip().endswith(";")

    def check_form(self, before):
        """ValueError where `right`, behind that text, is no whole statement or expression."""
        for part in (self.right, self.wrong):
            code = STRINGS.sub("", part)
            if any(code.count(opening) != code.count(closing) for opening, closing in BRACKETS):
                raise ValueError(f"open brackets: {part}")
        if not self.is_statement():
            if KEYWORD.match(self.right):
                raise ValueError(f"neither a statement nor an expression: {self.right}")
        elif DECLARATION.match(self.right):
            raise ValueError(f"a declaration, which ends with its block: {self.right}")
        elif not before.endswith((";", "{", "}", ")", ":", "else")):
            raise ValueError(f"the end of a statement: {self.right}")

    def planted(self):
        chosen = f"mithril_mutant({self.number})"
        if self.is_statement():
            return f"{{ if ({chosen}) {{ {self.wrong} }} else {{ {self.right} }} }}"
        return f"({chosen} ? ({self.wrong}) : ({self.right}))"


NONE = Fault(file="", what="nothing", right="", wrong="")


def read_faults():
    faults = []
    for path in sorted((ROOT / "tests" / "mutants").glob("*.toml")):
        faults += [Fault(**row) for row in tomllib.loads(path.read_text())["fault"]]
    for number, fault in enumerate(faults, 1):
        fault.number = number
    return faults


def plant(text, faults):
    """The text of one file with all its faults in it."""
    places = sorted((*fault.place(text), fault) for fault in faults)
    for (_, end, fault), (start, _, other) in zip(places, places[1:], strict=False):
        if start < end:
            raise ValueError(f"faults {fault.number} and {other.number} overlap")
    for start, end, fault in reversed(places):
        text = text[:start] + fault.planted() + text[end:]
    return INCLUDE + text


def textually_included(files, faults):
    """Sources that include a changed source, maybe inside a namespace: the header comes first."""
    changed = {fault.file.removeprefix("csrc/") for fault in faults if fault.file.endswith(".c")}
    lines = [f'#include "{name}"'.encode() for name in changed]
    return [f for f in files if f.endswith(".cc") and any(line in files[f] for line in lines)]


def print_right_kernels(files):
    """The engine prints kernels of C from texts without faults, against which its own are tried."""
    for name in [name for name in files if name.startswith(PRINTED)]:
        files["right/" + name] = (ROOT / name).read_bytes()
    read, cmake = b"file(READ ${file} text)", files["cmake/engine.cmake"]
    assert cmake.count(read) == 1
    right = b"string(REPLACE /csrc/ /right/csrc/ file ${file})\n  " + read
    files["cmake/engine.cmake"] = cmake.replace(read, right)


def wanted_tree(faults):
    """Path in the copy -> its bytes."""
    files, stale = {}, []
    for name in COPIED:
        top = ROOT / name
        for path in [top] if top.is_file() else top.rglob("*"):
            if path.is_file() and not NOT_COPIED & set(path.parts) and path.suffix != ".so":
                files[path.relative_to(ROOT).as_posix()] = path.read_bytes()
    for file in sorted({fault.file for fault in faults}):
        here = [fault for fault in faults if fault.file == file]
        try:
            files[file] = plant((ROOT / file).read_text(), here).encode()
        except (OSError, ValueError) as error:
            stale.append(f"stale: {file}: {error} (faults {here[0].number} to {here[-1].number})")
    for file in textually_included(files, faults):
        files[file] = INCLUDE.encode() + files[file]
    print_right_kernels(files)
    files["csrc/mithril_mutant.h"] = HEADER.encode()
    files["csrc/core/mithril_mutant.c"] = SOURCE.encode()
    return files, stale


def write_tree(files):
    """Files that stay equal keep their times, so that little is built again."""
    kept = {"build", "_generated", "_openblas"}
    for path in TREE.rglob("*") if TREE.exists() else ():
        inside = path.relative_to(TREE)
        if path.is_file() and not kept & set(inside.parts) and inside.as_posix() not in files:
            path.unlink()
    for name, data in files.items():
        path = TREE / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            shutil.copymode(ROOT / name, path) if (ROOT / name).exists() else None


def build(jobs):
    env = {**os.environ, "CCACHE_BASEDIR": str(TREE), "CCACHE_NOHASHDIR": "1"}
    configure = ["cmake", "--preset", "mutants", f"-DPython_EXECUTABLE={PY}"]
    subprocess.run(configure, cwd=TREE, env=env, check=True, stdout=subprocess.DEVNULL)
    targets = ["--target", "all", "mithril_tests", f"-j{jobs}", "--", "-k", "0"]
    subprocess.run(["cmake", "--build", str(BUILD), *targets], env=env, check=True)


def run(command, number, limit):
    """(exit status or None for a hang, output)."""
    env = {**os.environ, "PYTHONPATH": str(BUILD / "python"), "MITHRIL_VERIFY": "1",
           "PYTHONDONTWRITEBYTECODE": "1", "MITHRIL_MUTANT": str(number)}  # fmt: skip
    process = subprocess.Popen(command, cwd=TREE, env=env, text=True, start_new_session=True,
                               errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)  # fmt: skip
    try:
        output = process.communicate(timeout=limit)[0]
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]


def read(path):
    return json.loads(path.read_text()) if path.exists() else {}


def last(pattern, output, otherwise):
    found = re.findall(pattern, output, re.MULTILINE)
    return found[-1] if found else otherwise


RUN_OPS = ("backends/", "plan/", "reference/", "select/")
TEST_SUITE = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+),", re.MULTILINE)
COVERS = re.compile(r"^// Covers: (.+)$", re.MULTILINE)


def covers(test, text, file):
    """Whether a C++ test is that of csrc/`file`, by its place or by what it says."""
    if test.with_name(test.stem.removesuffix("_test")) == Path(file).with_suffix(""):
        return True
    if test.parts[0] == "ops" and file.startswith(("ops/", "passes/", *RUN_OPS)):
        return True
    patterns = " ".join(COVERS.findall(text)).split()
    return any(Path(file).match(pattern) for pattern in patterns)


def suites_of(fault):
    """The suites that are nearest to a fault, as a filter."""
    folder, suites = ROOT / "tests" / "cpp", []
    if not fault.file:
        return ""
    for path in sorted(folder.rglob("*_test.cc")):
        text = path.read_text()
        if covers(path.relative_to(folder), text, fault.file.removeprefix("csrc/")):
            suites += TEST_SUITE.findall(text)
    return ":".join(f"{s}.*:{s}/*:*/{s}.*" for s in dict.fromkeys(suites))


def cpp(fault, only=None):
    """The first C++ test that fails, or None; and the output."""
    slow = ":".join(t for t, seconds in read(SECONDS).items() if seconds > SLOW and "/" not in t)
    near = suites_of(fault)
    filters = [near and f"{near}-{slow}", near, f"-{slow}", slow] if slow else ["*"]
    filters = [only] if only else filters
    command = [str(BUILD / "mithril_tests"), "--gtest_fail_fast", "--gtest_color=no"]
    for tests in filter(None, filters):
        status, output = run([*command, f"--gtest_filter={tests}"], fault.number, 300)
        if status != 0:
            failed = re.search(r"^\[  FAILED  \] ([^\s,]+)", output, re.MULTILINE)
            crashed = last(r"^\[ RUN      \] (\S+)", output, "(start)")
            return failed.group(1) if failed else crashed, output
    return None, output


def python_files():
    """The quick ones first, and those that caught most of all before them."""
    counts = Counter(test.partition("::")[0] for test in noticed().values())
    files = (TREE / "tests" / "python").rglob("test_*.py")
    names = [p.relative_to(TREE).as_posix() for p in files
             if p.name not in NOT_RUN and "frameworks" not in p.parts]  # fmt: skip
    seconds = read(SECONDS)
    return sorted(names, key=lambda name: seconds.get(name, 0.0) / (1 + counts[name]))


def pure(fault, only=None):
    """The first test of the pure Python group that fails, or None; and the output."""
    options = ["-x", "-v", "--tb=short", "--group=pure", "-p", "no:cacheprovider", "-rN"]
    durations = ["--durations=0", "--durations-min=0.1"] if fault.number == 0 else []
    tests = [only] if only else python_files()
    status, output = run([PY, "-m", "pytest", *options, *durations, *tests], fault.number, 1500)
    if status in (0, NO_TESTS) or (only and status == UNKNOWN_TEST):
        return None, output
    failed = re.search(r"^(tests/\S+\.py::.*?) (?:FAILED|ERROR)\b|^ERROR (tests/\S+)", output, re.M)
    if failed:
        return failed.group(1) or failed.group(2), output
    return last(r"^(tests/\S+\.py::\S+)", output, "(start)"), output  # the process ended in it


def note_seconds(output):
    """From the output of all tests without a fault."""
    seconds = {name: int(ms) / 1000 for name, ms in re.findall(r"OK \] (\S+) \((\d+) ms", output)}
    for number, file in re.findall(r"^([\d.]+)s (?:call|setup) +(tests/[^:]+)::", output, re.M):
        seconds[file] = seconds.get(file, 0.0) + float(number)
    SECONDS.write_text(json.dumps({**read(SECONDS), **seconds}, indent=1))


GROUPS = {"c++": cpp, "python pure": pure}
lock = threading.Lock()


def noticed():
    with lock:
        return {**read(KNOWN), **read(CAUGHT)}


def note_caught(fault, test):
    with lock:
        CAUGHT.write_text(json.dumps({**read(CAUGHT), fault.key: test}, indent=1))


def keep(faults):
    """Which test noticed each fault goes into the repository, so that fresh clones begin there."""
    found = noticed()
    keys = sorted(f.key for f in faults if found.get(f.key, "(start)") != "(start)")
    KNOWN.write_text(json.dumps({key: found[key] for key in keys}, indent=1) + "\n")


def try_fault(fault):
    """(group, test) that caught it, or (None, None), and seconds."""
    start = time.monotonic()
    known = noticed().get(fault.key, "(start)")
    attempts = [(group, None) for group in GROUPS]
    if known != "(start)":
        attempts.insert(0, ("python pure" if known.startswith("tests/") else "c++", known))
    for group, only in attempts:
        test, output = GROUPS[group](fault, only)
        (TREE.parent / f"{fault.number}.log").write_text(output)
        if test:
            note_caught(fault, test)
            return group, test, time.monotonic() - start
    return None, None, time.monotonic() - start


def report(fault, group, test, seconds):
    outcome = f"{group}: {test}" if group else "SURVIVED"
    with lock:
        print(f"{fault.number:>4} {seconds:>6.1f} s  {fault.key}\n"
              f"{'':>15}{outcome}", flush=True)  # fmt: skip


def sound():
    """The build without a fault passes; else nothing below would mean anything."""
    for group, tests in GROUPS.items():
        start = time.monotonic()
        test, output = tests(NONE)
        print(f"no fault, {group}: {test or 'ok'} ({time.monotonic() - start:.0f} s)", flush=True)
        if test:
            print(output[-4000:])
            return False
        note_seconds(output)
    return True


def run_faults(faults, jobs):
    def one(fault):
        outcome = try_fault(fault)
        report(fault, *outcome)
        return fault, outcome

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(one, faults))


def summary(outcomes, seconds):
    survivors = [fault for fault, (group, *_) in outcomes if not group]
    caught = len(outcomes) - len(survivors)
    print(f"\n{caught} of {len(outcomes)} faults caught in {seconds / 60:.1f} minutes:", end=" ")
    by_group = [sum(outcome[0] == group for _, outcome in outcomes) for group in GROUPS]
    print(", ".join(f"{n} by {group}" for group, n in zip(GROUPS, by_group, strict=True)))
    for fault in survivors:
        print(f"survived: {fault.number} {fault.key}")
    return caught >= ENOUGH * len(outcomes)


def numbers(text):
    return {int(part) for part in text.split(",") if part}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", type=numbers, default=numbers(os.environ.get("ONLY", "")))
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("JOBS", "2")))
    parser.add_argument("--list", action="store_true", help="print the faults, run nothing")
    parser.add_argument("--keep", action="store_true", help="keep which tests noticed them")
    parser.add_argument("--build", action="store_true", help="build, run nothing")
    options = parser.parse_args()
    faults = read_faults()
    if options.keep:
        keep(faults)
        return 0
    files, stale = wanted_tree(faults)
    if options.list:
        for fault in faults:
            print(f"{fault.number:>4} {fault.key}")
    if stale:
        print("\n".join(stale))
        return 1
    if options.list:
        return 0
    write_tree(files)
    build(options.jobs)
    if options.build:
        return 0
    if not options.only and not sound():
        return 1
    start = time.monotonic()
    chosen = [fault for fault in faults if not options.only or fault.number in options.only]
    outcomes = run_faults(chosen, options.jobs)
    return 0 if summary(outcomes, time.monotonic() - start) else 1


if __name__ == "__main__":
    sys.exit(main())
