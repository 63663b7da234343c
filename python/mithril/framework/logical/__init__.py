"""The original's import path for models and connections."""

from mithril.logical.connection import Connection, ConnectionType, IOKey
from mithril.logical.model import ExtendInfo, Model
from mithril.logical.model import Model as BaseModel
from mithril.models.operator_model import OperatorModel
from mithril.models.operator_model import OperatorModel as Operator
from mithril.models.primitive import PrimitiveModel

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
