"""TrainModel: losses, coefficients, regularization, metrics, against PyTorch."""

import re

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, FrozenModelError, KeyNotFound, WireNameError

rng = np.random.default_rng(1)
X = rng.normal(size=(6, 3))
T = rng.normal(size=(6, 2))
W = rng.normal(size=(2, 3))
B = rng.normal(size=2)
Y = X @ W.T + B


def wrapped():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    return ml.TrainModel(model)


def run(train, **options):
    pm = ml.compile(train, ml.NumpyBackend(dtype="float64"), data_keys={"x", "target"}, **options)
    return pm.evaluate({"w": W, "b": B}, {"x": X, "target": T}, output_gradients=True)


@pytest.mark.device
def test_the_mean_of_a_loss():
    train = wrapped()
    train.add_loss(ml.SquaredError(), input="y", target="target")
    outputs, gradients = run(train)
    np.testing.assert_allclose(outputs["final_cost"], ((Y - T) ** 2).mean())
    np.testing.assert_allclose(outputs["y"], Y)
    np.testing.assert_allclose(gradients["w"], 2 * (Y - T).T @ X / Y.size)


@pytest.mark.device
def test_steps_coefficient_and_name():
    train = wrapped()
    train.add_loss(
        ml.SquaredError(), [ml.Sum(axis=1), ml.Mean()], "mse", 0.5, input="y", target="target"
    )
    train.add_loss(
        ml.AbsoluteError(), reduce_steps=[ml.Sum()], key_name="l1", input="y", target="target"
    )
    outputs, _ = run(train)
    mse = 0.5 * ((Y - T) ** 2).sum(1).mean()
    l1 = np.abs(Y - T).sum()
    np.testing.assert_allclose(outputs["mse"], mse)
    np.testing.assert_allclose(outputs["l1"], l1)
    np.testing.assert_allclose(outputs["final_cost"], mse + l1)


@pytest.mark.device
def test_metrics_do_not_count():
    train = wrapped()
    train.add_loss(ml.SquaredError(), input="y", target="target")
    train.add_metric(ml.AbsoluteError(), [ml.Max()], "worst", input="y", target="target")
    outputs, _ = run(train)
    np.testing.assert_allclose(outputs["worst"], np.abs(Y - T).max())
    np.testing.assert_allclose(outputs["final_cost"], ((Y - T) ** 2).mean())


def test_what_is_refused():
    train = wrapped()
    with pytest.raises(KeyNotFound, match="'target' of"):
        train.add_loss(ml.SquaredError(), input="y")
    with pytest.raises(KeyNotFound, match="must be an output of the model \\('y'\\)"):
        train.add_loss(ml.SquaredError(), input="x", target="target")
    with pytest.raises(KeyNotFound, match="must not be wired"):
        train.add_loss(ml.SquaredError(), input="y", target="target", output="cost")
    with pytest.raises(ArgumentError, match="has no loss"):
        train.finalize()
    with pytest.raises(NotImplementedError):
        train += ml.Relu()
    train.add_loss(ml.SquaredError(), input="y", target="target")
    train.finalize()
    with pytest.raises(FrozenModelError):
        train.add_loss(ml.SquaredError(), input="y", target="t2")
    reserved = ml.Model()
    reserved |= ml.Relu()(input="loss")
    with pytest.raises(WireNameError, match="'loss' is reserved"):
        ml.TrainModel(reserved)


def test_patterns_add_a_term_for_each_hit():
    train = wrapped()
    train.add_loss(ml.SquaredError(), input="y", target="target")
    before = len(train.dag)
    train.add_regularization(ml.Relu(), 0.1, input=re.compile("nothing"))
    assert len(train.dag) == before
