"""Python numbers in the place of tensors: every op of several tensors takes them, as tensors of
rank 0 of the type of the others."""

import contextlib
import math

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.errors import MithrilError
from mithril.testing.op_matrix import KINDS, _leaf

TENSOR_BITS = {kind: _core.kinds()[f"tensor_{kind}"] for kind in KINDS}
ALL_TENSORS = sum(TENSOR_BITS.values())


def takes_tensors_only(op, name):
    (declared,) = (i for i in op["inputs"] if i["name"] == name)
    plain = not (declared["is_key"] or declared["variadic"]) and not declared["when"]
    return plain and declared["kinds"] & ~ALL_TENSORS == 0


def swept():
    """Each op with each of its tensors (in the first sample that gives it a rank 0 or more)."""
    for op in _core.ops():
        for index, sample in enumerate(op["samples"]):
            names = [name for name, _ in sample["shapes"] if takes_tensors_only(op, name)]
            states = {name.removeprefix("new_") for name in op["outputs"]}
            if len(names) < 2 or states & set(names) or op["random"]:
                continue
            for name in names:
                yield pytest.param(op, index, name, id=f"{op['name']}-{index}-{name}")


def spreads(op, name):
    """Whether a number stands for a tensor of the shape of the others."""
    return name == "target" or (op["name"], name) == ("prelu", "weight")


def kind_of(op, sample, name):
    (declared,) = (i for i in op["inputs"] if i["name"] == name)
    wanted = "int" if name in sample["integers"] else "float"
    allowed = [kind for kind in KINDS if declared["kinds"] & TENSOR_BITS[kind]]
    return (wanted if wanted in allowed else allowed[0]), declared


def number_for(op, sample, name):
    kind, declared = kind_of(op, sample, name)
    low, high = declared["low"], declared["high"]
    if kind == "bool":
        return True
    middle = low + (high - low) * 0.625
    return math.floor(middle) if kind == "int" else middle


def model_with(op, sample, name, operand):
    """The op with one operand given; the other tensors are inputs."""
    leaf = _leaf(op, sample, {n for n, _ in sample["shapes"]})
    python = {"float": float, "int": int, "bool": bool}
    wires = {name: operand}
    for other, shape in sample["shapes"]:
        if other == name:
            continue
        kind = ml.Tensor[python[kind_of(op, sample, other)[0]]]
        wires[other] = ml.IOKey(other, shape=list(shape), type=kind)
    outputs = {n: n for n in op["outputs"] if n in leaf._node.output_keys}
    model = ml.Model()
    model |= leaf.connect(**wires, **outputs)
    return model


def data_for(op, sample, without):
    random = np.random.default_rng(5)
    out = {}
    for name, shape in sample["shapes"]:
        kind, declared = kind_of(op, sample, name)
        low, high = declared["low"], declared["high"]
        if name == without:
            continue
        if kind == "bool":
            out[name] = random.integers(0, 2, shape).astype(bool)
        elif kind == "int":
            out[name] = random.integers(math.ceil(low), math.floor(high) + 1, shape)
        else:
            out[name] = random.uniform(low, high, shape).astype(np.float32)
    return out


def run(model, backend, data):
    pm = ml.compile(model, backend, data_keys=set(data))
    result = pm.evaluate({}, {name: backend.array(value) for name, value in data.items()})
    return {name: np.asarray(backend.to_numpy(value)) for name, value in result.items()}


@pytest.mark.device
@pytest.mark.parametrize("op, index, name", list(swept()))
def test_a_number_is_a_tensor_of_rank_0(op, index, name):
    sample = op["samples"][index]
    backend = ml.CpuBackend()
    number = number_for(op, sample, name)
    kind, _ = kind_of(op, sample, name)
    python = {"float": float, "int": int, "bool": bool}[kind]
    data = data_for(op, sample, name)
    wanted = {}
    shapes = [[], dict(sample["shapes"])[name]] if spreads(op, name) else [[]]
    for shape in shapes:
        key = ml.IOKey(name, shape=list(shape), type=ml.Tensor[python])
        dtype = {"float": "f4", "int": "i8", "bool": "?"}[kind]
        tensor = {name: np.full(shape, number, dtype)}
        with contextlib.suppress(MithrilError):
            wanted = wanted or run(model_with(op, sample, name, key), backend, data | tensor)
    if not wanted:
        with pytest.raises(MithrilError):
            run(model_with(op, sample, name, number), backend, data)
        return
    got = run(model_with(op, sample, name, number), backend, data)
    for output, value in wanted.items():
        assert got[output].dtype == value.dtype, output
        np.testing.assert_array_equal(got[output], value, output)


X = np.array([-1.0, 0.5, 2.0], np.float32)
EXPRESSIONS = {
    "where": (lambda x: ml.Where()(x > 0, x, 1.0), lambda x: np.where(x > 0, x, 1)),
    "where, both": (lambda x: ml.Where()(x > 0, 2.0, -1), lambda x: np.where(x > 0, 2.0, -1)),
    "where, always": (lambda x: ml.Where()(True, x, 7), lambda x: x),
    "maximum": (lambda x: ml.Maximum()(x, 0.0), lambda x: np.maximum(x, 0)),
    "maximum, an int first": (lambda x: ml.Maximum()(1, x), lambda x: np.maximum(1, x)),
    "minimum, a bool": (lambda x: ml.Minimum()(x, True), lambda x: np.minimum(x, 1)),
    "atan2": (lambda x: ml.Atan2()(x, 1.0), lambda x: np.arctan2(x, 1)),
    "atan2, an int": (lambda x: ml.Atan2()(2, x), lambda x: np.arctan2(2, x)),
    "greater": (lambda x: ml.Greater()(x, 0.25), lambda x: x > 0.25),
}
SLOPES = {"where": X > 0, "maximum": X > 0, "atan2": 1 / (X * X + 1)}


@pytest.mark.parametrize("what", EXPRESSIONS)
def test_values_and_gradients(what, backend_name):
    backend = ml.get_backend(backend_name)
    formula, wanted = EXPRESSIONS[what]
    model = ml.Model.create(y=formula(ml.IOKey("x")))
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [3]})
    x = {"x": backend.array(X)}
    y = np.asarray(backend.to_numpy(pm.evaluate({}, x)["y"]))
    np.testing.assert_allclose(y, wanted(X), rtol=1e-6)
    if what in SLOPES:
        ones = {"y": backend.array(np.ones(3, np.float32))}
        slope = pm.evaluate({}, x, output_gradients=ones, wrt=["x"]).gradients["x"]
        np.testing.assert_allclose(np.asarray(backend.to_numpy(slope)), SLOPES[what], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_number_takes_the_type_of_the_other_operand(dtype, backend_name):
    backend = ml.get_backend(backend_name)
    x = ml.IOKey("x")
    model = ml.Model.create(y=ml.Where()(x > 0, x, 1.5), z=ml.Maximum()(0.1, x))
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [3]}, types={"x": dtype})
    found = pm.evaluate({}, {"x": backend.array(X, dtype=getattr(ml, dtype))})
    for value in found.values():
        assert np.asarray(backend.to_numpy(value)).dtype == dtype


@pytest.mark.device
def test_a_wider_number_widens_as_in_add():
    i = ml.IOKey("i", type=ml.Tensor[int])
    model = ml.Model.create(y=ml.Maximum()(i, 0.5), z=ml.Maximum()(i, 2))
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"i"}, shapes={"i": [2]})
    found = pm.evaluate({}, {"i": np.array([0, 3])})
    assert found["y"].dtype == np.float32 and found["y"].tolist() == [0.5, 3.0]
    assert found["z"].dtype == np.int64 and found["z"].tolist() == [2, 3]


@pytest.mark.device
def test_numbers_alone():
    pm = ml.compile(ml.Model.create(y=ml.Maximum()(1.0, 2)), ml.CpuBackend())
    assert pm.evaluate()["y"].tolist() == 2.0


def test_a_number_of_the_wrong_kind_is_refused():
    x = ml.IOKey("x")
    with pytest.raises(MithrilError, match="cond"):
        ml.Model.create(y=ml.Where()(1.5, x, x))


def test_numbers_are_saved_and_loaded():
    model = ml.Model.create(y=ml.Where()(ml.IOKey("x") > 0, 3, 2.5))
    again = ml.Model.from_json(model.to_json())
    assert again.to_json() == model.to_json()
    pm = ml.compile(again, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [3]})
    assert pm.evaluate({}, {"x": X})["y"].tolist() == [2.5, 3.0, 3.0]
