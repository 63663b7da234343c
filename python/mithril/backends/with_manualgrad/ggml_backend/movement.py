"""Ops that move elements, and sums along axes: what ggml computes of them itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mithril.backends.indexing import reduced_axes

from ..numpy_backend import ops as numpy_ops
from .graph import FLOAT, Node
from .library import DIMENSIONS
from .operands import as_op, is_float, native, repeated, reshape, trace_of
from .products import swapped

# ---------------------------------------------------------------------------------- no copies


def _same(input, *_: Any, **__: Any):
    return input


for _name in ("stop_gradient", "buffer"):
    as_op(_name, _same)


@native
def after(input, token):
    return input if isinstance(input, Node) else NotImplemented


def _to(input: Any, shape: Sequence[int]) -> Any:
    if not isinstance(input, Node) or math.prod(shape) != input.size:
        return NotImplemented
    return reshape(input, shape)


@as_op("reshape")
def _reshape(input, shape):
    if not isinstance(input, Node):
        return NotImplemented
    rest = math.prod(n for n in shape if n != -1)
    return _to(input, [input.size // rest if n == -1 else n for n in shape])


def _shape_of(function: str) -> None:
    """Ops whose result is what NumPy makes of the shape."""

    def op(input, *args, **kwargs):
        if not isinstance(input, Node):
            return NotImplemented
        like = np.broadcast_to(np.zeros((), np.int8), input.shape)
        return _to(input, getattr(numpy_ops, function)(like, *args, **kwargs).shape)

    as_op(function, op)


for _name in ("flatten", "squeeze", "expand_dims", "drop_axes"):
    _shape_of(_name)


# ------------------------------------------------------------------------------------- copies


@native
def transpose(input, axes=None):
    if not is_float(input):
        return NotImplemented
    found = _axes(input, axes or range(input.ndim)[::-1])
    if found is None or len(found) != input.ndim:
        return NotImplemented
    return _permuted(input, found)


@native
def swapaxes(input, axis1, axis2):
    if not is_float(input):
        return NotImplemented
    axes = list(range(input.ndim))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return _permuted(input, tuple(axes))


def _permuted(input: Node, axes: tuple[int, ...]) -> Any:
    rank = input.ndim
    if axes == tuple(range(rank)):
        return input
    if rank > 1 and axes == (*range(rank - 2), rank - 1, rank - 2):
        return swapped(input)
    shape = tuple(input.shape[axis] for axis in axes)
    blocks = _blocks(input.shape, axes)
    if len(blocks) > DIMENSIONS:
        return NotImplemented
    old = sorted(range(len(blocks)), key=lambda i: blocks[i][0])  # blocks in the input's order
    sizes = [math.prod(input.shape[a] for a in blocks[i]) for i in old]
    tensor = _copied(input, sizes, [old.index(i) for i in range(len(blocks))])
    return reshape(
        Node(input.trace, tensor, [sizes[old.index(i)] for i in range(len(blocks))]), shape
    )


def _blocks(shape: Sequence[int], axes: Sequence[int]) -> list[list[int]]:
    """Axes of the result in runs that stay together; those of size 1 go with any."""
    blocks: list[list[int]] = []
    for axis in (a for a in axes if shape[a] != 1):
        before = blocks[-1][-1] if blocks else -2
        together = blocks and all(shape[a] == 1 for a in range(before + 1, axis)) and before < axis
        if together:
            blocks[-1].append(axis)
        else:
            blocks.append([axis])
    return blocks or [[0]]


def _copied(input: Node, sizes: Sequence[int], axes: Sequence[int]) -> int:
    """A copy whose axis i is axis axes[i] of the input seen with these sizes."""
    rank = len(sizes)
    order = [rank - 1 - axes[rank - 1 - i] for i in range(rank)]
    ne = (*sizes[::-1], *[1] * (DIMENSIONS - rank))
    return input.trace.permuted(input, (*order, *range(rank, DIMENSIONS)), ne)


def _broadcast(input: Any, shape: Sequence[int]) -> Any:
    if not is_float(input) or 0 in shape:
        return NotImplemented
    np.broadcast_shapes(input.shape, tuple(shape))
    made = repeated(input.trace, input, tuple(shape))
    return NotImplemented if made is None else made


@native
def broadcast_to(input, shape):
    return _broadcast(input, shape)


@native
def broadcast_like(input, like):
    return _broadcast(input, like.shape) if isinstance(input, Node) else NotImplemented


_MOST_PADDING = 2**31  # ggml counts it in 32 bits
_MOST_PIECES = 8  # each one is another copy of those before it


@native
def concat(input, axis=0):
    if not all(map(is_float, input)) or len(input) > _MOST_PIECES or axis is None:
        return NotImplemented
    trace = trace_of(*input)
    pieces = [trace.lift(x) for x in input]
    shape = pieces[0].shape
    if not -len(shape) <= axis < len(shape):
        return NotImplemented
    axis %= len(shape)
    if len({(*x.shape[:axis], *x.shape[axis + 1 :], x.ndim) for x in pieces}) > 1:
        return NotImplemented
    before, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    joined_, count = None, 0
    for piece in pieces:
        source = trace.reshaped(piece, (behind, piece.shape[axis], before, 1))
        count += piece.shape[axis]
        if joined_ is None:
            joined_ = source
        else:
            joined_ = trace.lib.concat(trace.context, joined_, source, 1)
            trace.order.append(joined_)
    return reshape(
        Node(trace, joined_, (before, count, behind)), (*shape[:axis], count, *shape[axis + 1 :])
    )


@native
def pad(input, pad_width, mode="constant", value=0.0):
    if mode != "constant" or value != 0:
        return NotImplemented
    if not is_float(input) or not 0 < input.ndim <= DIMENSIONS:
        return NotImplemented
    widths = np.broadcast_to(np.asarray(pad_width), (input.ndim, 2)).tolist()
    if any(not 0 <= width < _MOST_PADDING for pair in widths for width in pair):
        return NotImplemented
    return padded(input, widths)


def padded(input: Node, widths: Sequence[Sequence[int]]) -> Node:
    """Zeros around an array of at most four axes."""
    numbers = [width for pair in widths[::-1] for width in pair]
    numbers += [0] * (2 * DIMENSIONS - len(numbers))
    tensor = input.trace.lib.pad_ext(input.trace.context, input.tensor, *numbers)
    shape = [a + n + b for n, (a, b) in zip(input.shape, widths, strict=True)]
    return input.trace.made(tensor, shape)


# ------------------------------------------------------------------------------------- places


@native
def index(input, items=(), /, *, index=None):
    """Slices, as a view that is copied."""
    if len(items) == 0 and index is not None:
        items = index if isinstance(index, tuple) else (index,)
    items = tuple(items)
    if not is_float(input) or not all(map(_is_basic, items)):
        return NotImplemented
    base = np.zeros(1, np.float32)
    whole = np.lib.stride_tricks.as_strided(
        base, input.shape, np.cumprod([4, *input.shape[:0:-1]])[::-1][: input.ndim]
    )
    view = whole[items if Ellipsis in items else (*items, ...)]  # numbers alone would read elements
    if view.size == 0 or view.ndim > DIMENSIONS or any(n < 0 for n in view.strides):
        return NotImplemented
    offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return _viewed(input, view, offset)


def _is_basic(item: Any) -> bool:
    if isinstance(item, slice):
        return all(x is None or isinstance(x, int) for x in (item.start, item.stop, item.step))
    return item is None or item is Ellipsis or isinstance(item, int) and not isinstance(item, bool)


def _viewed(input: Node, view: np.ndarray, offset: int) -> Any:
    """A copy of a view, given as an array with its shape and strides."""
    axes = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n > 1]
    if not axes or axes[-1][1] != FLOAT.itemsize:
        axes.append((1, FLOAT.itemsize))
    if len(axes) > DIMENSIONS:
        return NotImplemented
    counts, strides = zip(*axes[::-1], strict=True)
    trace, missing = input.trace, DIMENSIONS - len(axes)
    end = strides[-1] * counts[-1]
    tensor = trace.lib.view_4d(
        trace.context, input.tensor, *counts, *[1] * missing, *strides[1:], *[end] * missing, offset
    )
    copy = trace.lib.cont(trace.context, tensor)
    return reshape(trace.made(copy, counts[::-1]), view.shape)


# --------------------------------------------------------------------------------------- sums


def _axes(input: Any, axis: Any) -> tuple[int, ...] | None:
    """Axes from 0 on; None for what are no different axes of the array."""
    try:
        return reduced_axes(input, axis)
    except ValueError:
        return None


def _reduced(function: str, input: Any, axis: Any, keepdim: bool) -> Any:
    """A function of ggml over rows, which reduced axes are brought to."""
    if not is_float(input):
        return NotImplemented
    found = _axes(input, axis)
    if found is None:
        return NotImplemented
    axes = sorted(found)
    kept = [a for a in range(input.ndim) if a not in axes]
    rows = _permuted(input, (*kept, *axes))
    if rows is NotImplemented:
        return NotImplemented
    trace, count = input.trace, math.prod(input.shape[a] for a in axes)
    source = trace.reshaped(rows, (count, input.size // count, 1, 1))
    made = trace.made(getattr(trace.lib, function)(trace.context, source), (input.size // count, 1))
    shape = [1 if a in axes else n for a, n in enumerate(input.shape)]
    return reshape(made, shape if keepdim else [input.shape[a] for a in kept])


@native
def sum(input, axis=None, keepdim=False):
    return _reduced("sum_rows", input, axis, keepdim)


@native
def mean(input, axis=None, keepdim=False):
    return _reduced("mean", input, axis, keepdim)


@native
def reduce_sum(x, axis, keepdim):
    return _reduced("sum_rows", x, axis, keepdim)


@native
def sum_to(input, like):
    """Sums what broadcasting has repeated."""
    if not is_float(input):
        return NotImplemented
    shape = like.shape
    lead = input.ndim - len(shape)
    ones = (i + lead for i, n in enumerate(shape) if n == 1 and input.shape[i + lead] != 1)
    axes = (*range(lead), *ones)
    if not axes:
        return input
    found = _reduced("sum_rows", input, axes, False)
    return found if found is NotImplemented else reshape(found, shape)
