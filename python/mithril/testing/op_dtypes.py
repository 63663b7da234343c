"""The op matrix by element type: every op, in every type that its rule takes, on a backend.

Inputs are rounded to the type first and the oracle computes in float64, so that what is left is
what the backend loses: a few units of a half. Integers are exact, and wrap.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mithril import _core
from mithril.errors import ArgumentError, DTypeError, UnsupportedError
from mithril.execution import own_ops
from mithril.physical.compilation import compilation_of
from mithril.testing import op_matrix
from mithril.testing._support import DTYPES, UNSUPPORTED, WRONG
from mithril.testing.assertions import SLOPE_TOLERANCE, along
from mithril.testing.distances import distance
from mithril.testing.op_matrix import Case
from mithril.testing.oracle_ops import tensor
from mithril.types import Dtype

# Largest difference, relative to the largest element of the result (or 1): four units of a half.
VALUE_BOUND = {"float16": 2.0**-8, "bfloat16": 2.0**-5, **op_matrix.VALUE_BOUND}
HALVES = ("float16", "bfloat16")  # whose gradients are taken, too
# XLA compiles each program, which takes longest: quick rather than good code.
_JIT = {
    "jax": {
        "xla_backend_optimization_level": "0",
        "xla_llvm_disable_expensive_passes": True,
    }
}
STAIRCASES = {"cast"}  # whose gradient is that of the identity, which no difference shows


@dataclass
class Found:
    """The result of testing an op on a backend in one element type."""

    how: str = ""  # "native" …, "unsupported: why", "wrong: what"
    problems: list[str] = field(default_factory=list)
    values: int = 0  # checks made
    gradients: int = 0

    @property
    def told(self) -> str:
        return f"{WRONG}: {self.problems[0]}" if self.problems else self.how


def widths(kind: str) -> tuple[str, ...]:
    """Returns the element types of a kind."""
    named = {"float": "is_float", "int": "is_integer"}
    if kind == "bool":
        return ("bool",)
    return tuple(d for d in DTYPES if getattr(Dtype(d), named[kind]))


def cases(op: dict[str, Any], dtypes: Collection[str] = DTYPES) -> Iterator[tuple[str, Case]]:
    """The first sample of each kind that an op takes, in each element type of the kind. An op that
    is told the type of its result is told each."""
    made = op_matrix.cases(op)
    if op_matrix.is_told_dtype(op):
        yield from _of_argument(made[0], dtypes)
        return
    for kind in op_matrix.KINDS:
        first = next((case for case in made if case.kind == kind), None)
        for dtype in widths(kind):
            if first is not None and dtype in dtypes:
                case = dataclasses.replace(first, dtype=dtype)
                if case.widths and _has_numbers(case):
                    yield dtype, case


def _of_argument(case: Case, dtypes: Collection[str]) -> Iterator[tuple[str, Case]]:
    for dtype in dtypes:
        attrs = {**case.sample["attrs"], "dtype": Dtype(dtype)}
        told = dataclasses.replace(case, sample={**case.sample, "attrs": attrs})
        if _is_taken(told, dtype):
            yield dtype, told


def _is_taken(case: Case, dtype: str) -> bool:
    """Tells whether the op accepts `dtype` as argument, and it holds the range of the sample."""
    bounds = [case.sample["attrs"].get(name, 0) for name in ("low", "high")]
    if Dtype(dtype).is_integer and not all(abs(n) <= np.iinfo(dtype).max for n in bounds):
        return False
    try:
        case.model()
    except (ArgumentError, DTypeError):
        return False
    return True


def _has_numbers(case: Case) -> bool:
    """Tells whether the type has numbers in the op's domain: unsigned ones are never negative."""
    if case.kind != "int":
        return True
    lowest, highest = np.iinfo(case.dtype).min, np.iinfo(case.dtype).max
    declared = [i for label, i, _ in case.tensors if label in case.widths]
    return all(max(math.ceil(i["low"]), lowest) <= min(i["high"], highest) for i in declared)


def check(
    backend: Any,
    op: dict[str, Any],
    dtypes: Iterable[str] = DTYPES,
    into: dict[str, Found] | None = None,
) -> dict[str, Found]:
    """Tests an op in each element type; `into` gets the results as they are found.

    >>> import mithril as ml
    >>> from mithril import _core
    >>> found = check(ml.NumpyBackend(), _core.find_op("exp"), ["float16", "int8"])
    >>> {dtype: (f.how, f.problems) for dtype, f in found.items()}
    {'float16': ('native', []), 'int8': ('native', [])}
    """
    out: dict[str, Found] = {} if into is None else into
    for dtype, case in cases(op, tuple(dtypes)):
        found = out[dtype] = Found()
        reason = lacks(backend, dtype)
        if reason:
            found.how = f"{UNSUPPORTED}: {reason}"
            continue
        try:
            _check(backend, case, dtype, found)
        except UnsupportedError as error:
            found.how = f"{UNSUPPORTED}: {_first_line(error)}"
        except Exception as error:  # a backend may raise anything: that is what this is for
            found.problems.append(f"raised {type(error).__name__}: {_first_line(error)}")
    return out


@functools.lru_cache(64)
def lacks(backend: Any, dtype: str) -> str | None:
    """Why programs of the backend do not compute in a type, if they don't: neither on arrays of
    it nor where an op is told it."""
    kind = next(kind for kind in op_matrix.KINDS if dtype in widths(kind))
    sample = {"shapes": [("left", (1,)), ("right", (1,))], "attrs": {}, "integers": []}
    added = Case(_core.find_op("add"), 0, kind, sample, dtype)
    _, told = next(_of_argument(op_matrix.cases(_core.find_op("zeros"))[0], (dtype,)))
    try:
        zeros = backend.zeros((1,), Dtype(dtype))
    except Exception as error:
        return f"{dtype}: {_first_line(error)}"
    for case, inputs in ((added, {"left": zeros, "right": zeros}), (told, {})):
        try:
            model = op_matrix.compiled(case, backend)
            made = op_matrix.evaluate(model, case, inputs).outputs["output"]
        except Exception:  # the checks of ops tell
            return None
        if made.dtype != Dtype(dtype).numpy():
            return f"{dtype}: it computes in {made.dtype}"
    return None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]


# --- values --------------------------------------------------------------------------------------


def _check(backend: Any, case: Case, dtype: str, found: Found) -> None:
    model = quickly_compiled(case, backend)
    float_dtype = dtype if Dtype(dtype).is_float else str(backend.default_dtype)
    slopes = case.dtype in HALVES and has_slopes(case)
    inputs = case.draw(points=not slopes)
    want = op_matrix.expected(model, case, inputs, float_dtype)
    weights = weights_of(want.outputs, case.dtype) if slopes else {}
    got = op_matrix.evaluate(model, case, inputs, weights or None)
    found.how = op_matrix.way(model, case.op)
    found.problems += _value_problems(model, case, got, want)
    found.values += len(want.outputs)
    if weights:
        found.problems += _slope_problems(model, case, got, weights, float_dtype)
        found.gradients += len(case.differentiable)
    if _wraps(case, want.outputs):
        inputs = {**inputs, **_at_the_bounds(case, inputs)}
        want = op_matrix.expected(model, case, inputs, float_dtype)
        got = op_matrix.evaluate(model, case, inputs)
        found.problems += _value_problems(model, case, got, want)
        found.values += len(want.outputs)


def quick_compile(backend_type: str) -> dict[str, Any]:
    """Returns options of compile for a program that runs once."""
    if backend_type not in _JIT:
        return {}
    return {"jit": True, "jit_options": {"compiler_options": _JIT[backend_type]}}


def quickly_compiled(case: Case, backend: Any, **options: Any) -> Any:
    """The case as one program, where a compiler runs each; line by line elsewhere, and where the
    backend's class has functions that no compiler may know."""
    quick = {} if own_ops.are_brought(backend) else quick_compile(backend.backend_type)
    model = op_matrix.compiled(case, backend, **quick, **options)
    if quick and _has_hosts(model):  # values that a compiler has not
        return op_matrix.compiled(case, backend, **options)
    return model


def _has_hosts(model: Any) -> bool:
    """Tells whether an output is a Python value rather than an array."""
    return not all(
        isinstance(dtype, Dtype) for dtype, _ in compilation_of(model).program.output_types.values()
    )


def _value_problems(model: Any, case: Case, got: Any, want: Any) -> list[str]:
    problems = []
    for key, value in want.outputs.items():
        problem = _value_problem(model, case, key, got.outputs[key], value)
        if problem:
            problems.append(f"{case.label} {key}: {problem}")
    return problems


def _value_problem(model: Any, case: Case, key: str, got: Any, want: Any) -> str | None:
    if not isinstance(want, np.ndarray | np.generic):
        return op_matrix.difference(got, want, 0.0)
    dtype = result_dtype(model.backend, case, want)
    if got.dtype != Dtype(dtype).numpy():
        return op_matrix.wrong_dtype(model, case, got.dtype, dtype)
    bound = VALUE_BOUND.get(dtype, 0.0)
    return distance(got, _rounded(want, dtype), bound).problem or None


def result_dtype(backend: Any, case: Case, want: np.ndarray) -> str:
    """Returns the type of a result by docs/numerics.md: the floats of an op have the type of its
    float operands (`op_matrix.float_result`), else the backend's; integers that of the oracle,
    whose default has 64 bits."""
    asked = case.sample["attrs"].get("dtype")
    if asked is not None:
        return str(asked)
    if want.dtype.kind == "f":
        dtype = case.dtype if case.kind == "float" else str(backend.default_dtype)
        return op_matrix.float_result(case.op, dtype)
    return str(backend.default_int) if want.dtype == np.int64 else str(want.dtype)


def _rounded(want: np.ndarray, dtype: str) -> np.ndarray:
    """Rounds a result to a type: floats beyond its range become infinite, integers wrap."""
    with np.errstate(over="ignore"):
        return want.astype(Dtype(dtype).numpy())


# --- integers that wrap --------------------------------------------------------------------------


def _wraps(case: Case, outputs: Mapping[str, Any]) -> bool:
    """Tells whether an op takes all integers of a type and returns that type, so that it wraps."""
    if case.kind != "int" or not case.tensors or case.op["family"] in ("random", "linalg"):
        return False
    first = case.op["inputs"][0]
    is_free = (first["low"], first["high"]) == (-2.0, 2.0)
    same = all(getattr(value, "dtype", None) == case.dtype for value in outputs.values())
    return is_free and same and case.tensors[0][0] in case.widths and not case.sample["integers"]


def _at_the_bounds(case: Case, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The first operand with the largest and the smallest numbers of its type."""
    label = case.tensors[0][0]
    values = np.array(inputs[label])
    limits = np.iinfo(values.dtype)
    special = [limits.max, limits.min, limits.max - 1][: values.size]
    values.reshape(-1)[: len(special)] = special
    return {label: values}


# --- gradients of halves -------------------------------------------------------------------------


def has_slopes(case: Case) -> bool:
    """Tells whether the op has gradients that finite differences of its values can check."""
    op = case.op
    has_gradient = op["differentiable"] and op["has_gradient"] and op["name"] not in STAIRCASES
    return bool(has_gradient and case.differentiable)


def weights_of(outputs: Mapping[str, Any], dtype: str) -> dict[str, np.ndarray]:
    """Random cotangents, exact in the type, for the float outputs."""
    random = np.random.default_rng(1)
    return {
        name: tensor(random.standard_normal(value.shape), dtype)
        for name, value in outputs.items()
        if getattr(value, "dtype", None) == np.float64
    }


def _slope_problems(
    model: Any, case: Case, got: Any, weights: Mapping[str, np.ndarray], float_dtype: str
) -> list[str]:
    """Gradients along a random direction, against central differences of the oracle."""
    inputs = case.draw(points=False)

    def total(at: Any) -> float:
        outputs = op_matrix.expected(model, case, at, float_dtype).outputs
        return sum(float((weight * outputs[name]).sum()) for name, weight in weights.items())

    random = np.random.default_rng(2)
    problems = []
    for key in case.differentiable:
        direction = random.uniform(-1.0, 1.0, inputs[key].shape)
        slope = op_matrix.central_difference(total, inputs, {key: direction}, 1e-5)
        gradient = got.gradients[key]
        problem = along(gradient, direction, slope, SLOPE_TOLERANCE[case.dtype])
        if problem is None and gradient.dtype != Dtype(case.dtype).numpy():
            problem = f"dtype {gradient.dtype}, not {case.dtype}"
        if problem:
            problems.append(f"{case.label} gradient of {key}: {problem}")
    return problems


__all__ = ["Found", "cases", "check", "has_slopes", "lacks", "quick_compile", "widths"]
