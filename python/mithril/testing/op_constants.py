"""The op matrix with constants among the operands: results and gradients keep the backend's type
beside Python numbers, constants of rank 0, of one element, and where all operands are constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mithril.errors import (
    ArgumentError,
    DataIndexError,
    DTypeError,
    MithrilError,
    ShapeError,
    UnsupportedError,
)
from mithril.logical.model import Tensor
from mithril.physical.compile import compile
from mithril.testing import op_matrix
from mithril.testing.distances import is_float
from mithril.testing.op_dtypes import has_slopes
from mithril.testing.op_matrix import Case

# What a constant of another shape or kind may do to a sample.
REFUSALS = (ShapeError, UnsupportedError, ArgumentError, DTypeError, DataIndexError)


def sample(op: Mapping[str, Any]) -> Case | None:
    """The first sample of floats; none of ops that are told their type, or draw."""
    if op_matrix.is_told_dtype(op) or op["family"] in ("random", "host"):
        return None
    return next((case for case in op_matrix.cases(dict(op)) if case.kind == "float"), None)


def variants(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what it is, label -> constant): each float operand as a number, of rank 0, of one element;
    then all of them.

    >>> from mithril import _core
    >>> [what for what, _ in variants(sample(_core.find_op("exp")))]
    ['input: number', 'input: rank 0', 'input: one element', 'all']
    """
    floats = [tensor for tensor in case.tensors if tensor[0] in case.floats]
    for label, declared, _ in floats:
        number = float(np.clip(0.3, declared["low"], declared["high"]))
        yield f"{label}: number", {label: number}
        yield f"{label}: rank 0", {label: Tensor(number)}
        yield f"{label}: one element", {label: Tensor([number])}
    if floats:
        yield "all", {label: Tensor(case.inputs[label].tolist()) for label, *_ in floats}


def check(backend: Any, case: Case, constants: Mapping[str, Any]) -> dict[str, str] | None:
    """The element types of float results and gradients; none where the op refuses the constants."""
    try:
        model = case.model(constants=constants)
    except MithrilError:
        return None
    given = {name: value for name, value in case.inputs.items() if name not in constants}
    try:
        compiled = compile(model, backend)
        outputs = op_matrix.evaluate(compiled, case, given).outputs
        floats = {k: v for k, v in outputs.items() if hasattr(v, "dtype") and is_float(v)}
        gradients = _gradients(compiled, case, given, floats)
    except REFUSALS:
        return None
    found = {**floats, **{f"gradient of {k}": v for k, v in gradients.items()}}
    return {what: str(array.dtype) for what, array in found.items()}


def _gradients(
    model: Any, case: Case, given: Mapping[str, Any], outputs: Mapping[str, Any]
) -> dict[str, Any]:
    wrt = [name for name in case.differentiable if name in model.input_keys]
    if not (wrt and outputs and has_slopes(case)):
        return {}
    result = model.evaluate(
        {name: given[name] for name in model.param_keys},
        {name: given[name] for name in model.data_keys if name in given},
        state=op_matrix.state_values(model, case) or None,
        output_gradients={name: np.ones(y.shape) for name, y in outputs.items()},
        wrt=[name for name in wrt if name not in model.trainable_keys] or None,
    )
    return {k: np.asarray(model.backend.to_numpy(g)) for k, g in result.gradients.items()}


__all__ = ["check", "sample", "variants"]
