"""Linear models of two classes."""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.public import public
from mithril.logical.model import ExtendInfo, Model
from mithril.logical.typing import Initial, Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD


class _LinearClassifier(Composite):
    """A score for each row, and what a class makes of it."""

    def _score(
        self, name: str | None, init: Initial, given: dict[str, Any], verdict: Model, result: str
    ) -> None:
        with self._compose(name, {"init": init}, **given) as keys:
            self |= models.Linear(1).connect(**keys, output="output")
            self |= verdict.connect(input="output", output=result)
            self.set_cin("input")
            self.set_cout("output")
            self.expose_keys("output", result)


class LinearSVM(_LinearClassifier):
    """The score of a linear support vector machine, x Wᵀ + b, and its sign.

    Keys
    ----
    weight : float [1, d], trainable
    input : float or int [N, ..., d]
    bias : float [1], trainable
    output : float [N, ..., 1], the score; train it with `HingeLoss` or `QuadHingeLoss`
    decision_output : float [N, ..., 1], −1, 0 or 1; its gradient is 0

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.models.LinearSVM()(input="x", output="score", decision_output="class")
    >>> model.set_shapes(x=["N", 2])
    >>> model.shapes["class"]
    ['N', 1]
    """

    _connect_order = ("input", "weight", "bias", "output", "decision_output")

    @public
    def __init__(
        self,
        input: Any = TBD,
        weight: Any = TBD,
        bias: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        given = {"input": input, "weight": weight, "bias": bias}
        self._score(name, init, given, models.Sign(), "decision_output")

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        weight: Wire = NOT_GIVEN,
        bias: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
        decision_output: Wire = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input": input, "weight": weight, "bias": bias}
        return ExtendInfo(self, {**keys, "output": output, "decision_output": decision_output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class LogisticRegression(_LinearClassifier):
    """Logits, x Wᵀ + b, and the probabilities that they stand for: their sigmoid.

    Keys
    ----
    weight : float [1, d], trainable
    input : float or int [N, ..., d]
    bias : float [1], trainable
    output : float [N, ..., 1], logits; train them with `BinaryCrossEntropy`
    probs_output : float [N, ..., 1], between 0 and 1

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.models.LogisticRegression()(input="x", output="logits", probs_output="p")
    >>> model.set_shapes(x=["N", 2])
    >>> model.shapes["p"]
    ['N', 1]
    """

    _connect_order = ("input", "weight", "bias", "output", "probs_output")

    @public
    def __init__(
        self,
        input: Any = TBD,
        weight: Any = TBD,
        bias: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        given = {"input": input, "weight": weight, "bias": bias}
        self._score(name, init, given, models.Sigmoid(), "probs_output")

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        weight: Wire = NOT_GIVEN,
        bias: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
        probs_output: Wire = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input": input, "weight": weight, "bias": bias}
        return ExtendInfo(self, {**keys, "output": output, "probs_output": probs_output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


__all__ = ["LinearSVM", "LogisticRegression"]
