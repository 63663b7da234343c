"""Attention by PyTorch's own kernel, and step by step where that lacks a derivative.

The kernel of the CPU has a gradient, but none of its gradient and no forward derivative.
"""

from __future__ import annotations

import math as _math
import threading as _threading

import torch as _torch

from .scans import as_compute as _as_compute
from .transforms import is_transformed as _is_transformed


class _Wanted(_threading.local):
    one = False  # derivatives of the gradients that are made now are not asked for


wanted = _Wanted()


def plain_attention(query, key, value, is_causal=False, scale=None, enable_gqa=False):
    """Computes halves in float32: the kernel would round their weights."""
    q, k, v = (_as_compute(x) for x in (query, key, value))
    return _in_its_type(q, k, v, is_causal, scale, enable_gqa).to(query.dtype)


def _in_its_type(query, key, value, is_causal, scale, enable_gqa):
    if _suffices(query, key, value):
        scale = None if scale is None else float(scale)
        return _torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa
        )
    return _by_steps(query, key, value, is_causal, scale, enable_gqa)


def _suffices(query, key, value):
    """Tells whether the kernel can compute this and all its derivatives that may be needed."""
    if 0 in query.shape or 0 in key.shape:
        return False
    if _torch.compiler.is_compiling():
        return True
    if _is_transformed():
        return False
    if not _torch.is_grad_enabled() or wanted.one:
        return True
    return not (query.requires_grad or key.requires_grad or value.requires_grad)


def _by_steps(query, key, value, is_causal, scale, enable_gqa):
    if enable_gqa:
        group = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(group, -3) for x in (key, value))
    width = query.shape[-1]
    if scale is None:
        scale = width**-0.5 if width else _math.inf  # no features: 0 · inf
    scores = query @ key.mT * scale
    if is_causal:
        seen = _torch.ones(scores.shape[-2:], dtype=_torch.bool, device=scores.device).tril()
        scores = _torch.where(seen, scores, -_torch.inf)
    return _torch.softmax(scores, -1) @ value
