"""CUDA: the engine's plans on a GPU of NVIDIA."""

from mithril.backends.with_manualgrad.cuda_backend.backend import CudaBackend

__all__ = ["CudaBackend"]
