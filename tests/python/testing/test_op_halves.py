"""Units in the last place of halves, and what is drawn near the ends of their range."""

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.testing import op_halves


def test_units_of_halves():
    exact = np.array([1.0, 2.0**-14, 2.0**-24, 3.0])
    got = np.float16([1.0 + 2.0**-10, 2.0**-14, 2.0**-23, 3.0])
    np.testing.assert_array_equal(op_halves.units(got, exact, "float16"), [1.0, 0.0, 1.0, 0.0])


def test_beyond_the_range_there_is_infinity():
    exact = np.array([1e6, -1e6, 1e6, np.nan, 60000.0])
    got = np.float16([np.inf, -np.inf, -np.inf, 0.0, np.inf])
    found = op_halves.units(got, exact, "float16")
    np.testing.assert_array_equal(found, [0.0, 0.0, np.inf, 0.0, np.inf])


@pytest.mark.parametrize("dtype", op_halves.HALVES)
def test_problems_name_the_worst_element(dtype):
    half = {c.dtype: c for c in op_halves.cases(_core.find_op("tanh"))}[dtype]
    small, large = (op_halves.inputs(half, place)["input"] for place in ("small", "large"))
    assert np.abs(small.astype("f8")).max() < 2.0**-11 < 2.0**10 < np.abs(large.astype("f8")).min()
    ones = np.ones(2).astype(ml.Dtype(dtype).numpy())
    assert op_halves.problem(ones, np.ones(2), dtype) is None
    assert "units at (1,)" in op_halves.problem(ones, np.array([1.0, 2.0]), dtype)
    assert "shape" in op_halves.problem(ones, np.ones(3), dtype)
    assert "dtype" in op_halves.problem(np.ones(2), np.ones(2), dtype)
    no_number = (ones * np.nan).astype(ones.dtype)
    assert "units" in op_halves.problem(no_number, np.ones(2), dtype)


def test_domains_are_kept():
    """Nothing beyond an arc cosine's interval is drawn, nothing negative for logarithms."""
    arc, log = (next(op_halves.cases(_core.find_op(name))) for name in ("acos", "log"))
    assert op_halves.inputs(arc, "large") is None
    assert (op_halves.inputs(log, "small")["input"] > 0).all()
