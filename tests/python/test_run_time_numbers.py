"""Axes, lengths, paddings, shapes and slices that only a call gives: one program for each set."""

import mithril as ml
import numpy as np
import pytest
from mithril import models as m

X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)


def padded(x):
    return np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)


def pooled(x, stride):
    windows = np.lib.stride_tricks.sliding_window_view(padded(x), (2, 2), (2, 3))
    return windows[:, :, :: stride[0], :: stride[1]].max((4, 5))


# Layer, its numbers by key -> [(numbers of a call, what x becomes)].
CASES = {
    "axis of a mean": (
        lambda: m.Mean(axis=ml.TBD),
        [({"axis": 1}, X.mean(1)), ({"axis": (2, 3)}, X.mean((2, 3))), ({"axis": None}, X.mean())],
    ),
    "axis and keepdim": (
        lambda: m.Max(axis=ml.TBD, keepdim=ml.TBD),
        [({"axis": -1, "keepdim": True}, X.max(-1, keepdims=True)),
         ({"axis": -1, "keepdim": False}, X.max(-1))],
    ),
    "shape of a reshape": (
        lambda: m.Reshape(shape=ml.TBD),
        [({"shape": (4, 6)}, X.reshape(4, 6)), ({"shape": [-1]}, X.reshape(-1))],
    ),
    "axes of a transpose": (
        lambda: m.Transpose(axes=ml.TBD),
        [({"axes": (0, 1, 3, 2)}, X.transpose(0, 1, 3, 2)), ({"axes": None}, X.T)],
    ),
    "axes that are swapped": (
        lambda: m.SwapAxes(axis1=ml.TBD, axis2=ml.TBD),
        [({"axis1": 1, "axis2": -1}, X.swapaxes(1, -1))],
    ),
    "stride and padding of a pooling": (
        lambda: m.MaxPool2D(kernel_size=2, stride=ml.TBD, padding=ml.TBD),
        [({"stride": (1, 2), "padding": (1, 1)}, pooled(X, (1, 2))),
         ({"stride": (2, 2), "padding": (1, 1)}, pooled(X, (2, 2)))],
    ),
    "widths of a padding": (
        lambda: m.Pad(pad_width=ml.TBD),
        [({"pad_width": ((0, 0), (0, 0), (1, 0), (0, 2))},
          np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2))))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_numbers_of_a_layer(backend_name, case):
    layer, calls = CASES[case]
    model = ml.Model()
    keys = {key: key for key in calls[0][0]}
    model |= layer()(input="x", output="y", **keys)
    backend = ml.get_backend(backend_name)
    pm = ml.compile(model, backend, inference=True, jit=False)
    for numbers, want in [*calls, calls[0]]:
        got = backend.to_numpy(pm.evaluate({}, {"x": backend.array(X), **numbers})["y"])
        np.testing.assert_allclose(got, want)


def made(backend, model, data):
    pm = ml.compile(model, backend, inference=True, jit=False)
    return [backend.to_numpy(pm.evaluate({}, given)["y"]) for given in data]


def test_arrays_that_are_made_of_numbers(backend_name):
    backend = ml.get_backend(backend_name)
    for layer, key, calls in (
        (m.Eye(N=ml.TBD), "N", {2: np.eye(2), 3: np.eye(3)}),
        (m.Ones(shape=ml.TBD), "shape", {(2, 3): np.ones((2, 3)), (1,): np.ones(1)}),
        (m.Arange(stop=ml.TBD), "stop", {4: np.arange(4), 2: np.arange(2)}),
    ):
        model = ml.Model()
        model |= layer(**{key: "n"}, output="y")
        for got, want in zip(
            made(backend, model, [{"n": n} for n in calls]), calls.values(), strict=True
        ):
            np.testing.assert_array_equal(got, want)


def test_joining_along_an_axis(backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    parts = [ml.IOKey(name, type=ml.Tensor[float]) for name in "ab"]
    model |= m.Concat(axis=ml.TBD)(input=parts, axis="axis", output="y")
    a, b = backend.array(X), backend.array(X + 1)
    data = [{"a": a, "b": b, "axis": axis} for axis in (0, 3, 0)]
    for got, axis in zip(made(backend, model, data), (0, 3, 0), strict=True):
        np.testing.assert_array_equal(got, np.concatenate([X, X + 1], axis))


@pytest.mark.parametrize(
    ("kind", "indices"),
    [(int, [0, -1]), (slice, [slice(0, 1), slice(None, None, -1)]), (tuple[int, int], [(0, 1)])],
)
def test_indices(backend_name, kind, indices):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= m.Indexer(index=ml.TBD)(input="x", index=ml.IOKey("i", type=kind), output="y")
    x = backend.array(X)
    for got, index in zip(made(backend, model, [{"x": x, "i": i} for i in indices]), indices,
                          strict=True):  # fmt: skip
        np.testing.assert_array_equal(got, X[index])


def test_parts_of_a_slice(backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= m.Slice(start=1, stop=ml.TBD, step=ml.TBD)(stop=3, step="step", output="s")
    model |= m.Indexer(index=ml.TBD)(input="x", index="s", output="y")
    model.set_types(x=ml.Tensor[float])
    x = backend.array(X[0, 0])
    for got, step in zip(made(backend, model, [{"x": x, "step": n} for n in (1, 2)]), (1, 2),
                         strict=True):  # fmt: skip
        np.testing.assert_array_equal(got, X[0, 0, 1:3:step])


def test_bounds_of_random_integers(backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= m.PrimitiveRandInt(shape=(50,), key=1, low=ml.TBD, high=ml.TBD)(
        low="low", high="high", output="y"
    )
    first, second = made(backend, model, [{"low": 3, "high": 6}, {"low": -2, "high": 0}])
    assert set(first.tolist()) == {3, 4, 5} and set(second.tolist()) == {-2, -1}


def test_gradients_and_parameters(backend_name):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="h")
    model |= ml.Sum(axis=ml.TBD)(input="h", axis="axis", output="y")
    pm = ml.compile(model, backend, data_keys={"x", "axis"}, jit=False)
    x = backend.array(X[0, 0])
    data = {"x": x, "axis": 0}
    params = pm.randomize_params(0)
    pm.evaluate(params, data)
    outputs, gradients = pm.evaluate(
        params, data, output_gradients={"y": backend.array(np.array([1.0, 2.0], np.float32))}
    )
    assert backend.to_numpy(outputs["y"]).shape == (2,)
    want = np.outer([1.0, 2.0], X[0, 0].sum(0))
    np.testing.assert_allclose(backend.to_numpy(gradients["w"]), want)
    np.testing.assert_allclose(backend.to_numpy(gradients["b"]), [3, 6])


def test_what_is_not_given_or_wrong():
    model = ml.Model()
    model |= ml.Mean(axis=ml.TBD)(input="x", axis="axis", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    with pytest.raises(KeyError, match="data must have 'axis'"):
        pm.evaluate({}, {"x": X})
    with pytest.raises(ValueError, match="axis"):
        pm.evaluate({}, {"x": X, "axis": 7})
    with pytest.raises(ValueError, match="axis must be"):
        pm.evaluate({}, {"x": X, "axis": 1.5})
    assert pm.evaluate({}, {"x": X, "axis": np.int64(1)})["y"].shape == (1, 3, 4)


@pytest.mark.parametrize(
    ("layer", "want"),
    [(m.ToTuple, ((4, 5), 3)), (m.ToList, [(4, 5), 3]), (m.PrimitiveUnion, (4, 5, 3))],
)
def test_containers_of_numbers(backend_name, layer, want):
    """Known ones, those of a shape, and those of a call."""
    backend = ml.get_backend(backend_name)
    for first, data in (
        ((4, 5), {}),
        ("s", {"s": (4, 5)}),
        (ml.IOKey("x", type=ml.Tensor[float]).shape, {"x": backend.array(np.ones((4, 5), "f4"))}),
    ):
        model = ml.Model()
        given = ml.IOKey("s", type=tuple[int, int]) if first == "s" else first
        model |= layer(n=2)(input1=given, input2=3, output="y")
        pm = ml.compile(model, backend, inference=True, jit=False)
        got = pm.evaluate({}, data)["y"]
        assert got == want and type(got) is type(want)


# start, stop, step -> what NumPy's arange makes of them.
RANGES = [(0, 5, 1), (0.5, 3, 0.5), (0, 3, 0.5), (5, 0, -2), (0, 4.5, 1), (3, 0, 1)]


def ranging():
    model = ml.Model()
    keys = {key: key for key in ("start", "stop", "step")}
    model |= m.Arange(start=ml.TBD, stop=ml.TBD, step=ml.TBD)(**keys, output="y")
    return model


def test_ranges_hold_what_their_numbers_are(backend_name):
    backend = ml.get_backend(backend_name)
    pm = ml.compile(ranging(), backend)
    for numbers in RANGES + RANGES[:1]:
        for kind in (lambda n: n, np.asarray):
            given = dict(zip(("start", "stop", "step"), map(kind, numbers), strict=True))
            got = np.asarray(backend.to_numpy(pm.evaluate({}, given)["y"]))
            want = np.arange(*numbers)
            np.testing.assert_array_equal(got, want)
            assert got.dtype.kind == want.dtype.kind


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    "numbers",
    [(0, 5, 0), (0, 5, 0.0), (0, NAN, 1), (0, INF, 1), (-INF, 0, 1), (0, 1, NAN), (0, 1, INF),
     (0, 1e18, 1), (0, 10**18, 1), (0, 2**63, 1), (-(2**63), 2**63 - 1, 1), (0, "a", 1),
     (0, None, 1), (True, 3, 1)],
)  # fmt: skip
def test_ranges_that_there_are_not(backend_name, numbers):
    pm = ml.compile(ranging(), ml.get_backend(backend_name))
    given = dict(zip(("start", "stop", "step"), numbers, strict=True))
    with pytest.raises(ml.errors.MithrilError):
        pm.evaluate({}, given)
    assert pm.evaluate({}, {"start": 0, "stop": 2, "step": 1})["y"].shape == (2,)


@pytest.mark.parametrize(
    ("layer", "key", "values"),
    [
        (m.Eye(N=ml.TBD), "N", [-1, 10**18, 2.5, NAN, True]),
        (m.Eye(N=2, M=ml.TBD), "M", [-1, 10**18, 2.5, NAN, True]),
        (m.Ones(shape=ml.TBD), "shape", [(-1,), (10**18,), (2**40, 2**40), (1.5,), (NAN,)]),
        (m.Full(shape=ml.TBD, value=2.0), "shape", [(-1,), (10**18,), (2**40, 2**40), (1.5,)]),
    ],
)
def test_sizes_that_there_are_not(backend_name, layer, key, values):
    model = ml.Model()
    model |= layer.clone()(**{key: key}, output="y")
    pm = ml.compile(model, ml.get_backend(backend_name), jit=False)
    for value in values:
        with pytest.raises(ml.errors.MithrilError):
            pm.evaluate({}, {key: value})


def test_arrays_of_sizes(backend_name):
    backend = ml.get_backend(backend_name)
    for layer in (m.Ones(shape=ml.TBD), m.Full(shape=ml.TBD, value=1.0)):
        model = ml.Model()
        model |= layer(shape="shape", output="y")
        for got, shape in zip(
            made(backend, model, [{"shape": s} for s in ((2, 3), np.array([4]), 3)]),
            [(2, 3), (4,), (3,)],
            strict=True,
        ):
            np.testing.assert_array_equal(got, np.ones(shape))
