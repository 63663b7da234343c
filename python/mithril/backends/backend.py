"""The interface of backends. Three methods are enough; everything else has a fall-back here."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self

from mithril.backends.registry import get_backend
from mithril.base.arrays import host_values
from mithril.base.checks import (
    MOST_ELEMENTS,
    checked_count,
    checked_integer,
    checked_number,
    checked_str,
)
from mithril.base.numpy import np
from mithril.base.public import public
from mithril.eager import methods, traced
from mithril.eager.array_methods import ArrayMethods
from mithril.eager.recording import is_symbolic, record
from mithril.errors import (
    ArgumentError,
    DataOverflowError,
    DTypeError,
    MithrilError,
    OutOfMemoryError,
    ShapeError,
    SignatureError,
    UnsupportedError,
    shown,
    suggestion,
)
from mithril.execution import own_ops
from mithril.execution.interface import CompileTarget
from mithril.execution.memory import memory_report, process_memory
from mithril.execution.primitives import checked_kernel
from mithril.execution.random import Stream, integers
from mithril.types import Dtype, DTypeLike, as_dtype, dtype_of

from .facts import BackendFacts
from .pickling import backend_parts

__all__ = ["Backend"]

# Called as `zeros(2, 3)`, `zeros((2, 3))` and either with a dtype at the end.
_SHAPED = ("zeros", "ones", "empty", "randn", "rand")

# Spellings of ops as methods beside those of `ops` and of the registry.
_ALIASES = {"cat": "concat"}


def shape_and_dtype(arguments: tuple[Any, ...], dtype: DTypeLike | None) -> tuple[Any, Any]:
    """Returns the shape and the dtype (or None) that the arguments of `zeros` and its like give."""
    if arguments and not _is_size(arguments[-1]) and not _is_shape(arguments[-1]):
        if dtype is not None:
            raise SignatureError("dtype is given twice, by position and by name")
        arguments, dtype = arguments[:-1], arguments[-1]
    if len(arguments) == 1 and _is_shape(arguments[0]):
        arguments = tuple(arguments[0])
    sizes = tuple(checked_integer("a size of an array", n) for n in arguments)
    if min(sizes, default=0) < 0:
        raise ShapeError(f"sizes of an array are not negative, got {sizes}")
    if math.prod(sizes) >= MOST_ELEMENTS:
        raise OutOfMemoryError(f"an array of shape {sizes} does not fit an address space")
    return sizes, None if dtype is None else as_dtype(dtype)


def _check_bounds(bounds: Sequence[Any]) -> None:
    """Refuses numbers that `arange` cannot go through; arrays are left alone."""
    names = ("stop",) if len(bounds) == 1 else ("start", "stop", "step")
    for name, bound in zip(names, bounds, strict=False):
        number = checked_number(f"arange: {name}", bound)
        if getattr(bound, "shape", ()) != ():
            raise SignatureError(f"arange: {name}: requires a number, got {shown(bound)}")
        if not math.isfinite(number):
            raise ArgumentError(f"arange: {name}: requires a finite number, got {shown(bound)}")
        if isinstance(bound, int) and not -(2**63) <= bound < 2**63:
            raise DataOverflowError(
                f"arange: {name}: requires an integer of 64 bits, got {shown(bound)}"
            )
        if name == "step" and bound == 0:
            raise ArgumentError(f"arange: step: requires another number than 0, got {bound}")
    start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    steps = (stop - start) / (bounds[2] if len(bounds) == 3 else 1)
    if steps >= MOST_ELEMENTS:
        raise OutOfMemoryError(f"arange: {float(steps):.3g} elements do not fit an address space")


def _checked_range(what: str, low: Any, high: Any) -> tuple[int, int]:
    """Returns the bounds of random integers, `high` excluded, after checks."""
    bounds = checked_integer(f"{what}: low", low), checked_integer(f"{what}: high", high)
    for name, bound in zip(("low", "high"), bounds, strict=True):
        if not -(2**63) <= bound < 2**63:
            raise DataOverflowError(
                f"{what}: {name}: requires an integer of 64 bits, got {shown(bound)}"
            )
    if bounds[0] >= bounds[1]:
        raise ArgumentError(f"{what}: high: requires more than low = {low}, got {high}")
    return bounds


def _is_size(value: Any) -> bool:
    return hasattr(value, "__index__")


def _is_shape(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str)


def _takes_both_styles(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wrapper(self: Any, *shape: Any, dtype: DTypeLike | None = None, **options: Any) -> Any:
        if "shape" in options:
            shape = (options.pop("shape"), *shape)
        sizes, dtype = shape_and_dtype(shape, dtype)
        return method(self, sizes, dtype=dtype, **options)

    wrapper._takes_both_styles = True  # type: ignore[attr-defined]
    return wrapper


class _on_class_and_instance:  # noqa: N801
    """A class method that is called alike on the class and on its instances."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> Callable[..., Any]:
        return functools.wraps(self._function)(functools.partial(self._function, owner))


class _GradientsByInput:
    """`fn_grad` of `register_primitive` as a ``backward_<name>``; computes what is read."""

    def __init__(self, fn_grad: Callable[..., Any], grad_output: Any = None, inputs: tuple = ()):
        self._fn_grad = fn_grad
        self._given = (grad_output, inputs)

    def __call__(self, grad_output: Any, inputs: tuple, _outputs: tuple) -> _GradientsByInput:
        return _GradientsByInput(self._fn_grad, grad_output, inputs)

    def __getitem__(self, idx: int) -> Any:
        grad_output, inputs = self._given
        return self._fn_grad(grad_output, {}, idx, *inputs)


class Backend(ArrayMethods, BackendFacts, CompileTarget):
    """Makes arrays and runs graphs. A subclass defines `tensor`, `zeros` and `ones`.

    `tensor` and `array` are one method under two names: overriding either replaces both.

    Methods of a subclass that have the name of an op are that op in compiled models, too, and
    `backward_<op>(grad_output, inputs, outputs)` is its gradient: a tuple with one array for each
    operand, None for none, or the array alone where there is one operand. Operands come by place or
    by the op's names, attributes by name as far as the method takes them. Such models run line by
    line; derivatives through a gradient of one's own are of the first order.

    >>> import mithril as ml
    >>> __name__ = "example"  # what this package defines itself is not a user's
    >>> class Steep(ml.NumpyBackend):
    ...     def relu(self, input):
    ...         return super().relu(input) * 2
    ...     def backward_relu(self, grad_output, inputs, outputs):
    ...         return grad_output * 2 * (inputs[0] > 0)
    >>> model = ml.Model()
    >>> model |= ml.Relu()(input="x", output="y")
    >>> pm = ml.compile(model, Steep(), shapes={"x": [2]}, trainable_keys={"x"})
    >>> outputs, gradients = pm.evaluate({"x": [-1.0, 3.0]}, output_gradients={"y": [1.0, 1.0]})
    >>> outputs["y"].tolist(), gradients["x"].tolist()
    ([0.0, 6.0], [0.0, 2.0])
    """

    _methods_run_on = ""  # name of the backend that compiles what methods compute; "": itself
    is_installed = True
    # Where a class has no functions of its own NumPy's run on its arrays' values.
    _ops_module = "mithril.backends.with_manualgrad.numpy_backend.ops"

    def without_waiting(self) -> Any:
        """A context in which compiled models return before their results are computed."""
        return contextlib.nullcontext()

    def __new__(cls, *args: Any, **options: Any) -> Self:
        backend = super().__new__(cls)
        backend.constructor_arguments = (args, options)
        return backend

    def __reduce__(self) -> tuple[Any, ...]:
        return backend_parts(self)

    @public
    def __init__(self, *, dtype: DTypeLike | None = None, seed: int = 0) -> None:
        if dtype is not None:
            self.default_dtype = self._float_dtype(dtype)
        self.seed = checked_integer(f"{type(self).__name__}: seed", seed)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        if "tensor" in own and "array" not in own:
            setattr(cls, "array", own["tensor"])  # noqa: B010
        elif "array" in own and "tensor" not in own:
            setattr(cls, "tensor", own["array"])  # noqa: B010
        for name in _SHAPED:
            method = own.get(name)
            if callable(method) and not getattr(method, "_takes_both_styles", False):
                setattr(cls, name, _takes_both_styles(method))
        if not cls.__module__.startswith("mithril."):
            own_ops.offer_to_super(Backend, cls)

    @staticmethod
    def _float_dtype(dtype: DTypeLike) -> Dtype:
        dtype = as_dtype(dtype)
        if not dtype.is_float:
            raise DTypeError(f"dtype: a backend computes in a float type, got {dtype}")
        return dtype

    def __repr__(self) -> str:
        where = {"device": self.get_device(), "dtype": str(self.default_dtype)}
        options = {**where, **self._repr_options()}
        told = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return f"{type(self).__name__}({told})"

    def _repr_options(self) -> dict[str, str]:
        """Arguments of the constructor that change the digits of results, where they are set."""
        kind = self.compute_dtype
        return {} if kind is None else {"compute_precision": str(kind)}

    # ------------------------------------------------------------------------------- creation

    @abstractmethod
    def tensor(self, data: Any, dtype: DTypeLike | None = None) -> Any:
        """A new array with the values of `data`."""

    @abstractmethod
    def zeros(self, shape: Any, dtype: DTypeLike | None = None) -> Any:
        """An array of zeros: `zeros((2, 3))`, `zeros(2, 3)`, `zeros(2, 3, dtype="int32")`."""

    @abstractmethod
    def ones(self, shape: Any, dtype: DTypeLike | None = None) -> Any:
        """An array of ones; called like `zeros`."""

    def array(self, data: Any, dtype: DTypeLike | None = None) -> Any:
        """The same as `tensor`."""
        return self.tensor(data, dtype)

    def _from_host(self, values: np.ndarray, dtype: DTypeLike | None = None) -> Any:
        """An array with the values of a NumPy array, through the class's own `tensor`."""
        return self.tensor(values, as_dtype(dtype if dtype is not None else values.dtype))

    @_takes_both_styles
    def empty(self, shape: Any, dtype: DTypeLike | None = None) -> Any:
        """An array of unspecified values; called like `zeros`."""
        return self.zeros(shape, dtype=dtype)

    def zeros_like(self, input: Any, *, dtype: DTypeLike | None = None) -> Any:
        return self.zeros(self.shape(input), dtype=self._dtype_or_own(input, dtype))

    def ones_like(self, input: Any, *, dtype: DTypeLike | None = None) -> Any:
        return self.ones(self.shape(input), dtype=self._dtype_or_own(input, dtype))

    def _dtype_or_own(self, input: Any, dtype: DTypeLike | None) -> Dtype:
        return self.dtype(input) if dtype is None else as_dtype(dtype)

    @public
    def full(self, shape: Any, value: Any, dtype: DTypeLike | None = None) -> Any:
        """An array of one value, or of values that are repeated to the shape; without `dtype` of
        the kind that `array` makes of the value.

        >>> import mithril as ml
        >>> backend = ml.NumpyBackend()
        >>> backend.full((2,), 3.0), backend.full(2, 3).dtype, backend.full(2, True)
        (array([3., 3.], dtype=float32), dtype('int64'), array([ True,  True]))
        """
        if is_symbolic((shape, value)):
            return record("full", (shape, value), {} if dtype is None else {"dtype": dtype})
        sizes, asked = shape_and_dtype((shape,), dtype)
        if not isinstance(value, list | tuple):
            checked_number("full: value", value)
        one = self.to_numpy(self.tensor(value, asked))
        try:
            return self._from_host(np.array(np.broadcast_to(one, sizes)))
        except ValueError:
            raise ShapeError(
                f"full: value of shape {list(one.shape)} does not broadcast to {list(sizes)}"
            ) from None

    @public
    def eye(self, rows: int, columns: int | None = None, dtype: DTypeLike | None = None) -> Any:
        """Ones on the diagonal, zeros elsewhere."""
        count = checked_count("eye: rows", rows)
        across = count if columns is None else checked_count("eye: columns", columns)
        checked_count("eye", count * across)
        return self._from_host(np.eye(count, across, dtype=np.float64), self._or_default(dtype))

    def _or_default(self, dtype: DTypeLike | None) -> Dtype:
        return self.default_dtype if dtype is None else as_dtype(dtype)

    def arange(self, *bounds: Any, dtype: DTypeLike | None = None) -> Any:
        """`arange(stop)`, `arange(start, stop)` or `arange(start, stop, step)`."""
        if not 1 <= len(bounds) <= 3:
            raise SignatureError(f"arange takes 1 to 3 numbers, got {len(bounds)}")
        _check_bounds(bounds)
        if dtype is None:
            floating = any(isinstance(b, float) for b in bounds)
            dtype = self.default_dtype if floating else self.default_int
        return self._from_host(np.arange(*bounds), dtype)

    @public
    def linspace(
        self, start: float, stop: float, steps: int, dtype: DTypeLike | None = None
    ) -> Any:
        """`steps` evenly spaced numbers, both ends included."""
        ends = checked_number("linspace: start", start), checked_number("linspace: stop", stop)
        count = checked_count("linspace: steps", steps)
        return self._from_host(np.linspace(*ends, count), self._or_default(dtype))

    # --------------------------------------------------------------------------------- random

    @property
    def _stream(self) -> Stream:
        # Made when first used: a subclass need not call __init__.
        stream = self.__dict__.get("_random_stream")
        if stream is None:
            stream = self.__dict__["_random_stream"] = Stream(getattr(self, "seed", 0))
        return stream

    @public
    def set_seed(self, seed: int) -> None:
        """Starts the backend's random numbers over. Equal seeds, equal numbers on any backend."""
        self.seed = checked_integer("set_seed: seed", seed)
        self._stream.seed(self.seed)

    def _draws(self, call: str, key: int | None) -> Stream:
        return self._stream if key is None else Stream(checked_integer(f"{call}: key", key))

    def _drawn(self, call: str, kind: str, shape: Any, dtype: Any, key: int | None) -> np.ndarray:
        drawn_in = self._or_default(dtype)
        return getattr(self._draws(call, key), kind)(shape, drawn_in.numpy())

    @_takes_both_styles
    def rand(self, shape: Any, dtype: DTypeLike | None = None, key: int | None = None) -> Any:
        """Uniform in [0, 1)."""
        return self._from_host(self._drawn("rand", "uniform", shape, dtype, key))

    @_takes_both_styles
    def randn(self, shape: Any, dtype: DTypeLike | None = None, key: int | None = None) -> Any:
        """Standard normal."""
        return self._from_host(self._drawn("randn", "normal", shape, dtype, key))

    @public
    def random_normal(
        self, shape: Any = (), mean: float = 0.0, stddev: float = 1.0,
        dtype: DTypeLike | None = None, key: int | None = None,
    ) -> Any:  # fmt: skip
        """Normal with the given mean and standard deviation."""
        sizes, dtype = shape_and_dtype((shape,), dtype)
        mean = checked_number("random_normal: mean", mean)
        stddev = checked_number("random_normal: stddev", stddev)
        drawn = self._drawn("random_normal", "normal", sizes, dtype, key)
        return self._from_host((drawn * stddev + mean).astype(drawn.dtype))

    @public
    def rand_uniform(
        self, low: float, high: float, *shape: Any, dtype: DTypeLike | None = None,
        key: int | None = None,
    ) -> Any:  # fmt: skip
        """Uniform in [low, high)."""
        sizes, dtype = shape_and_dtype(shape, dtype)
        low = checked_number("rand_uniform: low", low)
        high = checked_number("rand_uniform: high", high)
        drawn = self._drawn("rand_uniform", "uniform", sizes, dtype, key)
        return self._from_host((drawn * (high - low) + low).astype(drawn.dtype))

    @public
    def randint(
        self, low: int, high: int, *shape: Any, dtype: DTypeLike | None = None,
        key: int | None = None,
    ) -> Any:  # fmt: skip
        """Integers in [low, high)."""
        sizes, dtype = shape_and_dtype(shape, dtype)
        low, high = _checked_range("randint", low, high)
        drawn = integers(self._draws("randint", key).next_key(), sizes, low, high)
        return self._from_host(drawn, self.default_int if dtype is None else dtype)

    @public
    def multinomial(
        self, probs: Any, num_samples: int, replacement: bool = False, key: int | None = None
    ) -> Any:
        """Indices drawn with the given weights; a row of `num_samples` for each row of weights."""
        weights = np.asarray(self.to_numpy(self._given(probs)), np.float64)
        num_samples = checked_count("multinomial: num_samples", num_samples)
        stream = self._draws("multinomial", key)
        if replacement:
            cumulated = np.cumsum(weights, -1)[..., None, :]
            drawn = stream.uniform((*weights.shape[:-1], num_samples, 1), np.float64)
            indices = np.sum(drawn * cumulated[..., -1:] >= cumulated, -1)
        else:
            most = np.count_nonzero(weights, -1).min()
            if num_samples > most:
                raise ArgumentError(
                    f"multinomial: num_samples: more samples than weights that are not 0, got"
                    f" {num_samples} and {most}",
                    hint="replacement=True draws some of them again",
                )
            # The largest of log(weight) + Gumbel noise are a sample without replacement.
            noise = -np.log(-np.log1p(-stream.uniform(weights.shape, np.float64)))
            with np.errstate(divide="ignore"):
                scores = np.log(weights) + noise
            indices = np.argsort(-scores, -1, kind="stable")[..., :num_samples]
        return self._from_host(indices, self.default_int)

    # ----------------------------------------------------------------------------- conversion

    def to_numpy(self, array: Any) -> np.ndarray:
        """The values as a NumPy array, without a copy where possible."""
        if isinstance(array, np.ndarray):
            return array
        for attribute in ("__array__", "__dlpack__", "__buffer__"):
            if hasattr(array, attribute):
                return np.asarray(array)
        raise UnsupportedError(
            f"{type(self).__name__}: its arrays have no __array__, DLPack or buffer; define "
            "to_numpy and from_numpy"
        )

    def from_numpy(self, array: np.ndarray) -> Any:
        """An array with the values and dtype of a NumPy array, without a copy where possible."""
        return self._from_host(np.asarray(array))

    def from_torch(self, tensor: Any) -> Any:
        """An array with the values and dtype of a PyTorch tensor."""
        return self._imported(tensor)

    def from_jax(self, array: Any) -> Any:
        """An array with the values and dtype of a JAX array."""
        return self._imported(array)

    def from_mlx(self, array: Any) -> Any:
        """An array with the values and dtype of an MLX array."""
        return self._imported(array)

    def _imported(self, array: Any) -> Any:
        return self.from_numpy(host_values(array))

    # On the CPU arrays of NumPy, PyTorch and JAX share their memory with what they are converted
    # to; MLX lends its memory and copies what it takes.

    def to_torch(self, array: Any) -> Any:
        """A PyTorch tensor with the values and dtype of an array."""
        return self._lent(array, "torch")

    def to_jax(self, array: Any) -> Any:
        """A JAX array with the values and dtype of an array."""
        return self._lent(array, "jax")

    def to_mlx(self, array: Any) -> Any:
        """An MLX array with the values and dtype of an array."""
        return self._lent(array, "mlx")

    def _lent(self, array: Any, to: str) -> Any:
        other = self._other(to)
        if other is self:
            return array
        own = getattr(other, f"from_{self.backend_type}", None)
        if own is None or not hasattr(array, "__dlpack__") or isinstance(array, np.ndarray):
            return other.from_numpy(self.to_numpy(array))
        return own(array)

    def _other(self, name: str) -> Any:
        return self if self.backend_type == name else get_backend(name)

    def _twin(self, name: str = "") -> Any:
        """A backend with the same arrays, by name; without one that which this backend's methods
        run on, mostly itself."""
        name = name or self._methods_run_on
        if not name:
            return self
        twins = self.__dict__.setdefault("_twins", {})
        if name not in twins:
            twins[name] = get_backend(name, dtype=self.default_dtype)
        return twins[name]

    def _runs_ops(self, operands: Iterable[Any] = (), is_data_dependent: bool = False) -> Any:
        """Returns the backend that compiles and runs ops on these operands."""
        return self._twin("numpy" if is_data_dependent and self.runs_plans else "")

    def cast(self, value: Any, dtype: DTypeLike | None = None) -> Any:
        """`value` in another dtype; None: the backend's own."""
        return self.tensor(value, dtype)

    def shape(self, array: Any) -> tuple[int, ...]:
        """The sizes as a tuple of ints."""
        return tuple(int(n) for n in np.shape(array))

    def dtype(self, array: Any) -> Dtype:
        """The element type, which equals its name: `backend.dtype(x) == "float32"`."""
        return as_dtype(array.dtype)

    @property
    def default_int(self) -> Dtype:
        """The type of integers that nobody gave a type."""
        return Dtype.int64

    def _compute_in(self, option: str, dtype: Any) -> None:
        """Sets what programs compute in; the type that values are stored in is no change."""
        asked = None if dtype is None else dtype_of(f"{type(self).__name__}: {option}", dtype)
        halves, wide = (Dtype.float16, Dtype.bfloat16), Dtype.float32
        if asked is None or asked is self.default_dtype:
            return
        between = asked in halves and self.default_dtype is wide
        if not (between or (asked is wide and self.default_dtype in halves)):
            raise UnsupportedError(
                f"{type(self).__name__}: {option}={str(asked)!r}: mixed precision is of float32 "
                f"and a half, and dtype is {self.default_dtype}",
                hint="give dtype='float32' and a half here, or leave it out",
            )
        self.compute_dtype = asked

    @property
    def precision(self) -> int:
        """Bits of the default dtype."""
        return self.default_dtype.itemsize * 8

    pi, e, inf, nan = np.pi, np.e, np.inf, np.nan

    # ------------------------------------------------------------------------------- devices

    def get_device(self) -> str:
        return "cpu"

    @property
    def device(self) -> Any:
        return self.get_device()

    @staticmethod
    def get_available_devices() -> list[str]:
        return ["cpu"]

    def to_device(self, data: Any, device: Any = None, asynchronous: bool = False) -> Any:
        """`data` on another device.

        Raises
        ------
        SignatureError : no device is named, and the backend keeps no memory of a device
        """
        self._need_device(device)
        if device not in self.get_available_devices():
            raise UnsupportedError(f"{type(self).__name__} has one device: {self.get_device()}")
        return data

    def _need_device(self, device: Any) -> None:
        if device is None:
            raise SignatureError(
                f"{type(self).__name__}.to_device: requires a device, such as"
                f" {str(self.get_device())!r}",
                hint="arrays lie where this backend computes: there is nothing to move;"
                " OpenCLBackend and CudaBackend keep arrays on a device by to_device(params)",
            )

    def block_until_ready(self, data: Any = None) -> Any:
        """Waits until `data` (any nest of arrays) is computed, and returns it."""
        return data

    def empty_cache(self) -> None:  # noqa: B027
        """Gives cached memory of the framework back to the device."""

    def get_memory_info(self) -> dict[str, float]:
        """Memory `used`, at its `peak`, and its `limit`: in MiB, and exactly as `…_bytes`."""
        return memory_report(*process_memory())

    # ----------------------------------------------------------------------- differentiation

    # Arguments and results are arrays, or nests of dictionaries, lists and tuples of them. Without
    # a framework that differentiates, the function is recorded as a model at each call.

    def grad(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The gradient of a scalar function with respect to its first argument.

        >>> import mithril as ml
        >>> backend = ml.NumpyBackend()
        >>> slope = backend.grad(lambda p: backend.sum(p["w"] ** 2 * p["s"]))
        >>> slope({"w": backend.array([1.0, 2.0]), "s": backend.array(3.0)})
        {'w': array([ 6., 12.], dtype=float32), 's': array(5., dtype=float32)}
        """

        def gradient(*arguments: Any) -> Any:
            return self.value_and_grad(fn)(*arguments)[1]

        return gradient

    def value_and_grad(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """A function that gives the value and the gradient for the first argument."""

        def value_and_gradient(*arguments: Any) -> tuple[Any, Any]:
            return traced.value_and_grad(self, fn, arguments)

        return value_and_gradient

    def vjp(
        self, fn: Callable[..., Any], primals: Any, *, cotangents: Any = None, has_aux: bool = False
    ) -> tuple[Any, Any, Any]:
        """Output, gradients (or, without cotangents, the pull-back), and auxiliary output.

        `primals` as a dict: ``fn(primals)``; as a list or tuple: ``fn(*primals)``; else one array.

        >>> import mithril as ml
        >>> backend = ml.NumpyBackend()
        >>> x = backend.array([1.0, 2.0])
        >>> ones = backend.ones(2)
        >>> backend.vjp(lambda a, b: a * b, [x, x], cotangents=ones)[1]
        [array([1., 2.], dtype=float32), array([1., 2.], dtype=float32)]
        """
        by_position = isinstance(primals, list | tuple)
        arguments = tuple(primals) if by_position else (primals,)
        output, pull_back, aux = self._pull_back(fn, arguments, has_aux)
        if not has_aux:
            aux = {} if isinstance(cotangents, dict) else []

        def gradients(cotangent: Any) -> Any:
            result = pull_back(cotangent)
            return list(result) if by_position else result[0]

        return output, gradients if cotangents is None else gradients(cotangents), aux

    def jvp(self, fn: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
        """Output, and its derivative along `tangents`, which have the form of `primals` (`vjp`)."""
        by_position = isinstance(primals, list | tuple)
        arguments, along = (primals, tangents) if by_position else ((primals,), (tangents,))
        return self._push_forward(fn, tuple(arguments), tuple(along))

    def vmap(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function over the first axis of all arrays, results stacked along a new first one."""

        def mapped(*arguments: Any) -> Any:
            return traced.vmap(self, fn, arguments)

        return mapped

    def jacrev(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The Jacobian of a function of one array: shape of the result, then of the argument."""

        def jacobian(x: Any) -> Any:
            return traced.jacobian(self, fn, x)

        return jacobian

    def jacfwd(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """As `jacrev`; frameworks go forward, which is cheaper for few inputs."""
        return self.jacrev(fn)

    def jacobian(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The same as `jacrev`."""
        return self.jacrev(fn)

    def _pull_back(self, fn: Callable[..., Any], arguments: tuple[Any, ...], has_aux: bool) -> Any:
        return traced.pull_back(self, fn, arguments, has_aux)

    def _push_forward(
        self, fn: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        return traced.push_forward(self, fn, primals, tangents)

    def accumulate_grads(self, gradient: Any, input: Any, *_: Any) -> Any:
        """A gradient summed over the axes along which `input` was repeated to its shape."""
        shape, given = self.shape(input), self.shape(gradient)
        lead = len(given) - len(shape)
        axes = tuple(range(lead)) + tuple(
            lead + i for i, n in enumerate(shape) if n == 1 and given[lead + i] != 1
        )
        summed = self.sum(gradient, axis=axes) if axes else gradient
        return self.reshape(summed, shape)

    def convert_to_logical(self, input: Any, force: bool = False) -> Any:
        """An `ml.Dtype` for a dtype of any library; other values as they are.

        Raises
        ------
        DTypeError : with `force`, for what is no dtype
        """
        try:
            return as_dtype(input)
        except DTypeError:
            if force:
                raise
            return input

    def jit(self, fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        raise UnsupportedError(f"{type(self).__name__} has no compiler for Python functions")

    # ------------------------------------------------------------------------- running graphs

    def _runs_on_host(self, op: str) -> bool:
        """Tells whether a device leaves the op to the engine's kernels."""
        return False

    # ---------------------------------------------------------------- own functions by name

    @property
    def _custom(self) -> dict[str, Callable[..., Any]]:
        return self.__dict__.setdefault("_custom_functions", {})

    def register_function(self, name: str, function: Callable[..., Any]) -> None:
        """Makes `function` known to `call_custom`, `PrimitiveModel` and `ml.Lambda` under a name.

        `backward_<name>`, called as ``f(grad_output, inputs, outputs)``, gives the gradients of the
        inputs on backends that do not differentiate by themselves.

        Raises
        ------
        SignatureError : a name that is no string, or what is no function
        """
        key = checked_str("register_function: name", name)
        if not callable(function):
            raise SignatureError(
                f"register_function: {key!r} requires a function, got {shown(function)}"
            )
        self._custom[key] = function

    @_on_class_and_instance
    def register_primitive(
        cls: Any,  # noqa: N805
        fn: Callable[..., Any],
        fn_grad: Callable[..., Any] | None = None,
    ) -> None:
        """Makes `fn` the kernel of the models whose formula key is its name (`PrimitiveModel`).

        It counts for the class that it is called on (or of the instance) and its subclasses:
        ``ml.Backend.register_primitive`` is for every backend. `fn` takes tensors by position and
        other values by name. `fn_grad` is its gradient, called for each input as
        ``fn_grad(output_gradient, cache, idx, *inputs)`` with an empty dictionary as `cache`;
        without it frameworks differentiate `fn`, and backends without a framework cannot.

        >>> import mithril as ml
        >>> def cube(input):
        ...     return input**3
        >>> def cube_grad(output_gradient, cache, idx, input):
        ...     return 3 * input**2 * output_gradient
        >>> ml.NumpyBackend.register_primitive(cube, cube_grad)
        >>> anything = ml.IOKey(shape=[("Any", ...)], type=ml.Tensor[float])
        >>> model = ml.Model()
        >>> model |= ml.models.CustomPrimitiveModel("cube", input=anything, output=anything)(
        ...     input="x", output="y")
        >>> pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2]}, trainable_keys={"x"})
        >>> pm.evaluate({"x": [1.0, 2.0]}, output_gradients={"y": [1.0, 1.0]}).gradients
        {'x': array([ 3., 12.], dtype=float32)}
        """
        name = checked_kernel(fn, fn_grad)
        table: dict[str, Any] | None = vars(cls).get("_primitives")
        if table is None:
            cls._primitives = table = {}
        table[name] = fn
        table.pop(f"backward_{name}", None)
        if fn_grad is not None:
            table[f"backward_{name}"] = _GradientsByInput(fn_grad)

    def _kernel(self, name: str) -> Callable[..., Any] | None:
        """The function of that name: of this instance, of its class, of a class above."""
        tables = [self._custom, *(vars(cls).get("_primitives", {}) for cls in type(self).__mro__)]
        return next((table[name] for table in tables if name in table), None)

    def call_custom(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Calls the function that `register_function` registered under a name.

        >>> import mithril as ml
        >>> backend = ml.NumpyBackend()
        >>> backend.register_function("twice", lambda x: 2 * x)
        >>> backend.call_custom("twice", 4)
        8

        Raises
        ------
        ArgumentError : no function has that name
        """
        if name not in self._custom:
            known = ", ".join(map(repr, self._custom)) or "none"
            near = suggestion(name, list(self._custom))
            raise ArgumentError(
                f"Custom function {shown(name)} not registered{near}",
                hint=f"call_custom of {type(self).__name__} knows {known}; "
                "register_function(name, function) adds one",
            )
        return self._custom[name](*arguments, **options)

    # --------------------------------------------------------------------------- ops as methods

    if TYPE_CHECKING:
        ops: Any  # subclasses may have a table as it is
    else:

        @property
        def ops(self) -> Any:
            """The table of functions that emitted text calls."""
            return importlib.import_module(self._ops_module)

    @functools.cached_property
    def op_names(self) -> frozenset[str]:
        """Names of the functions in `ops`: the ops that this backend runs as a whole."""
        return frozenset(
            name
            for name, value in vars(self.ops).items()
            if callable(value) and not name.startswith("_") and not isinstance(value, type)
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        if name in Dtype.__members__:
            return self.dtype_map[Dtype(name)]
        return self._op(name)

    def _op(self, name: str) -> Any:
        """Returns an op as a method where no class defines one of that name."""
        op = _ALIASES.get(name, name)
        method = methods.find(self, op)
        if method is None and op in self.op_names:
            method = functools.partial(self._apply, op)
        if method is None:
            near = suggestion(name, [*self.op_names, *methods.names()])
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{near}")
        return method

    def __dir__(self) -> list[str]:
        own = set(super().__dir__())
        return sorted(own | self.op_names | set(_ALIASES) | methods.names())

    def _apply(self, function: str, *operands: Any, **options: Any) -> Any:
        """A function of `ops` that is no op of the registry; on connections it is recorded."""
        if any(map(is_symbolic, (*operands, *options.values()))):
            return record(function, operands, options)
        arrays = [self._operand(x) for x in operands]
        with self._scope_of_dtypes(self.dtype(x) for x in arrays if self._is_native(x)):
            try:
                return self._as_array(getattr(self.ops, function)(*arrays, **options))
            except methods.OF_ARGUMENTS as error:
                raise self._error_of_table(function, error, arrays) from None

    def _error_of_table(self, op: str, error: Exception, operands: Sequence[Any]) -> Exception:
        """Returns the error to raise: ours for wrong arguments, else the framework's own error."""
        if isinstance(error, MithrilError):
            return error
        is_numpy = self.is_manualgrad and not isinstance(error, RuntimeError)
        if not is_numpy and not methods.is_plain(error):
            return error
        return methods.typed(op, error, operands)

    def _operand(self, value: Any) -> Any:
        is_data = isinstance(value, np.ndarray | np.generic | list)
        return self.tensor(value) if is_data and not self._is_native(value) else value

    def _is_native(self, value: Any) -> bool:
        return isinstance(value, self.get_backend_array_type())

    def get_backend_array_type(self) -> type:
        """The type of this backend's arrays."""
        return np.ndarray

    def _as_array(self, result: Any) -> Any:
        return result
