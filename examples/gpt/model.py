"""As `mithril.examples.gpt.model`."""

from mithril.examples.gpt.model import create_gpt

__all__ = ["create_gpt"]
