# Covers: mithril/physical/derived.py
"""`evaluate(fetch=[...])`: any wire of a model by its path, on every backend."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, KeyNotFound, SignatureError
from mithril.physical import fetch as fetching

X = np.array([[1.0, -2.0], [0.5, 3.0]], np.float32)
W1 = np.array([[1.0, 2.0], [-1.0, 0.5], [0.0, 1.0]], np.float32)
B1 = np.array([0.5, -0.5, 0.0], np.float32)
W2 = np.array([[1.0, -1.0, 2.0]], np.float32)
B2 = np.array([0.25], np.float32)
PARAMS = {"weight_0": W1, "bias_0": B1, "weight_1": W2, "bias_1": B2}
H = X @ W1.T + B1
A = np.tanh(H)
Y = A @ W2.T + B2
WIRES = {"blocks.0": H, "blocks.act": A, "blocks.0.output": H, "h": A, "y": Y,
         "blocks.0.weight": W1, "x": X, "weight_1": W2}  # fmt: skip


def network():
    blocks = ml.Model(name="blocks")
    blocks |= ml.Linear(3, name="0")(input="input", output="inner")
    blocks |= ml.Tanh(name="act")(input="inner", output="output")
    blocks.expose_keys("output")
    model = ml.Model()
    model |= blocks(input="x", output="h")
    model |= ml.Linear(1, name="head")(input="h", output="y")
    model.expose_keys("y")
    return model


def compiled(backend, **options):
    options = {"data_keys": {"x"}, "shapes": {"x": [2, 2]}} | options
    return ml.compile(network(), backend, **options)


def same(backend, got, want):
    np.testing.assert_allclose(np.asarray(backend.to_numpy(got)), want, rtol=1e-5, atol=1e-6)


def test_wires_of_any_depth(backend_name):
    backend = ml.get_backend(backend_name)
    pm = compiled(backend, jit=False)
    params = {name: backend.array(value) for name, value in PARAMS.items()}
    outputs = pm.evaluate(params, {"x": X}, fetch=list(WIRES))
    assert list(outputs)[0] == "y" and set(outputs) == set(WIRES)
    for name, want in WIRES.items():
        same(backend, outputs[name], want)
    assert list(pm.evaluate(params, {"x": X})) == ["y"]


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["jax", "mlx"])
def test_compiled_by_the_framework(name):
    pytest.importorskip(name)
    backend = ml.get_backend(name)
    params = {name: backend.array(value) for name, value in PARAMS.items()}
    outputs = compiled(backend, jit=True).evaluate(params, {"x": X}, fetch="blocks.0")
    same(backend, outputs["blocks.0"], H)


def test_beside_gradients(backend_name):
    backend = ml.get_backend(backend_name)
    pm = compiled(backend, jit=False)
    params = {name: backend.array(value) for name, value in PARAMS.items()}
    given = {"y": np.ones((2, 1), np.float32)}
    result = pm.evaluate(params, {"x": X}, output_gradients=given, fetch=["blocks.act"])
    same(backend, result.outputs["blocks.act"], A)
    same(backend, result.gradients["weight_1"], A.sum(0, keepdims=True))
    # A fetched wire takes a cotangent as an output does.
    given = {"blocks.act": np.ones((2, 3), np.float32)}
    result = pm.evaluate(params, {"x": X}, output_gradients=given, fetch=["blocks.act"])
    same(backend, result.gradients["weight_0"], (1 - A**2).T @ X)


@pytest.mark.device
def test_ranks_that_the_data_tell():
    model = ml.Model()
    model |= ml.Linear(1, name="a")(input="x", output="h")
    model |= ml.Tanh(name="b")(input="h", output="y")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"})
    params = {"weight": np.ones((1, 2), np.float32), "bias": np.zeros(1, np.float32)}
    for shape in ((2,), (3, 2), (4, 3, 2)):
        got = pm.evaluate(params, {"x": np.ones(shape, np.float32)}, fetch=["a"])
        np.testing.assert_array_equal(got["a"], np.full((*shape[:-1], 1), 2.0))


@pytest.mark.device
def test_state_of_a_model_in_training():
    model = ml.Model()
    model |= ml.BatchNorm2d(name="norm")(input="x", output="h")
    model |= ml.Relu(name="act")(input="h", output="y")
    pm = ml.compile(
        model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [2, 3, 4, 4]}, mode="train"
    )
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 4)).astype(np.float32)
    result = pm.evaluate(pm.get_parameters(), {"x": x}, state=pm.initial_state(), fetch=["norm"])
    want = (x - x.mean((0, 2, 3), keepdims=True)) / np.sqrt(x.var((0, 2, 3), keepdims=True) + 1e-5)
    np.testing.assert_allclose(result.outputs["norm"], want, atol=1e-4)
    assert set(result.state) == set(pm.state_keys)


@pytest.mark.device
def test_one_program_for_a_set_and_not_too_many():
    pm = compiled(ml.CpuBackend())
    for names in (["h", "blocks.0"], ["blocks.0", "h"], ["h", "h", "blocks.0", "y"]):
        pm.evaluate(PARAMS, {"x": X}, fetch=names)
    assert len(pm._compilation.fetches) == 1
    first = next(iter(pm._compilation.fetches.values()))
    pm.evaluate(PARAMS, {"x": X}, fetch=["h", "blocks.0"])
    assert next(iter(pm._compilation.fetches.values())) is first
    every = [w for w in WIRES if w != "y"]
    sets = [[a, b] for a in every for b in every]
    for names in sets:
        pm.evaluate(PARAMS, {"x": X}, fetch=names)
    assert len(pm._compilation.fetches) == fetching.MOST_FETCHES


@pytest.mark.device
def test_outputs_alone_cost_no_program():
    pm = compiled(ml.CpuBackend())
    assert list(pm.evaluate(PARAMS, {"x": X}, fetch=["y"])) == ["y"] and not pm._compilation.fetches
    assert list(pm.evaluate(PARAMS, {"x": X}, fetch=[])) == ["y"] and not pm._compilation.fetches


@pytest.mark.device
def test_connections():
    model = network()
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [2, 2]})
    got = pm.evaluate(PARAMS, {"x": X}, fetch=[model["h"], model["blocks.inner"]])
    np.testing.assert_allclose(got["inner"], H, rtol=1e-6)
    np.testing.assert_allclose(got["h"], A, rtol=1e-6)


@pytest.mark.device
def test_connections_of_one_name_are_told_apart():
    model, first, second = ml.Model(), ml.Relu(), ml.Negate()
    model |= first(input="x", output="h")
    model |= second(input="h", output="y")
    model.expose_keys("y")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [2]})
    x = np.array([2.0, -3.0], np.float32)
    for part, want in ((first, x), (second, [2.0, 0.0]), (first, x)):
        got = pm.evaluate({}, {"x": x}, fetch=[part.input])
        np.testing.assert_array_equal(got["input"], want)


@pytest.mark.device
def test_a_connection_does_not_take_the_place_of_an_output():
    model, part = ml.Model(), ml.Model()
    part |= ml.Relu()(input="x", output="p")
    part |= ml.Negate()(input="w", output="q")
    part.expose_keys("p", "q")
    model |= part(x="x", w="w", p="q", q="p")
    model.expose_keys("p", "q")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, trainable_keys={"w"},
                    shapes={"x": [2], "w": [2]})  # fmt: skip
    params, x = {"w": np.array([1.0, 2.0], "f4")}, np.array([3.0, -1.0], np.float32)
    with pytest.raises(ArgumentError, match="fetch: two wires are called 'p'"):
        pm.evaluate(params, {"x": x}, fetch=[part.p])
    got = pm.evaluate(params, {"x": x}, fetch=[model["p"]])
    np.testing.assert_array_equal(got["p"], [-1.0, -2.0])
    np.testing.assert_array_equal(got["q"], [3.0, 0.0])
    assert (pm.has_grad(part.p), pm.has_grad(part.q)) == (False, True)
    assert (pm.has_grad(model["p"]), pm.has_grad("p"), pm.has_grad("q")) == (True, True, False)


@pytest.mark.device
def test_unknown_names_are_told_with_the_nearest():
    pm = compiled(ml.CpuBackend())
    for name, near in (
        ("blocs.act", "'blocks'"),
        ("blocks.acts", "'act'"),
        ("blocks.0.wieght", "'weight'"),
        ("haed", "'head'"),
    ):
        with pytest.raises(KeyNotFound, match=f"fetch: .*did you mean {near}") as failed:
            pm.evaluate(PARAMS, {"x": X}, fetch=[name])
        assert isinstance(failed.value, KeyError)
    assert not pm._compilation.fetches


@pytest.mark.device
def test_what_cannot_be_fetched():
    pieces = ml.Model()
    pieces |= ml.Split(2, name="cut")(input="x", output="parts")
    pieces |= ml.Buffer()(input=pieces["parts"][0], output="y")
    pm = ml.compile(pieces, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [4]}, inference=True)
    found = pm.evaluate({}, {"x": np.arange(4, dtype=np.float32)}, fetch=["cut"])["cut"]
    np.testing.assert_array_equal(found, [[0, 1], [2, 3]])  # a list of tensors is one
    other = network()
    with pytest.raises(KeyNotFound, match="does not belong"):
        compiled(ml.CpuBackend()).evaluate(PARAMS, {"x": X}, fetch=[other["h"]])
    for loose in (ml.IOKey("q"), ml.IOKey()):
        with pytest.raises(KeyNotFound, match="fetch: .*is in no model yet"):
            compiled(ml.CpuBackend()).evaluate(PARAMS, {"x": X}, fetch=[loose])
        with pytest.raises(KeyNotFound, match="has_grad: .*is in no model yet"):
            compiled(ml.CpuBackend()).has_grad(loose)
    for wrong in (3, [3], {"h": 1}, [None]):
        with pytest.raises(SignatureError, match="fetch"):
            compiled(ml.CpuBackend()).evaluate(PARAMS, {"x": X}, fetch=wrong)
    twice = network()
    pm = ml.compile(twice, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [2, 2]})
    with pytest.raises(ArgumentError, match="two wires are called 'input'"):
        pm.evaluate(PARAMS, {"x": X}, fetch=[twice["blocks.0.input"], twice["head.input"]])
