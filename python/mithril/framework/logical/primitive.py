"""The original's import path for models that are one op, and for those of users."""

from mithril.models.operator_model import OperatorModel
from mithril.models.primitive import PrimitiveModel

__all__ = ["OperatorModel", "PrimitiveModel"]
