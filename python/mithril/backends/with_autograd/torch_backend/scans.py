"""What runs along one axis, as emitted programs call it: recurrences and orders."""

from __future__ import annotations

import torch


def linear_scan(factor, input, axis=-1, reverse=False):
    """y[i] = factor[i] * y[i - 1] + input[i], from y[0] = input[0] on."""
    places = list(zip(factor.unbind(axis), input.unbind(axis), strict=True))
    if not places:
        return input
    rows = [places.pop(-1 if reverse else 0)[1]]
    for a, x in reversed(places) if reverse else places:
        rows.append(a * rows[-1] + x)
    return torch.stack(rows[::-1] if reverse else rows, axis)


def cumprod(input, axis=-1):
    return torch.cumprod(input, axis, dtype=input.dtype)


def argsort(input, axis=-1, descending=False):
    """Stable, NaN as the largest."""
    return torch.sort(input, dim=axis, descending=descending, stable=True).indices


def last_writers(indices, size):
    """The number of the last index that names each place, or -1."""
    flat = indices.reshape(-1).to(torch.int64)
    numbers = torch.arange(flat.numel(), device=flat.device)
    places = torch.full((size,), -1, dtype=torch.int64, device=flat.device)
    flat = torch.where(flat < 0, flat + size, flat)
    return places.scatter_reduce(0, flat, numbers, "amax")
