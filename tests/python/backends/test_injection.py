# Covers: backends/device/injection.cc
"""Every function of a driver or a library that a backend calls fails in some test: one that is
added without a case fails here."""

import pytest
from backends import test_cublaslt, test_cuda_backend, test_cuda_graphs, test_opencl_backend
from backends import test_device_arrays as arrays
from backends import test_device_profile as profile
from backends import test_device_releases as releases
from mithril import _core

test_cudnn = pytest.importorskip("backends.test_cudnn")  # which needs PyTorch

pytestmark = pytest.mark.device

# They give something back (test_device_releases.py) or tell of an error: what they say is nobody's.
OPENCL_ENDS = {name for name in releases.ALL if name.startswith("cl")}
CUDA_ENDS = (releases.ALL - OPENCL_ENDS) | {
    "cuCtxPopCurrent_v2", "cuGetErrorName", "nvrtcGetProgramLogSize", "nvrtcGetProgramLog",
}  # fmt: skip


def names_in(*lists):
    return {name for one in lists for name in one}


def test_functions_of_opencl():
    of = test_opencl_backend
    injected = names_in(of.CALLS, of.OF_LOOPS, of.OF_QUEUES, of.OF_LISTS, of.STARTS)
    injected |= dict(profile.FAILURES["opencl"]).keys()
    # By tests of their own: test_opencl_loaders.py, test_opencl_groups.py.
    injected |= {"clGetProgramBuildInfo", "clGetKernelWorkGroupInfo"}
    assert not injected & OPENCL_ENDS
    assert injected | OPENCL_ENDS == set(_core.opencl_functions())


def test_functions_of_cuda():
    of = test_cuda_backend
    injected = names_in(of.CALLS, of.OF_NVRTC, of.OF_PTX, of.OF_LOOPS, of.OF_LISTS, of.STARTS)
    injected |= names_in(test_cuda_graphs.GRAPHS, test_cublaslt.CALLS, test_cudnn.OF_ALL,
                         test_cudnn.OF_ONE, arrays.OF_STREAMS)  # fmt: skip
    injected |= dict(profile.FAILURES["cuda"]).keys()
    # By tests of their own in these files.
    injected |= {"cuMemHostAlloc", "cuMemsetD8Async", "cuGraphLaunch", "cublasLtCreate"}
    injected |= {"cudnnCreate", "cuCtxSynchronize"}
    assert not injected & CUDA_ENDS
    assert injected | CUDA_ENDS == set(_core.cuda_functions())


def test_what_lasts_fails_until_it_is_taken_back():
    if test_opencl_backend.WHY:
        pytest.skip(test_opencl_backend.WHY)
    backend = arrays.opencl()
    placed = backend.to_device([1.0])
    _core.device_inject_failure("clFinish", 2, -36, True)
    try:
        placed.to_numpy()
        for _ in range(3):
            with pytest.raises(arrays.DeviceNotAvailable, match="clFinish"):
                placed.to_numpy()
    finally:
        _core.device_inject_failure("clFinish", 0, 0)
    assert placed.tolist() == [1.0]
