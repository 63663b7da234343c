"""Regularizers for `TrainModel.add_regularization`: numbers that grow with the weights."""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.public import public
from mithril.logical.model import ExtendInfo
from mithril.logical.typing import Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD


class L1(Composite):
    """The sum of absolute values: Σ |x|.

    Its gradient is sign(x), 0 at 0.

    Keys
    ----
    input : float or int tensor of any shape
    output : []

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.models.L1()(input="w", output="cost")
    >>> model.shapes["cost"]
    []
    """

    _connect_order = ("input", "output")

    @public
    def __init__(self, input: Any = TBD, *, name: str | None = None):
        with self._compose(name, {}, input=input) as keys:
            self |= models.Absolute().connect(input=keys["input"])
            self += models.Sum().connect(output="output")

    @public
    def connect(self, input: Wire = NOT_GIVEN, output: Output = NOT_GIVEN) -> ExtendInfo:
        return ExtendInfo(self, {"input": input, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class L2(Composite):
    """Half the sum of squares: ½ Σ x².

    Its gradient is x.

    Keys
    ----
    input : tensor of any shape
    output : float []

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.models.L2()(input="w", output="cost")
    >>> model.shapes["cost"]
    []
    """

    _connect_order = ("input", "output")

    @public
    def __init__(self, input: Any = TBD, *, name: str | None = None):
        with self._compose(name, {}, input=input) as keys:
            self |= models.Square().connect(input=keys["input"])
            self += models.Sum()
            self += models.Multiply(right=0.5).connect(output="output")

    @public
    def connect(self, input: Wire = NOT_GIVEN, output: Output = NOT_GIVEN) -> ExtendInfo:
        return ExtendInfo(self, {"input": input, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class QuadraticFormRegularizer(Composite):
    """Half the quadratic form of each row, summed: ½ Σᵢ xᵢ K xᵢᵀ.

    With the kernel matrix of a `KernelizedSVM` and its weight, the squared norm of the decision
    function (Schölkopf and Smola, Learning with Kernels, section 4.2).

    Keys
    ----
    input : float or int [rows, d]; the original takes one row only
    kernel : float or int [d, d]
    output : float [1, 1]

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.models.QuadraticFormRegularizer()(input="w", kernel="K", output="cost")
    >>> model.shapes["cost"]
    [1, 1]
    """

    _connect_order = ("input", "kernel", "output")

    @public
    def __init__(self, input: Any = TBD, kernel: Any = TBD, *, name: str | None = None):
        with self._compose(name, {}, input=input, kernel=kernel) as keys:
            self |= models.MatrixMultiply().connect(keys["input"], keys["kernel"])
            self += models.Multiply().connect(right=keys["input"])
            self += models.Sum(axis=None, keepdim=True)
            self += models.Multiply(right=0.5).connect(output="output")
            self.set_shapes(input=["rows", "d"], kernel=["d", "d"])
            self.set_cin("input")

    @public
    def connect(
        self, input: Wire = NOT_GIVEN, kernel: Wire = NOT_GIVEN, output: Output = NOT_GIVEN
    ) -> ExtendInfo:
        return ExtendInfo(self, {"input": input, "kernel": kernel, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


__all__ = ["L1", "L2", "QuadraticFormRegularizer"]
