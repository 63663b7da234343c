"""Tells which derivatives of PyTorch are under way."""

from __future__ import annotations

import torch as _torch
from torch.autograd import forward_ad as _forward_ad


def is_transformed():
    """Tells whether torch.func transforms what runs, or forward derivatives are taken."""
    return _torch._C._are_functorch_transforms_active() or _forward_ad._current_level >= 0
