"""The name of before."""

from mithril.physical.model_function import ModelFunction

__all__ = ["ModelFunction"]
