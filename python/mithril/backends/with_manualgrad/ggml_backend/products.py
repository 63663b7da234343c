"""Products of matrices: ggml multiplies rows by rows, so the right operand is read transposed."""

from __future__ import annotations

import math

import numpy as np

from .graph import Node, Trace
from .operands import is_float, native, repeated, reshape, trace_of
from .pointwise import add
from .quantize import Weight, in_blocks

_FEW_ROWS = 8  # up to that, turning the left operand costs less than turning the right one


@native
def linear(weight, input, bias=None, dimension=None, use_bias=True):
    operands = (weight, input) if bias is None else (weight, input, bias)
    if not all(map(is_float, operands)) or len(weight.shape) != 2:
        return NotImplemented
    if input.shape[-1:] != weight.shape[1:]:  # NumPy's function says so
        return NotImplemented
    trace = trace_of(*operands)
    out = by_rows(trace, trace.lift(weight), trace.lift(input))
    return out if bias is None else add(out, bias)


@native
def matmul(left, right):
    if not is_float(left) or not is_float(right):
        return NotImplemented
    if len(left.shape) < 2 or len(right.shape) < 2 or left.shape[-1] != right.shape[-2]:
        return NotImplemented
    trace = trace_of(left, right)
    if isinstance(right, np.ndarray):  # turned once
        right = swapped(trace.lift(np.ascontiguousarray(np.swapaxes(right, -1, -2))))
    left, right = trace.lift(left), trace.lift(right)
    if right.ndim == 2 and (left.swapped is None or left.ndim > 2):
        return _by_matrix(trace, left, right)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    if left.shape[:-2] != batch:
        left = repeated(trace, left, (*batch, *left.shape[-2:]))
    if len(batch) > 2 and right.shape[:-2] != batch:
        right = repeated(trace, right, (*batch, *right.shape[-2:]))
    if left is None or right is None:
        return NotImplemented
    return _batched(trace, left, right, batch)


def swapped(node: Node) -> Node:
    """The last two axes the other way round, which is not computed before it is needed."""
    if node.swapped is not None:
        return node.swapped
    shape = (*node.shape[:-2], node.shape[-1], node.shape[-2])
    made = Node(node.trace, None, shape, node.dtype)
    made.swapped = node
    return made


def by_rows(trace: Trace, weight: Node, rows: Node) -> Node:
    """rows [..., k] times weight [n, k]: the products [..., n]."""
    return _by_rows(trace, weight.tensor, in_blocks(trace, weight), weight.shape[0], rows)


def _by_rows(trace: Trace, weight: int, blocks: Weight | None, n: int, rows: Node) -> Node:
    count = math.prod(rows.shape[:-1])
    source = trace.reshaped(rows, (rows.shape[-1], count, 1, 1))
    if blocks is None:
        product = trace.lib.mul_mat(trace.context, weight, source)
    else:
        product = blocks.guarded(trace, source, count)
    return reshape(trace.made(product, (count, n)), (*rows.shape[:-1], n))


def _by_matrix(trace: Trace, left: Node, right: Node) -> Node:
    """left [..., k] times right [k, n]."""
    if right.swapped is not None:
        return by_rows(trace, right.swapped, left)
    blocks = in_blocks(trace, right, is_turned=True) if right.source is not None else None
    if blocks is not None:
        return _by_rows(trace, right.tensor, blocks, right.shape[1], left)
    count = math.prod(left.shape[:-1])
    if count < _FEW_ROWS:
        flat = reshape(left, (count, left.shape[-1]))
        turned = trace.permuted(flat, (1, 0, 2, 3))
        product = trace.lib.out_prod(trace.context, right.tensor, turned)
        return reshape(
            trace.made(product, (count, right.shape[1])), (*left.shape[:-1], right.shape[1])
        )
    return by_rows(trace, Node(trace, swapped(right).tensor, right.shape[::-1]), left)


def _batched(trace: Trace, left: Node, right: Node, batch: tuple[int, ...]) -> Node:
    """Products of equal batches, or of one matrix on the right."""
    shape = (*batch, left.shape[-2], right.shape[-1])
    if left.swapped is not None and right.swapped is None:
        operands = _four(trace, right, batch), _four(trace, left.swapped, batch)
        product = trace.lib.out_prod(trace.context, *operands)
    else:
        operands = _four(trace, swapped(right), batch), _four(trace, left, batch)
        product = trace.lib.mul_mat(trace.context, *operands)
    return reshape(trace.made(product, _folded(shape, batch)), shape)


def _folded(shape: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...]:
    return (math.prod(batch), *shape[-2:]) if len(batch) > 2 else shape


def _four(trace: Trace, node: Node, batch: tuple[int, ...]) -> int:
    """The tensor with a joined batch where there are more axes than two."""
    rows, columns = node.shape[-2:]
    if len(batch) > 2:
        return trace.reshaped(node, (columns, rows, math.prod(batch), 1))
    return node.tensor
