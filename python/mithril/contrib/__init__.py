"""Backends and tools for hardware that the project's own tests cannot reach."""

from . import tpu

__all__ = ["tpu"]
