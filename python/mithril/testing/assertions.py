"""Assertions for the tests of models; they need no pytest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mithril.base.public import public
from mithril.errors import UnsupportedError
from mithril.testing import op_matrix
from mithril.testing.verification import Verification, prepared, verify

# Of slopes along a direction, relative to the sum of what they are made of (or 1).
SLOPE_TOLERANCE = {"float16": 5e-2, "bfloat16": 2e-1, "float32": 1e-3, "float64": 1e-6}


@public
def assert_same_on_all_backends(
    model: Any, backends: Iterable[Any] | None = None, **options: Any
) -> Verification:
    """Fails unless a model's values and gradients agree on all backends; see `ml.verify`.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Softplus()(input="x", output="y")
    >>> bool(assert_same_on_all_backends(model, ["numpy"], shapes={"x": [2, 3]}))
    True
    """
    report = verify(model, backends, **options)
    if not report:
        raise AssertionError(str(report))
    return report


@public
def assert_gradients(
    model: Any,
    backends: Iterable[Any] | None = None,
    *,
    step: float = 1e-5,
    tolerance: float | None = None,
    **options: Any,
) -> None:
    """Fails unless gradients on each backend are slopes of the model's values.

    The slopes are central differences of the model's outputs on NumPy in float64, along a random
    direction of each float input: no rule for gradients takes part in them. Near kinks (relu at 0)
    they are not gradients: choose `seed` or `inputs` away from these.

    Parameters
    ----------
    backends : instances, or names; None: NumPy and the CPU engine
    step : of the differences
    tolerance : largest difference relative to the sum of the terms; None: by dtype
    options : as for `ml.verify`: `inputs`, `shapes`, `seed`, and what `compile` takes

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Linear(2)(input="x", output="h")
    >>> model |= ml.Tanh()(input="h", output="y")
    >>> assert_gradients(model, ["numpy", "cpu"], shapes={"x": [3, 4]})
    """
    task = prepared(model, backends, **options)
    if not task.weights:
        raise UnsupportedError("assert_gradients: the model has no output with a gradient")
    slopes, directions = _slopes(task, step)
    wrong = []
    for backend in task.backends:
        bound = tolerance
        if bound is None:
            bound = SLOPE_TOLERANCE[str(backend.default_dtype)]
        _, gradients = task.evaluated(backend)
        for name, slope in slopes.items():
            problem = along(gradients.get(name), directions[name], slope, bound)
            if problem:
                wrong.append(f"{backend!r}: gradient of '{name}': {problem}")
    if wrong:
        raise AssertionError("\n".join([*wrong, f"seed {task.seed}"]))


def _slopes(task: Any, step: float) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    random = np.random.default_rng((task.seed, 2))

    def total(at: dict[str, np.ndarray]) -> float:
        outputs = task.reference_outputs(at)
        return sum(float((weight * outputs[n]).sum()) for n, weight in task.weights.items())

    slopes, directions = {}, {}
    for name in task.differentiable:
        direction = random.uniform(-1.0, 1.0, np.shape(task.inputs[name]))
        slopes[name] = op_matrix.central_difference(total, task.inputs, {name: direction}, step)
        directions[name] = direction
    return slopes, directions


def along(gradient: Any, direction: np.ndarray, slope: float, bound: float) -> str | None:
    """Says why a gradient does not have the given slope along a direction, or None if it does."""
    found = np.asarray(gradient)
    if found.shape != direction.shape:
        return f"shape {found.shape}, not {direction.shape}"
    if found.dtype.kind != "f" and found.dtype.name != "bfloat16":
        return f"dtype {found.dtype}, not a float"
    terms = found.astype(np.float64) * direction
    got, scale = float(terms.sum()), max(1.0, abs(slope), float(np.abs(terms).sum()))
    # With a scale that is NaN the comparison is false, as it must be.
    return None if abs(got - slope) <= bound * scale else f"slope {got!r}, not {slope!r}"


__all__ = ["assert_gradients", "assert_same_on_all_backends"]
