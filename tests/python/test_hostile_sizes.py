"""Sizes, steps, ranks and files that no sane model has: the answer is right or a typed error, never
a signal. Each call runs in a process of its own.
"""

import json
import os
import signal

import mithril as ml
import numpy as np
import pytest
from mithril.errors import InternalError, MithrilError

LIMIT = 60  # seconds
NATIVE = {"cpu": ml.CpuBackend, "numpy": ml.NumpyBackend}
natively = pytest.mark.parametrize("native", NATIVE)
HUGE = [2**31, 2**40, 2**40 + 1, 2**60, 2**61, 2**62, 2**63 - 1]
RANKS = [13, 16, 17, 30, 64]


def outcome(call):
    """Returns what a call in a process of its own gives: `right`, `wrong: …`, or an error's class.
    A lock that another thread held at the fork is held for ever there: a hang is tried again."""
    told = once(call)
    return once(call) if told == f"wrong: signal {int(signal.SIGALRM)}" else told


def once(call):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        try:
            result = call()
            text = "right" if result is None else f"wrong: {result!r}"
        except InternalError as error:
            text = f"wrong: {error}"
        except MithrilError as error:
            text = type(error).__name__
        except BaseException as error:
            text = f"wrong: {type(error).__name__} {error}"
        os.write(write, text.encode()[:4000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read().decode()
    status = os.waitpid(child, 0)[1]
    return f"wrong: signal {status & 127}" if status else told


def refuses_or_is_right(call):
    found = outcome(call)
    assert not found.startswith("wrong"), found
    return found


def unread_latent_wire():
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="y")
    model.set_shapes(x=[2])
    document = json.loads(model.to_json())
    document["model"]["wires"].append("$1")
    document["model"]["latent"] = ["$1"]
    return json.dumps(document)


# --- files ---------------------------------------------------------------------------------------


@natively
def test_a_wire_that_nobody_reads(native):
    text = unread_latent_wire()

    def call():
        model = ml.Model.from_json(text)
        pm = ml.compile(model, NATIVE[native](), data_keys={"x"}, inference=True)
        got = pm.evaluate({}, {"x": np.zeros(2, np.float32)})["y"]
        return None if got.tolist() == [0.0, 0.0] else got

    assert outcome(call) == "right"


def test_a_model_with_such_a_wire_is_edited():
    text = unread_latent_wire()

    def call():
        model = ml.Model.from_json(text)
        model |= ml.Tanh()(input=model.y, output="z")
        copy = model.clone()
        again = ml.Model.from_json(copy.to_json())
        return None if again.input_keys == copy.input_keys else again.input_keys

    assert outcome(call) == "right"


# --- slices --------------------------------------------------------------------------------------

SLICES = [(1, 3, 2**62), (0, None, 2**62), (None, None, -(2**62)), (2**62, None, -1),
          (1, None, 2**63 - 1), (None, None, -(2**63)), (-(2**63), 2**63 - 1, 3),
          (None, None, 2**31), (3, None, 2**40), (None, -(2**63), -1), (4, None, -(2**40)),
          (0, 5, 4), (0, 5, 3)]  # fmt: skip


@natively
@pytest.mark.parametrize("bounds", SLICES, ids=str)
@pytest.mark.parametrize("is_open", [False, True])
def test_slices(is_open, bounds, native):
    part = slice(*bounds)
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    want = np.zeros((5, 2), np.float32)
    want[part] = 1

    def call():
        model = ml.Model()
        model |= ml.Buffer()(input="x", output="b")
        model |= ml.Buffer()(input=model.b[part], output="y")
        model.expose_keys("y")
        model.set_shapes(x=["n" if is_open else 5, 2])
        pm = ml.compile(model, NATIVE[native](), data_keys={"x"})
        got = pm.evaluate({}, {"x": x})["y"]
        ones = {"y": np.ones_like(got)}
        slope = pm.evaluate({}, {"x": x}, output_gradients=ones, wrt=["x"]).gradients["x"]
        same = np.array_equal(got, x[part]) and np.array_equal(slope, want)
        return None if same else (got, slope)

    assert outcome(call) == "right"


@natively
def test_bounds_of_slices(native):
    """True counts as 1, as in Python; text is none."""
    x = np.arange(6, dtype=np.float32).reshape(3, 2)

    def sliced(part):
        model = ml.Model()
        model |= ml.Buffer()(input="x", output="b")
        model |= ml.Buffer()(input=model.b[part], output="y")
        model.expose_keys("y")
        model.set_shapes(x=[3, 2])
        pm = ml.compile(model, NATIVE[native](), data_keys={"x"}, inference=True)
        return pm.evaluate({}, {"x": x})["y"]

    np.testing.assert_array_equal(sliced(slice(True, None)), x[1:])
    np.testing.assert_array_equal(sliced(slice(None, True)), x[:1])
    np.testing.assert_array_equal(sliced(slice(None, None, True)), x)
    for bad in ("a", 1.5, [1]):
        with pytest.raises(MithrilError, match="bounds of a slice"):
            sliced(slice(bad, None))


# --- windows -------------------------------------------------------------------------------------


def convolved(backend, **options):
    model = ml.Model()
    model |= ml.Convolution2D(3, 2, **options)(input="x", weight="w", bias="b", output="y")
    data = {
        "x": np.ones((1, 1, 8, 8), np.float32),
        "w": np.ones((2, 1, 3, 3), np.float32),
        "b": np.ones((1, 2, 1, 1), np.float32),
    }
    pm = ml.compile(model, backend, data_keys=set(data))
    got = pm.evaluate({}, data)["y"]
    ones = {"y": np.ones_like(got)}
    pm.evaluate({}, data, output_gradients=ones, wrt=["x", "w"])
    return None if got[0, 0, 0, 0] in (10.0, 1.0) else got


def pooled(backend, layer, shape, kind=np.float32, **options):
    model = ml.Model()
    key = ml.IOKey("x", type=ml.Tensor[float if kind is np.float32 else int])
    model |= layer(**options)(input=key, output="y")
    pm = ml.compile(model, backend, data_keys={"x"})
    data = {"x": np.ones(shape, kind)}
    got = pm.evaluate({}, data)["y"]
    if kind is np.float32:
        pm.evaluate({}, data, output_gradients={"y": np.ones_like(got)}, wrt=["x"])
    return None if got.reshape(-1)[0] == 1 else got


@natively
@pytest.mark.parametrize("option", ["stride", "dilation", "padding"])
def test_convolutions(option, native):
    for size in HUGE:
        found = refuses_or_is_right(lambda size=size: convolved(NATIVE[native](), **{option: size}))
        assert found == "right" or size >= 2**31
        if size > 2**40:
            assert found == "ArgumentError"


POOLS = {
    "max1": (ml.MaxPool1D, (1, 1, 8)),
    "max2": (ml.MaxPool2D, (1, 1, 8, 8)),
    "average2": (ml.AvgPool2D, (1, 1, 8, 8)),
    "average3": (ml.AvgPool3D, (1, 1, 4, 4, 4)),
}


@natively
@pytest.mark.parametrize("option", ["stride", "dilation", "kernel_size"])
@pytest.mark.parametrize("pool", POOLS)
def test_pools(pool, option, native):
    layer, shape = POOLS[pool]
    for size in HUGE:
        options = {"kernel_size": 2, option: size}
        found = refuses_or_is_right(
            lambda options=options: pooled(NATIVE[native](), layer, shape, **options)
        )
        if size > 2**40:
            assert found == "ArgumentError"


def test_sizes_of_windows_are_refused_where_the_layer_is_written():
    model = ml.Model()
    with pytest.raises(
        MithrilError, match="stride must be at most 2\\^40, got 1152921504606846976"
    ):
        model |= ml.Convolution2D(3, 2, stride=2**60)(input="x")
    with pytest.raises(MithrilError, match="the reach of a window must be at most 2\\^40"):
        model |= ml.MaxPool2D(2**20 + 1, dilation=2**21)(input="x")


@pytest.mark.parametrize("groups", [0, -1, -(2**63)])
def test_groups_are_refused_where_the_layer_is_written(groups):
    for layer in (ml.Convolution2D, ml.Convolution3D):
        model = ml.Model()
        with pytest.raises(MithrilError, match="groups must be at least 1"):
            model |= layer(3, 2, groups=groups)(input="x")


def test_windows_that_are_text():
    """Of files: the layers of Python refuse it before."""
    model = ml.Model()
    model |= ml.MaxPool2D(2)(input="x", output="y")
    document = json.loads(model.to_json())
    for key in ("kernel_size", "stride", "dilation"):
        changed = json.loads(json.dumps(document))
        changed["model"]["parts"][0]["values"][key] = "seven"
        with pytest.raises(MithrilError, match="expected an int or 2 ints"):
            ml.Model.from_json(json.dumps(changed))


@natively
def test_masks_of_other_sizes(native):
    for mask in ([True, False], ml.Tensor([True, False, True, True])):
        model = ml.Model()
        model |= ml.Buffer()(input="x", output="b")
        model.set_shapes(x=[3, 2])
        with pytest.raises(MithrilError, match="a mask must have the sizes of the axes"):
            model |= ml.Buffer()(input=model.b[mask], output="y")
            ml.compile(model, NATIVE[native](), data_keys={"x"}, inference=True)


@natively
@pytest.mark.parametrize("size", [2**10, 2**31, 2**40])
def test_windows_of_integers(size, native):
    """They are written out place by place: not so many."""
    options = {"kernel_size": size, "stride": 1, "padding": size // 2}
    shape = (1, 1, 4, 4)
    found = refuses_or_is_right(
        lambda: pooled(NATIVE[native](), ml.MaxPool2D, shape, np.int64, **options)
    )
    assert found == "UnsupportedError"


# --- parameters ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2**40, 2**60, 2**62, 2**63 - 1])
def test_parameters_that_no_memory_holds(size):
    model = ml.Model()
    model |= ml.Linear(size)(input="x", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [2, 2]})
    with pytest.raises(ml.errors.OutOfMemoryError, match="does not fit in memory"):
        pm.randomize_params(0)


# --- ranks ---------------------------------------------------------------------------------------

LAYERS = {
    "topk": lambda: ml.TopK(1),
    "sort": ml.Sort,
    "sum": lambda: ml.Sum(axis=-1),
    "flip": lambda: ml.Flip(axis=0),
    "moveaxis": lambda: ml.MoveAxis(0, 1),
    "diagonal": ml.Diagonal,
    "along": ml.TakeAlongAxis,
    "scatter": ml.Scatter,
    "fft": ml.FFT,
    "softmax": ml.Softmax,
    "transpose": ml.Transpose,
    "flatten": lambda: ml.Flatten(start_dim=1),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_ranks_are_followed(layer):
    for rank in RANKS:

        def call(rank=rank):
            model = ml.Model()
            op = LAYERS[layer]()
            model |= op.connect(**{op.input_keys[0]: "x"})
            model.set_shapes(x=[f"d{i}" for i in range(rank)])
            dict(model.shapes)

        found = refuses_or_is_right(call)
        assert found == "right", rank


@natively
@pytest.mark.parametrize("rank", [13, 17, 32])
def test_values_of_high_ranks(rank, native):
    shape = [1] * (rank - 2) + [2, 3]
    x = np.arange(6, dtype=np.float32).reshape(shape)

    def evaluated(layer, key="output", **wires):
        model = ml.Model()
        model |= layer.connect(input="x", **wires, **{key: "y"})
        model.expose_keys("y")
        shapes = {"x": shape}
        pm = ml.compile(model, NATIVE[native](), data_keys={"x"}, shapes=shapes, inference=True)
        return pm.evaluate({}, {"x": x})["y"]

    def call():
        pairs = [
            (evaluated(ml.TopK(2), "values"), np.flip(np.sort(x, -1), -1)[..., :2]),
            (evaluated(ml.Diagonal(axis1=-2, axis2=-1)), np.diagonal(x, 0, -2, -1)),
            (evaluated(ml.Sum(axis=-1)), x.sum(-1)),
            (evaluated(ml.Flip(axis=-1)), np.flip(x, -1)),
        ]
        return next((pair for pair in pairs if not np.array_equal(*pair)), None)

    assert outcome(call) == "right"


TOO_MANY = {
    "none": lambda model: ml.Buffer()(input=model.b[(None,) * 65], output="y"),
    "reshape": lambda model: ml.Reshape((1,) * 65)(input=model.b, output="y"),
    "broadcast": lambda model: ml.BroadcastTo((1,) * 65)(input=model.b, output="y"),
    "expand": lambda model: ml.ExpandDims(axis=tuple(range(65)))(input=model.b, output="y"),
}


@pytest.mark.parametrize("way", TOO_MANY)
def test_more_than_64_dimensions(way):
    model = ml.Model()
    model |= ml.Buffer()(input="x", output="b")
    model.set_shapes(x=[])
    with pytest.raises(MithrilError, match="at most 64 dimensions, got 65"):
        model |= TOO_MANY[way](model)


# --- arguments of calls --------------------------------------------------------------------------


@pytest.fixture
def line():
    model = ml.Model()
    model |= ml.Linear(2)(input="x", weight="w", bias="b", output="y")
    return ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [3, 2]})


def test_wrt_that_is_no_list_of_names(line):
    data = {"x": np.ones((3, 2), np.float32)}
    ones = {"y": np.ones((3, 2), np.float32)}
    for bad in (5, 3.5, [5], [None], {"x": 1}, b"x", ["z"]):
        with pytest.raises(MithrilError, match="wrt"):
            line.evaluate({}, data, output_gradients=ones, wrt=bad)


def test_a_key_in_params_and_in_data(line):
    x = np.ones((3, 2), np.float32)
    params = line.randomize_params(0)
    with pytest.raises(MithrilError, match="'x' is in params and in data") as caught:
        line.evaluate({**params, "x": x}, {"x": x})
    assert "reads it from data" in str(caught.value)
    with pytest.raises(MithrilError, match="'w' is in params and in data"):
        line.evaluate(params, {"x": x, "w": params["w"]})


def test_memory_limits_beyond_64_bits():
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="y")
    for limit in (2**63, 2**200, "1e30"):
        with pytest.raises(MithrilError, match="memory_limit"):
            ml.compile(model, ml.CpuBackend(), memory_limit=limit)
    ml.compile(model, ml.CpuBackend(), memory_limit=2**63 - 1)


# --- nothing -------------------------------------------------------------------------------------


def test_places_in_nothing(backend_name):
    """NumPy and PyTorch refuse them; Max and Min of nothing have a value (docs/numerics.md)."""
    backend = ml.get_backend(backend_name)
    for layer in (ml.ArgMax, ml.ArgMin):
        for shape, axis in (((3, 0), 1), ((0,), None), ((0, 3), 0)):
            model = ml.Model()
            model |= layer(axis=axis)(input="x", output="y")
            model.set_shapes(x=[None] * len(shape))
            pm = ml.compile(model, backend, data_keys={"x"}, inference=True)
            with pytest.raises(MithrilError, match="requires an element along the axes"):
                pm.evaluate({}, {"x": backend.array(np.zeros(shape, np.float32))})
        model = ml.Model()
        model |= layer(axis=1)(input="x", output="y")
        model.set_shapes(x=[None, 3])
        pm = ml.compile(model, backend, data_keys={"x"}, inference=True)
        got = pm.evaluate({}, {"x": backend.array(np.zeros((0, 3), np.float32))})["y"]
        assert tuple(got.shape) == (0,)


# --- files that a killed save leaves --------------------------------------------------------------


def test_the_next_save_removes_what_a_killed_one_left(tmp_path):
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="y")
    path = tmp_path / "model.json"
    child = os.fork()
    if child == 0:
        from mithril.base.files import replacing

        with replacing("save", path) as file:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    left = [p for p in tmp_path.iterdir() if p.name.endswith(".tmp")]
    assert len(left) == 1
    young = tmp_path / ".model.json.0123456789ab.tmp"
    young.write_bytes(b"somebody writes this")
    os.utime(left[0], (0, 0))
    model.save(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [young.name, "model.json"]


def test_a_save_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch):
    from mithril.base import files

    def interrupted(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(files.os, "fsync", interrupted)
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="y")
    with pytest.raises(KeyboardInterrupt):
        model.save(tmp_path / "model.json")
    assert list(tmp_path.iterdir()) == []
