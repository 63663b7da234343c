"""Functions that users register, on the reference: NumPy in float64, differentiated by differences.

No gradient rule of the user's takes part, so that a wrong one is found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from mithril.errors import UnsupportedError

_BACKWARD = "backward_"
_MOST_ELEMENTS = 20_000  # of the operands: each is moved by itself


def lend(reference: Any, backends: Iterable[Any]) -> None:
    """Registers on the reference what backends have registered, of each name the first one."""
    for backend in backends:
        for name, function in _registered(backend).items():
            if name.startswith(_BACKWARD) or name in reference._custom:
                continue
            lent = _on_numpy(backend, function)
            reference.register_function(name, lent)
            reference.register_function(_BACKWARD + name, _by_differences(name, lent))


def _registered(backend: Any) -> dict[str, Callable[..., Any]]:
    return {**type(backend).registered_primitives, **backend._custom}


def _on_numpy(backend: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on NumPy's arrays, as it is where it takes them; else through the backend's."""

    def lent(*operands: Any, **named: Any) -> Any:
        try:
            result = function(*operands, **named)
            if isinstance(result, np.ndarray | np.generic):
                return result
        except Exception:  # it is made for another library
            if backend._is_native(np.zeros(1)):
                raise
        own = [backend._from_host(x) if isinstance(x, np.ndarray) else x for x in operands]
        result = function(*own, **named)
        return backend.to_numpy(result) if hasattr(result, "shape") else np.asarray(result)

    return lent


def _by_differences(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A gradient rule by central differences of fourth order."""

    def gradients(cotangent: Any, operands: tuple[Any, ...], _outputs: Any) -> tuple[Any, ...]:
        count = sum(np.size(x) for x in operands if _is_float(x))
        if count > _MOST_ELEMENTS:
            raise UnsupportedError(
                f"verify: differences of {name!r} move each element of its operands by itself,"
                f" which are {count}, more than {_MOST_ELEMENTS}",
                hint="give smaller shapes",
            )
        return tuple(
            _gradient(function, cotangent, operands, at) if _is_float(x) else None
            for at, x in enumerate(operands)
        )

    return gradients


def _is_float(value: Any) -> bool:
    return getattr(value, "dtype", np.dtype(int)).kind == "f"


def _gradient(function: Any, cotangent: Any, operands: tuple[Any, ...], at: int) -> np.ndarray:
    x = np.asarray(operands[at], np.float64)
    out = np.zeros_like(x)

    def value(index: Any, step: float) -> float:
        moved = x.copy()
        moved[index] += step
        return float(np.sum(cotangent * function(*operands[:at], moved, *operands[at + 1 :])))

    for index in np.ndindex(x.shape):
        h = 5e-4 * max(1.0, math.fabs(x[index]))
        near, far = (value(index, k * h) - value(index, -k * h) for k in (1, 2))
        out[index] = (8.0 * near - far) / (12.0 * h)
    return out


__all__ = ["lend"]
