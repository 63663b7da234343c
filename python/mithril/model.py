"""Models, and what is wired in them."""

from mithril.logical.model import (
    NOT_GIVEN,
    TBD,
    Call,
    Connection,
    ConnectionType,
    ExtendInfo,
    IOKey,
    Model,
    Tensor,
)

__all__ = [
    "NOT_GIVEN",
    "TBD",
    "Call",
    "Connection",
    "ConnectionType",
    "ExtendInfo",
    "IOKey",
    "Model",
    "Tensor",
]
