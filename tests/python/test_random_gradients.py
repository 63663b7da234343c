"""Gradients of every op at random sizes, axes and broadcasts, in float64, from the registry.

Engine gradients are slopes of the oracle along random directions, on both engines; second ones are
slopes of the first; and they are, element by element, those of PyTorch's autograd. The number of
checks is printed; a failure is repeated by `-k OP --seed SEED`, and another seed is another run.
"""

# Covers: mithril/physical/gradients.py

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.errors import MithrilError, UnsupportedError
from mithril.testing import op_matrix
from mithril.testing.op_matrix import GRADIENT_BOUND, cases, difference
from random_cases import draws, variants

# The value of a cast is a staircase; its gradient is that of the identity.
OPS = {
    op["name"]: op
    for op in _core.ops()
    if op["samples"] and op["differentiable"] and op["has_gradient"] and op["name"] != "cast"
}
SMOOTH = [name for name, op in OPS.items() if not op["has_kinks"]]
ENGINES = {"numpy": "NumpyBackend", "cpu": "CpuBackend"}
VARIANTS, DRAWS = 6, 3

every_op = pytest.mark.parametrize("name", OPS)


@pytest.fixture(scope="module")
def engines():
    return {name: getattr(ml, backend)(dtype="float64") for name, backend in ENGINES.items()}


def float_cases(op, seed):
    found = [case for case in cases(op) if case.kind == "float" and case.differentiable]
    # An op of many samples gets fewer variants of each.
    count = max(1, VARIANTS * 3 // max(3, len(found)))
    return [variant for case in found for variant in variants(case, count, seed)]


def told(case, seed):
    return f"{case.label} {case.sample['shapes']} {case.sample['attrs']} --seed {seed}"


class Point:
    """A compiled case at one set of numbers."""

    def __init__(self, model, case, inputs, random):
        self.model, self.case, self.inputs = model, case, inputs
        self.outputs = op_matrix.expected(model, case, inputs, "float64").outputs
        self.weights = {
            name: random.standard_normal(y.shape)
            for name, y in self.outputs.items()
            if name in model.output_keys and getattr(y, "dtype", None) == np.float64
        }

    def total(self, at):
        outputs = op_matrix.expected(self.model, self.case, at, "float64").outputs
        return sum(float((w * outputs[n]).sum()) for n, w in self.weights.items())

    def gradients(self, inputs=None):
        at = self.inputs if inputs is None else inputs
        return op_matrix.evaluate(self.model, self.case, at, self.weights).gradients


def points(op, engine, seed):
    random = np.random.default_rng(seed + 1)
    for case in float_cases(op, seed):
        try:
            model = op_matrix.compiled(case, engine)
        except MithrilError:  # what only compile can tell: "same" and an even kernel
            continue
        for inputs in draws(case, DRAWS, seed):
            point = Point(model, case, inputs, random)
            # A window that meets padding only has no largest element.
            if point.weights and all(np.isfinite(y).all() for y in point.outputs.values()):
                yield point


def slope_problem(got, slope_at, scale, has_kinks):
    """Around kinks a second, much smaller step decides."""
    slope = slope_at(1e-5)
    if abs(got - slope) <= 1e-6 * scale:
        return None
    if has_kinks and abs(got - slope_at(1e-7)) <= 1e-4 * scale:
        return None
    return f"{got!r}, not {slope!r}"


@pytest.mark.device
@every_op
def test_gradients_are_slopes(name, engines, seed, check_counts):
    for engine in engines.values():
        random = np.random.default_rng(seed + 2)
        for point in points(OPS[name], engine, seed):
            found = point.gradients()
            for key in point.case.differentiable:
                direction = random.uniform(-1.0, 1.0, point.inputs[key].shape)
                terms = found[key] * direction

                def slope_at(step, point=point, key=key, direction=direction):
                    return op_matrix.central_difference(
                        point.total, point.inputs, {key: direction}, step
                    )

                scale = max(1.0, float(np.abs(terms).sum()))
                problem = slope_problem(float(terms.sum()), slope_at, scale, OPS[name]["has_kinks"])
                assert problem is None, f"{told(point.case, seed)} {engine} {key}: {problem}"
                check_counts["gradients against central differences"] += 1


@pytest.mark.device
@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_are_slopes_of_first_ones(name, engines, seed, check_counts):
    engine = engines["numpy"]
    random = np.random.default_rng(seed + 3)
    for point in points(OPS[name], engine, seed):
        keys = point.case.differentiable
        directions = {n: random.standard_normal(point.inputs[n].shape) for n in keys}

        def along(at, point=point, directions=directions):
            found = point.gradients(at)
            return sum(float((found[n] * d).sum()) for n, d in directions.items())

        try:
            second = op_matrix.second_derivative(
                point.model, point.case, point.inputs, point.weights, directions
            )
        except UnsupportedError:
            continue
        for key in keys:
            step = random.uniform(-1.0, 1.0, point.inputs[key].shape)
            slope = op_matrix.central_difference(along, point.inputs, {key: step}, 1e-5)
            terms = second[key] * step
            bound = 1e-6 * max(1.0, float(np.abs(terms).sum()))
            assert abs(float(terms.sum()) - slope) <= bound, f"{told(point.case, seed)} {key}"
            check_counts["second derivatives against differences of first ones"] += 1


@pytest.mark.frameworks
@every_op
def test_gradients_are_those_of_torch(name, engines, seed, check_counts):
    torch_oracle = pytest.importorskip("mithril.testing.torch_oracle")
    for engine in engines.values():
        for point in points(OPS[name], engine, seed):
            case = point.case
            inputs = op_matrix.all_inputs(point.model, case, point.inputs)
            try:
                want = torch_oracle.gradients(case.text, inputs, point.weights, case.differentiable)
            except (IndexError, RuntimeError, ValueError):  # sizes that PyTorch refuses
                continue
            found = point.gradients()
            for key, value in want.items():
                problem = difference(found[key], value, GRADIENT_BOUND["float64"])
                assert problem is None, f"{told(case, seed)} {engine} {key}: {problem}"
                check_counts["gradients against PyTorch's"] += 1
