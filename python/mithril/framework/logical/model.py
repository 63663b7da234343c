"""The original's import path for connections and requests to extend."""

from mithril.connection import Connection, ConnectionType, IOKey
from mithril.model import ExtendInfo, Model

__all__ = ["Connection", "ConnectionType", "ExtendInfo", "IOKey", "Model"]
