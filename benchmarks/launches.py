"""A kernel that is launched by hand, as a program in C would, and waited for: what a driver takes.

By ctypes, with all arguments set beforehand where the driver keeps them.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness import Contender, LeftOut

_OPENCL = """
__kernel void relu(__global const float* x, __global float* y) {
  const size_t i = get_global_id(0);
  y[i] = fmax(x[i], 0.0f);
}
"""
_CUDA = """
extern "C" __global__ void relu(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
"""
_CL_ALL_DEVICES, _CL_COPY_HOST_POINTER, _CL_PARTITION_BY_COUNTS = 0xFFFFFFFF, 32, 0x1087


def relu(backend: Any, x: np.ndarray) -> Contender:
    """On the device that a backend has; `x` has as many elements as one block has threads."""
    return {"opencl": _by_opencl, "cuda": _by_cuda}[backend.backend_type](backend, x)


def _opened(name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise LeftOut(str(error)) from None


def _checked(function: Any, *arguments: Any) -> None:
    status = function(*arguments)
    if status != 0:
        raise LeftOut(f"{function.__name__} gave status {status}")


def _repeated(launch: Callable[..., int], arguments: tuple, wait: Callable[..., int], queue: Any,
              read: Callable[[], np.ndarray]) -> Contender:  # fmt: skip
    def run() -> None:
        if launch(*arguments) != 0 or wait(queue) != 0:
            raise RuntimeError("the launch failed")

    def result() -> dict[str, np.ndarray]:
        run()
        return {"output": read()}

    return Contender(run, result)


# --- OpenCL ---------------------------------------------------------------------------------------


def _by_opencl(backend: Any, x: np.ndarray) -> Contender:
    cl = _opened("libOpenCL.so.1")

    def make(symbol: str, *arguments: Any) -> ctypes.c_void_p:
        function, status = getattr(cl, symbol), ctypes.c_int()
        function.restype = ctypes.c_void_p
        handle = ctypes.c_void_p(function(*arguments, ctypes.byref(status)))
        if status.value != 0:
            raise LeftOut(f"{symbol} gave status {status.value}")
        return handle

    device = _device_of(cl, backend)
    context = make("clCreateContext", None, 1, ctypes.byref(device), None, None)
    queue = make("clCreateCommandQueue", context, device, ctypes.c_uint64(0))
    text = ctypes.c_char_p(_OPENCL.encode())
    program = make("clCreateProgramWithSource", context, 1, ctypes.byref(text), None)
    _checked(cl.clBuildProgram, program, 1, ctypes.byref(device), None, None, None)
    kernel = make("clCreateKernel", program, b"relu")
    size, flags = ctypes.c_size_t(x.nbytes), ctypes.c_uint64(_CL_COPY_HOST_POINTER)
    for place in range(2):
        buffer = make("clCreateBuffer", context, flags, size, x.ctypes.data_as(ctypes.c_void_p))
        _checked(cl.clSetKernelArg, kernel, place, ctypes.c_size_t(8), ctypes.byref(buffer))

    def read() -> np.ndarray:
        y = np.empty_like(x)
        _checked(cl.clEnqueueReadBuffer, queue, buffer, 1, ctypes.c_size_t(0), size,
                 y.ctypes.data_as(ctypes.c_void_p), 0, None, None)  # fmt: skip
        return y

    items = ctypes.byref(ctypes.c_size_t(x.size))
    arguments = (queue, kernel, 1, None, items, None, 0, None, None)
    return _repeated(cl.clEnqueueNDRangeKernel, arguments, cl.clFinish, queue, read)


def _device_of(cl: ctypes.CDLL, backend: Any) -> ctypes.c_void_p:
    """The backend's device, or as many compute units of it as the backend has."""
    from mithril import _core

    known = _core.opencl_devices()
    wanted = next(i for i, info in enumerate(known) if info["id"] == backend.get_device())
    count = ctypes.c_uint()
    _checked(cl.clGetPlatformIDs, 0, None, ctypes.byref(count))
    platforms = (ctypes.c_void_p * count.value)()
    _checked(cl.clGetPlatformIDs, count, platforms, None)
    devices: list[int] = []
    for platform in map(ctypes.c_void_p, platforms):
        everything = ctypes.c_uint64(_CL_ALL_DEVICES)
        if cl.clGetDeviceIDs(platform, everything, 0, None, ctypes.byref(count)) == 0:
            some = (ctypes.c_void_p * count.value)()
            _checked(cl.clGetDeviceIDs, platform, everything, count, some, None)
            devices += some
    whole, units = ctypes.c_void_p(devices[wanted]), backend.device_info["compute_units"]
    if units == known[wanted]["compute_units"]:
        return whole
    counts = (ctypes.c_ssize_t * 4)(_CL_PARTITION_BY_COUNTS, units, 0, 0)
    part = ctypes.c_void_p()
    _checked(cl.clCreateSubDevices, whole, counts, 1, ctypes.byref(part), None)
    return part


# --- CUDA -----------------------------------------------------------------------------------------


def _by_cuda(backend: Any, x: np.ndarray) -> Contender:
    cu = _opened(os.environ.get("MITHRIL_CUDA_LIB", "libcuda.so.1"))
    device, context = ctypes.c_int(), ctypes.c_void_p()
    index = int(backend.get_device().partition(":")[2])
    _checked(cu.cuInit, 0)
    _checked(cu.cuDeviceGet, ctypes.byref(device), index)
    _checked(cu.cuDevicePrimaryCtxRetain, ctypes.byref(context), device)
    _checked(cu.cuCtxPushCurrent_v2, context)  # it stays: this is how programs use CUDA
    queue, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    _checked(cu.cuStreamCreate, ctypes.byref(queue), 1)
    _checked(cu.cuModuleLoadData, ctypes.byref(module), backend._device.compile(_CUDA))
    _checked(cu.cuModuleGetFunction, ctypes.byref(function), module, b"relu")
    places = (ctypes.c_uint64 * 2)()
    size = ctypes.c_size_t(x.nbytes)
    for i in range(2):
        _checked(cu.cuMemAlloc_v2, ctypes.byref(places, 8 * i), size)
    pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(places) + 8 * i for i in range(2)))
    source = x.ctypes.data_as(ctypes.c_void_p)
    _checked(cu.cuMemcpyHtoDAsync_v2, ctypes.c_uint64(places[0]), source, size, queue)

    def read() -> np.ndarray:
        y = np.empty_like(x)
        target = y.ctypes.data_as(ctypes.c_void_p)
        _checked(cu.cuMemcpyDtoHAsync_v2, target, ctypes.c_uint64(places[1]), size, queue)
        _checked(cu.cuStreamSynchronize, queue)
        return y

    arguments = (function, 1, 1, 1, x.size, 1, 1, 0, queue, pointers, None)
    return _repeated(cu.cuLaunchKernel, arguments, cu.cuStreamSynchronize, queue, read)
