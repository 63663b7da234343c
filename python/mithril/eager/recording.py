"""Records the ops of backend methods that are called on connections, for `ml.Lambda`."""

from __future__ import annotations

import sys
from typing import Any

from mithril import _core
from mithril.errors import KeyNotFound, TraceError
from mithril.logical.connection import apply_op, spec_of


def is_symbolic(value: Any) -> bool:
    """Tells whether a value is a connection, or a tuple or list that contains one."""
    if isinstance(value, tuple | list):
        return any(map(is_symbolic, value))
    # Nobody has a connection before its module is there.
    module = sys.modules.get("mithril.logical.connection")
    return module is not None and isinstance(value, module.Connection)


def record(op: str, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    """Applies an op to connections; returns the connection of its result."""

    try:
        known = _core.find_op(op_of(op))
    except KeyNotFound:
        raise TraceError(
            f"{op}: is no op that a model can hold, so it cannot be recorded"
        ) from None
    return apply_op(known["name"], *operands, **attributes)


def rank_of(what: str, wire: Any) -> int:
    """Returns the number of axes of a connection; raises TraceError if no shape was given."""
    shape = (spec_of(wire) or (None,) * 4)[3]
    if shape is None or any(isinstance(size, tuple) or size is ... for size in shape):
        raise TraceError(f"{what}: on a connection requires a key with a known number of axes")
    return len(shape)


def op_of(function: str) -> str:
    """Returns the name of the op that a function of a backend computes."""
    return _OPS.get(function, function)


# Functions of backends that are called otherwise than the ops.
_OPS = {
    "remainder": "mod",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "bitwise_not": "logical_not",
}
