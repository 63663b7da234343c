"""PyTorch."""

from .backend import TorchBackend

__all__ = ["TorchBackend"]
