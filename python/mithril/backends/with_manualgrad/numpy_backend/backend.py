"""Runs models on NumPy arrays, line by line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from mithril.backends.backend import Backend
from mithril.base.arrays import host_values
from mithril.base.public import public
from mithril.errors import DataOverflowError, DeviceNotAvailable, DTypeError, shown
from mithril.types import Dtype, DTypeLike, as_dtype

__all__ = ["NumpyBackend", "as_numpy"]


def as_numpy(data: Any, dtype: DTypeLike | None, default_float: Dtype, default_int: Dtype):
    """A new NumPy array with the values of `data`.

    Without `dtype` floats take the backend's type, Python integers its integer type, and arrays of
    integers or bools keep their own.
    """
    values = host_values(data)
    if dtype is None:
        dtype = _own_dtype(data, values, default_float, default_int)
        if values.dtype.kind in "iu" and values.dtype.itemsize > dtype.itemsize and values.size:
            bounds = np.iinfo(dtype.numpy())  # nobody asked for fewer bits
            if values.min() < bounds.min or values.max() > bounds.max:
                raise DataOverflowError(f"array: values do not fit {dtype}; give dtype='int64'")
    wanted = as_dtype(dtype)
    if values.dtype.kind in "USO" and not all(isinstance(x, Real) for x in values.flat):
        raise _no_numbers(values)  # NumPy reads text, and makes NaN of None
    try:
        made = np.array(values, wanted.numpy(), order="C")
    except OverflowError:
        raise DataOverflowError(f"array: values do not fit {wanted}") from None
    except (TypeError, ValueError):
        raise _no_numbers(values) from None
    # Buffers of others may hold other bytes than 0 and 1.
    return np.asarray(made.view(np.uint8) != 0) if made.dtype == bool else made


def _own_dtype(data: Any, values: np.ndarray, default_float: Dtype, default_int: Dtype) -> Dtype:
    kind = values.dtype.kind
    if kind == "f" or values.dtype.name == "bfloat16":
        return default_float
    if kind == "b":
        return Dtype.bool
    if kind in "iu":
        return as_dtype(values.dtype) if hasattr(data, "dtype") else default_int
    raise _no_numbers(values)


def _no_numbers(values: np.ndarray) -> DTypeError:
    return DTypeError(f"array: numbers are required, got elements of type {values.dtype}")


class NumpyBackend(Backend):
    """NumPy on the CPU.

    Parameters
    ----------
    device : only "cpu".
    dtype : float16, bfloat16, float32 (default) or float64; what floats are stored in.
    seed : of the backend's random numbers.
    compute_precision : the float type of mixed precision (docs/low_precision.md): a half beside
        float32 as `dtype`, or float32 beside a half; None: `dtype` alone.

    >>> backend = NumpyBackend(dtype="float64")
    >>> backend.add(backend.array([1.0, 2.0]), 1)
    array([2., 3.])
    """

    backend_type = "numpy"
    _ops_module = "mithril.backends.with_manualgrad.numpy_backend.ops"
    _runs_own_arrays = True

    @public
    def __init__(
        self,
        device: str = "cpu",
        dtype: DTypeLike = Dtype.float32,
        *,
        seed: int = 0,
        compute_precision: DTypeLike | None = None,
    ) -> None:
        if not isinstance(device, str) or device not in ("cpu", "cpu:0"):
            raise DeviceNotAvailable(
                f"{type(self).__name__}: no device {shown(device)}; available: cpu"
            )
        super().__init__(dtype=dtype, seed=seed)
        self._compute_in("compute_precision", compute_precision)

    def tensor(self, data: Any, dtype: DTypeLike | None = None) -> np.ndarray:
        return as_numpy(data, dtype, self.default_dtype, self.default_int)

    def _from_host(self, values: np.ndarray, dtype: DTypeLike | None = None) -> np.ndarray:
        return self.tensor(values, values.dtype if dtype is None else dtype)

    def zeros(self, shape: Any, dtype: DTypeLike | None = None) -> np.ndarray:
        return np.zeros(shape, self._or_default(dtype).numpy())

    def ones(self, shape: Any, dtype: DTypeLike | None = None) -> np.ndarray:
        return np.ones(shape, self._or_default(dtype).numpy())

    def empty(self, shape: Any, dtype: DTypeLike | None = None) -> np.ndarray:
        return np.empty(shape, self._or_default(dtype).numpy())

    def from_numpy(self, array: np.ndarray) -> np.ndarray:
        return np.asarray(array)

    def _is_native(self, value: Any) -> bool:
        return isinstance(value, np.ndarray | np.generic) and value.dtype.isnative

    def _as_array(self, result: Any) -> Any:
        return np.asarray(result) if isinstance(result, np.generic) else result

    def _call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
        with np.errstate(all="ignore"):
            outputs = function(*inputs)
        return own_memory(outputs, inputs)


def own_memory(outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    """The outputs as arrays that share no memory with inputs or with one another."""
    taken = {id(x) for x in inputs}
    result = []
    for output in outputs:
        if isinstance(output, np.generic):
            output = np.asarray(output)
        elif isinstance(output, np.ndarray) and (output.base is not None or id(output) in taken):
            output = np.array(output, order="C")
        taken.add(id(output))
        result.append(output)
    return result
