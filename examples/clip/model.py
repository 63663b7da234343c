"""As `mithril.examples.clip.model`."""

from mithril.examples.clip.model import clip

__all__ = ["clip"]
