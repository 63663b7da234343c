# Covers: reference/scan.c reference/sort.c backends/cpu/structured/scan_sort.cc ops/rearrange.cc
# Covers: ops/diagonal.cc
# Covers: ops/places.cc ops/order.cc ops/scan.cc
"""What moves, orders, picks and puts elements beyond the op matrix: long axes against NumPy and
PyTorch, ties and NaN, zeros in products, places that are out of bounds, open sizes.
"""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import DataIndexError, MithrilError, ShapeError

NAN, INF = np.nan, np.inf


def compiled(model, backend, arrays, open_sizes=False, **options):
    outer = ml.Model()
    wires = {key: ml.IOKey(key, shape=[None] * np.ndim(x)) if open_sizes else key
             for key, x in arrays.items()}  # fmt: skip
    wires |= {key: key for key in model._node.output_keys}
    outer |= model.connect(**wires)
    return ml.compile(outer, backend, data_keys=set(arrays), **options)


def run(model, backend, open_sizes=False, **arrays):
    pm = compiled(model, backend, arrays, open_sizes, inference=True)
    return pm.evaluate({}, arrays)


def backends(dtype="float64"):
    return [ml.CpuBackend(dtype=dtype), ml.NumpyBackend(dtype=dtype)]


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


# --- orders --------------------------------------------------------------------------------------


@pytest.mark.device
@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 1000])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_long_axes_are_sorted(n, axis):
    shape = [3, 4, 2]
    shape[axis] = n
    ties = np.random.default_rng(n).integers(-9, 9, shape)
    for backend in backends():
        for x in (random(*shape, seed=n), ties.astype(np.float64), ties.astype(np.int32)):
            rising = np.argsort(x, axis, kind="stable")
            got = run(ml.ArgSort(axis=axis), backend, input=x)["output"]
            np.testing.assert_array_equal(got, rising)
            got = run(ml.Sort(axis=axis, descending=True), backend, input=x)["output"]
            np.testing.assert_array_equal(got, -np.sort(-x, axis))
            # Falling, equal elements keep their order: that of the negated ones.
            got = run(ml.ArgSort(axis=axis, descending=True), backend, input=x)["output"]
            np.testing.assert_array_equal(got, np.argsort(-x, axis, kind="stable"))


TIES = [2.0, NAN, 0.0, 2.0, -0.0, NAN, -INF, INF]


def test_nan_is_the_largest_and_ties_keep_their_order(backend):
    x = np.array(TIES)
    rising, falling = [6, 2, 4, 0, 3, 7, 1, 5], [1, 5, 7, 0, 3, 2, 4, 6]
    assert as_list(backend, run(ml.ArgSort(), backend, input=give(backend, x))) == rising
    down = run(ml.ArgSort(descending=True), backend, input=give(backend, x))
    assert as_list(backend, down) == falling
    top = run(ml.TopK(k=3), backend, input=give(backend, x))
    np.testing.assert_array_equal(plain(backend, top["values"]), [NAN, NAN, INF])
    assert plain(backend, top["indices"]).tolist() == falling[:3]
    least = run(ml.TopK(k=3, largest=False), backend, input=give(backend, x))
    assert plain(backend, least["indices"]).tolist() == rising[:3]


@pytest.fixture
def backend(backend_name):
    names = {"numpy": "NumpyBackend", "cpu": "CpuBackend", "c": "CBackend", "torch": "TorchBackend",
             "jax": "JaxBackend", "mlx": "MlxBackend"}  # fmt: skip
    return getattr(ml, names[backend_name])(dtype="float32")


def give(backend, x):
    return backend.array(x)


def plain(backend, x):
    return np.asarray(backend.to_numpy(x))


def as_list(backend, outputs):
    return plain(backend, outputs["output"]).tolist()


@pytest.mark.device
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int64", "float16"])
def test_narrow_types_are_sorted(dtype):
    x = np.array([3, 0, 2, 0, 3, 1], dtype)
    for backend in backends():
        pm = compiled(ml.ArgSort(), backend, {"input": x}, inference=True)
        got = pm.evaluate({}, {"input": backend.array(x, dtype=getattr(ml, dtype))})["output"]
        np.testing.assert_array_equal(got, np.argsort(x, kind="stable"))


@pytest.mark.device
def test_gradients_of_an_order_go_where_elements_came_from():
    x, weights = np.array([[3.0, 1.0, 2.0], [0.0, 5.0, 5.0]]), random(2, 2)
    for backend in backends():
        pm = compiled(ml.TopK(k=2), backend, {"input": x})
        result = pm.evaluate({}, {"input": x}, output_gradients={"values": weights}, wrt=["input"])
        want = np.zeros((2, 3))
        want[0, [0, 2]], want[1, [1, 2]] = weights[0], weights[1]
        np.testing.assert_array_equal(result.gradients["input"], want)


# --- recurrences ---------------------------------------------------------------------------------


@pytest.mark.frameworks
@pytest.mark.parametrize("zeros", [0, 1, 2, 5])
def test_gradients_of_running_products_with_zeros(zeros):
    torch = pytest.importorskip("torch")
    x, weights = random(3, 8, seed=zeros), random(3, 8, seed=9)
    x[:, np.random.default_rng(zeros).permutation(8)[:zeros]] = 0.0
    leaf = torch.tensor(x, requires_grad=True)
    torch.cumprod(leaf, -1).backward(torch.tensor(weights))
    for backend in backends():
        pm = compiled(ml.CumProd(), backend, {"input": x})
        got = pm.evaluate({}, {"input": x}, output_gradients={"output": weights}, wrt=["input"])
        np.testing.assert_allclose(got.gradients["input"], leaf.grad.numpy(), atol=1e-12)


@pytest.mark.device
def test_running_products_of_integers_and_long_axes():
    whole = np.random.default_rng(0).integers(-3, 4, (4, 70))
    x = 1.0 + 0.01 * random(2, 3000)
    for backend in backends():
        got = run(ml.CumProd(axis=0), backend, input=whole)["output"]
        np.testing.assert_array_equal(got, np.cumprod(whole, 0))
        got = run(ml.CumProd(), backend, input=x)["output"]
        np.testing.assert_allclose(got, np.cumprod(x, -1), rtol=1e-12)


# --- places --------------------------------------------------------------------------------------


@pytest.mark.device
@pytest.mark.parametrize("bad", [5, -6, 2**31 - 1])
def test_places_out_of_bounds_are_errors(bad):
    x, at = random(3, 5), np.array([[0], [bad], [1]])
    value = np.ones((3, 1))
    for backend in backends():
        for model, more in (
            (ml.TakeAlongAxis(), {}),
            (ml.Scatter(), {"value": value}),
            (ml.ScatterAdd(), {"value": value}),
        ):
            with pytest.raises(DataIndexError, match="out of bounds"):
                run(model, backend, input=x, indices=at, **more)
        with pytest.raises(DataIndexError, match="out of bounds"):
            run(ml.PermuteTensor(), backend, input=x, indices=at.reshape(-1))


@pytest.mark.device
def test_of_values_for_one_place_the_last_one_stays():
    x, value = random(4, 50), random(4, 300, seed=1)
    at = np.random.default_rng(2).integers(-50, 50, (4, 300))
    want = x.copy()
    for row in range(4):
        for place, v in zip(at[row], value[row], strict=True):
            want[row, place] = v
    for backend in backends():
        got = run(ml.Scatter(), backend, input=x, indices=at, value=value)["output"]
        np.testing.assert_array_equal(got, want)


@pytest.mark.device
def test_gradients_of_values_that_were_put_over():
    x, value, at = np.zeros(3), np.array([5.0, 6.0, 7.0]), np.array([1, 0, 1])
    for backend in backends():
        arrays = {"input": x, "indices": at, "value": value}
        pm = compiled(ml.Scatter(), backend, arrays)
        cotangent = {"output": np.array([1.0, 2.0, 3.0])}
        got = pm.evaluate({}, arrays, output_gradients=cotangent, wrt=["input", "value"])
        np.testing.assert_array_equal(got.gradients["input"], [0.0, 0.0, 3.0])
        np.testing.assert_array_equal(got.gradients["value"], [0.0, 1.0, 2.0])


# --- open sizes ----------------------------------------------------------------------------------

OPEN = {
    "roll": (lambda: ml.Roll(shift=2, axis=0), lambda x: np.roll(x, 2, 0)),
    "roll, flat": (lambda: ml.Roll(shift=-3), lambda x: np.roll(x, -3)),
    "flip": (lambda: ml.Flip(axis=1), lambda x: np.flip(x, 1)),
    "tile": (lambda: ml.Tile(reps=(2, 3)), lambda x: np.tile(x, (2, 3))),
    "repeat": (lambda: ml.RepeatInterleave(repeats=2, axis=1), lambda x: np.repeat(x, 2, 1)),
    "tril": (lambda: ml.Tril(diagonal=1), lambda x: np.tril(x, 1)),
    "sort": (lambda: ml.Sort(axis=0), lambda x: np.sort(x, 0)),
    "cumprod": (lambda: ml.CumProd(axis=0), lambda x: np.cumprod(x, 0)),
    "positions": (
        lambda: ml.PositionalEncoding(hidden_dim=4, max_len=9),
        lambda x: x + np.stack([f(np.arange(len(x)) / d) for d in (1.0, 100.0)
                                for f in (np.sin, np.cos)], -1),
    ),
}  # fmt: skip


@pytest.mark.device
@pytest.mark.parametrize("label", OPEN)
def test_sizes_that_are_known_when_data_come(label):
    make, function = OPEN[label]
    x = random(5, 4)
    for backend in backends():
        got = run(make(), backend, open_sizes=True, input=x)["output"]
        np.testing.assert_allclose(got, function(x), rtol=1e-13, atol=1e-13)
        pm = compiled(make(), backend, {"input": x}, open_sizes=True)
        ones = np.ones_like(got)
        pm.evaluate({}, {"input": x}, output_gradients={"output": ones}, wrt=["input"])


def test_more_places_than_an_encoding_has():
    with pytest.raises(MithrilError, match="at most max_len = 4 places, got 5"):
        run(ml.PositionalEncoding(hidden_dim=4, max_len=4), ml.NumpyBackend(), input=random(5, 4))


# --- pieces and joined tuples --------------------------------------------------------------------


def test_chunks_of_unequal_sizes():
    model = ml.Model()
    model |= ml.Chunk(chunks=3, axis=1).connect(input=ml.IOKey("x", shape=[2, 8]), output="pieces")
    for i in range(3):
        model |= ml.Buffer().connect(input=model["pieces"][i], output=f"y{i}")
    assert [model.shapes[f"y{i}"] for i in range(3)] == [[2, 3], [2, 3], [2, 2]]
    x = random(2, 8)
    for backend in backends():
        pm = ml.compile(model, backend, data_keys={"x"}, inference=True)
        got = pm.evaluate({}, {"x": x})
        for i, want in enumerate((x[:, :3], x[:, 3:6], x[:, 6:])):
            np.testing.assert_array_equal(got[f"y{i}"], want)


def test_chunks_that_one_axis_does_not_have():
    with pytest.raises(ShapeError):
        ml.Model().extend(ml.Chunk(chunks=4), input=ml.IOKey("x", shape=[5]))


def test_numbers_and_tuples_become_one_tuple():
    model = ml.Model()
    model |= ml.Shape().connect(input=ml.IOKey("x", shape=["n", 3]), output="sizes")
    model |= ml.PrimitiveUnion(n=3).connect(input1=2, input2="sizes", input3=(5,), output="joined")
    model |= ml.Ones().connect(shape="joined", output=ml.IOKey("y"))
    assert model.shapes["y"] == [2, "u1", 3, 5] or len(model.shapes["y"]) == 4
    for backend in backends():
        pm = ml.compile(model, backend, data_keys={"x"}, inference=True)
        assert pm.evaluate({}, {"x": np.zeros((7, 3))})["y"].shape == (2, 7, 3, 5)


# --- random integers -----------------------------------------------------------------------------


def test_drawn_integers_are_even_and_in_range():
    for low, high in ((0, 10), (-3, 4), (2**31 - 5, 2**31)):
        model = ml.PrimitiveRandInt(shape=(20000,), key=7, low=low, high=high)
        outer = ml.Model()
        outer |= model.connect(output="y")
        drawn = ml.compile(outer, ml.CpuBackend(), inference=True).evaluate()["y"]
        values, counts = np.unique(drawn, return_counts=True)
        np.testing.assert_array_equal(values, np.arange(low, high))
        # Four standard deviations of a binomial count.
        expected = 20000 / (high - low)
        assert (abs(counts - expected) < 4 * np.sqrt(expected)).all()


def test_drawn_integers_are_new_at_each_evaluation():
    model = ml.Model()
    model |= ml.RandInt(shape=(50,), low=0, high=1000).connect(output="y")
    pm = ml.compile(model, ml.NumpyBackend(), mode="train", inference=True)
    first = pm.evaluate(state=pm.initial_state())
    second = pm.evaluate(state=first.state)
    assert (first.outputs["y"] != second.outputs["y"]).any()
    again = pm.evaluate(state=pm.initial_state())
    np.testing.assert_array_equal(first.outputs["y"], again.outputs["y"])


@pytest.mark.parametrize("axis", [[1], [0, 1], [], (), (1, 0)], ids=str)
@pytest.mark.parametrize("layer", ["Softmax", "LogSoftmax", "Softmin"])
def test_softmax_over_lists_and_tuples_of_axes(layer, axis, backend_name):
    x = np.array([[0.5, -1.0, 2.0], [1.0, 0.0, -0.5]], np.float32)
    sign = -1.0 if layer == "Softmin" else 1.0
    powers = np.exp(sign * x.astype(np.float64))
    want = powers / powers.sum(tuple(axis), keepdims=True)
    want = np.log(want) if layer == "LogSoftmax" else want
    model = ml.Model()
    model |= getattr(ml.models, layer)(axis=axis)(input="x", output="y")
    pm = ml.compile(model, ml.get_backend(backend_name), trainable_keys={"x"})
    got = pm.evaluate({"x": pm.backend.array(x)}, {})["y"]
    np.testing.assert_allclose(pm.backend.to_numpy(got), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [None, (0, 1), (1,), [1], (), True, 1.5], ids=str)
@pytest.mark.parametrize("layer", ["CumSum", "CumProd", "Sort", "ArgSort"])
def test_ops_along_one_axis_refuse_others(layer, axis):
    model = ml.Model()
    with pytest.raises(ml.ArgumentError, match="axis must be an int"):
        model |= getattr(ml.models, layer)(axis=axis)(input="x", output="y")
        ml.compile(model, ml.NumpyBackend(), shapes={"x": [2, 3]}, data_keys={"x"})
