"""What the tests of rows share: small models, backends by name, the documents' blocks."""

import importlib
from pathlib import Path

import mithril as ml
import numpy as np
import pytest

EVERY = ("numpy", "cpu", "c", "torch", "jax", "mlx", "ggml")
FRAMEWORKS = ("torch", "jax", "mlx")
ROOT = Path(__file__).resolve().parent.parent.parent.parent
X = np.linspace(-1.0, 1.0, 12).reshape(4, 3)
W = np.arange(6.0).reshape(2, 3) / 4
B = np.array([0.5, -0.25])

every = pytest.mark.parametrize("name", EVERY)


def needs(module):
    return pytest.importorskip(module)


def backend_of(name, **options):
    """A backend by its name; the test is skipped where its framework is not there."""
    if name in FRAMEWORKS or name == "ggml":
        needs({"mlx": "mlx.core"}.get(name, name))
    return ml.get_backend(name, **options)


def values(backend, array):
    return np.asarray(backend.to_numpy(array), np.float64)


def linear():
    """y = x @ w.T + b."""
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    model.expose_keys("y")
    return model


def compiled(model=None, backend=None, **options):
    options.setdefault("data_keys", {"x"})
    return ml.compile(model or linear(), backend or ml.NumpyBackend(), **options)


PARAMS = {"w": W, "b": B}


def close(got, want, rtol=1e-5, atol=1e-6):
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=rtol, atol=atol)


def attribute(path):
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
