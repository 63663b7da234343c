"""T5, an encoder and a decoder; they are models of `mithril.models`."""

from mithril.models.t5 import T5_CONFIGS, t5_decode, t5_encode

__all__ = ["T5_CONFIGS", "t5_decode", "t5_encode"]
