"""Models whose results are as many as there are distinct elements: their sizes follow from data.

They run where such sizes do (docs/symbolic_shapes.md). Nothing here has a gradient.
"""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.public import public
from mithril.logical.connection import Connection
from mithril.logical.model import ExtendInfo
from mithril.logical.typing import Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD


class Unique(Composite):
    """The distinct elements of a tensor in rising order, as `numpy.unique`.

    NaN counts as one element, the largest.

    Parameters
    ----------
    input : a value or an `IOKey` for this key

    Keys
    ----
    input : of any shape and kind
    output : [the number of distinct elements], of the kind of the input

    Raises
    ------
    UnsupportedError : from evaluate, in a loop or a branch of a backend that runs plans.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Unique()(input="x", output="y")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"x": pm.backend.array([[3.0, 1.0], [2.0, 1.0]])})["y"].tolist()
    [1.0, 2.0, 3.0]
    """

    _connect_order = ("input", "output")
    _tensors = ("input",)

    @public
    def __init__(self, input: Any = TBD, *, name: str | None = None):
        with self._compose(name, {}, input=input) as keys:
            self |= models.Buffer().connect(input=_distinct(self, keys["input"]), output="output")
            self._set_open_cins("input")
            self.set_cout("output")
            self.expose_keys("output")

    @public
    def connect(self, input: Wire = NOT_GIVEN, output: Output = NOT_GIVEN) -> ExtendInfo:
        return ExtendInfo(self, {"input": input, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class AUCCore(Composite):
    """The points of a ROC curve: for each distinct score, the largest first, which shares of the
    true and of the false samples have at least that score.

    The area under them by `Trapezoid` is what `AUC` finds without them on every backend.

    Parameters
    ----------
    input, label : values or `IOKey`s for these keys

    Keys
    ----
    input : float [n], scores
    label : bool [n], whether samples are true
    output : float [2, the number of distinct scores]: true positive rates, then false positive
        ones. NaN where there is no true sample, or no false one.

    Raises
    ------
    UnsupportedError : from evaluate, in a loop or a branch of a backend that runs plans.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.AUCCore()(input="score", label="is_true", output="curve")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> array = pm.backend.array
    >>> data = {"score": array([0.9, 0.4, 0.4, 0.1]), "is_true": array([True, True, False, False])}
    >>> pm.evaluate({}, data)["curve"].tolist()
    [[0.5, 1.0, 1.0], [0.0, 0.5, 1.0]]
    """

    _connect_order = ("input", "label", "output")
    _tensors = ("input", "label")

    @public
    def __init__(self, input: Any = TBD, label: Any = TBD, *, name: str | None = None):
        with self._compose(name, {}, input=input, label=label) as keys:
            scores: Any = keys["input"]
            is_true: Any = keys["label"]
            self |= models.Flip().connect(input=_distinct(self, scores), output="thresholds")
            reached = (scores[None, :] >= self.thresholds[:, None]) * 1.0
            inside: Any = is_true * 1.0
            outside: Any = 1.0 - inside
            rates = [(reached * side).sum(axis=1) / side.sum() for side in (inside, outside)]
            self |= models.Stack().connect(input=rates, output="output")
            self.set_shapes(input=["n"], label=["n"])
            self.set_types(label=models.Tensor[bool], input=models.Tensor[float])
            self._set_open_cins("input")
            self.set_cout("output")
            self.expose_keys("output")

    @public
    def connect(
        self, input: Wire = NOT_GIVEN, label: Wire = NOT_GIVEN, output: Output = NOT_GIVEN
    ) -> ExtendInfo:
        return ExtendInfo(self, {"input": input, "label": label, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


def _distinct(model: Any, wire: Any) -> Any:
    """In order, elements that differ from the one before, and the first one."""
    wires: list[Any] = [Connection() for _ in range(5)]
    flat, ordered, before, count, place = wires
    model |= models.Reshape((-1,)).connect(input=wire, output=flat)
    model |= models.Sort().connect(input=flat, output=ordered)
    model |= models.Roll(1).connect(input=ordered, output=before)
    model |= models.Size(dim=0).connect(input=flat, output=count)
    model |= models.Arange().connect(stop=count, output=place)
    both_nan = ordered.ne(ordered) & before.ne(before)
    return ordered[place.eq(0) | (ordered.ne(before) & ~both_nan)]


__all__ = ["AUCCore", "Unique"]
