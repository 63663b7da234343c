"""Inputs and outputs that are lists or tuples of tensors: of `evaluate`, its gradients and its
cotangents."""

# Covers: mithril/base/trees.py

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, UnsupportedError

Tensor = ml.Tensor


def trained(count):
    return [Tensor(type=float, differentiable=True) for _ in range(count)]


def numpy_of(backend, value):
    if isinstance(value, (list, tuple)):
        return type(value)(numpy_of(backend, item) for item in value)
    return np.asarray(backend.to_numpy(value))


def equal(found, wanted):
    assert type(found) is type(wanted) and len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


# --- outputs --------------------------------------------------------------------------------------


def halves():
    model = ml.Model()
    model |= ml.models.Split(2, 0)(input="x", output="parts")
    model |= ml.Multiply()(left="x", right=2.0, output="twice")
    model.expose_keys("parts", "twice")
    return model


def test_a_list_is_an_output_with_cotangents_like_it(backend_name):
    backend = ml.get_backend(backend_name)
    x = np.arange(6.0, dtype=np.float32)
    pm = ml.compile(halves(), backend, trainable_keys={"x"}, shapes={"x": [6]})
    assert pm.output_keys == ["parts", "twice"]
    assert pm.cotangent_keys == {"parts", "twice"} and pm.has_grad("parts")
    params = {"x": backend.array(x)}
    equal(numpy_of(backend, pm.evaluate(params)["parts"]), [x[:3], x[3:]])
    weights = [np.array([1.0, 2.0, 3.0], np.float32), np.array([4.0, 5.0, 6.0], np.float32)]
    cotangents = {"parts": [backend.array(w) for w in weights]}
    outputs, gradients = pm.evaluate(params, output_gradients=cotangents)
    equal(numpy_of(backend, outputs["parts"]), [x[:3], x[3:]])
    np.testing.assert_allclose(numpy_of(backend, gradients["x"]), np.concatenate(weights))
    same = pm.evaluate(params, output_gradients=lambda outputs: {"parts": outputs["parts"]})
    np.testing.assert_allclose(numpy_of(backend, same.gradients["x"]), x)


def test_a_tuple_is_a_tuple(backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= ml.models.ToTuple(2)(input1="a", input2="b", output="pair")
    model.set_types(a=Tensor[float], b=Tensor[float])
    model.expose_keys("pair")
    a, b = np.ones(2, np.float32), np.zeros((3, 1), np.float32)
    pm = ml.compile(model, backend, data_keys={"a", "b"}, inference=True)
    found = pm.evaluate({}, {"a": backend.array(a), "b": backend.array(b)})
    equal(numpy_of(backend, found["pair"]), (a, b))


def test_cotangents_of_another_structure_are_refused():
    pm = ml.compile(halves(), ml.NumpyBackend(), trainable_keys={"x"}, shapes={"x": [4]})
    params = {"x": np.ones(4, np.float32)}
    for given in (np.ones(4), [np.ones(2)], [np.ones(2)] * 3, 1.0):
        with pytest.raises(ArgumentError, match="'parts' requires a list of 2 tensors"):
            pm.evaluate(params, output_gradients={"parts": given})
    with pytest.raises(ArgumentError, match="parts.1.* has shape"):
        pm.evaluate(params, output_gradients={"parts": [np.ones(2), np.ones(3)]})


def nest(depth=0):
    """The output `nest`: [[a, b], (c, a + b)]; `depth` lists more around it."""
    model = ml.Model()
    model |= ml.models.Add()(left="a", right="b", output="sum")
    model |= ml.models.ToList(2)(input1="a", input2="b", output="pair")
    model |= ml.models.ToTuple(2)(input1="c", input2="sum", output="other")
    model |= ml.models.ToList(2)(input1="pair", input2="other", output="nest0")
    for i in range(depth):
        model |= ml.models.ToList(1)(input1=f"nest{i}", output=f"nest{i + 1}")
    model.set_types(a=Tensor[float], b=Tensor[float], c=Tensor[float])
    model.expose_keys(f"nest{depth}")
    return model


NEST = {
    "a": np.array([1.0, 2.0], np.float32),
    "b": np.array([[3.0, 4.0], [5.0, 6.0]], np.float32),
    "c": np.array([7.0], np.float32),
}
SHAPES = {name: list(value.shape) for name, value in NEST.items()}


def nested(a, b, c, total):
    return [[a, b], (c, total)]


def equal_nests(found, wanted):
    assert type(found) is type(wanted)
    if not isinstance(wanted, (list, tuple)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        return
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        equal_nests(a, b)


def on(backend, tree):
    if isinstance(tree, (list, tuple)):
        return type(tree)(on(backend, item) for item in tree)
    return backend.array(tree)


@pytest.mark.parametrize("shapes", [None, SHAPES], ids=["open ranks", "known"])
def test_lists_of_lists_are_outputs_with_cotangents_like_them(shapes, backend_name):
    backend = ml.get_backend(backend_name)
    pm = ml.compile(nest(), backend, trainable_keys={"a", "b", "c"}, shapes=shapes)
    params = {name: backend.array(value) for name, value in NEST.items()}
    assert pm.output_keys == ["nest0"] and pm.cotangent_keys == {"nest0"}
    a, b, c = NEST.values()
    weights = [a + 10, b * 3, c - 5, b + 1]
    request = {"nest0": on(backend, nested(*weights))}
    outputs, gradients = pm.evaluate(params, output_gradients=request)
    assert pm.has_grad("nest0")
    equal_nests(numpy_of(backend, outputs["nest0"]), nested(a, b, c, a + b))
    wanted = {"a": weights[0] + weights[3].sum(0), "b": weights[1] + weights[3], "c": weights[2]}
    for name, value in wanted.items():
        np.testing.assert_allclose(numpy_of(backend, gradients[name]), value, rtol=1e-6)
    same = pm.evaluate(params, output_gradients=lambda outputs: outputs)
    np.testing.assert_allclose(numpy_of(backend, same.gradients["c"]), c)


def test_cotangents_of_another_nest_are_refused():
    pm = ml.compile(nest(), ml.NumpyBackend(), trainable_keys={"a", "b", "c"})
    a, b, c = NEST.values()
    for given, told in [
        ([a, b, c, b], "'nest0' requires a list of 2 items, got 4"),
        ([a, (c, b)], r"'nest0\.0' requires a list of 2 tensors"),
        ([[a, b], (c,)], r"'nest0\.1' requires a list of 2 tensors, got 1"),
        ([[a, b], (c, c)], r"nest0\.1\.1.* has shape"),
    ]:
        with pytest.raises(ArgumentError, match=told):
            pm.evaluate(NEST, output_gradients={"nest0": given})


def test_nests_have_an_end():
    pm = ml.compile(nest(depth=20), ml.NumpyBackend(), inference=True)
    found = pm.evaluate({}, NEST)["nest20"]
    for _ in range(20):
        (found,) = found
    equal_nests(found[0], [NEST["a"], NEST["b"]])
    with pytest.raises(UnsupportedError, match="output 'nest90' is a list of more than tensors"):
        ml.compile(nest(depth=90), ml.NumpyBackend(), inference=True, shapes=SHAPES)


def test_lists_of_numbers_and_tensors_are_refused():
    model = ml.Model()
    model |= ml.models.ToTuple(2)(input1="a", input2=3, output="pair")
    model.set_types(a=Tensor[float])
    model.expose_keys("pair")
    with pytest.raises(UnsupportedError, match="a list of more than tensors and lists of them"):
        ml.compile(model, ml.NumpyBackend(), data_keys={"a"}, shapes={"a": [1]})


# --- inputs ---------------------------------------------------------------------------------------

PARTS = [np.array([[1.0, 2.0]], np.float32), np.array([[3.0, 4.0], [5.0, 6.0]], np.float32)]


@pytest.mark.parametrize(
    ("axis", "wanted"), [(0, np.concatenate(PARTS)), (None, np.concatenate(PARTS, axis=None))]
)
def test_a_list_of_trained_tensors(axis, wanted, backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Concat(axis=axis)
    model.set_values(input=trained(2))
    pm = ml.compile(model, backend, jit=False)
    assert pm.input_keys == {"input"}
    params = {"input": [backend.array(part) for part in PARTS]}
    weights = np.arange(wanted.size, dtype=np.float32).reshape(wanted.shape)
    found = pm.evaluate(params, {}, output_gradients={"output": backend.array(weights)})
    np.testing.assert_allclose(numpy_of(backend, found.outputs["output"]), wanted)
    flat = weights.reshape(-1)
    equal(
        numpy_of(backend, found.gradients["input"]),
        [flat[:2].reshape(1, 2), flat[2:].reshape(2, 2)],
    )


def test_initial_lists_have_the_shapes_of_the_first_call():
    model = ml.Concat()
    model.set_values(input=trained(2))
    pm = ml.compile(model, ml.NumpyBackend())
    pm.evaluate({"input": PARTS})
    assert [part.shape for part in pm.randomize_params(0)["input"]] == [(1, 2), (2, 2)]
    assert pm.has_grad("input") and pm.has_grad("output")
    assert pm.split_state({"input": PARTS}) == ({"input": PARTS}, {})


def test_lists_of_other_lengths_are_refused():
    model = ml.Concat()
    model.set_values(input=trained(2))
    pm = ml.compile(model, ml.NumpyBackend())
    for given in (PARTS[0], PARTS[:1], [*PARTS, PARTS[0]], None):
        with pytest.raises(ArgumentError, match="'input' requires a list of 2 tensors"):
            pm.evaluate({"input": given})


def test_a_list_may_hold_values():
    model = ml.Concat()
    model.set_values(input=[Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]])])
    found = ml.compile(model, ml.NumpyBackend(), inference=True).evaluate()["output"]
    np.testing.assert_array_equal(found, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("items", "told"),
    [
        (lambda: [Tensor(1.0), Tensor(type=float)], "all of them or none"),
        (lambda: [Tensor(type=float, differentiable=True), Tensor(type=float)], "all of them"),
        (lambda: [Tensor(type=float), 3.0], "all of them or none"),
        (lambda: [Tensor(type=float, shape=[2])], "leave shape out"),
    ],
)
def test_mixed_lists_are_refused_and_change_nothing(items, told):
    model = ml.Concat()
    given = items()
    with pytest.raises(ArgumentError, match=told):
        model.set_values(input=given)
    assert not any(item._used for item in given if isinstance(item, Tensor))
    model.set_values(input=trained(2))
