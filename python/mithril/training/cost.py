"""From losses and regularization terms to the one number that `TrainModel` minimises."""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

from mithril import models
from mithril.errors import ArgumentError
from mithril.logical.connection import TBD, Connection, Tensor
from mithril.logical.handles import node_of, wire_of
from mithril.logical.model import Model

_AVERAGING = ("mean", "max", "min")  # steps whose result does not grow with the batch


class Loss(NamedTuple):
    """A loss, reduced and weighted, and what each of its reduce steps read."""

    text: str
    result: Any  # Connection: it has the operators of expressions
    steps: list[tuple[Connection, Model]]


class Penalty(NamedTuple):
    """A regularization term, neither weighted nor divided, of the input `target`."""

    text: str
    coef: Any
    result: Any  # Connection: it has the operators of expressions
    target: str


def assemble(
    node: Any, losses: list[Loss], penalties: list[Penalty], combiner: Model | None, chain: Any
) -> Connection:
    """The cost as an expression: combined losses + sum of coef * (sum of scaled terms)."""
    combined = _combined(node, [loss.result for loss in losses], combiner, chain)
    if not penalties:
        return combined[0]
    named = chain.put(new("Buffer"), {"input": combined[0], "output": "loss"})
    terms = [(named, combined[1])]
    by_coefficient: dict[Any, list[Penalty]] = {}
    for penalty in penalties:
        by_coefficient.setdefault(_amount(penalty.coef), []).append(penalty)
    for group in by_coefficient.values():
        scaled = [_scaled(node, penalty, losses) for penalty in group]
        scalar = [_is_scalar(node, penalty.result) for penalty in group]
        total = _sum(list(zip(scaled, scalar, strict=True)), chain)
        weighted = chain.put(new("Multiply"), {"left": total, "right": _value(group[0].coef)})
        terms.append((weighted, True))
    return _sum(terms, chain)


def _amount(coef: Any) -> Any:
    """Equal for equal coefficients: terms are added up before they are weighted."""
    if isinstance(coef, Tensor) and coef.value is not TBD:
        return str(coef.value.dtype), coef.value.shape, coef.value.bytes
    return coef if isinstance(coef, (int, float)) else id(coef)


def _combined(
    node: Any, results: list[Connection], combiner: Model | None, chain: Any
) -> tuple[Connection, bool]:
    """One connection of all losses, and whether it is known to be a single number."""
    terms = [(result, _is_scalar(node, result)) for result in results]
    if len(terms) == 1:
        return terms[0]
    if combiner is None:
        return _sum(terms, chain), True
    return chain.put(combiner, {"input": _joined(terms, chain)}), False


def _sum(terms: list[tuple[Connection, bool]], chain: Any) -> Connection:
    """The sum of all elements of all terms."""
    if not all(scalar for _, scalar in terms):
        return chain.put(new("Sum"), {"input": _joined(terms, chain)})
    total: Any = terms[0][0]
    for term, _ in terms[1:]:
        total = total + term
    return total


def _joined(terms: list[tuple[Connection, bool]], chain: Any) -> Connection:
    """All elements of all terms as a vector."""
    return chain.put(new("Concat", axis=None), {"input": [term for term, _ in terms]})


def _is_scalar(node: Any, result: Connection) -> bool:
    return node.shapes([wire_of(result)])[0] == [[]]


def _scaled(node: Any, penalty: Penalty, losses: list[Loss]) -> Any:
    """The term divided by the geometric mean, over the losses that depend on its parameter, of
    the number of elements that are averaged there."""
    depending = [loss for loss in losses if penalty.target in node.sources(wire_of(loss.result))]
    counts = [count for loss in depending for count in _averaged(loss)]
    if not counts:
        return penalty.result
    product = functools.reduce(operator.mul, counts)
    if len(depending) > 1:
        product = product ** (1 / len(depending))
    return penalty.result / product


def _averaged(loss: Loss) -> list[Any]:
    """The sizes of the axes that the averaging steps of a loss reduce."""
    sizes: list[Any] = []
    for read, step in loss.steps:
        if node_of(step).op not in _AVERAGING:
            continue
        axis = node_of(step).value("axis")
        if not axis:
            raise ArgumentError(f"TrainModel: the axis of {step!r} in {loss.text} is not known")
        axes = axis[0] if isinstance(axis[0], (tuple, list)) else [axis[0]]
        sizes += [read.size(a) for a in axes]
    return sizes


def _value(coef: Any) -> Any:
    return coef if isinstance(coef, (Connection, Tensor)) else Tensor(coef)


def new(name: str, **arguments: Any) -> Model:
    return getattr(models, name)(**arguments)
