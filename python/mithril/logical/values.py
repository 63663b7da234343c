"""Facts of keys in the engine's form: values, specs, `Tensor`s that are used once."""

from __future__ import annotations

import builtins
from typing import Any

from mithril import _core
from mithril.base.checks import checked_bool, checked_str
from mithril.errors import ArgumentError, DataOverflowError, MithrilError, shown
from mithril.logical.annotation import ANY_TENSOR, kinds_of, type_of
from mithril.logical.tensor import (
    MOST_NESTED,
    Tensor,
    array_literal,
    as_literal,
    range_items,
)
from mithril.types import MISSING, TBD, Constant, Dtype, PaddingType, dtype_of

# Values that the engine takes as they are.
_PLAIN = frozenset(
    (bool, float, type(None), type(...), Dtype, PaddingType, _core.TensorLiteral, type(MISSING))
)


def key_spec(
    name: str | None = None,
    value: Any = TBD,
    shape: Any = None,
    type: Any = None,
    differentiable: bool | None = None,
    interval: Any = None,
    what: str = "value",
) -> tuple:
    """Returns the facts as the tuple that the engine reads (csrc/bindings/model_arguments.h)."""
    kinds = None if type is None else type_of(type)
    ends = None if interval is None else _ends(interval)
    if isinstance(value, Tensor):
        merged = value._spec(name or "")
        return (
            merged[0],
            merged[1],
            False,
            merged[3] if shape is None else shape,
            merged[4] if kinds is None else kinds,
            merged[5] if differentiable is None else differentiable,
            ends,
        )
    given = MISSING if value is TBD else _constant_or_value(value, what)
    if _is_number(given) and isinstance(shape, (list, tuple)) and not shape:
        shape = None  # a number has the shape [] already
    if differentiable is not None:
        differentiable = checked_bool("differentiable", differentiable)
    return (name or "", given, False, shape, kinds, differentiable, ends)


def _ends(interval: Any) -> tuple:
    """Returns (low, high) of an interval, each a number or None."""
    is_pair = isinstance(interval, (tuple, list)) and len(interval) == 2
    if not is_pair or not all(end is None or _is_real(end) for end in interval):
        raise ArgumentError(f"IOKey: interval requires (low, high), got {shown(interval)}")
    low, high = interval
    if low is not None and high is not None and not low <= high:
        raise ArgumentError(f"IOKey: interval requires low <= high, got {shown(interval)}")
    return low, high


def _is_real(number: Any) -> bool:
    return isinstance(number, (int, float)) and not isinstance(number, bool) and number == number


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def _constant_or_value(value: Any, what: str) -> Any:
    """Converts a value; a `Constant` becomes a scalar tensor of the backend's precision."""
    return as_literal(value) if isinstance(value, Constant) else as_value(value, what)


def lacks_value(value: Any) -> bool:
    """Tells whether it is a `Tensor` without a value, or a list or tuple with one in it."""
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, Tensor) and item._literal is None for item in value)
    return isinstance(value, Tensor) and value._literal is None


def value_spec(value: Any, used: Uses, what: str) -> tuple:
    """Returns the facts that a value states of a key: a `Tensor` without one states its type, shape
    and differentiability; a list of such, those of its items."""
    if isinstance(value, (list, tuple)) and lacks_value(value):
        return _items_spec([used.take(item) for item in value], isinstance(value, list), what)
    return key_spec(value=used.take(value), what=what)


def _items_spec(items: list[Any], is_list: bool, what: str) -> tuple:
    if not all(isinstance(item, Tensor) and item._literal is None for item in items):
        raise ArgumentError(f"{what}: the tensors of a list have values, all of them or none")
    if any(item._shape is not None for item in items):
        raise ArgumentError(
            f"{what}: the shapes of tensors in a list follow from what evaluate gets",
            hint="leave shape out",
        )
    trained = {item._differentiable for item in items}
    if len(trained) > 1:
        raise ArgumentError(
            f"{what}: the tensors of a list are differentiable, all of them or none"
        )
    kinds = tuple(ANY_TENSOR if item._kinds is None else item._kinds for item in items)
    if trained == {True}:
        kinds = tuple(type_of(Tensor[float]) for _ in kinds)
    content = (kinds_of(list if is_list else tuple), ((is_list, False, kinds),))
    return ("", MISSING, False, None, content, trained.pop(), None)


def _may_have(node: Any, key: str, value: Any) -> bool:
    probe = node.clone(None)
    try:
        probe.clear([key], 1)
        probe.set_values([(key, as_value(value))], False)
        probe.solve()
    except MithrilError:
        return False
    return True


class Uses:
    """Tracks what a call uses up if it succeeds, and frees it if it fails: `Tensor`s, which are
    used once, and calls of models, which become connections."""

    def __init__(self) -> None:
        self._tensors: list[Tensor] = []
        self._requests: list[Any] = []
        self._forgotten: list[tuple[Any, str, Any]] = []  # node, key, its default

    def take(self, value: Any) -> Any:
        """Notes the use of a `Tensor`, which must be free; returns the value itself."""
        if isinstance(value, Tensor):
            if value._used or any(other is value for other in self._tensors):
                raise ArgumentError("tensor: one Tensor object may be used in one place only")
            self._tensors.append(value)
        return value

    def forget_defaults(self, model: Any, values: dict[str, Any]) -> None:
        """Clears defaults of the model's class on keys that get a value which they may have."""
        node, defaults = model._node, model._class_defaults
        for key in defaults.keys() & values.keys():
            if not node.is_submodel and node.is_valued(key) and _may_have(node, key, values[key]):
                node.clear([key], 1)
                self._forgotten.append((node, key, defaults[key]))

    def convert(self, request: Any) -> list:
        """Returns the wires of a request (mithril.logical.calls), made now if they were not."""
        if request.made_wires is None:
            request.make_wires(self)
            self._requests.append(request)
        return request.made_wires

    def __enter__(self) -> Uses:
        return self

    def __exit__(self, error: Any, *rest: Any) -> None:
        for tensor in self._tensors if error is None else ():
            tensor._used = True
        for request in reversed(self._requests) if error is not None else ():
            request.withdraw()
        for node, key, default in self._forgotten if error is not None else ():
            node.set_values([(key, as_value(default))], False)


def as_value(value: Any, what: str = "value", depth: int = 0) -> Any:
    """Converts a value to the engine's form: tensors to literals, constants to their names."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, int) and not isinstance(value, Constant):
        return _integer(value, what)
    if isinstance(value, str):
        return checked_str(what, value)
    if isinstance(value, (tuple, list)):
        items = [as_value(item, what, deeper(what, depth)) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, slice):
        return slice(*(as_value(v, what, depth) for v in (value.start, value.stop, value.step)))
    return _other_value(value, what)


def _integer(value: int, what: str) -> int:
    if not -(2**63) <= value < 2**63:
        raise DataOverflowError(f"{what}: requires an integer of 64 bits, got a larger one")
    return value


def _other_value(value: Any, what: str) -> Any:
    if isinstance(value, Tensor):
        if value._literal is None:
            raise ArgumentError(f"{what}: this Tensor has no value")
        return value._literal
    if isinstance(value, Constant):
        return value.name
    if isinstance(value, range):
        return tuple(range_items(value, what))
    if isinstance(value, builtins.type) or type(value).__name__.lower().endswith("dtype"):
        return dtype_of(what, value)
    if hasattr(value, "__array__") and getattr(value, "ndim", 0) != 0:
        return array_literal(value, what)
    if any(hasattr(value, name) for name in ("__index__", "__float__")):
        return value  # a number of some library
    raise ArgumentError(
        f"{what}: requires a number, string, tuple, list, slice, dtype, tensor or None, got"
        f" {shown(value)}"
    )


def deeper(what: str, depth: int) -> int:
    if depth >= MOST_NESTED:
        raise ArgumentError(f"{what}: nested more than {MOST_NESTED} levels deep")
    return depth + 1
