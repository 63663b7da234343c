"""One pixel that is infinite, NaN or huge changes results of the windows that hold it, and no
others, also where a convolution runs by tiles; against NumPy in float64.
"""

import shutil

import convolution_oracle
import mithril as ml
import numpy as np
import pytest

pytestmark = pytest.mark.device

SIZE, PLACE, CHANNEL = 16, (9, 11), 5


def by_definition(x, w):
    """[c, h, w] and [o, c, 3, 3], padding 1."""
    with np.errstate(over="ignore"):
        return convolution_oracle.by_definition(x[None], w, 1)[0].astype("f4")


def images(channels, value, place=PLACE):
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2, channels, SIZE, SIZE)).astype("f4")
    plain = x.copy()
    x[0, CHANNEL, *place] = value
    return x, plain


def near(place):
    rows, columns = np.ogrid[:SIZE, :SIZE]
    return (abs(rows - place[0]) <= 1) & (abs(columns - place[1]) <= 1)


def make_backend(name):
    if name == "c" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    return ml.CBackend(flags="-O1 -march=native") if name == "c" else ml.CpuBackend()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38, 1e30, -1e15])
@pytest.mark.parametrize("channels", [16, 40])
@pytest.mark.parametrize("place", [PLACE, (0, 0), (15, 15), (4, 3)])
@pytest.mark.parametrize("backend", ["cpu", "c"])
def test_forward(channels, value, place, backend):
    w = (np.random.default_rng(1).normal(size=(48, channels, 3, 3)) / 24).astype("f4")
    x, plain = images(channels, value, place)
    model = ml.Model()
    model |= ml.Convolution2D(padding=1, use_bias=False)(input="x", weight="w", output="y")
    shapes = {"x": list(x.shape), "w": list(w.shape)}
    pm = ml.compile(model, make_backend(backend), data_keys={"x"}, shapes=shapes)
    y, before = (np.asarray(pm.evaluate({"w": w}, {"x": a})["y"]) for a in (x, plain))
    far = ~near(place)
    assert np.isfinite(y[0][:, far]).all()
    np.testing.assert_array_equal(y[1], before[1])
    want = by_definition(x[0], w)
    np.testing.assert_allclose(y[0][:, far], want[:, far], atol=2e-5)
    np.testing.assert_allclose(y[0][:, ~far], want[:, ~far], rtol=1e-5)


@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38, 1e30])
def test_gradient_of_the_input(value):
    w = (np.random.default_rng(1).normal(size=(48, 32, 3, 3)) / 24).astype("f4")
    dy, _ = images(48, value)
    x = np.zeros((2, 32, SIZE, SIZE), "f4")
    model = ml.Model()
    model |= ml.Convolution2D(padding=1, use_bias=False)(input="x", weight="w", output="y")
    pm = ml.compile(
        model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": list(x.shape), "w": list(w.shape)}
    )
    dx = pm.evaluate({"w": w}, {"x": x}, output_gradients={"y": dy}, wrt=["x"]).gradients["x"]
    turned = np.flip(w, (2, 3)).swapaxes(0, 1)
    want = by_definition(dy[0], turned)
    far = ~near(PLACE)
    np.testing.assert_allclose(np.asarray(dx)[0][:, far], want[:, far], atol=2e-5)


def test_constant_filters_and_epilogues():
    w = (np.random.default_rng(1).normal(size=(48, 32, 3, 3)) / 24).astype("f4")
    x, _ = images(32, np.inf)
    model = ml.Model()
    model |= ml.Convolution2D(padding=1, use_bias=False)(input="x", weight="w", output="c")
    model |= ml.Relu()(input="c", output="y")
    shapes = {"x": list(x.shape), "w": list(w.shape)}
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes=shapes).bind({"w": w})
    y = np.asarray(pm.evaluate({}, {"x": x})["y"])[0]
    far = ~near(PLACE)
    np.testing.assert_allclose(y[:, far], np.maximum(by_definition(x[0], w), 0)[:, far], atol=2e-5)


@pytest.mark.parametrize("place", [PLACE, (0, 0), (15, 7)])
@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38, 1e30])
@pytest.mark.parametrize("of_input", [True, False])
def test_gradient_of_the_filters(of_input, value, place):
    """A pixel at the border meets only some of the taps; others stay finite."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(2, 32, SIZE, SIZE)).astype("f4")
    dy = rng.normal(size=(2, 48, SIZE, SIZE)).astype("f4")
    (x if of_input else dy)[0, CHANNEL, *place] = value
    w = np.zeros((48, 32, 3, 3), "f4")
    model = ml.Model()
    model |= ml.Convolution2D(padding=1, use_bias=False)(input="x", weight="w", output="y")
    pm = ml.compile(
        model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": list(x.shape), "w": list(w.shape)}
    )
    dw = pm.evaluate({"w": w}, {"x": x}, output_gradients={"y": dy}, wrt=["w"]).gradients["w"]
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.empty(w.shape)
    with np.errstate(invalid="ignore"):
        for i in range(3):
            for j in range(3):
                met = padded[:, :, i : i + SIZE, j : j + SIZE]
                want[:, :, i, j] = np.einsum("nohw,nchw->oc", dy.astype("f8"), met)
    want = np.where(np.abs(want) > np.finfo("f4").max, np.copysign(np.inf, want), want)
    assert np.isfinite(want).sum() >= 47 * 31 * 9
    np.testing.assert_allclose(np.asarray(dw), want, rtol=1e-4, atol=2e-4)
