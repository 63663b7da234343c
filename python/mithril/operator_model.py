"""Models of one op."""

from mithril.models.operator_model import KernelFirst, OperatorModel

__all__ = ["KernelFirst", "OperatorModel"]
