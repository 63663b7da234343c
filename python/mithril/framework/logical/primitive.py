"""The original's import path for models that are one op, and for those of users."""

from mithril.operator_model import OperatorModel
from mithril.primitive import PrimitiveModel

__all__ = ["OperatorModel", "PrimitiveModel"]
