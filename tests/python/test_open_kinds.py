"""Inputs whose element kind nothing in the model decides: what a call gives does."""

import mithril as ml
import numpy as np
import pytest
from mithril import models as m

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
INTS = np.array([[1, 2, 3], [4, 5, 6]])
MASK = np.array([True, False])
A, B = X[:, 0], X[:, 1]

# Layer, what a call gives -> what comes out.
CASES = {
    "not": (m.LogicalNot, {"input": MASK}, ~MASK),
    "and": (m.LogicalAnd, {"left": MASK, "right": ~MASK}, MASK & ~MASK),
    "and of integers": (m.LogicalAnd, {"left": INTS, "right": INTS[::-1]}, INTS & INTS[::-1]),
    "where": (m.Where, {"cond": MASK, "input1": A, "input2": B}, np.where(MASK, A, B)),
    "where, of two kinds": (
        m.Where, {"cond": MASK, "input1": INTS[:, 0], "input2": B}, np.where(MASK, INTS[:, 0], B),
    ),
    "bools as they are": (m.Buffer, {"input": MASK}, MASK),
    "integers as they are": (m.Buffer, {"input": INTS}, INTS),
    "integers transposed": (m.Transpose, {"input": INTS}, INTS.T),
    "integers in one row": (lambda: m.Flatten(start_dim=0), {"input": INTS}, INTS.ravel()),
    "integers reshaped": (lambda: m.Reshape(shape=(3, 2)), {"input": INTS}, INTS.reshape(3, 2)),
    "a sum of integers": (m.Add, {"left": INTS, "right": INTS}, INTS + INTS),
    "a sum of two kinds": (m.Add, {"left": INTS, "right": X}, (INTS + X).astype(np.float32)),
    "a sum of bools": (m.Add, {"left": MASK, "right": MASK}, MASK + MASK),
    "bools where integers are narrowest": (m.Relu, {"input": MASK}, MASK.astype(int)),
    "places": (m.Indexer, {"input": X, "index": np.array([1, 0, 1])}, X[[1, 0, 1]]),
    "integers, indexed": (m.Indexer, {"input": INTS, "index": np.array([1, 0])}, INTS[[1, 0]]),
    "float64 for a float32 backend": (m.Buffer, {"input": X.astype(np.float64)}, X),
    "integers of 32 bits": (m.Buffer, {"input": INTS.astype(np.int32)}, INTS),
    "no more than 8 bits": (m.Buffer, {"input": INTS.astype(np.uint8)}, INTS),
}  # fmt: skip


def layer_of(make, given):
    model = ml.Model()
    model |= make()(**{key: key for key in given}, output="y")
    return model


def assert_same(backend, got, want):
    got = np.asarray(backend.to_numpy(got))
    np.testing.assert_array_equal(got, want)
    assert got.dtype.kind == np.asarray(want).dtype.kind


@pytest.mark.parametrize("case", CASES)
def test_what_goes_in_decides(backend_name, case):
    make, given, want = CASES[case]
    backend = ml.get_backend(backend_name)
    pm = ml.compile(layer_of(make, given), backend)
    for _ in range(2):  # the second call is a quick one
        assert_same(backend, pm.evaluate({}, given)["y"], want)


def test_masks_select_rows(backend_name):
    backend = ml.get_backend(backend_name)
    pm = ml.compile(layer_of(m.Indexer, {"input": 0, "index": 0}), backend, jit=False)
    assert_same(backend, pm.evaluate({}, {"input": X, "index": MASK})["y"], X[MASK])


def test_each_call_says_what_it_holds(backend_name):
    backend = ml.get_backend(backend_name)
    pm = ml.compile(layer_of(m.Buffer, {"input": 0}), backend)
    for given in (X, INTS, MASK, X, MASK, INTS):
        assert_same(backend, pm.evaluate({}, {"input": given})["y"], given)
        assert_same(backend, pm.evaluate({}, {"input": backend.array(given)})["y"], given)


def test_lists_of_tensors_have_kinds_of_their_own(backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= m.Concat(axis=0)(input=[ml.IOKey("a"), ml.IOKey("b")], output="y")
    pm = ml.compile(model, backend)
    assert_same(backend, pm.evaluate({}, {"a": INTS, "b": INTS})["y"], np.concatenate([INTS, INTS]))
    both = np.concatenate([INTS, X]).astype(np.float32)
    assert_same(backend, pm.evaluate({}, {"a": INTS, "b": X})["y"], both)


def test_numbers_of_python_are_weak():
    pm = ml.compile(layer_of(m.Buffer, {"input": 0}), ml.NumpyBackend())
    assert pm.evaluate({}, {"input": [1, 2]})["y"].dtype == np.float32
    assert pm.evaluate({}, {"input": [True, False]})["y"].dtype == np.bool_


def test_what_the_model_decides_stays():
    model = layer_of(m.Indexer, {"input": 0, "index": 0})
    pm = ml.compile(model, ml.NumpyBackend())
    with pytest.raises(ml.errors.DTypeError, match="'index': requires integers, got float32"):
        pm.evaluate({}, {"input": X, "index": A})
    pm = ml.compile(layer_of(m.Buffer, {"input": 0}), ml.NumpyBackend(), types={"input": "float32"})
    assert pm.evaluate({}, {"input": INTS})["y"].dtype == np.float32


def test_what_is_trained_holds_floats():
    model = ml.Model()
    model |= m.Add()(left="x", right="w", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), trainable_keys={"w"})
    ones = np.ones((2, 3), np.float32)
    result = pm.evaluate({"w": X}, {"x": INTS}, output_gradients={"y": ones})
    np.testing.assert_array_equal(result.outputs["y"], INTS + X)
    np.testing.assert_array_equal(result.gradients["w"], ones)
    result = pm.evaluate({"w": X}, {"x": INTS}, output_gradients={"y": ones}, wrt=iter(["x"]))
    np.testing.assert_array_equal(result.gradients["x"], ones)


@pytest.mark.parametrize("backend", [ml.NumpyBackend, ml.CpuBackend])
def test_steps_of_training_take_integers(backend):
    model = ml.Model()
    model |= m.Multiply()(left="x", right="w", output="h")
    model |= m.Sum()(input="h", output="y")
    pm = ml.compile(model, backend(), trainable_keys={"w"}, optimizer=ml.optim.SGD(lr=1.0))
    w = np.zeros((2, 3), np.float32)
    done = pm.step({"w": w}, pm._compilation.options.optimizer.init({"w": w}), {"x": INTS})
    np.testing.assert_array_equal(done.params["w"], -INTS)


def test_parameters_have_the_shapes_that_kinds_give():
    model = ml.Model()
    model |= m.Indexer()(input="x", index="i", output="rows")
    model |= m.Linear(2)(input="rows", output="y")
    pm = ml.compile(model, ml.NumpyBackend())
    sample = {"x": X, "i": MASK}
    assert pm.init(sample)["weight"].shape == (2, 3)
    assert pm.evaluate(pm.init(sample), sample)["y"].shape == (1, 2)
    assert pm.randomize_params(0)["weight"].shape == (2, 3)


def test_a_list_that_holds_itself_is_refused():
    endless: list = []
    endless.append(endless)
    pm = ml.compile(layer_of(m.Buffer, {"input": 0}), ml.NumpyBackend())
    with pytest.raises(ml.errors.ArgumentError):
        pm.evaluate({}, {"input": endless})
