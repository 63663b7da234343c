# Covers: backends/cpu/structured/fourier.cc ops/fourier.cc
"""Fourier transforms beyond the op matrix: sizes of every kind against NumPy, what defines them,
gradients of spectra, open sizes, and what has no transform.
"""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, MithrilError
from mithril.testing.op_matrix import central_difference

SIZES = [1, 2, 3, 7, 16, 30, 64, 97, 121, 360, 1009, 1024, 1013 * 2, 4096]
BOUND = {"float32": 1e-6, "float64": 1e-14}  # of the vector of results
NORMS = ["backward", "ortho", "forward"]
PAIR = ("output_real", "output_imag")


def outer_model(model, arrays, open_sizes=False):
    outer = ml.Model()
    wires = {key: ml.IOKey(key, shape=[None] * np.ndim(x)) if open_sizes else key
             for key, x in arrays.items()}  # fmt: skip
    outer |= model.connect(**wires, **{key: key for key in model._node.output_keys})
    return outer


def run(model, backend, open_sizes=False, **arrays):
    """The result; of a pair of them, the complex tensor."""
    outer = outer_model(model, arrays, open_sizes)
    pm = ml.compile(outer, backend, data_keys=set(arrays), inference=True)
    given = {key: backend.array(x) for key, x in arrays.items()}
    got = {key: np.asarray(backend.to_numpy(x)) for key, x in pm.evaluate({}, given).items()}
    assert all(x.dtype.itemsize * 8 == backend.precision for x in got.values())
    return got["output"] if "output" in got else got[PAIR[0]] + 1j * got[PAIR[1]]


def pair(z):
    return {"real": np.ascontiguousarray(z.real), "imag": np.ascontiguousarray(z.imag)}


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def signal(*shape, dtype="float64"):
    """Complex numbers that the dtype holds."""
    z = random(2, *shape).astype(dtype).astype(np.float64)
    return z[0] + 1j * z[1]


def near(got, want, dtype):
    assert got.shape == want.shape
    assert np.linalg.norm(got - want) <= BOUND[dtype] * np.linalg.norm(want)


def natives(dtype="float64"):
    return [ml.CpuBackend(dtype=dtype), ml.NumpyBackend(dtype=dtype)]


def check_sizes(backend, n, dtype):
    z = signal(3, n, dtype=dtype)
    near(run(ml.FFT(), backend, **pair(z)), np.fft.fft(z), dtype)
    near(run(ml.IFFT(), backend, **pair(z)), np.fft.ifft(z), dtype)
    near(run(ml.FFT(use_imag=False), backend, real=z.real), np.fft.fft(z.real), dtype)
    near(run(ml.RFFT(), backend, input=z.real), np.fft.rfft(z.real), dtype)
    near(run(ml.IRFFT(n=n), backend, **pair(z)), np.fft.irfft(z, n), dtype)


# --- values --------------------------------------------------------------------------------------


@pytest.mark.device
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_sizes_of_every_kind(n, dtype):
    for backend in natives(dtype):
        check_sizes(backend, n, dtype)


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["torch", "jax", "mlx"])
def test_sizes_of_every_kind_on_frameworks(name, dtype):
    pytest.importorskip("mlx.core" if name == "mlx" else name)
    backend = {"torch": ml.TorchBackend, "jax": ml.JaxBackend, "mlx": ml.MlxBackend}[name]
    for n in (1, 6, 64, 97, 130, 360):
        check_sizes(backend(dtype=dtype), n, dtype)


@pytest.mark.device
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_axes_and_many_lines(axis):
    """More lines than are transformed together, or than one chunk of work holds."""
    z = signal(37, 40, 12)
    for backend in natives():
        near(run(ml.FFT(axis=axis), backend, **pair(z)), np.fft.fft(z, axis=axis), "float64")
        got = run(ml.RFFT(axis=axis), backend, input=z.real)
        near(got, np.fft.rfft(z.real, axis=axis), "float64")


@pytest.mark.device
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 3, 9, 10])
def test_cut_filled_and_scaled(n, norm):
    z = signal(2, 6)
    for backend in natives():
        for forth, back in ((ml.FFT, np.fft.fft), (ml.IFFT, np.fft.ifft), (ml.IRFFT, np.fft.irfft)):
            near(run(forth(n=n, norm=norm), backend, **pair(z)), back(z, n, norm=norm), "float64")
        got = run(ml.RFFT(n=n, norm=norm), backend, input=z.real)
        near(got, np.fft.rfft(z.real, n, norm=norm), "float64")


@pytest.mark.device
def test_known_spectra():
    for backend in natives():
        got = run(ml.FFT(use_imag=False), backend, real=np.array([1.0, 2.0, 3.0, 4.0]))
        np.testing.assert_array_equal(got, [10, -2 + 2j, -2, -2 - 2j])
        impulse = run(ml.RFFT(), backend, input=np.eye(5)[0])
        np.testing.assert_allclose(impulse, np.ones(3))
        wave = np.cos(2 * np.pi * 3 * np.arange(16) / 16)
        np.testing.assert_allclose(
            np.abs(run(ml.RFFT(), backend, input=wave)), 8 * np.eye(9)[3], atol=1e-14
        )


@pytest.mark.device
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [8, 9, 53])
def test_there_and_back(n, norm):
    z = signal(3, n)
    for backend in natives():
        there = run(ml.FFT(norm=norm), backend, **pair(z))
        near(run(ml.IFFT(norm=norm), backend, **pair(there)), z, "float64")
        there = run(ml.RFFT(norm=norm), backend, input=z.real)
        near(run(ml.IRFFT(n=n, norm=norm), backend, **pair(there)), z.real, "float64")
        there = run(ml.RFFT2(norm=norm), backend, input=z.real)
        near(run(ml.IRFFT2(n=n, norm=norm), backend, **pair(there)), z.real, "float64")


@pytest.mark.device
def test_energy_is_kept():
    """Parseval's theorem."""
    z = signal(2, 100)
    for backend in natives():
        spectrum = run(ml.FFT(norm="ortho"), backend, **pair(z))
        np.testing.assert_allclose(np.linalg.norm(spectrum), np.linalg.norm(z), rtol=1e-14)


@pytest.mark.device
def test_imaginary_parts_of_single_places_are_not_looked_at():
    z = np.fft.rfft(random(2, 8))
    bad = {**pair(z)}
    bad["imag"][:, [0, 4]] = np.nan
    for backend in natives():
        near(run(ml.IRFFT(), backend, **bad), np.fft.irfft(z), "float64")
    odd = np.fft.rfft(random(2, 7))
    for backend in natives():
        near(run(ml.IRFFT(n=7), backend, **pair(odd)), np.fft.irfft(odd, 7), "float64")


@pytest.mark.device
def test_nan_stays_in_its_line():
    x = random(20, 6)
    x[3, 2] = np.nan
    got = run(ml.RFFT(), ml.CpuBackend(dtype="float64"), input=x)
    assert np.isnan(got).any(axis=1).nonzero()[0].tolist() == [3]


@pytest.mark.frameworks
def test_narrow_floats_are_transformed_in_float32():
    """PyTorch transforms none of them on a CPU."""
    pytest.importorskip("torch")
    x = np.linspace(0, 1, 60).astype(np.float16)
    want = np.fft.rfft(x.astype(np.float64))
    for backend in (ml.NumpyBackend(dtype="float16"), ml.TorchBackend(dtype="float16")):
        got = run(ml.RFFT(), backend, input=x)
        assert np.abs(got - want).max() <= 2e-3 * np.abs(want).max()
        back = run(ml.IRFFT(), backend, **pair(got))
        assert np.abs(back - x).max() <= 4e-3


@pytest.mark.device
def test_shifts():
    for shape in ((5,), (4, 3)):
        x = random(*shape)
        for backend in natives():
            for open_sizes in (False, True):
                shifted = run(ml.FFTShift(), backend, open_sizes, input=x)
                np.testing.assert_array_equal(shifted, np.fft.fftshift(x))
                back = run(ml.IFFTShift(), backend, open_sizes, input=shifted)
                np.testing.assert_array_equal(back, x)


# --- gradients -----------------------------------------------------------------------------------


def power_spectrum(transform, **wires):
    """The squares of all places, summed up with weights that tell them apart."""
    model = ml.Model()
    model |= transform.connect(**wires, output_real="re", output_imag="im")
    model |= ml.Multiply().connect(left="re", right="re", output="re2")
    model |= ml.Multiply().connect(left="im", right="im", output="im2")
    model |= ml.Add().connect(left="re2", right="im2", output="power")
    model |= ml.Multiply().connect(left="power", right="weight", output="weighted")
    model |= ml.Sum().connect(input="weighted", output="loss")
    model.expose_keys("loss")
    return model


@pytest.mark.device
@pytest.mark.parametrize("n", [6, 7, 53])
def test_gradients_of_spectra_are_slopes(n):
    x, weight = random(3, n), random(3, n // 2 + 1, seed=1)
    model = power_spectrum(ml.RFFT(), input=ml.IOKey("x", shape=[3, n], differentiable=True))
    for backend in natives():
        pm = ml.compile(model, backend, data_keys={"weight"}, trainable_keys={"x"})
        result = pm.evaluate({"x": x}, {"weight": weight}, output_gradients={"loss": np.ones(())})
        direction = random(3, n, seed=2)

        def loss(inputs, pm=pm):
            return float(np.asarray(pm.evaluate(dict(inputs), {"weight": weight})["loss"]))

        slope = central_difference(loss, {"x": x}, {"x": direction})
        found = float((np.asarray(result.gradients["x"]) * direction).sum())
        assert found == pytest.approx(slope, rel=1e-8)


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["cpu", "numpy", "torch", "jax", "mlx"])
def test_gradients_of_spectra_are_those_of_torch(name):
    torch = pytest.importorskip("torch")
    if name in ("jax", "mlx"):
        pytest.importorskip({"jax": "jax", "mlx": "mlx.core"}[name])
    backends = {"cpu": ml.CpuBackend, "numpy": ml.NumpyBackend, "torch": ml.TorchBackend,
                "jax": ml.JaxBackend, "mlx": ml.MlxBackend}  # fmt: skip
    backend = backends[name](dtype="float64")
    x, weight = random(3, 10), random(3, 6, seed=1)
    model = power_spectrum(ml.RFFT(), input=ml.IOKey("x", shape=[3, 10], differentiable=True))
    pm = ml.compile(model, backend, data_keys={"weight"}, trainable_keys={"x"})
    got = pm.evaluate(
        {"x": backend.array(x)}, {"weight": backend.array(weight)},
        output_gradients={"loss": backend.array(np.ones(()))},
    ).gradients["x"]  # fmt: skip
    leaf = torch.tensor(x, requires_grad=True)
    (torch.fft.rfft(leaf).abs() ** 2 * torch.tensor(weight)).sum().backward()
    np.testing.assert_allclose(backend.to_numpy(got), leaf.grad.numpy(), atol=1e-11)


# --- sizes, misuse -------------------------------------------------------------------------------


@pytest.mark.device
@pytest.mark.parametrize("n", [1, 6, 7])
def test_open_sizes(n):
    z = signal(4, n + 1)
    for backend in natives():
        near(run(ml.FFT(), backend, True, **pair(z)), np.fft.fft(z), "float64")
        near(run(ml.FFT(n=5), backend, True, **pair(z)), np.fft.fft(z, 5), "float64")
        got = run(ml.IFFT(axis=0, norm="ortho"), backend, True, **pair(z))
        near(got, np.fft.ifft(z, axis=0, norm="ortho"), "float64")
        near(run(ml.RFFT(), backend, True, input=z.real), np.fft.rfft(z.real), "float64")
        near(run(ml.IRFFT(), backend, True, **pair(z)), np.fft.irfft(z), "float64")
        near(run(ml.IRFFT(n=5), backend, True, **pair(z)), np.fft.irfft(z, 5), "float64")
        near(run(ml.RFFT2(), backend, True, input=z.real), np.fft.rfft2(z.real), "float64")
        near(run(ml.IRFFT2(), backend, True, **pair(z)), np.fft.irfft2(z), "float64")


def signal_key():
    return ml.IOKey("x", shape=["N", "M"])


def test_sizes_follow():
    model = ml.Model()
    model |= ml.RFFT().connect(input=signal_key(), output_real="re", output_imag="im")
    model |= ml.IRFFT(axis=0).connect(real="re", imag="im", output="y")
    assert model.shapes["re"] == model.shapes["im"] == ["N", "floor(M/2)+1"]
    assert model.shapes["y"] == ["2*N-2", "floor(M/2)+1"]
    model = ml.Model()
    model |= ml.RFFT(n=9).connect(input=signal_key(), output_real="re", output_imag="im")
    model |= ml.IRFFT(n=9).connect(real="re", imag="im", output="y")
    assert (model.shapes["re"], model.shapes["y"]) == (["N", 5], ["N", 9])
    model = ml.Model()
    model |= ml.IRFFT().connect(real="re", imag="im", output=ml.IOKey("y", shape=[3, 8]))
    assert model.shapes["re"] == model.shapes["im"] == [3, 5]


@pytest.mark.device
def test_nothing_has_no_transform():
    for backend in natives():
        for model in (ml.FFT(), ml.IFFT(norm="ortho")):
            with pytest.raises(ArgumentError, match="must have at least 1 place, got 0"):
                run(model, backend, True, **pair(np.zeros((2, 0)) * 1j))
        with pytest.raises(ArgumentError, match="must have at least 1 place, got 0"):
            run(ml.RFFT(), backend, True, input=np.zeros((2, 0)))
        with pytest.raises(MithrilError):
            run(ml.IRFFT(), backend, True, **pair(np.zeros((2, 1)) * 1j))
        near(run(ml.FFT(n=3), backend, **pair(np.zeros((2, 0)) * 1j)), np.zeros((2, 3)), "float64")
        assert run(ml.FFT(), backend, **pair(np.zeros((0, 4)) * 1j)).shape == (0, 4)


def refused(model, **arrays):
    with pytest.raises((MithrilError, MemoryError)) as caught:
        run(model, ml.CpuBackend(dtype="float64"), **arrays)
    return str(caught.value)


@pytest.mark.device
def test_misuse_is_refused():
    x = np.ones((2, 6))
    assert "n must be an int from 1 on, got 0" in refused(ml.RFFT(n=0), input=x)
    assert "n must be an int from 1 on, got -3" in refused(ml.RFFT(n=-3), input=x)
    assert "cannot be" in refused(ml.RFFT(axis=2), input=x)
    assert "axes must be ints" in refused(ml.RFFT2(axes=("last",)), input=x)
    refused(ml.RFFT2(axes=(1, 1)), input=x)
    refused(ml.RFFT(axis=2**62), input=x)
    assert "no memory" in refused(ml.RFFT(n=2**40), input=x[:0])
    refused(ml.FFT(), real=x, imag=np.ones((2, 5)))
    with pytest.raises(ArgumentError, match="'norm' must be"):
        ml.RFFT(norm="unitary")
    with pytest.raises(MithrilError):
        ml.RFFT(n=2.5)
