"""Backends: what makes arrays and runs compiled models. Names are loaded when first used."""

from __future__ import annotations

import importlib
from typing import Any

from mithril.base.process import signals_wait

_LAZY = {
    "Backend": "backend",
    "AutogradBackend": "with_autograd.backend",
    "NumpyBackend": "with_manualgrad.numpy_backend",
    "CpuBackend": "with_manualgrad.cpu_backend",
    "GGMLBackend": "with_manualgrad.ggml_backend",
    "CBackend": "with_manualgrad.c_backend",
    "CudaBackend": "with_manualgrad.cuda_backend",
    "OpenCLBackend": "with_manualgrad.opencl_backend",
    "TorchBackend": "with_autograd.torch_backend",
    "JaxBackend": "with_autograd.jax_backend",
    "MlxBackend": "with_autograd.mlx_backend",
    "MLXBackend": "with_autograd.mlx_backend",
    "available_backends": "registry",
    "get_backend": "registry",
    "register_backend": "registry",
}

__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with signals_wait():
        importlib.import_module("numpy")
    value = getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
