"""The original's import path for leaves: here, a model that is one op."""

from mithril.models.operator_model import OperatorModel as Operator

__all__ = ["Operator"]
