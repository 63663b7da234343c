"""Rows of tables by number. ggml aborts at a number out of bounds: ours are checked first."""

from __future__ import annotations

import math

import numpy as np

from ..numpy_backend.utils import checked
from .graph import Node, Trace
from .operands import is_float, native, reshape, trace_of

_MOST_ROWS = 2**31 - 1


def _row_numbers(indices, length):
    """Numbers from 0 on, in 32 bits."""
    found = checked(indices, length)
    return np.where(found < 0, found + length, found).astype(np.int32)


@native
def gather(input, indices):
    if not is_float(input) or len(input.shape) < 1 or input.shape[0] > _MOST_ROWS:
        return NotImplemented
    if 0 in indices.shape or indices.dtype.kind not in "iu":
        return NotImplemented
    trace = trace_of(input, indices)
    table = trace.lift(input)
    width, count = math.prod(table.shape[1:]), math.prod(indices.shape)
    tensor = trace.lib.get_rows(
        trace.context,
        trace.reshaped(table, (width, table.shape[0], 1, 1)),
        _numbers(trace, indices, table.shape[0], count),
    )
    return reshape(trace.made(tensor, (count, width)), (*indices.shape, *table.shape[1:]))


def _numbers(trace: Trace, indices, length: int, count: int) -> int:
    if not isinstance(indices, Node):
        return trace.reshaped(trace.lift(_row_numbers(indices, length)), (count, 1, 1, 1))
    like = np.broadcast_to(np.int32(0), indices.shape)
    numbers = trace.custom("row_numbers", _row_numbers, (indices, length), {}, like)
    # Memory of its own always holds numbers that are in bounds, also where the check has failed.
    trace.constants[numbers.tensor] = (None, np.zeros(indices.shape, np.int32))
    return trace.reshaped(numbers, (count, 1, 1, 1))


@native
def embedding(input, weight, num_embeddings=None, dim=None):
    return gather(weight, input)
