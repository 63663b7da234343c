"""Compose a model once; train and run it on a native CPU engine, NumPy, PyTorch and JAX.

Importing this package loads no array library: names are resolved when they are first used.
"""

import importlib

__version__ = "0.1.0"

# Public name -> the module that holds it.
_LAZY: dict[str, str] = {}


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module 'mithril' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY))
