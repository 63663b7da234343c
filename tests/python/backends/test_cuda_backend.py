# Covers: backends/cuda/*.cc emit/c_block_loop.cc
"""`CudaBackend`: the bits of the engine on a device, and typed errors where a driver fails.

Without a GPU the device is the emulator's (emulated_cuda.py), a test double.
"""

import ctypes
import os
import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
from backends.device_cases import (
    ROWS,
    assert_relu_runs,
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
    relu,
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
)
from emulated_cuda import NO_CUDA, is_used
from formats.c_cases import MODELS, drawn
from mithril import _core
from mithril.backends.with_manualgrad import object_cache
from mithril.errors import (
    ArgumentError,
    DeviceNotAvailable,
    DTypeError,
    OutOfMemoryError,
    SignatureError,
)

pytestmark = [pytest.mark.device, pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA)]
emulated = pytest.mark.skipif(not is_used(), reason="a test of the emulator")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The folder of what backends of this test compile."""
    monkeypatch.setattr(object_cache._core, "cache_dir", lambda: str(tmp_path / "cache"))
    return tmp_path / "cache" / "cuda"


def both(model, dtype="float32", **options):
    """The model on the engine and on the device."""
    backends = ml.CpuBackend(dtype=dtype), ml.CudaBackend(dtype=dtype)
    portable = {"deterministic": "portable", **options}
    return tuple(ml.compile(model, backend, **portable) for backend in backends)


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


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_branches(sign):
    check_branches(both, sign)


@pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning")
def test_random_models(request):
    """A two hundredth of `--graphs`: every one is compiled for itself."""
    check_random_models(both, request.config.getoption("--graphs") // 200)


@pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning")
def test_random_models_side_by_side(device_graphs, seed, check_counts):
    check_many_random_models("CudaBackend", device_graphs, seed, check_counts)


def test_open_sizes_are_compiled_one_by_one():
    check_open_sizes(both)


def test_long_rows_and_columns():
    """More threads than one block has, a rest, and reductions along either axis."""
    model = ml.Model()
    model |= ml.Sigmoid()(input="x", output="h")
    model |= ml.Sum(axis=0)(input="h", output="columns")
    model |= ml.Max(axis=1)(input="h", output="rows")
    model |= ml.ArgMax(axis=0)(input="h", output="places")
    model.expose_keys("h", "columns", "rows", "places")
    shape = [203, 4999]
    engine, device = both(model, data_keys={"x"}, shapes={"x": shape})
    same(device.evaluate({}, {"x": drawn(shape)}), engine.evaluate({}, {"x": drawn(shape)}))


@pytest.mark.parametrize("title", ROWS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_rows(title, dtype):
    """Long ones are a block's each."""
    check_rows(both, title, dtype)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (64, 16, 64), (70, 300, 65), (129, 513, 31), (5, 0, 7), (9, 40, 0)]
)
def test_products(shape, transposed):
    check_products(both, shape, transposed)


def test_sums_of_products_keep_the_sign_of_zero():
    """Places behind the last one are not added: fma(0, 0, -0) is +0."""
    tiny = np.float32(1e-45)
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="a", right="b", output="y")
    model.expose_keys("y")
    data = {"a": np.full([1, 1], -tiny), "b": np.full([1, 1], tiny)}
    for pm in both(model, data_keys={"a", "b"}, shapes={"a": [1, 1], "b": [1, 1]}):
        y = pm.evaluate({}, data)["y"]
        assert y == 0 and np.signbit(y)


@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"padding": 1}, {"dilation": 2}])
def test_convolutions(options):
    model = ml.Model()
    model |= ml.Convolution2D(3, 5, use_bias=False, **options)(input="x", output="y")
    model.expose_keys("y")
    shape = [2, 4, 11, 9]
    engine, device = both(model, data_keys={"x"}, shapes={"x": shape})
    params, data = engine.get_parameters(), {"x": drawn(shape)}
    wanted = engine.evaluate(params, data)
    same(device.evaluate(params, data), wanted)
    cotangents = {"y": drawn(wanted["y"].shape, 1)}
    got, want = (
        pm.evaluate(params, data, output_gradients=cotangents).gradients for pm in (device, engine)
    )
    same(got, want)


def test_threads_that_evaluate_at_once():
    check_threads_at_once(ml.CudaBackend(), 5, 100)


def test_states_that_are_donated():
    check_donated_states(ml.CudaBackend())


def test_a_bad_index_is_the_engines_error():
    check_bad_index(both)


@emulated
def test_memory_without_pools():
    """The emulator's second device has none: memory comes from the driver at once."""
    make, shape = MODELS["mlp"]
    backend = ml.CudaBackend("cuda:1")
    assert not backend.device_info["has_pools"] and ml.CudaBackend().device_info["has_pools"]
    runs = []
    for one in (ml.CpuBackend(), backend):
        pm = ml.compile(make(), one, data_keys={"x"}, shapes={"x": shape}, deterministic="portable")
        runs.append(pm.evaluate(pm.get_parameters(), {"x": drawn(shape)}))
    same(runs[1], runs[0])


@emulated
def test_an_architecture_that_the_compiler_does_not_know_gets_ptx():
    """The emulator's second device is sm_86, of which its compiler has heard nothing."""
    identity = ml.CudaBackend("cuda:1")._device.compiler_identity
    assert "sm_86" in identity and "--fmad=false" in identity


# --- devices --------------------------------------------------------------------------------------


def test_devices_by_name():
    for device in (0, "cuda", "cuda:0"):
        assert ml.CudaBackend(device).get_device() == "cuda:0"
    assert ml.CudaBackend.get_available_devices()[0] == "cuda:0"
    assert isinstance(ml.get_backend("cuda"), ml.CudaBackend)


@pytest.mark.parametrize("device", ["nope", "cuda:", "cuda:x", "cuda:99", 99, -1, "", "gpu", "\0"])
def test_devices_that_are_not_there(device):
    with pytest.raises(DeviceNotAvailable, match="no device is"):
        ml.CudaBackend(device)


def test_bad_arguments():
    for device in (True, 1.5, None, ["cuda"]):
        with pytest.raises(SignatureError, match="device requires 'cuda:0' or a number"):
            ml.CudaBackend(device)
    for dtype in ("int32", "float33"):
        with pytest.raises(DTypeError, match="dtype"):
            ml.CudaBackend(dtype=dtype)
    with pytest.raises(ArgumentError, match="CudaBackend: memory_limit"):
        ml.CudaBackend(memory_limit="much")


def test_what_it_says_of_itself():
    check_what_it_says_of_itself(ml.CudaBackend)
    assert ml.CudaBackend().device_info["architecture"].startswith("sm_")


INEXACT = r"""
// An NVRTC whose kernels take roots that are off by a bit, in front of the emulator's.
#include <cstring>
#include <dlfcn.h>
#include <string>

extern "C" int nvrtcCreateProgram(void** program, const char* text, const char* name, int count,
                                  const char* const* headers, const char* const* names) {
  std::string changed = text;
  const std::string root = "#define m_sqrt_f32 __fsqrt_rn";
  const size_t at = changed.find(root);
  if (at != std::string::npos) {
    changed.replace(at, root.size(), "#define m_sqrt_f32(x) (1.0000001f * __fsqrt_rn(x))");
  }
  void* const emulator = dlopen(EMULATOR, RTLD_NOW);
  using Create = int (*)(void**, const char*, const char*, int, const char* const*,
                         const char* const*);
  const auto create = reinterpret_cast<Create>(dlsym(emulator, "nvrtcCreateProgram"));
  return create(program, changed.c_str(), name, count, headers, names);
}
"""


@emulated
def test_a_device_of_other_bits_says_so(tmp_path):
    """The self-test finds that its roots are not the engine's; models run all the same."""
    emulator, library = os.environ["MITHRIL_NVRTC_LIB"], tmp_path / "nvrtc.so"
    source = tmp_path / "inexact.cc"
    source.write_text(INEXACT)
    # What it does not define is found in the emulator, which it is linked to.
    subprocess.run(
        ["g++", "-std=c++20", "-shared", "-fPIC", f'-DEMULATOR="{emulator}"', str(source), "-o",
         str(library), "-Wl,--no-as-needed", emulator, "-ldl"],
        check=True,
    )  # fmt: skip
    code = """
import mithril as ml, numpy as np
backend = ml.CudaBackend()
print(backend.has_exact_bits, backend)
pm = ml.compile(ml.Sqrt(), backend, shapes={"input": [3]})
print(np.allclose(pm.evaluate({}, {"input": [2.0, 9.0, 0.5]})["output"], [2**0.5, 3, 0.5**0.5]))
"""
    cache = str(tmp_path / "cache")
    said = in_process(code, MITHRIL_NVRTC_LIB=str(library), MITHRIL_CACHE_DIR=cache)
    assert said.startswith("False CudaBackend(") and said.endswith("True\n"), said
    assert ", bits of its own\n" in said
    assert in_process(code).startswith("True CudaBackend(")
    assert "bits of its own" not in repr(ml.CudaBackend())


def test_what_falls_back_is_told():
    check_what_falls_back_is_told(ml.CudaBackend, "It runs on the host: CUDA has no kernel")


def test_models_can_be_pickled():
    check_pickles(ml.CudaBackend)


def test_importing_opens_no_driver():
    code = "import mithril as ml; ml.CpuBackend(); print(open('/proc/self/maps').read())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "_core" in done.stdout
    assert "libcuda" not in done.stdout and "emulated_cuda" not in done.stdout
    assert "nvrtc" not in done.stdout


def test_the_threads_context_stays_as_it_was():
    """Frameworks of the process have contexts of their own."""
    pm = relu(ml.CudaBackend)
    assert_relu_runs(pm)
    driver = ctypes.CDLL(os.environ["MITHRIL_CUDA_LIB"])
    context = ctypes.c_void_p()
    if is_used():
        assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 201  # there is none
    else:
        assert driver.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context.value is None


# --- what is compiled is kept ---------------------------------------------------------------------


def test_what_was_compiled_is_kept_on_disk(folder, monkeypatch):
    assert_relu_runs(relu(ml.CudaBackend))
    kept = sorted(folder.iterdir())
    assert [path.suffix for path in kept] == [".cubin"]

    def refuse(self, text):
        raise AssertionError("it is compiled again")

    pm = relu(ml.CudaBackend)
    monkeypatch.setattr(type(pm.backend._device), "compile", refuse)
    assert_relu_runs(pm)
    kept[0].write_bytes(kept[0].read_bytes()[:-5])  # damaged: its digest is another
    del pm
    with pytest.raises(AssertionError, match="compiled again"):
        assert_relu_runs(relu(ml.CudaBackend))


def test_processes_that_compile_the_same_at_once(tmp_path):
    """Each has right results, the folder has one object, and later processes compile nothing."""
    code = """
import sys, time
import mithril as ml
pm = ml.compile(ml.Softmax(), ml.CudaBackend(), shapes={"input": [3]})
compile, calls = type(pm.backend._device).compile, []
def counted(self, text):
    calls.append(text)
    return compile(self, text)
type(pm.backend._device).compile = counted
print("ready", flush=True)
sys.stdin.readline()
got = pm.evaluate({}, {"input": [0.0, 0.0, 0.0]})["output"].tolist()
print(len(calls), got == [got[0]] * 3 and abs(got[0] - 1 / 3) < 1e-6)
"""
    env = {**os.environ, "MITHRIL_CACHE_DIR": str(tmp_path)}

    def at_once(count):
        started = [
            subprocess.Popen([sys.executable, "-c", code], env=env, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(count)
        ]  # fmt: skip
        for one in started:
            assert one.stdout.readline() == "ready\n"
        for one in started:  # all of them are where they compile
            one.stdin.write("go\n")
            one.stdin.flush()
        return [one.communicate(timeout=120)[0].split() for one in started]

    found = at_once(3)
    assert {right for _, right in found} == {"True"}
    assert any(count == "1" for count, _ in found)
    (kept,) = (tmp_path / "cuda").iterdir()
    assert at_once(2) == [["0", "True"]] * 2
    kept.write_bytes(kept.read_bytes()[:100])
    assert {right for _, right in at_once(2)} == {"True"}
    assert [path.name for path in (tmp_path / "cuda").iterdir()] == [kept.name]


def test_a_memory_limit_of_the_backend():
    check_a_memory_limit(ml.CudaBackend)


def test_a_memory_limit_of_arrays():
    check_a_memory_limit_of_arrays(ml.CudaBackend)


# --- failures -------------------------------------------------------------------------------------


@pytest.fixture
def inject():
    yield from injecting(_core.cuda_functions())


CALLS = ["cuCtxPushCurrent_v2", "cuMemAllocFromPoolAsync", "cuMemcpyHtoDAsync_v2",
         "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize", "cuModuleLoadData", "cuModuleGetFunction",
         "cuLaunchKernel"]  # fmt: skip
OF_NVRTC = ["nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetCUBINSize", "nvrtcGetCUBIN"]
OF_PTX = ["nvrtcGetPTXSize", "nvrtcGetPTX"]  # of an architecture that NVRTC does not know


@pytest.mark.parametrize("symbol", [*CALLS, *OF_NVRTC])
@pytest.mark.parametrize("nth", [1, 2])
def test_each_call_that_fails(symbol, nth, inject, folder):
    """A typed error that names it, nothing leaks, and the next call works."""
    model = linear_softmax()
    shape = [[*CALLS, *OF_NVRTC].index(symbol) + 2, nth + 2]  # a program that nobody has compiled
    want = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": shape})
    params, data = want.get_parameters(), {"x": drawn(shape)}
    ml.CudaBackend()  # the device stays

    def compiled():
        options = {"data_keys": {"x"}, "shapes": {"x": shape}, "deterministic": "portable"}
        return ml.compile(model, ml.CudaBackend(), **options)

    before = live_objects()
    pm = compiled()
    for status, kind in ((2, OutOfMemoryError), (201, DeviceNotAvailable)):
        is_nvrtc = symbol in OF_NVRTC
        name = "CUDA_ERROR_OUT_OF_MEMORY" if status == 2 else "CUDA_ERROR_INVALID_CONTEXT"
        if is_nvrtc:
            status, name = (1, "NVRTC_ERROR_OUT_OF_MEMORY") if status == 2 else (
                5, "NVRTC_ERROR_INVALID_OPTION")  # fmt: skip
        pm.backend.empty_cache()  # what is kept is not allocated
        inject(symbol, nth, status)
        with pytest.raises(kind, match=f"{symbol} failed with {name}"):
            for _ in range(3):  # what is made once may be called once in a run
                pm.evaluate(params, data)
                del pm
                for path in folder.iterdir():
                    path.unlink()
                pm = compiled()
        pm = compiled()
        same(pm.evaluate(params, data), want.evaluate(params, data))
    del pm
    assert live_objects() <= before + 1  # the arena may be new


@pytest.mark.parametrize("device", [0, 1] if is_used() else [0])
def test_loops_with_a_condition(device):
    pm = ml.compile(doubling(), ml.CudaBackend(device), inference=True)
    for limit in (0.5, 1.5, 5.0, 500.0):
        steps = 0 if limit < 1 else int(np.ceil(np.log2(limit)))
        assert doubled(pm, limit) == 2.0**steps


@emulated
@pytest.mark.parametrize("symbol", OF_PTX)
def test_each_call_for_ptx_that_fails(symbol, inject):
    """On the emulator's second device, whose architecture its compiler does not know."""
    pm = ml.compile(doubling(), ml.CudaBackend(1), inference=True)
    inject(symbol, 1, 4)
    with pytest.raises(DeviceNotAvailable, match=f"{symbol} failed with NVRTC_ERROR_INVALID_PROG"):
        doubled(pm, 5.0)
    assert doubled(pm, 5.0) == 8


OF_LOOPS = ["cuMemcpyDtoDAsync_v2", "cuMemAlloc_v2"]


@emulated
@pytest.mark.parametrize("symbol", OF_LOOPS)
def test_each_call_of_a_loop_that_fails(symbol, inject):
    """On the emulator's second device, which has no pools."""
    pm = ml.compile(doubling(), ml.CudaBackend(1), inference=True)
    assert doubled(pm, 5.0) == 8
    before = live_objects()
    pm.backend.empty_cache()  # what is kept is not allocated
    inject(symbol, 1, 201)
    with pytest.raises(DeviceNotAvailable, match=f"{symbol} failed with CUDA_ERROR"):
        for limit in (2.0, 5.0):  # an even and an odd number of steps
            doubled(pm, limit)
    assert doubled(pm, 5.0) == 8
    assert live_objects() == before


OF_LISTS = ["cuDeviceGetCount", "cuDriverGetVersion", "cuDeviceGet", "cuDeviceGetName",
            "cuDeviceTotalMem_v2", "cuDeviceGetAttribute"]  # fmt: skip


@pytest.mark.parametrize("symbol", OF_LISTS)
def test_a_driver_that_fails(symbol, inject):
    inject(symbol, 1, 999)
    with pytest.raises(DeviceNotAvailable, match=f"{symbol} failed with"):
        ml.CudaBackend()
    ml.CudaBackend()


def in_process(code, **variables):
    """What a process of its own prints."""
    env = {**os.environ, **variables}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env
    )
    return done.stdout + done.stderr


SAYS = """
import mithril as ml
from mithril import _core
{before}
try:
    ml.CudaBackend()
except ml.errors.DeviceNotAvailable as error:
    print("told:", error)
{after}
"""


def test_no_driver():
    code = SAYS.format(before="", after="")
    said = in_process(code, MITHRIL_CUDA_LIB="/nowhere/libcuda.so")
    assert "told: CUDA's driver cannot be opened" in said and "apt-get install" in said
    said = in_process(code, MITHRIL_CUDA_LIB="libm.so.6")
    assert "told: CUDA's driver has no function cuInit" in said


def test_no_device():
    before = "_core.device_inject_failure('cuInit', 1, 100)"
    said = in_process(SAYS.format(before=before, after=""))
    assert "told: CUDA: cuInit failed with CUDA_ERROR_NO_DEVICE" in said and "nvidia-smi" in said


def test_memory_that_cannot_be_filled():
    """With MITHRIL_POISON memory that is taken again is full of NaN first."""
    code = """
import mithril as ml
from mithril import _core
backend = ml.CudaBackend()
backend.to_device([1.0, 2.0])
_core.device_inject_failure("cuMemsetD8Async", 1, 201)
before = _core.device_live_objects()
try:
    backend.to_device([3.0, 4.0])
except ml.errors.DeviceNotAvailable as error:
    print("told:", error)
print(_core.device_live_objects() - before, backend.to_device([3.0, 4.0]).tolist())
"""
    said = in_process(code, MITHRIL_POISON="1")
    assert "told: CUDA: cuMemsetD8Async failed with CUDA_ERROR_INVALID_CONTEXT" in said, said
    assert said.endswith("0 [3.0, 4.0]\n"), said


def test_a_kernel_that_fails_says_that_the_device_is_lost(inject):
    pm = relu(ml.CudaBackend)
    assert_relu_runs(pm)
    inject("cuStreamSynchronize", 1, 700)
    with pytest.raises(DeviceNotAvailable, match="CUDA_ERROR_ILLEGAL_ADDRESS") as raised:
        assert_relu_runs(pm)
    assert "until the process ends: start it anew" in str(raised.value)
    del pm, raised  # its kernel waits in the queue, as nothing has happened to this device
    model = linear_softmax()
    options = {"data_keys": {"x"}, "shapes": {"x": [5, 7]}, "deterministic": "portable"}
    want = ml.compile(model, ml.CpuBackend(), **options)
    got = ml.compile(model, ml.CudaBackend(), **options)
    params, data = want.get_parameters(), {"x": drawn([5, 7])}
    same(got.evaluate(params, data), want.evaluate(params, data))


def test_no_nvrtc():
    said = in_process(SAYS.format(before="", after=""), MITHRIL_NVRTC_LIB="/nowhere/libnvrtc.so")
    assert "told: CUDA: no NVRTC, which compiles kernels" in said
    assert "pip install nvidia-cuda-nvrtc" in said


STARTS = ["cuInit", "cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuMemPoolCreate",
          "cuMemPoolSetAttribute", "nvrtcVersion", "nvrtcGetNumSupportedArchs",
          "nvrtcGetSupportedArchs"]  # fmt: skip


@pytest.mark.parametrize("symbol", STARTS)
def test_a_start_that_fails(symbol):
    """Nothing stays of it, and the next start is right."""
    before = f"_core.device_inject_failure({symbol!r}, 1, 3)"
    after = "print(_core.device_live_objects(), ml.CudaBackend())"
    said = in_process(SAYS.format(before=before, after=after))
    assert f"told: CUDA: {symbol} failed with" in said
    assert "\n0 CudaBackend(device='cuda:0'" in said, said


def test_without_pinned_memory_copies_are_right():
    code = """
import mithril as ml
from mithril import _core
_core.device_inject_failure("cuMemHostAlloc", 1, 2)
pm = ml.compile(ml.Relu(), ml.CudaBackend(), shapes={"input": [3]})
print(pm.evaluate({}, {"input": [-1.0, 2.0, 3.0]})["output"].tolist())
"""
    assert in_process(code).endswith("[0.0, 2.0, 3.0]\n")


@pytest.mark.parametrize("size", [100, 1 << 18, (1 << 18) + 1, 3 << 20])
def test_operands_of_every_size(size):
    """Those that go through pinned memory, some of them until it is full, and those that do not."""
    model = ml.Model()
    keys = [f"x{i}" for i in range(12)]
    for key in keys:
        model |= ml.Negate()(input=key, output=f"y{key}")
        model.expose_keys(f"y{key}")
    shapes = {key: [size] for key in keys}
    pm = ml.compile(model, ml.CudaBackend(), data_keys=set(keys), shapes=shapes)
    data = {key: drawn([size], i) for i, key in enumerate(keys)}
    for _ in range(3):
        outputs = pm.evaluate({}, data)
        for key in keys:
            np.testing.assert_array_equal(outputs[f"y{key}"], -data[key])


def test_nothing_leaks():
    check_nothing_leaks(ml.CudaBackend)


def test_memory_that_is_not_there():
    """The driver refuses; the next call works."""
    if not is_used():
        pytest.skip("the size is that of the emulator's memory")
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.expose_keys("y")
    pm = ml.compile(model, ml.CudaBackend(), data_keys={"x"}, shapes={"x": ["n"]})
    with pytest.raises(OutOfMemoryError, match="cuMemAllocFromPoolAsync failed") as raised:
        pm.evaluate({}, {"x": np.zeros(150_000_000, np.float32)})
    assert "takes 600.0 MB (0 bytes of intermediates, 600.0 MB of outputs)" in str(raised.value)
    assert "\n  600.0 MB float32[150000000] of " in str(raised.value)
    assert pm.evaluate({}, {"x": np.ones(3, np.float32)})["y"].tolist() == [1, 1, 1]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@forks
def test_a_fork_is_told():
    check_a_fork_is_told(ml.CudaBackend)


def test_a_training_step_is_that_of_the_engine():
    """Ten steps of AdamW: parameters to the bit."""
    check_steps(both, "mlp", 10)
