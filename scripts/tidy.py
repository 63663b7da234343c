"""clang-tidy over every source that changed since it was last found clean.

A source is clean as long as it, the project's headers that it includes and .clang-tidy have the
bytes that they had then; build/tidy keeps one empty file per such state.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / "build" / "tidy"
DATABASE = ROOT / "build" / "lint" / "compile_commands.json"
INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)


def sources():
    """One entry per file: a source built for several instruction sets is read once, and those that
    the build writes are not."""
    files = {Path(entry["file"]) for entry in json.loads(DATABASE.read_text())}
    return sorted(f for f in files if f.suffix == ".cc" and ROOT / "build" not in f.parents)


def closure(source):
    """The file and every project header that it reaches."""
    seen, pending = set(), [source]
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        for name in INCLUDE.findall(path.read_text()):
            for base in (ROOT / "csrc", ROOT / "tests" / "cpp", path.parent):
                if (base / name).is_file():
                    pending.append((base / name).resolve())
                    break
    return sorted(seen)


def state(source):
    digest = hashlib.sha256((ROOT / ".clang-tidy").read_bytes())
    for path in closure(source):
        digest.update(path.read_bytes())
    return CACHE / digest.hexdigest()


def tidy(source):
    mark = state(source)
    if mark.exists():
        return None
    run = subprocess.run(
        [
            "clang-tidy",
            "-p",
            str(DATABASE.parent),
            "--quiet",
            "--extra-arg=-Wno-unknown-warning-option",
            "--extra-arg=-UMITHRIL_QUADMATH",  # clang has not got g++'s header
            str(source),
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if run.returncode == 0:
        mark.touch()
        return ""
    return run.stdout + run.stderr


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2)
    jobs = parser.parse_args().jobs
    CACHE.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        reports = list(pool.map(tidy, sources()))
    bad = [report for report in reports if report]
    for report in bad:
        print(report)
    checked = sum(report is not None for report in reports)
    print(f"clang-tidy: {len(reports)} sources, {checked} read again, {len(bad)} with findings")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
