"""The PyTorch oracle: gradients at kinks as the ops define them (contracts 12)."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from mithril.testing import torch_oracle  # noqa: E402

pytestmark = pytest.mark.frameworks


def file_of(op, inputs, **more):
    """A model file of one op, whose inputs and output have the names of its keys."""
    wires = {name: name for name in [*inputs, "output"]}
    part = {"op": op, "wires": wires | dict.fromkeys(more.get("values", {})), **more}
    model = {"wires": list(wires), "outputs": ["output"], "parts": [part]}
    return json.dumps({"format": "mithril-model", "version": "1.0", "model": model})


def gradients(op, inputs, cotangent, **more):
    inputs = {name: np.array(value) for name, value in inputs.items()}
    floats = [name for name, value in inputs.items() if value.dtype.kind == "f"]
    text = file_of(op, inputs, **more)
    found = torch_oracle.gradients(text, inputs, {"output": cotangent}, floats)
    return {name: gradient.tolist() for name, gradient in found.items()}


@pytest.mark.parametrize(
    ("op", "more", "x", "expected"),
    [
        ("relu", {}, [0.0, -0.0], [0.0, 0.0]),
        ("abs", {}, [0.0, -0.0], [0.0, 0.0]),
        ("leaky_relu", {"values": {"slope": 0.25}}, [0.0, -0.0], [0.25, 0.25]),
        ("clamp", {"attrs": {"min_val": -1.0, "max_val": 1.0}}, [-1.0, 1.0, 2.0], [1.0, 1.0, 0.0]),
        ("max", {}, [3.0, 1.0, 3.0], [0.5, 0.0, 0.5]),
        ("sqrt", {}, [0.0], [np.inf]),
        ("softplus", {}, [0.0], [0.5]),
    ],
)
def test_kinks(op, more, x, expected):
    cotangent = np.ones([] if op == "max" else [len(x)])
    assert gradients(op, {"input": x}, cotangent, **more) == {"input": expected}


def test_powers_of_nothing():
    found = gradients("power", {"base": [0.0, 2.0]}, np.ones(2), values={"exponent": 0.0})
    assert found == {"base": [0.0, 0.0]}


def test_ties_of_two_operands_share():
    found = gradients("maximum", {"left": [1.0, 2.0], "right": [1.0, 1.0]}, [1.0, 1.0])
    assert found == {"left": [0.5, 1.0], "right": [0.5, 0.0]}


def test_pooling_gives_all_to_the_first_maximum():
    sizes = {"kernel_size": {"tuple": [2, 2]}, "stride": {"tuple": [2, 2]}}
    found = gradients("max_pool2d", {"input": np.ones((1, 2, 2))}, [[[1.0]]], attrs=sizes)
    assert found == {"input": [[[1.0, 0.0], [0.0, 0.0]]]}


def test_where_sends_nothing_to_the_branch_not_taken():
    inputs = {"cond": [True, False], "input1": [1.0, 1.0], "input2": [1.0, 1.0]}
    found = gradients("where", inputs, [np.nan, np.inf])
    assert found["input1"][1] == 0.0
    assert found["input2"][0] == 0.0


def test_pieces_and_chosen_elements_give_back():
    found = gradients("index", {"input": [1.0, 2.0, 3.0]}, [1.0, 2.0, 4.0],
                      values={"index": [2, 0, 2]})  # fmt: skip
    assert found == {"input": [2.0, 0.0, 5.0]}
