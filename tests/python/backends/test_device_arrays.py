# Covers: backends/device/storage.cc bindings/device_array.cc
"""`ml.Array`: values that stay in the memory of a device from call to call, and the bits of the
engine in them. `device` makes a backend; memory "as a GPU's" is none that the host reads."""

import copy
import ctypes
import multiprocessing
import os
import pickle
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import mithril as ml
import numpy as np
import pytest
from backends.device_cases import forks, injecting, live_objects
from backends.plan_cases import branch, every_model, same
from backends.test_cuda_backend import NO_CUDA
from backends.test_opencl_backend import WHY as NO_OPENCL
from emulated_cuda import is_used
from formats.c_cases import MODELS, drawn, training
from mithril import _core
from mithril.backends.with_manualgrad import object_cache
from mithril.errors import (
    ArgumentError,
    DataIndexError,
    DeviceNotAvailable,
    DTypeError,
    OutOfMemoryError,
    ShapeError,
)

pytestmark = pytest.mark.device


class NamedPair(NamedTuple):
    first: Any
    last: Any


def opencl(**options):
    return ml.OpenCLBackend("cpu", **options)


def as_a_gpu(**options):
    backend = ml.OpenCLBackend(**options)
    backend._device = _core.OpenClDevice(as_gpu=True)
    return backend


def without(reason):
    return pytest.mark.skipif(bool(reason), reason=reason or "")


@pytest.fixture(
    params=[
        pytest.param(opencl, id="opencl", marks=without(NO_OPENCL)),
        pytest.param(as_a_gpu, id="as a gpu", marks=without(NO_OPENCL)),
        pytest.param(ml.CudaBackend, id="cuda", marks=without(NO_CUDA)),
    ]
)
def device(request, tmp_path, monkeypatch):
    monkeypatch.setattr(object_cache._core, "cache_dir", lambda: str(tmp_path / "cache"))
    return request.param


def both(device, model, dtype="float32", **options):
    """The model on the engine and on the device."""
    backends = ml.CpuBackend(dtype=dtype), device(dtype=dtype)
    return tuple(
        ml.compile(model, backend, deterministic="portable", **options) for backend in backends
    )


def all_arrays(nest):
    """Asserts that everything in it is on a device."""
    for value in nest.values():
        assert type(value) is ml.Array
    return nest


# --- models ---------------------------------------------------------------------------------------


@every_model
def test_values_and_gradients(device, title):
    make, shape = MODELS[title]
    engine, other = both(device, make(), data_keys={"x"}, shapes={"x": shape}, mode="eval")
    place = other.backend.to_device
    params, data = engine.get_parameters(), {"x": drawn(shape)}
    want = engine.evaluate(params, data)
    same(all_arrays(other.evaluate(place(params), place(data))), want)
    cotangents = {"y": drawn(want["y"].shape, 1)}
    want = engine.evaluate(params, data, output_gradients=cotangents)
    got = other.evaluate(place(params), data, output_gradients=cotangents)
    same(all_arrays(got.outputs), want.outputs)
    same(all_arrays(got.gradients), want.gradients)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("title", ["mlp", "cnn", "lstm"])
def test_steps(device, title, streams):
    """Everything that a step returns goes into the next one where it is."""
    make, shape = MODELS[title]
    optimizer = ml.optim.AdamW(lr=1e-2)
    runs = []
    for pm in both(
        device, training(make()), data_keys={"x", "target"}, shapes={"x": shape},
        optimizer=optimizer, stream_gradients=streams,
    ):  # fmt: skip
        place = getattr(pm.backend, "to_device", dict) if runs else dict
        data = place({"x": drawn(shape), "target": drawn(dict(pm.shapes)["target"], 1)})
        params, state = place(pm.get_parameters()), place(pm.initial_state())
        opt_state = optimizer.init(params)
        for _ in range(3):
            params, opt_state, state, outputs = pm.step(params, opt_state, data, state)
        runs.append((params, opt_state["m"], state, outputs))
    for want, got in zip(*runs, strict=True):
        same(all_arrays(got), want)


def test_arrays_that_are_not_given_away_stay_as_they_are(device):
    """A step that may overwrite copies what another array shares."""
    make, shape = MODELS["mlp"]
    optimizer = ml.optim.SGD(lr=0.1)
    pm = ml.compile(
        training(make()), device(), data_keys={"x", "target"}, shapes={"x": shape},
        optimizer=optimizer, stream_gradients=True,
    )  # fmt: skip
    place = pm.backend.to_device
    params = place(pm.get_parameters())
    data = place({"x": drawn(shape), "target": drawn(dict(pm.shapes)["target"], 1)})
    view = {name: value[:1] for name, value in params.items()}
    before = {name: np.asarray(value) for name, value in view.items()}
    pm.step(params, optimizer.init(params), data)
    changed = {name for name in view if not np.array_equal(view[name], before[name])}
    assert changed == set(params)  # they were given away, and a view sees that


def test_states_that_are_donated(device):
    make, shape = MODELS["cnn"]
    pm = ml.compile(make(), device(), data_keys={"x"}, shapes={"x": shape}, mode="train")
    place = pm.backend.to_device
    params, data = place(pm.get_parameters()), place({"x": drawn(shape)})
    kept = pm.evaluate(params, data, state=place(pm.initial_state()))
    given = pm.evaluate(params, data, state=place(pm.initial_state()), donate_state=True)
    same(all_arrays(given.outputs), kept.outputs)
    same(all_arrays(given.state), kept.state)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches(device, sign):
    engine, other = both(device, branch(), data_keys={"x"}, shapes={"x": [5]})
    data = {"x": sign * np.abs(drawn([5]))}
    same(all_arrays(other.evaluate({}, other.backend.to_device(data))), engine.evaluate({}, data))


def test_sizes_that_data_decide(device):
    """What one part of the program hands to the next stays where it is."""
    model = ml.Model()
    model |= ml.NonZero()(input="x", output="places")
    model |= ml.Unique()(input="x", output="values")
    model.expose_keys("places", "values")
    engine, other = both(device, model, data_keys={"x"}, shapes={"x": [7]})
    data = {"x": np.array([0, 3, 0, 1, 3, 0, 2], "f4")}
    got = all_arrays(other.evaluate({}, other.backend.to_device(data)))
    same(got, engine.evaluate({}, data))


def test_open_sizes_and_other_dtypes(device):
    engine, other = both(device, MODELS["mlp"][0](), data_keys={"x"}, shapes={"x": ["batch", 16]})
    params = engine.get_parameters()
    placed = other.backend.to_device(params)
    for batch in (1, 3, 0, 3):
        data = {"x": drawn([batch, 16]).astype("f8")}
        want = engine.evaluate(params, data)
        same(all_arrays(other.evaluate(placed, other.backend.to_device(data))), want)


def test_what_does_not_fit_is_told_as_of_numpys_arrays(device):
    pm = ml.compile(MODELS["mlp"][0](), device(), data_keys={"x"}, shapes={"x": [8, 16]})
    params, place = pm.get_parameters(), pm.backend.to_device
    with pytest.raises(ShapeError, match="8, 16"):
        pm.evaluate(params, {"x": place(drawn([8, 17]))})
    index = ml.Model()
    index |= ml.Embedding(num_embeddings=4, dim=2)(input="i", output="y")
    pm = ml.compile(index, device(), data_keys={"i"}, shapes={"i": [3]})
    params = place(pm.get_parameters())
    with pytest.raises(DTypeError, match="requires integers, got float32"):
        pm.evaluate(params, {"i": place([0.0, 1.0, 2.0])})
    with pytest.raises(DataIndexError, match="4"):
        pm.evaluate(params, {"i": place([0, 4, 1])})
    assert np.asarray(pm.evaluate(params, {"i": place([0, 3, 1])})["y"]).shape == (3, 2)


def test_results_outlive_what_they_were_computed_by(device):
    """Nothing waits for a result but who reads it; the queue may still need the program."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(300, 300)).astype("f4")
    backend = device()
    x = backend.to_device(data)
    for _ in range(5):
        pm = ml.compile(ml.Sigmoid(), backend, data_keys={"input"}, shapes={"input": [300, 300]})
        x = pm.evaluate({}, {"input": x})["output"]
        del pm
    want = data.astype("f8")
    for _ in range(5):
        want = 1 / (1 + np.exp(-want))
    np.testing.assert_allclose(x, want, rtol=1e-6)
    backend.block_until_ready(x)


# --- arrays ---------------------------------------------------------------------------------------


def test_what_is_placed_keeps_its_dtype(device):
    backend = device()
    for dtype in (
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "float32",
        "float64",
    ):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        placed = backend.to_device(x)
        assert placed.dtype == x.dtype and placed.shape == (2, 3) and placed.size == 6
        assert (placed.ndim, placed.nbytes, placed.itemsize) == (2, x.nbytes, x.itemsize)
        np.testing.assert_array_equal(placed, x)
    half = ml.NumpyBackend(dtype="bfloat16").array([1.5, -2.0])
    assert backend.to_device(half).to_numpy().dtype == half.dtype
    assert backend.to_device([1, 2]).dtype == np.int64
    assert backend.to_device([1.0]).dtype == np.float32
    assert backend.to_device(3.0).shape == ()
    assert backend.to_device(np.ones((0, 3))).tolist() == []
    assert backend.to_device(np.arange(6.0).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]
    assert backend.to_device(np.arange(6.0)[::-2]).tolist() == [5, 3, 1]
    assert backend.to_device(np.array([1, 2], ">i4")).tolist() == [1, 2]


def test_nests_keep_their_kinds(device):
    backend, x = device(), np.ones(2, "f4")
    pair = NamedPair(x, [x])
    placed = backend.to_device(pair)
    assert type(placed) is NamedPair and type(placed.last[0]) is ml.Array
    rows = OrderedDict(b=x, a={"c": (x, None)})
    placed = backend.to_device(rows)
    assert type(placed) is OrderedDict and list(placed) == ["b", "a"]
    assert type(placed["a"]["c"][0]) is ml.Array and placed["a"]["c"][1] is None
    assert type(rows["b"]) is np.ndarray
    grouped = defaultdict(list, w=[x])
    placed = backend.to_device(grouped)
    assert type(placed) is defaultdict and placed["other"] == []
    assert type(placed["w"][0]) is ml.Array and list(grouped) == ["w"]


def test_lists_of_numbers_are_arrays_inside_of_nests_too(device):
    placed = device().to_device({"w": [1.0, 2.0], "rows": [np.ones(2, "f4"), ((1, 2), (3, 4))]})
    assert (placed["w"] + 1).tolist() == [2, 3]
    assert placed["rows"][0].tolist() == [1, 1]
    assert placed["rows"][1].tolist() == [[1, 2], [3, 4]]


def test_nests_without_an_end_are_refused(device):
    backend, x = device(), np.ones(2, "f4")
    alone, beside, named = [], [x], {"x": x}
    alone.append(alone)
    beside.append((beside, x))
    named["self"] = {"again": named}
    deep = x
    for _ in range(65):
        deep = [deep]
    for nest in (alone, beside, named, {"a": beside}, deep):
        with pytest.raises(ArgumentError, match="to_device: requires .* at most 64 levels deep"):
            backend.to_device(nest)
    placed = backend.to_device(deep[0])
    for _ in range(64):
        (placed,) = placed
    assert placed.tolist() == [1, 1]


def test_what_is_placed_is_a_copy(device):
    x = np.ones(3, "f4")
    placed = device().to_device(x)
    x[0] = 5
    assert placed.tolist() == [1, 1, 1]
    read = placed.to_numpy()
    read[1] = 7
    assert placed.tolist() == [1, 1, 1]


def test_nests_keep_their_form(device):
    backend = device()
    nest = {"a": np.ones(2), "b": [np.zeros(1), (np.ones(1), None)], "c": [1.0, 2.0]}
    placed = backend.to_device(nest)
    assert type(placed["a"]) is type(placed["b"][0]) is type(placed["b"][1][0]) is ml.Array
    assert placed["b"][1][1] is None
    back = backend.to_device(placed, "cpu")
    assert type(back["a"]) is np.ndarray and back["a"].tolist() == [1, 1]
    assert backend.to_device(placed["a"]) is placed["a"]
    assert backend.to_device(placed["a"], backend.get_device()) is placed["a"]


def test_nobody_else_makes_them():
    with pytest.raises(TypeError, match=r"backend\.to_device\(values\)"):
        ml.Array([1.0])


def test_places_that_are_not_there(device):
    with pytest.raises(DeviceNotAvailable, match="to_device requires .* or 'cpu', got 'tpu:3'"):
        device().to_device([1.0], "tpu:3")


BINARY = ["x + y", "x - y", "x * y", "x / y", "x // y", "x % y", "x ** y",
          "x < y", "x <= y", "x > y", "x >= y", "x == y", "x != y"]  # fmt: skip


@pytest.mark.parametrize("text", BINARY)
def test_operators(device, text):
    backend = device()
    x, y = drawn([2, 3]), np.abs(drawn([3], 1)) + 0.5
    if "**" in text:
        x = np.abs(x)
    put = backend.to_device
    want = eval(text, {"x": x.astype("f8"), "y": y.astype("f8")})
    for a, b in ((put(x), put(y)), (put(x), y), (x, put(y))):
        got = eval(text, {"x": a, "y": b})
        assert type(got) is ml.Array
        np.testing.assert_allclose(got, want, rtol=1e-5)
    number = eval(text, {"x": put(x), "y": 2.5})
    np.testing.assert_allclose(number, eval(text, {"x": x.astype("f8"), "y": 2.5}), rtol=1e-5)
    assert str(number.dtype) in ("float32", "bool")


def test_other_operands_lie_as_they_like(device):
    """Those that are not contiguous, not aligned, of the other byte order."""
    backend = device()
    x, y = drawn([2, 3]), drawn([3, 2], 1)
    placed = backend.to_device(x)
    unaligned = np.frombuffer(b"_" + y.tobytes(), "f4", offset=1).reshape(y.shape)
    np.testing.assert_array_equal(placed + y.T, x + y.T)
    np.testing.assert_array_equal(y.T - placed, y.T - x)
    np.testing.assert_allclose(placed @ y[:, ::-1], x @ y[:, ::-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(placed @ unaligned, x @ y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(placed > x.astype(">f4") / 2, x > x / 2)
    np.testing.assert_array_equal(backend.where(y.T > 0, placed, y.T), np.where(y.T > 0, x, y.T))


def test_operators_of_one_operand_and_of_bools(device):
    backend = device()
    x = drawn([4])
    placed = backend.to_device(x)
    np.testing.assert_array_equal(-placed, -x)
    np.testing.assert_array_equal(abs(placed), abs(x))
    np.testing.assert_array_equal(~(placed > 0), ~(x > 0))
    np.testing.assert_array_equal((placed > 0) | (placed < -1), (x > 0) | (x < -1))
    np.testing.assert_array_equal((placed > 0) & (placed < 1), (x > 0) & (x < 1))
    np.testing.assert_allclose(backend.to_device(np.eye(4, dtype="f4")) @ placed, x)
    np.testing.assert_allclose(2 - placed, 2 - x)
    placed += 1
    np.testing.assert_allclose(placed, x + 1)


def test_methods_of_the_backend(device):
    backend = device()
    x = drawn([3, 4])
    placed = backend.to_device(x)
    wide = x.astype("f8")
    for got, want in (
        (backend.exp(placed), np.exp(wide)),
        (backend.sum(placed, axis=1), wide.sum(1)),
        (backend.concat([placed, placed], axis=0), np.concatenate([wide, wide])),
        (backend.transpose(placed), wide.T),
        (backend.reshape(placed, (4, 3)), wide.reshape(4, 3)),
        (backend.where(placed > 0, placed, 0.0), np.where(wide > 0, wide, 0)),
        (backend.cast(placed, "float64"), wide),
        (backend.softmax(placed), np.exp(wide) / np.exp(wide).sum(1, keepdims=True)),
    ):
        assert type(got) is ml.Array
        np.testing.assert_allclose(got, want, rtol=1e-5)
    assert backend.shape(placed) == (3, 4) and backend.dtype(placed) == "float32"
    assert type(backend.to_numpy(placed)) is np.ndarray


METHODS = ["x.sum()", "x.sum(axis=1)", "x.mean(axis=0, keepdims=True)", "x.max(0)", "x.min()",
           "x.prod(axis=1)", "(x > 0).any()", "(x > -9).all(axis=0)", "x.argmax(axis=1)",
           "x.argmin(axis=0)", "x.astype('float64')", "x.reshape(4, 3)", "x.reshape((2, -1))",
           "x.T", "x.transpose()", "x.clip(-0.5, 0.5)", "x.clip(None, 0.5)", "x[:1].squeeze()",
           "x.flatten()", "np.sum(x, axis=1)", "np.mean(x)", "np.max(x)", "np.any(x > 0)",
           "np.argmax(x, axis=1)"]  # fmt: skip


@pytest.mark.parametrize("text", METHODS)
def test_methods_of_arrays(device, text):
    x = drawn([3, 4])
    got = eval(text, {"x": device().to_device(x), "np": np})
    assert type(got) is ml.Array
    np.testing.assert_allclose(got, eval(text, {"x": x.astype("f8"), "np": np}), rtol=1e-5)


def test_derivatives_of_functions_stay_there(device):
    backend = device()
    x = backend.to_device([1.0, 2.0])
    slope = backend.grad(lambda p: backend.sum(p["x"] ** 2 * p["y"]))({"x": x, "y": 3 * x})
    assert type(slope["x"]) is type(slope["y"]) is ml.Array
    assert slope["x"].tolist() == [6, 24] and slope["y"].tolist() == [1, 4]
    y, pulled, _ = backend.vjp(lambda a: a * a, x, cotangents=x)
    assert type(y) is type(pulled) is ml.Array and pulled.tolist() == [2, 8]
    rows = backend.vmap(lambda row: backend.sum(row))(backend.to_device(np.ones((2, 3), "f4")))
    assert type(rows) is ml.Array and rows.tolist() == [3, 3]
    assert type(backend.zeros_like(x)) is type(backend.ones_like(x)) is ml.Array
    assert type(backend.unique(x)) is ml.Array


def test_steps_that_clip_and_steps_by_hand(device):
    """`clip_norm`, and an optimizer's `update`, compute with arrays as they are."""
    make, shape = MODELS["mlp"]
    options = {"data_keys": {"x", "target"}, "shapes": {"x": shape}}
    for optimizer in (ml.optim.SGD(lr=0.1), ml.optim.Adam(lr=0.1, clip_norm=0.01)):
        runs = []
        for pm in both(device, training(make()), optimizer=optimizer, **options):
            place = getattr(pm.backend, "to_device", dict) if runs else dict
            data = place({"x": drawn(shape), "target": drawn(dict(pm.shapes)["target"], 1)})
            params = place(pm.get_parameters())
            stepped = pm.step(params, optimizer.init(params), data).params
            gradients = pm.evaluate(params, data, output_gradients=True).gradients
            runs.append((stepped, optimizer.update(params, gradients, optimizer.init(params))[0]))
        for got, want in zip(runs[1], runs[0], strict=True):
            for name, value in all_arrays(got).items():
                np.testing.assert_allclose(value, want[name], rtol=1e-5, atol=1e-6)


INDICES = [0, -1, slice(1, 3), slice(None), slice(5, 2), slice(None, None, 2), (0, 1), (..., None),
           slice(None, None, -1), (slice(None), 2), None, [0, 2],
           np.array([True, False, True])]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indices(device, index):
    x = drawn([3, 4])
    got = device().to_device(x)[index]
    assert type(got) is ml.Array
    np.testing.assert_array_equal(got, x[index])


def test_indices_out_of_bounds(device):
    placed = device().to_device(drawn([3]))
    for index in (3, -4, 2**70):
        with pytest.raises(IndexError, match="out of bounds"):
            placed[index]
    assert [float(x) for x in placed] == drawn([3]).tolist()
    with pytest.raises(TypeError, match="change a copy"):
        placed[0] = 1
    with pytest.raises(TypeError, match="no length"):
        len(placed[0])
    with pytest.raises(TypeError, match="nothing to iterate over"):
        list(placed[0])


def test_views_go_into_models(device):
    backend = device()
    rows = drawn([6, 16])
    placed = backend.to_device(rows)
    engine, other = both(device, MODELS["mlp"][0](), data_keys={"x"}, shapes={"x": [3, 16]})
    params = engine.get_parameters()
    for part in (slice(0, 3), slice(2, 5), slice(3, 6)):
        want = engine.evaluate(params, {"x": rows[part]})
        same(all_arrays(other.evaluate(params, {"x": placed[part]})), want)


def test_numbers(device):
    placed = device().to_device(np.float32(2.5))
    assert float(placed) == placed.item() == 2.5 and int(placed) == 2 and bool(placed)
    assert complex(placed) == 2.5
    assert range(5)[device().to_device(3)] == 3
    with pytest.raises(TypeError):
        float(device().to_device([1.0, 2.0]))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(device().to_device([1.0, 2.0]))
    with pytest.raises(TypeError):
        hash(placed)


def test_numpy_reads_them(device):
    x = drawn([2, 2])
    placed = device().to_device(x)
    np.testing.assert_array_equal(np.asarray(placed), x)
    assert np.asarray(placed, "f8").dtype == np.float64
    assert int(np.argmax(placed)) == np.argmax(x)
    np.testing.assert_allclose(np.exp(placed), np.exp(x))
    with pytest.raises(ValueError, match="without a copy"):
        np.array(placed, copy=False)


def test_text(device):
    placed = device().to_device([[1.0, 2.0], [3.0, 4.0]])
    lines = repr(placed).splitlines()
    assert lines[0] == "Array([[1., 2.],"
    assert lines[1].startswith("       [3., 4.]], dtype=float32, device='")
    assert f"{placed}" == str(placed) and f"{placed[1, 0]:.2f}" == "3.00"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{placed:.2f}"


def test_none_is_no_array(device):
    placed = device().to_device([1.0, 2.0])
    assert (placed == None) is False and (placed != None) is True  # noqa: E711
    assert placed not in [None]


def test_copies(device):
    placed = device().to_device(drawn([2, 3]))
    for made in (pickle.loads(pickle.dumps(placed)), copy.deepcopy(placed), copy.copy(placed)):
        assert type(made) is ml.Array
        np.testing.assert_array_equal(made, placed)


def test_other_backends_take_copies(device):
    placed = device().to_device(drawn([8, 16]))
    pm = ml.compile(MODELS["mlp"][0](), ml.CpuBackend(), data_keys={"x"}, shapes={"x": [8, 16]})
    params = pm.get_parameters()
    got = pm.evaluate(params, {"x": placed})
    same(got, pm.evaluate(params, {"x": drawn([8, 16])}))
    assert type(got["y"]) is np.ndarray
    np.testing.assert_array_equal(ml.CpuBackend().array(placed), drawn([8, 16]))


def another_cuda(**options):
    if len(ml.CudaBackend.get_available_devices()) < 2:
        pytest.skip("there is one GPU")
    return ml.CudaBackend("cuda:1", **options)


both_there = without(NO_OPENCL or NO_CUDA)
PAIRS = [
    pytest.param(ml.CudaBackend, another_cuda, id="cuda:0 to cuda:1", marks=without(NO_CUDA)),
    pytest.param(another_cuda, ml.CudaBackend, id="cuda:1 to cuda:0", marks=without(NO_CUDA)),
    pytest.param(opencl, ml.CudaBackend, id="opencl to cuda", marks=both_there),
    pytest.param(ml.CudaBackend, opencl, id="cuda to opencl", marks=both_there),
    pytest.param(opencl, as_a_gpu, id="opencl to a gpu", marks=without(NO_OPENCL)),
    pytest.param(as_a_gpu, opencl, id="a gpu to opencl", marks=without(NO_OPENCL)),
]


@pytest.mark.parametrize("source, target", PAIRS)
def test_arrays_of_another_device(source, target):
    """As operands of a model, of its step and of operators, and by to_device: copies, whose values
    are right while the source still computes them, and which the source does not share."""
    there, here = source(), target()
    x = drawn([8, 16])
    doubled = there.to_device(x) * np.float32(2)  # it may not be computed yet
    moved = here.to_device(doubled)
    assert type(moved) is ml.Array and moved.is_on(here._device)
    assert not moved.is_on(there._device)
    np.testing.assert_array_equal(moved, 2 * x)
    np.testing.assert_array_equal(here.to_device(x) + doubled, x + 2 * x)

    make, shape = MODELS["mlp"]
    optimizer = ml.optim.AdamW(lr=1e-2)
    runs = []
    for backend, place in ((ml.CpuBackend(), lambda arrays: arrays), (here, there.to_device)):
        pm = ml.compile(
            training(make()), backend, data_keys={"x", "target"}, shapes={"x": shape},
            optimizer=optimizer, deterministic="portable",
        )  # fmt: skip
        data = {"x": drawn(shape), "target": drawn(dict(pm.shapes)["target"], 1)}
        params = place(pm.get_parameters())
        values = pm.evaluate(params, place(data))
        stepped = pm.step(params, optimizer.init(params), place(data))
        runs.append((values, stepped.params))
    for got, want in zip(runs[1], runs[0], strict=True):
        same({name: np.asarray(value) for name, value in got.items()}, want)


# --- memory and failures --------------------------------------------------------------------------


def test_memory_goes_back(device):
    backend = device()
    backend.to_device(1.0)  # the backend is whole
    before = live_objects()
    arrays = [backend.to_device(np.ones(4, "f4")) for _ in range(10)]
    views = [x[1:] for x in arrays]
    assert live_objects() == before + 10
    del arrays
    assert live_objects() == before + 10
    del views
    assert live_objects() == before


@pytest.fixture
def inject():
    yield from injecting([*_core.opencl_functions(), *_core.cuda_functions()])


FAILURES = {
    "opencl": [("clCreateBuffer", -4), ("clEnqueueWriteBuffer", -5), ("clFinish", -36)],
    "cuda": [("cuMemAllocFromPoolAsync", 2), ("cuMemcpyHtoDAsync_v2", 2),
             ("cuStreamSynchronize", 700)],
}  # fmt: skip


def test_calls_that_fail(device, inject):
    backend = device()
    kept = backend.to_device([1.0, 2.0])
    for symbol, status in FAILURES["cuda" if isinstance(backend, ml.CudaBackend) else "opencl"]:
        backend.empty_cache()  # what is kept is not allocated
        before = live_objects()
        inject(symbol, 1, status)
        with pytest.raises((OutOfMemoryError, DeviceNotAvailable), match=symbol):
            backend.to_device([3.0, 4.0])
        assert live_objects() == before
        assert (kept + backend.to_device([3.0, 4.0])).tolist() == [4, 6]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@forks
def test_a_fork_is_told(device):
    placed = device().to_device([1.0, 2.0])
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def work():
        try:
            placed.to_numpy()
        except DeviceNotAvailable as error:
            there.send(str(error))

    child = context.Process(target=work)
    child.start()
    assert here.poll(60) and "forked" in here.recv()
    child.join(60)
    assert child.exitcode == 0


# --- DLPack ---------------------------------------------------------------------------------------


def test_other_libraries_read_copies_of_what_they_cannot_reach(device):
    x = drawn([2, 3])
    placed = device().to_device(x)
    if placed.__dlpack_device__() == (1, 0):
        np.testing.assert_array_equal(np.from_dlpack(placed), x)
    np.testing.assert_array_equal(np.from_dlpack(placed, device="cpu"), x)
    with pytest.raises(BufferError, match="as a copy"):
        placed.__dlpack__(dl_device=(8, 0))
    with pytest.raises(BufferError):
        placed.__dlpack__(dl_device=(1, 0), copy=False)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int8", "int64", "uint8", "bool"]
)
def test_what_other_libraries_lend(device, dtype):
    """What the device cannot reach is copied; so are elements with gaps between them."""
    backend = device()
    x = np.arange(12).reshape(3, 4).astype(dtype)
    for given in (x, x[:, 1:3], x.T):
        taken = backend.from_dlpack(given)
        assert type(taken) is ml.Array and taken.dtype == x.dtype
        np.testing.assert_array_equal(taken, given)


class OfAnotherLibrary:
    """Hands out an array by DLPack alone; `ml.Array`s of the same device are taken as they are."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_memory_of_a_gpu_is_shared():
    if NO_CUDA:
        pytest.skip(NO_CUDA)
    backend = ml.CudaBackend()
    first = backend.to_device(np.arange(6, dtype="f4").reshape(2, 3))
    first[:1] + 1  # what computes it stays
    before = live_objects()
    assert first.__dlpack_device__() == (2, 0)
    assert backend.from_dlpack(first) is first
    second = backend.from_dlpack(OfAnotherLibrary(first[1:]))
    assert live_objects() == before + 1  # the share, not a copy
    del first
    np.testing.assert_array_equal(second, [[3, 4, 5]])
    np.testing.assert_array_equal(second + 1, [[4, 5, 6]])
    with pytest.raises(BufferError, match="as a copy"):
        second.__dlpack__(copy=True)
    del second
    assert live_objects() <= before


def test_capsules_that_nobody_takes(device):
    placed = device().to_device([1.0, 2.0])
    before = live_objects()
    for _ in range(3):
        placed.__dlpack__()
    assert live_objects() == before
    np.testing.assert_array_equal(placed, [1, 2])


class Consumer:
    """Another library on the emulator: it reads memory by a stream of its own, when it likes."""

    def __init__(self):
        ml.CudaBackend()  # which initialises the driver
        self.driver = ctypes.CDLL(os.environ["MITHRIL_CUDA_LIB"])
        self._context, stream = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), 0) == 0
        self._call("cuStreamCreate", ctypes.byref(stream), 0)
        self.stream = stream.value
        self._copies = []

    def close(self):
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(self.stream))

    def _call(self, name, *arguments):
        own = ctypes.c_void_p()
        assert self.driver.cuCtxPushCurrent_v2(self._context) == 0
        assert getattr(self.driver, name)(*arguments) == 0
        assert self.driver.cuCtxPopCurrent_v2(ctypes.byref(own)) == 0

    def start_to_read(self, pointer, count):
        """Values of float32 that are there when `wait` returns."""
        out = np.zeros(count, "f4")
        to, size = ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(out.nbytes)
        stream = ctypes.c_void_p(self.stream)
        self._call("cuMemcpyDtoHAsync_v2", to, ctypes.c_uint64(pointer), size, stream)
        return out

    def wait(self):
        self._call("cuStreamSynchronize", ctypes.c_void_p(self.stream))

    def has(self, pointer):
        """Tells whether memory of the device is still there."""
        self.driver.emulated_is_ours.restype = ctypes.c_bool
        return self.driver.emulated_is_ours(ctypes.c_uint64(pointer), ctypes.c_size_t(1))


@pytest.fixture
def consumer():
    if NO_CUDA or not is_used():
        pytest.skip(NO_CUDA or "streams of the emulator show when they do what")
    made = Consumer()
    yield made
    made.close()


TENSOR_OF_MANAGED, TENSOR_OF_VERSIONED, FLAGS_OF_VERSIONED = 0, 32, 24  # bytes in a struct
READ_ONLY = 1


def address_in(capsule):
    """Where a capsule's struct is."""
    name = b"dltensor_versioned" if '"dltensor_versioned"' in repr(capsule) else b"dltensor"
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return get(capsule, name)


def pointer_in(capsule):
    place = TENSOR_OF_VERSIONED if "dltensor_versioned" in repr(capsule) else TENSOR_OF_MANAGED
    return ctypes.c_void_p.from_address(address_in(capsule) + place).value


@pytest.mark.parametrize("version", [None, (1, 0)])
@pytest.mark.parametrize("who", ["stream", "host", "nobody"])
def test_who_waits_for_the_values(consumer, who, version):
    """The stream that the consumer names, without the host; else the host; with -1 nobody."""
    backend, values = ml.CudaBackend(), drawn([100])
    backend.exp(backend.to_device(3 + values))  # compiled; its memory is taken again
    backend.block_until_ready()
    x = backend.exp(backend.to_device(values))
    stream = {"stream": consumer.stream, "host": None, "nobody": -1}[who]
    capsule = x.__dlpack__(stream=stream, max_version=version)
    pointer, want = pointer_in(capsule), np.exp(values.astype("f8"))
    memory = np.ctypeslib.as_array((ctypes.c_float * 100).from_address(pointer))
    assert np.allclose(memory, want, rtol=1e-4) == (who == "host")
    read = consumer.start_to_read(pointer, 100)
    consumer.wait()
    assert np.allclose(read, want, rtol=1e-4) == (who != "nobody")
    np.testing.assert_allclose(x, want, rtol=1e-4)


@pytest.mark.parametrize("stream", [0, -2, 2**70, "1", 1.0])
def test_streams_that_nobody_has(consumer, stream):
    x = ml.CudaBackend().to_device([1.0])
    with pytest.raises(BufferError, match="stream requires None, -1 or the number of a stream"):
        x.__dlpack__(stream=stream)


OF_STREAMS = ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent"]


@pytest.mark.parametrize("symbol", OF_STREAMS)
def test_streams_that_cannot_wait(consumer, inject, symbol):
    x = ml.CudaBackend().to_device([1.0])
    before = live_objects()
    inject(symbol, 1, 400)
    with pytest.raises(DeviceNotAvailable, match=symbol):
        x.__dlpack__(stream=consumer.stream)
    assert live_objects() == before
    assert x.__dlpack__(stream=1) is not None and x.__dlpack__(stream=2) is not None


def test_memory_that_a_consumer_may_read_is_not_given_to_others(consumer):
    backend = ml.CudaBackend()
    values = drawn([1000])
    x = backend.to_device(values)
    capsule = x.__dlpack__(stream=consumer.stream)
    pointer = pointer_in(capsule)
    read = consumer.start_to_read(pointer, 1000)  # later
    del x, capsule
    others = [backend.to_device(np.zeros(1000, "f4")) for _ in range(3)]
    backend.block_until_ready()
    consumer.wait()
    np.testing.assert_array_equal(read, values)
    assert all(float(other.sum()) == 0 for other in others)
    read = consumer.start_to_read(pointer, 1000)  # who frees it waits for everybody
    backend.empty_cache()
    backend.block_until_ready()
    np.testing.assert_array_equal(read, values)
    assert not consumer.has(pointer)


def test_lent_memory_comes_back(consumer):
    """1.2 GB in all, of 1 GiB."""
    backend = ml.CudaBackend()
    values = np.ones(1 << 20, "f4")
    for _ in range(300):
        backend.to_device(values).__dlpack__(stream=consumer.stream)
    backend.empty_cache()


def test_lent_memory_that_cannot_be_waited_for(consumer, inject):
    backend = ml.CudaBackend()
    x = backend.to_device(np.ones(1000, "f4"))
    pointer = pointer_in(x.__dlpack__(stream=consumer.stream))
    del x
    for _ in range(2):
        inject("cuCtxSynchronize", 1, 719)
        with pytest.raises(DeviceNotAvailable, match="cuCtxSynchronize"):
            backend.empty_cache()
        assert consumer.has(pointer)  # for the next time
    backend.empty_cache()
    backend.block_until_ready()
    assert not consumer.has(pointer)


class ReadOnly(OfAnotherLibrary):
    """Lends memory that nobody may write over."""

    def __dlpack__(self, *, stream=None, max_version=None, **options):
        capsule = self._array.__dlpack__(stream=stream, max_version=max_version, **options)
        flags = ctypes.c_uint64.from_address(address_in(capsule) + FLAGS_OF_VERSIONED)
        flags.value |= READ_ONLY
        return capsule


@pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA or "")
def test_memory_that_is_read_only_is_not_written_over():
    model = ml.TrainModel(ml.Linear(3, name="layer"))
    model.add_loss(ml.SquaredError(), [ml.Mean()], input="output", target="target")
    optimizer = ml.optim.SGD(lr=0.1)
    shapes = {"input": [4, 2], "target": [4, 3]}
    options = {"data_keys": set(shapes), "shapes": shapes, "naming": "path"}
    pm = ml.compile(model, ml.CudaBackend(), optimizer=optimizer, stream_gradients=True, **options)
    own = pm.backend.to_device(pm.get_parameters())
    data = pm.backend.to_device({key: drawn(shape) for key, shape in shapes.items()})
    before = {key: value.to_numpy() for key, value in own.items()}
    lent = {key: pm.backend.from_dlpack(ReadOnly(value)) for key, value in own.items()}
    got, _, _, _ = pm.step(lent, optimizer.init(lent), data)
    for key, value in before.items():
        np.testing.assert_array_equal(own[key], value)
        assert (got[key].to_numpy() != value).any()
    written, _, _, _ = pm.step(own, optimizer.init(own), data)
    same(written, {key: value.to_numpy() for key, value in got.items()})
    assert any((own[key].to_numpy() != before[key]).any() for key in own)  # these may be


@pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA or "")
def test_read_only_memory_is_lent_as_such():
    backend = ml.CudaBackend()
    lent = backend.from_dlpack(ReadOnly(backend.to_device([1.0, 2.0])))
    for one in (lent, lent[:1]):
        with pytest.raises(BufferError, match="only DLPack 1.0 can say"):
            one.__dlpack__()
        capsule = one.__dlpack__(max_version=(1, 0))
        flags = ctypes.c_uint64.from_address(address_in(capsule) + FLAGS_OF_VERSIONED).value
        assert flags == READ_ONLY
    assert (lent + 1).tolist() == [2, 3]


def test_what_has_no_dlpack(device):
    with pytest.raises(ArgumentError, match="from_dlpack requires an array with __dlpack__"):
        device().from_dlpack([1.0])
    half = device().to_device(ml.NumpyBackend(dtype="bfloat16").array([1.0]))
    if half.__dlpack_device__() != (1, 0):
        assert device().from_dlpack(half).dtype == half.dtype
