"""The machine of the example against SciPy's minimum of its cost."""

import numpy as np
from mithril.examples import svm
from scipy.optimize import minimize


def test_the_machine_has_the_least_cost():
    rng = np.random.default_rng(3)
    y = np.where(rng.uniform(size=(60, 1)) > 0.5, 1.0, -1.0)
    x = rng.standard_normal((60, 3)) + y * np.array([1.0, -0.5, 0.0])

    def cost(w):
        short = np.maximum(0, 1 - y[:, 0] * (x @ w[:3] + w[3]))
        return (short**2).sum() + 2.5 * 0.5 * (w[:3] ** 2).sum()

    found = svm.fit(x, y, penalty=2.5)
    w = np.append(found["weight"], found["bias"])
    np.testing.assert_allclose(w, minimize(cost, np.zeros(4)).x, atol=1e-4)


def test_it_tells_points_apart_that_it_has_not_seen(capsys):
    assert svm.main() > 0.9
    assert capsys.readouterr().out.startswith("told apart: 9")
