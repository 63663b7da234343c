"""The files of a new backend's package, as templates of `string.Template`."""

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$name"
version = "0.1.0"
description = "A backend of mithril over $library."
requires-python = ">=3.11"
dependencies = ["mithril", "numpy>=2"]

# What makes ml.get_backend("$name") work once the package is installed.
[project.entry-points."mithril.backends"]
$name = "$name.backend:$cls"

[tool.setuptools]
packages = ["$name"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""

README = """\
# $name

A backend of mithril: `$cls` runs models on arrays of $library.

    python -m pytest              # values, gradients and errors of what it defines
    pip install .                 # then: ml.get_backend("$name")

- `$name/backend.py` makes arrays, and names the operations that are its own. What it does not name
  runs on NumPy, so that each model works from the first day.
- `$name/ops.py` has these operations as functions.
- `$name/utils.py` turns element types and data into those of the library.

An operation more: a function in `ops.py`, a method of that name in `$cls`, its name in
`tests/test_backend.py`. Where its gradient should be yours, too, add `backward_<name>`.
"""

INIT = '''\
"""A backend of mithril over $library."""

import mithril as ml

from .backend import $cls

__all__ = ["$cls"]

ml.register_backend("$name", $cls)
'''

BACKEND = '''\
"""Makes arrays, and names the operations that run on them."""

from typing import Any

from mithril.backends.backend import Backend

from . import ops
from .utils import as_array, native, xp


class $cls(Backend):
    """Runs models on arrays of $library.

    A method with the name of an operation is that operation in compiled models;
    `backward_<name>(grad_output, inputs, outputs)` is its gradient. All other operations run on
    NumPy, and gradients are those of mithril's engine.
    """

    backend_type = "$name"

    # ------------------------------------------------------------------------------- arrays

    def tensor(self, data: Any, dtype: Any = None) -> Any:
        return as_array(data, dtype, self.default_dtype)

    def zeros(self, shape: Any, dtype: Any = None) -> Any:
        return xp.zeros(tuple(shape), dtype=native(dtype or self.default_dtype))

    def ones(self, shape: Any, dtype: Any = None) -> Any:
        return xp.ones(tuple(shape), dtype=native(dtype or self.default_dtype))

    def get_backend_array_type(self) -> type:
        return type(xp.zeros(()))

    # ------------------------------------------------------------------------------- operations

    def add(self, left: Any, right: Any) -> Any:
        return ops.add(left, right)

    def multiply(self, left: Any, right: Any) -> Any:
        return ops.multiply(left, right)

    def matmul(self, left: Any, right: Any) -> Any:
        return ops.matmul(left, right)

    def tanh(self, input: Any) -> Any:
        return ops.tanh(input)

    def backward_tanh(self, grad_output: Any, inputs: tuple, outputs: tuple) -> Any:
        return ops.backward_tanh(grad_output, outputs[0])
'''

OPS = '''\
"""The operations of this backend, on arrays of the library."""

from typing import Any

from .utils import native, xp


def add(left: Any, right: Any) -> Any:
    # The array API standard adds and multiplies numbers only.
    return xp.logical_or(left, right) if _are_bools(left, right) else xp.add(left, right)


def multiply(left: Any, right: Any) -> Any:
    return xp.logical_and(left, right) if _are_bools(left, right) else xp.multiply(left, right)


def _are_bools(*operands: Any) -> bool:
    bools = native("bool")
    return all(getattr(operand, "dtype", None) == bools for operand in operands)


def matmul(left: Any, right: Any) -> Any:
    return xp.matmul(left, right)


def tanh(x: Any) -> Any:
    return xp.tanh(x)


def backward_tanh(grad_output: Any, y: Any) -> Any:
    """The derivative of tanh is 1 - tanh², and y is tanh already."""
    return grad_output * (1 - y * y)
'''

UTILS = '''\
"""The library, its element types, and data on their way to it."""

import importlib
from typing import Any

import mithril as ml
import numpy as np

xp = importlib.import_module("$library")


def native(dtype: Any) -> Any:
    """The library's own element type; what it has none for is unsupported, not wrong."""
    name = str(ml.as_dtype(dtype))
    found = getattr(xp, name, None)
    if found is None:
        raise ml.errors.UnsupportedError(f"$library has no element type {name}")
    return found


def as_array(data: Any, dtype: Any, default: Any) -> Any:
    """A new array with the values of `data`; floats of Python have the default type."""
    values = np.from_dlpack(data) if _is_foreign(data) else np.asarray(data)
    if dtype is None:
        dtype = default if values.dtype.kind == "f" else str(values.dtype)
    wanted = ml.as_dtype(dtype)
    return xp.asarray(np.array(values, wanted.numpy()), dtype=native(wanted))


def _is_foreign(data: Any) -> bool:
    return hasattr(data, "__dlpack__") and not hasattr(data, "__array__")


__all__ = ["as_array", "native", "xp"]
'''

TEST = '''\
"""Checks the backend against the oracle and numbers written down by hand."""

import mithril as ml
import numpy as np
import pytest
from mithril.testing import run_backend_tests

from $name import $cls

OWN = ["add", "multiply", "matmul", "tanh"]
CREATION = ["Backend.tensor", "Backend.zeros", "Backend.ones"]
DTYPES = ["float32"]  # None: all of them


def test_own_operations():
    results = run_backend_tests($cls(), ops=OWN, samples=3, dtypes=DTYPES)
    assert results.passed == len(OWN), results.to_markdown()


def test_arrays():
    results = run_backend_tests($cls(), ops=CREATION)
    assert results.failed == 0, results.to_markdown()


def test_all_operations():
    """Those of NumPy, too, on arrays of this backend; takes some seconds."""
    results = run_backend_tests($cls(), samples=1, dtypes=DTYPES)
    assert results.failed == 0, results.to_markdown()


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_element_types(dtype):
    backend = $cls()
    for array in (backend.tensor([0, 1], dtype), backend.zeros(2, dtype), backend.ones(2, dtype)):
        assert backend.dtype(array) == dtype


def test_a_model_of_one_layer():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="h")
    model |= ml.Tanh()(input="h", output="y")
    pm = ml.compile(model, $cls(), data_keys={"x"}, shapes={"x": [3, 4]})
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype("float32") for s in ((3, 4), (2, 4), (2,)))
    ones = np.ones((3, 2), "float32")
    outputs, gradients = pm.evaluate({"w": w, "b": b}, {"x": x}, output_gradients={"y": ones})
    y = np.tanh(x @ w.T + b)
    np.testing.assert_allclose(np.asarray(outputs["y"]), y, atol=1e-5)
    np.testing.assert_allclose(np.asarray(gradients["w"]), (1 - y**2).T @ x, atol=1e-5)


def test_it_has_a_name():
    assert isinstance(ml.get_backend("$name"), $cls)
'''

FILES = {
    "pyproject.toml": PYPROJECT,
    "README.md": README,
    "$name/__init__.py": INIT,
    "$name/backend.py": BACKEND,
    "$name/ops.py": OPS,
    "$name/utils.py": UTILS,
    "tests/test_backend.py": TEST,
}

__all__ = ["FILES"]
