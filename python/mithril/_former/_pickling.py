"""The functions of before: those that pickles of version 0.1 call."""

from __future__ import annotations

from typing import Any

from mithril.backends.pickling import backend_of as _backend
from mithril.logical.connection import connection_of as _connection
from mithril.logical.pickling import model_of as _model
from mithril.physical.pickling import physical_of

_OF_CALLS = ("item_shapes", "values", "await_values")


def _physical(cls: Any, text: str, settings: dict[str, Any], options: dict[str, Any]) -> Any:
    """There were two records of options."""
    own = {name: value for name, value in options.items() if name not in _OF_CALLS}
    return physical_of(cls, text, {**own, **settings})


__all__ = ["_backend", "_connection", "_model", "_physical"]
