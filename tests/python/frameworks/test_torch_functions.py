"""The PyTorch oracle of further functions: gradients at kinks as the ops define them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from frameworks.test_torch_oracle import gradients  # noqa: E402

pytestmark = pytest.mark.frameworks


@pytest.mark.parametrize(
    ("op", "more", "x", "expected"),
    [
        ("robust_log", {"values": {"threshold": 0.5}}, [0.0, -0.25, 4.0], [0.0, -2.0, 0.25]),
        ("robust_sqrt", {"values": {"threshold": 0.25}}, [0.0, -0.125, 4.0], [0.0, -2.0, 0.25]),
        ("stable_reciprocal", {"values": {"threshold": 0.5}}, [0.0, -0.25], [-4.0, -4.0]),
        ("relu6", {}, [0.0, 6.0, 3.0], [0.0, 0.0, 1.0]),
        ("hard_tanh", {}, [-1.0, 1.0, 2.0], [1.0, 1.0, 0.0]),
        ("hard_sigmoid", {}, [-3.0, 3.0, 4.0], [1 / 6, 1 / 6, 0.0]),
        ("hard_swish", {}, [-3.0, 3.0, 4.0], [-0.5, 1.5, 1.0]),
        ("hard_shrink", {}, [0.5, -0.5, 1.0], [0.0, 0.0, 1.0]),
        ("soft_shrink", {}, [0.5, -0.5, 1.0], [0.0, 0.0, 1.0]),
        ("threshold", {}, [0.0, 1.0], [0.0, 1.0]),
        ("elu", {"attrs": {"alpha": 0.5}}, [0.0, 1.0], [0.5, 1.0]),
        ("nan_to_num", {}, [np.nan, np.inf, 1.0], [0.0, 0.0, 1.0]),
    ],
)
def test_kinks(op, more, x, expected):
    found = gradients(op, {"input": x}, np.ones(len(x)), **more)["input"]
    assert found == pytest.approx(expected, rel=1e-15)


def test_equal_coordinates_have_no_slope():
    inputs = {"left": [[1.0, 2.0]], "right": [[1.0, 5.0]], "norm": 0.5}
    found = gradients("distance_matrix", inputs, [[1.0]])
    assert found["left"][0][0] == 0.0
    assert found["left"][0][1] == pytest.approx(-0.5 * 3.0**-0.5)
