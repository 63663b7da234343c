"""ggml: its graphs on the CPU, with our kernels as nodes where it has none."""

from .backend import GGMLBackend

__all__ = ["GGMLBackend"]
