"""C: models as C99 text, which the system's compiler makes to machine code."""

from mithril.backends.with_manualgrad.c_backend.backend import CBackend

__all__ = ["CBackend"]
