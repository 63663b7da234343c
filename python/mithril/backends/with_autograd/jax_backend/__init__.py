"""JAX."""

from .backend import JaxBackend

__all__ = ["JaxBackend"]
