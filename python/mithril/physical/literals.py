"""Constants of the engine as NumPy arrays."""

from __future__ import annotations

from typing import Any

from mithril.errors import DataOverflowError
from mithril.execution.primitives import Kept
from mithril.types import Dtype


def literal_array(
    literal: Any,
    default_float: Dtype = Dtype.float64,
    default_int: Dtype = Dtype.int64,
    widest_int: Dtype = Dtype.int64,
) -> Any:
    """A constant of the engine as a NumPy array; strings stay. Numbers of no width of their own
    have the defaults'. Integers fit what the backend computes in, or that is an error."""
    if isinstance(literal, str | Kept):
        return literal
    from mithril.base.numpy import np

    # Abstract types ("int", "float") are stored in 64 bits.
    names = {"int": Dtype.int64, "float": Dtype.float64}
    dtype = literal.dtype if isinstance(literal.dtype, Dtype) else names[literal.dtype]
    values = np.frombuffer(literal.bytes, dtype.numpy()).reshape(literal.shape)
    if values.dtype == np.int64:
        _check_fit(values, widest_int if isinstance(literal.dtype, Dtype) else default_int)
    if isinstance(literal.dtype, Dtype):
        return values
    with np.errstate(over="ignore"):
        return values.astype({"int": default_int, "float": default_float}[literal.dtype].numpy())


def _check_fit(values: Any, dtype: Dtype) -> None:
    from mithril.base.numpy import np

    bounds = np.iinfo(dtype.numpy())
    outside = values[(values < bounds.min) | (values > bounds.max)]
    if outside.size:
        raise DataOverflowError(f"a constant of the model: {outside[0]} does not fit {dtype}")


__all__ = ["literal_array"]
