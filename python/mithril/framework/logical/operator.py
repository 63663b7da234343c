"""The original's import path for leaves: here, a model that is one op."""

from mithril.operator_model import OperatorModel as Operator

__all__ = ["Operator"]
