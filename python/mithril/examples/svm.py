"""A support vector machine by gradient steps.

`python -m mithril.examples.svm` prints how many of the points it was not trained on it tells apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import mithril as ml


def fit(x: np.ndarray, y: np.ndarray, penalty: float = 1.0, steps: int = 2000) -> dict[str, Any]:
    """The weight [1, d] and bias [1] of a linear machine with quadratic hinge loss.

    Parameters
    ----------
    x : float [n, d], the points
    y : float [n, 1], their classes, -1 or 1
    penalty : of half the squared weight, beside the sum of the losses
    """
    model = ml.Model()
    model |= ml.models.LinearSVM()(input="x", weight="weight", bias="bias", output="score")
    model.expose_keys("score")
    train = ml.TrainModel(model)
    train.add_loss(ml.models.QuadHingeLoss(), [ml.Sum()], input="score", target="y")
    train.add_regularization(ml.models.L2(), coef=ml.Tensor(penalty), input="weight")
    data, optimizer = {"x": x, "y": y}, ml.optim.Adam(lr=0.02)
    pm = ml.compile(
        train, ml.CpuBackend(dtype=ml.float64), data_keys=set(data), optimizer=optimizer,
        shapes={"x": list(x.shape), "y": list(y.shape)},
    )  # fmt: skip
    params = pm.randomize_params(seed=0)
    state = optimizer.init(params)
    for _ in range(steps):
        params, state, _, _ = pm.step(params, state, data)
    return params


def main() -> float:
    rng = np.random.default_rng(0)
    y = np.where(rng.uniform(size=(200, 1)) > 0.5, 1.0, -1.0)
    x = rng.standard_normal((200, 2)) + 1.5 * y * np.array([1.0, -0.5])
    params = fit(x[:150], y[:150])
    score = x[150:] @ np.asarray(params["weight"]).T + np.asarray(params["bias"])
    share = float((np.sign(score) == y[150:]).mean())
    print(f"told apart: {share:.0%}")
    return share


if __name__ == "__main__":
    main()
