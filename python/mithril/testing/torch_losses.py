"""The oracle for gradients of the losses of `oracle_losses.py`, and cross entropies.

PyTorch's own function where its gradient at kinks is ours: margins are written by `maximum`, which
shares the gradient at equality, and squared distances from there on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from mithril.testing import oracle_ops
from mithril.testing.oracle_losses import reducible
from mithril.testing.torch_functions import real, robust_log


def positive_part(x: torch.Tensor) -> torch.Tensor:
    return torch.maximum(x, torch.zeros_like(x))  # ties share the gradient


@reducible
def hinge_loss(input, target, safe_shapes=True):
    return positive_part(1.0 - real(target) * real(input))


@reducible
def quad_hinge_loss(input, target, safe_shapes=True):
    return hinge_loss(input, target) ** 2


@reducible
def quantile_loss(input, target, quantile=0.5, safe_shapes=True):
    e, q = real(target) - real(input), real(quantile)
    return torch.maximum(q * e, (q - 1.0) * e)


@reducible
def kl_divergence(input, target, threshold="", safe_shapes=True, *, smallest):
    log = partial(robust_log, threshold=threshold, smallest=smallest)
    return real(target) * (log(target) - log(input))


def pairs(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def run(input, target, width=1.0, reduction="none"):
        x, t = torch.broadcast_tensors(real(input), real(target))
        return function(x, t, reduction=reduction, **{name: width})

    return run


def huber_loss(input, target, delta=1.0, safe_shapes=True, reduction="none"):
    return pairs(F.huber_loss, "delta")(input, target, delta, reduction)


def smooth_l1_loss(input, target, beta=1.0, safe_shapes=True, reduction="none"):
    return pairs(F.smooth_l1_loss, "beta")(input, target, beta, reduction)


def cosine_similarity(input1, input2, axis=1, eps=1e-8):
    x, y = torch.broadcast_tensors(real(input1), real(input2))
    norms = [torch.clamp(torch.linalg.vector_norm(v, dim=axis), min=eps) for v in (x, y)]
    return (x * y).sum(axis) / (norms[0] * norms[1])


def cosine_embedding_loss(input1, input2, target, margin=0.0, reduction="none"):
    x, y = real(input1), real(input2)
    flat = [x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1]), real(target).reshape(-1)]
    losses = F.cosine_embedding_loss(*flat, margin, reduction="none").reshape(x.shape[:-1])
    return losses if reduction == "none" else getattr(losses, reduction)()


@reducible
def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False):
    def distance(x, y):
        return F.pairwise_distance(real(x), real(y), p, eps)

    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return positive_part(distance(anchor, positive) - far + margin)


@reducible
def margin_ranking_loss(input1, input2, target, margin=0.0):
    return positive_part(margin - real(target) * (real(input1) - real(input2)))


@reducible
def focal_loss(input, target, alpha=0.25, gamma=2.0):
    x, t = real(input), real(target)
    p = torch.sigmoid(x)
    losses = F.binary_cross_entropy_with_logits(x, t, reduction="none")
    losses = losses * (1.0 - (p * t + (1.0 - p) * (1.0 - t))) ** gamma
    return losses if alpha is None else losses * (alpha * t + (1.0 - alpha) * (1.0 - t))


def poisson_nll_loss(input, target, log_input=True, full=False, eps=1e-8, reduction="none"):
    return F.poisson_nll_loss(
        real(input), real(target), log_input, full, eps=eps, reduction=reduction
    )


@reducible
def gaussian_nll_loss(input, target, var, full=False, eps=1e-6):
    shapes = torch.broadcast_tensors(real(input), real(target), real(var))
    return F.gaussian_nll_loss(*shapes, full, eps, "none")


# --- cross entropies -----------------------------------------------------------------------------


def array(x: Any) -> Any:
    return x.detach().numpy() if isinstance(x, torch.Tensor) else x


def number_array(target: Any) -> np.ndarray:
    return np.asarray(array(target)).astype(np.int64)


def thresholded_log(x, robust, threshold, smallest):
    if not robust:
        return torch.log(x)
    limit = torch.as_tensor(smallest if isinstance(threshold, str) else threshold, dtype=x.dtype)
    size = x.abs()
    small = size < limit
    tangent = torch.log(limit) + size / limit - 1.0
    return torch.where(small, tangent, torch.log(torch.where(small, limit, size)))


def weights_of_classes(x, number, kept, weights) -> torch.Tensor:
    """Returns the weight of each class."""
    if not isinstance(weights, bool | str):
        return real(weights)
    shares = np.eye(x.shape[1])[array(number) % x.shape[1]] * array(kept)[..., None]
    shares = np.moveaxis(shares, -1, 1)
    found = np.broadcast_to(oracle_ops.class_weights(weights, shares), (1, *x.shape[1:]))
    return torch.as_tensor(np.array(found[(0, slice(None)) + (0,) * (x.ndim - 2)]))


def smoothed(logarithm, weight, label_smoothing):
    """Returns the label-smoothing term of cross entropy, to which all classes contribute alike."""
    column = weight.reshape((-1,) + (1,) * (logarithm.ndim - 2))
    return -(column * logarithm).sum(1) * (label_smoothing / logarithm.shape[1])


def of_numbers(logarithm, target, weights, label_smoothing, ignore_index, reduction):
    number = torch.as_tensor(number_array(target))
    kept = number != (-1 if ignore_index is None else ignore_index)
    weight = weights_of_classes(logarithm, number, kept, weights)
    counts = torch.where(kept, weight[number], 0.0)
    losses = -(logarithm.gather(1, number[:, None])[:, 0] * counts) * (1.0 - label_smoothing)
    if label_smoothing:
        losses = losses + torch.where(kept, smoothed(logarithm, weight, label_smoothing), 0.0)
    if reduction == "none":
        return losses
    return losses.sum() / (counts.sum() if reduction == "mean" else 1.0)


@reducible
def of_shares(logarithm, target, weights, label_smoothing):
    weight = oracle_ops.class_weights(array(weights), array(target))
    shares = target * (1.0 - label_smoothing) + label_smoothing / logarithm.shape[1]
    return -(torch.as_tensor(weight) * shares * logarithm).sum(1)


def cross_entropy(input, target, weights=False, categorical=True, threshold="MIN_POSITIVE_NORMAL",
                  robust=False, input_type="logits", safe_shapes=True, label_smoothing=0.0,
                  ignore_index=None, reduction="none", *, smallest):  # fmt: skip
    x = real(input)
    if input_type == "logits":
        logarithm = F.log_softmax(x, 1)
    elif input_type == "probs":
        logarithm = thresholded_log(x, robust, threshold, smallest)
    else:
        logarithm = x
    if categorical:
        return of_numbers(logarithm, target, weights, label_smoothing, ignore_index, reduction)
    return of_shares(logarithm, real(target), weights, label_smoothing, reduction=reduction)


def nll_loss(input, target, weights=False, ignore_index=None, reduction="none", *, smallest):
    return of_numbers(real(input), target, weights, 0.0, ignore_index, reduction)


@reducible
def binary_cross_entropy(input, target, pos_weight=1.0, threshold="MIN_POSITIVE_NORMAL",
                         robust=False, input_type="logits", safe_shapes=True, *,
                         smallest):  # fmt: skip
    x, t = real(input), real(target)
    p = pos_weight
    if isinstance(p, str):
        p = ((1.0 - t.mean()) / t.mean()).detach()
    if input_type == "logits":
        positive = torch.as_tensor(p, dtype=torch.float64)
        return F.binary_cross_entropy_with_logits(x, t, reduction="none", pos_weight=positive)
    yes = thresholded_log(x, robust, threshold, smallest)
    return -p * t * yes - (1.0 - t) * thresholded_log(1.0 - x, robust, threshold, smallest)


DIFFERENTIABLE: dict[str, Callable[..., Any]] = {
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
# With the threshold of the type: its smallest normal number.
THRESHOLDED: dict[str, Callable[..., Any]] = {
    "cross_entropy": cross_entropy,
    "nll_loss": nll_loss,
    "binary_cross_entropy": binary_cross_entropy,
    "kl_divergence": kl_divergence,
}


__all__ = ["DIFFERENTIABLE", "THRESHOLDED"]
