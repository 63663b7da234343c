"""Regression on features that are made of the input."""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.checks import checked_size
from mithril.base.public import public
from mithril.logical.connection import Connection
from mithril.logical.model import ExtendInfo
from mithril.logical.typing import Initial, Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD


class PolynomialRegression(Composite):
    """A linear layer on all monomials of the input up to a degree.

    Parameters
    ----------
    degree : at least 1
    dimension : the width of the output; None leaves it open

    Keys
    ----
    input : float or int [n, d]
    weight : float [dimension, C(d + degree, degree) − 1], trainable
    bias : float [dimension], trainable
    output : float [n, dimension]

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.models.PolynomialRegression(2, 1)(input="x", weight="w", output="y")
    >>> model.set_shapes(x=[10, 3])
    >>> model.shapes["w"]
    [1, 9]
    """

    _connect_order = ("input", "weight", "bias", "output")

    @public
    def __init__(
        self,
        degree: int,
        dimension: int | None = None,
        input: Any = TBD,
        weight: Any = TBD,
        bias: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        checked_size("PolynomialRegression: degree", degree, 1)
        if dimension is not None:
            checked_size("PolynomialRegression: dimension", dimension, 1)
        arguments = {"degree": degree, "dimension": dimension, "init": init}
        given = {"input": input, "weight": weight, "bias": bias}
        with self._compose(name, arguments, **given) as keys:
            features = Connection()
            monomials = models.PolynomialFeatures(degree=degree)
            self |= monomials.connect(input=keys["input"], output=features)
            linear = {"weight": keys["weight"], "bias": keys["bias"]}
            self |= models.Linear(dimension).connect(input=features, **linear, output="output")
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


__all__ = ["PolynomialRegression"]
