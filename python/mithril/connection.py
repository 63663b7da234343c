"""Wires of models as Python sees them: `Connection` (also `IOKey`), symbolic `Tensor`s.

What an expression means is decided in the engine; this module only says which op an operator is.
"""

from __future__ import annotations

import builtins
import collections.abc
import operator
import types
import typing
import weakref
from typing import Any, Union

from mithril import _core
from mithril._core import public
from mithril.errors import ArgumentError, DTypeError, SignatureError, shown
from mithril.types import (
    MISSING,
    NOT_GIVEN,
    TBD,
    Constant,
    Dtype,
    PaddingType,
    as_dtype,
    epsilon_table,
)

MOST_NESTED = 64  # core::HostValue::kMaxDepth
_MOST_ITEMS = 10_000_000
_KINDS: dict[str, int] = _core.kinds()
_TENSOR = {
    bool: _KINDS["tensor_bool"],
    int: _KINDS["tensor_int"],
    float: _KINDS["tensor_float"],
}
_ANY_TENSOR = sum(_TENSOR.values())
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


def kinds_of(annotation: Any) -> int:
    """The set of kinds (bits) that a type such as `Tensor[int | float] | None` allows."""
    if annotation is Tensor:
        return _ANY_TENSOR
    origin = typing.get_origin(annotation)
    if origin is Tensor:
        return _element_kinds(typing.get_args(annotation))
    if origin is Union or origin is types.UnionType:
        bits = 0
        for member in typing.get_args(annotation):
            bits |= kinds_of(member)
        return bits
    try:
        found = _SCALAR.get(origin or annotation)
    except Exception:  # not even hashable
        found = None
    if found is None:
        raise DTypeError(
            f"type: requires Tensor[...], a Python type or a union, got {shown(annotation)}"
        )
    return found


def _element_kinds(members: tuple) -> int:
    bits = 0
    for member in members:
        options = typing.get_args(member) or (member,)
        if not all(isinstance(option, builtins.type) and option in _TENSOR for option in options):
            raise DTypeError(f"Tensor: element types are int, float and bool, got {shown(member)}")
        bits |= sum(_TENSOR[option] for option in set(options))
    return bits


class Tensor:
    """A symbolic tensor: what is known of it, and perhaps its value. Not an array.

    `Tensor[int | float]` is a type, for `type=` and `set_types`. One object may be used in one
    place only.
    """

    def __init__(
        self,
        value: Any = TBD,
        type: Any = None,
        shape: Any = None,
        differentiable: bool | None = None,
    ):
        self._literal = None if value is TBD else as_literal(value)
        self._kinds = None if type is None else _tensor_kinds(type)
        self._shape = shape
        self._differentiable = differentiable
        self._used = False
        if self._literal is None:
            _core.Wire.key(self._spec())  # clashing facts are told here

    def __class_getitem__(cls, item: Any):
        _element_kinds((item,))
        return types.GenericAlias(cls, item)

    @property
    def value(self):
        """Nested lists, or TBD."""
        return TBD if self._literal is None else self._literal

    def _spec(self, name: str = "") -> tuple:
        value = MISSING if self._literal is None else self._literal
        kinds = self._kinds
        if kinds is None and self._literal is None:
            kinds = _ANY_TENSOR
        return (name, value, False, self._shape, kinds, self._differentiable)


def _tensor_kinds(annotation: Any) -> int:
    if typing.get_origin(annotation) is Tensor or annotation is Tensor:
        return kinds_of(annotation)
    return _element_kinds((annotation,))


def as_literal(value: Any):
    """A tensor literal of nested sequences, a number, or anything that becomes a NumPy array."""
    if isinstance(value, Constant):
        return _core.TensorLiteral.from_nested(constant_value(value))
    if isinstance(value, range):
        value = _items(value)
    if isinstance(value, (bool, int, float, list, tuple)):
        return _core.TensorLiteral.from_nested(value)
    if isinstance(value, _core.TensorLiteral):
        return value
    return array_literal(value)


def _items(numbers: range) -> list[int]:
    """The numbers of a range, which may promise more of them than any memory has."""
    if numbers[_MOST_ITEMS:]:
        raise ArgumentError(f"value: requires at most {_MOST_ITEMS} items, got {shown(numbers)}")
    return list(numbers)


def array_literal(value: Any):
    """A literal of an array of numpy, or of what `numpy.asarray` takes without guessing."""
    if not (hasattr(value, "__array__") or hasattr(value, "__dlpack__")):
        raise DTypeError(f"tensor: requires numbers or an array, got {type(value).__name__}")
    import numpy as np

    try:
        array = np.asarray(value)
    except Exception as error:  # of somebody's __array__
        raise ArgumentError(f"tensor: cannot be read as an array: {error}") from error
    dtype = as_dtype(array.dtype)
    data = np.ascontiguousarray(array).astype(dtype.numpy(), copy=False)
    return _core.TensorLiteral.from_bytes(str(dtype), list(array.shape), data.tobytes())


def constant_value(constant: Constant) -> float:
    """The number that a `Constant` stands for in 32-bit floats."""
    if constant in (Constant.ZEROS, Constant.ONES):
        return float(constant is Constant.ONES)
    return epsilon_table[32][constant]


# Python objects of wires by identity of the wire, so that look-ups return the same object.
_known: weakref.WeakValueDictionary[int, Connection] = weakref.WeakValueDictionary()


class Connection:
    """A wire: a named or unnamed key that models share. `IOKey` is the same class.

    Parameters
    ----------
    name : the key that the wire gets in the model
    value : a value that the wire has from the start
    shape : sizes, names, None and one (name, ...); makes it a tensor
    type : `Tensor[...]`, a Python type, or a union of them
    differentiable : whether it is a trainable parameter
    """

    @public
    def __init__(
        self,
        name: str | None = None,
        value: Any = TBD,
        shape: Any = None,
        type: Any = None,
        differentiable: bool | None = None,
        interval: Any = None,
    ):
        if name is not None and not isinstance(name, str):
            raise DTypeError(f"IOKey: name requires a string, got {shown(name)}")
        self.interval = interval
        self._fields: tuple | None
        spec = key_spec(name, value, shape, type, differentiable)
        self._wire = _core.Wire.key(spec)
        self._fields = spec
        _known[self._wire.identity] = self

    @classmethod
    def _of(cls, wire) -> Connection:
        """The object of a wire of the engine."""
        found = _known.get(wire.identity)
        if found is None:
            found = Connection.__new__(Connection)
            found._wire = wire
            found._fields = None
            found.interval = None
            _known[wire.identity] = found
        return found

    # --- what it is ---------------------------------------------------------------------------
    @property
    @public
    def key(self) -> str:
        return self.get_key()

    @public
    def get_key(self) -> str:
        """The name in its model; an error while it has none."""
        name = self._wire.key_name
        if not name:
            raise ArgumentError("connection: has no name before it is part of a model")
        return name

    @property
    def is_autogenerated(self) -> bool:
        return self._wire.is_autogenerated

    @property
    def is_exposed(self) -> bool:
        return self._wire.is_exposed

    @property
    def model(self):
        """The model that it belongs to, or None."""
        from mithril.model import handle

        node = self._wire.model
        return None if node is None else handle(node)

    @property
    def metadata(self):
        """A key that is equal for connections of one wire."""
        return self._wire.identity

    # --- stating facts ------------------------------------------------------------------------
    @public
    def set_key(self, name: str) -> None:
        self._state(0, name, lambda model: model.rename_key(self, name))

    @public
    def set_value(self, value: Any) -> None:
        self._state(1, as_value(value), lambda model: model.set_values({self: value}))

    @public
    def set_shapes(self, shape: Any) -> None:
        self._state(3, shape, lambda model: model.set_shapes({self: shape}))

    @public
    def set_type(self, type: Any) -> None:
        self._state(4, kinds_of(type), lambda model: model.set_types({self: type}))

    @public
    def set_differentiability(self, differentiable: bool = True) -> None:
        self._state(
            5, differentiable, lambda model: model.set_differentiability({self: differentiable})
        )

    def _state(self, field: int, fact: Any, state_in_model) -> None:
        model = self.model
        if model is not None:
            state_in_model(model)
            return
        fields = list(self._fields or key_spec())
        fields[field] = fact
        self._wire.set_spec(tuple(fields))
        self._fields = tuple(fields)

    def __repr__(self) -> str:
        name = self._wire.key_name
        return f"<{type(self).__name__} {name!r}>" if name else f"<{type(self).__name__}>"

    def __eq__(self, other: object) -> bool:
        """Identity, as `eq` builds an op."""
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise DTypeError("connection: has no truth value; its content is known when the model runs")

    __iter__ = None  # indexing would never end

    # --- operators (bodies below) ---------------------------------------------------------------
    @property
    @public
    def shape(self) -> Connection:
        return _apply("shape", self)

    @property
    @public
    def T(self) -> Connection:  # noqa: N802
        return _apply("transpose", self)

    @public
    def eq(self, other: Any) -> Connection:
        return _apply("equal", self, other)

    @public
    def ne(self, other: Any) -> Connection:
        return _apply("not_equal", self, other)

    @public
    def abs(self) -> Connection:
        return _apply("abs", self)

    @public
    def len(self) -> Connection:
        return _apply("length", self)

    @public
    def reshape(self, shape: Any) -> Connection:
        return _apply("reshape", self, shape)

    @public
    def size(self, dim: Any = None) -> Connection:
        return _apply("size", self, dim)

    @public
    def tensor(self) -> Connection:
        return _apply("to_tensor", self)

    @public
    def mean(self, axis: Any = None, keepdim: Any = False) -> Connection:
        return _apply("mean", self, axis, keepdim)

    @public
    def sum(self, axis: Any = None, keepdim: Any = False) -> Connection:
        return _apply("sum", self, axis, keepdim)

    @public
    def max(self, axis: Any = None, keepdim: Any = False) -> Connection:
        return _apply("max", self, axis, keepdim)

    @public
    def min(self, axis: Any = None, keepdim: Any = False) -> Connection:
        return _apply("min", self, axis, keepdim)

    @public
    def prod(self, axis: Any = None, keepdim: Any = False) -> Connection:
        return _apply("prod", self, axis, keepdim)

    @public
    def var(self, axis: Any = None, keepdim: Any = False, correction: Any = 0.0) -> Connection:
        return _apply("variance", self, axis, keepdim, correction)

    @public
    def sqrt(self) -> Connection:
        return _apply("sqrt", self)

    @public
    def exp(self) -> Connection:
        return _apply("exp", self)

    @public
    def sin(self) -> Connection:
        return _apply("sin", self)

    @public
    def cos(self) -> Connection:
        return _apply("cos", self)

    @public
    def floor(self) -> Connection:
        return _apply("floor", self)

    @public
    def atleast_1d(self) -> Connection:
        return _apply("atleast_1d", self)

    @public
    def item(self) -> Connection:
        return _apply("item", self)

    @public
    def transpose(self, axes: Any = None) -> Connection:
        return _apply("transpose", self, axes)

    @public
    def cast(self, dtype: Any) -> Connection:
        wired = isinstance(dtype, Connection)
        return _apply("cast", self, dtype if wired else as_dtype(dtype))

    @public
    def dtype(self) -> Connection:
        return _apply("dtype", self)

    @public
    def clamp(self, min_val: Any = None, max_val: Any = None) -> Connection:
        return _apply("clamp", self, min_val, max_val)

    @public
    def __getitem__(self, index: Any) -> Connection:
        return _apply("index", self, _index(index))


IOKey = Connection
ConnectionType = str | Connection | Tensor | int | float | bool | tuple | list | slice | None


def key_spec(
    name: str | None = None,
    value: Any = TBD,
    shape: Any = None,
    type: Any = None,
    differentiable: bool | None = None,
) -> tuple:
    """The tuple that the engine reads (csrc/bindings/model_arguments.h)."""
    kinds = None if type is None else kinds_of(type)
    if isinstance(value, Tensor):
        merged = value._spec(name or "")
        return (
            merged[0],
            merged[1],
            False,
            merged[3] if shape is None else shape,
            merged[4] if kinds is None else kinds,
            merged[5] if differentiable is None else differentiable,
        )
    given = MISSING if value is TBD else as_value(value)
    if differentiable is not None:
        differentiable = truth("differentiable", differentiable)
    return (name or "", given, False, shape, kinds, differentiable)


def truth(what: str, value: Any) -> bool:
    """The bool that a number or bool is."""
    try:
        return bool(operator.index(value))
    except Exception:
        raise SignatureError(f"{what}: requires True or False, got {shown(value)}") from None


def as_value(value: Any, depth: int = 0) -> Any:
    """What the engine takes as a value: tensors as literals, constants as numbers."""
    if isinstance(value, Tensor):
        if value._literal is None:
            raise ArgumentError("value: this Tensor has no value")
        return value._literal
    if isinstance(value, Constant):
        return value.name
    if isinstance(value, range):
        return tuple(_items(value))
    if isinstance(value, builtins.type) or type(value).__name__.lower().endswith("dtype"):
        return as_dtype(value)
    if isinstance(value, (tuple, list)):
        items = [as_value(item, _deeper(depth)) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if hasattr(value, "__array__") and getattr(value, "ndim", 0) != 0:
        return array_literal(value)
    return value


def _deeper(depth: int) -> int:
    if depth >= MOST_NESTED:
        raise ArgumentError(f"value: nested more than {MOST_NESTED} levels deep")
    return depth + 1


def as_argument(value: Any, used: list[Tensor], depth: int = 0) -> Any:
    """What the engine takes for a key; Tensors are noted in `used`."""
    if isinstance(value, Connection):
        return value._wire
    if isinstance(value, Tensor):
        if value._used or any(other is value for other in used):
            raise ArgumentError("tensor: one Tensor object may be used in one place only")
        used.append(value)
        return value._literal if _is_plain(value) else _core.Wire.key(value._spec())
    if isinstance(value, (tuple, list)):
        items = [as_argument(item, used, _deeper(depth)) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, Constant):
        return as_literal(value)
    if value is NOT_GIVEN or value is None or isinstance(value, (str, int, float, slice)):
        return value
    if value is TBD:
        raise ArgumentError("connection: TBD states nothing; leave the key out")
    convert = getattr(value, "_as_argument", None)
    return convert(used) if convert is not None else as_value(value)


def _is_plain(tensor: Tensor) -> bool:
    return tensor._literal is not None and (
        tensor._kinds is None and tensor._shape is None and tensor._differentiable is None
    )


def _apply(op: str, *operands: Any) -> Connection:
    used: list[Tensor] = []
    arguments = [_operand(op, operand, used) for operand in operands]
    wire = _core.ModelNode.call_op(op, arguments)
    for tensor in used:
        tensor._used = True
    return Connection._of(wire)


def _operand(op: str, operand: Any, used: list[Tensor]) -> Any:
    if isinstance(operand, str) and not isinstance(operand, Dtype):
        raise ArgumentError(
            f"{op}: a name is no operand, got {shown(operand)}", hint="use model[name] or an IOKey"
        )
    return as_argument(operand, used)


def _index(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_index(item) if isinstance(item, slice) else item for item in index)
    if isinstance(index, slice):
        bounds = (index.start, index.stop, index.step)
        if any(isinstance(bound, Connection) for bound in bounds):
            return _apply("slice", *bounds)
    return index


def _binary(op: str):
    def forward(self, other):
        return _apply(op, self, other)

    def reflected(self, other):
        return _apply(op, other, self)

    return public(forward), public(reflected)


def _unary(op: str):
    return public(lambda self: _apply(op, self))


def _add_operators() -> None:
    reflexive = {
        "add": "add",
        "sub": "subtract",
        "mul": "multiply",
        "truediv": "divide",
        "floordiv": "floor_divide",
        "pow": "power",
        "matmul": "matmul",
        "mod": "mod",
        "and": "logical_and",
        "or": "logical_or",
        "xor": "logical_xor",
        "lshift": "shift_left",
        "rshift": "shift_right",
    }
    for python, op in reflexive.items():
        forward, reflected = _binary(op)
        setattr(Connection, f"__{python}__", forward)
        setattr(Connection, f"__r{python}__", reflected)
    compare = {"gt": "greater", "ge": "greater_equal", "lt": "less", "le": "less_equal"}
    for python, op in compare.items():
        setattr(Connection, f"__{python}__", _binary(op)[0])
    for python, op in {"neg": "negate", "invert": "logical_not"}.items():
        setattr(Connection, f"__{python}__", _unary(op))


_add_operators()

__all__ = ["Connection", "ConnectionType", "IOKey", "NOT_GIVEN", "TBD", "Tensor", "SignatureError"]
