"""A `TrainModel` in a model file: its tree, and what counts as loss, term and metric."""

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
