"""The op matrix of second derivatives: the gradient of every op as a model, differentiated once
more, in each element type, against the same in float64 on NumPy's backend; types of both.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from mithril import models
from mithril.backends.with_manualgrad.numpy_backend import NumpyBackend
from mithril.logical.model import IOKey, Model, Tensor
from mithril.physical.compile import compile
from mithril.testing import op_dtypes, op_matrix
from mithril.testing.distances import TOLERANCE, distance
from mithril.testing.op_matrix import Case
from mithril.testing.oracle_ops import tensor
from mithril.types import Dtype

TYPES = ("float16", "bfloat16", "float32", "float64")
# Differences of the first derivative, of fourth order, in float64.
SLOPE_BOUND = 1e-6


@dataclasses.dataclass(frozen=True)
class Task:
    """A case with cotangents of its outputs, and directions of its inputs: numbers that the type
    holds."""

    case: Case
    inputs: Mapping[str, np.ndarray]
    weights: Mapping[str, np.ndarray]
    directions: Mapping[str, np.ndarray]

    def wide(self) -> Task:
        """The same numbers in float64."""
        case = dataclasses.replace(self.case, dtype="float64")
        floats = set(case.floats)
        inputs = {k: x.astype("float64") if k in floats else x for k, x in self.inputs.items()}
        rest = [
            {k: x.astype("float64") for k, x in d.items()} for d in (self.weights, self.directions)
        ]
        return Task(case, inputs, *rest)

    def at(self, step: float) -> dict[str, np.ndarray]:
        """Inputs so many directions away."""
        return {
            k: x + step * self.directions[k] if k in self.directions else x
            for k, x in self.inputs.items()
        }


def tasks(op: dict[str, Any], dtypes: Collection[str] = TYPES) -> Iterator[Task]:
    """The op in each type that it has second derivatives in; none of ops without gradients."""
    for dtype, case in op_dtypes.cases(op, dtypes):
        if case.kind != "float" or not op_dtypes.has_slopes(case):
            continue
        inputs = case.draw(points=False)
        model = op_matrix.compiled(case, _wide_backend())
        outputs = op_matrix.expected(model, case, inputs, dtype).outputs
        random = np.random.default_rng(3)
        directions = {
            name: tensor(random.uniform(-1.0, 1.0, inputs[name].shape), dtype)
            for name in case.differentiable
        }
        if weights := op_dtypes.weights_of(outputs, dtype):
            yield Task(case, inputs, weights, directions)


@functools.cache
def _wide_backend() -> Any:
    return NumpyBackend(dtype="float64")


def gradient_model(task: Task) -> Model:
    """Outputs ``slope_<input>``: the gradients of the weighted sum of all outputs."""
    model = task.case.model()
    totals = []
    for name in task.weights:
        weight = IOKey(f"weight_{name}", shape=task.weights[name].shape, type=Tensor[float])
        model |= models.Multiply()(left=name, right=weight, output=f"product_{name}")
        model |= models.Sum()(input=f"product_{name}", output=f"total_{name}")
        totals.append(model[f"total_{name}"])
    total = functools.reduce(lambda a, b: a + b, totals)
    for name in task.directions:
        model |= models.Gradient()(of=total, wrt=name, output=f"slope_{name}")
    model.expose_keys(*(f"slope_{name}" for name in task.directions))
    return model


def derivatives(task: Task, backend: Any) -> dict[str, np.ndarray]:
    """The first derivatives ("slope_x"), and those of their products with the directions ("x")."""
    types = {**task.case.widths, **{f"weight_{n}": task.case.dtype for n in task.weights}}
    model = compile(gradient_model(task), backend, jit=False, types=types, mode="train")
    inputs = {**task.inputs, **{f"weight_{n}": w for n, w in task.weights.items()}}
    cotangents = {f"slope_{name}": u for name, u in task.directions.items()}
    run = op_matrix.evaluate(model, task.case, inputs, cotangents)
    return {**{key: run.outputs[key] for key in cotangents}, **run.gradients}


def reference(task: Task) -> dict[str, np.ndarray]:
    """The derivatives at the same numbers in float64."""
    return derivatives(task.wide(), _wide_backend())


def unlike_slopes(task: Task, step: float = 1e-6) -> list[str]:
    """Tells what is wrong with the reference of a task in float64: its second derivatives are to be
    slopes of the first ones, which the op matrix holds against an oracle."""
    model = op_matrix.compiled(task.case, _wide_backend(), mode="train")

    def first(away: float) -> dict[str, np.ndarray]:
        return op_matrix.evaluate(model, task.case, task.at(away), task.weights).gradients

    far, near = [(first(s), first(-s)) for s in (2 * step, step)]
    problems, found = [], reference(task)
    for key in task.directions:
        slopes = [ahead[key] - behind[key] for ahead, behind in (near, far)]
        want = (8.0 * slopes[0] - slopes[1]) / (12.0 * step)
        told = distance(found[key], want, SLOPE_BOUND).problem
        problems += [f"{task.case.label} {key}: {told}"] if told else []
    return problems


def check(backend: Any, task: Task, wanted: Mapping[str, np.ndarray]) -> list[str]:
    """Tells what is wrong with the derivatives of a backend."""
    dtype, problems = Dtype(task.case.dtype).numpy(), []
    bound = TOLERANCE[task.case.dtype]
    for key, got in derivatives(task, backend).items():
        told = f"dtype {got.dtype}" if got.dtype != dtype else ""
        with np.errstate(all="ignore"):
            told = told or distance(got, wanted[key].astype(dtype), bound).problem
        if told:
            problems.append(f"{task.case.label} {key}: {told}")
    return problems


__all__ = ["TYPES", "Task", "check", "derivatives", "reference", "tasks", "unlike_slopes"]
