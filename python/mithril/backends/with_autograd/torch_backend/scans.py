"""What runs along one axis, as emitted programs call it: recurrences and orders."""

from __future__ import annotations

import torch


def as_compute(x):
    """float16 and bfloat16 as float32; anything else as it is."""
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
    """NaN as the largest."""
    return torch.sort(input, dim=axis, descending=descending, stable=stable).indices


def last_writers(indices, size):
    """The number of the last index that names each place, or -1."""
    flat = indices.reshape(-1).to(torch.int64)
    numbers = torch.arange(flat.numel(), device=flat.device)
    places = torch.full((size,), -1, dtype=torch.int64, device=flat.device)
    flat = torch.where(flat < 0, flat + size, flat)
    return places.scatter_reduce(0, flat, numbers, "amax")


def true_places(input, sizes=None):
    """The row-major places where a mask is true."""
    return input.reshape(-1).nonzero().reshape(-1)


def nonzero(input):
    """[count, rank]: the places of what is not 0."""
    return input.nonzero()


def scan(step, carries, xs, constants, ys, length, reverse):
    """The last carries, and what `step(*carries, *places, *constants)` gives beside new ones.

    `ys` has the shape and dtype of each of these, with its leading axis of places.
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
    """What the one of two functions makes that the predicate chooses."""
    return (taken if bool(predicate) else other)(*constants)


def while_loop(condition, step, carries, constants):
    """The first carries for which the condition does not hold."""
    while bool(condition(*carries, *constants)[0]):
        carries = step(*carries, *constants)
    return tuple(carries)
