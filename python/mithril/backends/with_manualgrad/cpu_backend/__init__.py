"""The engine's own CPU backend."""

from mithril.backends.with_manualgrad.cpu_backend.backend import CpuBackend

__all__ = ["CpuBackend"]
