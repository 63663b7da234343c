"""The name under which the documents have it."""

from mithril.backends.parallel import data_parallel

__all__ = ["data_parallel"]
