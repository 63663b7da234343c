"""The functions that emitted text calls: ggml's where it has one for the operands, else NumPy's as
custom nodes of its graph. On NumPy arrays they are NumPy's.
"""

from __future__ import annotations

import functools as _functools
from collections.abc import Callable as _Callable
from typing import Any as _Any

import numpy as _np

from ..numpy_backend import ops as _numpy
from . import attention as _attention
from . import lookups as _lookups  # noqa: F401  (they define native ops)
from . import movement as _movement  # noqa: F401
from . import norms as _norms
from . import pointwise as _pointwise  # noqa: F401
from . import products as _products  # noqa: F401
from . import windows as _windows  # noqa: F401
from .graph import Untraceable as _Untraceable
from .graph import nodes_of as _nodes_of
from .operands import native_ops as _native_ops

_OF_SHAPES = frozenset(("shape", "size", "length", "zeros_like", "ones_like"))
_OF_VALUES = frozenset(("item", "tensor_to_list", "index", "index_add"))


def _op(name: str, function: _Callable[..., _Any]) -> _Callable[..., _Any]:
    native = _native_ops.get(name)

    @_functools.wraps(function)
    def op(*args: _Any, **kwargs: _Any) -> _Any:
        node = next(_nodes_of((args, kwargs)), None)
        if node is None or name in _OF_SHAPES:
            return function(*args, **kwargs)
        if name in _OF_VALUES:
            _refuse_masks(name, args, kwargs)
        trace = node.trace
        if native is not None:
            found = native(*args, **kwargs)
            if found is not NotImplemented:
                trace.ways.append((name, "native"))
                return found
        return trace.custom(name, function, args, kwargs, _known(name, args, kwargs))

    return op


def _refuse_masks(name: str, args: _Any, kwargs: _Any) -> None:
    """Where values say how many elements there are nothing can be recorded."""
    items = (args[1:], kwargs) if name.startswith("index") else ()
    if not items or any(node.dtype == bool for node in _nodes_of(items)):
        raise _Untraceable


def _known(name: str, args: _Any, kwargs: _Any) -> _Any:
    """Arrays like the results, where the function must not be called for stand-ins."""
    if name == "while_loop":
        return tuple(_like(x.shape, x.dtype) for x in args[2])
    if name == "scan":
        carries, ys = args[1], args[4]
        return (*(_like(x.shape, x.dtype) for x in carries), *(_like(*y) for y in ys))
    return None


def _like(shape: _Any, dtype: _Any) -> _np.ndarray:
    return _np.broadcast_to(_np.zeros((), dtype), shape)


def _is_function(name: str, value: _Any) -> bool:
    return callable(value) and not name.startswith("_") and not isinstance(value, type)


_table = {**vars(_numpy), **_norms.composites, **_attention.composites}
for _name, _value in _table.items():
    if _is_function(_name, _value):
        globals()[_name] = _op(_name, _value)
    elif isinstance(_value, _np.dtype):
        globals()[_name] = _value
del _name, _value

__all__ = [name for name in globals() if not name.startswith("_")]
