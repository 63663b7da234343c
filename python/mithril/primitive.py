"""Models whose op is a Python function."""

from mithril.models.primitive import Activation, CustomPrimitiveModel, PrimitiveModel

__all__ = ["Activation", "CustomPrimitiveModel", "PrimitiveModel"]
