# Covers: backends/opencl/api.cc backends/opencl/device.cc
"""Loaders of OpenCL that are none, lack something, or have nothing behind them: typed errors that
say what is missing. Each is a library of its own, which a process of its own finds in place of the
real one."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from backends.test_opencl_backend import WHY
from mithril import _core

ON_X86 = platform.machine() == "x86_64" and platform.system() == "Linux"
pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(not ON_X86 or shutil.which("g++") is None, reason="g++ on x86-64 builds it"),
]
forwarding = pytest.mark.skipif(WHY is not None, reason=WHY or "")

RUN = """
import mithril as ml, numpy as np
from mithril import _core
try:
{work}
except ml.errors.MithrilError as error:
    print(type(error).__name__, error)
{after}
"""


def said_with(folder, work, after=""):
    """What a process prints that finds the loader in a folder."""
    code = RUN.format(work="    " + work.replace("\n", "\n    "), after=after)
    env = {**os.environ, "LD_LIBRARY_PATH": str(folder), "POCL_CACHE_DIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def built(folder, text):
    source, library = folder / "loader.cc", folder / "libOpenCL.so.1"
    source.write_text(text)
    command = ["g++", "-O1", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True)
    return folder


def loader(folder, without=(), **answers):
    """One whose functions fail but for these, by the text of their body."""
    lines = []
    for symbol in _core.opencl_functions():
        if symbol in without:
            continue
        parameters, body = answers.get(symbol, ("", "return -30;"))
        lines.append(f'extern "C" int {symbol}({parameters}) {{ {body} }}')
    return built(folder, "#include <cstddef>\n" + "\n".join(lines) + "\n")


def test_no_loader(tmp_path):
    for name in ("libOpenCL.so.1", "libOpenCL.so"):
        (tmp_path / name).write_text("no library")
    said = said_with(tmp_path, "ml.OpenCLBackend()")
    assert said.startswith("DeviceNotAvailable OpenCL's loader cannot be opened: "), said
    assert "libOpenCL.so.1" in said
    assert "apt-get install ocl-icd-libopencl1 pocl-opencl-icd" in said


@pytest.mark.parametrize("symbol", ["clGetPlatformIDs", "clCreateSubDevices", "clReleaseMemObject"])
def test_a_loader_without_a_function(symbol, tmp_path):
    said = said_with(loader(tmp_path, without=[symbol]), "ml.OpenCLBackend()")
    assert said.startswith(f"DeviceNotAvailable OpenCL's loader has no function {symbol}: "), said
    assert "version 1.2 is required" in said


PLATFORMS = "unsigned count, void** out, unsigned* found"
ONE = "if (found) *found = 1; if (out) out[0] = out; return 0;"
TEXT = "void*, unsigned, size_t size, char* out, size_t* needed"
NAMED = "if (needed) *needed = 2; if (out) { out[0] = 'P'; out[1] = 0; } return 0;"
DEVICES = "void*, unsigned long, unsigned count, void** out, unsigned* found"


@pytest.mark.parametrize("body", ["if (found) *found = 0; return 0;", "return -1001;"])
def test_no_platform(body, tmp_path):
    said = said_with(
        loader(tmp_path, clGetPlatformIDs=(PLATFORMS, body)),
        "ml.OpenCLBackend()",
        "print(ml.CpuBackend())",
    )
    assert said.startswith("DeviceNotAvailable OpenCL: the loader knows no platform"), said
    assert "apt-get install pocl-opencl-icd" in said and "CpuBackend(" in said


@pytest.mark.parametrize("body", ["if (found) *found = 0; return 0;", "return -1;"])
def test_no_device(body, tmp_path):
    folder = loader(
        tmp_path,
        clGetPlatformIDs=(PLATFORMS, ONE),
        clGetPlatformInfo=(TEXT, NAMED),
        clGetDeviceIDs=(DEVICES, body),
    )
    for work in ("ml.OpenCLBackend()", "ml.OpenCLBackend('gpu')", "_core.opencl_devices()"):
        said = said_with(folder, work)
        assert said.startswith("DeviceNotAvailable OpenCL: no platform has a device"), said


# --- the real one, in between --------------------------------------------------------------------


def real_loader():
    _core.opencl_devices()
    lines = Path("/proc/self/maps").read_text().splitlines()
    return next(line.split()[-1] for line in lines if "libOpenCL" in line)


def between(folder, symbol, text):
    """A loader that hands all calls on but those of one function, whose text calls `real`."""
    lines = ["#include <cstddef>", "#include <cstdint>", "#include <dlfcn.h>", "#include <string>"]
    finds = [f'void* library = dlopen("{real_loader()}", RTLD_NOW | RTLD_LOCAL);']
    for one in _core.opencl_functions():
        hidden = '__attribute__((visibility("hidden"), used))'
        lines.append(f'extern "C" {{ {hidden} void* real_{one} = 0; }}')
        finds.append(f'real_{one} = dlsym(library, "{one}");')
        if one != symbol:
            jump = f".globl {one}\\n.type {one},@function\\n{one}: jmp *real_{one}(%rip)"
            lines.append(f'__asm__("{jump}");')
    lines.append(f"static __attribute__((constructor)) void find() {{ {' '.join(finds)} }}")
    return built(folder, "\n".join([*lines, text, ""]))


PLANTED = """
extern "C" void* clCreateProgramWithSource(void* context, unsigned count, const char** texts,
                                           const size_t* sizes, int* status) {
  using Function = void* (*)(void*, unsigned, const char**, const size_t*, int*);
  const std::string text = std::string(texts[0]) + "\\n#error planted words\\n";
  const char* const all = text.c_str();
  return ((Function)real_clCreateProgramWithSource)(context, 1, (const char**)&all, 0, status);
}
"""
RELU = "pm = ml.compile(ml.Relu(), ml.OpenCLBackend(), shapes={'input': [3]})\n"


@forwarding
def test_a_kernel_that_does_not_build(tmp_path):
    """The compiler's words are in the error, where they can be had."""
    folder = between(tmp_path, "clCreateProgramWithSource", PLANTED)
    work = RELU + "pm.evaluate({}, {'input': [1.0, 2.0, 3.0]})"
    after = """
before = _core.device_live_objects()
for nth in (1, 2):
    _core.device_inject_failure("clGetProgramBuildInfo", nth, -30)
    try:
        pm.evaluate({}, {'input': [1.0, 2.0, 3.0]})
    except ml.errors.DeviceNotAvailable as error:
        print("again:", error.message.splitlines()[0])
        print("planted words" in str(error))
print(_core.device_live_objects() - before)
"""
    said = said_with(folder, work, after)
    name = _core.opencl_devices()[0]["name"]
    failed = f"OpenCL: clBuildProgram failed with CL_BUILD_PROGRAM_FAILURE on {name}"
    assert said.startswith(f"DeviceNotAvailable {failed}:\n"), said
    assert "planted words" in said
    assert said.count(f"again: {failed}\nFalse\n") == 2, said
    assert said.endswith("\nFalse\n0\n")


SMALL = """
extern "C" int clGetDeviceInfo(void* device, unsigned what, size_t size, void* out,
                               size_t* needed) {
  using Function = int (*)(void*, unsigned, size_t, void*, size_t*);
  const int status = ((Function)real_clGetDeviceInfo)(device, what, size, out, needed);
  if (what == 0x1010 && status == 0 && out != 0) *(uint64_t*)out = 1000000;  // the largest piece
  return status;
}
"""


@forwarding
def test_the_largest_allocation_of_a_device(tmp_path):
    folder = between(tmp_path, "clGetDeviceInfo", SMALL)
    after = """
model = ml.Model()
model |= ml.MatrixMultiply(name="product")(left="a", right="b", output="y")
model.expose_keys("y")
for as_gpu in (False, True):
    backend = ml.OpenCLBackend()
    backend._device = _core.OpenClDevice(as_gpu=as_gpu)
    pm = ml.compile(model, backend, data_keys={"a", "b"}, shapes={"a": ["n", 2], "b": [2, "m"]})
    ones = lambda n: {"a": np.ones((n, 2), "f4"), "b": np.ones((2, n), "f4")}
    works = [lambda: backend.to_device(np.ones(250_001, "f4")), lambda: pm.evaluate({}, ones(501)),
             lambda: pm.evaluate({}, backend.to_device(ones(501)))]
    for work in works:
        try:
            work()
            print("it ran")
        except ml.errors.OutOfMemoryError as error:
            print(error.message.replace("\\n", "|"))
    backend.to_device(np.ones(250_000, "f4"))
    print(pm.evaluate({}, ones(500))["y"].sum())
"""
    said = said_with(folder, "pass", after).splitlines()
    name = _core.opencl_devices()[0]["name"]
    assert len(said) == 8, said
    limit = f"on {name}, whose largest_allocation is 1000000 bytes"
    for one in (said[:4], said[4:]):
        assert one[0].startswith(f"OpenCL: 1000004 bytes in one piece {limit}|"), one[0]
        for told in one[1:3]:
            assert told.startswith(f"OpenCL: 1004004 bytes in one piece {limit}; a run at these"), (
                told
            )
            assert "|  1.0 MB float32[501, 501] of " in told and "product'" in told
        assert one[3] == "500000.0"
