"""Pickles of backends: the arguments that a backend was made with, and the attributes that may have
changed since."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mithril.backends.backend import Backend


def backend_parts(backend: Backend) -> tuple[Any, ...]:
    args, options = backend.constructor_arguments
    kept = {name: copy(value) for name, value in vars(backend).items() if _is_kept(name, value)}
    return backend_of, (type(backend), args, options, kept, backend.get_device())


# Of what a backend has for itself: where its random numbers are, and functions by name.
_KEPT = ("_random_stream", "_custom_functions")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def _is_kept(name: str, value: Any) -> bool:
    """Tells whether an attribute is pickled: plain values are, handles of libraries are not."""
    return name in _KEPT or (not name.startswith("_") and isinstance(value, _PLAIN))


def backend_of(
    cls: type[Backend], args: tuple[Any, ...], options: dict[str, Any], kept: Any, device: str
) -> Backend:
    backend = cls(*args, **options)
    if backend.get_device() != device:
        backend.set_device(device)
    vars(backend).update(kept)
    return backend


__all__ = ["backend_of", "backend_parts"]
