"""Ops whose operands are known when the model is compiled: `constant_keys=`, `bind`, tensors in the
model. They keep operands and element types, also where all operands of an op become literals.

The sweep holds every op with several tensor operands, and every one that takes any number of them,
against the oracle.
"""

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.errors import DataOverflowError, UnsupportedError
from mithril.testing import op_matrix

JOINS = {"concat": (ml.Concat, np.concatenate), "stack": (ml.Stack, np.stack)}
FLOAT64 = {"cpu": "CpuBackend", "c": "CBackend", "numpy": "NumpyBackend", "torch": "TorchBackend",
           "jax": "JaxBackend", "mlx": "MlxBackend"}  # fmt: skip


def has_several_operands(op):
    tensors = [i for i in op["inputs"] if i["kinds"] & _core.kinds()["tensor_float"]]
    return len(tensors) > 1 or any(i["variadic"] for i in op["inputs"])


OPS = {op["name"]: op for op in _core.ops() if op["samples"] and has_several_operands(op)}
by_way = pytest.mark.parametrize("way", ["constant", "one", "bind", "model"])
by_join = pytest.mark.parametrize("join", JOINS)


# So many cases of each op, where every one is compiled for a second.
FEW = {"jax": 4, "c": 4}


def joined(layer, keys):
    model = ml.Model()
    wires = [ml.IOKey(key, type=ml.Tensor[float]) for key in keys]
    model |= layer(input=wires, output="joined")
    model |= ml.Multiply()(left="joined", right=2.0, output="doubled")
    model.expose_keys("joined", "doubled")
    return model


def results(way, layer, arrays, keys, backend):
    """The model's outputs, its operands known in one of several ways."""
    if way == "model":
        model = ml.Model()
        model |= layer(input=[ml.Tensor(arrays[key].tolist()) for key in keys], output="joined")
        model |= ml.Multiply()(left="joined", right=2.0, output="doubled")
        model.expose_keys("joined", "doubled")
        return ml.compile(model, backend, inference=True).evaluate({}, {})
    model = joined(layer, keys)
    if way == "bind":
        shapes = {key: list(x.shape) for key, x in arrays.items()}
        pm = ml.compile(model, backend, trainable_keys=set(arrays), shapes=shapes)
        return pm.bind({key: backend.array(x) for key, x in arrays.items()}).evaluate({}, {})
    constants = arrays if way == "constant" else {"a": arrays["a"]}
    data = {key: backend.array(x) for key, x in arrays.items() if key not in constants}
    pm = ml.compile(model, backend, constant_keys=constants, data_keys=set(data), inference=True)
    return pm.evaluate({}, data)


@by_way
@by_join
@pytest.mark.parametrize("keys", [("a", "a"), ("a", "b"), ("a", "b", "a")])
@pytest.mark.parametrize("axis", [0, 1])
def test_joins(axis, keys, join, way, backend_name):
    backend = ml.get_backend(backend_name)
    random = np.random.default_rng(3)
    arrays = {key: random.standard_normal((3, 4)).astype(np.float32) for key in set(keys)}
    layer, numpy = JOINS[join]
    got = results(way, layer(axis=axis), arrays, keys, backend)
    want = numpy([arrays[key] for key in keys], axis=axis)
    plain = {key: np.asarray(backend.to_numpy(x)) for key, x in got.items()}
    assert plain["joined"].dtype == np.float32
    np.testing.assert_array_equal(plain["joined"], want)
    np.testing.assert_array_equal(plain["doubled"], 2 * want)


@pytest.mark.parametrize("kind", ["int64", "bool"])
def test_kinds_stay(kind, backend_name):
    backend = ml.get_backend(backend_name)
    a = np.array([0, 1, 1], kind)
    model = ml.Model()
    python = {"int64": int, "bool": bool}[kind]
    keys = [ml.IOKey(key, type=ml.Tensor[python]) for key in ("a", "b")]
    model |= ml.Concat(axis=0)(input=keys, output="y")
    pm = ml.compile(model, backend, constant_keys={"a": a, "b": a[::-1]}, inference=True)
    got = np.asarray(backend.to_numpy(pm.evaluate({}, {})["y"]))
    assert got.dtype.kind == a.dtype.kind
    np.testing.assert_array_equal(got, np.concatenate([a, a[::-1]]))


def test_nothing_is_read_past_a_large_join():
    """What was an array of bools of one place each was read as floats."""
    x = np.ones((2000, 100), np.float32)
    model = ml.Model()
    model |= ml.Concat(axis=0)(input=[ml.IOKey("a", type=ml.Tensor[float]), ml.IOKey("a")],
                               output="c")  # fmt: skip
    model |= ml.Sum(axis=1)(input="c", output="rows")
    model |= ml.Sum()(input="c", output="all")
    model.expose_keys("rows", "all")
    got = ml.compile(model, ml.CpuBackend(), constant_keys={"a": x}, inference=True).evaluate(
        {}, {}
    )
    np.testing.assert_array_equal(got["rows"], np.full(4000, 100.0))
    assert got["all"] == 400000.0


def in_dtype(value, dtype):
    is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    return value.astype(dtype) if is_float else value


def test_wide_constants_on_narrow_backends(backend_name):
    """What takes operands of one type only (convolutions on JAX) takes them, too."""
    backend = ml.get_backend(backend_name)
    x, kernel = np.ones((1, 2, 5, 5), np.float32), np.full((3, 2, 3, 3), 0.5)
    model = ml.Model.create(
        y=ml.Conv2d(filters=3, kernel_size=3, use_bias=False)(input="x", weight="w")
    )
    pm = ml.compile(model, backend, constant_keys={"w": kernel}, data_keys={"x"}, inference=True)
    got = backend.to_numpy(pm.evaluate({}, {"x": backend.array(x)})["y"])
    np.testing.assert_array_equal(got, np.full((1, 3, 3, 3), 9.0))


@pytest.mark.parametrize("name", OPS)
def test_every_op(name, backend_name, support_table):
    """All operands known, then only the first one."""
    dtype = "float32" if backend_name in ("jax", "mlx") else "float64"
    backend = getattr(ml, FLOAT64[backend_name])(dtype=dtype)
    problems, count = [], 0
    for case in op_matrix.cases(OPS[name])[: FEW.get(backend_name)]:
        labels = [label for label, i, _ in case.tensors if i["name"] != "rng_key"]
        labels = [label for label in labels if f"new_{label}" not in case.op["outputs"]]
        for known in (labels, labels[:1]):
            constants = {label: in_dtype(case.inputs[label], dtype) for label in known}
            try:
                model = op_matrix.compiled(case, backend, constant_keys=constants, inference=True)
                got = op_matrix.evaluate(model, case, case.inputs)
            except UnsupportedError:
                continue
            want = op_matrix.expected(model, case, case.inputs, dtype)
            for key, value in want.outputs.items():
                count += 1
                bound = op_matrix.value_bound(backend, case)
                problem = op_matrix.difference(got.outputs[key], value, bound)
                if problem:
                    problems.append(f"{case.label} with {known} known, {key}: {problem}")
    support_table.checks["values of ops with known operands"] += count
    assert not problems, "\n".join(problems)


# --- types of given arrays -----------------------------------------------------------------------


@pytest.mark.parametrize("given", ["float64", "float16"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_arrays_of_floats_have_the_type_of_data(dtype, given, backend_name):
    backend = ml.get_backend(backend_name, dtype=dtype)
    model = ml.Model.create(y=ml.IOKey("x") * ml.IOKey("w"))
    pm = ml.compile(
        model,
        backend,
        trainable_keys={"x"},
        shapes={"x": [2]},
        constant_keys={"w": np.array([0.5, 0.1], given)},
    )
    params = {"x": backend.array([2.0, 4.0])}
    found = pm.evaluate(params, output_gradients={"y": backend.array([1.0, 1.0])})
    for array in (found.outputs["y"], found.gradients["x"]):
        assert backend.to_numpy(array).dtype == dtype
    wanted = np.array([0.5, 0.1], given).astype(dtype)
    np.testing.assert_array_equal(backend.to_numpy(found.gradients["x"]), wanted)


def test_types_say_which_type_a_given_array_has():
    model = ml.Model.create(y=ml.IOKey("x") * ml.IOKey("w", type=ml.Tensor[float]))
    options = {"data_keys": {"x"}, "shapes": {"x": [1]}, "types": {"w": "float64", "x": "float64"}}
    third = np.array([1.0]) / 3
    pm = ml.compile(model, ml.NumpyBackend(), constant_keys={"w": third}, **options)
    assert pm.evaluate({}, {"x": np.ones(1)})["y"] == third
    with pytest.raises(DataOverflowError, match=r"constant_keys: 1e\+200 does not fit float32"):
        ml.compile(model, ml.NumpyBackend(), constant_keys={"w": np.array([1e200])})
    exact = ml.compile(
        ml.Model.create(y=ml.IOKey("n", type=ml.Tensor[int]) + 1),
        ml.NumpyBackend(),
        constant_keys={"n": np.array([2**53 + 1])},
        inference=True,
    )
    assert exact.evaluate()["y"] == 2**53 + 2
