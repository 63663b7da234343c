"""Every code has a page; its example raises that code, and what the page says mends it."""

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import mithril as ml
import pytest
from mithril import errors
from mithril.cli import explain

ROOT = Path(__file__).parents[3]
WITHOUT_EXAMPLE = {"MTH704", "MTH802", "MTH901"}  # an interrupt, a missing library, a bug
PAGES = sorted(path.stem for path in explain.PAGES.glob("*.md"))


def blocks(code: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", explain.page(code) or "", re.S)


def run(source: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(source, "example.py", "exec"), {"__name__": "example"})


def test_every_code_has_a_page():
    header = (ROOT / "csrc" / "core" / "error.h").read_text()
    engine = {f"MTH{number}" for number in re.findall(r"^  k\w+ = (\d{3}),", header, re.M)}
    sources = [path.read_text() for path in Path(ml.__file__).parent.rglob("*.py")]
    python = {code for text in sources for code in re.findall(r"\"(MTH\d{3})\"", text)}
    assert engine | (python - {"MTH000"}) == set(PAGES)


@pytest.mark.parametrize("code", [code for code in PAGES if code not in WITHOUT_EXAMPLE])
def test_the_example_raises_the_code(code):
    with pytest.raises(errors.MithrilError) as raised:
        run(blocks(code)[0])
    assert raised.value.code == code
    named = re.search(r"Raised as `(\w+)`", explain.page(code)).group(1)
    assert isinstance(raised.value, getattr(errors, named)) or named in explain.page(code)


@pytest.mark.parametrize("code", [code for code in PAGES if len(blocks(code)) > 1])
def test_the_remedy_runs(code):
    run(blocks(code)[1])


@pytest.mark.parametrize("code", PAGES)
def test_the_page_names_class_cause_and_remedy(code):
    page = explain.page(code)
    assert page.startswith(f"# {code}: ")
    assert "Raised as `" in page
    assert "## What to do\n\n" in page


def test_explain_prints_pages(capsys):
    assert explain.run(["mth101", "104"]) == 0
    out = capsys.readouterr().out
    assert "# MTH101: " in out
    assert "# MTH104: " in out
    assert explain.run([]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(PAGES)


@pytest.mark.parametrize("code", ["MTH999", "../x", "", "MTH", "١٠١"])
def test_explain_knows_no_other_codes(code, capsys):
    assert explain.run([code]) == 1
    assert "no error has the code" in capsys.readouterr().err


def test_explain_from_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "mithril", "explain", "MTH101"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(Path(ml.__file__).parents[1])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# MTH101: ")
