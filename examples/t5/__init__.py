"""As `mithril.examples.t5`."""

from mithril.examples.t5 import T5_CONFIGS, t5_decode, t5_encode

__all__ = ["T5_CONFIGS", "t5_decode", "t5_encode"]
