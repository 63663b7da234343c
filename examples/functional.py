"""A mixture of experts, written as functions of connections and trained on a curve of two laws.

`python -m examples.functional` prints:

    submodels: gate, expert_0, expert_1, ToList, Concat, Multiply, Sum
    step    0: cost 0.49
    step  500: cost 0.01
    step 1000: cost 0.00
    the trained mixture agrees with NumPy
"""

from typing import Any

import mithril as ml
import numpy as np
from mithril.models import functional


@functional
def expert(x: ml.Connection, width: int) -> ml.Connection:
    return ml.Linear(1)(ml.Tanh()(ml.Linear(width)(x)))


@functional
def gate(x: ml.Connection, choices: int) -> ml.Connection:
    return ml.Softmax(axis=-1)(ml.Linear(choices)(x))


def mixture(experts: int) -> ml.Model:
    x = ml.IOKey("x")
    opinions = ml.Concat(axis=-1)([expert(x, 8) for _ in range(experts)])
    weights = gate(x, experts)
    return ml.Model.create(y=(weights * opinions).sum(axis=-1, keepdim=True), weights=weights)


def by_hand(p: dict[str, np.ndarray], x: np.ndarray) -> Any:
    def linear(x: np.ndarray, i: int) -> Any:
        return x @ p[f"weight_{i}"].T + p[f"bias_{i}"]

    weights = np.exp(linear(x, 0))
    weights /= weights.sum(-1, keepdims=True)
    opinions = [linear(np.tanh(linear(x, i)), i + 1) for i in (1, 3)]
    return (weights * np.concatenate(opinions, axis=-1)).sum(-1, keepdims=True)


def main() -> None:
    model = mixture(experts=2)
    print("submodels:", ", ".join(model.submodels))

    training = ml.TrainModel(model)
    training.add_loss(ml.SquaredError(), input="y", target="target", reduce_steps=[ml.Mean()])
    optimizer = ml.optim.Adam(lr=0.03)
    pm = ml.compile(
        training,
        ml.CpuBackend(),
        data_keys={"x", "target"},
        shapes={"x": [None, 1]},
        optimizer=optimizer,
    )
    x = np.linspace(-2, 2, 128, dtype="float32")[:, None]
    data = {"x": x, "target": np.where(x < 0, -1 - x, np.sin(3 * x)).astype("float32")}
    params = pm.randomize_params(seed=0)
    opt_state = optimizer.init(params)
    for step in range(1001):
        params, opt_state, _, outputs = pm.step(params, opt_state, data)
        if step % 500 == 0:
            print(f"step {step:>4}: cost {float(outputs['final_cost']):.2f}")

    outputs = pm.evaluate(params, data)
    np.testing.assert_allclose(outputs["y"], by_hand(params, x), rtol=1e-4, atol=1e-5)
    print("the trained mixture agrees with NumPy")


if __name__ == "__main__":
    main()
