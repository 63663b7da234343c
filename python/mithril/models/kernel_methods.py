"""Kernels of two sets of points, and the support vector machine on them."""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.checks import checked_flag
from mithril.base.public import public
from mithril.errors import OptionError, SignatureError, suggestion
from mithril.logical import constraints
from mithril.logical.connection import Connection
from mithril.logical.handles import node_of
from mithril.logical.model import ExtendInfo, Model
from mithril.logical.typing import Output, Wire, as_connected
from mithril.models._composite import Composite, require_model
from mithril.types import NOT_GIVEN, TBD


class RBFKernel(Composite):
    """The Gaussian kernel of each pair of points: l_scale² exp(−½ ‖x − y‖² / sigma²).

    Rasmussen and Williams, Gaussian Processes for Machine Learning, equation 2.31 (there, sigma is
    the length scale). scikit-learn's `rbf_kernel` has gamma = 1 / (2 sigma²) and l_scale = 1.

    Keys
    ----
    input1 : float or int [n, d]
    input2 : float or int [m, d]
    sigma : [1], the width
    l_scale : [1], the amplitude
    output : float [n, m]

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> kernel = ml.models.RBFKernel(sigma=ml.Tensor([1.0]), l_scale=ml.Tensor([2.0]))
    >>> model |= kernel(input1="a", input2="b", output="K")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"a": [[0.0, 1.0]], "b": [[0.0, 1.0]]})["K"].tolist()
    [[4.0]]
    """

    _connect_order = ("input1", "input2", "l_scale", "sigma", "output")

    @public
    def __init__(
        self,
        input1: Any = TBD,
        input2: Any = TBD,
        l_scale: Any = TBD,
        sigma: Any = TBD,
        *,
        name: str | None = None,
    ):
        given = {"input1": input1, "input2": input2, "l_scale": l_scale, "sigma": sigma}
        with self._compose(name, {}, **given) as keys:
            rows: Any = Connection()
            columns: Any = Connection()
            self |= models.ExpandDims(axis=1).connect(input=keys["input1"], output=rows)
            self |= models.ExpandDims(axis=0).connect(input=keys["input2"], output=columns)
            distances = ((rows - columns) ** 2).sum(axis=2)
            sigma, l_scale = keys["sigma"], keys["l_scale"]
            decay = (distances * -0.5 / sigma**2).exp()
            self |= models.Multiply().connect(left=decay, right=l_scale**2, output="output")
            self.set_shapes(input1=["n", "d"], input2=["m", "d"], sigma=[1], l_scale=[1])
            self.set_types(dict.fromkeys(("input1", "input2"), models.Tensor[int | float]))
            self.set_cin("input1", "input2")

    @public
    def connect(
        self,
        input1: Wire = NOT_GIVEN,
        input2: Wire = NOT_GIVEN,
        l_scale: Wire = NOT_GIVEN,
        sigma: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input1": input1, "input2": input2, "l_scale": l_scale, "sigma": sigma}
        return ExtendInfo(self, {**keys, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class PolynomialKernel(Composite):
    """The polynomial kernel of each pair of points: (x·y + poly_coef) ^ degree.

    scikit-learn's `polynomial_kernel` with gamma = 1. With `robust`, the power is that of
    `Power(robust=True)`, which takes the absolute value of its base: an odd degree of a negative
    number then is positive.

    Parameters
    ----------
    robust : whether the gradient stays finite where the base is 0

    Keys
    ----
    input1 : float or int [n, d]
    input2 : float or int [m, d]
    poly_coef : number or tensor []
    degree : tensor []
    output : [n, m]

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> kernel = ml.models.PolynomialKernel(poly_coef=1.0, degree=ml.Tensor(2.0))
    >>> model |= kernel(input1="a", input2="b", output="K")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"a": [[1.0, 2.0]], "b": [[3.0, 4.0]]})["K"].tolist()
    [[144.0]]
    """

    _connect_order = ("input1", "input2", "poly_coef", "degree", "output")

    @public
    def __init__(
        self,
        robust: bool = True,
        input1: Any = TBD,
        input2: Any = TBD,
        poly_coef: Any = TBD,
        degree: Any = TBD,
        *,
        name: str | None = None,
    ):
        robust = checked_flag("PolynomialKernel: robust", robust)
        given = {"input1": input1, "input2": input2, "poly_coef": poly_coef, "degree": degree}
        with self._compose(name, {"robust": robust}, **given) as keys:
            columns, base = Connection(), Connection()
            self |= models.Transpose().connect(input=keys["input2"], output=columns)
            self |= models.MatrixMultiply().connect(left=keys["input1"], right=columns)
            self += models.Add().connect(right=keys["poly_coef"], output=base)
            self |= models.Power(robust).connect(base, keys["degree"], output="output")
            self.set_shapes(input1=["n", "d"], input2=["m", "d"], output=["n", "m"], degree=[])
            self.add_constraint(constraints.scalars, ["poly_coef"])
            self.set_cin("input1", "input2")

    @public
    def connect(
        self,
        input1: Wire = NOT_GIVEN,
        input2: Wire = NOT_GIVEN,
        poly_coef: Wire = NOT_GIVEN,
        degree: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input1": input1, "input2": input2, "poly_coef": poly_coef, "degree": degree}
        return ExtendInfo(self, {**keys, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class KernelizedSVM(Composite):
    """The decision function of a support vector machine: k(x, X) weightᵀ + bias.

    Parameters
    ----------
    kernel : a model with the inputs `input1` and `input2` and one canonical output, such as
        `RBFKernel()`; its other named inputs are inputs here, too
    weight, bias, **kernel_inputs : values or `IOKey`s for these keys

    Keys
    ----
    input1 : the points to decide on, [n, d]
    input2 : the points that the machine has learnt from, [m, d]
    weight : float [1, m], trainable: the coefficients of these points
    bias : float [1], trainable
    kernel : float [n, m], an output
    output : float [n, 1]; its sign is the class

    Raises
    ------
    SignatureError : the kernel is no model, or a keyword names none of its inputs.
    OptionError : the kernel lacks `input1` or `input2`.

    >>> import mithril as ml
    >>> svm = ml.models.KernelizedSVM(ml.models.RBFKernel())
    >>> svm.input_keys
    ['input1', 'input2', 'sigma', 'l_scale', 'weight', 'bias']
    """

    _connect_order = ("input1", "input2", "weight", "bias", "output")

    @public
    def __init__(
        self,
        kernel: Model,
        weight: Any = TBD,
        bias: Any = TBD,
        *,
        name: str | None = None,
        **kernel_inputs: Any,
    ):
        require_model("KernelizedSVM: kernel", kernel, "RBFKernel()")
        inputs = _inputs_of(kernel, kernel_inputs)
        given = {**dict.fromkeys(inputs, TBD), **kernel_inputs, "weight": weight, "bias": bias}
        with self._compose(name, {"kernel": kernel}, **given) as keys:
            self |= kernel.connect(
                **{key: keys[key] for key in inputs}, **{kernel.cout.key: "kernel"}
            )
            linear = {key: keys[key] for key in ("weight", "bias")}
            self |= models.Linear(1).connect(input="kernel", output="output", **linear)
            self.set_cin("input1", "input2")
            self.expose_keys("kernel", "output")

    @public
    def connect(
        self,
        input1: Wire = NOT_GIVEN,
        input2: Wire = NOT_GIVEN,
        weight: Wire = NOT_GIVEN,
        bias: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
        **kernel_keys: Any,
    ) -> ExtendInfo:
        keys = {"input1": input1, "input2": input2, "weight": weight, "bias": bias}
        return ExtendInfo(self, {**keys, "output": output, **kernel_keys})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


def _inputs_of(kernel: Model, given: dict[str, Any]) -> list[str]:
    """The named inputs of a kernel that have no value yet."""
    node = node_of(kernel)
    inputs = [k for k in node.input_keys if not k.startswith("$") and not node.is_valued(k)]
    for key in ("input1", "input2"):
        if key not in inputs:
            raise OptionError(
                f"KernelizedSVM: kernel requires an input {key!r}, {kernel!r} has"
                f" {', '.join(inputs) or 'none'}"
            )
    clash = [key for key in ("weight", "bias", "kernel", "output") if key in inputs]
    if clash:
        raise OptionError(f"KernelizedSVM: kernel must have no input {clash[0]!r}")
    unknown = [key for key in given if key not in inputs]
    if unknown:
        raise SignatureError(
            f"KernelizedSVM: has no argument {unknown[0]!r}{suggestion(unknown[0], inputs)}"
        )
    return inputs


__all__ = ["KernelizedSVM", "PolynomialKernel", "RBFKernel"]
