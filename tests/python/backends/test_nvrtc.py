# Covers: backends/cuda/compiler.cc backends/device/block_products.cc
# Covers: backends/cuda/attention_text.cc
"""Kernels for CUDA, compiled by the real NVRTC and assembled by ptxas; neither needs a GPU.

The table of registers and spills is printed at the end (kernel_table.py).
"""

import contextlib
import glob
import itertools
import os
import re
import shutil
import subprocess
import sysconfig

import mithril as ml
import pytest
from emulated_cuda import NO_CUDA, ROOT, is_used
from formats.c_cases import MODELS, training
from kernel_table import Usage
from mithril import _core
from mithril.errors import DeviceNotAvailable, KeyNotFound, UnsupportedError
from mithril.testing import op_matrix

SITE = os.path.join(sysconfig.get_paths()["purelib"], "nvidia")
LIBRARIES = sorted(glob.glob(f"{SITE}/**/libnvrtc.so.*", recursive=True))
HEADERS = [
    os.path.dirname(path)
    for path in glob.glob(f"{SITE}/**/include/cuda.h", recursive=True)
    if os.path.exists(os.path.join(os.path.dirname(path), "nvrtc.h"))
]
PTXAS = [*glob.glob(f"{SITE}/**/bin/ptxas", recursive=True), shutil.which("ptxas")][0]
WHY = NO_CUDA or ("" if LIBRARIES else "no NVRTC: pip install nvidia-cuda-nvrtc")
NO_PTXAS = "" if PTXAS else "no ptxas: pip install nvidia-cuda-nvcc"
ARCHITECTURES = (75, 80, 90, 100)
OPS = {op["name"]: op for op in _core.ops() if op["samples"]}
BATCHES = 16  # of ops; those of one are compiled together
OTHERS = ("float64", "float16", "bfloat16")
FLOATS = ("float32", *OTHERS)
FIRST_WITH_TILES = 80  # tiles of bfloat16 are tensor cores' from there on
EVERYTHING = "MITHRIL_NVRTC_MATRIX" in os.environ

pytestmark = [pytest.mark.device, pytest.mark.skipif(bool(WHY), reason=WHY)]


@pytest.fixture(scope="module")
def nvrtc():
    return _core.CudaCompiler(LIBRARIES)


def texts(dtype, make, device="cuda:0"):
    """The texts of all programs that `make(backend)` compiles, and how many of their steps run on
    the host."""
    backend, programs = ml.CudaBackend(device, dtype=dtype), []
    native = backend._native_program

    def noted(*arguments, **options):
        programs.append(native(*arguments, **options))
        return programs[-1]

    backend._native_program = noted
    make(backend)
    sizes = [(program, program.sizes({})) for program in programs]
    # Behind a size that data decide there is no plan before the data.
    known = [(program, of) for program, of in sizes if None not in itertools.chain(*of)]
    sources = [program.source(of) for program, of in known]
    return [source["text"] for source in sources], sum(source["host_steps"] for source in sources)


def assembled(ptx, architecture, folder):
    """What ptxas says of each kernel, by name."""
    path = folder / "kernels.ptx"
    path.write_bytes(ptx.rstrip(b"\0"))
    command = [PTXAS, f"-arch=sm_{architecture}", "-v", str(path), "-o", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = {}
    for part in done.stderr.split("Compiling entry function '")[1:]:
        stack, spills, registers = (
            int(re.search(pattern, part)[1]) for pattern in
            (r"(\d+) bytes stack frame", r"(\d+) bytes spill stores", r"Used (\d+) registers")
        )  # fmt: skip
        found[part.partition("'")[0]] = Usage(1, registers, spills, stack)
    return found


def noted(table, family, architecture, kernels):
    """All of some kernels together; they are noted in the table."""
    table.note(family, architecture, kernels)
    whole = Usage()
    for one in kernels:
        whole.add(one)
    return whole


@pytest.mark.skipif(bool(NO_PTXAS), reason=NO_PTXAS)
@pytest.mark.parametrize("title", MODELS)
def test_kernels_of_training_on_every_architecture(title, nvrtc, kernel_table, tmp_path):
    make, shape = MODELS[title]
    text = max(
        texts("float32", lambda backend: ml.compile(
            training(make()), backend, data_keys={"x", "target"}, shapes={"x": shape},
            optimizer=ml.optim.AdamW(lr=1e-2)).explain(program="step"))[0],
        key=len,
    )  # fmt: skip
    for architecture in ARCHITECTURES:
        ptx = nvrtc.compile(text, architecture, to_ptx=True)
        found = assembled(ptx, architecture, tmp_path)
        whole = noted(kernel_table, f"training of {title}", architecture, found.values())
        assert whole.kernels == text.count("__global__")
        assert whole.spills <= 256


@pytest.mark.skipif(bool(NO_PTXAS), reason=NO_PTXAS)
@pytest.mark.parametrize("tile", [2, 4])
def test_kernels_of_convolutions_by_tiles(tile, nvrtc, kernel_table, tmp_path):
    """No patch lies on the stack: loops over its elements are unrolled."""
    model = ml.Model()
    model |= ml.Convolution2D(3, 64, padding=1)(input="x", output="c")
    model |= ml.Relu()(input="c", output="h")
    model |= ml.Convolution2D(3, 32, padding=1)(input="h", output="y")
    _core.device_force_winograd_tile(tile)
    try:
        found, _ = texts("float32", lambda backend: ml.compile(
            training(model), backend, data_keys={"x", "target"},
            shapes={"x": [8, 64, 28, 28], "target": [8, 32, 28, 28]}).memory_plan())  # fmt: skip
    finally:
        _core.device_force_winograd_tile(None)
    assert any("(8 - tap)" in text for text in found)  # the gradient by the input is among them
    for text, architecture in itertools.product(found, ARCHITECTURES):
        ptx = nvrtc.compile(text, architecture, to_ptx=True)
        kernels = assembled(ptx, architecture, tmp_path)
        whole = noted(kernel_table, f"convolutions by tiles of {tile}", architecture,
                      kernels.values())  # fmt: skip
        assert whole.kernels == text.count("__global__") >= 4
        assert whole.spills <= 256 and whole.stack <= whole.spills + 64


@pytest.mark.skipif(bool(NO_PTXAS), reason=NO_PTXAS)
@pytest.mark.skipif(not is_used(), reason="of devices of the emulator")
@pytest.mark.parametrize(
    "dtype, width",
    [("bfloat16", 16), ("bfloat16", 64), ("bfloat16", 80), ("bfloat16", 128),
     ("float16", 16), ("float16", 64), ("float16", 80), ("float16", 128)],
)  # fmt: skip
def test_attention_of_halves_on_every_architecture(dtype, width, nvrtc, kernel_table, tmp_path):
    """Tensor cores multiply its tiles and those of its gradients from sm_80 on, and nothing is
    spilled. The emulator's first device is sm_80, its third one sm_75."""
    shape = [2, 4, 150, width]

    def make(backend):
        model = ml.Model()
        model |= ml.Attention(is_causal=True)(query="q", key="k", value="v", output="y")
        shapes = dict.fromkeys("qkv", shape)
        pm = ml.compile(model, backend, shapes=shapes, trainable_keys=set("qkv"))
        pm.explain(program="gradient")

    for architecture in ARCHITECTURES:
        device = "cuda:2" if architecture == 75 else "cuda:0"
        text = max(texts(dtype, make, device)[0], key=len)
        ptx = nvrtc.compile(text, architecture, to_ptx=True)
        by_tiles = sum(b"mma.sync" in kernel for kernel in ptx.split(b".visible .entry"))
        assert by_tiles == (0 if architecture < 80 else 2)
        kernels = assembled(ptx, architecture, tmp_path)
        whole = noted(kernel_table, f"attention of {dtype}", architecture, kernels.values())
        assert architecture < 80 or whole.spills == 0


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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_kernels_that_multiply_halves(dtype, nvrtc):
    """Those of products for which cuBLASLt finds no algorithm: of a layer, and bare."""
    backend, built = ml.CudaBackend(dtype=dtype), []
    build = backend._build
    backend._build = lambda text: built.append(text) or build(text)
    x, w, b = (ml.IOKey(name) for name in "xwb")
    model = ml.Model.create(y=ml.Linear(6)(x, w, b), bare=x @ w.transpose())
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [70, 40]})
    _core.device_inject_failure("cublasLtMatmulAlgoGetHeuristic", 1, 15)
    try:
        pm.evaluate(pm.get_parameters(), {"x": backend.zeros(70, 40)})
    finally:
        _core.device_inject_failure("cublasLtMatmulAlgoGetHeuristic", 0, 0)
    assert "m_float_of" in built[-1] and "__shared__" in built[-1]
    for architecture in ARCHITECTURES:
        assert nvrtc.compile(built[-1], architecture)[:4] == b"\x7fELF"


def of_op(name, types):
    """(element type, text) of the programs of an op and of its gradients: of the first sample that
    is a float in these types, of integers, and of bools; and how many of their steps are the
    host's."""
    found, on_host, kinds = [], 0, set()
    for case in op_matrix.cases(OPS[name]):
        if case.kind in kinds:
            continue
        kinds.add(case.kind)
        for dtype in types if case.kind == "float" else ("float64",):
            try:
                some, steps = texts(dtype, lambda b, case=case: both_ways(case, b))
            except UnsupportedError:
                continue
            found += [(dtype if case.kind == "float" else case.kind, text) for text in some if text]
            on_host += steps
    return found, on_host


def both_ways(case, backend):
    """Compiles a case, with its gradients where it has some."""
    pm = op_matrix.compiled(case, backend)
    op = case.op
    if case.kind == "float" and op["differentiable"] and op["has_gradient"]:
        with contextlib.suppress(KeyNotFound):  # of this sample there are none
            pm.explain(program="gradient")


@pytest.mark.skipif(bool(NO_PTXAS), reason=NO_PTXAS)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_kernels_of_ops(batch, nvrtc, kernel_table, tmp_path):
    """Kernels of all ops, each text once, those of one batch as one, in namespaces: in float32, and
    in turns in one of the other types; in all of them where MITHRIL_NVRTC_MATRIX is set, as in
    `make check`."""
    known = {}  # text -> the type of its op
    on_host = 0
    for number, name in list(enumerate(sorted(OPS)))[batch::BATCHES]:
        in_turn = FLOATS if EVERYTHING else ("float32", OTHERS[number // BATCHES % len(OTHERS)])
        found, steps = of_op(name, in_turn)
        on_host += steps
        for dtype, text in found:
            known.setdefault(text, dtype)
    kinds = list(known.values())
    for architecture in ARCHITECTURES:
        text = joined(t if architecture >= FIRST_WITH_TILES or "mma.sync" not in t else ""
                      for t in known)  # fmt: skip
        kernels = assembled(nvrtc.compile(text, architecture, to_ptx=True), architecture, tmp_path)
        assert len(kernels) == text.count("__global__") > 0
        for name, usage in kernels.items():
            kind = kinds[int(re.match(r"text(\d+)_", name)[1])]
            kernel_table.note(f"ops, {kind}", architecture, [usage])
            assert usage.spills <= 256, name
    print(f"batch {batch}: {len(known)} texts; {on_host} steps on the host")


def joined(some):
    """Texts as one, whose kernels are named by the number of their text."""
    return "\n".join(
        f"namespace text{i} {{\n" + re.sub(r"\b(k\d+)\(", rf"text{i}_\1(", text) + "\n}\n"
        for i, text in enumerate(some)
    )


DECLARATIONS = """
#include <cstddef>
#include <cuda.h>
#include <nvrtc.h>
#include "backends/cuda/api.h"
using namespace mithril::cuda;

template <class>
struct Sizes;
template <class Result, class... Parameters>
struct Sizes<Result (*)(Parameters...)> {
  template <class OtherResult, class... Others>
  static constexpr bool are(OtherResult (*)(Others...)) {
    if constexpr (sizeof...(Others) != sizeof...(Parameters)) return false;
    else return sizeof(Result) == sizeof(OtherResult) &&
                ((sizeof(Parameters) == sizeof(Others)) && ...);
  }
};
#define SAME(NAME, SYMBOL, PARAMETERS) \
  static_assert(Sizes<int (*) PARAMETERS>::are(decltype(&SYMBOL){}), #SYMBOL);
MITHRIL_CUDA_FUNCTIONS(SAME)
MITHRIL_CUDA_POOL_FUNCTIONS(SAME)
MITHRIL_NVRTC_FUNCTIONS(SAME)
static_assert(sizeof(CUmemPoolProps) == sizeof(PoolProperties));
static_assert(offsetof(CUmemPoolProps, allocType) == offsetof(PoolProperties, allocation_type));
static_assert(offsetof(CUmemPoolProps, location) == offsetof(PoolProperties, location_type));
static_assert(CU_MEM_ALLOCATION_TYPE_PINNED == 1 && CU_MEM_LOCATION_TYPE_DEVICE == 1);
static_assert(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD == kPoolReleaseThreshold);
static_assert(CU_STREAM_NON_BLOCKING == kStreamNonBlocking);
static_assert(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT == kMultiprocessors);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR == kMajor);
static_assert(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR == kMinor);
static_assert(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED == kHasPools);
static_assert(CUDA_ERROR_OUT_OF_MEMORY == kOutOfMemory);
static_assert(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES == kLaunchOutOfResources);
static_assert(CUDA_ERROR_ILLEGAL_ADDRESS == kFirstOfKernels);
static_assert(NVRTC_ERROR_OUT_OF_MEMORY == 1 && NVRTC_ERROR_COMPILATION == 6);
"""


@pytest.mark.skipif(not HEADERS, reason="no cuda.h: pip install nvidia-cuda-nvcc")
@pytest.mark.parametrize("old, new", [("", ""), ("cu_pointer*, size_t))", "cu_pointer*, int))"),
                                      ("kMajor = 75", "kMajor = 74")])  # fmt: skip
def test_declarations_are_those_of_cuda_h(old, new, tmp_path):
    """Ours, which no header of NVIDIA is needed for, beside NVIDIA's; and two that are wrong."""
    header = (ROOT / "csrc" / "backends" / "cuda" / "api.h").read_text()
    assert old in header
    folder = tmp_path / "backends" / "cuda"
    folder.mkdir(parents=True)
    (folder / "api.h").write_text(header.replace(old, new) if old else header)
    source = tmp_path / "check.cc"
    source.write_text(DECLARATIONS)
    command = ["g++", "-std=c++20", "-fsyntax-only", f"-I{tmp_path}", f"-I{ROOT / 'csrc'}",
               f"-I{ROOT / 'third_party'}", f"-I{HEADERS[0]}", str(source)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (not old), done.stderr


def test_what_does_not_compile_is_told(nvrtc):
    with pytest.raises(DeviceNotAvailable, match="NVRTC_ERROR_COMPILATION for sm_90") as raised:
        nvrtc.compile("__global__ void k() { nonsense; }", 90)
    assert "nonsense" in str(raised.value)


def test_an_architecture_of_the_future_gets_ptx_of_the_newest(nvrtc):
    code = nvrtc.compile('extern "C" __global__ void k() {}', 999)
    assert b".entry k" in code and code.endswith(b"\0")
