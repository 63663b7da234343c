"""Second derivatives of every op, on every backend: values, and the types of both derivatives."""

import functools
import types
import zlib

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.testing import op_dtypes
from mithril.testing import op_second_derivatives as second

COUNTED = ("numpy", "cpu", "torch", "jax", "mlx")
JAX_OPS = 16  # it compiles every step of an op: one op in so many
OPS = {op["name"]: op for op in _core.ops() if op["samples"] and op["has_gradient"]}


@pytest.fixture(scope="module")
def backends():
    made = {}

    def backend(name, dtype):
        wide = "float64" if dtype == "float64" else "float32"
        return made.setdefault((name, wide), ml.get_backend(name, dtype=wide))

    return backend


@functools.cache
def of_op(name, dtype):
    """Tasks with their references: the same for all backends."""
    return [(task, second.reference(task)) for task in second.tasks(OPS[name], [dtype])]


def chosen(name, backend_name):
    """A half and a wider type, other ones from op to op and from backend to backend."""
    number = zlib.crc32(f"{name} {backend_name}".encode())
    return second.TYPES[number % 2], second.TYPES[2 + number // 2 % 2]


@pytest.mark.parametrize("name", OPS)
def test_references_are_slopes_of_first_derivatives(name):
    problems = [told for task, _ in of_op(name, "float64") for told in second.unlike_slopes(task)]
    assert not problems, "\n".join(problems)


@pytest.mark.frameworks
@pytest.mark.parametrize("name", OPS)
def test_second_derivatives(name, backend_name, backends, check_counts):
    if backend_name not in COUNTED:
        pytest.skip(f"{backend_name} compiles each model for long; its plans are the engine's")
    if backend_name == "jax" and zlib.crc32(name.encode()) % JAX_OPS:
        pytest.skip("JAX compiles for seconds: some ops only")
    problems = []
    for dtype in chosen(name, backend_name):
        backend = backends(backend_name, dtype)
        if op_dtypes.lacks(backend, dtype):
            continue
        for task, wanted in of_op(name, dtype):
            problems += second.check(backend, task, wanted)
            check_counts["second derivatives by type"] += len(wanted)
    assert not problems, "\n".join(problems)


# op, element type, a wrong function of NumPy's backend, what is said of it
WRONG = {
    "too coarse": ("exp", "float16", lambda x: (np.exp(x) * 1.05).astype(x.dtype), "wrong"),
    "too wide": ("tanh", "float32", lambda x: np.tanh(x.astype("f8")), "dtype float64"),
    "another slope": ("sin", "float32", lambda x: np.sin(x * 1.01), "wrong"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_faults_are_found(fault):
    from mithril.backends.with_manualgrad.numpy_backend import ops

    name, dtype, function, said = WRONG[fault]
    table = types.SimpleNamespace(**{**vars(ops), name: function})
    changed = type("Changed", (ml.NumpyBackend,), {"ops": table})()
    ((task, wanted),) = of_op(name, dtype)
    assert any(said in problem for problem in second.check(changed, task, wanted))
    assert not second.check(ml.NumpyBackend(), task, wanted)


def test_ops_of_steps_keep_their_rules_in_second_derivatives():
    """The body of a matrix exponential is a loop, which has no gradient."""
    ((task, wanted),) = of_op("matrix_exp", "float32")
    assert not second.check(ml.CpuBackend(), task, wanted)
