"""Errors in notebooks name the cell by its number, with its line."""

import linecache
import sys
from types import SimpleNamespace

import mithril as ml
import pytest

CELL = """\
import mithril as ml
model = ml.Model()
model |= ml.Linear(4)(input="x", weight="w", output="h")
model.set_shapes(x=[None, 3])
model.set_shapes(w=[5, 3])
"""


def _run(file):
    lines = CELL.splitlines(keepends=True)
    linecache.cache[file] = (len(CELL), None, lines, file)
    with pytest.raises(ml.ShapeError) as caught:
        exec(compile(CELL, file, "exec"), {})
    return caught.value


def test_of_a_kernel(monkeypatch):
    file = "/tmp/ipykernel_4711/1234567.py"
    names = {file: ("Cell", "In[3]")}
    shell = SimpleNamespace(compile=SimpleNamespace(format_code_name=names.get))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    error = _run(file)
    assert error.place.file == "In[3]"
    assert error.place.line == 5
    assert "In[3]:5   model.set_shapes(w=[5, 3])" in str(error)
    assert "ipykernel" not in str(error)


def test_of_a_terminal():
    error = _run("<ipython-input-7-abcdef>")
    assert "In[7]:5" in str(error)


def test_other_files_keep_their_names():
    assert _run("/tmp/some/script.py").place.file == "/tmp/some/script.py"
