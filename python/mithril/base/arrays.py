"""Arrays of other libraries, as NumPy reads them."""

from __future__ import annotations

from typing import Any

from mithril._core import Array
from mithril.base.numpy import np
from mithril.types import Dtype

__all__ = ["host_values", "is_device_array", "is_mlx", "mlx_values"]


def host_values(data: Any) -> np.ndarray:
    """`data` as a NumPy array: anything with a buffer, DLPack or `__array__`, lists, numbers."""
    if hasattr(data, "detach"):  # PyTorch: on any device, with or without a graph
        data = data.detach().cpu()
        if str(data.dtype) == "torch.bfloat16":
            return data.float().numpy().astype(Dtype.bfloat16.numpy())
    return mlx_values(data) if is_mlx(data) else np.asarray(data)


def is_device_array(value: Any) -> bool:
    """Tells whether it is an `ml.Array`: values in the memory of a device of the engine."""
    return type(value) is Array


def laid_out(value: Any, dtype: Dtype) -> np.ndarray:
    """The array as plans read memory: contiguous, aligned and of the machine's byte order."""
    value = np.asarray(value)  # NumPy's scalars are no arrays
    wanted, flags = dtype.numpy(), value.flags
    if flags.c_contiguous and flags.aligned and value.dtype == wanted:
        return value if value.dtype is wanted else value.view(wanted)
    return np.array(value, wanted, order="C")


def is_mlx(data: Any) -> bool:
    return type(data).__module__ == "mlx.core"


def mlx_values(data: Any) -> np.ndarray:
    """An MLX array over its own memory; its bfloat16 NumPy reads as bits only."""
    if str(data.dtype) != "mlx.core.bfloat16":
        return np.asarray(data)
    import mlx.core as mx

    return np.asarray(data.view(mx.uint16)).view(Dtype.bfloat16.numpy())
