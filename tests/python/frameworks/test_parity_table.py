"""The table of parity is printed by `make test`, where other processes run the tests."""

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.frameworks


def test_the_process_that_prints_has_what_others_measured():
    tests = "tests/python/frameworks/test_segformer.py"
    options = ["-q", "-n1", "--group=frameworks", "-k", "numpy", tests]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options], capture_output=True, text=True, check=False
    )
    table = run.stdout.partition("parity of models with PyTorch's")[2]
    rows = re.findall(r"^segformer +numpy +float64 +\d+ +(\S+) +(\S+)$", table, re.MULTILINE)
    assert rows, run.stdout[-2000:]
    assert all(float(error) < 1e-10 for row in rows for error in row)
