"""Ops around attention, by PyTorch; see `torch_oracle.py`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


def scores(query, key, attn_mask, bias, offset, is_causal, scale, enable_gqa):
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    out = torch.einsum("...ld,...sd->...ls", query, key)
    out = out * (1.0 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if bias is not None:
        out = out + bias
    if is_causal:
        seen = torch.ones(out.shape[-2:], dtype=torch.bool).tril(int(offset))
        out = out.masked_fill(~seen, -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        out = out.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        out = out + attn_mask
    return out


def weights(*given):
    return torch.softmax(scores(*given), -1)


def attention(query, key, value, attn_mask=None, bias=None, offset=0, is_causal=False, scale=None,
              enable_gqa=False, use_attn_mask=False, use_bias=False,
              thinned: Callable[..., Any] | None = None):  # fmt: skip
    q, k, v = (torch.as_tensor(x).to(torch.float64) for x in (query, key, value))
    table = weights(q, k, attn_mask, bias, offset, is_causal, scale, enable_gqa)
    if enable_gqa:
        v = v.repeat_interleave(q.shape[-3] // k.shape[-3], -3)
    return torch.einsum("...ls,...sv->...lv", table if thinned is None else thinned(table), v)


def attention_with_logsumexp(query, key, value, attn_mask=None, bias=None, offset=0,
                             is_causal=False, scale=None, enable_gqa=False):  # fmt: skip
    options = (attn_mask, bias, offset, is_causal, scale, enable_gqa)
    sums = torch.logsumexp(scores(query, key, *options), -1)
    return attention(query, key, value, *options), sums


def attention_grad(query, key, value, attn_mask=None, bias=None, offset=0, output=None,
                   logsumexp=None, cotangent=None, is_causal=False, scale=None,
                   enable_gqa=False):  # fmt: skip
    """As PyTorch differentiates the formula, so that it may do so again."""
    options = (attn_mask, bias, offset, is_causal, scale, enable_gqa)
    with torch.enable_grad():
        leaves = [x if x.requires_grad else x.requires_grad_() for x in (query, key, value)]
        out = attention(*leaves, *options)
        return torch.autograd.grad(out, leaves, cotangent, create_graph=True)


def attention_grad_with_scores(query, key, value, attn_mask=None, bias=None, offset=0, output=None,
                               logsumexp=None, cotangent=None, is_causal=False, scale=None,
                               enable_gqa=False):  # fmt: skip
    given = (offset, output, logsumexp, cotangent, is_causal, scale, enable_gqa)
    first = attention_grad(query, key, value, attn_mask, bias, *given)
    with torch.enable_grad():
        none = torch.zeros((*query.shape[:-1], key.shape[-2]), dtype=torch.float64)
        added = none if bias is None else bias + none
        added = added if added.requires_grad else added.requires_grad_()
        options = (attn_mask, added, offset, is_causal, scale, enable_gqa)
        out = attention(query, key, value, *options)
        return *first, *torch.autograd.grad(out, added, cotangent, create_graph=True)


def split_heads(input, num_heads):
    return input.unflatten(-1, (num_heads, input.shape[-1] // num_heads)).transpose(-2, -3)


def update_cache(cache, input, offset):
    first, count = int(offset), input.shape[-2]
    if first + count > cache.shape[-2]:
        return torch.full_like(cache, torch.nan)
    return torch.cat([cache[..., :first, :], input, cache[..., first + count :, :]], -2)


def rotary_embedding(input, offset=0, theta=10000.0, interleaved=False, width=None,
                     max_len=131072):  # fmt: skip
    """By a matrix for each place."""
    width = input.shape[-1] if width is None else width
    matrices = []
    for place in range(input.shape[-2]):
        matrix = np.eye(input.shape[-1])
        for pair in range(width // 2):
            a, b = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + width // 2)
            angle = (int(offset) + place) / theta ** (2.0 * pair / width)
            matrix[[a, a, b, b], [a, b, a, b]] = (
                np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)
            )  # fmt: skip
        matrices.append(matrix)
    if not matrices:
        return input
    return torch.einsum("lij,...lj->...li", torch.as_tensor(np.stack(matrices)), input)


TABLE: dict[str, Callable[..., Any]] = {
    "attention": attention,
    "attention_with_logsumexp": attention_with_logsumexp,
    "attention_grad": attention_grad,
    "attention_grad_with_scores": attention_grad_with_scores,
    "plain_attention": attention,
    "split_heads": split_heads,
    "merge_heads": lambda input: input.transpose(-2, -3).flatten(-2),
    "update_cache": update_cache,
    "rotary_embedding": rotary_embedding,
}

__all__ = ["TABLE", "attention"]
