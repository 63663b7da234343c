"""ULPs and distances, against steps counted by hand."""

import math

import mithril as ml
import numpy as np
from mithril.testing.distances import TOLERANCE, distance, ulps


def test_steps_between_floats():
    one = np.float32(1.0)
    up = np.nextafter(one, np.float32(2))
    smallest = np.nextafter(np.float32(0), one)
    assert ulps(up, 1.0) == 1 and ulps(one, float(up)) == 1
    assert ulps(smallest, -float(smallest)) == 2
    assert ulps(np.float32(-0.0), 0.0) == 0
    assert ulps(np.float32(2.0), 1.0) == 2**23
    assert ulps(np.float64(2.0), 1.0) == 2**52
    assert ulps(np.float16(2.0), 1.0) == 2**10
    assert ulps(ml.bfloat16.numpy().type(2.0), 1.0) == 2**7
    assert ulps(np.float32("nan"), math.nan) == 0
    assert ulps(np.float32("nan"), 1.0) == math.inf == ulps(one, math.nan)
    assert ulps(np.int64(5), np.int64(3)) == 2
    assert ulps(np.zeros((0, 3), np.float32), np.zeros((0, 3))).shape == (0, 3)


def test_distances():
    assert distance(np.float32([1, 2]), np.array([1.0, 2.0]), 0.0).problem == ""
    assert distance(np.float32([1.1, 2]), np.array([1.0, 2.0]), 0.1).problem == ""
    off = distance(np.float32([[1, 2.5]]), np.array([[1.0, 2.0]]), 0.1)
    assert off.problem == "1 of 2 wrong, at (0, 1): got 2.5, not 2.0" and off.ulps == 2**21
    assert distance(np.float32([np.inf]), np.array([-np.inf]), 1.0).problem
    assert not distance(np.float32([np.inf]), np.array([np.inf]), 0.0).problem
    assert distance(np.array([1, 2]), np.array([1, 3]), 1.0).problem
    assert distance(np.array([True]), np.array([1]), 1.0).problem.startswith("dtype")
    assert not distance(np.zeros((0,)), np.zeros((0,)), 0.0).problem
    assert set(TOLERANCE) == {str(d) for d in ml.Dtype if d.is_float}
