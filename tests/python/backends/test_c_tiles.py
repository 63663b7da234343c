"""Convolutions that C runs by tiles of 4x4 results: within their bound of float64, and to the same
bits whatever compiles and shares them. test_windows_not_finite.py has pixels that are not finite.
"""

import shutil

import convolution_oracle
import mithril as ml
import numpy as np
import pytest
from formats.c_cases import built, run, write_inputs

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]
QUICK = "-O1 -march=native"
# Images, channels, rows, columns, filters, padding. Tiles, products, shares of filters and units
# end within their blocks; several images share a unit, and an image several units.
CASES = {
    "ends of tiles": (1, 32, 20, 23, 32, 1),
    "no padding": (3, 33, 18, 17, 37, 0),
    "wide padding": (2, 40, 21, 18, 70, 2),
    "uneven padding": (2, 40, 22, 17, 48, ((0, 2), (1, 0))),
    "several units": (1, 64, 57, 44, 48, 1),
    "several blocks of k": (2, 300, 12, 20, 33, 1),
}
every_case = pytest.mark.parametrize("title", CASES)


def drawn(title):
    x, w = convolution_oracle.drawn(CASES[title])
    return {"x": x}, {"w": w}


def compiled(title, backend, **options):
    model = ml.Model()
    padding = CASES[title][-1]
    model |= ml.Convolution2D(padding=padding, use_bias=False)(input="x", weight="w", output="y")
    shapes = {k: list(v.shape) for part in drawn(title) for k, v in part.items()}
    return ml.compile(model, backend, data_keys={"x"}, shapes=shapes, **options)


def texts_of(backend):
    """The texts that a backend has compiled from now on."""
    texts, build = [], backend._build

    def kept(text, name):
        texts.append(text)
        return build(text, name)

    backend._build = kept
    return texts


def by_definition(title, x, w):
    return convolution_oracle.by_definition(x, w, CASES[title][-1])


@every_case
def test_values_lie_within_the_bound(title):
    backend = ml.CBackend(flags=QUICK)
    texts = texts_of(backend)
    data, params = drawn(title)
    y = compiled(title, backend).evaluate(params, data)["y"]
    assert len(texts) == 1 and "conv2d_tiles" in texts[0]
    magnitude = by_definition(title, abs(data["x"]), abs(params["w"])).max()
    want = by_definition(title, data["x"], params["w"])
    np.testing.assert_allclose(y, want, rtol=0, atol=convolution_oracle.BOUND * magnitude)


@every_case
def test_exact_convolutions_have_the_bits_of_the_engine(title):
    backend = ml.CBackend(flags=QUICK)
    texts = texts_of(backend)
    data, params = drawn(title)
    y, want = (
        compiled(title, on, exact_conv=True).evaluate(params, data)["y"]
        for on in (backend, ml.CpuBackend())
    )
    np.testing.assert_array_equal(y, want)
    assert "conv2d_tiles" not in texts[0]


@pytest.mark.parametrize("title", ["no padding", "several units"])
def test_bits_depend_on_nothing_else(title):
    """Neither on compilers and flags nor on threads, which divide the tiles otherwise."""
    data, params = drawn(title)
    others = [{"flags": "-O0"}, {"flags": "-O3"}, {"flags": QUICK, "threads": 2}]
    if shutil.which("clang"):
        others.append({"flags": QUICK, "compiler": "clang"})
    want = compiled(title, ml.CBackend(flags=QUICK)).evaluate(params, data)["y"]
    for options in others:
        y = compiled(title, ml.CBackend(**options)).evaluate(params, data)["y"]
        np.testing.assert_array_equal(y, want, err_msg=str(options))


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_exported_tiles_pass_the_sanitizers(compiler, tmp_path):
    """With a pixel whose tile is computed again; without exact_conv, exported C runs by tiles."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    title = "uneven padding"
    data, params = drawn(title)
    data["x"][1, 3, 5, 7] = np.inf
    pm = compiled(title, ml.CBackend(flags=QUICK))
    pm.export_c(tmp_path, params=params)
    assert "conv2d_tiles" in (tmp_path / "model.c").read_text()
    flags = "-O1 -Wall -Wextra -Werror -pedantic -fsanitize=undefined,address"
    write_inputs(built(tmp_path, compiler, f"{flags} -fno-sanitize-recover=all"), data)
    np.testing.assert_array_equal(run(tmp_path)["y"], pm.evaluate(params, data)["y"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves_near_the_ends_of_their_range(dtype):
    """They are wide inside: sums of large elements, and of small ones, round once at the end."""
    title = "ends of tiles"
    backend = ml.CBackend(dtype=dtype, flags=QUICK)
    texts = texts_of(backend)
    data, params = drawn(title)
    for scale in (1.5e4, 3e-6):
        x = backend.array(data["x"] * np.float32(scale))
        w = backend.array(params["w"] / np.float32(16))
        y = compiled(title, backend).evaluate({"w": w}, {"x": x})["y"].astype("f8")
        wide = [np.asarray(v).astype("f8") for v in (x, w)]
        want, magnitude = (by_definition(title, *part) for part in (wide, map(abs, wide)))
        limit = 65504 if dtype == "float16" else np.inf
        fits = abs(want) < 0.99 * limit
        assert fits.mean() > 0.3 and np.isfinite(y[fits]).all()
        step = 2.0**-11 if dtype == "float16" else 2.0**-8
        error = abs(y - want)[fits]
        assert (error <= 1.01 * step * abs(want)[fits] + 2.0**-20 * magnitude.max() + 2**-25).all()
    assert all("conv2d_tiles" in text for text in texts)
