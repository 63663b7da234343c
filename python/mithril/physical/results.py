"""Results of `evaluate` and `step`: outputs by name, and named tuples with gradients and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

Params = dict[str, Any]


class WithGradients(NamedTuple):
    """The result of `evaluate` when gradients were asked for."""

    outputs: dict[str, Any]
    gradients: dict[str, Any]


class WithState(NamedTuple):
    """The result of `evaluate` for a model with state."""

    outputs: dict[str, Any]
    state: dict[str, Any]


class WithGradientsAndState(NamedTuple):
    """The result of `evaluate` for a model with state when gradients were asked for."""

    outputs: dict[str, Any]
    gradients: dict[str, Any]
    state: dict[str, Any]


class Step(NamedTuple):
    """The result of `step`: everything that the next step needs, and the outputs."""

    params: Params
    opt_state: dict[str, Any]
    state: dict[str, Any]
    outputs: dict[str, Any]


class Results(NamedTuple):
    """The arrays that a program gave; gradients by name, or None where nobody asked."""

    outputs: Sequence[Any]
    gradients: dict[str, Any] | None
    states: Sequence[Any]


def named(program: Any, results: Results) -> Any:
    """The results of a program as `evaluate` returns them."""
    outputs = dict(zip(program.outputs, results.outputs, strict=True))
    gradients = results.gradients
    if not program.state_names:
        return outputs if gradients is None else WithGradients(outputs, gradients)
    state = dict(zip(program.state_names, results.states, strict=True))
    if gradients is None:
        return WithState(outputs, state)
    return WithGradientsAndState(outputs, gradients, state)


__all__ = [
    "Params",
    "Results",
    "Step",
    "WithGradients",
    "WithGradientsAndState",
    "WithState",
    "named",
]
