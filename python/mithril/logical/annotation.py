"""Annotations of types: `Tensor[int | float] | None`, `tuple[int, ...]`, `list[Tensor]` …"""

from __future__ import annotations

import builtins
import collections.abc
import types
import typing
from typing import Any, TypeVar, Union

from mithril import _core
from mithril.errors import ArgumentError, DTypeError, shown
from mithril.types import Constant, Dtype, PaddingType

T = TypeVar("T")
_MOST_NESTED = 64  # core::HostValue::kMaxDepth
_KINDS: dict[str, int] = _core.kinds()
_TENSOR = {
    bool: _KINDS["tensor_bool"],
    int: _KINDS["tensor_int"],
    float: _KINDS["tensor_float"],
}
ANY_TENSOR = sum(_TENSOR.values())
_SCALAR = {
    bool: _KINDS["bool"],
    int: _KINDS["int"],
    float: _KINDS["float"],
    str: _KINDS["str"],
    type(None): _KINDS["none"],
    None: _KINDS["none"],
    slice: _KINDS["slice"],
    type(...): _KINDS["ellipsis"],
    ...: _KINDS["ellipsis"],
    tuple: _KINDS["tuple"],
    list: _KINDS["list"],
    dict: _KINDS["dict"],
    Dtype: _KINDS["dtype"],
    Constant: _KINDS["constant"],
    PaddingType: _KINDS["padding_type"],
    collections.abc.Sequence: _KINDS["tuple"] | _KINDS["list"],
    Any: sum(_KINDS.values()),
}
# What the engine reads (csrc/bindings/model_arguments.h, to_type): bits of kinds, and where
# containers say what they hold, these: (is list, any length, types of the items).
Container = tuple[bool, bool, tuple]
Annotation = int | tuple[int, tuple[Container, ...]]


_tensor_classes: list[builtins.type] = []  # whose brackets hold the type of the elements


def tensor_class(cls: builtins.type[T]) -> builtins.type[T]:
    """Marks the class that stands for tensors in annotations."""
    _tensor_classes.append(cls)
    return cls


def type_of(annotation: Any) -> Annotation:
    """Converts an annotation to the engine's form; tuples and lists may be nested at any level."""
    kinds, containers = _parse(annotation, 0)
    return (kinds, tuple(containers)) if containers else kinds


def kinds_of(annotation: Any) -> int:
    """Returns the bits of kinds that a type allows, whatever its containers hold."""
    return _parse(annotation, 0)[0]


def element_kinds(members: tuple) -> int:
    """The kinds of tensors with elements of these types, also unions of them."""
    bits = 0
    for member in members:
        options = typing.get_args(member) or (member,)
        if not all(isinstance(option, builtins.type) and option in _TENSOR for option in options):
            raise DTypeError(f"Tensor: element types are int, float and bool, got {shown(member)}")
        bits |= sum(_TENSOR[option] for option in set(options))
    return bits


def _parse(annotation: Any, depth: int) -> tuple[int, list[Container]]:
    if depth > _MOST_NESTED:
        raise ArgumentError(f"type: requires at most {_MOST_NESTED} levels of nesting")
    if any(annotation is cls for cls in _tensor_classes):
        return ANY_TENSOR, []
    origin, members = typing.get_origin(annotation), typing.get_args(annotation)
    if any(origin is cls for cls in _tensor_classes):
        return element_kinds(members), []
    if origin is Union or origin is types.UnionType:
        return _union([_parse(member, depth + 1) for member in members])
    try:
        found = _SCALAR.get(origin or annotation)
    except Exception:  # not even hashable
        found = None
    if found is None:
        raise DTypeError(
            f"type: requires Tensor[...], a Python type or a union, got {shown(annotation)}"
        )
    return found, [] if origin in (None, dict) else _containers(origin, members, depth)


def _union(members: list[tuple[int, list[Container]]]) -> tuple[int, list[Container]]:
    """Joins the members of a union; a bare `tuple` beside `tuple[int]` allows any tuple."""
    kinds, containers = 0, []
    for bits, _ in members:
        kinds |= bits
    bare = 0
    for bits, stated in members:
        bare |= bits & ~sum({_kind(container) for container in stated})
        containers += [container for container in stated if container not in containers]
    return kinds, [container for container in containers if not _kind(container) & bare]


def _kind(container: Container) -> int:
    return _KINDS["list" if container[0] else "tuple"]


def _containers(origin: Any, members: tuple, depth: int) -> list[Container]:
    """Parses `tuple[a, b]`, `tuple[a, ...]`, `list[a]`, and sequences, which are either."""
    fixed = origin is tuple and not (len(members) == 2 and members[1] is ...)
    if not fixed and len(members) > (2 if origin is tuple else 1):
        raise DTypeError(f"type: {shown(origin)} takes one type, got {len(members)}")
    items = []
    for member in members if fixed else members[:1]:
        kinds, containers = _parse(member, depth + 1)
        items.append((kinds, tuple(containers)) if containers else kinds)
    lists = [False] if origin is tuple else [True] if origin is list else [False, True]
    return [(is_list, not fixed, tuple(items)) for is_list in lists]
