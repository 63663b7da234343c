# Covers: backends/opencl/tiles.cc backends/device/block_products.cc emit/c_block_loop.cc
"""Work groups of OpenCL on a device that stands in for a GPU: rows and products beside NumPy in
float64, the bits of the engine, and what is done where a device has no room for a group."""

import json
import os
import re
import subprocess
import sys

import mithril as ml
import ml_dtypes
import numpy as np
import pytest
from backends.plan_cases import check_random_models, same
from backends.test_device_kernels import backend_of, check, of
from backends.test_opencl_backend import WHY
from backends.test_tune import network
from formats.c_cases import drawn
from mithril import _core
from mithril.errors import ArgumentError, OutOfMemoryError
from mithril.inspection import tuning

pytestmark = [pytest.mark.device, pytest.mark.skipif(WHY is not None, reason=WHY or "")]

GPU = "opencl as a GPU"
# Of rows that an item does alone, of one block of sums, and of several.
LENGTHS = [1, 2, 7, 31, 32, 33, 127, 128, 1000, 4096, 4097, 20_000]
NUMPY = {"float32": np.float32, "float64": np.float64, "float16": np.float16,
         "bfloat16": ml_dtypes.bfloat16}  # fmt: skip


def stand_in(dtype="float32", **limits):
    backend = ml.OpenCLBackend(dtype=dtype)
    backend._device = _core.OpenClDevice(as_gpu=True, **limits)
    return backend


def groups_of(text):
    """How many items each of the kernels of a text has in a group, where groups do something."""
    return sorted(map(int, re.findall(r"reqd_work_group_size\((\d+), 1, 1\)", text)))


def heads_of_barriers(text):
    """What stands before the brace of each block of a function that a barrier is in."""
    text = re.sub(r"#(\\\n|.)*|/\*(.|\n)*?\*/", "", text)
    heads, last, out = [], 0, []
    for found in re.finditer(r"[{}]|M_BARRIER\(\)", text):
        if found[0] == "{":
            heads.append(text[last : found.start()].rsplit("\n", 1)[-1].strip())
        elif found[0] == "}":
            heads.pop()
        else:
            out += heads[1:]
        last = found.end()
    return out


def text_of(programs):
    """What was compiled: no condition stands around a barrier."""
    text = "".join(program.source(program.sizes({}))["text"] for program in programs)
    assert all(head.startswith("for (") or not head for head in heads_of_barriers(text))
    return text


# --- rows -----------------------------------------------------------------------------------------


def rows_model():
    model = ml.Model()
    model |= ml.Softmax()(input="x", output="softmax")
    model |= ml.Sum(axis=-1)(input="x", output="sum")
    model |= ml.Mean(axis=-1)(input="x", output="mean")
    model |= ml.Max(axis=-1)(input="x", output="max")
    model |= ml.LayerNorm(eps=1e-5)(input="x", weight="w", bias="b", output="norm")
    model.expose_keys("softmax", "sum", "mean", "max", "norm")
    return model


def rows_in_numpy(x, w, b):
    e = np.exp(x - x.max(-1, keepdims=True))
    centred = x - x.mean(-1, keepdims=True)
    return {
        "softmax": e / e.sum(-1, keepdims=True),
        "sum": x.sum(-1),
        "mean": x.mean(-1),
        "max": x.max(-1),
        "norm": centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w + b,
    }


def check_rows(length, dtype, rows=3):
    values = {"x": drawn([rows, length]), "w": drawn([length], 1), "b": drawn([length], 2)}
    values = {key: value.astype(NUMPY[dtype]) for key, value in values.items()}
    want = rows_in_numpy(*(value.astype(np.float64) for value in values.values()))
    backend, programs = backend_of(GPU, dtype)
    shapes = {key: list(value.shape) for key, value in values.items()}
    pm = ml.compile(rows_model(), backend, data_keys=set(values), shapes=shapes)
    got = pm.evaluate({}, values)
    # Errors of sums grow with the square root of their terms, at most; statistics are float32.
    kind = np.float32 if dtype in ("float16", "bfloat16") else NUMPY[dtype]
    step = 4 * float(ml_dtypes.finfo(NUMPY[dtype]).eps) + 40 * float(np.finfo(kind).eps)
    for key, value in want.items():
        scale = np.abs(values["x"].astype(np.float64)).sum(-1) if key == "sum" else np.abs(value)
        bound = step * max(np.max(scale), 1) * (4 if key == "norm" else 1)
        np.testing.assert_allclose(np.asarray(got[key], np.float64), value, rtol=0, atol=bound,
                                   err_msg=key)  # fmt: skip
    return groups_of(text_of(programs))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_beside_numpy(length, dtype):
    groups = check_rows(length, dtype)
    assert (set(groups) == {128}) == (length >= 128) and bool(groups) == (length >= 128)


@pytest.mark.parametrize("length", [33, 1000, 4097])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_of_halves_beside_numpy(length, dtype):
    assert bool(check_rows(length, dtype)) == (length >= 128)


def test_many_rows():
    assert check_rows(130, "float32", rows=700)


PARTS = {
    "softmax": lambda n: (ml.Softmax(), [3, n]),
    "logarithms of softmax": lambda n: (ml.LogSoftmax(axis=-1), [3, n]),
    "layer norm": lambda n: (ml.LayerNorm(use_scale=False, use_bias=False), [2, n]),
    "sum of all": lambda n: (ml.Sum(), [2, n]),
    "sum of two axes": lambda n: (ml.Sum(axis=(1, 2)), [3, 2, n]),
    "product": lambda n: (ml.Prod(axis=-1), [3, n]),
    "extremes": lambda n: (ml.Min(axis=-1), [3, n]),
    "variance": lambda n: (ml.Variance(axis=-1), [3, n]),
    "columns": lambda n: (ml.Sum(axis=0), [n, 3]),
}


@pytest.mark.parametrize("title", PARTS)
@pytest.mark.parametrize("length", [31, 1000, 4097, 12_289])
def test_rows_have_the_bits_of_the_engine(title, length):
    part, shape = PARTS[title](length)
    model = ml.Model()
    model |= part(input="x", output="y")
    model.expose_keys("y")
    x = drawn(shape)
    x.flat[3], x.flat[-2] = -0.0, 3.0
    text_of(check(model, GPU, "float32", {"x": x}, {}))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_loss_along_rows(dtype):
    """Cross entropy of 1,000 classes, and its gradient, beside NumPy in float64."""
    model = ml.Model()
    model |= ml.CrossEntropy()(input="x", target="t", output="y")
    model.expose_keys("y")
    x, t = drawn([7, 1000]).astype(dtype), np.arange(7) * 140
    pm = ml.compile(model, backend_of(GPU, dtype)[0], trainable_keys={"x"}, data_keys={"t"},
                    shapes={"x": [7, 1000], "t": [7]})  # fmt: skip
    ones = {"y": np.ones(7, dtype)}
    values, gradients = pm.evaluate({"x": x}, {"t": t}, output_gradients=ones)
    e = np.exp(x.astype(np.float64))
    softmax = e / e.sum(-1, keepdims=True)
    eps = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(values["y"], -np.log(softmax[range(7), t]), rtol=eps)
    want = softmax - np.eye(1000)[t]
    np.testing.assert_allclose(gradients["x"], want, rtol=0, atol=eps)


# --- products -------------------------------------------------------------------------------------

SIZES = [(1, 1, 1), (2, 7, 31), (31, 33, 32), (33, 32, 1), (64, 16, 64), (65, 257, 63),
         (1, 1000, 33), (130, 255, 2), (7, 4097, 31), (1000, 2, 65), (5, 0, 7)]  # fmt: skip


def products_model():
    """One product of matrices as they lie, three of those that do not, and a batch of two."""
    model = ml.Model()
    for key in "ab":
        model |= ml.Transpose(axes=[0, 2, 1])(input=f"{key}t", output=key)
    model |= ml.MatrixMultiply()(left="a", right="b", output="tt")
    model |= ml.MatrixMultiply()(left="a0", right="b", output="nt")
    model |= ml.MatrixMultiply()(left="a", right="b0", output="tn")
    model |= ml.MatrixMultiply()(left="a0", right="b0", output="nn")
    model |= ml.Add()(left="nn", right="bias", output="sum")
    model |= ml.Relu()(input="sum", output="y")
    model.expose_keys("tt", "nt", "tn", "y")
    return model


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_beside_numpy(size, dtype):
    m, k, n = size
    values = {"at": drawn([2, k, m]), "bt": drawn([2, n, k], 1), "a0": drawn([2, m, k], 2),
              "b0": drawn([k, n], 3), "bias": drawn([n], 4)}  # fmt: skip
    values = {key: value.astype(dtype) for key, value in values.items()}
    backend, programs = backend_of(GPU, dtype)
    shapes = {key: list(value.shape) for key, value in values.items()}
    pm = ml.compile(products_model(), backend, data_keys=set(values), shapes=shapes)
    got = pm.evaluate({}, values)
    at, bt, a0, b0, bias = (value.astype(np.float64) for value in values.values())
    a, b = at.swapaxes(1, 2), bt.swapaxes(1, 2)
    eps = (k + 2) * np.finfo(dtype).eps
    for key, left, right in (("tt", a, b), ("nt", a0, b), ("tn", a, b0)):
        error = np.abs(got[key] - left @ right)
        assert (error <= eps * (np.abs(left) @ np.abs(right))).all(), key
    error = np.abs(got["y"] - np.maximum(a0 @ b0 + bias, 0))
    assert (error <= eps * (np.abs(a0) @ np.abs(b0) + np.abs(bias))).all()
    assert set(groups_of(text_of(programs))) == {256}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_of_halves_beside_numpy(dtype):
    values = {"a": drawn([33, 1000]), "b": drawn([1000, 31], 1)}
    values = {key: value.astype(NUMPY[dtype]) for key, value in values.items()}
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="a", right="b", output="y")
    model.expose_keys("y")
    backend, programs = backend_of(GPU, dtype)
    shapes = {key: list(value.shape) for key, value in values.items()}
    y = ml.compile(model, backend, data_keys=set(values), shapes=shapes).evaluate({}, values)["y"]
    a, b = (value.astype(np.float64) for value in values.values())
    eps = float(ml_dtypes.finfo(NUMPY[dtype]).eps)
    error = np.abs(np.asarray(y, np.float64) - a @ b)
    assert (error <= eps * np.abs(a @ b) + 1002 * 2.0**-23 * (np.abs(a) @ np.abs(b))).all()
    assert 256 in groups_of(text_of(programs))


def runs_of_network(backend, dtype):
    shapes = {"x": [19, 5, 11, 10], "w": [13, 5, 3, 3], "v": [260, 75]}
    values = {key: drawn(shape, 3).astype(dtype) for key, shape in shapes.items()}
    pm = ml.compile(network(), backend, trainable_keys=set(shapes), shapes=shapes, exact_conv=True)
    params = {**pm.get_parameters(), **values}
    outputs, gradients = pm.evaluate(params, {}, output_gradients={"y": drawn([19, 75])})
    return {**outputs, **{f"d{key}": value for key, value in gradients.items()}}


def sixteen_phases():
    model = of(ml.Conv2d(filters=6, kernel_size=5, stride=4, use_bias=False), "input weight")
    params = {"input": drawn([2, 3, 19, 17]), "weight": drawn([6, 3, 5, 5])}
    assert "switch (part)" in text_of(check(model, GPU, "float32", params, {}))


def test_phases_are_compiled_in_time(tmp_path):
    """PoCL copies what follows a nest of loops with barriers, for each nest: it would not end where
    phases stood one behind the other."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "POCL_CACHE_DIR": str(tmp_path)}
    code = "from backends import test_opencl_groups as t; t.sixteen_phases()"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True,
                          timeout=300)  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.fixture
def tile():
    """Sets the tile of the stand-in until the test ends."""
    device = stand_in()._device
    before = device.tile

    def set_tile(to):
        device.tile = to

    yield set_tile
    device.tile = before


@pytest.mark.parametrize(
    ("of", "dtype"),
    [
        *((of, "float32") for of in ((1, 1, 64), (3, 5, 256), *tuning.GROUP_TILES)),
        *((of, "float64") for of in ((5, 3, 64), (8, 8, 256))),
    ],
)
def test_every_tile_has_the_bits_of_the_engine(of, dtype, tile):
    """Of a product, a convolution with strides, and the gradients of both."""
    tile(of)
    same(runs_of_network(stand_in(dtype), dtype),
         runs_of_network(ml.CpuBackend(dtype=dtype), dtype))  # fmt: skip


def test_tiles_that_are_none(tile):
    backend = stand_in()
    assert backend.product_tile == (4, 4, 256)
    for wrong in ((0, 4, 256), (9, 4, 256), (4, 0, 64), (4, 9, 64), (4, 4, 0), (4, 4, 128),
                  (4, 4, -64), (4, 4, 1 << 40), (8, 2, 32)):  # fmt: skip
        with pytest.raises(ArgumentError, match="requires 1 to 8 rows and columns, and 64 or 256"):
            backend.product_tile = wrong
        assert backend.product_tile == (4, 4, 256)
    small = stand_in(local_memory=32 << 10)
    small.product_tile = 8, 4, 256
    with pytest.raises(ArgumentError, match="with 32768 bytes"):  # 33,024 in float64
        small.product_tile = 8, 8, 256
    small.product_tile = 4, 4, 256


TUNE = """
import json
import mithril as ml
from mithril import _core
from mithril.inspection import tuning
tuning.SIZE, tuning.SECONDS = 70, 0.01
backend = ml.OpenCLBackend()
backend._device = _core.OpenClDevice(as_gpu=True, local_memory=32768)
found = ml.tune(backend)
print(json.dumps([backend.product_tile, found.tile, [[t, g] for t, g in found.gflops.items()]]))
"""


def test_what_tune_finds(tmp_path):
    env = {**os.environ, "MITHRIL_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", TUNE], env=env, capture_output=True, text=True,
                          check=True)  # fmt: skip
    after, best, gflops = json.loads(done.stdout.splitlines()[-1])
    fits = [list(of) for of in tuning.GROUP_TILES if of != (8, 8, 256)]
    assert [of for of, _ in gflops] == fits and all(rate > 0 for _, rate in gflops)
    assert after == best == max(gflops, key=lambda pair: pair[1])[0]


# --- devices with less ----------------------------------------------------------------------------


def rows_and_product(backend):
    """The values, and the text of what was compiled; that of the engine is empty."""
    programs, make = [], backend._native_program

    def noted(*arguments, **options):
        programs.append(make(*arguments, **options))
        return programs[-1]

    backend._native_program = noted
    model = ml.Model()
    model |= ml.Softmax()(input="x", output="p")
    model |= ml.MatrixMultiply()(left="p", right="v", output="y")
    model.expose_keys("p", "y")
    shapes = {"x": [9, 700], "v": [700, 37]}
    data = {key: drawn(shape) for key, shape in shapes.items()}
    pm = ml.compile(model, backend, data_keys=set(shapes), shapes=shapes)
    values = pm.evaluate({}, data)
    return values, "" if backend.backend_type == "cpu" else text_of(programs)


@pytest.mark.parametrize(
    ("limits", "groups"),
    [
        ({}, [128, 256]),
        ({"most_threads": 255}, [64, 128]),
        ({"most_threads": 100}, [64, 64]),
        ({"most_threads": 16}, [16]),  # rows alone
        ({"most_threads": 15}, []),
        ({"local_memory": 20_000}, [128, 256]),
        ({"local_memory": 12_000}, [64, 128]),
        ({"local_memory": 8400}, [128]),
        ({"local_memory": 1000}, []),
    ],
)
def test_devices_with_smaller_groups(limits, groups):
    got, text = rows_and_product(stand_in(**limits))
    assert groups_of(text) == groups
    same(got, rows_and_product(ml.CpuBackend())[0])


@pytest.mark.parametrize("most", [200, 64, 40, 3])
def test_kernels_that_have_no_room_for_a_group(most):
    """What the driver says of a compiled kernel is kept to; it would refuse the launch."""
    got, text = rows_and_product(stand_in(most_threads_of_a_kernel=most))
    assert groups_of(text) == [128, 256]  # as it is printed first
    same(got, rows_and_product(ml.CpuBackend())[0])


def test_a_driver_that_does_not_say_how_many_items_a_kernel_takes():
    _core.device_inject_failure("clGetKernelWorkGroupInfo", 1, -5)
    try:
        with pytest.raises(OutOfMemoryError, match="clGetKernelWorkGroupInfo failed with"):
            rows_and_product(stand_in())
    finally:
        _core.device_inject_failure("clGetKernelWorkGroupInfo", 0, 0)
    same(rows_and_product(stand_in())[0], rows_and_product(ml.CpuBackend())[0])


def test_a_cpu_has_no_groups():
    _, text = rows_and_product(ml.OpenCLBackend("cpu"))
    assert "__kernel" in text
    assert groups_of(text) == [] and "__local" not in text and "barrier" not in text


# --- random models --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning")
def test_random_models(request):
    def both(model, dtype="float32", **options):
        return tuple(ml.compile(model, backend, exact_conv=True, **options)
                     for backend in (ml.CpuBackend(dtype=dtype), stand_in(dtype)))  # fmt: skip

    check_random_models(both, request.config.getoption("--graphs") // 200)
