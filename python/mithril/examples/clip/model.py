"""Images and texts in one space; the model is one of `mithril.models`."""

from mithril.models.clip_model import clip

__all__ = ["clip"]
