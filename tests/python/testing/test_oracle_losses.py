"""The oracle's losses at values by hand, and against SciPy and scikit-learn."""

import numpy as np
import pytest
from mithril.testing.oracle_losses import LOSSES, kl_divergence
from mithril.testing.oracle_ops import ops_for
from scipy import stats
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import cosine_similarity

LN2 = np.log(2.0)


@pytest.mark.parametrize(
    ("op", "args", "attrs", "expected"),
    [
        ("hinge_loss", ([0.5, 2.0], [1.0, 1.0]), {"reduction": "mean"}, 0.25),
        ("hinge_loss", ([0.5, -1.0], [1.0, 1.0]), {"reduction": "sum"}, 2.5),
        ("cosine_embedding_loss", ([[3.0, 4.0]] * 3, [[4.0, 3.0]] * 3, [1, -1, 0]),
         {"margin": 0.5}, [0.04, 0.46, 0.0]),
        ("triplet_margin_loss", ([[0.0, 0.0]], [[3.0, 4.0]], [[0.0, 5.5]]), {"eps": 0.0}, [0.5]),
        ("triplet_margin_loss", ([[0.0, 0.0]], [[3.0, 4.0]], [[3.0, 6.0]]),
         {"eps": 0.0, "swap": True, "p": 1.0}, [6.0]),
        ("margin_ranking_loss", ([1.0, 1.0], [0.5, 0.5], [1, -1]), {"margin": 1.0}, [0.5, 1.5]),
        ("focal_loss", ([0.0, 0.0], [1.0, 0.0]), {}, [LN2 / 16, LN2 * 3 / 16]),
        ("focal_loss", ([0.0], [1.0]), {"alpha": None, "gamma": 0.0}, [LN2]),
    ],
)  # fmt: skip
def test_values(op, args, attrs, expected):
    result = LOSSES[op](*(np.asarray(a) for a in args), **attrs)
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-15)


def test_angles_are_those_of_scikit_learn():
    x, y = np.random.default_rng(0).normal(size=(2, 5, 3))
    expected = np.diagonal(cosine_similarity(x, y))
    np.testing.assert_allclose(LOSSES["cosine_similarity"](x, y), expected, rtol=1e-13)


def test_likelihoods_are_those_of_scipy():
    random = np.random.default_rng(0)
    x, t, v = random.normal(size=7), random.normal(size=7), random.uniform(0.2, 3.0, 7)
    normal = LOSSES["gaussian_nll_loss"](x, t, v, full=True)
    np.testing.assert_allclose(normal, -stats.norm.logpdf(t, x, np.sqrt(v)), rtol=1e-13)
    counts = np.array([5.0, 8.0, 30.0])  # Stirling's approximation gets better
    found = LOSSES["poisson_nll_loss"](np.log([4.0, 9.0, 28.0]), counts, full=True)
    np.testing.assert_allclose(found, -stats.poisson.logpmf(counts, [4.0, 9.0, 28.0]), atol=0.02)
    rates = LOSSES["poisson_nll_loss"](np.array([4.0]), counts[:1], log_input=False)
    np.testing.assert_allclose(rates, 4.0 - 5.0 * np.log(4.0), rtol=1e-8)


def test_divergence_is_that_of_scipy():
    p, q = np.random.default_rng(0).dirichlet(np.ones(4), 2)
    found = kl_divergence(p, q, smallest=1e-300, reduction="sum")
    np.testing.assert_allclose(found, stats.entropy(q, p), rtol=1e-13)


def test_cross_entropies_are_those_of_scikit_learn():
    p = np.random.default_rng(0).dirichlet(np.ones(3), 5)
    t, weights = np.array([0, 2, 1, 1, 0]), np.array([0.5, 1.0, 2.0])
    expected = log_loss(t, p, sample_weight=weights[t])
    both = {"weights": weights, "reduction": "mean"}
    found = ops_for()["cross_entropy"](p, t, input_type="probs", **both)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_allclose(ops_for()["nll_loss"](np.log(p), t, **both), expected, rtol=1e-13)
    # Smoothing is the same as a target of shares.
    shares = np.eye(3)[t] * 0.7 + 0.1
    want = -(shares * np.log(p)).sum(1)
    smooth = {"input_type": "probs", "label_smoothing": 0.3}
    np.testing.assert_allclose(ops_for()["cross_entropy"](p, t, **smooth), want, rtol=1e-13)
