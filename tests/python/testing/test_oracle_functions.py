"""The oracle's further functions, at values by hand and against SciPy and scikit-learn."""

import numpy as np
import pytest
from mithril.testing.oracle_ops import ops_for
from scipy import special, stats
from sklearn.preprocessing import PolynomialFeatures

INF, NAN = np.inf, np.nan
OPS = ops_for()
LN2 = np.log(2.0)


@pytest.mark.parametrize(
    ("op", "args", "attrs", "expected"),
    [
        # Tangent of ln at 1/2: ln(1/2) + (x - 1/2) * 2.
        ("robust_log", ([0.0, -0.25, 4.0],), {"threshold": 0.5}, [-LN2 - 1, -LN2 - 0.5, 2 * LN2]),
        ("robust_sqrt", ([0.0, -0.125, 4.0],), {"threshold": 0.25}, [0.0, 0.25, 2.0]),
        ("stable_reciprocal", ([0.0, -0.25, 4.0],), {"threshold": 0.5}, [4.0, -3.0, 0.25]),
        ("robust_power", ([-2.0, 0.25, 0.25], [3.0, 0.5, -1.0]), {"threshold": 0.5},
         [8.0, 0.5, 0.5]),
        ("hinge_loss", ([0.5, 2.0, -1.0], [1.0, 1.0, 1.0]), {}, [0.5, 0.0, 2.0]),
        ("quad_hinge_loss", ([0.5, 2.0, -1.0], [1.0, 1.0, 1.0]), {}, [0.25, 0.0, 4.0]),
        ("quantile_loss", ([1.0, 4.0], [3.0, 3.0], 0.75), {}, [1.5, 0.25]),
        ("kl_divergence", ([0.5, 0.25], [0.25, 0.0]), {}, [-0.25 * LN2, 0.0]),
        ("nan_to_num", ([NAN, INF, -INF],), {"posinf": 7.0}, [0.0, 7.0, -np.finfo(float).max]),
        ("norm_modifier", (np.array(1.0),), {}, 1.0),
        ("norm_modifier", (np.array(5.0),), {}, 5.0),
        ("norm_modifier", (np.array(11.0),), {}, 3.0),
        ("cartesian_diff", ([[1.0], [2.0]], [[4.0]]), {}, [[[-3.0]], [[-2.0]]]),
        ("distance_matrix", ([[0.0, 0.0]], [[3.0, 4.0]], np.array(2.0)), {}, [[25.0]]),
        ("transposed_diag", ([[1.0, 2.0], [3.0, 4.0]],), {}, [[1.0], [4.0]]),
        ("trapezoid", ([1.0, 3.0, 5.0], [0.0, 1.0, 3.0]), {}, 10.0),
        ("ones_with_zero_diag", (2, 3), {}, [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]),
        ("relu6", ([-1.0, 3.0, 7.0],), {}, [0.0, 3.0, 6.0]),
        ("hard_swish", ([-4.0, 0.0, 3.0, 4.0],), {}, [0.0, 0.0, 3.0, 4.0]),
        ("elu", ([-LN2, 1.0],), {"alpha": 2.0}, [-1.0, 1.0]),
        ("celu", ([-2 * LN2, 1.0],), {"alpha": 2.0}, [-1.0, 1.0]),
        ("selu", ([1.0],), {}, [1.0507009873554805]),
        ("mish", ([0.0, 1.0],), {}, [0.0, 0.8650983882673103]),  # 1 + e = 3.718…: 12.8256 / 14.8256
        ("atan2", ([1.0, -1.0], [-1.0, 0.0]), {}, [0.75 * np.pi, -0.5 * np.pi]),
        ("asin", ([0.5, -1.0],), {}, [np.pi / 6, -np.pi / 2]),
        ("acos", ([0.5, -1.0],), {}, [np.pi / 3, np.pi]),
        ("atan", ([1.0, INF],), {}, [np.pi / 4, np.pi / 2]),
        ("prelu", ([[-2.0, 3.0, -4.0]], [0.5, 1.0, 0.25]), {"num_parameters": 3},
         [[-1.0, 3.0, -1.0]]),
        ("threshold", ([1.0, 2.0, 3.0],), {"threshold": 2.0, "value": 7.0}, [7.0, 7.0, 3.0]),
        ("hard_shrink", ([0.5, -2.0],), {}, [0.0, -2.0]),
        ("soft_shrink", ([0.5, -2.0, 1.0],), {}, [0.0, -1.5, 0.5]),
        ("glu", ([[3.0, 0.0]],), {}, [[1.5]]),
        ("logsumexp", ([[0.0, 0.0], [-INF, -INF]],), {"axis": 1}, [LN2, -INF]),
        ("round", ([0.5, 1.5, -2.5],), {}, [0, 2, -2]),
    ],
)  # fmt: skip
def test_values(op, args, attrs, expected):
    with np.errstate(all="ignore"):
        result = OPS[op](*(np.asarray(a) if isinstance(a, list) else a for a in args), **attrs)
    np.testing.assert_allclose(result, expected, rtol=1e-14)


def test_smooth_distances_are_those_of_scipy():
    x, t = np.linspace(-3, 3, 13), np.zeros(13)
    np.testing.assert_allclose(OPS["huber_loss"](x, t, 0.7), special.huber(0.7, x), rtol=1e-14)
    smooth = OPS["smooth_l1_loss"](x, t, 0.7)
    np.testing.assert_allclose(smooth, special.huber(0.7, x) / 0.7, rtol=1e-14, atol=1e-16)


def test_gates_and_sums_are_those_of_scipy():
    x = np.random.default_rng(0).normal(size=(3, 4))
    a, b = x[:, :2], x[:, 2:]
    np.testing.assert_allclose(OPS["swiglu"](x), a * b * special.expit(b), rtol=1e-13)
    np.testing.assert_allclose(OPS["geglu"](x), a * b * stats.norm.cdf(b), rtol=1e-13)
    np.testing.assert_allclose(OPS["logsumexp"](x, (0, 1)), special.logsumexp(x), rtol=1e-13)
    np.testing.assert_allclose(OPS["softmin"](x), special.softmax(-x, -1), rtol=1e-13)
    np.testing.assert_allclose(OPS["log_sigmoid"](x), special.log_expit(x), rtol=1e-13)


def test_monomials_are_those_of_scikit_learn():
    x = np.random.default_rng(0).normal(size=(5, 3))
    expected = PolynomialFeatures(3, include_bias=False).fit_transform(x)
    np.testing.assert_allclose(OPS["polynomial_features"](x, 3), expected, rtol=1e-13)
