"""Every row of the documents' table (rows.json) has a test named after it."""

import json
import re
from pathlib import Path

import pytest

from tests.python.rows.conftest import counted, row_of

pytestmark = pytest.mark.documents
HERE = Path(__file__).parent
ROWS = json.loads((HERE / "rows.json").read_text())
COUNTS = {"P": 23, "B": 40, "O": 27, "C": 32, "M": 14, "T": 28, "W": 27, "K": 64}
NAMED = re.compile(r"^def test_([PBOCMTWK]\d+)(?:_\w+)?\(", re.MULTILINE)


def test_every_row_has_a_test_of_its_name():
    named = {row for path in HERE.glob("test_*.py") for row in NAMED.findall(path.read_text())}
    assert not set(ROWS) - named, "rows without a test"
    assert not named - set(ROWS), "tests of no row"
    wanted = {f"{letter}{i}" for letter, n in COUNTS.items() for i in range(1, n + 1)}
    assert set(ROWS) == wanted and all(ROWS.values())


def test_rows_are_those_of_the_list_of_obligations(documents):
    path = documents / "surface.md"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    listed = re.findall(r"^\| ([PBOCMTWK]\d+) \|", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(ROWS)


def test_a_row_counts_by_the_worst_of_its_tests():
    assert row_of("tests/python/rows/test_x.py::test_B7[cpu]") == "B7"
    assert row_of("test_x.py::test_B21_as_the_method_of_a_class") == "B21"
    assert row_of("test_x.py::test_models_compile") is None
    found = counted({"B1": [("proven", "")], "B2": [("proven", ""), ("failed", "")],
                     "B3": [("limited", "no GPU"), ("proven", "")]})  # fmt: skip
    assert {k: v for k, v in found["B"].items() if v} == {"proven": 1, "failed": 1, "limited": 1}
