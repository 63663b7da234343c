"""A language model of GPT-2's form; it is one of `mithril.models`."""

from mithril.models.gpt import create_gpt

__all__ = ["create_gpt"]
