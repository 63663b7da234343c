"""Compose a model once; train and run it on a native CPU engine, NumPy, PyTorch, JAX and MLX.

Importing this package loads no array library: names are resolved when they are first used.
"""

import importlib

from mithril.base import process as _process
from mithril.base import version as _version

_process.refuse_subinterpreters()

__version__ = _version.PACKAGE_VERSION

# Pickles of earlier versions name modules that have other places now.
__path__.append(f"{__path__[0]}/_former")

# Public name -> the module that holds it, for everything but models, backends and dtypes.
_LAZY: dict[str, str] = {
    "compile": "mithril.compile",
    **dict.fromkeys(("PhysicalModel", "Uninitialized", "transfer"), "mithril.physical"),
    **dict.fromkeys(
        ("Connection", "IOKey", "Tensor", "Model", "ExtendInfo"), "mithril.logical.model"
    ),
    **dict.fromkeys(("get_backend", "register_backend"), "mithril.backends.registry"),
    "Array": "mithril._core",
    "TrainModel": "mithril.training.training_model",
    "Lambda": "mithril.models.tracing",
    **dict.fromkeys(("grad", "hvp"), "mithril.models.derivatives"),
    "verify": "mithril.testing.verification",
    **dict.fromkeys(("tune", "Tuning"), "mithril.inspection.tuning"),
    "recommend_backend": "mithril.inspection.recommendation",
    **dict.fromkeys(("Saved", "load"), "mithril.formats.saved_model"),
    **dict.fromkeys(("load_gguf", "save_gguf"), "mithril.formats.gguf"),
}
_BACKENDS = (
    "Backend",
    "CBackend",
    "CpuBackend",
    "CudaBackend",
    "GGMLBackend",
    "JaxBackend",
    "MLXBackend",
    "MlxBackend",
    "NumpyBackend",
    "OpenCLBackend",
    "TorchBackend",
)
_TYPES = (
    "Constant",
    "DTypeLike",
    "Dtype",
    "NOT_GIVEN",
    "PaddingType",
    "TBD",
    "as_dtype",
    "epsilon_table",
    *("DataType", "PhysicalConstantType", "PhysicalShapeType"),
    *("uint8", "int8", "int16", "int32", "int64", "short", "int", "long", "half"),
    *("float16", "bfloat16", "float32", "float64", "float", "double", "bool"),
)
_MODULES = (
    *("backends", "errors", "inspect", "models", "optim", "testing", "types"),
    *("cli", "common", "compat", "constraints", "contrib", "cores", "examples", "formats"),
    *("framework", "training", "utils"),
)


def _find(name: str):
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name in _TYPES:
        return getattr(importlib.import_module("mithril.types"), name)
    if name in _MODULES:
        return importlib.import_module(f"mithril.{name}")
    if name in _BACKENDS:
        return getattr(importlib.import_module("mithril.backends"), name)
    errors = importlib.import_module("mithril.errors")
    if name in errors.__all__:
        return getattr(errors, name)
    return _find_model(name)


def _find_model(name: str):
    models = importlib.import_module("mithril.models")
    try:
        return getattr(models, name)
    except AttributeError:
        errors = importlib.import_module("mithril.errors")
        peers = importlib.import_module("mithril.base.peer_names")
        hint = peers.name_here(name) or errors.suggestion(name, __dir__())
        raise errors.UnknownNameError(f"module 'mithril' has no attribute {name!r}{hint}") from None


def __getattr__(name: str):
    if name == "__all__":
        value: object = _for_star()
    elif name.startswith("__") or name == "_core":
        raise AttributeError(f"module 'mithril' has no attribute {name!r}")
    else:
        value = _find(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    names = {*globals(), *_offered()} - {"importlib"}
    return sorted(name for name in names if not name.startswith("_"))


def _offered() -> set[str]:
    errors = importlib.import_module("mithril.errors")
    models = importlib.import_module("mithril.models")
    return {*_LAZY, *_TYPES, *_MODULES, *_BACKENDS, *errors.__all__, *models.__all__}


def _for_star() -> list[str]:
    """Lists the names that `from mithril import *` brings, but for those of builtins and standard
    modules, such as `int`, `compile` and `inspect`."""
    import builtins
    import sys

    names = _offered() - sys.stdlib_module_names
    return sorted(name for name in names if not hasattr(builtins, name))
