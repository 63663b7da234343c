"""OpenCL: the engine's plans on a device, GPU or CPU."""

from mithril.backends.with_manualgrad.opencl_backend.backend import OpenCLBackend

__all__ = ["OpenCLBackend"]
