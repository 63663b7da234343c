"""Lets programs run that are written for other versions of a framework; only where asked."""

from . import mlx

__all__ = ["mlx"]
