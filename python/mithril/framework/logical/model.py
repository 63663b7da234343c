"""The original's import path for connections and requests to extend."""

from mithril.logical.connection import Connection, ConnectionType, IOKey
from mithril.logical.model import ExtendInfo, Model

__all__ = ["Connection", "ConnectionType", "ExtendInfo", "IOKey", "Model"]
