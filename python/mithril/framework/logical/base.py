"""The original's names for the keys that op definitions use: connections, here."""

from mithril.logical.connection import Connection as BaseKey
from mithril.logical.connection import Connection as ConnectionData

__all__ = ["BaseKey", "ConnectionData"]
