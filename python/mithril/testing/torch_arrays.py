"""Ops that move, order, pick and put elements, by PyTorch; see `torch_oracle.py`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mithril.testing import oracle_arrays


def plain(x: Any) -> Any:
    return x.detach().numpy() if isinstance(x, torch.Tensor) else x


def moved(function: Callable[..., Any]) -> Callable[..., Any]:
    """By what NumPy makes of the numbers of the operand's elements."""

    def run(input, *args, **attrs):
        numbers = np.arange(input.numel()).reshape(tuple(input.shape))
        places = torch.as_tensor(np.array(function(numbers, *args, **attrs)))
        return input.reshape(-1)[places.reshape(-1)].reshape(places.shape)

    run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return run


def diag(input, diagonal=0):
    return torch.diag(input, diagonal)


def linear_scan(factor, input, axis=-1, reverse=False):
    """As a product with the matrix of all products of factors from one place to another."""
    a, x = factor.movedim(axis, -1), input.movedim(axis, -1)
    if reverse:
        a, x = a.flip(-1), x.flip(-1)
    n = x.shape[-1]
    rows = []
    for i in range(n):
        weights = [a[..., j + 1 : i + 1].prod(-1) for j in range(i + 1)]
        rows.append((torch.stack(weights, -1) * x[..., : i + 1]).sum(-1))
    y = torch.stack(rows, -1) if rows else x
    return (y.flip(-1) if reverse else y).movedim(-1, axis)


def cumprod(input, axis=-1):
    if not input.is_floating_point():
        return torch.as_tensor(np.cumprod(oracle_arrays.summable(plain(input)), axis))
    return torch.cumprod(input, axis)


def sort(input, axis=-1, descending=False, stable=True):
    return torch.sort(input, dim=axis, descending=descending, stable=True).values


def topk(input, k, axis=-1, largest=True):
    values, places = torch.sort(input, dim=axis, descending=largest, stable=True)
    return values.narrow(axis, 0, k), places.narrow(axis, 0, k)


def positive(indices, size):
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + size, indices)


def take_along_axis(input, indices, axis=-1):
    return torch.take_along_dim(input, positive(indices, input.shape[axis]), axis)


def scatter(input, value, indices, axis=-1):
    """One after the other."""
    rows, places = input.movedim(axis, 0), positive(indices, input.shape[axis]).movedim(axis, 0)
    values = value.movedim(axis, 0)
    for place, v in zip(places, values, strict=True):
        rows = rows.scatter(0, place[None], v[None])
    return rows.movedim(0, axis)


def scatter_add(input, value, indices, axis=-1):
    return input.scatter_add(axis, positive(indices, input.shape[axis]), value)


def embedding_bag(input, weight, num_embeddings=None, dim=None, reduction="mean"):
    flat = input.reshape(-1, input.shape[-1]).to(torch.int64)
    if not flat.numel():
        return weight.new_zeros((*input.shape[:-1], weight.shape[-1])) + 0.0 * weight.sum()
    rows = torch.nn.functional.embedding_bag(flat, weight, mode=reduction)
    return rows.reshape(*input.shape[:-1], weight.shape[-1])


def positional_encoding(input, hidden_dim, max_len=5000):
    zeros = np.zeros(tuple(input.shape))
    return input + torch.as_tensor(oracle_arrays.positional_encoding(zeros, hidden_dim, max_len))


def qr(input):
    """The diagonal of r is not negative."""
    q, r = torch.linalg.qr(input)
    signs = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(input.dtype).detach()
    return q * signs[..., None, :], r * signs[..., None]


def svd(input):
    """The largest component of each left vector is positive."""
    u, values, vt = torch.linalg.svd(input, full_matrices=False)
    if not u.numel():
        return u, values, vt
    lowest, highest = u.detach().aminmax(dim=-2)
    signs = torch.where(-lowest > highest, -1.0, 1.0).to(input.dtype)
    return u * signs[..., None, :], values, vt * signs[..., None]


def eigvalsh(K_term, L=None, threshold="EPSILON", *, epsilon):  # noqa: N803
    if L is not None:
        return torch.diag(L)[:, None]
    bound = epsilon if isinstance(threshold, str) else threshold
    return torch.linalg.eigvalsh((K_term + K_term.mT) / 2).clamp(min=bound)[:, None]


ARRAYS: dict[str, Callable[..., Any]] = {
    "stack": lambda axis=0, *input: torch.stack(input, axis),
    "chunk": lambda input, chunks, axis=0: list(torch.chunk(input, chunks, axis)),
    "moveaxis": lambda input, source, destination: torch.movedim(input, source, destination),
    "roll": moved(lambda input, shift, axis=None: np.roll(input, shift, axis)),
    "flip": moved(lambda input, axis=None: np.flip(input, axis)),
    "permute_tensor": lambda input, indices: input[indices.to(torch.int64)],
    "tile": moved(lambda input, reps: np.tile(input, reps)),
    "repeat_interleave": moved(lambda input, repeats, axis=None: np.repeat(input, repeats, axis)),
    "tril": lambda input, diagonal=0: torch.tril(input, diagonal),
    "triu": lambda input, diagonal=0: torch.triu(input, diagonal),
    "diagonal": moved(oracle_arrays.diagonal),
    "diag": diag,
    "positional_encoding": positional_encoding,
    "linear_scan": linear_scan,
    "cumprod": cumprod,
    "sort": sort,
    "topk": topk,
    "qr": qr,
    "svd": svd,
    "take_along_axis": take_along_axis,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "masked_fill": lambda input, mask, value: torch.where(mask, value, input),
    "embedding_bag": embedding_bag,
}
