"""Regression by a Gaussian process: its loss, its prediction and how sure it is."""

from __future__ import annotations

import math
from typing import Any

from mithril import models
from mithril.base.checks import checked_flag
from mithril.base.public import public
from mithril.logical import constraints
from mithril.logical.model import ExtendInfo
from mithril.logical.typing import Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD


class GPRLoss(Composite):
    """The negative logarithm of the likelihood of labels under a Gaussian process.

    ``½ (y − μ)ᵀ α + Σ ln L_ii + n / 2 · ln 2π`` (Rasmussen and Williams, Gaussian Processes for
    Machine Learning, algorithm 2.1).

    Parameters
    ----------
    robust : whether the logarithm is that of `Log(robust=True)`

    Keys
    ----
    labels : float [n, 1], y
    mu : float [n, 1], the mean before anything is known
    L : float [n, n], the lower Cholesky factor of the covariance
    K_term : float [n, n], the covariance
    alpha : float [n, 1], covariance⁻¹ (y − μ), as `GPRAlpha` gives it
    output : float []
    """

    _connect_order = ("labels", "mu", "L", "K_term", "alpha", "output")
    _tensors = ("labels", "mu", "L", "K_term", "alpha")

    @public
    def __init__(
        self,
        robust: bool = False,
        labels: Any = TBD,
        mu: Any = TBD,
        L: Any = TBD,
        K_term: Any = TBD,
        alpha: Any = TBD,
        *,
        name: str | None = None,
    ):
        robust = checked_flag("GPRLoss: robust", robust)
        given = {"labels": labels, "mu": mu, "L": L, "K_term": K_term, "alpha": alpha}
        with self._compose(name, {"robust": robust}, **given) as keys:
            y: Any = keys["labels"]
            fit = ((y - keys["mu"]) * keys["alpha"]).sum() * 0.5
            diagonal = models.TransposedDiagonal()(keys["L"])
            volume = models.Log(robust=robust)(diagonal).sum()
            self |= models.Buffer().connect(input=keys["K_term"])
            scale = y.size(0) * (0.5 * math.log(2.0 * math.pi))
            self |= models.Add().connect(left=fit + volume, right=scale, output="output")
            columns = {key: ["n", 1] for key in ("labels", "mu", "alpha")}
            self.set_shapes(columns, L=["n", "n"], K_term=["n", "n"])
            self._set_open_cins("labels")
            self.set_cout("output")
            self.expose_keys("output")

    @public
    def connect(
        self,
        labels: Wire = NOT_GIVEN,
        mu: Wire = NOT_GIVEN,
        L: Wire = NOT_GIVEN,
        K_term: Wire = NOT_GIVEN,
        alpha: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"labels": labels, "mu": mu, "L": L, "K_term": K_term, "alpha": alpha}
        return ExtendInfo(self, {**keys, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class GaussProcessRegressionCore(Composite):
    """Regression by a Gaussian process, given the kernel of its points.

    The covariance of the labels is ``k + s I`` with Cholesky factor L, and ``α = (k + s I)⁻¹ (label
    − mu)`` (Rasmussen and Williams, algorithm 2.1).

    Keys
    ----
    label : float [n, 1]
    s : number or float [], the variance of the noise in the labels (scikit-learn's `alpha`)
    k : float [n, n], the kernel of the points
    k_star : float [n, n], the kernel of the same points without what `k` has for itself: equal to
        `k` unless that has, for example, a jitter
    mu : float [n, 1], the mean before anything is known
    loss : float [], an output: `GPRLoss`
    prediction : float [n, 1], an output: ``mu + k_starᵀ α``, the mean at the points
    confidence : float [n, 1], an output: ``diag(k_star − k_starᵀ (k + s I)⁻¹ k_star)``, the
        variance at the points

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> core = ml.models.GaussProcessRegressionCore(s=1.0)
    >>> model |= core(label="y", k="k", k_star="k", mu="mu", prediction="mean", confidence="var")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> outputs = pm.evaluate({}, {"y": [[4.0]], "k": [[1.0]], "mu": [[0.0]]})
    >>> outputs["mean"].tolist(), outputs["var"].tolist()
    ([[2.0]], [[0.5]])
    """

    _connect_order = ("label", "s", "k", "k_star", "mu", "loss", "prediction", "confidence")
    _tensors = ("label", "k", "k_star", "mu")

    @public
    def __init__(
        self,
        s: Any = TBD,
        k: Any = TBD,
        k_star: Any = TBD,
        mu: Any = TBD,
        label: Any = TBD,
        loss: Any = TBD,
        prediction: Any = TBD,
        confidence: Any = TBD,
        *,
        name: str | None = None,
    ):
        given = {"label": label, "s": s, "k": k, "k_star": k_star, "mu": mu}
        outputs = {"loss": loss, "prediction": prediction, "confidence": confidence}
        with self._compose(name, {}, **given, **outputs) as keys:
            y: Any = keys["label"]
            mean: Any = keys["mu"]
            star: Any = keys["k_star"]
            noise = models.Eye()(y.size(0)) * keys["s"]
            covariance = keys["k"] + noise
            factor = models.Cholesky()(covariance)
            alpha = models.GPRAlpha()(y - mean, factor, covariance)
            loss_of = models.GPRLoss()
            wires = {"labels": y, "mu": mean, "L": factor, "K_term": covariance, "alpha": alpha}
            self |= loss_of.connect(**wires, output=keys["loss"])
            shift = models.MatrixMultiply()(star.transpose(), alpha)
            self |= models.Add().connect(mean, shift, output=keys["prediction"])
            known = models.GPRVOuter()(star, covariance, factor)
            rest = models.TransposedDiagonal()
            self |= rest.connect(input=star - known, output=keys["confidence"])
            columns = {key: ["n", 1] for key in ("label", "mu")}
            self.set_shapes(columns, k=["n", "n"], k_star=["n", "n"])
            self.add_constraint(constraints.scalars, ["s"])
            self._set_open_cins("label", "s", "k", "k_star", "mu")
            self.set_cout(*outputs)
            self.expose_keys(*outputs)

    @public
    def connect(
        self,
        label: Wire = NOT_GIVEN,
        s: Wire = NOT_GIVEN,
        k: Wire = NOT_GIVEN,
        k_star: Wire = NOT_GIVEN,
        mu: Wire = NOT_GIVEN,
        loss: Wire = NOT_GIVEN,
        prediction: Wire = NOT_GIVEN,
        confidence: Wire = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"label": label, "s": s, "k": k, "k_star": k_star, "mu": mu}
        outputs = {"loss": loss, "prediction": prediction, "confidence": confidence}
        return ExtendInfo(self, {**keys, **outputs})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


__all__ = ["GPRLoss", "GaussProcessRegressionCore"]
