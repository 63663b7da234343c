# Covers: emit/c_doubles.cc backends/device/select.cc select/kernel_table.cc
"""Devices of OpenCL that have no float64: PoCL stands in for one. It refuses to build a text that
has a double in it; what needs one runs on the host, and is counted."""

import contextlib
import re
from functools import partial

import mithril as ml
import numpy as np
import pytest
from backends.plan_cases import MODELS, check_steps, check_values_and_gradients, every_model
from backends.test_opencl_backend import WHY
from formats.c_cases import drawn
from mithril import _core
from mithril.errors import MithrilError, UnsupportedError
from mithril.testing import op_matrix
from mithril.testing.op_matrix import cases, difference

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(WHY is not None, reason=WHY or ""),
    pytest.mark.filterwarnings("ignore::mithril.errors.MithrilWarning"),
]
OPS = {op["name"]: op for op in _core.ops() if op["samples"]}
DOUBLE = re.compile(r"\bdouble|_f64\b|cl_khr_fp64")


@pytest.fixture(autouse=True)
def texts(request, monkeypatch):
    """What programs print for a device without float64, which each OpenCLBackend has here: one of
    short items, as a GPU has them, unless a test asks for a CPU."""
    as_gpu = getattr(request, "param", "a GPU") == "a GPU"
    device = partial(_core.OpenClDevice, as_gpu=as_gpu, without_float64=True)
    monkeypatch.setattr(_core, "OpenClDevice", device)
    found, make = [], ml.OpenCLBackend._native_program

    def noted(*arguments, **options):
        program = make(*arguments, **options)
        found.append(program)
        return program

    monkeypatch.setattr(ml.OpenCLBackend, "_native_program", noted)
    yield found
    for program in found:
        with contextlib.suppress(MithrilError, TypeError):  # sizes are open
            assert not DOUBLE.search(program.source(program.sizes({}))["text"])


both_kinds = pytest.mark.parametrize("texts", ["a CPU", "a GPU"], indirect=True)


def both(model, dtype="float32", **options):
    backends = ml.CpuBackend(dtype=dtype), ml.OpenCLBackend(dtype=dtype)
    return tuple(ml.compile(model, backend, exact_conv=True, **options) for backend in backends)


def on_host(pm, program="evaluate"):
    return pm.explain(program=program).host_steps


def compiled(model, shapes, **options):
    backend = ml.OpenCLBackend(**options)
    return ml.compile(
        model, backend, data_keys=set(shapes), shapes=shapes, deterministic="portable"
    )


# --- models ---------------------------------------------------------------------------------------


@both_kinds
@every_model
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_values_and_gradients(title, dtype):
    """The bits of the engine, as with float64."""
    check_values_and_gradients(both, title, dtype)


@every_model
def test_steps(title):
    check_steps(both, title, 3)


@pytest.mark.parametrize("title", ["mlp", "cnn"])
def test_nothing_of_usual_models_is_the_hosts(title):
    make, shape = MODELS[title]
    pm = ml.compile(make(), ml.OpenCLBackend(), data_keys={"x"}, shapes={"x": shape})
    for program in ("evaluate", "gradient"):
        assert on_host(pm, program) == 0


# --- the matrix of ops ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPS)
def test_ops_in_float32(name):
    """Values and gradients of each op's first sample, as the engine has them."""
    backends = ml.CpuBackend(), ml.OpenCLBackend()
    floats = [case for case in cases(OPS[name]) if case.kind == "float"]
    for case in floats[:1]:
        try:
            models = [op_matrix.compiled(case, backend) for backend in backends]
            runs = [op_matrix.evaluate(model, case, case.inputs) for model in models]
        except UnsupportedError:
            continue
        found = [(key, value, runs[0].outputs[key]) for key, value in runs[1].outputs.items()]
        if case.differentiable and OPS[name]["has_gradient"]:
            weights = {key: drawn(value.shape, 5) for key, value in runs[0].outputs.items()
                       if getattr(value, "dtype", None) == np.float32}  # fmt: skip
            runs = [op_matrix.evaluate(model, case, case.inputs, weights or None)
                    for model in models]  # fmt: skip
            found += [(f"slope of {key}", value, runs[0].gradients[key])
                      for key, value in runs[1].gradients.items()]  # fmt: skip
        for key, got, want in found:
            problem = difference(got, want, op_matrix.value_bound(backends[1], case))
            assert not problem, f"{case.label} {key}: {problem}"


@pytest.mark.parametrize("op", [ml.Exponential, ml.Exp2, ml.Sigmoid, ml.Gelu])
def test_exponentials_have_the_engines_bits(op):
    """Among the subnormal numbers, too, and up to where they are infinite."""
    model, x = ml.Model.create(y=op()(ml.IOKey("x"))), np.linspace(-155, 135, 60_001, dtype="f4")
    pm = compiled(model, {"x": [x.size]})
    assert on_host(pm) == 0
    want = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [x.size]})
    got, want = (np.asarray(one.evaluate({}, {"x": x})["y"]) for one in (pm, want))
    assert ((want > 0) & (want < np.finfo("f4").tiny)).any() or op is ml.Gelu
    np.testing.assert_array_equal(got, want)


# --- what needs float64 ---------------------------------------------------------------------------


def power(x, y):
    return x**y


def running_sum(x, y):
    return ml.CumSum(axis=0)(x) * y


def by_way_of_float64(x, y):
    return ml.Cast(ml.float32)(ml.Cast(ml.float64)(x) * ml.Cast(ml.float64)(y))


@pytest.mark.parametrize("ops", [power, running_sum, by_way_of_float64])
def test_loops_that_need_float64_are_the_hosts(ops):
    """Explained and counted, with the bits of the engine."""
    x, y = ml.IOKey("x"), ml.IOKey("y")
    model, shapes = ml.Model.create(z=ops(ml.Exponential()(x), y)), {"x": [40, 3], "y": [40, 3]}
    pm, data = compiled(model, shapes), {"x": drawn([40, 3]), "y": drawn([40, 3], 1)}
    assert on_host(pm) >= 1
    name = pm.backend.device_info["name"]
    assert f"It runs on the host: {name} has no float64." in str(pm.explain())
    want = ml.compile(model, ml.CpuBackend(), data_keys=set(shapes), shapes=shapes)
    np.testing.assert_array_equal(
        np.asarray(pm.evaluate({}, data)["z"]), np.asarray(want.evaluate({}, data)["z"])
    )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_that_become_halves(dtype):
    """They are rounded once, by way of float64."""
    model = ml.Model.create(z=ml.Cast(ml.float16)(ml.IOKey("x", type=ml.Tensor[int])) * 0.5)
    numbers = np.array([2049, 2051, 4098, 33554433, -2049, 65519, 65520, 7], dtype)
    pm = compiled(model, {"x": [8]}, dtype="float16")
    assert on_host(pm) >= 1
    want = ml.compile(model, ml.CpuBackend(dtype="float16"), data_keys={"x"}, shapes={"x": [8]})
    got, want = (np.asarray(one.evaluate({}, {"x": numbers})["z"]) for one in (pm, want))
    np.testing.assert_array_equal(got, want)


def test_copies_of_float64_are_the_hosts():
    """Of a result that shows an operand."""
    model = ml.Model.create(z=ml.Cast(ml.float64)(ml.IOKey("x")).transpose())
    pm = compiled(model, {"x": [40, 3]})
    assert on_host(pm) == len([s for s in pm.explain().steps if s.kernel != "view"]) >= 1
    data = {"x": drawn([40, 3])}
    got = np.asarray(pm.evaluate({}, data)["z"])
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, data["x"].T)


def test_a_power_behind_a_product_is_a_step_of_its_own():
    """The product stays the device's."""
    product = ml.IOKey("x") @ ml.IOKey("w")
    model = ml.Model.create(z=(product * product + 1.0) ** ml.IOKey("y"))
    shapes = {"x": [40, 9], "w": [9, 3], "y": [40, 3]}
    pm = compiled(model, shapes)
    assert on_host(pm) == 1
    assert any(step.kernel.startswith("opencl.matmul") for step in pm.explain().steps)
    data = {key: drawn(shape, i) for i, (key, shape) in enumerate(shapes.items())}
    want = ml.compile(model, ml.CpuBackend(), data_keys=set(shapes), shapes=shapes,
                      deterministic="portable").evaluate({}, data)["z"]  # fmt: skip
    np.testing.assert_array_equal(np.asarray(pm.evaluate({}, data)["z"]), np.asarray(want))


def test_kernels_that_need_float64_are_the_hosts():
    """A product of numbers that are float64, and a recurrence that is computed in it."""
    x, y = ml.IOKey("x"), ml.IOKey("y")
    model = ml.Model.create(z=ml.Cast(ml.float64)(x) @ ml.Cast(ml.float64)(y))
    pm = compiled(model, {"x": [5, 70], "y": [70, 3]})
    data = {"x": drawn([5, 70]), "y": drawn([70, 3], 1)}
    got = np.asarray(pm.evaluate({}, data)["z"])
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, data["x"].astype("f8") @ data["y"].astype("f8"), rtol=1e-12)
    assert "is not taken: the device has no float64" in str(pm.explain())
    scan = next(case for case in cases(OPS["linear_scan"]) if case.kind == "float")
    model = op_matrix.compiled(scan, ml.OpenCLBackend())
    assert on_host(model) >= 1


def test_float64_is_refused():
    with pytest.raises(UnsupportedError, match=r"OpenCLBackend: .* has no float64 \(cl_khr_fp64\)"):
        ml.OpenCLBackend(dtype="float64")
    try:
        ml.OpenCLBackend(dtype="float64")
    except UnsupportedError as error:
        assert error.hint == "dtype='float32', or CpuBackend(dtype='float64')"
    assert ml.OpenCLBackend().device_info["has_float64"] is False


def test_what_is_measured():
    """Its bits are tried, and its peaks measured, in float32."""
    backend = ml.OpenCLBackend()
    assert backend.has_exact_bits
    peak = backend.device_peak()
    assert peak["float32"] > 0 and peak["float64"] == 0
