# Covers: select/fuse.cc select/epilogue.cc backends/device/movement.cc
"""Loops, products and joins of more operands than one kernel of a device takes."""

import mithril as ml
import numpy as np
import pytest
from backends.plan_cases import same
from backends.test_cuda_backend import NO_CUDA
from backends.test_device_arrays import as_a_gpu, opencl, without
from backends.test_opencl_backend import WHY as NO_OPENCL
from formats.c_cases import drawn
from mithril import _core
from mithril.backends.with_manualgrad import object_cache

pytestmark = pytest.mark.device

LEAST_BYTES = 1024  # of parameters, which every device of OpenCL takes


def least():
    """OpenCL with no more parameters than every device takes."""
    backend = ml.OpenCLBackend("cpu")
    backend._device = _core.OpenClDevice(threads=1)  # another device: others keep theirs
    backend._device.limit_parameters(LEAST_BYTES)
    return backend


DEVICES = [
    pytest.param(opencl, id="opencl", marks=without(NO_OPENCL)),
    pytest.param(as_a_gpu, id="as a gpu", marks=without(NO_OPENCL)),
    pytest.param(least, id="least", marks=without(NO_OPENCL)),
    pytest.param(ml.CudaBackend, id="cuda", marks=without(NO_CUDA)),
]
BACKENDS = [
    *DEVICES,
    pytest.param(ml.CpuBackend, id="cpu"),
    pytest.param(ml.CBackend, id="c", marks=pytest.mark.slow),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(object_cache._core, "cache_dir", lambda: str(tmp_path / "cache"))
    yield
    if not NO_OPENCL:
        _core.OpenClDevice(threads=1).limit_parameters(1 << 20)  # no limit but its own


def partner(place, count):
    return (7 * place + 3) % count


def sum_of_products(count):
    """y = x0 + x1 p1 + x2 p2 ..., where each p is one of the x."""
    model = ml.Model()
    for i in range(1, count):
        model |= ml.Multiply()(left=f"x{i}", right=f"x{partner(i, count)}", output=f"product{i}")
        before = "x0" if i == 1 else f"sum{i - 1}"
        model |= ml.Add()(left=before, right=f"product{i}", output=f"sum{i}")
    model |= ml.Buffer()(input=f"sum{count - 1}", output="y")
    model.expose_keys("y")
    return model


def named(arrays):
    return {f"x{i}": x for i, x in enumerate(arrays)}


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize(("count", "elements"), [(70, 70_000), (300, 65), (1000, 33)])
def test_sums(make, count, elements):
    xs = [drawn([elements], i) for i in range(count)]
    shapes = {key: list(x.shape) for key, x in named(xs).items()}
    keys = set(shapes)
    pm = ml.compile(sum_of_products(count), make(), trainable_keys=keys, shapes=shapes)
    cotangent = drawn([elements], count)
    got = pm.evaluate(named(xs), {}, output_gradients={"y": cotangent})
    exact = [x.astype("f8") for x in xs]
    gradients = [np.zeros(elements) for _ in xs]
    gradients[0] += cotangent
    want = exact[0].copy()
    for i in range(1, count):
        other = partner(i, count)
        want += exact[i] * exact[other]
        gradients[i] += cotangent * exact[other]
        gradients[other] += cotangent * exact[i]
    np.testing.assert_allclose(got.outputs["y"], want, rtol=1e-5, atol=1e-5 * count**0.5)
    for key, gradient in named(gradients).items():
        np.testing.assert_allclose(got.gradients[key], gradient, rtol=1e-5, atol=1e-5)
    same(pm.evaluate(named(xs), {}), got.outputs)


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("count", [70, 300, 1000])
def test_plain_sums(make, count):
    """A loop of as many nodes as it may have reads more than CUDA has parameters for."""
    model = ml.Model()
    for i in range(1, count):
        before = "x0" if i == 1 else f"sum{i - 1}"
        model |= ml.Add()(left=before, right=f"x{i}", output=f"sum{i}")
    model |= ml.Buffer()(input=f"sum{count - 1}", output="y")
    model.expose_keys("y")
    xs = [drawn([19], i) for i in range(count)]
    shapes = {key: [19] for key in named(xs)}
    pm = ml.compile(model, make(), data_keys=set(shapes), shapes=shapes)
    want = sum(x.astype("f8") for x in xs)
    np.testing.assert_allclose(pm.evaluate({}, named(xs))["y"], want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("count", [70, 300])
def test_many_results(make, count):
    model = ml.Model()
    for i in range(count):
        model |= ml.Multiply()(left="x", right=1.0 + i, output=f"y{i}")
    model.expose_keys(*(f"y{i}" for i in range(count)))
    pm = ml.compile(model, make(), data_keys={"x"}, shapes={"x": [17]})
    x = drawn([17])
    got = pm.evaluate({}, {"x": x})
    for i in range(count):
        np.testing.assert_array_equal(got[f"y{i}"], x * np.float32(1 + i))


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("count", [70, 300])
def test_what_comes_behind_a_product(make, count):
    """The product takes no more of them into its kernel than that has room for."""
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="a", right="b", output="sum0")
    for i in range(count):
        model |= ml.Add()(left=f"sum{i}", right=f"x{i}", output=f"sum{i + 1}")
    model |= ml.Buffer()(input=f"sum{count}", output="y")
    model.expose_keys("y")
    arrays = named([drawn([6, 5], i) for i in range(count)])
    arrays |= {"a": drawn([6, 9], 1), "b": drawn([9, 5], 2)}
    shapes = {key: list(x.shape) for key, x in arrays.items()}
    pm = ml.compile(model, make(), data_keys=set(arrays), shapes=shapes)
    want = arrays["a"].astype("f8") @ arrays["b"].astype("f8")
    want += sum(arrays[f"x{i}"].astype("f8") for i in range(count))
    np.testing.assert_allclose(pm.evaluate({}, arrays)["y"], want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("make", BACKENDS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("count", [70, 300, 1000])
def test_joins(make, count, axis):
    """Operands of different widths, some of which have no element."""
    widths = [i % 4 for i in range(count)]
    xs = [drawn([3, width] if axis else [width, 3], i) for i, width in enumerate(widths)]
    model = ml.Model()
    model |= ml.Concat(axis=axis)(input=[ml.IOKey(f"x{i}") for i in range(count)], output="y")
    model.expose_keys("y")
    shapes = {key: list(x.shape) for key, x in named(xs).items()}
    pm = ml.compile(model, make(), trainable_keys=set(shapes), shapes=shapes)
    want = np.concatenate(xs, axis)
    cotangent = drawn(want.shape, 1)
    got = pm.evaluate(named(xs), {}, output_gradients={"y": cotangent})
    np.testing.assert_array_equal(got.outputs["y"], want)
    ends = np.cumsum(widths)[:-1]
    for i, gradient in enumerate(np.split(cotangent, ends, axis)):
        np.testing.assert_array_equal(got.gradients[f"x{i}"], gradient)


@pytest.mark.parametrize("make", DEVICES)
def test_all_of_it_runs_on_the_device(make):
    shapes = {f"x{i}": [4, 1 + i % 3] for i in range(300)}
    model = ml.Model()
    model |= ml.Concat(axis=1)(input=[ml.IOKey(key) for key in shapes], output="y")
    model.expose_keys("y")
    for one in (model, sum_of_products(300)):
        sizes = shapes if one is model else {f"x{i}": [4] for i in range(300)}
        pm = ml.compile(one, make(), data_keys=set(sizes), shapes=sizes)
        assert "runs on the host" not in str(pm.explain())


@pytest.mark.skipif(bool(NO_CUDA), reason=NO_CUDA or "")
def test_a_kernel_of_cuda_has_4096_bytes_of_parameters():
    """Of 70 inputs they are one kernel: the limit of OpenCL is not that of CUDA."""
    shapes = {f"x{i}": [4] for i in range(70)}
    options = {"data_keys": set(shapes), "shapes": shapes}
    pm = ml.compile(sum_of_products(70), ml.CudaBackend(), **options)
    assert str(pm.explain()).count("more operands") == 0
