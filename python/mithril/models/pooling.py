"""Base classes of pooling layers, to derive further ones from."""

from __future__ import annotations

import abc
from typing import Any

from mithril import models
from mithril.base.public import public
from mithril.errors import SignatureError
from mithril.logical.connection import Connection
from mithril.logical.model import ExtendInfo
from mithril.logical.typing import Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD


class _Pool(Composite, metaclass=abc.ABCMeta):
    """`pool_model` over windows whose arguments are brought to the form that it takes."""

    _connect_order = ("input", "kernel_size", "stride", "padding", "dilation", "output")
    pool_model: Any = None

    @public
    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = (0, 0),
        dilation: Any = 1,
        input: Any = TBD,
        *,
        name: str | None = None,
    ):
        what = type(self).__name__
        if self.pool_model is None:
            raise SignatureError(
                f"{what}: is the base of pooling layers and says no pool_model",
                hint=f"use Max{what}, or derive a class with the class of an op as pool_model",
            )
        with self._compose(
            name,
            {},
            kernel_size=kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            input=input,
        ) as keys:
            windows = self._windows(keys)
            self |= self.pool_model().connect(input=keys["input"], output="output", **windows)
            self._set_open_cins("input")

    def _windows(self, keys: dict[str, Connection]) -> dict[str, Connection]:
        """Returns kernel_size, stride, padding and dilation as the pool model takes them."""
        raise NotImplementedError

    def _converted(self, converter: Any, **inputs: Connection) -> Connection:
        out = Connection()
        self.extend(converter, **inputs, output=out)
        return out

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        kernel_size: Wire = NOT_GIVEN,
        stride: Wire = NOT_GIVEN,
        padding: Wire = NOT_GIVEN,
        dilation: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input": input, "kernel_size": kernel_size, "stride": stride}
        return ExtendInfo(
            self, {**keys, "padding": padding, "dilation": dilation, "output": output}
        )

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class Pool1D(_Pool):
    """The base of pooling layers over the last axis; a class that derives from it says the op.

    `MaxPool1D`, `MinPool1D` and `AvgPool1D` count as such classes.

    Attributes
    ----------
    pool_model : the class of a model with the keys input, kernel_size, stride, padding, dilation
        and output, which gets ints and a pair (low, high) of padding

    Parameters
    ----------
    kernel_size : int
    stride : int; None: kernel_size
    padding : int, (low, high), 'same' or 'valid'
    dilation : int
    input : a value or an `IOKey` for the key

    Keys
    ----
    stride, kernel_size, padding, dilation : as the parameters; open where given as TBD
    input : [..., length]
    output : [..., places of the window]

    Raises
    ------
    SignatureError : the class says no `pool_model`.

    >>> import mithril as ml
    >>> class Pool(ml.models.Pool1D):
    ...     pool_model = ml.models.PrimitiveMaxPool1D
    >>> model = ml.Model()
    >>> model |= Pool(2)(input="x", output="y")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"x": [[[1.0, 3.0, 2.0, 0.0]]]})["y"].tolist()
    [[[3.0, 2.0]]]
    """

    def _windows(self, keys: dict[str, Connection]) -> dict[str, Connection]:
        size = keys["kernel_size"]
        stride = self._converted(models.StrideConverter(), input=keys["stride"], kernel_size=size)
        padding = self._converted(
            models.PaddingConverter1D(), input=keys["padding"], kernel_size=size
        )
        return {
            "kernel_size": size,
            "stride": stride,
            "padding": padding,
            "dilation": keys["dilation"],
        }


class Pool2D(_Pool):
    """The base of pooling layers over the last two axes; a class that derives from it says the op.

    `MaxPool2D`, `MinPool2D` and `AvgPool2D` count as such classes.

    Attributes
    ----------
    pool_model : the class of a model with the keys input, kernel_size, stride, padding, dilation
        and output, which gets pairs, of padding also pairs (low, high)

    Parameters
    ----------
    kernel_size : int or one for each axis
    stride : int or one for each axis; None: kernel_size
    padding : int, one for each axis, (low, high) for each, 'same' or 'valid'
    dilation : int or one for each axis
    input : a value or an `IOKey` for the key

    Keys
    ----
    kernel_size, stride, padding, dilation : as the parameters; open where given as TBD
    input : [..., height, width]
    output : [..., places of the window along each]

    Raises
    ------
    SignatureError : the class says no `pool_model`.

    >>> import mithril as ml
    >>> class Pool(ml.models.Pool2D):
    ...     pool_model = ml.models.PrimitiveAvgPool2D
    >>> model = ml.Model()
    >>> model |= Pool(2)(input="x", output="y")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"x": [[[[1.0, 3.0], [2.0, 0.0]]]]})["y"].tolist()
    [[[[1.5]]]]
    >>> issubclass(ml.MaxPool2D, ml.models.Pool2D)
    True
    """

    def _windows(self, keys: dict[str, Connection]) -> dict[str, Connection]:
        def pair(value: Connection) -> Connection:
            return self._converted(models.TupleConverter(), input=value)

        size = pair(keys["kernel_size"])
        stride = self._converted(models.StrideConverter(), input=keys["stride"], kernel_size=size)
        stride = pair(stride)
        padding = self._converted(
            models.PaddingConverter2D(), input=keys["padding"], kernel_size=size
        )
        return {
            "kernel_size": size,
            "stride": stride,
            "padding": pair(padding),
            "dilation": pair(keys["dilation"]),
        }


for _kind in ("Max", "Min", "Avg"):
    Pool1D.register(getattr(models, f"{_kind}Pool1D"))
    Pool2D.register(getattr(models, f"{_kind}Pool2D"))

__all__ = ["Pool1D", "Pool2D"]
