"""The oracle on model files: the op matrix by two ways that share no code but the ops' functions.

The graph's text has gone through flatten; the model's JSON has not.
"""

import json

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.testing import model_oracle, op_matrix
from mithril.testing.op_matrix import cases, difference
from mithril.testing.oracle import OracleError

OPS = {op["name"]: op for op in _core.ops() if op["samples"]}
# Each draw of a model takes a part of the model's key, which compile hands out.
RANDOM = {"draw_rand", "draw_randn"}


@pytest.mark.parametrize("name", sorted(OPS.keys() - RANDOM))
def test_every_op_means_the_same_before_flatten(name):
    backend = ml.NumpyBackend(dtype="float64")
    for case in cases(OPS[name]):
        compiled = op_matrix.compiled(case, backend)
        inputs = op_matrix.all_inputs(compiled, case, case.inputs)
        want = op_matrix.expected(compiled, case, case.inputs, "float64").outputs
        got = model_oracle.evaluate(case.model().to_json(), inputs).outputs
        assert got.keys() == want.keys()
        for key, value in want.items():
            assert difference(got[key], value, 0.0) is None, case.label


def nested():
    inner = ml.Model()
    inner |= ml.MatrixMultiply()(left="x", right="w", output="h")
    inner |= ml.Exponential()(input="h", output="y")
    inner.expose_keys("y")
    outer = ml.Model()
    outer |= inner(x="a", w="w", y="b")
    outer |= ml.Concat(axis=1)(input=[ml.IOKey("c"), outer["b"]], output="d")
    outer |= ml.Mean(axis=0)(input="d", output="e")
    outer |= ml.Add()(left="e", right=ml.Tensor([0.5]), output="f")
    outer.expose_keys("d", "f")
    outer.set_shapes(a=["n", "k"], w=["k", 2])
    return outer


def test_a_nested_model():
    random = np.random.default_rng(0)
    a, w, c = (random.standard_normal(shape) for shape in ((3, 4), (4, 2), (3, 1)))
    found = model_oracle.evaluate(nested().to_json(), {"a": a, "w": w, "c": c}).outputs
    d = np.concatenate([c, np.exp(a @ w)], 1)
    np.testing.assert_array_equal(found["d"], d)
    np.testing.assert_array_equal(found["f"], d.mean(0) + 0.5)


def test_state():
    model = ml.Model()
    model |= ml.Add()(left="x", right="old", output="new")
    model.bind_state_keys("old", "new", ml.Tensor([1.0, 2.0]))
    model.expose_keys("new")
    found = model_oracle.evaluate(model.to_json(), {"x": np.ones(2)})
    assert found.outputs["new"].tolist() == [2.0, 3.0]
    assert found.states["old"].tolist() == [2.0, 3.0]


def test_what_was_said_of_shapes_must_hold():
    text = nested().to_json()
    ones = {"a": np.ones((3, 4)), "w": np.ones((4, 2)), "c": np.ones((3, 1))}
    with pytest.raises(OracleError, match="stated"):
        model_oracle.evaluate(text.replace('["k", 2]', '["k", 3]'), ones)
    with pytest.raises(OracleError, match="stated"):
        model_oracle.evaluate(text.replace('["k", 2]', '["n", 2]'), ones)


def test_what_cannot_be_run_is_refused():
    document = json.loads(nested().to_json())
    with pytest.raises(OracleError, match="no value"):
        model_oracle.evaluate(json.dumps(document), {"a": np.ones((1, 1))})
    document["model"]["parts"][-1]["op"] = "unheard_of"
    with pytest.raises(OracleError, match="unheard_of"):
        model_oracle.evaluate(json.dumps(document), {k: np.ones((1, 1)) for k in "awc"})
    with pytest.raises(OracleError, match="no model file"):
        model_oracle.parse("{}")
