"""Wires of models: `Connection`, also `IOKey`."""

from mithril.logical.connection import (
    NOT_GIVEN,
    TBD,
    Connection,
    ConnectionType,
    IOKey,
    SignatureError,
    Tensor,
)

__all__ = [
    "NOT_GIVEN",
    "TBD",
    "Connection",
    "ConnectionType",
    "IOKey",
    "SignatureError",
    "Tensor",
]
