"""Convolutions of 3x3 windows by their definition, in float64: the oracle of those by tiles."""

import numpy as np

BOUND = 2.0**-20  # of the largest sum of magnitudes, as docs/numerics.md says


def drawn(case, seed=5):
    """Images and filters of float32: of (images, channels, rows, columns, filters, padding)."""
    n, c, h, w, f, _ = case
    random = np.random.default_rng(seed)
    x, weight = random.normal(size=(n, c, h, w)), random.normal(size=(f, c, 3, 3))
    return x.astype("f4"), weight.astype("f4")


def pads_of(padding):
    return padding if isinstance(padding, tuple) else ((padding, padding),) * 2


def by_definition(x, w, padding):
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), *pads_of(padding)))
    rows, columns = padded.shape[2] - 2, padded.shape[3] - 2
    with np.errstate(invalid="ignore", over="ignore"):
        return sum(
            np.einsum("nchw,oc->nohw", padded[:, :, i : i + rows, j : j + columns], w[:, :, i, j])
            for i in range(3)
            for j in range(3)
        )


def gradient_by_definition(dy, w, padding):
    """With respect to the input: the convolution of cotangents with turned filters."""
    turned = np.flip(w, (2, 3)).swapaxes(0, 1)
    pads = [(2 - low, 2 - high) for low, high in pads_of(padding)]
    cut = dy[(..., *(slice(max(-low, 0), size - max(-high, 0))
                     for (low, high), size in zip(pads, dy.shape[2:], strict=True)))]  # fmt: skip
    return by_definition(cut, turned, tuple((max(a, 0), max(b, 0)) for a, b in pads))
