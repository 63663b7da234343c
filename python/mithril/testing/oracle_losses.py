"""Reference losses in NumPy and float64; `oracle_ops.py` has the conventions, cross entropies,
and the distances that also take integers and bools.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from mithril.testing.oracle_functions import logistic, real, robust_log


def reducible(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the argument `reduction` to an elementwise loss, of arrays or tensors."""

    @functools.wraps(function)
    def reduce(*args: Any, reduction: str = "none", **named: Any) -> Any:
        each = function(*args, **named)
        return each if reduction == "none" else getattr(each, reduction)()

    return reduce


@reducible
def hinge_loss(input, target, safe_shapes=True):
    return np.maximum(0.0, 1.0 - real(target) * real(input))


@reducible
def quad_hinge_loss(input, target, safe_shapes=True):
    return hinge_loss(input, target) ** 2


@reducible
def quantile_loss(input, target, quantile=0.5, safe_shapes=True):
    e = real(target) - real(input)
    return np.maximum(quantile * e, (quantile - 1.0) * e)


@reducible
def kl_divergence(input, target, threshold="", safe_shapes=True, *, smallest):
    log = functools.partial(robust_log, threshold=threshold, smallest=smallest)
    return real(target) * (log(target) - log(input))


@reducible
def huber_loss(input, target, delta=1.0, safe_shapes=True):
    d = np.abs(real(input) - real(target))
    return np.where(d > delta, delta * (d - delta / 2), d * d / 2)


@reducible
def smooth_l1_loss(input, target, beta=1.0, safe_shapes=True):
    d = np.abs(real(input) - real(target))
    return np.where(d < beta, d * d / 2 / (beta or 1.0), d - beta / 2)


def cosine_similarity(input1, input2, axis=1, eps=1e-8):
    x, y = np.broadcast_arrays(real(input1), real(input2))
    norms = [np.maximum(np.linalg.norm(v, axis=axis), eps) for v in (x, y)]
    return (x * y).sum(axis) / (norms[0] * norms[1])


@reducible
def cosine_embedding_loss(input1, input2, target, margin=0.0):
    x, y = real(input1), real(input2)
    squares = [(v * v).sum(-1) + 1e-12 for v in (x, y)]
    cosine = (x * y).sum(-1) / np.sqrt(squares[0] * squares[1])
    apart = np.maximum(cosine - margin, 0.0)
    return np.select([np.equal(target, 1), np.equal(target, -1)], [1.0 - cosine, apart], 0.0)


@reducible
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False):
    def distance(x, y):
        return np.linalg.norm(real(x) - real(y) + eps, p, axis=-1)

    far = distance(anchor, negative)
    if swap:
        far = np.minimum(far, distance(positive, negative))
    return np.maximum(distance(anchor, positive) - far + margin, 0.0)


@reducible
def margin_ranking_loss(input1, input2, target, margin=0.0):
    return np.maximum(margin - real(target) * (real(input1) - real(input2)), 0.0)


@reducible
def focal_loss(input, target, alpha=0.25, gamma=2.0):
    p, t = logistic(input), real(target)
    losses = np.logaddexp(0.0, real(input)) - t * real(input)
    reached = p * t + (1.0 - p) * (1.0 - t)
    weight = 1.0 if alpha is None else alpha * t + (1.0 - alpha) * (1.0 - t)
    return weight * (1.0 - reached) ** gamma * losses


@reducible
def poisson_nll_loss(input, target, log_input=True, full=False, eps=1e-8):
    x, t = real(input), real(target)
    losses = np.exp(x) - t * x if log_input else x - t * np.log(x + eps)
    if not full:
        return losses
    above = np.where(t > 1.0, t, 1.0)
    factorial = above * np.log(above) - above + np.log(2.0 * np.pi * above) / 2.0
    return losses + np.where(t > 1.0, factorial, 0.0)


@reducible
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6):
    v = np.maximum(real(var), eps)
    losses = (np.log(v) + (real(input) - real(target)) ** 2 / v) / 2.0
    return losses + np.log(2.0 * np.pi) / 2.0 if full else losses


LOSSES: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        hinge_loss,
        quad_hinge_loss,
        quantile_loss,
        huber_loss,
        smooth_l1_loss,
        cosine_similarity,
        cosine_embedding_loss,
        triplet_margin_loss,
        margin_ranking_loss,
        focal_loss,
        poisson_nll_loss,
        gaussian_nll_loss,
    )
}


__all__ = ["LOSSES", "kl_divergence", "reducible"]
