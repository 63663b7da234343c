"""Optimizers against torch.optim, in float64."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, KeyNotFound

CASES = [
    (ml.optim.SGD(lr=0.1), "SGD", {"lr": 0.1}),
    (ml.optim.SGD(lr=0.1, weight_decay=0.01), "SGD", {"lr": 0.1, "weight_decay": 0.01}),
    (ml.optim.Momentum(lr=0.1), "SGD", {"lr": 0.1, "momentum": 0.9}),
    (
        ml.optim.Momentum(lr=0.1, nesterov=True),
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
    ),
    (ml.optim.Adam(lr=0.1), "Adam", {"lr": 0.1}),
    (ml.optim.Adam(lr=0.1, weight_decay=0.01), "Adam", {"lr": 0.1, "weight_decay": 0.01}),
    (ml.optim.AdamW(lr=0.1), "AdamW", {"lr": 0.1}),
]


@pytest.mark.frameworks
@pytest.mark.parametrize(("optimizer", "name", "options"), CASES)
def test_steps_are_torchs(optimizer, name, options):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start = rng.normal(size=(3, 2))
    theirs = torch.tensor(start, requires_grad=True)
    reference = getattr(torch.optim, name)([theirs], **options)
    params = {"w": start}
    state = optimizer.init(params)
    for _ in range(20):
        gradient = rng.normal(size=(3, 2))
        theirs.grad = torch.tensor(gradient)
        reference.step()
        params, state = optimizer.update(params, {"w": gradient}, state)
    np.testing.assert_allclose(params["w"], theirs.detach().numpy(), rtol=1e-12, atol=1e-14)


def test_nothing_changes_in_place_and_dtypes_stay():
    opt = ml.optim.Adam(lr=np.float64(0.1))
    params = {"w": np.ones(3, np.float32), "other": np.ones(2, np.float32)}
    state = opt.init(params)
    new, new_state = opt.update(params, {"w": np.ones(3, np.float32)}, state)
    assert new["w"].dtype == new_state["m"]["w"].dtype == np.float32
    assert new["other"] is params["other"]
    np.testing.assert_array_equal(params["w"], 1)
    np.testing.assert_array_equal(state["m"]["w"], 0)


def test_the_rate_may_be_an_array():
    opt = ml.optim.SGD(lr=np.array(0.5))
    new, _ = opt.update({"w": np.ones(1)}, {"w": np.ones(1)}, opt.init({"w": np.ones(1)}))
    np.testing.assert_array_equal(new["w"], 0.5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ml.optim.SGD(lr=-1),
        lambda: ml.optim.SGD(lr=float("nan")),
        lambda: ml.optim.Adam(lr="a"),
        lambda: ml.optim.Adam(beta1=1.0),
        lambda: ml.optim.AdamW(weight_decay=-1),
    ],
)
def test_bad_numbers(make):
    with pytest.raises(ArgumentError):
        make()


def test_gradients_of_nobody():
    opt = ml.optim.SGD()
    with pytest.raises(KeyNotFound, match="'wight', did you mean 'weight'"):
        opt.update({"weight": np.ones(1)}, {"wight": np.ones(1)}, {"step": 0})
