"""What calls take from Python: flags, text, lists, dictionaries. Each refusal names the argument.

`what` begins the message of a refusal: "call: argument".
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from mithril.errors import ArgumentError, SignatureError, shown
from mithril.types import Dtype

T = TypeVar("T")
_MOST_ITEMS = 1_000_000
_SINGLE: list[type] = []  # classes whose objects could be gone through, and are one thing each


def checked_bool(what: str, value: Any) -> bool:
    """The bool that a number or bool is."""
    try:
        return bool(operator.index(value))
    except Exception:  # of somebody's __index__, too
        raise SignatureError(f"{what}: requires True or False, got {shown(value)}") from None


def checked_str(what: str, text: Any) -> str:
    if not isinstance(text, str) or isinstance(text, Dtype):
        raise SignatureError(f"{what}: requires a string, got {shown(text)}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ArgumentError(f"{what}: text must be valid unicode, got {shown(text)}") from None
    return text


def single(cls: type[T]) -> type[T]:
    """Marks a class whose objects are no lists of items, although they can be gone through."""
    _SINGLE.append(cls)
    return cls


def checked_list(what: str, value: Any, of: str, optional: bool = False) -> list[Any]:
    """The items of anything that can be gone through but text, dictionaries and connections."""
    if optional and value is None:
        return []
    is_one = isinstance(value, (str, bytes, Mapping, *_SINGLE))
    is_list = isinstance(value, Iterable) and not is_one
    if not is_list or getattr(value, "ndim", 1) == 0:
        raise SignatureError(f"{what}: requires {of}, got {shown(value)}")
    found = list(itertools.islice(value, _MOST_ITEMS + 1))
    if len(found) > _MOST_ITEMS:  # a range may promise more than any memory has
        raise ArgumentError(f"{what}: requires at most {_MOST_ITEMS} items, got {shown(value)}")
    return found


def checked_mapping(what: str, value: Any) -> Mapping[Any, Any]:
    """A dictionary; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SignatureError(f"{what}: requires a dictionary, got {shown(value)}")
    return value


def checked_instance(what: str, value: Any, cls: type | tuple[type, ...], a: str) -> Any:
    """The value, which must be an object of a class; `a` says so in words."""
    if not isinstance(value, cls):
        raise SignatureError(f"{what}: requires {a}, got {shown(value)}")
    return value


def checked_size(what: str, value: Any, least: int = 1) -> int:
    """An integer that a size can be."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
        raise ArgumentError(f"{what}: requires an integer of at least {least}, got {shown(value)}")
    return value


__all__ = [
    "checked_instance",
    "checked_list",
    "checked_mapping",
    "single",
    "checked_str",
    "checked_bool",
    "checked_size",
]
