# Covers: backends/cuda/cudnn.cc backends/device/library_products.cc
"""Convolutions and their gradients by cuDNN: which it takes, by which algorithms, and typed errors
where it fails.

Without a GPU the library is the emulator's (emulated_cuda.py), a test double whose sums have
another order than those of mithril's kernels.
"""

from concurrent.futures import ThreadPoolExecutor

import mithril as ml
import numpy as np
import pytest
from backends.device_cases import injecting, live_objects, needs_library
from backends.plan_cases import same
from backends.test_cuda_backend import in_process
from backends.test_cuda_graphs import launches_a_graph
from emulated_cuda import NO_CUDA, is_used
from formats.c_cases import drawn
from mithril import _core
from mithril.backends.with_manualgrad.cuda_backend.libraries import cudnn_libraries
from mithril.errors import DeviceNotAvailable, OutOfMemoryError, UnsupportedError

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA),
    needs_library("convolution_library"),
    pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning"),
]
only_emulated = pytest.mark.skipif(not is_used(), reason="asks for what the emulator does")


@pytest.fixture
def inject():
    yield from injecting(_core.cuda_functions())


def kernels(pm, program="evaluate"):
    return [step.kernel for step in pm.explain(program=program).steps]


def by_library(pm, program="evaluate"):
    """Counts the steps of a program that are the library's."""
    return kernels(pm, program).count("cuda.cudnn")


def convolution(behind=None, **window):
    """A convolution of `x` with `w`; `behind` makes `y` of its result and of an input `c`."""
    model = ml.Model()
    output = "y" if behind is None else "h"
    model |= ml.Convolution2D(use_bias=False, **window)(input="x", weight="w", output=output)
    if behind is not None:
        model |= ml.Buffer()(input=behind(model.h, ml.IOKey("c")), output="y")
    model.expose_keys("y")
    return model


def compiled(model, arrays, dtype="float32", backend=None, **options):
    backend = ml.CudaBackend(dtype=dtype) if backend is None else backend
    shapes = {key: list(value.shape) for key, value in arrays.items()}
    return ml.compile(model, backend, trainable_keys=set(arrays), shapes=shapes, **options)


def pair(value):
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def exact(x, w, cotangent=None, *, stride=1, padding=0, dilation=1, groups=1):
    """Output and gradients in float64, by PyTorch."""
    x, w = (torch.tensor(np.asarray(a, "f8"), requires_grad=True) for a in (x, w))
    (top, bottom), (left, right) = (pair(p) for p in pair(padding))
    wide = torch.nn.functional.pad(x, (left, right, top, bottom))
    y = torch.nn.functional.conv2d(
        wide, w, stride=pair(stride), dilation=pair(dilation), groups=groups
    )
    if cotangent is None:
        return y.detach().numpy()
    y.backward(torch.tensor(np.asarray(cotangent, "f8")))
    return y.detach().numpy(), x.grad.numpy(), w.grad.numpy()


def assert_close(got, want, magnitude, places, rounding):
    """`places` products were added in float32 or float64 (`magnitude`: the sums of theirs), and the
    result was rounded by so much."""
    got = np.asarray(got)
    sums = 2.0**-52 if got.dtype == np.float64 else 2.0**-23
    bound = places * sums * magnitude + rounding * np.abs(want) + 1e-30
    assert got.shape == want.shape
    worst = (np.abs(got.astype("f8") - want) / bound).max()
    assert worst <= 1, worst


# Shapes of images and filters, and the windows.
CASES = {
    "3 x 3": ([2, 3, 9, 8], [4, 3, 3, 3], {"padding": 1}),
    "pointwise": ([2, 5, 4, 7], [6, 5, 1, 1], {}),
    "windows of two sizes": ([1, 2, 11, 9], [3, 2, 2, 5], {"padding": (1, 2)}),
    "strides": ([2, 3, 11, 10], [4, 3, 3, 3], {"stride": (2, 3), "padding": 1}),
    "a stride that leaves a row": ([1, 2, 8, 8], [3, 2, 3, 3], {"stride": 2}),
    "dilations": ([1, 3, 12, 11], [2, 3, 3, 2], {"dilation": (2, 3), "padding": (2, 1)}),
    "groups": ([2, 6, 7, 7], [4, 3, 3, 3], {"groups": 2, "padding": 1}),
    "a filter for each channel": ([1, 5, 8, 6], [5, 1, 3, 3], {"groups": 5, "padding": 1}),
    "one element": ([1, 1, 1, 1], [1, 1, 1, 1], {}),
    "a window as large as its image": ([3, 2, 5, 4], [7, 2, 5, 4], {}),
    "more padding than image": ([1, 2, 2, 3], [2, 2, 3, 3], {"padding": 3}),
    # Below, only the row that the padding has on top is met: as much on either side is the same.
    "padding that no window meets": (
        [1, 2, 8, 8], [3, 2, 3, 3], {"stride": 2, "padding": ((1, 0), (1, 0))},
    ),
    "everything": (
        [2, 4, 13, 11], [6, 2, 3, 2],
        {"stride": (2, 1), "padding": (2, 1), "dilation": (1, 2), "groups": 2},
    ),
}  # fmt: skip
OTHERS = {  # that the library does not take
    "padding below": ([1, 2, 6, 6], [3, 2, 3, 3], {"padding": ((0, 1), (0, 1))}),
    "padding on the left": ([1, 2, 6, 6], [3, 2, 3, 2], {"padding": ((1, 1), (1, 0))}),
    "no images": ([0, 2, 6, 6], [3, 2, 3, 3], {}),
}


def arrays_of(title):
    x, w, window = (CASES | OTHERS)[title]
    return {"x": drawn(x), "w": drawn(w, 1)}, window


HALVES = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("title", CASES)
def test_values_and_gradients(title, dtype, inject):
    """Three steps, each the library's: no kernel is launched, and nothing runs on the host."""
    arrays, window = arrays_of(title)
    backend = ml.CudaBackend(dtype=dtype)
    params = {key: backend.array(value) for key, value in arrays.items()}
    x, w = (np.asarray(params[key]).astype("f8") for key in "xw")
    cotangent = backend.array(drawn(exact(x, w, **window).shape, 2))
    wide = np.asarray(cotangent).astype("f8")
    want, magnitude = exact(x, w, wide, **window), exact(*map(np.abs, (x, w, wide)), **window)
    pm = compiled(convolution(**window), arrays, backend=backend)
    assert by_library(pm) == 1 and by_library(pm, "gradient") == 3
    inject("cuLaunchKernel", 1, 201)
    outputs, gradients = pm.evaluate(params, {}, output_gradients={"y": cotangent})
    got = [outputs["y"], gradients["x"], gradients["w"]]
    places = w[0].size, w.size, wide.size // wide.shape[1]
    for one, right, size, count in zip(got, want, magnitude, places, strict=True):
        assert str(np.asarray(one).dtype) == dtype
        assert_close(one, right, size, count + 2, 1.01 * HALVES.get(dtype, 0))


@pytest.mark.parametrize("title", OTHERS)
def test_what_the_library_does_not_take(title):
    """It is the backend's own kernels', to the engine's bits."""
    arrays, window = arrays_of(title)
    runs = []
    for backend in (ml.CpuBackend(), ml.CudaBackend()):
        pm = compiled(convolution(**window), arrays, backend=backend, exact_conv=True)
        runs.append(pm.evaluate(arrays, {})["y"])
    same(*({"y": np.asarray(run)} for run in runs))
    pm = compiled(convolution(**window), arrays)
    assert by_library(pm) == by_library(pm, "gradient") == 0
    same({"y": np.asarray(pm.evaluate(arrays, {})["y"])}, {"y": np.asarray(runs[0])})


def test_strides_that_no_kernel_has_stay_the_hosts():
    """Of the gradient of the input: a step that the library refuses must have a kernel."""
    arrays = {"x": drawn([1, 2, 15, 15]), "w": drawn([3, 2, 5, 5], 1)}
    pm = compiled(convolution(stride=5), arrays)
    assert by_library(pm) == 1 and by_library(pm, "gradient") == 2
    cotangent = drawn([1, 3, 3, 3], 2)
    got = pm.evaluate(arrays, {}, output_gradients={"y": cotangent}).gradients["x"]
    want = exact(arrays["x"], arrays["w"], cotangent, stride=5)[1]
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5, atol=1e-5)


BEHIND = {
    "a bias": (lambda y, c: y + c, [4, 1, 1]),
    "bias and relu": (lambda y, c: ml.Relu()(y + c), [4, 1, 1]),
    "a residual": (lambda y, c: ml.Gelu()(y + c), [2, 4, 9, 8]),
    "a row": (lambda y, c: c - y, [8]),
    "itself twice": (lambda y, c: y * (y + c), [1]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("title", BEHIND)
def test_what_comes_behind_is_part_of_the_step(title, dtype):
    behind, shape = BEHIND[title]
    arrays, window = arrays_of("3 x 3")
    arrays["c"] = drawn(shape, 3)
    backend = ml.CudaBackend(dtype=dtype)
    params = {key: backend.array(value) for key, value in arrays.items()}
    pm = compiled(convolution(behind, **window), arrays, backend=backend)
    assert [kernel for kernel in kernels(pm) if kernel != "view"] == ["cuda.cudnn"]
    wide = {key: np.asarray(value).astype("f8") for key, value in params.items()}
    numpy = ml.NumpyBackend(dtype="float64")
    want = compiled(convolution(behind, **window), arrays, backend=numpy).evaluate(wide, {})["y"]
    tolerance = {"float64": 1e-13, "float32": 2e-5, "float16": 2e-2, "bfloat16": 1.5e-1}[dtype]
    got = np.asarray(pm.evaluate(params, {})["y"]).astype("f8")
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("options", [{"exact_conv": True}, {"deterministic": "portable"}])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_exact_results_are_those_of_the_engine(dtype, options):
    arrays, window = arrays_of("strides")
    runs = []
    for backend in (ml.CpuBackend(dtype=dtype), ml.CudaBackend(dtype=dtype)):
        params = {key: backend.array(value) for key, value in arrays.items()}
        cotangent = backend.array(drawn([2, 4, 6, 4], 2))
        pm = compiled(convolution(**window), arrays, backend=backend, **options)
        outputs, gradients = pm.evaluate(params, {}, output_gradients={"y": cotangent})
        runs.append({k: np.asarray(v).astype("f4") for k, v in (outputs | gradients).items()})
    assert by_library(pm) == by_library(pm, "gradient") == 0
    same(runs[1], runs[0])
    if dtype == "float32" and is_used():  # the emulator's sums have another order
        other = compiled(convolution(**window), arrays).evaluate(params, {})["y"]
        assert (np.asarray(other) != runs[0]["y"]).any()


def test_tf32():
    arrays = {"x": drawn([2, 64, 6, 6]), "w": drawn([8, 64, 3, 3], 1)}
    want = exact(arrays["x"], arrays["w"])
    errors = {}
    for precision in ("float32", "tf32"):
        backend = ml.CudaBackend(precision=precision)
        pm = compiled(convolution(), arrays, backend=backend)
        errors[precision] = np.abs(np.asarray(pm.evaluate(arrays, {})["y"]) - want).max()
    assert kernels(pm) == ["cuda.cudnn_tf32"]
    assert errors["tf32"] > 20 * errors["float32"]
    assert errors["tf32"] < exact(*map(np.abs, arrays.values())).max() * 2**-9


@pytest.mark.parametrize("wild", [np.inf, -np.inf, np.nan, np.float32(1e38)])
def test_a_wild_element_reaches_its_windows_only(wild):
    """No Winograd, no Fourier: those of the emulator come first, and spread it."""
    arrays, window = arrays_of("3 x 3")
    cotangent = drawn([2, 4, 9, 8], 2)
    pm = compiled(convolution(**window), arrays)

    def all_of(arrays, cotangent):
        outputs, gradients = pm.evaluate(arrays, {}, output_gradients={"y": cotangent})
        return {"y": np.asarray(outputs["y"])} | {k: np.asarray(v) for k, v in gradients.items()}

    tame = all_of(arrays, cotangent)
    wild_x, wild_cotangent = arrays["x"].copy(), cotangent.copy()
    wild_x[0, 1, 4, 4] = wild
    wild_cotangent[1, 2, 3, 3] = wild
    near = np.zeros([2, 1, 9, 8], bool)
    near[0, :, 3:6, 3:6] = True
    got = all_of({**arrays, "x": wild_x}, cotangent)
    np.testing.assert_array_equal(np.where(near, 0, got["y"]), np.where(near, 0, tame["y"]))
    np.testing.assert_array_equal(got["x"], tame["x"])
    others = [0, 2]  # channels of the images
    np.testing.assert_array_equal(got["w"][:, others], tame["w"][:, others])
    near = np.zeros([2, 1, 9, 8], bool)
    near[1, :, 2:5, 2:5] = True
    got = all_of(arrays, wild_cotangent)
    np.testing.assert_array_equal(np.where(near, 0, got["x"]), np.where(near, 0, tame["x"]))
    others = [0, 1, 3]  # filters
    np.testing.assert_array_equal(got["w"][others], tame["w"][others])


@pytest.mark.parametrize("title", ["3 x 3", "strides", "pointwise"])
def test_results_are_the_same_in_every_run(title):
    """The emulator has algorithms, which come first, whose results differ from call to call."""
    arrays, window = arrays_of(title)
    pm = compiled(convolution(**window), arrays)
    cotangent = {"y": drawn(exact(arrays["x"], arrays["w"], **window).shape, 2)}
    runs = []
    for _ in range(3):
        outputs, gradients = pm.evaluate(arrays, {}, output_gradients=cotangent)
        runs.append({k: np.array(v) for k, v in (outputs | gradients).items()})
    same(runs[1], runs[0])
    same(runs[2], runs[0])


def network():
    model = ml.Model()
    model |= ml.Convolution2D(3, 6, padding=1)(input="x", output="a")
    model |= ml.Relu()(input="a", output="b")
    model |= ml.MaxPool2D(2)(input="b", output="c")
    model |= ml.Convolution2D(3, 4, stride=2, use_bias=False)(input="c", output="d")
    model |= ml.Tanh()(input="d", output="e")
    model |= ml.Flatten(start_dim=1)(input="e", output="f")
    model |= ml.Linear(3)(input="f", output="y")
    model.expose_keys("y")
    return model


def test_steps_of_training():
    train = ml.TrainModel(network())
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="y", target="target")
    optimizer = ml.optim.AdamW(lr=0.01)
    data = {"x": drawn([5, 2, 12, 10]), "target": drawn([5, 3], 1)}
    shapes = {key: list(value.shape) for key, value in data.items()}
    runs = []
    for backend in (ml.CpuBackend(), ml.CudaBackend()):
        pm = ml.compile(train, backend, data_keys=set(data), shapes=shapes, optimizer=optimizer)
        params = pm.get_parameters() if not runs else runs[0][0]
        begin = {key: np.array(value) for key, value in params.items()}
        state, values = optimizer.init(params), begin
        for _ in range(4):
            values, state, *_ = pm.step(values, state, data)
        runs.append((begin, {key: np.asarray(value) for key, value in values.items()}))
    assert by_library(pm, "step") >= 4  # of the first layer only the weights have a gradient
    for key, want in runs[0][1].items():
        np.testing.assert_allclose(runs[1][1][key], want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: ml.Convolution1D(3, 4, stride=2, padding=1), [2, 3, 13]),
        (lambda: ml.Conv3d(2, 4, padding=1), [1, 2, 5, 4, 6]),
        (lambda: ml.ConvTranspose2d(3, 4, stride=2, padding=1, output_padding=1), [2, 3, 5, 4]),
        (lambda: ml.ConvTranspose2d(3, 4, groups=2), [2, 4, 5, 4]),
    ],
    ids=["1", "3", "transposed", "transposed groups"],
)
def test_layers_that_are_made_of_it(layer, shape):
    model = ml.Model()
    model |= layer()(input="x", output="y")
    model.expose_keys("y")
    x = {"x": drawn(shape)}
    runs = []
    for backend in (ml.NumpyBackend(dtype="float64"), ml.CudaBackend()):
        pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": shape})
        params = pm.get_parameters() if not runs else runs[0][0]
        dtype = "float64" if not runs else "float32"
        cast = {key: np.asarray(value).astype(dtype) for key, value in params.items()}
        data = {key: value.astype(dtype) for key, value in x.items()}
        y = np.asarray(pm.evaluate(cast, data)["y"])
        gradients = pm.evaluate(
            cast, data, output_gradients={"y": drawn(y.shape, 5).astype(dtype)}
        ).gradients
        runs.append((params, {"y": y} | {k: np.asarray(v) for k, v in gradients.items()}))
    assert by_library(pm) >= 1
    for key, want in runs[0][1].items():
        np.testing.assert_allclose(runs[1][1][key], want, rtol=1e-4, atol=1e-4)


def test_convolutions_are_part_of_a_graph():
    """What they work in stays theirs when a larger convolution asks for more."""
    arrays, window = arrays_of("3 x 3")
    backend = ml.CudaBackend()
    behind = lambda y, c: ml.Relu()(y + c)  # noqa: E731
    arrays["c"] = drawn([4, 1, 1], 3)
    pm = compiled(convolution(behind, **window), arrays, backend=backend)
    held = backend.to_device(arrays)
    want = np.maximum(exact(arrays["x"], arrays["w"], **window) + arrays["c"], 0)
    assert launches_a_graph(backend, lambda: pm.evaluate(held, {}))
    for size in (20, 40, 60):
        larger = {"x": drawn([4, 8, size, size]), "w": drawn([2, 8, 3, 3])}
        y = compiled(convolution(), larger, backend=backend).evaluate(larger, {})["y"]
        right = exact(larger["x"], larger["w"])
        np.testing.assert_allclose(np.asarray(y), right, rtol=1e-4, atol=1e-4)
        backend.empty_cache()
        for _ in range(3):
            got = np.asarray(pm.evaluate(held, {})["y"])
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_threads_that_convolve_at_once():
    """A handle of the library is one thread's at a time."""
    titles = ["3 x 3", "strides", "groups", "dilations"]

    def run(number):
        title = titles[number % len(titles)]
        arrays, window = arrays_of(title)
        pm = compiled(convolution(**window), arrays)
        want = exact(arrays["x"], arrays["w"], **window)
        for _ in range(5):
            got = np.asarray(pm.evaluate(arrays, {})["y"])
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(16)))


# --- memory ---------------------------------------------------------------------------------------

WORKS_IN = """
import mithril as ml
import numpy as np
from mithril import _core
backend = ml.CudaBackend()
model = ml.Model()
model |= ml.Convolution2D(use_bias=False)(input="x", weight="w", output="y")
model.expose_keys("y")
x, w = np.ones({x}, "f4"), np.ones({w}, "f4")
pm = ml.compile(model, backend, shapes={{"x": {x}, "w": {w}}}, trainable_keys={{"x", "w"}})
_core.device_inject_failure("cuMemAllocFromPoolAsync", {nth}, 2)
y = pm.evaluate({{"x": x, "w": w}}, {{}})["y"]
print(float(np.asarray(y).min()), float(np.asarray(y).max()))
print("bytes", backend._device.peak_bytes)
"""


def works_in(x, w, nth=0):
    """Runs a convolution of ones in a process of its own; returns the bytes that were in use."""
    said = in_process(WORKS_IN.format(x=x, w=w, nth=nth))
    assert said.startswith(f"{float(np.prod(w[1:]))} {float(np.prod(w[1:]))}\nbytes "), said
    return int(said.split()[-1])


@only_emulated
def test_what_they_work_in_is_a_sixteenth_of_the_memory_at_most():
    """The emulator's GEMM, which comes before the others, works in a matrix of all windows."""
    fits, too_large = [1, 64, 60, 60], [1, 64, 80, 80]
    matrix = 64 * 49 * 54 * 54 * 4
    assert matrix < (1 << 30) / 16 < 64 * 49 * 74 * 74 * 4
    assert works_in(fits, [1, 64, 7, 7]) > matrix
    assert works_in(too_large, [1, 64, 7, 7]) < matrix


@only_emulated
def test_less_memory_takes_another_algorithm():
    shapes = [1, 16, 40, 40], [1, 16, 7, 7]
    matrix = 16 * 49 * 34 * 34 * 4
    assert works_in(*shapes) > matrix
    assert works_in(*shapes, nth=1) < matrix


def test_too_little_memory_for_any_algorithm():
    """A gradient has one, which takes some: that it is too much is told."""
    code = """
import mithril as ml
import numpy as np
from mithril import _core
backend = ml.CudaBackend()
layer = ml.ConvTranspose2d(3, 4, use_bias=False)
pm = ml.compile(layer, backend, shapes={"input": [1, 2, 5, 5]}, data_keys={"input"})
params = {"weight": np.ones([2, 4, 3, 3], "f4")}
data = {"input": np.ones([1, 2, 5, 5], "f4")}
_core.device_inject_failure("cuMemAllocFromPoolAsync", 1, 2)
try:
    pm.evaluate(params, data)
except ml.errors.OutOfMemoryError as error:
    print("told:", error)
print(float(np.asarray(pm.evaluate(params, data)["output"]).max()))
"""
    said = in_process(code)
    assert said.startswith("told: CUDA: cuMemAllocFromPoolAsync failed with CUDA_ERROR_OUT"), said
    assert said.endswith("\n18.0\n"), said


# --- failures -------------------------------------------------------------------------------------

OF_ALL = [
    "cudnnCreateTensorDescriptor", "cudnnSetTensor4dDescriptor", "cudnnCreateFilterDescriptor",
    "cudnnSetFilter4dDescriptor", "cudnnCreateConvolutionDescriptor",
    "cudnnSetConvolution2dDescriptor", "cudnnSetConvolutionGroupCount",
    "cudnnSetConvolutionMathType", "cudnnSetStream",
]  # fmt: skip
OF_ONE = [
    f"cudnn{name}"
    for one in ("Forward", "BackwardData", "BackwardFilter")
    for name in (
        f"GetConvolution{one}Algorithm_v7", f"GetConvolution{one}WorkspaceSize", f"Convolution{one}"
    )
]  # fmt: skip
CALLS = [(symbol, nth) for symbol in OF_ALL for nth in (1, 2, 3)] + [(one, 1) for one in OF_ONE]
QUESTIONS = [
    (symbol, nth) for symbol, nth in CALLS
    if symbol.startswith(("cudnnSet", "cudnnGet")) and symbol != "cudnnSetStream"
]  # fmt: skip


def with_gradients(pm, arrays, cotangent):
    outputs, gradients = pm.evaluate(arrays, {}, output_gradients={"y": cotangent})
    return {k: np.asarray(v) for k, v in (outputs | gradients).items()}


@pytest.mark.parametrize(("symbol", "nth"), CALLS)
def test_each_call_that_fails(symbol, nth, inject):
    """A typed error that names it, nothing leaks, and the next call works."""
    arrays, window = arrays_of("strides")
    cotangent = drawn([2, 4, 6, 4], 2)
    want = dict(zip("yxw", exact(arrays["x"], arrays["w"], cotangent, **window), strict=True))
    with_gradients(compiled(convolution(**window), arrays), arrays, cotangent)
    before = live_objects()  # the device and its workspace stay
    statuses = {4004: (OutOfMemoryError, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
                4000: (DeviceNotAvailable, "CUDNN_STATUS_INTERNAL_ERROR")}  # fmt: skip
    for status, (kind, name) in statuses.items():
        pm = compiled(convolution(**window), arrays)
        inject(symbol, nth, status)
        is_passed_over = status == 4004 and symbol == "cudnnGetConvolutionForwardWorkspaceSize"
        if not is_passed_over:  # another algorithm may need less
            with pytest.raises(kind, match=f"{symbol} failed with {name}"):
                with_gradients(pm, arrays, cotangent)
        got = with_gradients(pm, arrays, cotangent)
        for key, right in want.items():
            np.testing.assert_allclose(got[key], right, rtol=1e-4, atol=1e-4)
        del pm
    assert live_objects() <= before + 1  # the arena may be new


@pytest.mark.parametrize("status", [2000, 3000, 3009])
@pytest.mark.parametrize(("symbol", "nth"), QUESTIONS)
def test_what_the_library_refuses_is_the_backends(symbol, nth, status, inject):
    """That alone: what else is in the plan stays the library's."""
    arrays, window = arrays_of("strides")
    cotangent = drawn([2, 4, 6, 4], 2)
    exactly = {"exact_conv": True}
    engine = compiled(convolution(**window), arrays, backend=ml.CpuBackend(), **exactly)
    usual = with_gradients(compiled(convolution(**window), arrays), arrays, cotangent)
    exact_bits = with_gradients(engine, arrays, cotangent)
    pm = compiled(convolution(**window), arrays)
    inject(symbol, nth, status)
    got = with_gradients(pm, arrays, cotangent)
    if symbol == "cudnnGetConvolutionForwardWorkspaceSize":
        same(got, usual)  # by another algorithm
        return
    refused = [key for key in got if (got[key] == exact_bits[key]).all()]
    taken = [key for key in got if (got[key] == usual[key]).all()]
    assert len(refused) == 1 or not is_used()
    assert len(taken) == 2 or not is_used()


def test_a_refused_convolution_leaves_products_to_their_library(inject):
    model = ml.Model()
    model |= ml.Convolution2D(use_bias=False)(input="x", weight="w", output="y")
    model |= ml.MatrixMultiply()(left="a", right="b", output="z")
    model.expose_keys("y", "z")
    arrays = {"x": drawn([1, 2, 5, 5]), "w": drawn([3, 2, 3, 3], 1)}
    arrays |= {"a": drawn([4, 70], 2), "b": drawn([70, 5], 3)}
    pm = compiled(model, arrays)
    assert sorted(kernels(pm)) == ["cuda.cublaslt", "cuda.cudnn"]
    inject("cudnnGetConvolutionForwardAlgorithm_v7", 1, 3000)
    outputs = pm.evaluate(arrays, {})
    engine = compiled(model, arrays, backend=ml.CpuBackend(), exact_conv=True).evaluate(arrays, {})
    np.testing.assert_array_equal(np.asarray(outputs["y"]), np.asarray(engine["y"]))
    np.testing.assert_allclose(np.asarray(outputs["z"]), arrays["a"] @ arrays["b"], atol=1e-4)
    assert not is_used() or (np.asarray(outputs["z"]) != np.asarray(engine["z"])).any()


def test_what_the_library_refuses_is_told(inject):
    arrays, window = arrays_of("3 x 3")
    pm = compiled(convolution(**window), arrays)
    inject("cudnnGetConvolutionForwardAlgorithm_v7", 1, 3000)
    for is_refused in (True, False):
        notes = pm.explain().steps[0].notes
        told = "The library finds no algorithm for it on this device." in notes
        assert told == is_refused, notes


def test_halves_for_which_there_is_no_algorithm(inject):
    arrays, window = arrays_of("3 x 3")
    backend = ml.CudaBackend(dtype="float16")
    params = {key: backend.array(value) for key, value in arrays.items()}
    pm = compiled(convolution(**window), arrays, backend=backend)
    inject("cudnnGetConvolutionForwardAlgorithm_v7", 1, 3000)
    with pytest.raises(UnsupportedError, match="no algorithm for conv2d of f16") as raised:
        pm.evaluate(params, {})
    assert "deterministic='portable'" in str(raised.value)
    assert np.isfinite(np.asarray(pm.evaluate(params, {})["y"]).astype("f4")).all()


# --- which library --------------------------------------------------------------------------------

FOUND = """
import mithril as ml
import numpy as np
from mithril import _core
{before}
backend = ml.CudaBackend()
pm = ml.compile(ml.Convolution2D(use_bias=False), backend,
                shapes={{"input": [1, 1, 2, 2], "weight": [1, 1, 2, 2]}},
                trainable_keys={{"input", "weight"}})
ones = np.ones([1, 1, 2, 2], "f4")
print(np.asarray(pm.evaluate({{"input": ones, "weight": ones}}, {{}})["output"]).ravel().tolist())
print([step.kernel for step in pm.explain().steps])
print(backend.convolution_library)
print(backend._device.convolution_library()[1])
"""


def found(before="", **variables):
    said = in_process(FOUND.format(before=before), **variables)
    assert said.startswith("[4.0]\n"), said
    return said.split("\n", 1)[1]


def test_it_names_its_library():
    from mithril.cli._doctor_backend import _facts

    name = ml.CudaBackend().convolution_library or ""
    assert name.startswith("cuDNN ")
    assert _facts(ml.CudaBackend())["convolutions"] == name
    assert not is_used() or name == "cuDNN 9.10"


@pytest.mark.parametrize(
    ("library", "why"),
    [
        ("0", "CUDA: no cuDNN: "),
        ("/nowhere/libcudnn.so.9", "/nowhere/libcudnn_cnn.so.9: cannot open"),
        ("libm.so.6", "libm.so.6 has no function cudnnCreate: cuDNN 9 or later is required"),
    ],
)
def test_without_the_library_kernels_convolve(library, why):
    said = found(MITHRIL_CUDNN_LIB=library)
    assert said.startswith("['cuda.conv2d']\nNone\n"), said
    assert why in said


@only_emulated
@pytest.mark.parametrize(
    ("variable", "value", "why"),
    [
        ("EMULATED_CUDNN_VERSION", "8907", " is of version 8907: cuDNN 9 is required"),
        ("EMULATED_CUDNN_CUDA", "13000", " is of CUDA 13, the driver of CUDA 12"),
    ],
)
def test_libraries_that_are_passed_over(variable, value, why):
    said = found(**{variable: value})
    assert said.startswith("['cuda.conv2d']\nNone\n"), said
    assert why in said


def test_a_library_that_does_not_start_is_none():
    said = found('_core.device_inject_failure("cudnnCreate", 1, 1001)')
    assert said.startswith("['cuda.conv2d']\nNone\n"), said
    assert "CUDA: cudnnCreate failed with CUDNN_STATUS_NOT_INITIALIZED" in said


def test_models_without_convolutions_do_not_start_it():
    code = """
import mithril as ml
from mithril import _core
_core.device_inject_failure("cudnnCreate", 1, 1001)
backend = ml.CudaBackend()
ml.compile(ml.Relu(), backend, shapes={"input": [1]}).evaluate({}, {"input": [3.0]})
_core.device_inject_failure("cudnnCreate", 0, 0)
print(backend.product_library is not None, backend.convolution_library)
"""
    assert "True cuDNN" in in_process(code)


@only_emulated
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_bfloat16_is_the_librarys_from_sm_80_on(dtype):
    """Before that it is made float32 in loops of its own."""
    code = f"""
import mithril as ml
backend = ml.CudaBackend(dtype="{dtype}")
shapes = {{"input": [1, 1, 2, 2], "weight": [1, 1, 2, 2]}}
layer = ml.Convolution2D(use_bias=False)
pm = ml.compile(layer, backend, shapes=shapes, trainable_keys=set(shapes))
ones = backend.ones([1, 1, 2, 2])
print(pm.evaluate({{"input": ones, "weight": ones}}, {{}})["output"])
print([step.kernel for step in pm.explain().steps])
"""
    alone = "['cuda.cudnn']"
    said = in_process(code, EMULATED_CUDA_ARCHITECTURE="75")
    assert "4" in said and "cuda.cudnn" in said, said
    assert (alone in said) == (dtype != "bfloat16"), said
    assert alone in in_process(code)


def test_where_libraries_are_looked_for(monkeypatch, tmp_path):
    """The one with the convolutions: it is refused where one that it needs is missing."""
    chosen = {"0": [], "/a/libcudnn.so.9": ["/a/libcudnn_cnn.so.9"],
              "libcudnn_cnn.so": ["libcudnn_cnn.so"], "/b/cudnn.so": ["/b/cudnn.so"]}  # fmt: skip
    for path, libraries in chosen.items():
        monkeypatch.setattr(_core, "cudnn_library", lambda path=path: path)
        assert cudnn_libraries() == libraries
    monkeypatch.setattr(_core, "cudnn_library", lambda: "")
    folder = tmp_path / "nvidia" / "cudnn" / "lib"
    folder.mkdir(parents=True)
    for name in ("libcudnn.so.9", "libcudnn_cnn.so.9", "libcudnn_ops.so.9"):
        (folder / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    libraries = cudnn_libraries()
    assert libraries[0] == str(folder / "libcudnn_cnn.so.9")
    assert libraries[-2:] == ["libcudnn_cnn.so.9", "/usr/local/cuda/lib64/libcudnn_cnn.so.9"]
    assert not any(path.endswith(("libcudnn.so.9", "_ops.so.9")) for path in libraries)
