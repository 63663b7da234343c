"""Each script of examples/ runs as a user runs it, and prints what its docstring shows.

`digits` is `make demo`, which needs scikit-learn; `pictures` is part of it.
"""

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "examples"
ELSEWHERE = {"__init__", "digits", "pictures"}
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ELSEWHERE)


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.py").read_text(encoding="utf-8")


def shown(name: str) -> str:
    """What the docstring says the script prints."""
    docstring = ast.get_docstring(ast.parse(text_of(name))) or ""
    _, found, rest = docstring.partition(f"`python -m examples.{name}` prints:\n\n")
    assert found, f"{name} does not show what it prints"
    return textwrap.dedent(rest).rstrip("\n") + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_what_it_shows(name):
    command = [sys.executable, "-m", f"examples.{name}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout == shown(name)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_a_page(name):
    assert len(text_of(name).splitlines()) <= 80


def test_a_page_of_the_documentation_names_each_example():
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert [name for name in NAMES if f"(../examples/{name}.py)" not in pages] == []
