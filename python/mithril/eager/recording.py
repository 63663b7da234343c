"""Methods of backends on connections: the op is recorded, as `ml.Lambda` wants it."""

from __future__ import annotations

import sys
from typing import Any

from mithril import _core
from mithril.errors import KeyNotFound, TraceError
from mithril.logical.connection import apply_op


def is_symbolic(value: Any) -> bool:
    """Whether it is a connection, or a tuple or list with one in it."""
    if isinstance(value, tuple | list):
        return any(map(is_symbolic, value))
    # Nobody has a connection before its module is there.
    module = sys.modules.get("mithril.logical.connection")
    return module is not None and isinstance(value, module.Connection)


def record(op: str, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """The op on connections."""

    try:
        known = _core.find_op(op_of(op))
    except KeyNotFound:
        raise TraceError(
            f"{op}: is no op that a model can hold, so it cannot be recorded"
        ) from None
    return apply_op(known["name"], *operands, **attributes)


def rank_of(what: str, wire: Any) -> int:
    """Of a connection whose shape was given with it."""
    shape = (wire._fields or (None,) * 4)[3]
    if shape is None or any(isinstance(size, tuple) or size is ... for size in shape):
        raise TraceError(f"{what}: on a connection requires a key with a known number of axes")
    return len(shape)


def op_of(function: str) -> str:
    """The op that a function of a backend's table is."""
    return _OPS.get(function, function)


# Functions of backends that are called otherwise than the ops.
_OPS = {
    "remainder": "mod",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}
