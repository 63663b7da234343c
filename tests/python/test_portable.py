# Covers: select/kernel_table.cc
"""`deterministic="portable"`: the same bits on every instruction set and by every backend that runs
plans, and kernels in no other order than that of the reference."""

import os
import subprocess
import sys

import mithril as ml
import ml_dtypes
import numpy as np
import pytest
from backends.plan_cases import same
from backends.test_device_kernels import backend_of, every_device

# The kernel without the option.
USUAL = {"attention": "attention", "grouped": "attention", "convolution": "conv2d.winograd",
         "svd": "svd.lapack"}  # fmt: skip


def attention(heads=(4, 4), **options):
    model = ml.Model()
    model |= ml.ScaledDotProduct(**options)(query="q", key="k", value="v", output="y")
    shapes = {"q": [2, heads[0], 70, 32], "k": [2, heads[1], 70, 32], "v": [2, heads[1], 70, 32]}
    return model, shapes


def convolution():
    model = ml.Model()
    model |= ml.Convolution2D(padding=1, use_bias=False)(input="x", weight="w", output="y")
    return model, {"x": [2, 32, 20, 20], "w": [32, 32, 3, 3]}


def svd():
    model = ml.Model()
    model |= ml.SVD()(input="x", u="u", values="y", vt="vt")
    return model, {"x": [40, 40]}


CASES = {
    "attention": lambda: attention(is_causal=True),
    "grouped": lambda: attention((4, 2), is_causal=False, enable_gqa=True),
    "convolution": convolution,
    "svd": svd,
}
every_case = pytest.mark.parametrize("title", CASES)


def compiled(title, backend, **options):
    model, shapes = CASES[title]()
    model.expose_keys("y")
    return ml.compile(model, backend, shapes=shapes, data_keys=set(), trainable_keys=set(shapes),
                      **options)  # fmt: skip


def values(title, backend, **options):
    """The result and the gradients of its sum with fixed factors."""
    pm = compiled(title, backend, **options)
    random = np.random.default_rng(2)
    params = {key: random.normal(size=shape).astype("f4") for key, shape in pm.shapes.items()
              if key in pm.param_keys}  # fmt: skip
    slopes = random.normal(size=pm.shapes["y"]).astype("f4")
    as_arrays = {key: backend.array(value) for key, value in params.items()}
    found = pm.evaluate(as_arrays, output_gradients={"y": backend.array(slopes)})
    arrays = {"y": found.outputs["y"], **{key: found.gradients[key] for key in sorted(params)}}
    return {key: np.asarray(backend.to_numpy(array)) for key, array in arrays.items()}


SCRIPT = """
import sys
import mithril as ml
from test_portable import CASES, values
for title in CASES:
    for array in values(title, ml.CpuBackend(), deterministic="portable").values():
        sys.stdout.buffer.write(array.astype("f4").tobytes())
"""


@pytest.mark.parametrize("isa", ["generic", "avx2"])
def test_every_instruction_set_has_the_same_bits(isa):
    paths = [os.path.dirname(__file__), *sys.path]
    environment = {**os.environ, "MITHRIL_CPU_ISA": isa, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    here = [
        array.ravel()
        for title in CASES
        for array in values(title, ml.CpuBackend(), deterministic="portable").values()
    ]
    np.testing.assert_array_equal(np.frombuffer(done.stdout, "f4"), np.concatenate(here))


@every_case
def test_the_c_backend_has_the_same_bits(title):
    same(values(title, ml.CBackend(), deterministic="portable"),
         values(title, ml.CpuBackend(), deterministic="portable"))  # fmt: skip


@pytest.mark.device
@every_device
@every_case
def test_devices_have_the_same_bits(device, title):
    same(values(title, backend_of(device)[0], deterministic="portable"),
         values(title, ml.CpuBackend(), deterministic="portable"))  # fmt: skip


@every_case
def test_what_is_left_out_and_why(title):
    usual = str(compiled(title, ml.CpuBackend()).explain())
    portable = str(compiled(title, ml.CpuBackend(), deterministic="portable").explain())
    if ml.CpuBackend().isa != "generic":
        assert f"  {USUAL[title]}  " in usual
    assert f"  {USUAL[title]}  " not in portable
    if USUAL[title] == "attention":  # no node of that name comes to the kernels
        assert portable.count("  gemm  ") == 2
    else:
        why = f"kernel {USUAL[title]} is not taken: it is not canonical"
        assert why in portable and why not in usual


def test_weights_in_few_bits_round_no_rows():
    """Units of bfloat16, which some CPUs have (AVX512-BF16, AMX), round the rows, too."""
    model = ml.Model()
    model |= ml.Linear(300, use_bias=False)(input="x", weight="w", output="y")
    random = np.random.default_rng(1)
    x, w = (random.normal(size=(n, 128)).astype("f4") for n in (12, 300))
    wanted = x.astype("f8") @ w.astype(ml_dtypes.bfloat16).astype("f8").T
    errors = []
    for option in (None, "portable"):
        pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": x.shape},
                        inference=True, deterministic=option)  # fmt: skip
        bound = pm.bind({"w": w}, weights="bfloat16")
        errors.append(np.abs(bound.evaluate({}, {"x": x})["y"] - wanted).max())
        assert "matmul.bfloat16_weights" in str(bound.explain())
    assert errors[1] < 5e-5
    if errors[0] < 5e-5:
        pytest.skip("this CPU rounds no rows in any case")
