"""Small tools around types of values that the original offers."""

from __future__ import annotations

import builtins
from typing import Any

from mithril.base.public import public
from mithril.errors import ArgumentError, shown
from mithril.types import PaddingType

_RANK = (bool, int, float)


@public
def find_dominant_type(value: Any) -> builtins.type:
    """The type of the numbers in a nest, where float beats int and int beats bool.

    >>> find_dominant_type([[True, 2], [3.0]])
    <class 'float'>
    """
    found = get_specific_types_from_value(value)
    if not found:
        raise ArgumentError(f"find_dominant_type: requires numbers, got {shown(value)}")
    return max(found, key=_RANK.index)


@public
def get_specific_types_from_value(value: Any) -> set[builtins.type]:
    """The types of the numbers in a nest of tuples, lists and ranges.

    >>> sorted(t.__name__ for t in get_specific_types_from_value((1, [2.0])))
    ['float', 'int']
    """
    found: set[builtins.type] = set()
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, range):
            stack.extend(item[:1])
        elif isinstance(item, tuple | list):
            stack.extend(item)
        elif type(item) in _RANK:
            found.add(type(item))
        else:
            raise ArgumentError(f"value: requires numbers, got {shown(item)}")
    return found


__all__ = ["PaddingType", "find_dominant_type", "get_specific_types_from_value"]
