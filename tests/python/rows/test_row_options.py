"""Rows O1–O27: options of the constructors, by their effect."""

import subprocess
import sys
import types
import warnings

import mithril as ml
import numpy as np
import pytest
from mithril.errors import DeviceNotAvailable, MithrilWarning, UnsupportedError

from tests.python.rows.common import (
    PARAMS,
    B,
    W,
    X,
    backend_of,
    close,
    compiled,
    every,
    needs,
    values,
)

pytestmark = pytest.mark.documents
ABSENT = "the device is not on this machine"


def run(code, **env):
    import os

    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}
    )
    assert out.returncode == 0, out.stderr
    return out.stdout.split()


def has_gpu():
    torch = needs("torch")
    return torch.cuda.is_available()


def jax_backend(**options):
    needs("jax")
    return ml.JaxBackend(**options)


def torch_backend(**options):
    needs("torch")
    return ml.TorchBackend(**options)


def mlx_backend(**options):
    needs("mlx.core")
    return ml.MlxBackend(**options)


def evaluated(backend, model=None, **options):
    pm = compiled(model, backend, shapes={"x": [4, 3]}, **options)
    params = {key: backend.array(value) for key, value in PARAMS.items()}
    return pm, values(backend, pm.evaluate(params, {"x": backend.array(X)})["y"])


def test_O1():
    """XLA compiles where it says so: Python runs once for each set of shapes."""
    for jit in (True, False):
        backend = jax_backend(jit_compile=jit)
        pm, runs = compiled(backend=backend, shapes={"x": [4, 3]}), []
        scope = pm._compilation.program.forward.function.__globals__
        ops = scope["ops"]

        def linear(*arguments, runs=runs, ops=ops, **named):
            runs.append(1)
            return ops.linear(*arguments, **named)

        scope["ops"] = types.SimpleNamespace(**{**vars(ops), "linear": linear})
        params = {key: backend.array(value) for key, value in PARAMS.items()}
        for _ in range(3):
            close(values(backend, pm.evaluate(params, {"x": backend.array(X)})["y"]), X @ W.T + B)
        assert pm.jit is jit and len(runs) == (1 if jit else 3)


def test_O2():
    backend = jax_backend(platform="cpu")
    assert backend.get_device() == "cpu:0" == jax_backend(device="cpu").get_device()
    with pytest.raises(TypeError, match="device='cpu'.*platform='gpu'"):
        jax_backend(device="cpu", platform="gpu")
    with pytest.raises(DeviceNotAvailable, match="available: cpu:0"):
        jax_backend(platform="tpu")


def test_O3():
    """bfloat16 keeps 8 bits: 1 + 2^-9 is 1 there; float32 keeps it."""
    x = np.array([[1.0 + 2.0**-9, 0.0]], np.float32)
    got = {}
    for precision in ("float32", "bfloat16"):
        backend = jax_backend(precision=precision)
        assert backend.default_dtype == "float32"
        model = ml.Model()
        model |= ml.Linear(1, use_bias=False)(input="x", weight="w", output="y")
        pm = ml.compile(model, backend, data_keys={"x"})
        w = backend.array([[1.0, 0.0]])
        got[precision] = float(values(backend, pm.evaluate({"w": w}, {"x": x})["y"])[0, 0])
    assert got == {"float32": 1.0 + 2.0**-9, "bfloat16": 1.0}


@pytest.mark.limited(ABSENT)
def test_O4():
    needs("jax")
    import jax

    if any(d.platform == "gpu" for d in jax.devices()):
        assert jax_backend(device="gpu").get_device().startswith("gpu")
    else:
        with pytest.raises(DeviceNotAvailable, match="'gpu'; available: cpu:0"):
            jax_backend(device="gpu")


def test_O5():
    needs("jax")
    code = (
        "import os, warnings, mithril as ml\n"
        "ml.JaxBackend(device='cpu', pre_allocate=True)\n"
        "print(os.environ['XLA_PYTHON_CLIENT_PREALLOCATE'])\n"
        "with warnings.catch_warnings(record=True) as found:\n"
        "    warnings.simplefilter('always')\n"
        "    ml.JaxBackend(device='cpu', pre_allocate=False)\n"
        "print('already' in str(found[0].message))"
    )
    assert run(code) == ["true", "True"]


@pytest.mark.limited("meshes of several devices are a later feature")
def test_O6():
    needs("jax")
    assert jax_backend(dtype=ml.float32).default_dtype == "float32"
    code = (
        "import mithril as ml\n"
        "try: ml.JaxBackend(dtype=ml.float32, device_mesh=(2, 2))\n"
        "except NotImplementedError as error: print(str(error).split(':')[1].strip())"
    )
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    assert run(code, **flags) == ["device_mesh=(2,", "2)"]


def test_O7():
    for option in ("use_amp", "enable_amp"):
        backend = torch_backend(**{option: True})
        assert backend.compute_dtype == "bfloat16"
        x = np.array([[1.0 + 2.0**-9, 0.0, 0.0]], np.float32)
        pm = compiled(backend=backend)
        params = {"w": backend.array([[1.0, 0, 0]] * 2), "b": backend.zeros(2)}
        assert values(backend, pm.evaluate(params, {"x": x})["y"])[0, 0] == 1.0
    seen = []

    def recording(graph, examples):
        seen.append(graph)
        return graph.forward

    for compiles, options in ((True, {"jit_options": {"backend": recording}}), (False, {})):
        seen.clear()
        pm, got = evaluated(torch_backend(compile=compiles), **options)
        close(got, X @ W.T + B)
        assert pm.jit is compiles and len(seen) == compiles


@pytest.mark.limited(ABSENT + "; meshes of several devices are a later feature")
def test_O8():
    if has_gpu():
        assert torch_backend(cudnn_benchmark=True, device="cuda:0").cudnn_benchmark
    else:
        with pytest.raises(UnsupportedError, match="cudnn_benchmark=True: requires a CUDA device"):
            torch_backend(cudnn_benchmark=True)
        with pytest.raises(DeviceNotAvailable, match="'cuda:0'; available: cpu"):
            torch_backend(device="cuda:0")
    with pytest.raises(UnsupportedError, match=r"device_mesh=\(4,\)"):
        torch_backend(enable_amp=True, dtype=ml.float32, device_mesh=(4,))


@pytest.mark.limited("parallelism is a later feature")
@pytest.mark.parametrize(
    "strategy", ["data_parallel", "model_parallel", "pipeline_parallel", "mixed"]
)
def test_O9(strategy):
    with pytest.raises(UnsupportedError, match=f"parallel_strategy='{strategy}'"):
        torch_backend(parallel_strategy=strategy, devices=["cpu", "cpu"])


def test_O10():
    assert torch_backend(device="cpu").get_device() == "cpu"
    for device in ("mps", "cuda:7", "quantum"):
        with pytest.raises(DeviceNotAvailable, match=f"no device '{device}'; available: cpu"):
            torch_backend(device=device)


def test_O11():
    mx = needs("mlx.core")
    backend = mlx_backend(seed=42, default_dtype="float16")
    assert backend.ones(2).dtype == mx.float16
    same = mlx_backend(random_seed=42, dtype="float16")
    np.testing.assert_array_equal(values(backend, backend.rand(4)), values(same, same.rand(4)))
    with pytest.raises(TypeError, match="seed=1 and random_seed=2"):
        mlx_backend(seed=1, random_seed=2)


def test_O12():
    mx = needs("mlx.core")
    backend = mlx_backend(dtype=mx.float16, device=mx.cpu, random_seed=42,
                          compute_precision="float32", use_graph=False)  # fmt: skip
    assert backend.default_dtype == "float16" and backend.get_device() == "cpu:0"
    assert (backend.compute_dtype, backend.seed) == ("float32", 42)
    assert compiled(backend=backend).jit is False


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_O13(dtype):
    mx = needs("mlx.core")
    backend = mlx_backend(dtype=getattr(mx, dtype))
    assert backend.zeros(2).dtype == getattr(mx, dtype)
    assert backend.array([0.5]).dtype == getattr(mx, dtype)


def test_O14():
    mx = needs("mlx.core")
    for device in (mx.cpu, mx.Device(mx.cpu, 0), "cpu"):
        assert mlx_backend(device=device).get_device() == "cpu:0"
    from mithril.compat.mlx import install

    with install():
        assert mlx_backend(device=mx.devices.cpu).get_device() == "cpu:0"
    if not mx.device_count(mx.gpu):
        with pytest.raises(DeviceNotAvailable, match="available: cpu:0"):
            mlx_backend(device=mx.gpu)


def test_O15():
    mx = needs("mlx.core")
    before = mx.set_memory_limit(10**9)
    mx.set_memory_limit(before)
    backend = mlx_backend(memory_limit="4GB", auto_free_tensors=True)
    try:
        assert mx.set_memory_limit(4 * 10**9) == 4 * 10**9
        mx.eval(mx.zeros(10**6) + 1)
        assert mx.get_cache_memory() == 0
    finally:
        backend.reset()
    assert mx.set_memory_limit(before) == before
    from mithril.execution.memory import parse_size

    assert parse_size("512MiB", "x") == 512 * 2**20 and parse_size(7, "x") == 7


@pytest.mark.limited("there is no Metal here: it warns so")
def test_O16():
    mx = needs("mlx.core")
    if mx.metal.is_available():
        return
    with pytest.warns(MithrilWarning, match="enable_mps_optimization=True has no effect"):
        mlx_backend(enable_mps_optimization=True)


@pytest.mark.limited("MLX has no path to the Neural Engine: it warns so")
def test_O17():
    with pytest.warns(MithrilWarning, match="use_ane=True has no effect.*Neural Engine"):
        mlx_backend(use_ane=True)


def test_O18():
    assert compiled(backend=mlx_backend(use_graph=False)).jit is False
    assert compiled(backend=mlx_backend(use_graph=True)).jit is True
    x = np.array([[1.0 + 2.0**-12, 0.0, 0.0]], np.float32)  # float16 has 11 bits
    backend = mlx_backend(compute_precision="float16")
    params = {"w": backend.array([[1.0, 0, 0]] * 2), "b": backend.zeros(2)}
    assert values(backend, compiled(backend=backend).evaluate(params, {"x": x})["y"])[0, 0] == 1.0


@pytest.mark.limited("meshes of several devices are a later feature")
def test_O19():
    backend = mlx_backend(dtype=ml.float16, device_mesh=(1))
    assert backend.device_mesh == (1,) == mlx_backend(device_mesh=(1,)).device_mesh
    with pytest.raises(UnsupportedError, match=r"device_mesh=\(4,\)"):
        mlx_backend(device_mesh=(4,))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_O20(dtype):
    backend = ml.NumpyBackend(dtype=getattr(ml, dtype))
    assert backend.ones(2).dtype.name == dtype
    pm = compiled(backend=backend)
    params = {key: backend.array(value) for key, value in PARAMS.items()}
    got = pm.evaluate(params, {"x": backend.array(X)})["y"]
    assert got.dtype.name == dtype
    close(got, X @ W.T + B, 3e-2 if "16" in dtype else 1e-5, 3e-2 if "16" in dtype else 1e-6)


def test_O21():
    """A cap refuses what needs more; int8 moves products by less than a hundredth, but moves."""
    needs("ggml")
    backend = ml.GGMLBackend(mem_size=4 * 1024**3, quantize="int8")
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 64)).astype("f")
    x = rng.standard_normal((8, 64)).astype("f")
    model = ml.Model()
    model |= ml.Linear(32, use_bias=False)(input="x", weight="w", output="y")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [8, 64]}, inference=True)
    error = np.abs(pm.evaluate({"w": w}, {"x": x})["y"] - x @ w.T).max() / np.abs(x @ w.T).max()
    assert 1e-5 < error < 0.02
    small = ml.compile(model, ml.GGMLBackend(mem_size=512), data_keys={"x"}, inference=True)
    with pytest.raises(MemoryError):
        small.evaluate({"w": w}, {"x": x})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_O22(dtype):
    pm = compiled(backend=ml.CBackend(dtype=getattr(ml, dtype)), shapes={"x": [4, 3]})
    got = pm.evaluate({"w": W.astype(dtype), "b": B.astype(dtype)}, {"x": X.astype(dtype)})["y"]
    assert got.dtype == dtype
    close(got, X @ W.T + B, 1e-13 if dtype == "float64" else 1e-5)


@every
def test_O23(name):
    backend = backend_of(name)
    assert f"device={backend.get_device()!r}" in repr(backend)
    wanted = {"jax": "cpu:0", "mlx": "cpu:0"}.get(name, "cpu")
    if not (name in ("jax", "mlx") and has_gpu()):
        assert backend.get_device() == wanted


def test_O24():
    needs("jax")
    import jax

    backend = jax_backend()
    backend.set_platform("cpu")
    assert backend.get_device() == "cpu:0"
    before = jax.config.jax_enable_x64
    backend.enable_x64()
    try:
        assert jax.numpy.zeros(2, "float64").dtype == "float64"
    finally:
        backend.reset()
    assert jax.config.jax_enable_x64 == before


def test_O25():
    torch = needs("torch")
    backend = torch_backend()
    backend.set_device("cpu")
    assert backend.get_device() == "cpu"
    before = torch.are_deterministic_algorithms_enabled()
    backend.enable_deterministic()
    try:
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        backend.reset()
    assert torch.are_deterministic_algorithms_enabled() == before


def test_O26():
    mx = needs("mlx.core")
    backend = mlx_backend()
    backend.set_default_device("cpu")
    assert backend.get_device() == "cpu:0"
    if not mx.device_count(mx.gpu):
        with pytest.raises(DeviceNotAvailable, match="gpu"):
            backend.set_default_device("gpu")
        assert backend.get_device() == "cpu:0"


@every
def test_O27(name):
    backend = backend_of(name)
    info = backend.get_memory_info()
    for key in ("used", "peak", "limit"):
        assert info[key] == pytest.approx(info[f"{key}_bytes"] / 2**20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        big = backend.block_until_ready(backend.ones(20_000_000))
    grown = backend.get_memory_info()["used_bytes"] - info["used_bytes"]
    assert grown > 60_000_000  # of the 80 MB
    del big
