"""Sums against exact ones, and the documented errors of functions against the measured ones."""

import math
import re
from pathlib import Path

import mithril as ml
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
COUNT = 10**7


def test_the_documented_errors_are_the_measured_ones():
    stored = (ROOT / "tests" / "cpp" / "tile" / "accuracy.inc").read_text()
    measured = re.findall(r"^MITHRIL_ACCURACY\((\w+), (\S+), (\S+)f, (\S+), (\S+)\)", stored, re.M)
    page = (ROOT / "docs" / "numerics.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \| (\S+) \| `(\S+)` \| (\S+) \| `(\S+)` \|$", page, re.M)
    assert len(measured) == 17
    assert documented == measured


@pytest.mark.device
@pytest.mark.parametrize("name", ["Sum", "Mean"])
@pytest.mark.parametrize("low", [0.0, -0.25, -1.0])
def test_sums_of_ten_million_are_within_one_unit_of_their_magnitudes(name, low):
    x = np.random.default_rng(3).uniform(low, 1.0, COUNT).astype(np.float32)
    model = ml.Model()
    model |= getattr(ml, name)()(input="input", output="output")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"input"}, inference=True)
    got = float(pm.evaluate({}, {"input": x})["output"])
    share = COUNT if name == "Mean" else 1
    exact, magnitudes = math.fsum(x.tolist()) / share, math.fsum(np.abs(x).tolist()) / share
    assert abs(got - exact) <= float(np.spacing(np.float32(magnitudes)))


@pytest.mark.device
@pytest.mark.parametrize("axis", [None, 0])
def test_sums_of_ten_million_of_one_sign_are_rounded_once(axis):
    x = np.random.default_rng(4).uniform(0.5, 1.0, (COUNT // 4, 4)).astype(np.float32)
    model = ml.Model()
    model |= ml.Sum(axis=axis)(input="input", output="output")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"input"}, inference=True)
    got = np.atleast_1d(pm.evaluate({}, {"input": x})["output"])
    for value, column in zip(got, [x.ravel()] if axis is None else x.T, strict=True):
        exact = math.fsum(column.tolist())
        assert abs(float(value) - exact) <= 0.51 * float(np.spacing(np.float32(exact)))
