"""A `TrainModel` in a model file: its tree, and what counts as loss, term and metric."""

import base64
import json
import re

import mithril as ml
import numpy as np
import pytest


def network():
    model = ml.Model(name="net")
    model |= ml.Linear(8)(input="input", weight="w", bias="b", output="hidden")
    model += ml.Relu()
    model += ml.Linear(2)(output="output")
    model.set_shapes(input=["batch", 4])
    return model


def test_training_comes_back():
    def made():
        train = ml.TrainModel(network())
        train.add_loss(ml.SquaredError(), input="output", target="target", coef=0.5)
        train.add_loss(ml.AbsoluteError(), [ml.Sum()], "extra", input="output", target="target2")
        train.add_regularization(ml.Sum(), 0.1, input=re.compile("^w"))
        train.add_regularization(ml.Mean(), ml.Tensor(0.25), key_name="term", input="w")
        train.add_metric(ml.Absolute(), input="output")
        return train

    train, again = made(), ml.Model.from_json(made().to_json(history=True))
    assert isinstance(again, ml.TrainModel)
    assert again.to_json(history=True) == train.to_json(history=True)
    for what in ("loss_keys", "regularization_keys", "metric_keys"):
        assert getattr(again, what) == getattr(train, what)
    again.add_metric(ml.Negate(), input="output")
    train.add_metric(ml.Negate(), input="output")
    random = np.random.default_rng(0)
    data = {"input": (3, 4), "target": (3, 2), "target2": (3, 2)}
    data = {name: random.standard_normal(shape) for name, shape in data.items()}
    runs = []
    for each in (train, again):
        pm = ml.compile(each, ml.NumpyBackend(dtype="float64"), shapes={"input": [3, 4]})
        params = pm.randomize_params(seed=1)
        outputs, gradients = pm.evaluate(params, data, output_gradients={"final_cost": 1.0})
        runs.append([outputs, gradients])
    assert repr(runs[0]) == repr(runs[1])
    final = ml.Model.from_json(train.to_json())
    assert final.to_json() == train.to_json()
    with pytest.raises(ml.errors.FrozenModelError):
        final.add_metric(ml.Negate(), input="output")
    bad = again.to_json().replace('"losses"', '"loses"')
    with pytest.raises(ml.errors.ParseError):
        ml.Model.from_json(bad)


def test_the_model_of_a_training_that_was_read_is_compiled_by_itself():
    train = ml.TrainModel(network())
    train.add_loss(ml.SquaredError(), input="output", target="target")
    again = ml.Model.from_json(train.to_json())
    pm = ml.compile(again.model, ml.NumpyBackend(), data_keys={"input"})
    params = {"w": np.ones((8, 4)), "b": np.zeros(8)}
    params |= {"weight_0": np.ones((2, 8)), "bias_0": np.ones(2)}
    assert pm.evaluate(params, {"input": np.ones((1, 4))})["output"].tolist() == [[33.0, 33.0]]


COEFFICIENTS = {
    "a number": (lambda: 0.5, re.compile("^w")),
    "an integer": (lambda: 2, re.compile("^w")),
    "a tensor of two terms": (lambda: ml.Tensor(0.25), re.compile("^[wb]")),
    "inf": (lambda: ml.Tensor([float("inf")]), "w"),
    "nan": (lambda: ml.Tensor(float("nan")), "w"),
    "integers": (lambda: ml.Tensor([1, 2]), "w"),
}


@pytest.mark.parametrize("name", COEFFICIENTS)
def test_coefficients_come_back(name):
    """The cost is made of them when it is complete: it is the same one."""
    coef, target = COEFFICIENTS[name]
    train = ml.TrainModel(network())
    train.add_loss(ml.SquaredError(), input="output", target="target")
    train.add_regularization(ml.Sum(), coef(), input=target)
    train.add_regularization(ml.Sum(), coef(), input="w")
    again = ml.Model.from_json(train.to_json())
    assert again.to_json() == train.to_json()
    for each in (train, again):
        ml.compile(each, ml.NumpyBackend(), shapes={"input": [3, 4]})
    assert again.to_json() == train.to_json()


def test_a_combiner_comes_back():
    train = ml.TrainModel(network())
    train.add_loss(ml.SquaredError(), input="output", target="target")
    train.add_loss(ml.SquaredError(), input="output", target="target2")
    train.set_loss_combiner(ml.Max())
    again = ml.Model.from_json(train.to_json())
    for each in (train, again):
        ml.compile(each, ml.NumpyBackend(), shapes={"input": [3, 4]})
    assert '"max"' in again.to_json()
    assert again.to_json() == train.to_json()


def test_what_cannot_be_written_is_refused():
    for coef in (ml.Tensor(), None):
        train = ml.TrainModel(network())
        train.add_loss(ml.SquaredError(), input="output", target="target")
        coef = train["w"].mean() if coef is None else coef
        train.add_regularization(ml.Sum(), coef, input="w")
        with pytest.raises(ml.UnsupportedError, match="a coefficient"):
            train.to_json()


def test_the_elements_of_a_tensor_as_they_were_written_once():
    train = ml.TrainModel(network())
    train.add_loss(ml.SquaredError(), input="output", target="target")
    train.add_regularization(ml.Sum(), ml.Tensor([0.25, 1.0]), input="w")
    document = json.loads(train.to_json())
    tensor = document["training"]["penalties"][0]["coef"]["tensor"]
    assert base64.b64decode(tensor.pop("bytes")) == np.array([0.25, 1.0]).tobytes()
    tensor["data"] = [0.25, 1.0]
    assert ml.Model.from_json(json.dumps(document)).to_json() == train.to_json()
    for bad in ({"data": [0.25]}, {"data": [0.25, None]}, {"data": [0.25, 1.0], "shape": [-2]},
                {"data": [0.25, 1.0], "shape": [1 << 70]}, {"dtype": "bool", "bytes": "AgI="},
                {"dtype": "text"}, {"shape": 2}, {"bytes": "%"}):  # fmt: skip
        tensor.clear()
        tensor.update({"dtype": "float", "shape": [2], **bad})
        with pytest.raises(ml.errors.MithrilError):
            ml.Model.from_json(json.dumps(document))
