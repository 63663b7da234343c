"""MLX."""

from .backend import MlxBackend

MLXBackend = MlxBackend

__all__ = ["MLXBackend", "MlxBackend"]
