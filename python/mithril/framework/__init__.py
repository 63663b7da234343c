"""The original's import paths for the logical layer; everything here is defined elsewhere."""

from mithril.logical.connection import NOT_GIVEN, TBD, Connection, ConnectionType, IOKey, Tensor
from mithril.logical.model import ExtendInfo, Model

__all__ = [
    "NOT_GIVEN",
    "TBD",
    "Connection",
    "ConnectionType",
    "ExtendInfo",
    "IOKey",
    "Model",
    "Tensor",
]
