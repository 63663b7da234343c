"""The original's import path for compiled models."""

from mithril.physical import PhysicalModel

__all__ = ["PhysicalModel"]
