"""Functions along one axis that emitted programs call: recurrences, sorts and loops."""

from __future__ import annotations

import torch


def as_compute(x):
    """Converts float16 and bfloat16 to float32; returns anything else unchanged."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def linear_scan(factor, input, axis=-1, reverse=False):
    """y[i] = factor[i] * y[i - 1] + input[i], from y[0] = input[0] on."""
    dtype = input.dtype
    factor, wide = as_compute(factor), as_compute(input)
    places = list(zip(factor.unbind(axis), wide.unbind(axis), strict=True))
    if not places:
        return input
    rows = [places.pop(-1 if reverse else 0)[1]]
    for a, x in reversed(places) if reverse else places:
        rows.append(a * rows[-1] + x)
    return torch.stack(rows[::-1] if reverse else rows, axis).to(dtype)


def cumprod(input, axis=-1):
    return torch.cumprod(as_compute(input), axis).to(input.dtype)


def argsort(input, axis=-1, descending=False, stable=True):
    """Returns the indices that sort an axis, with NaN as the largest value."""
    return torch.sort(input, dim=axis, descending=descending, stable=stable).indices


def last_writers(indices, size):
    """Returns for each place the position of the last index that names it, or -1."""
    flat = indices.reshape(-1).to(torch.int64)
    numbers = torch.arange(flat.numel(), device=flat.device)
    places = torch.full((size,), -1, dtype=torch.int64, device=flat.device)
    flat = torch.where(flat < 0, flat + size, flat)
    return places.scatter_reduce(0, flat, numbers, "amax")


def true_places(input, sizes=None):
    """Returns the row-major places where a mask is true."""
    return input.reshape(-1).nonzero().reshape(-1)


def nonzero(input):
    """Returns the places of the elements that are not 0, as an array [count, rank]."""
    return input.nonzero()


def scan(step, carries, xs, constants, ys, length, reverse):
    """Returns the last carries and the stacked outputs of `step(*carries, *places, *constants)`.

    `ys` has the shape, with the leading axis, and the dtype of each stacked output.
    """
    count = len(carries)
    device = next((x.device for x in (*carries, *xs, *constants)), None)
    places = [x.unbind(0) for x in xs]
    kept: list = [[] for _ in ys]
    for at in range(length - 1, -1, -1) if reverse else range(length):
        results = step(*carries, *(x[at] for x in places), *constants)
        carries = results[:count]
        for rows, row in zip(kept, results[count:], strict=True):
            rows.append(row)
    if length == 0:
        return (*carries, *(torch.empty(s, dtype=dtype, device=device) for s, dtype in ys))
    return (*carries, *(torch.stack(rows[::-1] if reverse else rows) for rows in kept))


def cond(taken, other, constants, predicate):
    """Returns the result of `taken` where the predicate holds, else that of `other`."""
    return (taken if bool(predicate) else other)(*constants)


def while_loop(condition, step, carries, constants):
    """Runs `step` while the condition holds; returns the carries for which it does not."""
    while bool(condition(*carries, *constants)[0]):
        carries = step(*carries, *constants)
    return tuple(carries)
