"""Constraints of users: functions that relate the keys of a model while it is composed."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from mithril.base.checks import checked_instance, checked_list, checked_str
from mithril.base.public import public
from mithril.errors import ArgumentError, ParseError, SignatureError, shown
from mithril.logical.annotation import ANY_TENSOR, kinds_of
from mithril.logical.values import as_value
from mithril.types import TBD

_registered: dict[str, Callable[..., Any]] = {}


class UpdateType(enum.Enum):
    """The kinds of facts of a key that may have changed."""

    SHAPE = "shape"
    TYPE = "type"
    VALUE = "value"


class Updates:
    """The changes that a constraint made. It may stay empty: the engine follows them by itself."""

    @public
    def __init__(self) -> None:
        pass

    def add(self, edge: Any, update_type: UpdateType | None = None) -> Updates:
        return self

    def __ior__(self, other: Updates) -> Updates:
        return self


class EdgeView:
    """A key of a constraint, while its function runs: known facts, and setters that narrow them.

    A setter that contradicts what is known raises, and the call that made the constraint run is
    taken back.
    """

    __slots__ = ("_edge",)

    def __init__(self, edge: Any):
        self._edge = edge

    @property
    def type(self) -> str:
        """The types that the key may carry, in words, such as "float tensor or int"."""
        return self._edge.type

    @property
    def is_tensor(self) -> bool:
        return not self._edge.kinds & ~ANY_TENSOR

    @property
    def is_scalar(self) -> bool:
        return not self._edge.kinds & ANY_TENSOR

    @property
    def shape(self) -> list[int | None] | None:
        """Sizes, None where one is not known; None while the number of axes is not known."""
        return self._edge.shape

    @property
    def value(self) -> Any:
        """The value of a key that carries no tensor, or TBD."""
        found = self._edge.value
        return found[0] if found else TBD

    def set_type(self, type: Any) -> None:
        self._edge.set_kinds(kinds_of(type))

    def set_shape(self, shape: Any) -> None:
        """Makes it a tensor of so many axes; None leaves a size open."""
        self._edge.set_shape(shape)

    def set_value(self, value: Any) -> None:
        self._edge.set_value(as_value(value))

    def tie(self, axis: int, other: EdgeView, other_axis: int) -> None:
        """States that an axis has the size of an axis of another key."""
        self._edge.tie(axis, other._edge, other_axis)


class Constraint:
    """A constraint of a model; others may name it as a dependency."""

    def __init__(self, model: Any, number: int):
        self._model = model
        self._number = number

    @property
    def keys(self) -> list[str]:
        return self._model._node.constraints[self._number][1]

    def __repr__(self) -> str:
        return f"<Constraint on {', '.join(self.keys)}>"


@public
def register(function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    """Gives a constraint function a name, under which saved models find it again.

    >>> import mithril as ml
    >>> @ml.constraints.register
    ... def square(x):
    ...     if x.shape and None not in x.shape:
    ...         x.set_shape([x.shape[0], x.shape[0]])
    ...         return True
    >>> model = ml.Model()
    >>> model |= ml.Relu()(input="x", output="y")
    >>> _ = model.add_constraint(square, ["x"])
    >>> ml.constraints.find("square") is square
    True
    """
    if not callable(function):
        raise SignatureError(f"register: requires a function, got {shown(function)}")
    key = checked_str(
        "register: name", getattr(function, "__name__", None) if name is None else name
    )
    if not key:
        raise ArgumentError("register: requires a name, got ''")
    known = _registered.get(key)
    if known is not None and _written_as(known) != _written_as(function):
        raise ArgumentError(f"register: another constraint is called {key!r}")
    _registered[key] = function  # the same one, or its definition was run again
    return function


def _written_as(function: Callable[..., Any]) -> Any:
    name = getattr(function, "__qualname__", None)
    return function if name is None else (function.__module__, name)


@public
def find(name: str) -> Callable[..., Any] | None:
    """Returns the registered constraint of that name, or None."""
    return _registered.get(checked_str("find: name", name))


def name_of(function: Callable[..., Any]) -> str:
    """Returns the name under which it is registered, or "" without one."""
    return next((name for name, known in _registered.items() if known is function), "")


def add(
    model: Any,
    function: Callable[..., Any],
    keys: list[Any],
    dependencies: list[Constraint],
) -> Constraint:
    """Adds a constraint to a model; `Model.add_constraint` has checked the arguments."""

    after = [dependency._number for dependency in dependencies]
    number = model._node.add_constraint(_on_views(function), keys, after, name_of(function))
    return Constraint(model, number)


def relation(name: str, keys: int) -> Callable[..., Any] | None:
    """Returns the function of the constraint that a model file names, for so many keys, or None."""
    import inspect

    function = find(name)
    if function is None:
        return None
    try:
        inspect.signature(function).bind(*range(keys))
    except TypeError:
        text = f"model file: the constraint registered as {shown(name)} does not take {keys} keys"
        raise ParseError(text) from None
    except ValueError:  # it does not tell what it takes
        pass
    return _on_views(function)


def _on_views(function: Callable[..., Any]) -> Callable[..., Any]:
    def relate(*edges: Any) -> Any:
        return function(*(EdgeView(edge) for edge in edges))

    return relate


def update_types(given: Any) -> list[UpdateType]:
    """Checks what `type=` was given."""
    what, of = "add_constraint: type", "members of UpdateType"
    types = [given] if isinstance(given, UpdateType) else checked_list(what, given, of, True)
    return [checked_instance(what, entry, UpdateType, of) for entry in types]


@register
def scalars(*edges: EdgeView) -> bool:
    """States that those of the keys that are tensors have no axes."""
    for edge in edges:
        if edge.is_tensor:
            edge.set_shape([])
    return all(edge.is_tensor or edge.is_scalar for edge in edges)


__all__ = ["Constraint", "EdgeView", "UpdateType", "Updates", "find", "register"]
