# Covers: backends/opencl/*.cc backends/device/*.cc select/printed_loop.cc
# Covers: emit/c_vector_loop.cc emit/c_vector_text.cc
"""`OpenCLBackend`: the bits of the engine on a device, and typed errors where a driver fails."""

import signal
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
from backends.device_cases import (
    ROWS,
    check_a_fork_is_told,
    check_a_memory_limit,
    check_a_memory_limit_of_arrays,
    check_nothing_leaks,
    check_pickles,
    check_products,
    check_rows,
    check_what_falls_back_is_told,
    check_what_it_says_of_itself,
    doubled,
    doubling,
    forks,
    injecting,
    linear_softmax,
    live_objects,
)
from backends.plan_cases import (
    check_bad_index,
    check_branches,
    check_donated_states,
    check_many_random_models,
    check_open_sizes,
    check_random_models,
    check_steps,
    check_threads_at_once,
    check_values_and_gradients,
    every_model,
    same,
    training_on,
)
from formats.c_cases import MODELS, drawn, training
from mithril import _core
from mithril.errors import (
    ArgumentError,
    DeviceNotAvailable,
    DTypeError,
    OutOfMemoryError,
    SignatureError,
)


def missing():
    """Why there is no device; None where there is one."""
    try:
        _core.opencl_devices()
    except DeviceNotAvailable as error:
        return f"no device of OpenCL: {str(error).splitlines()[0]}"
    return None


WHY = missing()
pytestmark = [pytest.mark.device, pytest.mark.skipif(WHY is not None, reason=WHY or "")]


def both(model, dtype="float32", **options):
    """The model on the engine and on the device."""
    backends = ml.CpuBackend(dtype=dtype), ml.OpenCLBackend(dtype=dtype)
    return tuple(ml.compile(model, backend, exact_conv=True, **options) for backend in backends)


# --- values ---------------------------------------------------------------------------------------


@every_model
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_and_gradients(title, dtype):
    check_values_and_gradients(both, title, dtype)


@every_model
def test_steps(title):
    check_steps(both, title, 3)


def test_steps_that_overwrite_their_arrays():
    """The updates that a step makes in place come back to the caller's arrays."""
    check_steps(both, "mlp", 3, stream_gradients=True)


@pytest.mark.parametrize("title", ["mlp", "cnn", "lstm"])
def test_memory_that_is_not_the_hosts(title):
    """Operands are copied, and items of loops are short, as on a GPU."""
    optimizer = ml.optim.AdamW(lr=1e-2)
    runs = []
    for backend in (ml.CpuBackend(), ml.OpenCLBackend()):
        if isinstance(backend, ml.OpenCLBackend):
            backend._device = _core.OpenClDevice(as_gpu=True)
        pm, data = training_on(backend, title, optimizer)
        params = pm.get_parameters()
        runs.append(pm.step(params, optimizer.init(params), data, pm.initial_state()))
    for got, want in ((runs[1].params, runs[0].params), (runs[1].outputs, runs[0].outputs)):
        same(got, want)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches(sign):
    check_branches(both, sign)


@pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning")
def test_random_models(request):
    """A two hundredth of `--graphs`: every one is compiled for itself."""
    check_random_models(both, request.config.getoption("--graphs") // 200)


@pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning")
def test_random_models_side_by_side(device_graphs, seed, check_counts):
    check_many_random_models("OpenCLBackend", device_graphs, seed, check_counts)


def test_open_sizes_are_compiled_one_by_one():
    check_open_sizes(both)


def test_small_steps_are_one_kernel(inject):
    """The third launch is never reached: with one for each step it would be; profiles have all."""
    make, shape = MODELS["mlp"]
    optimizer = ml.optim.AdamW(lr=1e-2)
    pm = ml.compile(training(make()), ml.OpenCLBackend(), data_keys={"x", "target"},
                    shapes={"x": shape}, optimizer=optimizer)  # fmt: skip
    data = {"x": drawn(shape), "target": drawn(dict(pm.shapes)["target"], 1)}
    params = pm.get_parameters()
    pm.step(params, optimizer.init(params), data)
    inject("clEnqueueNDRangeKernel", 3, -5)
    pm.step(params, optimizer.init(params), data)
    with pm.profile(), pytest.raises(OutOfMemoryError, match="clEnqueueNDRangeKernel"):
        pm.step(params, optimizer.init(params), data)
    with pm.profile() as profile:
        pm.step(params, optimizer.init(params), data)
    assert sum(row.count for row in profile.rows) > 8


def test_long_loops_are_cut():
    """More elements than a piece, a rest, and rows along the first axis."""
    model = ml.Model()
    model |= ml.Sigmoid()(input="x", output="h")
    model |= ml.Sum(axis=0)(input="h", output="columns")
    model |= ml.Max(axis=1)(input="h", output="rows")
    model.expose_keys("h", "columns", "rows")
    shape = [203, 4999]
    engine, device = both(model, data_keys={"x"}, shapes={"x": shape})
    same(device.evaluate({}, {"x": drawn(shape)}), engine.evaluate({}, {"x": drawn(shape)}))


@pytest.mark.parametrize("title", ROWS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_rows(title, dtype):
    check_rows(both, title, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [[5, 300], [1024], [3, 63]])
@pytest.mark.parametrize("parts", ["Gelu", "GeluTanh", "Gelu Gelu", "Gelu Gelu Gelu Relu"])
def test_elements_that_are_rare(parts, shape, dtype):
    """Lookups, stages of them, and numbers far out, for which GELU has a formula of its own."""
    model = ml.Model()
    for number, part in enumerate(parts.split()):
        op = ml.Gelu(approximate=True) if part == "GeluTanh" else getattr(ml, part)()
        model |= op(input=f"x{number}", output=f"x{number + 1}")
    model.expose_keys(*(f"x{number + 1}" for number in range(len(parts.split()))))
    x = 3 * drawn(shape).astype(dtype)
    x.flat[:9] = 0.0, -0.0, np.inf, -np.inf, np.nan, -5.0, -5.5, -40.0, 80.0
    engine, device = both(model, dtype, data_keys={"x0"}, shapes={"x0": shape})
    same(device.evaluate({}, {"x0": x}), engine.evaluate({}, {"x0": x}))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_outputs_that_no_cache_holds(dtype):
    """They go past the caches, from wherever they begin, rests included."""
    model = ml.Model()
    model |= ml.Gelu()(input="x", output="y")
    model |= ml.Greater()(left="y", right=0.5, output="p")
    model |= ml.Softmax()(input="x", output="s")
    model.expose_keys("y", "p", "s")
    shape = [3, 1_234_567 * 4 // np.dtype(dtype).itemsize]
    x = drawn(shape).astype(dtype)
    engine, device = both(model, dtype, data_keys={"x"}, shapes={"x": shape})
    same(device.evaluate({}, {"x": x}), engine.evaluate({}, {"x": x}))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (70, 300, 65), (257, 513, 31), (5, 0, 7), (9, 40, 0)])
def test_products(shape, transposed):
    check_products(both, shape, transposed)


def test_threads_that_evaluate_at_once():
    check_threads_at_once(ml.OpenCLBackend(), 10, 100)


def test_a_handler_of_signals_runs_models_within_a_run():
    layers = [ml.MatrixMultiply() for _ in range(40)]
    model = ml.Model()
    model |= layers[0](left="a", right="b", output="c")
    for layer in layers[1:]:
        model += layer(right="b")
    long = ml.compile(model, ml.OpenCLBackend(), inference=True, data_keys={"a", "b"})
    few = ml.compile(ml.Softmax(), ml.OpenCLBackend(), data_keys={"input"})
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16)
    want = few.evaluate({}, {"input": x})["output"].copy()
    rng = np.random.default_rng(0)
    data = {k: rng.normal(size=(300, 300), scale=0.05).astype(np.float32) for k in "ab"}
    wanted = {key: value.copy() for key, value in long.evaluate({}, data).items()}
    seen = []

    def handle(*_):
        seen.append(few.evaluate({}, {"input": x})["output"].copy())

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    try:
        for _ in range(5):
            same(long.evaluate({}, data), wanted)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert seen
    for one in seen:
        np.testing.assert_array_equal(one, want)


def test_states_that_are_donated():
    check_donated_states(ml.OpenCLBackend())


def test_a_bad_index_is_the_engines_error():
    check_bad_index(both)


# --- devices --------------------------------------------------------------------------------------


def test_devices_by_name():
    first = _core.opencl_devices()[0]
    named = f"{first['platform'][:4]}:{first['name'][:6]}"
    for device in (0, "0", "0:0", named, first["kind"], first["id"]):
        assert ml.OpenCLBackend(device).get_device() == first["id"]
    assert ml.OpenCLBackend.get_available_devices()[0] == first["id"]
    assert isinstance(ml.get_backend("opencl"), ml.OpenCLBackend)


@pytest.mark.parametrize("device", ["nope", "7:7", 99, -1, "", "0:", "cpu:0:1", "\0"])
def test_devices_that_are_not_there(device):
    if device in ("", "0:"):  # the first, and any of the first platform
        assert ml.OpenCLBackend(device).get_device() == _core.opencl_devices()[0]["id"]
        return
    with pytest.raises(DeviceNotAvailable, match="there is 0 = 'cpu:0'|there is 0 = 'gpu:0'"):
        ml.OpenCLBackend(device)


def test_threads_are_compute_units_of_a_cpu():
    backend = ml.OpenCLBackend("cpu", threads=1)
    assert backend.device_info["compute_units"] == 1 and backend._pool.thread_count == 1
    every = _core.opencl_devices()[0]["compute_units"]
    assert ml.OpenCLBackend("cpu", threads=every).device_info["compute_units"] == every
    model, x = linear_softmax(), drawn([3, 5])
    one, all_ = (
        ml.compile(model, b, data_keys={"x"}, shapes={"x": [3, 5]})
        for b in (backend, ml.OpenCLBackend("cpu"))
    )
    params = one.get_parameters()
    same(one.evaluate(params, {"x": x}), all_.evaluate(params, {"x": x}))
    with pytest.raises(ArgumentError, match=f"threads={every + 1}: .* {every} compute units"):
        ml.OpenCLBackend("cpu", threads=every + 1)
    with pytest.raises(ArgumentError, match="threads requires 1 to 1024, got 0"):
        ml.OpenCLBackend("cpu", threads=0)


def test_bad_arguments():
    for device in (True, 1.5, ["cpu"]):
        with pytest.raises(SignatureError, match="device requires None, a number, or a text"):
            ml.OpenCLBackend(device)
    for dtype in ("int32", "float33"):
        with pytest.raises(DTypeError, match="dtype"):
            ml.OpenCLBackend(dtype=dtype)


def test_what_it_says_of_itself():
    check_what_it_says_of_itself(ml.OpenCLBackend)


def test_what_falls_back_is_told():
    check_what_falls_back_is_told(ml.OpenCLBackend, "It runs on the host")


def test_models_can_be_pickled():
    check_pickles(ml.OpenCLBackend)


def test_importing_opens_no_loader():
    code = "import mithril as ml; ml.CpuBackend(); print(open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "_core" in done.stdout and "libOpenCL" not in done.stdout


# --- failures -------------------------------------------------------------------------------------


@pytest.fixture
def inject():
    yield from injecting(_core.opencl_functions())


CALLS = ["clBuildProgram", "clCreateBuffer", "clCreateKernel", "clCreateProgramWithSource",
         "clEnqueueMapBuffer", "clEnqueueNDRangeKernel", "clEnqueueUnmapMemObject", "clFinish",
         "clSetKernelArg"]  # fmt: skip


@pytest.mark.parametrize("symbol", CALLS)
@pytest.mark.parametrize("nth", [1, 2])
def test_each_call_that_fails(symbol, nth, inject):
    """A typed error that names it, nothing leaks, and the next call works."""
    model = linear_softmax()
    shape = [CALLS.index(symbol) + 2, nth + 2]  # a program that nobody has compiled
    want = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": shape})
    params, data = want.get_parameters(), {"x": drawn(shape)}
    ml.OpenCLBackend()  # the device stays
    before = live_objects()
    pm = ml.compile(model, ml.OpenCLBackend(), data_keys={"x"}, shapes={"x": shape})
    for status, kind, name in (
        (-5, OutOfMemoryError, "CL_OUT_OF_RESOURCES"),
        (-36, DeviceNotAvailable, "CL_INVALID_COMMAND_QUEUE"),
    ):
        inject(symbol, nth, status)
        with pytest.raises(kind, match=f"{symbol} failed with {name}"):
            for _ in range(3):  # what is made once may be called once in a run
                pm.evaluate(params, data)
                pm = ml.compile(model, ml.OpenCLBackend(), data_keys={"x"}, shapes={"x": shape})
        same(pm.evaluate(params, data), want.evaluate(params, data))
    del pm
    assert live_objects() <= before + 1  # the arena may be new


def as_a_gpu(**options):
    backend = ml.OpenCLBackend(**options)
    backend._device = _core.OpenClDevice(as_gpu=True)
    return backend


OF_LOOPS = ["clEnqueueReadBuffer", "clEnqueueCopyBuffer"]


@pytest.mark.parametrize("symbol", OF_LOOPS)
@pytest.mark.parametrize("nth", [1, 2])
def test_each_call_of_a_loop_that_fails(symbol, nth, inject):
    pm = ml.compile(doubling(), ml.OpenCLBackend(), inference=True)
    assert doubled(pm, 5.0) == 8
    before = live_objects()
    for status, kind, name in (
        (-6, OutOfMemoryError, "CL_OUT_OF_HOST_MEMORY"),
        (-38, DeviceNotAvailable, "CL_INVALID_MEM_OBJECT"),
    ):
        inject(symbol, nth, status)
        with pytest.raises(kind, match=f"{symbol} failed with {name}"):
            for limit in (2.0, 5.0, 2.0, 5.0):  # an even and an odd number of steps
                doubled(pm, limit)
        assert doubled(pm, 5.0) == 8
    assert live_objects() == before


OF_QUEUES = ["clEnqueueNDRangeKernel", "clEnqueueReadBuffer", "clEnqueueWriteBuffer",
             "clEnqueueCopyBuffer", "clEnqueueMapBuffer", "clEnqueueUnmapMemObject",
             "clFinish"]  # fmt: skip
LOST = {-2: "CL_DEVICE_NOT_AVAILABLE", -14: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        -34: "CL_INVALID_CONTEXT", -36: "CL_INVALID_COMMAND_QUEUE",
        -9999: "status -9999"}  # fmt: skip


@pytest.mark.parametrize("status", LOST)
@pytest.mark.parametrize("backend", [ml.OpenCLBackend, as_a_gpu])
def test_a_device_that_is_lost_in_the_middle_of_a_run(backend, status, inject):
    """From the second launch on nothing works: each call says so, and nothing leaks."""
    model, shape = ml.Model(), [40, 30]
    model |= ml.MatrixMultiply()(left="x", right="w", output="h")
    model |= ml.Softmax()(input="h", output="s")
    model |= ml.Sort()(input="s", output="y")
    model.expose_keys("y")
    one = backend()
    shapes = {"x": shape, "w": [30, 3000]}
    pm = ml.compile(model, one, data_keys=set(shapes), shapes=shapes)
    data = {key: drawn(shape) for key, shape in shapes.items()}
    want, kept = pm.evaluate({}, data), one.to_device([1.0, 2.0])
    before = live_objects()
    for symbol in OF_QUEUES:
        inject(symbol, 2 if symbol == "clEnqueueNDRangeKernel" else 1, status, True)
        if symbol == "clEnqueueNDRangeKernel":
            with pytest.raises(DeviceNotAvailable, match=f"{symbol} failed with {LOST[status]}"):
                pm.evaluate({}, data)
    calls = [lambda: pm.evaluate({}, data), kept.to_numpy, lambda: one.to_device([3.0]),
             one.block_until_ready, lambda: (kept + kept).to_numpy()]  # fmt: skip
    for call in calls * 2:
        with pytest.raises(DeviceNotAvailable, match=LOST[status]) as raised:
            call()
        assert "the driver has lost the device: start the process anew" in str(raised.value)
    for symbol in OF_QUEUES:
        inject(symbol, 0, 0)
    same(pm.evaluate({}, data), want)
    assert (kept + kept).tolist() == [2.0, 4.0]
    assert live_objects() <= before + 8  # the program of the sum, its kernel and the arena


OF_LISTS = ["clGetPlatformIDs", "clGetPlatformInfo", "clGetDeviceIDs", "clGetDeviceInfo"]


@pytest.mark.parametrize("symbol", OF_LISTS)
def test_a_loader_that_fails(symbol, inject):
    inject(symbol, 1, -30)
    with pytest.raises(DeviceNotAvailable, match=f"{symbol} failed with CL_INVALID_VALUE"):
        ml.OpenCLBackend()
    ml.OpenCLBackend()


STARTS = ["clCreateContext", "clCreateCommandQueue", "clCreateSubDevices"]


@pytest.mark.parametrize("symbol", STARTS)
def test_a_start_that_fails(symbol):
    """Nothing stays of it, and the next start is right."""
    code = f"""
import mithril as ml
from mithril import _core
_core.device_inject_failure({symbol!r}, 1, -6)
try:
    ml.OpenCLBackend({"threads=1" if "Sub" in symbol else ""})
except ml.errors.OutOfMemoryError as error:
    print(error, _core.device_live_objects(), ml.OpenCLBackend())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"{symbol} failed with CL_OUT_OF_HOST_MEMORY" in done.stdout, done.stderr
    assert " 0 OpenCLBackend(device=" in done.stdout


def test_no_platform(inject):
    inject("clGetPlatformIDs", 1, -1001)
    with pytest.raises(DeviceNotAvailable, match="knows no platform") as raised:
        ml.OpenCLBackend()
    assert "apt-get install pocl-opencl-icd" in str(raised.value)


def test_a_cache_of_pocl_that_is_nowhere(monkeypatch):
    """PoCL would end the process."""
    monkeypatch.setenv("POCL_CACHE_DIR", "")
    code = """
import mithril as ml
try:
    ml.OpenCLBackend()
except ml.errors.DeviceNotAvailable as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "POCL_CACHE_DIR is set to nothing" in done.stdout
    assert "unset it" in done.stdout


def test_a_memory_limit_of_the_backend():
    check_a_memory_limit(ml.OpenCLBackend)


@pytest.mark.parametrize("backend", [ml.OpenCLBackend, as_a_gpu])
def test_a_memory_limit_of_arrays(backend):
    check_a_memory_limit_of_arrays(backend)


@pytest.mark.parametrize("backend", [ml.OpenCLBackend, as_a_gpu])
def test_what_takes_the_most_is_named_where_the_driver_refuses(backend, inject):
    model = ml.Model(name="net")
    model |= ml.MatrixMultiply(name="first")(left="a", right="b", output="h")
    model |= ml.Softmax()(input="h", output="s")
    model |= ml.MatrixMultiply(name="second")(left="s", right="b", output="y")
    model.expose_keys("y")
    shapes = {"a": [300, 300], "b": [300, 300]}
    one = backend()
    pm = ml.compile(model, one, data_keys=set(shapes), shapes=shapes)
    data = {key: drawn(shape) for key, shape in shapes.items()}
    # Of a constant, of memory for the run, and of an array for its result.
    for given in (data, data, one.to_device(data)):
        one.empty_cache()
        inject("clCreateBuffer", 1, -4)
        with pytest.raises(OutOfMemoryError, match="clCreateBuffer failed") as raised:
            pm.evaluate({}, given)
        said = str(raised.value)
        assert "a run at these sizes takes " in said and "360.0 kB of outputs" in said, said
        assert said.count("\n  360.0 kB float32[300, 300] of ") >= 2 and "second'" in said, said
        assert np.asarray(pm.evaluate({}, given)["y"]).shape == (300, 300)


def test_nothing_leaks():
    check_nothing_leaks(ml.OpenCLBackend)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@forks
def test_a_fork_is_told():
    check_a_fork_is_told(ml.OpenCLBackend)
