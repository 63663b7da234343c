"""Regression by a Gaussian process that finds the width of its kernel.

`python -m mithril.examples.gpr` prints the width and how far the mean is from the curve.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import mithril as ml


class Fit(NamedTuple):
    """The width of the kernel, and mean and standard deviation [n, 1] at the points."""

    width: float
    mean: np.ndarray
    deviation: np.ndarray


def process(noise: float) -> ml.Model:
    """Points x [n, d] and labels y [n, 1] to the loss, the mean and the variance; `sigma` is the
    width, `noise` the variance of the labels."""
    model = ml.Model()
    kernel = ml.models.RBFKernel(l_scale=ml.Tensor([1.0]))
    model |= kernel(input1="x", input2="x", sigma="sigma", output="k")
    core = ml.models.GaussProcessRegressionCore(s=noise)
    model |= core(
        label="y", k="k", k_star="k", mu="mu", loss="loss", prediction="mean", confidence="variance"
    )
    model.expose_keys("loss", "mean", "variance")
    return model


def fit(x: np.ndarray, y: np.ndarray, noise: float, steps: int = 300) -> Fit:
    """Finds the width under which the labels are likeliest, by Adam from a width of 1."""
    data = {"x": x, "y": y, "mu": np.zeros_like(y)}
    shapes = {"sigma": [1], **{key: list(value.shape) for key, value in data.items()}}
    pm = ml.compile(
        process(noise), ml.CpuBackend(dtype=ml.float64), data_keys=set(data),
        trainable_keys={"sigma"}, shapes=shapes,
    )  # fmt: skip
    optimizer = ml.optim.Adam(lr=0.02)
    params = {"sigma": np.ones(1)}
    state = optimizer.init(params)
    for _ in range(steps):
        _, gradients = pm.evaluate(params, data, output_gradients={"loss": np.array(1.0)})
        params, state = optimizer.update(params, gradients, state)
    outputs = pm.evaluate(params, data)
    deviation = np.sqrt(np.maximum(outputs["variance"], 0.0))
    return Fit(float(params["sigma"][0]), outputs["mean"], deviation)


def main() -> float:
    rng = np.random.default_rng(0)
    x = np.linspace(-3, 3, 40)[:, None]
    curve = np.sin(2 * x)
    found = fit(x, curve + 0.1 * rng.standard_normal(x.shape), noise=0.01)
    away = float(np.abs(found.mean - curve).max())
    print(f"width {found.width:.2f}, at most {away:.2f} from the curve")
    return away


if __name__ == "__main__":
    main()
