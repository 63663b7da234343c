"""Attention by MLX's own function, and step by step for float64, which that computes in float32."""

from __future__ import annotations

import math as _math

import mlx.core as _mx

from .scans import softmax as _softmax
from .special import in_wide as _in_wide


def plain_attention(query, key, value, is_causal=False, scale=None, enable_gqa=False):
    shape = [*query.shape[:-1], value.shape[-1]]
    if 0 in shape or 0 in key.shape:  # no places: sums of nothing; no features: 0 · inf
        return _mx.full(shape, _math.nan if query.shape[-1] == 0 else 0.0, query.dtype)
    scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
    q, k, v = (_as_heads(x) for x in (query, key, value))
    attend = _by_steps if q.dtype == _mx.float64 else _fast
    mask = _seen(q.shape[-2], k.shape[-2]) if is_causal else None
    return attend(q, k, v, scale=scale, mask=mask).reshape(shape)


@_in_wide
def _fast(query, key, value, scale, mask):
    return _mx.fast.scaled_dot_product_attention(query, key, value, scale=scale, mask=mask)


def _as_heads(x):
    """[batch, heads, places, features]: what the function takes."""
    return x.reshape(-1, x.shape[-3] if x.ndim > 2 else 1, *x.shape[-2:])


def _seen(queries, keys):
    """The function's own causal mask is aligned at the last places, not the first."""
    return _mx.arange(queries)[:, None] >= _mx.arange(keys)


def _by_steps(query, key, value, scale, mask):
    group = query.shape[1] // key.shape[1]
    key, value = (_mx.repeat(x, group, 1) if group > 1 else x for x in (key, value))
    scores = query @ key.swapaxes(-1, -2) * _mx.array(scale, query.dtype)
    if mask is not None:
        scores = _mx.where(mask, scores, _mx.array(-_math.inf, query.dtype))
    return _softmax(scores, -1) @ value
