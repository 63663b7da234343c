"""A scale and a shift of each element."""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.public import public
from mithril.logical.connection import Connection
from mithril.logical.model import ExtendInfo
from mithril.logical.typing import Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD


class ElementWiseAffine(Composite):
    """Each element scaled and shifted: x · w + b, of tensors that broadcast, or of numbers.

    Parameters
    ----------
    input, weight, bias : values or `IOKey`s for these keys

    Keys
    ----
    input : tensor or number
    weight : tensor or number
    bias : tensor or number
    output : the shape that they broadcast to

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.models.ElementWiseAffine(weight=2.0)(input="x", bias="b", output="y")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"x": [[1.0, 2.0]], "b": [[10.0], [20.0]]})["y"].tolist()
    [[12.0, 14.0], [22.0, 24.0]]
    """

    _connect_order = ("input", "weight", "bias", "output")

    @public
    def __init__(
        self, input: Any = TBD, weight: Any = TBD, bias: Any = TBD, *, name: str | None = None
    ):
        with self._compose(name, {}, input=input, weight=weight, bias=bias) as keys:
            scaled = Connection()
            self |= models.Multiply().connect(keys["input"], keys["weight"], scaled)
            self |= models.Add().connect(scaled, keys["bias"], "output")
            self._set_open_cins("input")

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        weight: Wire = NOT_GIVEN,
        bias: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input": input, "weight": weight, "bias": bias, "output": output}
        return ExtendInfo(self, keys)

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


__all__ = ["ElementWiseAffine"]
