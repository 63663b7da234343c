"""`Lambda`: a model of a function of the user's."""

from mithril.models.tracing import Lambda, OpaqueLambda

__all__ = ["Lambda", "OpaqueLambda"]
