# Covers: backends/cuda/compiler.cc backends/cuda/gemm_text.cc
"""Kernels for CUDA, compiled by the real NVRTC and assembled by ptxas; neither needs a GPU.

The table of registers and spills is printed: `pytest -rP`, or `make test-cuda`.
"""

import glob
import os
import re
import shutil
import subprocess
import sysconfig
from collections import Counter

import mithril as ml
import pytest
from emulated_cuda import NO_CUDA
from formats.c_cases import MODELS, training
from mithril import _core
from mithril.errors import DeviceNotAvailable, MithrilError, UnsupportedError
from mithril.testing import op_matrix

SITE = os.path.join(sysconfig.get_paths()["purelib"], "nvidia")
LIBRARIES = sorted(glob.glob(f"{SITE}/**/libnvrtc.so.*", recursive=True))
PTXAS = [*glob.glob(f"{SITE}/**/bin/ptxas", recursive=True), shutil.which("ptxas")][0]
WHY = NO_CUDA or ("" if LIBRARIES else "no NVRTC: pip install nvidia-cuda-nvrtc")
NO_PTXAS = "" if PTXAS else "no ptxas: pip install nvidia-cuda-nvcc"
ARCHITECTURES = (75, 80, 90, 100)
OPS = {op["name"]: op for op in _core.ops() if op["samples"]}
BATCHES = 8  # of ops; those of one are compiled together

pytestmark = [pytest.mark.device, pytest.mark.skipif(bool(WHY), reason=WHY)]


@pytest.fixture(scope="module")
def nvrtc():
    return _core.CudaCompiler(LIBRARIES)


def texts(dtype, make):
    """The texts of all programs that `make(backend)` compiles, and how many of their steps run on
    the host."""
    backend, programs = ml.CudaBackend(dtype=dtype), []
    native = backend._native_program

    def noted(*arguments, **options):
        programs.append(native(*arguments, **options))
        return programs[-1]

    backend._native_program = noted
    make(backend)
    sources = [program.source(program.sizes({})) for program in programs]
    return [source["text"] for source in sources], sum(source["host_steps"] for source in sources)


def assembled(ptx, architecture, folder):
    """Kernels, most registers, bytes of spills and of stack, as ptxas says."""
    path = folder / "kernels.ptx"
    path.write_bytes(ptx.rstrip(b"\0"))
    command = [PTXAS, f"-arch=sm_{architecture}", "-v", str(path), "-o", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def numbers(pattern):
        return [int(found) for found in re.findall(pattern, done.stderr)]

    registers = numbers(r"Used (\d+) registers")
    spills = sum(numbers(r"(\d+) bytes spill stores"))
    return len(registers), max(registers), spills, max(numbers(r"(\d+) bytes stack frame"))


@pytest.mark.skipif(bool(NO_PTXAS), reason=NO_PTXAS)
@pytest.mark.parametrize("title", MODELS)
def test_kernels_of_training_on_every_architecture(title, nvrtc, tmp_path):
    make, shape = MODELS[title]
    text = max(
        texts("float32", lambda backend: ml.compile(
            training(make()), backend, data_keys={"x", "target"}, shapes={"x": shape},
            optimizer=ml.optim.AdamW(lr=1e-2)))[0],
        key=len,
    )  # fmt: skip
    print(f"NVRTC {nvrtc.version}, {title}, a step of training in float32")
    for architecture in ARCHITECTURES:
        ptx = nvrtc.compile(text, architecture, to_ptx=True)
        kernels, registers, spills, stack = assembled(ptx, architecture, tmp_path)
        print(
            f"  sm_{architecture}: {kernels} kernels, at most {registers} registers,"
            f" {spills} bytes of spills, {stack} bytes of stack"
        )
        assert kernels == text.count("__global__")
        assert spills <= 256


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_kernels_in_other_types(dtype, nvrtc):
    make, shape = MODELS["mlp"]
    for text in texts(
        dtype,
        lambda backend: ml.compile(
            training(make()), backend, data_keys={"x", "target"}, shapes={"x": shape}
        ),
    )[0]:
        assert nvrtc.compile(text, 90)[:4] == b"\x7fELF"


def of_op(name):
    """The texts of the first sample of an op that is a float, and whether a step is the host's."""
    found = []
    for case in op_matrix.cases(OPS[name])[:1]:
        try:
            found.append(texts("float32", lambda b, case=case: op_matrix.compiled(case, b)))
        except (UnsupportedError, MithrilError):
            continue
    return found


@pytest.mark.parametrize("batch", range(BATCHES))
def test_kernels_of_ops(batch, nvrtc):
    """Kernels of all ops, those of one batch as one text, in namespaces."""
    joined, counts = [], Counter()
    for number, name in enumerate(sorted(OPS)[batch::BATCHES]):
        for of, on_host in of_op(name):
            counts["steps on the host"] += on_host
            for text in filter(None, of):
                counts["texts"] += 1
                own = re.sub(r"\b(k\d+)\(", rf"op{number}_\1_{counts['texts']}(", text)
                joined.append(f"namespace op{number}_{counts['texts']} {{\n{own}\n}}\n")
    text = "\n".join(joined)
    ptx = nvrtc.compile(text, 80, to_ptx=True)
    entries = ptx.count(b".visible .entry")
    assert entries == text.count("__global__") > 0
    print(f"batch {batch}: {entries} kernels of {counts}")


def test_what_does_not_compile_is_told(nvrtc):
    with pytest.raises(DeviceNotAvailable, match="NVRTC_ERROR_COMPILATION for sm_90") as raised:
        nvrtc.compile("__global__ void k() { nonsense; }", 90)
    assert "nonsense" in str(raised.value)


def test_an_architecture_of_the_future_gets_ptx_of_the_newest(nvrtc):
    code = nvrtc.compile('extern "C" __global__ void k() {}', 999)
    assert b".entry k" in code and code.endswith(b"\0")
