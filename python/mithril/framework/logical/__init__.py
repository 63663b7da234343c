"""The original's import path for models and connections."""

from mithril.connection import Connection, ConnectionType, IOKey
from mithril.model import ExtendInfo, Model
from mithril.model import Model as BaseModel
from mithril.operator_model import OperatorModel
from mithril.operator_model import OperatorModel as Operator
from mithril.primitive import PrimitiveModel

__all__ = [
    "BaseModel",
    "Connection",
    "ConnectionType",
    "ExtendInfo",
    "IOKey",
    "Model",
    "Operator",
    "OperatorModel",
    "PrimitiveModel",
]
