import mithril as ml
import numpy as np
import pytest
from mithril.models import L1, L2, QuadraticFormRegularizer
from models.composite_cases import check, numbers


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0,)])
def test_l1_and_l2(backend_name, shape):
    inputs = numbers(3, input=shape)
    check(L1(), lambda input: {"output": np.abs(input).sum()}, inputs, backend_name)
    check(L2(), lambda input: {"output": 0.5 * (input**2).sum()}, inputs, backend_name)


def test_l1_has_no_slope_at_0(backend_name):
    from models.composite_cases import run

    inputs = {"input": np.array([0.0, -0.0, -2.0, 3.0])}
    _, gradients = run(L1(), inputs, backend_name, {"output": np.array(1.0)}, ["input"])
    assert gradients["input"].tolist() == [0.0, 0.0, -1.0, 1.0]


@pytest.mark.parametrize("rows", [1, 3])
def test_quadratic_form(backend_name, rows):
    def by_hand(input, kernel):
        return {"output": 0.5 * np.einsum("id,de,ie->", input, kernel, input).reshape(1, 1)}

    inputs = numbers(4, input=(rows, 4), kernel=(4, 4))
    check(QuadraticFormRegularizer(), by_hand, inputs, backend_name)


def test_in_training():
    """½ Σ w² and Σ |w| as terms of a cost, against numbers worked out on paper."""
    model = ml.Model()
    model |= ml.Linear(1, use_bias=False)(input="x", weight="w", output="y")
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="t")
    train.add_regularization(L2(), coef=0.5, input="w")
    train.add_regularization(L1(), coef=0.25, input="w")
    pm = ml.compile(train, ml.NumpyBackend(dtype="float64"), data_keys={"x", "t"})
    w = np.array([[2.0, -1.0]])
    data = {"x": np.array([[1.0, 1.0]]), "t": np.array([[0.0]])}
    outputs, gradients = pm.evaluate({"w": w}, data, output_gradients=True)
    assert outputs["final_cost"] == 1.0 + 0.5 * 2.5 + 0.25 * 3.0
    assert gradients["w"].tolist() == [[2.0 + 1.0 + 0.25, 2.0 - 0.5 - 0.25]]
