"""NumPy: the readable implementation."""

from .backend import NumpyBackend

__all__ = ["NumpyBackend"]
