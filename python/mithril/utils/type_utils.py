"""Questions about annotations and values."""

from __future__ import annotations

import types
import typing
from typing import Any, TypeGuard


def is_list_int(value: Any) -> TypeGuard[list[int]]:
    """Tells whether a value is a list of ints (bools are none)."""
    return isinstance(value, list) and all(type(item) is int for item in value)


def is_union_type(annotation: Any) -> bool:
    """Tells whether an annotation is `a | b` or `Union[a, b]`."""
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def is_generic_alias_type(annotation: Any) -> bool:
    """Tells whether an annotation is a type with parameters, such as `list[int]`."""
    return typing.get_origin(annotation) is not None and not is_union_type(annotation)


__all__ = ["is_generic_alias_type", "is_list_int", "is_union_type"]
