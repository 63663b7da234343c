"""The common base of backends whose framework has automatic differentiation."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from mithril.backends.backend import Backend
from mithril.errors import (
    ArgumentError,
    DeviceNotAvailable,
    MithrilWarning,
    SignatureError,
    UnsupportedError,
    shown,
    warn,
)

__all__ = ["AutogradBackend"]


class AutogradBackend(Backend):
    """A backend whose framework differentiates Python functions.

    A subclass defines `grad` and `value_and_grad` besides the three methods of `Backend`.
    """

    is_manualgrad = False
    compiles_steps = True  # whether a compiler sees gradients and updates together
    # (function, pull_back) -> the function as the framework differentiates it by
    # pull_back(gradient, output, inputs); None: the engine makes programs of gradients instead.
    with_gradient: Callable[..., Any] | None = None

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The gradient of a scalar function with respect to its first argument."""

        def gradient(*arguments: Any) -> Any:
            return self.value_and_grad(function)(*arguments)[1]

        return gradient

    def _argument(self, values: np.ndarray) -> Any:
        """Converts values to an argument of compiled functions, the quickest way."""
        return self.tensor(values, values.dtype)

    def _constant(self, value: Any) -> Any:
        return value if isinstance(value, str) else self._from_host(value)


def one_of(**synonyms: Any) -> Any:
    """Returns the value of an option that has several names; None where none is given."""
    given = {name: value for name, value in synonyms.items() if value is not None}
    values = list(given.values())
    if any(value != values[0] for value in values[1:]):
        both = " and ".join(f"{name}={value!r}" for name, value in given.items())
        raise SignatureError(f"{both} are the same option with different values")
    return values[0] if values else None


def require(module: str, title: str, install: str) -> Any:
    """Imports the framework's module; raises an error with the line that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DeviceNotAvailable(
            f"{title} is not installed ({error})", hint=f"pip install {install}"
        ) from error


def switch(backend: str, **options: Any) -> bool | None:
    """Returns the bool of an option that has several names; None where it is not given."""
    for name, value in options.items():
        if value is not None and not isinstance(value, bool):
            raise SignatureError(f"{backend}: {name} requires True or False, got {shown(value)}")
    chosen: bool | None = one_of(**options)
    return chosen


def unsupported(backend: str, option: str, reason: str, hint: str) -> UnsupportedError:
    """Returns the error for an option that this version does not support."""
    return UnsupportedError(f"{backend}: {option}: {reason}", hint=hint)


def mesh_of_one(backend: str, device_mesh: Any) -> tuple[int, ...] | None:
    """Returns the sizes of a mesh, which may hold no more than one device."""
    if device_mesh is None:
        return None
    sizes = mesh_sizes(backend, device_mesh)
    if any(size != 1 for size in sizes):
        raise unsupported(
            backend,
            f"device_mesh={sizes}",
            "this version computes on one device",
            "leave device_mesh out",
        )
    return sizes


def mesh_sizes(backend: str, device_mesh: Any) -> tuple[int, ...]:
    """Returns the sizes of a mesh of devices as a tuple; a number is a tuple of one."""
    one = isinstance(device_mesh, int)
    sizes = (device_mesh,) if one else device_mesh
    if not isinstance(sizes, tuple | list) or not all(_is_count(size) for size in sizes):
        raise ArgumentError(
            f"{backend}: device_mesh requires sizes of at least 1, got {shown(device_mesh)}"
        )
    return tuple(sizes)


def _is_count(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size > 0


def warn_of_absent(backend: str, option: str, reason: str) -> None:
    """Warns that hardware or a library lacks what an option asks for."""
    warn(f"{backend}: {option} has no effect: {reason}", MithrilWarning)
