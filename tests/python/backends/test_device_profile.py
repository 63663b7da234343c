# Covers: backends/device/peak.cc
"""Profiles of models on devices: times by the device's own clock, rates beside its own peak."""

import mithril as ml
import numpy as np
import pytest
from backends.device_cases import injecting, live_objects
from backends.plan_cases import branch
from backends.test_cuda_backend import NO_CUDA
from backends.test_device_arrays import as_a_gpu, opencl, without
from backends.test_opencl_backend import WHY as NO_OPENCL
from formats.c_cases import drawn
from mithril import _core
from mithril.errors import DeviceNotAvailable, OutOfMemoryError

pytestmark = pytest.mark.device

DEVICES = [
    pytest.param(opencl, id="opencl", marks=without(NO_OPENCL)),
    pytest.param(as_a_gpu, id="as a gpu", marks=without(NO_OPENCL)),
    pytest.param(ml.CudaBackend, id="cuda", marks=without(NO_CUDA)),
]
# What measures a step, with a status that the function may give.
FAILURES = {
    "opencl": [("clFinish", -5), ("clGetEventProfilingInfo", -7), ("clEnqueueNDRangeKernel", -6)],
    "cuda": [("cuEventRecord", 400), ("cuEventElapsedTime", 600), ("cuLaunchKernel", 701)],
}


@pytest.fixture
def inject():
    yield from injecting([*_core.opencl_functions(), *_core.cuda_functions()])


def network(backend):
    model = ml.Model(name="net")
    model |= ml.Linear(64, name="first")(input="x", output="h")
    model |= ml.Softmax(name="act")(input="h", output="a")
    model |= ml.Inverse(name="host")(input="m", output="i")
    model.expose_keys("a", "i")
    shapes = {"x": ["n", 32], "m": [3, 3]}
    return ml.compile(model, backend, shapes=shapes, data_keys={"x", "m"})


def data():
    return {"x": drawn([16, 32]), "m": np.eye(3, dtype="f4") + drawn([3, 3])}


@pytest.mark.parametrize("make", DEVICES)
def test_rows_of_a_device(make):
    pm = network(make())
    params, x = pm.get_parameters(), data()
    want = pm.evaluate(params, x)
    with pm.profile() as profile:
        for _ in range(3):
            got = pm.evaluate(params, x)
    for key, value in want.items():
        np.testing.assert_array_equal(got[key], value)
    peak = pm.backend.device_peak()
    assert pm.backend.device_info["peak"] == peak
    assert set(peak) == {"float32", "float64", "bandwidth"}
    assert all(0 < value < 1e16 for value in peak.values())
    of_device = [row for row in profile.rows if row.path != "net.host" and row.seconds]
    assert of_device and all(row.count == 3 for row in profile.rows)
    for row in of_device:
        assert row.peak == (peak["float32"] if row.flops or row.ops else None)
        assert row.peak_bandwidth == peak["bandwidth"]
        assert row.of_peak_bandwidth == row.bytes / row.seconds / peak["bandwidth"]
    (product,) = [row for row in profile.rows if row.flops]
    assert product.flops >= 3 * 2 * 16 * 32 * 64
    assert product.of_peak == product.flops / product.seconds / peak["float32"]
    on_host = [row for row in profile.rows if row.path == "net.host" and not row.peak_bandwidth]
    assert on_host and all(row.seconds > 0 and row.peak is None for row in on_host)
    assert "% of max" in str(profile)


@pytest.mark.parametrize("make", DEVICES)
def test_arrays_of_the_device_and_branches(make):
    """What others enqueued before is not timed, and results may stay where they are."""
    pm = ml.compile(branch(), make(), data_keys={"x"}, shapes={"x": [5]})
    x = pm.backend.to_device({"x": np.abs(drawn([5]))})
    want = pm.evaluate({}, x)
    with pm.profile() as profile:
        got = pm.evaluate({}, x)
    for key, value in want.items():
        np.testing.assert_array_equal(got[key], value)
    (taken,) = [row for row in profile.rows if row.has_steps]
    assert taken.seconds > 0


@pytest.mark.parametrize("make", DEVICES)
def test_what_fails_while_times_are_taken(make, inject):
    pm = network(make())
    params, x = pm.get_parameters(), data()
    with pm.profile():
        want = pm.evaluate(params, x)
    before = live_objects()
    kind = "cuda" if isinstance(pm.backend, ml.CudaBackend) else "opencl"
    for symbol, status in FAILURES[kind]:
        for nth in (1, 2):
            inject(symbol, nth, status)
            errors = DeviceNotAvailable, OutOfMemoryError
            with pm.profile() as profile, pytest.raises(errors, match=symbol):
                pm.evaluate(params, x)
            assert live_objects() == before
            with pm.profile() as profile:
                got = pm.evaluate(params, x)
            assert profile.rows
            np.testing.assert_array_equal(got["a"], want["a"])
            np.testing.assert_array_equal(pm.evaluate(params, x)["a"], want["a"])


def fresh_opencl():
    backend = opencl()
    backend._device = _core.OpenClDevice(as_gpu=True, threads=1)
    return backend


@pytest.mark.parametrize(
    ("make", "symbols"),
    [
        pytest.param(
            fresh_opencl, ["clCreateCommandQueue", "clGetEventProfilingInfo", "clCreateBuffer"],
            id="opencl", marks=without(NO_OPENCL),
        ),
        pytest.param(
            lambda: ml.CudaBackend("cuda:1"),
            ["cuEventCreate", "cuEventElapsedTime", "cuMemAlloc_v2"],
            id="cuda", marks=without(NO_CUDA),
        ),
    ],
)  # fmt: skip
def test_a_peak_that_cannot_be_measured(make, symbols, inject):
    backend = make()
    if len(_core.cuda_devices() if isinstance(backend, ml.CudaBackend) else "12") < 2:
        pytest.skip("there is one device, whose peak is known")
    assert backend.device_info["peak"] is None
    for symbol in symbols:
        inject(symbol, 1, -6 if symbol.startswith("cl") else 400)
        with pytest.raises((DeviceNotAvailable, OutOfMemoryError), match=symbol):
            backend.device_peak()
        assert backend.device_info["peak"] is None
    peak = backend.device_peak()
    assert backend.device_info["peak"] == backend.device_peak() == peak
