import mithril as ml
import numpy as np
import pytest
from mithril.errors import SignatureError
from mithril.models import GaussProcessRegressionCore, GPRLoss
from models.composite_cases import check, far, on_native, run
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

NOISE = 0.3


def points(seed=1, count=6):
    random = np.random.default_rng(seed)
    x = np.sort(random.uniform(-2, 2, (count, 1)), axis=0)
    return x, np.sin(2 * x) + 0.1 * random.standard_normal((count, 1))


def by_hand(label, s, k, k_star, mu):
    covariance = k + s * np.eye(len(k))
    alpha = np.linalg.solve(covariance, label - mu)
    loss = 0.5 * float(((label - mu) * alpha).sum()) + 0.5 * np.linalg.slogdet(covariance)[1]
    loss += len(k) / 2 * np.log(2 * np.pi)
    variance = np.diag(k_star - k_star.T @ np.linalg.solve(covariance, k_star))[:, None]
    return {"loss": loss, "prediction": mu + k_star.T @ alpha, "confidence": variance}


def inputs_of(x, y):
    k = RBF(0.7)(x)
    return {"label": y, "s": np.array(NOISE), "k": k, "k_star": k, "mu": np.full_like(y, 0.25)}


def test_it_is_scikit_learns(backend_name):
    x, y = points()
    fitted = GaussianProcessRegressor(RBF(0.7), alpha=NOISE, optimizer=None).fit(x, y - 0.25)
    mean, deviation = fitted.predict(x, return_std=True)
    outputs, _ = run(GaussProcessRegressionCore(), inputs_of(x, y), backend_name)
    assert far(outputs["prediction"], mean.reshape(-1, 1) + 0.25, 1e-12) is None
    assert far(outputs["confidence"], deviation.reshape(-1, 1) ** 2, 1e-12) is None
    loss = -fitted.log_marginal_likelihood_value_
    assert float(outputs["loss"]) == pytest.approx(loss, rel=1e-12)


@on_native
def test_values_and_gradients(native):
    x, y = points(2, 4)
    inputs = inputs_of(x, y)
    model = GaussProcessRegressionCore()
    outputs, gradients = run(
        model, inputs, native, {"loss": np.array(1.0)}, ["label", "s", "mu", "k"]
    )
    for key, value in by_hand(**inputs).items():
        assert far(outputs[key], value, 1e-12) is None, key
    step = 1e-6
    for key, at in {"label": (1, 0), "s": (), "mu": (2, 0)}.items():
        up, down = ({**inputs, key: inputs[key].copy()} for _ in range(2))
        up[key][at] += step
        down[key][at] -= step
        slope = (by_hand(**up)["loss"] - by_hand(**down)["loss"]) / (2 * step)
        assert gradients[key][at] == pytest.approx(slope, rel=1e-6), key
    # The covariance is symmetric: both elements of a pair move.
    up, down = ({**inputs, "k": inputs["k"].copy()} for _ in range(2))
    for moved, by in ((up, step), (down, -step)):
        moved["k"][0, 2] += by
        moved["k"][2, 0] += by
    slope = (by_hand(**up)["loss"] - by_hand(**down)["loss"]) / (2 * step)
    assert gradients["k"][0, 2] + gradients["k"][2, 0] == pytest.approx(slope, rel=1e-6)


@on_native
@pytest.mark.parametrize("robust", [False, True])
def test_loss(native, robust):
    random = np.random.default_rng(3)
    inputs = {key: random.standard_normal((3, 1)) for key in ("labels", "mu", "alpha")}
    inputs["L"] = np.tril(random.uniform(0.5, 1.0, (3, 3)))

    def loss(labels, mu, alpha, L):
        value = 0.5 * ((labels - mu) * alpha).sum() + np.log(np.diag(L)).sum()
        return {"output": value + 1.5 * np.log(2 * np.pi)}

    outer = ml.Model()
    keys = {key: key for key in inputs}
    outer |= GPRLoss(robust)(**keys, K_term=ml.Tensor(np.eye(3).tolist()), output="output")
    outer.expose_keys("output")
    check(outer, loss, inputs, native)


def test_arguments_are_checked():
    with pytest.raises(SignatureError, match="robust"):
        GPRLoss("yes")
