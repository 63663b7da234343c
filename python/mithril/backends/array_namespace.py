"""The functions of the Python Array API over a backend whose arrays lie on a device, for libraries
that take the arrays of any framework: ``xp = x.__array_namespace__()``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, cast

from mithril.backends.indexing import counted_axes
from mithril.base.arrays import is_device_array
from mithril.base.numpy import np
from mithril.errors import ArgumentError
from mithril.types import Dtype

__all__ = ["ArrayNamespace"]

VERSIONS = ("2022.12", "2023.12", "2024.12")
_SAME = {
    "abs", "acos", "acosh", "add", "all", "any", "argmax", "argmin", "asin", "asinh", "atan",
    "atan2", "atanh", "bitwise_and", "bitwise_or", "bitwise_xor", "broadcast_to", "clip",
    "concat", "cos", "cosh", "divide", "equal", "exp", "expand_dims", "expm1", "flip",
    "floor_divide", "greater", "greater_equal", "isfinite", "isinf", "isnan", "less",
    "less_equal", "log", "log10", "log1p", "log2", "logical_and", "logical_not", "logical_or",
    "logical_xor", "matmul", "max", "maximum", "mean", "min", "minimum", "moveaxis", "multiply",
    "not_equal", "prod", "reciprocal", "remainder", "reshape", "roll", "sign", "sin", "sinh",
    "sqrt", "square", "squeeze", "stack", "subtract", "sum", "take_along_axis", "tan", "tanh",
    "tile", "where",
}  # fmt: skip
_RENAMED = {
    "bitwise_invert": "bitwise_not",
    "bitwise_left_shift": "shift_left",
    "bitwise_right_shift": "shift_right",
    "negative": "negate",
    "permute_dims": "transpose",
    "pow": "power",
}
_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "float32", "float64")
_CONSTANTS = {"e": math.e, "pi": math.pi, "inf": math.inf, "nan": math.nan, "newaxis": None}
_WHOLE_ABOVE = float(1 << 52)  # no float beyond it has a fraction
_OF_NUMPY = ("can_cast", "finfo", "iinfo", "isdtype", "result_type")


class ArrayNamespace:
    """Has what both the Array API standard and the backend have; other names raise AttributeError.

    Functions take and give `ml.Array`s, numbers as second operands, and axes, ``keepdims=`` and
    ``dtype=`` as the standard has them.

    >>> import mithril as ml
    >>> x = ml.OpenCLBackend("cpu").to_device([1.0, 4.0])  # doctest: +SKIP
    >>> xp = x.__array_namespace__()  # doctest: +SKIP
    >>> xp.sum(xp.sqrt(x))  # doctest: +SKIP
    Array(3., dtype=float32, device='cpu:0')
    """

    def __init__(self, backend: Any, api_version: str | None = None) -> None:
        if api_version not in (None, *VERSIONS):
            raise ArgumentError(
                f"__array_namespace__: api_version is one of {', '.join(VERSIONS)}, got"
                f" {api_version!r}"
            )
        self._backend = backend
        self.__array_api_version__ = api_version or VERSIONS[-1]

    def __getattr__(self, name: str) -> Any:
        if name in _SAME or name in _RENAMED:
            return getattr(self._backend, _RENAMED.get(name, name))
        if name in _DTYPES:
            return Dtype[name].numpy()
        if name in _CONSTANTS:
            return _CONSTANTS[name]
        if name in _OF_NUMPY:
            return _with_dtypes(getattr(np, name))
        raise AttributeError(f"the array namespace of {type(self._backend).__name__} has no {name}")

    def __dir__(self) -> list[str]:
        names = (*_SAME, *_RENAMED, *_DTYPES, *_CONSTANTS, *_OF_NUMPY)
        return sorted({*names, *(name for name in vars(type(self)) if not name.startswith("_"))})

    def __repr__(self) -> str:
        return f"ArrayNamespace({self._backend!r})"

    # --- new arrays -------------------------------------------------------------------------------

    def asarray(
        self, obj: Any, *, dtype: Any = None, device: str | None = None, copy: bool | None = None
    ) -> Any:
        if copy is False and not self._backend._is_here(obj):
            raise ValueError("asarray: copy=False, and the values are not on the device")
        placed = self._backend.to_device(obj, device)
        cast = placed if dtype is None else self.astype(placed, dtype, copy=False)
        return self.astype(cast, cast.dtype) if copy and cast is obj else cast

    def _numpy_dtype(self, dtype: Any) -> Any:
        """The dtype, or that of the backend's floats."""
        return self._backend.default_dtype.numpy() if dtype is None else np.dtype(dtype)

    def _made(self, name: str, arguments: tuple[Any, ...], dtype: Any, device: str | None) -> Any:
        values = getattr(self._backend, name)(*arguments, dtype=_dtype(dtype))
        return self._backend.to_device(values, device)

    def zeros(self, shape: Any, *, dtype: Any = None, device: str | None = None) -> Any:
        return self._made("zeros", (shape,), dtype, device)

    def ones(self, shape: Any, *, dtype: Any = None, device: str | None = None) -> Any:
        return self._made("ones", (shape,), dtype, device)

    def empty(self, shape: Any, *, dtype: Any = None, device: str | None = None) -> Any:
        return self._made("empty", (shape,), dtype, device)

    def full(
        self, shape: Any, fill_value: Any, *, dtype: Any = None, device: str | None = None
    ) -> Any:
        kind = self._numpy_dtype(dtype) if dtype or isinstance(fill_value, float) else None
        return self._backend.to_device(np.full(shape, fill_value, kind), device)

    def eye(
        self, n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None,
        device: str | None = None,
    ) -> Any:  # fmt: skip
        values = np.eye(n_rows, n_cols, k, self._numpy_dtype(dtype))
        return self._backend.to_device(values, device)

    def arange(
        self, start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None,
        device: str | None = None,
    ) -> Any:  # fmt: skip
        bounds = (start,) if stop is None else (start, stop, step)
        if stop is None and step != 1:
            bounds = (0, start, step)
        return self._made("arange", bounds, dtype, device)

    def linspace(
        self, start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: str | None = None,
        endpoint: bool = True,
    ) -> Any:  # fmt: skip
        kind = self._numpy_dtype(dtype)
        values = np.linspace(start, stop, num, endpoint=endpoint, dtype=kind)
        return self._backend.to_device(values, device)

    def _like(
        self, made: Callable[..., Any], x: Any, dtype: Any, device: str | None, *arguments: Any
    ) -> Any:
        kind = x.dtype if dtype is None else dtype
        return made(x.shape, *arguments, dtype=kind, device=device)

    def zeros_like(self, x: Any, /, *, dtype: Any = None, device: str | None = None) -> Any:
        return self._like(self.zeros, x, dtype, device)

    def ones_like(self, x: Any, /, *, dtype: Any = None, device: str | None = None) -> Any:
        return self._like(self.ones, x, dtype, device)

    def empty_like(self, x: Any, /, *, dtype: Any = None, device: str | None = None) -> Any:
        return self._like(self.empty, x, dtype, device)

    def full_like(
        self, x: Any, /, fill_value: Any, *, dtype: Any = None, device: str | None = None
    ) -> Any:
        return self._like(self.full, x, dtype, device, fill_value)

    def from_dlpack(self, x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Any:
        here = self._backend.from_dlpack(x) if copy is not False else self._backend._shared(x)
        if here is None or (copy is False and device not in (None, here.device)):
            raise BufferError(
                "from_dlpack: copy=False, and the values are on another device or not row-major"
            )
        return self._backend.to_device(here.to_numpy() if copy else here, device)

    # --- other arguments than the backend's -------------------------------------------------------

    def astype(self, x: Any, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Any:
        if x.dtype != dtype:
            return self._backend.to_device(self._backend.astype(x, _dtype(dtype)), device)
        return self._backend.to_device(x.to_numpy() if copy else x, device)

    def positive(self, x: Any, /) -> Any:
        return x

    def ceil(self, x: Any, /) -> Any:
        return self._rounded("ceil", x)

    def floor(self, x: Any, /) -> Any:
        return self._rounded("floor", x)

    def round(self, x: Any, /) -> Any:
        return self._rounded("round", x)

    def trunc(self, x: Any, /) -> Any:
        return self._rounded("trunc", x)

    def _rounded(self, name: str, x: Any) -> Any:
        """In the dtype of x; the backend's function gives integers."""
        if x.dtype.kind != "f":
            return x
        whole = self.astype(getattr(self._backend, name)(x), x.dtype)
        return self._backend.where(self._backend.abs(x) < _WHOLE_ABOVE, whole, x)

    def tril(self, x: Any, /, *, k: int = 0) -> Any:
        return self._backend.tril(x, diagonal=k)

    def triu(self, x: Any, /, *, k: int = 0) -> Any:
        return self._backend.triu(x, diagonal=k)

    def var(
        self, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
    ) -> Any:
        return self._backend.var(x, axis=axis, correction=correction, keepdims=keepdims)

    def std(
        self, x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False
    ) -> Any:
        return self._backend.sqrt(self.var(x, axis=axis, correction=correction, keepdims=keepdims))

    def cumulative_sum(self, x: Any, /, *, axis: int | None = None, dtype: Any = None) -> Any:
        return self._running("cumsum", x, axis, dtype)

    def cumulative_prod(self, x: Any, /, *, axis: int | None = None, dtype: Any = None) -> Any:
        return self._running("cumprod", x, axis, dtype)

    def _running(self, name: str, x: Any, axis: int | None, dtype: Any) -> Any:
        if axis is None and x.ndim != 1:
            raise ValueError(f"{name}: axis is required for an array of {x.ndim} dimensions")
        given = x if dtype is None else self.astype(x, dtype, copy=False)
        return getattr(self._backend, name)(given, axis=0 if axis is None else axis)

    def sort(
        self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Any:
        return self._backend.sort(x, axis=axis, descending=descending)

    def argsort(
        self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Any:
        return self._backend.argsort(x, axis=axis, descending=descending)

    def matrix_transpose(self, x: Any, /) -> Any:
        return self._backend.swapaxes(x, -1, -2)

    def vecdot(self, x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
        return self._backend.sum(self._backend.multiply(x1, x2), axis=axis)

    def take(self, x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
        if axis is None and x.ndim != 1:
            raise ValueError(f"take: axis is required for an array of {x.ndim} dimensions")
        (at,) = counted_axes((axis or 0,), x.ndim)
        before = (slice(None),) * at
        return self._backend.index(x, (*before, indices))

    def unstack(self, x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
        (at,) = counted_axes((axis,), x.ndim)
        before = (slice(None),) * at
        return tuple(self._backend.index(x, (*before, i)) for i in range(x.shape[at]))

    def broadcast_arrays(self, *arrays: Any) -> list[Any]:
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        return [self._backend.broadcast_to(x, shape) for x in arrays]

    def nonzero(self, x: Any, /) -> tuple[Any, ...]:
        return tuple(self._backend.to_device(places) for places in np.nonzero(x.to_numpy()))

    def count_nonzero(self, x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Any:
        found = self.astype(self._backend.not_equal(x, 0), np.int64)
        return self._backend.sum(found, axis=axis, keepdims=keepdims)

    def unique_values(self, x: Any, /) -> Any:
        return self._backend.unique(x)

    def meshgrid(self, *arrays: Any, indexing: str = "xy") -> list[Any]:
        if indexing not in ("xy", "ij"):
            raise ValueError(f"meshgrid: indexing requires 'xy' or 'ij', got {indexing!r}")
        values: list[Any] = [x.to_numpy() for x in arrays]
        grids = np.meshgrid(*values, indexing=cast(Literal["xy", "ij"], indexing))
        return [self._backend.to_device(grid) for grid in grids]


def _dtype(dtype: Any) -> Dtype | None:
    """Mithril's dtype of one that the namespace has, which is NumPy's."""
    return None if dtype is None else Dtype[np.dtype(dtype).name]


def _with_dtypes(function: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function of dtypes, which arrays stand for."""

    def on_dtypes(*arguments: Any) -> Any:
        return function(*(x.dtype if is_device_array(x) else x for x in arguments))

    return on_dtypes
