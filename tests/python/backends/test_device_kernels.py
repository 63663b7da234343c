# Covers: backends/device/rows.cc backends/device/movement.cc backends/device/pools.cc
# Covers: backends/device/axes.cc backends/device/template_text.cc
"""Structured kernels of devices that are one text for OpenCL and CUDA: the bits of the engine, and
no step on the host, where items are few and long, as for a CPU, and where they are many and short.
"""

import emulated_cuda
import mithril as ml
import numpy as np
import pytest
from backends.plan_cases import same
from backends.test_opencl_backend import WHY
from formats.c_cases import drawn
from mithril import _core
from mithril.errors import DataIndexError

pytestmark = [pytest.mark.device]
no_opencl = pytest.mark.skipif(WHY is not None, reason=WHY or "")
no_cuda = pytest.mark.skipif(bool(emulated_cuda.NO_CUDA), reason=emulated_cuda.NO_CUDA)
DEVICES = {"opencl": no_opencl, "opencl as a GPU": no_opencl, "cuda": no_cuda}
every_device = pytest.mark.parametrize(
    "device", [pytest.param(name, marks=mark) for name, mark in DEVICES.items()]
)


def backend_of(device, dtype="float32"):
    """The backend, and a list of the programs that it will make."""
    backend = ml.CudaBackend(dtype=dtype) if device == "cuda" else ml.OpenCLBackend(dtype=dtype)
    if device == "opencl as a GPU":
        backend._device = _core.OpenClDevice(as_gpu=True)
    programs, make = [], backend._native_program

    def noted(*arguments, **options):
        programs.append(make(*arguments, **options))
        return programs[-1]

    backend._native_program = noted
    return backend, programs


def host_steps(programs):
    return sum(program.source(program.sizes({}))["host_steps"] for program in programs)


def check(model, device, dtype, params, data, gradients=True, on_host=0, **options):
    """Equal values and gradients on the engine and the device, and so many steps on the host; gives
    back the programs of the device."""
    backend, programs = backend_of(device, dtype)
    shapes = {key: list(value.shape) for key, value in (data | params).items()}
    runs = []
    for one in (ml.CpuBackend(dtype=dtype), backend):
        pm = ml.compile(model, one, data_keys=set(data), trainable_keys=set(params),
                        shapes=shapes, deterministic="portable", **options)  # fmt: skip
        cast = {key: value.astype(dtype) for key, value in params.items()}
        values = {k: np.array(v) for k, v in pm.evaluate(cast, data).items()}
        run = [values]
        if gradients and params:
            cotangents = {key: drawn(value.shape, 7) for key, value in values.items()}
            run.append(pm.evaluate(cast, data, output_gradients=cotangents).gradients)
        runs.append(run)
    for got, want in zip(runs[1], runs[0], strict=True):
        same(got, want)
    assert host_steps(programs) == on_host
    return programs


def of(op, inputs="input", output="y"):
    model = ml.Model()
    model |= op(**{key: key for key in inputs.split()}, output=output)
    model.expose_keys(output)
    return model


rng = np.random.default_rng(0)


def with_repeats(shape):
    """Numbers many of which are equal, some that are not finite."""
    x = rng.integers(-3, 3, shape).astype(np.float32)
    x.flat[0], x.flat[-1], x.flat[len(x.flat) // 2] = np.nan, -np.inf, np.nan
    return x


def indices(shape, bound, dtype="int64"):
    return rng.integers(-bound, bound, shape).astype(dtype)


def embedding(index):
    model = ml.Model()
    model |= ml.Embedding(50, 6)(input="index", weight="weight", output="y")
    model.expose_keys("y")
    return model, {"weight": drawn([50, 6])}, {"index": index}


CASES = {
    "gather": lambda: embedding(np.arange(50, dtype=np.int64)[::-1].copy()),
    "gather of many": lambda: embedding(indices([13, 7], 50) % 50),
    "gather of int32": lambda: embedding((indices([300], 50) % 50).astype(np.int32)),
    "rows that several items share": lambda: (
        of(ml.Embedding(2000, 7), "input weight"),
        {"weight": drawn([2000, 7])}, {"input": indices([25_000], 2000) % 2000},
    ),
    "take along an axis": lambda: (
        of(ml.TakeAlongAxis(axis=1), "input indices"),
        {"input": drawn([5, 9, 4])}, {"indices": indices([5, 6, 4], 9)},
    ),
    "scatter": lambda: (
        of(ml.Scatter(axis=0), "input indices value"),
        {"input": drawn([9, 4]), "value": drawn([7, 4], 1)}, {"indices": indices([7, 4], 9)},
    ),
    "scatter of sums": lambda: (
        of(ml.ScatterAdd(axis=0), "input indices value"),
        {"input": drawn([9, 4]), "value": drawn([70, 4], 1)}, {"indices": indices([70, 4], 9)},
    ),
    "concat": lambda: (
        joined(3, 1), {f"x{i}": drawn([4, 2 + i, 5], i) for i in range(3)}, {},
    ),
    "concat of the last axis": lambda: (
        joined(3, -1), {f"x{i}": drawn([40, 1 + 3 * i], i) for i in range(3)}, {},
    ),
    "concat of 61": lambda: (joined(61, 0), {f"x{i}": drawn([2, 3], i) for i in range(61)}, {}),
    "concat of 62": lambda: (joined(62, 1), {f"x{i}": drawn([2, 3], i) for i in range(62)}, {}),
    "pad": lambda: (
        of(ml.Pad(pad_width=[(1, 2), (0, 3), (2, 1)])), {"input": drawn([4, 3, 5])}, {},
    ),
    "pad of one axis": lambda: (of(ml.Pad(pad_width=[(700, 0)])), {"input": drawn([900])}, {}),
    "argsort": lambda: (of(ml.ArgSort(axis=-1)), {}, {"input": with_repeats([6, 70])}),
    "argsort of a middle axis": lambda: (
        of(ml.ArgSort(axis=1, descending=True)), {}, {"input": with_repeats([3, 50, 4])},
    ),
    "argsort of integers": lambda: (of(ml.ArgSort()), {}, {"input": indices([4, 33], 5)}),
    "argsort of a long row": lambda: (of(ml.ArgSort()), {}, {"input": with_repeats([2, 20_000])}),
    "sort": lambda: (of(ml.Sort(axis=0)), {"input": drawn([30, 3])}, {}),
    "running product": lambda: (of(ml.CumProd(axis=1)), {"input": drawn([3, 40, 2])}, {}),
    "running product of integers": lambda: (of(ml.CumProd()), {}, {"input": indices([3, 40], 9)}),
    "product of integers": lambda: (
        of(ml.MatrixMultiply(), "left right"), {},
        {"left": indices([2, 3, 9, 70], 2**31), "right": indices([3, 70, 130], 2**31)},
    ),
    "product of transposed integers": lambda: (
        transposed(), {}, {"left": indices([9, 5], 99, "int32"), "b": indices([8, 5], 9, "int32")},
    ),
}  # fmt: skip


def joined(count, axis):
    model = ml.Model()
    model |= ml.Concat(axis=axis)(input=[ml.IOKey(f"x{i}") for i in range(count)], output="y")
    model.expose_keys("y")
    return model


def transposed():
    model = ml.Model()
    model |= ml.Transpose()(input="b", output="right")
    model |= ml.MatrixMultiply()(left="left", right="right", output="y")
    model.expose_keys("y")
    return model


@every_device
@pytest.mark.parametrize("title", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_axes_and_movement(title, device, dtype):
    model, params, data = CASES[title]()
    check(model, device, dtype, params, data)


POOLS = {
    "pairs": ([2, 3, 8, 10], {"kernel_size": 2}),
    "overlapping": ([1, 2, 9, 11], {"kernel_size": 3, "stride": 2, "padding": 1}),
    "dilated": ([2, 1, 12, 13], {"kernel_size": (3, 2), "stride": (2, 1), "dilation": (2, 3)}),
    "far apart": ([1, 2, 11, 11], {"kernel_size": 2, "stride": 4}),
    "wide rows": ([1, 1, 5, 300], {"kernel_size": (2, 5), "stride": 1, "padding": (0, 2)}),
    "whole planes": ([3, 2, 7, 6], {"kernel_size": (7, 6)}),
}


@every_device
@pytest.mark.parametrize("title", POOLS)
@pytest.mark.parametrize("part", ["MaxPool2d", "AvgPool2d"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pools(part, title, device, dtype):
    shape, options = POOLS[title]
    check(of(getattr(ml, part)(**options)), device, dtype, {"input": with_repeats(shape) / 3}, {})


@every_device
@pytest.mark.parametrize("part", ["AdaptiveAvgPool2d", "AdaptiveMaxPool2d"])
def test_adaptive_pools(part, device):
    check(of(getattr(ml, part)((3, 4))), device, "float32", {"input": drawn([2, 3, 9, 8])}, {})


@every_device
@pytest.mark.parametrize("offset", [None, 0, 3, 4, -1])
def test_caches(offset, device):
    """Of an offset that is a number of the model (None: 2) and one that is data; one that does not
    fit leaves NaN."""
    part = ml.UpdateCache(offset=2) if offset is None else ml.UpdateCache()
    data = {"cache": drawn([2, 3, 5, 4]), "input": drawn([2, 3, 2, 4], 1)}
    if offset is not None:
        data["offset"] = np.array(offset, np.int64)
    check(of(part, " ".join(data)), device, "float32", {}, data)


@every_device
def test_indices_that_are_out_of_bounds(device):
    """The engine's error, and the next call is right; nothing of a step has been written then."""
    model = ml.Model()
    model |= ml.Embedding(4, 2)(input="x", weight="w", output="h")
    model |= ml.Relu()(input="h", output="y")
    model.expose_keys("y")
    pm = ml.compile(model, backend_of(device)[0], data_keys={"x"}, shapes={"x": [3]})
    params = {"w": drawn([4, 2])}
    for bad in (4, -5, 2**40):
        with pytest.raises(DataIndexError, match=f"index {bad} is out of bounds for an axis of"):
            pm.evaluate(params, {"x": np.array([0, bad, 1])})
        y = pm.evaluate(params, {"x": np.array([0, -1, 3])})["y"]
        np.testing.assert_array_equal(y, np.maximum(params["w"], 0)[[0, 3, 3]])


@every_device
def test_a_step_that_is_refused_changes_nothing(device):
    model = ml.Model()
    model |= ml.Embedding(5, 3)(input="x", weight="w", output="y")
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="y", target="target")
    optimizer = ml.optim.AdamW(lr=0.1)
    pm = ml.compile(train, backend_of(device)[0], data_keys={"x", "target"},
                    shapes={"x": [2], "target": [2, 3]}, optimizer=optimizer)  # fmt: skip
    params = pm.get_parameters()
    state = optimizer.init(params)
    before = {key: np.array(value) for key, value in params.items()}
    target = np.zeros([2, 3], np.float32)
    with pytest.raises(DataIndexError):
        pm.step(params, state, {"x": np.array([1, 9]), "target": target})
    for key, value in before.items():
        np.testing.assert_array_equal(params[key], value)
    pm.step(params, state, {"x": np.array([1, 4]), "target": target})


STRIDED = {
    "strides of 2": ([2, 4, 9, 10], {"kernel_size": 3, "stride": 2, "padding": 1}),
    "strides apart": ([1, 3, 12, 7], {"kernel_size": (2, 3), "stride": (3, 2), "dilation": (2, 1)}),
    "some places meet no tap": ([2, 2, 9, 9], {"kernel_size": 1, "stride": 2}),
    "dilations of the stride": ([1, 2, 11, 12], {"kernel_size": 3, "stride": 2, "dilation": 2}),
    "groups": ([2, 4, 8, 8], {"kernel_size": 3, "stride": 2, "groups": 2, "padding": 1}),
    "many taps": ([1, 3, 17, 16], {"kernel_size": 7, "stride": (2, 4), "padding": 3}),
}


def strided(title):
    shape, options = STRIDED[title]
    filters = 70 if title == "many taps" else 6
    model = ml.Model()
    model |= ml.Conv2d(filters=filters, use_bias=False, **options)(
        input="x", weight="w", output="y"
    )  # fmt: skip
    model.expose_keys("y")
    kernel = options["kernel_size"]
    window = list(kernel) if isinstance(kernel, tuple) else [kernel, kernel]
    weight = drawn([filters, shape[1] // options.get("groups", 1), *window], 4)
    return model, {"x": drawn(shape), "w": weight}, {}


@every_device
@pytest.mark.parametrize("title", STRIDED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_convolutions_with_strides(title, dtype, device):
    check(strided(title)[0], device, dtype, *strided(title)[1:])


NOTHING = {
    "concat of one": (lambda: joined(1, 0), [0, 4]),
    "concat": (lambda: joined(2, 1), [0, 3], [0, 4]),
    "concat of three": (lambda: joined(3, 0), [2, 0], [0, 0], [1, 0]),
    "roll": (lambda: of(ml.Roll(shift=1, axis=0)), [4, 0]),
    "shift of frequencies": (lambda: of(ml.FFTShift()), [0, 4]),
    "features": (lambda: of(ml.PolynomialFeatures(degree=2)), [0, 4]),
    "exponential": (lambda: of(ml.MatrixExp()), [2, 0, 0]),
    "rotary": (lambda: of(ml.RotaryEmbedding()), [0, 2, 4, 4]),
    "recurrent": (lambda: of(ml.LSTM(3, bidirectional=True)), [0, 4, 4]),
    "non-zero": (lambda: of(ml.NonZero()), [0, 4]),
    "sort": (lambda: of(ml.Sort()), [4, 0]),
    "sort of lines": (lambda: of(ml.Sort(axis=0)), [0, 4]),
    "argsort": (lambda: of(ml.ArgSort()), [0]),
    "top-k": (lambda: ml.TopK(0), [4, 0]),
    "unique": (lambda: of(ml.Unique()), [0, 4]),
}


@every_device
@pytest.mark.parametrize("title", NOTHING)
def test_arrays_without_elements(title, device):
    """Sizes of zero leave nothing to be done."""
    make, *sizes = NOTHING[title]
    names = [f"x{i}" for i in range(len(sizes))] if title.startswith("concat") else ["input"]
    data = {name: np.zeros(size, np.float32) for name, size in zip(names, sizes, strict=True)}
    shapes = dict(zip(names, sizes, strict=True))
    results = []
    for one in (ml.CpuBackend(), backend_of(device)[0]):
        pm = ml.compile(make(), one, data_keys=set(data), shapes=shapes)
        results.append(pm.evaluate(pm.get_parameters(), data))
    same(results[1], results[0])
