"""The name of before."""

from mithril.physical.initial import Uninitialized

__all__ = ["Uninitialized"]
