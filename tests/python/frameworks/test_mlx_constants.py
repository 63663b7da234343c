"""Arrays of MLX, which have no `__array__`, as constants of a compiled model."""

import mithril as ml
import numpy as np
import pytest
from mithril.models import Add

mx = pytest.importorskip("mlx.core")


def test_an_array_of_mlx_is_a_constant():
    given = mx.array([[1.0, 2.0], [3.0, 4.0]])
    pm = ml.compile(
        Add(), ml.MlxBackend(), data_keys={"left"}, constant_keys={"right": given}, jit=False
    )
    output = pm.evaluate({}, {"left": np.array([10.0, 20.0], np.float32)})["output"]
    np.testing.assert_array_equal(np.array(output), [[11.0, 22.0], [13.0, 24.0]])
