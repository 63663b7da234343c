"""The example's process against scikit-learn's, which finds its width by L-BFGS."""

import numpy as np
from mithril.examples import gpr
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF


def test_it_finds_the_width_of_scikit_learn():
    rng = np.random.default_rng(2)
    x = np.sort(rng.uniform(-3, 3, (25, 1)), axis=0)
    y = np.cos(1.5 * x) + 0.2 * rng.standard_normal(x.shape)
    theirs = GaussianProcessRegressor(RBF(1.0), alpha=0.04).fit(x, y)
    found = gpr.fit(x, y, noise=0.04, steps=600)
    np.testing.assert_allclose(found.width, theirs.kernel_.length_scale, rtol=1e-3)
    mean, deviation = theirs.predict(x, return_std=True)
    np.testing.assert_allclose(found.mean[:, 0], mean.reshape(-1), atol=1e-3)
    np.testing.assert_allclose(found.deviation[:, 0], deviation.reshape(-1), atol=1e-3)


def test_the_curve_is_found_behind_the_noise(capsys):
    assert gpr.main() < 0.15
    assert capsys.readouterr().out.startswith("width ")
