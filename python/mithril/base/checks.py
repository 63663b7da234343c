"""Checks of arguments from Python: flags, text, lists, dictionaries. Errors name the argument.

`what` begins the message of a refusal: "call: argument".
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any, TypeVar

from mithril.errors import (
    ArgumentError,
    DataOverflowError,
    OutOfMemoryError,
    SignatureError,
    shown,
)
from mithril.types import Dtype

T = TypeVar("T")
_MOST_ITEMS = 1_000_000
MOST_ELEMENTS = 2**60  # more than memory has addresses for
_SINGLE: list[type] = []  # classes whose objects could be gone through, and are one thing each


def checked_bool(what: str, value: Any) -> bool:
    """Converts a number or bool to a bool; refuses anything else."""
    try:
        return bool(operator.index(value))
    except Exception:  # of somebody's __index__, too
        raise SignatureError(f"{what}: requires True or False, got {shown(value)}") from None


def checked_flag(what: str, value: Any, hint: str = "") -> bool:
    """Checks that a flag of a layer is a bool: a number may be a size in the wrong place."""
    if isinstance(value, bool):
        return value
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise SignatureError(f"{what}: requires True or False, got {shown(value)}", hint=hint)


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
    """Marks a class whose objects are no lists of items, although they are iterable."""
    _SINGLE.append(cls)
    return cls


def checked_list(what: str, value: Any, of: str, optional: bool = False) -> list[Any]:
    """Returns the items of any iterable except text, dictionaries and connections."""
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
    """Checks that a value is a mapping; None is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SignatureError(f"{what}: requires a dictionary, got {shown(value)}")
    return value


def checked_instance(what: str, value: Any, cls: type | tuple[type, ...], a: str) -> Any:
    """Checks that a value is an object of a class and returns it; `a` names the class."""
    if not isinstance(value, cls):
        raise SignatureError(f"{what}: requires {a}, got {shown(value)}")
    return value


def checked_size(what: str, value: Any, least: int = 1) -> int:
    """Checks that a value is an integer of at least `least`, fit for a size."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**31:
        raise ArgumentError(f"{what}: requires an integer of at least {least}, got {shown(value)}")
    return value


def checked_integer(what: str, value: Any) -> int:
    """Checks an integer of any size, NumPy's too, such as a seed; `what` has no colon here."""
    try:
        if type(value).__name__ not in ("bool", "bool_"):
            return operator.index(value)
    except Exception:  # of somebody's __index__, too
        pass
    raise SignatureError(f"{what} requires an integer, got {shown(value)}")


def as_float(what: str, value: Any) -> float:
    """Converts a real number, which may be beyond the range of floats, to a float."""
    try:
        return float(value)
    except OverflowError:
        raise DataOverflowError(
            f"{what}: requires a number that a float can hold, got {shown(value)}"
        ) from None


def checked_number(what: str, value: Any) -> Any:
    """Converts a number to a float; returns arrays, of any library, unchanged."""
    if isinstance(value, Real):
        return as_float(what, value)
    if not hasattr(value, "dtype"):
        raise SignatureError(f"{what}: requires a number, got {shown(value)}")
    return value


def checked_count(what: str, value: Any, least: int = 0) -> int:
    """A number of elements: as many as memory has addresses for, at most."""
    count = checked_integer(f"{what}:", value)
    if count < least:
        raise ArgumentError(f"{what}: requires an integer of at least {least}, got {shown(value)}")
    if count >= MOST_ELEMENTS:
        raise OutOfMemoryError(f"{what}: {shown(value)} elements do not fit an address space")
    return count


__all__ = [
    "MOST_ELEMENTS",
    "as_float",
    "checked_count",
    "checked_integer",
    "checked_number",
    "checked_instance",
    "checked_list",
    "checked_mapping",
    "single",
    "checked_str",
    "checked_bool",
    "checked_flag",
    "checked_size",
]
