"""CLIP: `mithril.examples.clip.model`."""
