"""The pages made from the engine's tables: complete, and the ones in docs/ up to date."""

import json
import re
import subprocess
import sys
from pathlib import Path

import mithril as ml
import pytest
from mithril import _core
from mithril.cli import docs
from mithril.cli.__main__ import COMMANDS, main

DOCS = Path(__file__).resolve().parents[3] / "docs"


PAGES_AND_OPS = """
import json
from mithril.cli import _tables, docs
print(json.dumps([docs.pages(), [op["name"] for op in _tables.built_in_ops()]]))
"""


@pytest.fixture(scope="module")
def told():
    """By a process of its own, as tests before these may have declared ops."""
    command = [sys.executable, "-c", PAGES_AND_OPS]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.fixture(scope="module")
def pages(told):
    return told[0]


@pytest.fixture(scope="module")
def ops(told):
    return told[1]


@pytest.mark.parametrize("name", ["env_vars.md", "ops.md"])
def test_committed_pages_are_up_to_date(pages, name):
    assert (DOCS / name).read_text() == pages[name], "run `make docs`"


def test_every_variable_has_its_row(pages):
    rows = [line for line in pages["env_vars.md"].splitlines() if line.startswith("| `MITHRIL_")]
    assert len(rows) == len(_core.env_table()) == 19
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 4 for row in rows)


def test_every_op_has_its_section(pages, ops):
    sections = re.findall(r"^### (\w+)$", pages["ops.md"], re.MULTILINE)
    assert sorted(sections) == sorted(ops)
    assert pages["ops.md"].count("\n- support: ") == len(sections)


def section(pages, op):
    return re.search(rf"^### {op}\n(.*?)(?=^##|\Z)", pages["ops.md"], re.MULTILINE | re.DOTALL)[1]


def test_a_section_tells_what_the_registry_knows(pages):
    text = section(pages, "linear")
    assert "`ml.Linear(dimension=None, use_bias=True, input=TBD, weight=TBD, bias=TBD)`" in text
    assert "`weight` (float tensor, trainable)" in text
    assert "only if `use_bias`" in text
    assert "shapes: weight [4, 3], input [2, 3], bias [4] → output [2, 4]" in text
    assert "gradient: yes\n" in text
    text = section(pages, "clamp")
    assert "also named: `clip`" in text and "gradient: yes; at kinks: 1 at -1, 1 at 1" in text
    text = section(pages, "floor_divide")
    assert "gradient: none" in text


def test_support_is_what_the_backends_do(pages, ops):
    """`native` on NumPy where its table has the function."""
    names = ml.NumpyBackend().op_names
    for op in ops:
        said = re.search(r"- support: .*NumPy ([\w ]+)", section(pages, op))[1]
        assert (said == "native") == (op in names), op


def test_check_changes_nothing(tmp_path, capsys):
    assert docs.run([str(tmp_path), "--check"]) == 1
    assert not list(tmp_path.iterdir())
    assert docs.run([str(tmp_path)]) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["env_vars.md", "ops.md"]
    assert docs.run([str(tmp_path), "--check"]) == 0
    assert docs.run([str(tmp_path / "nowhere")]) == 2
    assert "wrote: " in capsys.readouterr().out


def test_the_command_finds_its_subcommands(capsys):
    assert main([]) == 2 and main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)
    assert main(["dosc"]) == 2
    assert "did you mean 'docs'" in capsys.readouterr().err
