"""The arrays of the C backend, which are NumPy's."""

from numpy import ndarray as PyArray  # noqa: N812

__all__ = ["PyArray"]
