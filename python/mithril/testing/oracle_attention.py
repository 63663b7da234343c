"""Reference ops of attention, one head and one place at a time; see `oracle_ops.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Thinned = Callable[[np.ndarray], np.ndarray]


def _looks(query: int, key: int, offset: int, is_causal: bool) -> bool:
    return not is_causal or key <= query + offset


def scores(query, key, mask, bias, offset, is_causal, scale):
    """Returns the scores of one head: -inf where a query may not attend."""
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    out = np.zeros((len(query), len(key)))
    for i, q in enumerate(query):
        out[i] = np.array([scale * np.dot(q, k) for k in key])
        out[i] += 0.0 if bias is None else bias[i]
        seen = np.array([_looks(i, j, int(offset), is_causal) for j in range(len(key))], bool)
        if mask is not None and mask.dtype == bool:
            seen &= mask[i]
        elif mask is not None:
            out[i] += mask[i]
        out[i] = np.where(seen, out[i], -np.inf)
    return out


def weights(*given):
    """Returns the attention weights of one head: softmax over the keys that a query may attend."""
    out = scores(*given)
    for row in out:
        row[:] = np.exp(row - row.max(initial=-np.inf))
        row /= row.sum()
    return out


def _heads(find, query, key, attn_mask, bias, offset, is_causal, scale, enable_gqa):
    """(index, that of its keys, what `find` says of it) of each head; the keys of a group are those
    at the number of the group."""
    group = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    places = (*query.shape[:-1], key.shape[-2])
    spread = [None if m is None else np.broadcast_to(m, places) for m in (attn_mask, bias)]
    for at in np.ndindex(*query.shape[:-2]):
        of_key = (*at[:-1], at[-1] // group) if enable_gqa else at
        extra = [None if m is None else m[at] for m in spread]
        yield at, of_key, find(query[at], key[of_key], *extra, offset, is_causal, scale)


def attention(query, key, value, attn_mask=None, bias=None, offset=0, is_causal=False, scale=None,
              enable_gqa=False, use_attn_mask=False, use_bias=False,
              thinned: Thinned | None = None):  # fmt: skip
    """Computes attention, each head by itself."""
    q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
    heads = list(_heads(weights, q, k, attn_mask, bias, offset, is_causal, scale, enable_gqa))
    table = np.zeros((*q.shape[:-1], k.shape[-2]))
    for at, _, found in heads:
        table[at] = found
    table = table if thinned is None else thinned(table)
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    for at, of_key, _ in heads:
        out[at] = table[at] @ v[of_key]
    return out


def attention_with_logsumexp(query, key, value, attn_mask=None, bias=None, offset=0,
                             is_causal=False, scale=None, enable_gqa=False):  # fmt: skip
    options = (attn_mask, bias, offset, is_causal, scale, enable_gqa)
    sums = np.zeros(query.shape[:-1])
    for at, _, found in _heads(scores, query, key, *options):
        sums[at] = np.logaddexp.reduce(found, axis=-1)
    return attention(query, key, value, *options), sums


def attention_grad(query, key, value, attn_mask=None, bias=None, offset=0, output=None,
                   logsumexp=None, cotangent=None, is_causal=False, scale=None,
                   enable_gqa=False):  # fmt: skip
    return attention_grad_with_scores(
        query, key, value, attn_mask, bias, offset, output, logsumexp, cotangent,
        is_causal, scale, enable_gqa,
    )[:3]  # fmt: skip


def attention_grad_with_scores(query, key, value, attn_mask=None, bias=None, offset=0, output=None,
                               logsumexp=None, cotangent=None, is_causal=False, scale=None,
                               enable_gqa=False):  # fmt: skip
    """Computes the gradients by the Jacobian of a softmax, one query at a time."""
    dq, dk, dv = (np.zeros(x.shape) for x in (query, key, value))
    ds = np.zeros((*query.shape[:-1], key.shape[-2]))
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    options = (attn_mask, bias, offset, is_causal, scale, enable_gqa)
    for at, of_key, table in _heads(weights, query, key, *options):
        for i, p in enumerate(table):
            slope = value[of_key] @ cotangent[at][i]
            ds[at][i] = (np.diag(p) - np.outer(p, p)) @ slope
            dq[at][i] = factor * ds[at][i] @ key[of_key]
            dk[of_key] += factor * np.outer(ds[at][i], query[at][i])
            dv[of_key] += np.outer(p, cotangent[at][i])
    return dq, dk, dv, ds


def split_heads(input, num_heads):
    return np.stack(np.split(input, num_heads, -1), -3)


def merge_heads(input):
    return np.concatenate([input[..., h, :, :] for h in range(input.shape[-3])], -1)


def update_cache(cache, input, offset):
    out, first = np.array(cache, np.float64), int(offset)
    if first + input.shape[-2] > cache.shape[-2]:
        return np.full_like(out, np.nan)
    out[..., first : first + input.shape[-2], :] = input
    return out


def rotary_embedding(input, offset=0, theta=10000.0, interleaved=False, width=None,
                     max_len=131072):  # fmt: skip
    """Pairs as complex numbers, which a rotation multiplies."""
    x = np.array(input, np.float64)
    width = x.shape[-1] if width is None else width
    half = width // 2
    for place in range(x.shape[-2]):
        for pair in range(half):
            a, b = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + half)
            angle = (int(offset) + place) * theta ** (-2.0 * pair / width)
            turned = (x[..., place, a] + 1j * x[..., place, b]) * np.exp(1j * angle)
            x[..., place, a], x[..., place, b] = turned.real, turned.imag
    return x


def _slopes(heads):
    """Returns the slopes of ALiBi as its authors define them (Press et al., 2022)."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**i for i in range(heads)]
    lower = 2 ** math.floor(math.log2(heads))
    return _slopes(lower) + _slopes(2 * lower)[0::2][: heads - lower]


def alibi(query_places, key_places, offset=0, dtype=None, num_heads=1):
    distance = np.abs(int(offset) + np.arange(query_places)[:, None] - np.arange(key_places))
    return -np.array(_slopes(num_heads))[:, None, None] * distance


TABLE: dict[str, Callable[..., Any]] = {
    "attention": attention,
    "attention_with_logsumexp": attention_with_logsumexp,
    "attention_grad": attention_grad,
    "attention_grad_with_scores": attention_grad_with_scores,
    "plain_attention": attention,
    "split_heads": split_heads,
    "merge_heads": merge_heads,
    "update_cache": update_cache,
    "rotary_embedding": rotary_embedding,
    "alibi": alibi,
}

__all__ = ["TABLE", "attention"]
