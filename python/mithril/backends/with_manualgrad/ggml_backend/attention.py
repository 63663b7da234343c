"""Attention by ggml's flash kernel."""

from __future__ import annotations

import math

import numpy as np

from ..numpy_backend.utils import as_compute
from .graph import Node, Trace
from .operands import is_float, native, reshape, trace_of


def _default_scale(width):
    return width**-0.5 if width else math.inf  # no features: 0 · inf


def _plain_attention(query, key, value, is_causal=False, scale=None, enable_gqa=False):
    if enable_gqa:
        group = query.shape[-3] // key.shape[-3]
        key, value = (np.repeat(x, group, -3) for x in (key, value))
    q, k, v = (as_compute(x) for x in (query, key, value))
    scale = _default_scale(q.shape[-1]) if scale is None else scale
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * scale
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - np.max(scores, -1, keepdims=True, initial=-np.inf))
    weights = weights / np.sum(weights, -1, keepdims=True)
    return np.matmul(weights, v).astype(query.dtype, copy=False)


composites = {"plain_attention": _plain_attention}


@native
def plain_attention(query, key, value, is_causal=False, scale=None, enable_gqa=False):
    operands = (query, key, value)
    if not all(map(is_float, operands)) or not _fits(*operands, scale, enable_gqa):
        return NotImplemented
    trace = trace_of(*operands)
    q, k, v = (_heads(trace.lift(x)) for x in operands)
    scale = _default_scale(query.shape[-1]) if scale is None else float(scale)
    mask = _mask(trace, q.shape[-2], k.shape[-2]) if is_causal else None
    lib = trace.lib
    tensor = lib.flash_attn_ext(trace.context, q.tensor, k.tensor, v.tensor, mask, scale, 0.0, 0.0)
    n, heads, places, _ = q.shape
    made = trace.made(tensor, (n, places, heads, v.shape[-1]))
    turned = trace.permuted(made, (0, 2, 1, 3))  # to [n, heads, places, width]
    return reshape(
        Node(trace, turned, (n, heads, places, v.shape[-1])), (*query.shape[:-1], v.shape[-1])
    )


def _fits(query, key, value, scale, enable_gqa) -> bool:
    if scale is not None and not isinstance(scale, int | float):
        return False
    rank = len(query.shape)
    if not 2 + enable_gqa <= rank <= 4 or {len(key.shape), len(value.shape)} != {rank}:
        return False
    lead = query.shape[: -3 if enable_gqa else -2]
    same_lead = key.shape[: len(lead)] == value.shape[: len(lead)] == lead
    same_heads = key.shape[:-1] == value.shape[:-1]
    return (
        same_lead
        and same_heads
        and key.shape[-1] == query.shape[-1]
        and (not enable_gqa or query.shape[-3] % key.shape[-3] == 0)
    )


def _heads(node: Node) -> Node:
    """[n, heads, places, width]."""
    return reshape(node, (*[1] * (4 - node.ndim), *node.shape))


def _mask(trace: Trace, queries: int, keys: int) -> int:
    """Returns the causal mask to add to the scores: -inf where a key is later than the query."""
    mask = np.where(np.tri(queries, keys) > 0, 0.0, -math.inf).astype(np.float16)
    return trace.lift(mask).tensor
