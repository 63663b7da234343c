"""Each script fails with its class, its code, both facts and both lines; each hint mends it."""

import linecache
import os
import re
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import pytest
from errors.composition_cases import CASES as COMPOSITION
from errors.running_cases import CASES as RUNNING
from errors.shape_cases import CASES as SHAPES
from mithril import errors

CASES = [*SHAPES, *COMPOSITION, *RUNNING]
FOLDER = Path(__file__).parent
PACKAGE = Path(errors.__file__).parent


def run(path: Path, script: str) -> None:
    path.write_text(script)
    linecache.checkcache(str(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(script, str(path), "exec"), {"__name__": "script"})


def failure(case, folder: Path) -> errors.MithrilError:
    with pytest.raises(errors.MithrilError) as raised:
        run(folder / "script.py", case.script)
    return raised.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_error_shows_its_facts(case, tmp_path):
    error = failure(case, tmp_path)
    text = str(error)
    assert isinstance(error, getattr(errors, case.error)), text
    assert error.code == case.code, text
    for fact in case.shows:
        assert fact in text, (fact, text)
    for line in case.places:
        assert f"script.py:{line}" in text, (line, text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_hint_mends_the_script(case, tmp_path):
    text = str(failure(case, tmp_path))
    helps = "help:" in text or "did you mean" in text
    assert bool(case.fix) == helps, text
    if helps:
        run(tmp_path / "script.py", case.fixed)


def test_there_are_enough_scripts():
    names = Counter(case.name for case in CASES)
    assert max(names.values()) == 1
    mended = sum(bool(case.fix) for case in CASES)
    print(f"{len(CASES)} scripts, {mended} with a hint that mends them")
    assert len(CASES) >= 60
    assert mended >= 40


def one_per_class() -> list:
    return list({case.error: case for case in reversed(CASES)}.values())


def environment(seed: str) -> dict[str, str]:
    path = os.pathsep.join([str(PACKAGE.parent), str(FOLDER.parent)])
    return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed}


@pytest.mark.parametrize("case", one_per_class(), ids=lambda case: case.error)
def test_a_traceback_ends_in_user_code(case, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(case.script)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        env=environment("0"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    frames = re.findall(r'^  File "(.*)", line', done.stderr, re.M)
    assert frames[-1] == str(script), done.stderr
    assert f"mithril.errors.{case.error}[{case.code}]: " in done.stderr


PRINT_ALL = """
import pathlib, sys
from errors.test_scripts import CASES, run
for case in CASES:
    try:
        run(pathlib.Path(sys.argv[1]) / "script.py", case.script)
    except Exception as error:
        print(case.name, error)
"""


def test_messages_are_the_same_under_every_hash_seed(tmp_path):
    texts = [
        subprocess.run(
            [sys.executable, "-c", PRINT_ALL, str(tmp_path)],
            env=environment(seed),
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        ).stdout
        for seed in ("1", "77")
    ]
    assert texts[0] == texts[1]
    assert texts[0].count("script.py:") > len(CASES) / 2
