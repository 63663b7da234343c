"""Symbolic tensors, annotations of types, and literals: what is said of a wire's content."""

from __future__ import annotations

import copyreg
import types
import typing
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril.base.checks import checked_bool
from mithril.base.public import public
from mithril.errors import ArgumentError, DataOverflowError, DTypeError, shown
from mithril.logical.annotation import ANY_TENSOR, element_kinds, tensor_class
from mithril.types import MISSING, TBD, Constant, Dtype, dtype_of, epsilon_table

MOST_NESTED = 64  # core::HostValue::kMaxDepth
_MOST_ITEMS = 10_000_000


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Elements = TypeVar("Elements", default=Any)
else:
    Elements = typing.TypeVar("Elements")


@tensor_class
class Tensor(typing.Generic[Elements]):
    """A symbolic tensor: what is known of it, and perhaps its value. Not an array.

    `Tensor[int | float]` is a type, for `type=` and `set_types`. One object may be used in one
    place only.
    """

    @public
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
        self._differentiable = (
            None
            if differentiable is None
            else checked_bool("Tensor: differentiable", differentiable)
        )
        self._used = False
        if self._literal is None:
            _core.Wire.key(self._spec())  # clashing facts are told here

    if not TYPE_CHECKING:

        def __class_getitem__(cls, item: Any) -> types.GenericAlias:
            element_kinds((item,))
            return types.GenericAlias(cls, item)

    @property
    def value(self) -> Any:
        """The literal, or TBD."""
        return TBD if self._literal is None else self._literal

    @property
    def shape(self) -> list[Any] | None:
        """The sizes of a literal, else the shape that was given."""
        if self._literal is not None:
            return list(self._literal.shape)
        return None if self._shape is None else list(self._shape)

    @property
    def type(self) -> str:
        """The types that its elements may have, in words."""
        kinds = self._kinds
        if kinds is None and self._literal is not None:
            kinds = element_kinds((_element_type(self._literal.dtype),))
        return _core.kind_text(ANY_TENSOR if kinds is None else kinds)

    @property
    def differentiable(self) -> bool | None:
        """The flag as given; a tensor with a value is not trained unless it says so."""
        fixed = self._literal is not None and self._differentiable is None
        return False if fixed else self._differentiable

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state of a copy, which is another tensor and may be used once."""
        return {**vars(self), "_used": False}

    def _spec(self, name: str = "") -> tuple:
        value = MISSING if self._literal is None else self._literal
        kinds = self._kinds
        if kinds is None and self._literal is None:
            kinds = ANY_TENSOR
        return (name, value, False, self._shape, kinds, self._differentiable, None)


def _literal(constant: str, dtype: str, shape: list[int], data: bytes) -> _core.TensorLiteral:
    if constant:
        return _core.TensorLiteral.of_constant(constant)
    return _core.TensorLiteral.from_bytes(dtype, shape, data)


def _packed(shape: list[int], format: str, transposed: bool, data: bytes) -> _core.TensorLiteral:
    return _core.TensorLiteral.from_packed(shape, format, transposed, data)


def _literal_parts(literal: _core.TensorLiteral) -> tuple[Any, ...]:
    """Returns the function and the arguments that pickles and copies remake a literal with."""
    if literal.packed is not None:
        return _packed, (list(literal.shape), *literal.packed)
    data = b"" if literal.constant else literal.bytes
    return _literal, (literal.constant, str(literal.dtype), list(literal.shape), data)


copyreg.pickle(_core.TensorLiteral, _literal_parts)


def _element_type(dtype: Any) -> type:
    """Returns int, float or bool, whichever the element type of a literal is a width of."""
    name = str(dtype)
    return float if "float" in name else int if "int" in name else bool


def _tensor_kinds(annotation: Any) -> int:
    if annotation is Tensor:
        return ANY_TENSOR
    is_tensor = typing.get_origin(annotation) is Tensor
    return element_kinds(typing.get_args(annotation) if is_tensor else (annotation,))


def as_literal(value: Any):
    """A tensor literal of nested sequences, a number, or anything that becomes a NumPy array."""
    if isinstance(value, Constant):
        return _core.TensorLiteral.of_constant(value.name)
    if isinstance(value, range):
        value = range_items(value)
    if isinstance(value, (bool, int, float, list, tuple)):
        return _core.TensorLiteral.from_nested(value)
    if isinstance(value, _core.TensorLiteral):
        return value
    return array_literal(value)


def range_items(numbers: range, what: str = "value") -> list[int]:
    """The numbers of a range, which may promise more of them than any memory has."""
    if numbers[_MOST_ITEMS:]:
        raise ArgumentError(f"{what}: requires at most {_MOST_ITEMS} items, got {shown(numbers)}")
    return list(numbers)


def array_literal(value: Any, what: str = "tensor"):
    """A literal of an array of numpy, or of what `numpy.asarray` takes without guessing."""
    if not (hasattr(value, "__array__") or hasattr(value, "__dlpack__")):
        raise DTypeError(f"{what}: requires numbers or an array, got {type(value).__name__}")
    from mithril.base.numpy import np

    try:
        if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # which NumPy has not
            value = value.detach().float().numpy().astype(Dtype.bfloat16.numpy())
        array = np.asarray(value)
    except Exception as error:  # of somebody's __array__
        raise ArgumentError(f"{what}: cannot be read as an array: {error}") from error
    dtype = dtype_of(what, array.dtype)
    data = np.ascontiguousarray(array).astype(dtype.numpy(), copy=False)
    return _core.TensorLiteral.from_bytes(str(dtype), list(array.shape), data.tobytes())


def narrowed(array: Any, dtype: Dtype, what: str) -> Any:
    """Casts a NumPy array of floats to a type; returns other arrays as they are."""
    from mithril.base.numpy import np

    found = dtype_of(what, array.dtype)
    if not found.is_float or found == dtype:
        return array
    with np.errstate(over="ignore"):
        made = array.astype(dtype.numpy())
    wide = array[np.isfinite(array) & ~np.isfinite(made)]
    if wide.size:
        raise DataOverflowError(f"{what}: {float(wide.flat[0])!r} does not fit {dtype}")
    return made


def constant_value(constant: Constant) -> float:
    """The number that a `Constant` stands for in 32-bit floats."""
    if constant in (Constant.ZEROS, Constant.ONES):
        return float(constant is Constant.ONES)
    return epsilon_table[32][constant]
