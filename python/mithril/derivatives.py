"""Derivatives as models: `grad` and `hvp`."""

from mithril.models.derivatives import grad, hvp

__all__ = ["grad", "hvp"]
