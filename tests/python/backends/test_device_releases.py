# Covers: backends/device/injection.cc
"""Functions of drivers and libraries that give something back, and fail: no error is raised for
them, none that is on its way is lost, counts are right, and so is the next call."""

import functools

import emulated_cuda
import mithril as ml
import numpy as np
import pytest
from backends.device_cases import injecting, linear_softmax, live_objects
from backends.test_cuda_backend import in_process
from backends.test_opencl_backend import WHY
from formats.c_cases import drawn
from mithril import _core
from mithril.backends.with_manualgrad import object_cache
from mithril.errors import MithrilError

pytestmark = [
    pytest.mark.device,
    pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning"),
]
no_opencl = pytest.mark.skipif(WHY is not None, reason=WHY or "")
no_cuda = pytest.mark.skipif(bool(emulated_cuda.NO_CUDA), reason=emulated_cuda.NO_CUDA)
emulated = pytest.mark.skipif(not emulated_cuda.is_used(), reason="of the emulator's libraries")

OF_OPENCL = ["clReleaseMemObject", "clReleaseKernel", "clReleaseProgram", "clReleaseEvent"]
OF_CUDA = ["cuMemFreeAsync", "cuModuleUnload", "cuGraphDestroy", "cuGraphExecDestroy",
           "cuEventDestroy_v2", "nvrtcDestroyProgram"]  # fmt: skip
OF_LIBRARIES = ["cublasLtMatmulDescDestroy", "cublasLtMatrixLayoutDestroy",
                "cublasLtMatmulPreferenceDestroy", "cudnnDestroyTensorDescriptor",
                "cudnnDestroyFilterDescriptor", "cudnnDestroyConvolutionDescriptor"]  # fmt: skip
without_pools = functools.partial(ml.CudaBackend, "cuda:1")  # the emulator's second device
RELEASES = [
    pytest.param(without_pools, "cuMemFree_v2", marks=[no_cuda, emulated], id="cuMemFree_v2"),
    *(pytest.param(ml.OpenCLBackend, symbol, marks=no_opencl, id=symbol) for symbol in OF_OPENCL),
    *(pytest.param(ml.CudaBackend, symbol, marks=no_cuda, id=symbol) for symbol in OF_CUDA),
    *(pytest.param(ml.CudaBackend, symbol, marks=[no_cuda, emulated], id=symbol)
      for symbol in OF_LIBRARIES),
]  # fmt: skip


@pytest.fixture
def inject():
    yield from injecting([*_core.cuda_functions(), *_core.opencl_functions()])


def of_images():
    model = ml.Model()
    model |= ml.Convolution2D(3, 4)(input="x", output="c")
    model |= ml.Relu()(input="c", output="y")
    model.expose_keys("y")
    return model


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Compiles a model that no run has had, and runs it a few times with arrays on the device, all
    of which are gone behind it."""
    monkeypatch.setattr(object_cache._core, "cache_dir", lambda: str(tmp_path / "cache"))
    sizes = iter(range(5, 100))

    def once(kind, symbol):
        is_image, size = symbol.startswith("cudnn"), next(sizes)
        model = of_images() if is_image else linear_softmax()
        shape = [2, 3, size, size] if is_image else [size, 7]
        want = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": shape})
        params, data = want.get_parameters(), {"x": drawn(shape)}
        backend = kind()
        pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": shape})
        held, x = backend.to_device(params), backend.to_device(data)
        for _ in range(4):
            got = {key: np.asarray(value) for key, value in pm.evaluate(held, x).items()}
            for key, value in want.evaluate(params, data).items():
                np.testing.assert_allclose(got[key], value, rtol=1e-5, atol=1e-5)
        if symbol == "clReleaseEvent":
            with pm.profile():
                pm.evaluate(held, x)
        if symbol == "cuEventDestroy_v2":  # of a stream that waits for the backend's
            next(iter(held.values())).__dlpack__(stream=1)
        del pm, held, x
        backend.empty_cache()

    return once


@pytest.mark.parametrize("kind, symbol", RELEASES)
def test_what_is_not_given_back(kind, symbol, run, inject):
    """Once, and every time."""
    for _ in range(2):  # the device, its arena and workspaces stay
        run(kind, symbol)
    before = live_objects()
    used = kind()._device.used_bytes
    for lasts in (False, True):
        failures = _core.device_injected_failures(symbol)
        inject(symbol, 1, 3, lasts)
        run(kind, symbol)
        live_objects()
        assert _core.device_injected_failures(symbol) > failures, "nobody gave anything back by it"
        inject(symbol, 1, 0)
    run(kind, symbol)
    assert live_objects() <= before + 1  # the arena may be new
    assert kind()._device.used_bytes <= used + 100_000


FIRST = {"cl": ("clEnqueueNDRangeKernel", -36), "cu": ("cuLaunchKernel", 201),
         "nv": ("nvrtcCompileProgram", 5), "cublas": ("cublasLtMatmul", 14),
         "cudnn": ("cudnnConvolutionForward", 5000)}  # fmt: skip


@pytest.mark.parametrize("kind, symbol", RELEASES)
def test_the_first_error_is_told(kind, symbol, run, inject):
    """A call that fails, with all that is given back behind it."""
    run(kind, symbol)
    prefix = next(prefix for prefix in sorted(FIRST, key=len, reverse=True)
                  if symbol.startswith(prefix))  # fmt: skip
    fails, status = FIRST[prefix]
    inject(symbol, 1, 3, True)
    inject(fails, 1, status)
    with pytest.raises(MithrilError, match=f"{fails} failed with"):
        run(kind, symbol)
    inject(symbol, 1, 0)
    run(kind, symbol)


ENDS = {  # of starts: what fails then, and what gives back what there was
    "clCreateCommandQueue": ("clReleaseContext", ml.OpenCLBackend, no_opencl),
    "cuMemPoolSetAttribute": ("cuMemPoolDestroy", ml.CudaBackend, no_cuda),
    "cuMemPoolCreate": ("cuStreamDestroy_v2", ml.CudaBackend, no_cuda),
    "cuStreamCreate": ("cuDevicePrimaryCtxRelease_v2", ml.CudaBackend, no_cuda),
}


@pytest.mark.parametrize(
    "symbol", [pytest.param(symbol, marks=mark) for symbol, (_, _, mark) in ENDS.items()]
)
def test_a_start_of_which_nothing_is_given_back(symbol):
    release, kind, _ = ENDS[symbol]
    said = in_process(f"""
import mithril as ml
from mithril import _core
_core.device_inject_failure({symbol!r}, 1, {-6 if kind is ml.OpenCLBackend else 2})
_core.device_inject_failure({release!r}, 1, 3)
try:
    ml.{kind.__name__}()
except ml.errors.MithrilError as error:
    print("told:", error)
print(_core.device_injected_failures({release!r}), _core.device_live_objects())
pm = ml.compile(ml.Relu(), ml.{kind.__name__}(), shapes={{"input": [3]}})
print(pm.evaluate({{}}, {{"input": [-1.0, 2.0, 3.0]}})["output"].tolist())
""")
    assert f"{symbol} failed with" in said, said
    assert "\n1 0\n" in said, said
    assert said.endswith("[0.0, 2.0, 3.0]\n"), said


NEVER_CALLED = "clReleaseCommandQueue"  # a device that has started lives as long as the process
ALL = {*OF_OPENCL, *OF_CUDA, *OF_LIBRARIES, *(name for name, _, _ in ENDS.values()),
       "cuMemFree_v2", NEVER_CALLED}  # fmt: skip


def test_all_of_them_are_here():
    words = ("Release", "Destroy", "Free", "Unload")
    functions = [*_core.cuda_functions(), *_core.opencl_functions()]
    assert {name for name in functions if any(word in name for word in words)} == ALL
