"""Inverses of the circular functions: errors in units in the last place, and edges."""

import mithril as ml
import numpy as np
import pytest

mpmath = pytest.importorskip("mpmath")
pytestmark = pytest.mark.device
RANDOM = np.random.default_rng(0)
INF, NAN = np.inf, np.nan


def compiled(cls, dtype, *keys):
    model = ml.Model()
    model |= cls()(**{key: key for key in keys}, output="output")
    return ml.compile(model, ml.CpuBackend(dtype=dtype), data_keys=set(keys), inference=True)


def magnitudes(count, low, high):
    """Spread evenly over exponents, of both signs."""
    return RANDOM.choice([-1.0, 1.0], count) * 2.0 ** RANDOM.uniform(low, high, count)


def around(*centres, count=200, width=1e-3):
    return np.concatenate([c * (1.0 + RANDOM.uniform(-width, width, count)) for c in centres])


def of_cosines(count, tiny):
    near_one = 1.0 - 2.0 ** RANDOM.uniform(tiny / 6, -1, count)
    return np.concatenate([
        *(RANDOM.uniform(-1, 1, count), magnitudes(count, tiny, 0), near_one, -near_one),
        np.clip(around(0.5, -0.5, 1.0, -1.0), -1, 1),
    ])  # fmt: skip


def of_tangents(count, tiny):
    edges = around(0.41421356237309503, 2.414213562373095, 1.0)
    return np.concatenate([magnitudes(count, tiny, -tiny), RANDOM.uniform(-4, 4, count), edges])


def of_points(count, tiny):
    y, x = magnitudes(count, tiny, -tiny), magnitudes(count, tiny, -tiny)
    close = x * RANDOM.uniform(-3, 3, count)
    steep = x * RANDOM.choice([0.41421356237309503, 2.414213562373095, 1.0], count)
    return np.concatenate([y, close, steep]), np.concatenate([x, x, x])


def units(got, exact, dtype):
    """The largest error in units in the last place of the exact result."""
    worst = 0.0
    with mpmath.workprec(200):
        for g, e in zip(got.tolist(), exact, strict=True):
            unit = float(np.spacing(np.abs(dtype(float(e)))))
            worst = max(worst, float(abs(mpmath.mpf(g) - e)) / unit)
    return worst


FUNCTIONS = {"Asin": mpmath.asin, "Acos": mpmath.acos, "Atan": mpmath.atan}
WIDTHS = [(np.float32, -120), (np.float64, -1000)]


@pytest.mark.parametrize(("dtype", "tiny"), WIDTHS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_of_one_operand(name, dtype, tiny):
    draw = of_tangents if name == "Atan" else of_cosines
    x = draw(1500, tiny).astype(dtype)
    got = compiled(getattr(ml, name), dtype.__name__, "input").evaluate({}, {"input": x})
    with mpmath.workprec(200):
        exact = [FUNCTIONS[name](mpmath.mpf(v)) for v in x.tolist()]
    assert units(got["output"], exact, dtype) < 1.0


@pytest.mark.parametrize(("dtype", "tiny"), WIDTHS)
def test_errors_of_two_operands(dtype, tiny):
    y, x = (v.astype(dtype) for v in of_points(1500, tiny))
    got = compiled(ml.Atan2, dtype.__name__, "y", "x").evaluate({}, {"y": y, "x": x})
    with mpmath.workprec(200):
        pairs = zip(y.tolist(), x.tolist(), strict=True)
        exact = [mpmath.atan2(mpmath.mpf(a), mpmath.mpf(b)) for a, b in pairs]
    assert units(got["output"], exact, dtype) < 1.0


EDGES = [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-310, -1e-310, 1.7e308, -1.7e308, 2.5]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_edges_of_the_plane(dtype):
    """Signs of zeros, infinities and NaN as in C."""
    with np.errstate(all="ignore"):
        y, x = (v.reshape(-1).astype(dtype) for v in np.meshgrid(EDGES, EDGES))
        wanted = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    got = compiled(ml.Atan2, dtype, "y", "x").evaluate({}, {"y": y, "x": x})["output"]
    rtol, atol = (2e-7, 1e-44) if dtype == "float32" else (1e-15, 0.0)
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=rtol, atol=atol)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))


@pytest.mark.parametrize("name", ["Asin", "Acos", "Atan"])
def test_narrow_floats_round_once(name):
    """They compute in float32."""
    x = np.linspace(-1, 1, 501).astype(np.float16)
    model = ml.Model()
    model |= ml.Cast(ml.float16)(input="x", output="narrow")
    model |= getattr(ml, name)()(input="narrow", output="y")
    model |= ml.Cast(ml.float64)(input="y", output="output")
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, inference=True)
    got = pm.evaluate({}, {"x": x.astype(np.float32)})["output"]
    exact = getattr(np, name.lower().replace("a", "arc", 1))(x.astype(np.float64))
    np.testing.assert_array_equal(got, exact.astype(np.float16).astype(np.float64))


@pytest.mark.parametrize("name", ["Asin", "Acos", "Atan"])
def test_edges_of_the_line(name):
    x = np.array([*EDGES, 1.0 + 2.0**-52, 3.0])
    got = compiled(getattr(ml, name), "float64", "input").evaluate({}, {"input": x})["output"]
    with np.errstate(invalid="ignore"):
        wanted = getattr(np, name.lower().replace("a", "arc", 1))(x)
    np.testing.assert_allclose(got, wanted, rtol=1e-15)
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))
