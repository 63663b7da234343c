"""The PyTorch oracle: gradients at kinks as the ops define them (contracts 12)."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from mithril.testing import torch_oracle  # noqa: E402

pytestmark = pytest.mark.frameworks


def gradient(body: str, x, shape):
    text = f"graph m(%x: float[{len(x)}]) {{\n  %0 = {body} : float{shape}\n  return y=%0\n}}"
    found = torch_oracle.gradients(text, {"x": x}, {"y": np.ones(shape)}, ["x"])["x"]
    return found.tolist()


@pytest.mark.parametrize(
    ("body", "x", "expected"),
    [
        ("relu(%x)", [0.0, -0.0], [0.0, 0.0]),
        ("abs(%x)", [0.0, -0.0], [0.0, 0.0]),
        ("leaky_relu(%x, slope=0.25)", [0.0, -0.0], [0.25, 0.25]),
        ("clamp(%x, min_val=-1.0, max_val=1.0)", [-1.0, 1.0, 2.0], [1.0, 1.0, 0.0]),
        ("max(%x)", [3.0, 1.0, 3.0], [0.5, 0.0, 0.5]),
        ("power(%x, exponent=0.0)", [0.0, 2.0], [0.0, 0.0]),
        ("sqrt(%x)", [0.0], [np.inf]),
        ("softplus(%x)", [0.0], [0.5]),
    ],
)
def test_kinks(body, x, expected):
    shape = [] if body.startswith("max") else [len(x)]
    assert gradient(body, x, shape) == expected


def test_ties_of_two_operands_share():
    text = (
        "graph m(%x: float[2], %z: float[2]) {\n  %0 = maximum(%x, %z) : float[2]\n  return y=%0\n}"
    )
    found = torch_oracle.gradients(
        text, {"x": [1.0, 2.0], "z": [1.0, 1.0]}, {"y": [1.0, 1.0]}, ["x", "z"]
    )
    assert found["x"].tolist() == [0.5, 1.0]
    assert found["z"].tolist() == [0.5, 0.0]


def test_pooling_gives_all_to_the_first_maximum():
    text = """graph m(%x: float[1, 2, 2]) {
  %0 = max_pool2d(%x, kernel_size=(2, 2), stride=(2, 2)) : float[1, 1, 1]
  return y=%0
}"""
    found = torch_oracle.gradients(text, {"x": np.ones((1, 2, 2))}, {"y": [[[1.0]]]}, ["x"])
    assert found["x"].tolist() == [[[1.0, 0.0], [0.0, 0.0]]]


def test_where_sends_nothing_to_the_branch_not_taken():
    text = """graph m(%c: bool[2], %x: float[2], %z: float[2]) {
  %0 = where(%c, %x, %z) : float[2]
  return y=%0
}"""
    inputs = {"c": np.array([True, False]), "x": [1.0, 1.0], "z": [1.0, 1.0]}
    found = torch_oracle.gradients(text, inputs, {"y": [np.nan, np.inf]}, ["x", "z"])
    assert found["x"][1] == 0.0
    assert found["z"][0] == 0.0
