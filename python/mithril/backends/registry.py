"""Backends by name: built in, registered, or offered by installed packages (entry points)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril.base.checks import checked_str
from mithril.base.public import public
from mithril.errors import ArgumentError, KeyNotFound, SignatureError, shown, suggestion
from mithril.execution.interface import CompileTarget

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["available_backends", "get_backend", "register_backend"]

_GROUP = "mithril.backends"
_BUILT_IN = {
    "numpy": "mithril.backends.with_manualgrad.numpy_backend:NumpyBackend",
    "torch": "mithril.backends.with_autograd.torch_backend:TorchBackend",
    "jax": "mithril.backends.with_autograd.jax_backend:JaxBackend",
    "mlx": "mithril.backends.with_autograd.mlx_backend:MlxBackend",
    "cpu": "mithril.backends.with_manualgrad.cpu_backend:CpuBackend",
    "ggml": "mithril.backends.with_manualgrad.ggml_backend:GGMLBackend",
    "c": "mithril.backends.with_manualgrad.c_backend:CBackend",
    "cuda": "mithril.backends.with_manualgrad.cuda_backend:CudaBackend",
    "opencl": "mithril.backends.with_manualgrad.opencl_backend:OpenCLBackend",
}
_registered: dict[str, type] = {}


@public
def register_backend(name: str, backend_class: type) -> None:
    """Makes `get_backend(name)` construct `backend_class`.

    A class that is defined again, as by a cell of a notebook that runs a second time, takes the
    place of its predecessor. ArgumentError where the name is another backend's, or mithril's own.
    """
    if not _is_backend(backend_class):
        raise SignatureError(
            f"register_backend: a subclass of Backend is required, got {shown(backend_class)}"
        )
    if missing := sorted(getattr(backend_class, "__abstractmethods__", ())):
        raise SignatureError(
            f"register_backend: {_path(backend_class)} lacks {', '.join(missing)}",
            hint="define them; `mithril new-backend` writes a class that has all",
        )
    if not checked_str("register_backend: name", name):
        raise ArgumentError("register_backend: a name may not be empty")
    owner = _owner(name, backend_class)
    if owner is not None and owner != _path(backend_class):
        raise ArgumentError(
            f"register_backend: the name {shown(name)} is taken by {owner}",
            hint="register the class under another name",
        )
    _registered[name] = backend_class


def _is_backend(what: Any) -> bool:
    return isinstance(what, type) and issubclass(what, CompileTarget)


def _path(backend_class: type) -> str:
    return f"{backend_class.__module__}:{backend_class.__qualname__}"


def _owner(name: str, by: type) -> str | None:
    """Tells which class has a name, as `module:class`; a package may register what it offers."""
    if name in _registered:
        return _path(_registered[name])
    if name in _BUILT_IN or name not in (plugins := _plugins()):
        return _BUILT_IN.get(name)
    value = plugins[name].value
    is_own = value.partition(":")[0].partition(".")[0] == by.__module__.partition(".")[0]
    return None if is_own else value


@public
def get_backend(name: str, **options: Any) -> Any:
    """An instance of the backend of that name."""
    return backend_class(checked_str("get_backend: name", name))(**options)


def backend_class(name: str) -> type:
    """The class of the backend of that name."""
    if name in _registered:
        return _registered[name]
    if name in _BUILT_IN:
        module, _, attribute = _BUILT_IN[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    plugins = _plugins()
    if name in plugins:
        loaded = plugins[name].load()
        if _is_backend(loaded):
            return loaded
        raise SignatureError(
            f"get_backend: the entry point {name} = {plugins[name].value} of {_GROUP} is no"
            f" subclass of Backend, but {shown(loaded)}"
        )
    known = available_backends()
    raise KeyNotFound(
        f"get_backend: no backend named {shown(name)}{suggestion(name, known)};"
        f" known: {', '.join(known)}"
    )


def built_in_backends() -> list[str]:
    """Those that come with mithril, in the order of the pages."""
    return list(_BUILT_IN)


@public
def available_backends() -> list[str]:
    """All names that `get_backend` knows."""
    return sorted({*_BUILT_IN, *_registered, *_plugins()})


def _plugins() -> dict[str, EntryPoint]:
    if _core.plugins_disabled():
        return {}
    from importlib import metadata  # takes 20 ms to import: longer than most programs to compile

    return {point.name: point for point in metadata.entry_points(group=_GROUP)}
