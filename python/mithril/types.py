"""Element types and numeric constants. Imports no array library."""

from __future__ import annotations

import builtins
import enum
from collections.abc import Mapping, Sequence
from typing import Any

from mithril.base.public import public
from mithril.errors import DTypeError, shown


class Dtype(enum.StrEnum):
    """An element type: a string, so that `ml.float32 == "float32"` and dictionaries agree.

    >>> Dtype.float32 == "float32", str(Dtype.int8), Dtype.float16.itemsize
    (True, 'int8', 2)
    """

    uint8 = "uint8"
    int8 = "int8"
    int16 = "int16"
    int32 = "int32"
    int64 = "int64"
    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"
    float64 = "float64"
    bool = "bool"

    @property
    def itemsize(self) -> builtins.int:
        """Bytes that one element takes."""
        return _ITEM_SIZES[self]

    @property
    def is_float(self) -> builtins.bool:
        return "float" in self.value

    @property
    def is_integer(self) -> builtins.bool:
        return "int" in self.value

    def numpy(self):
        """The `numpy.dtype` (ml_dtypes' for bfloat16)."""
        found = _NUMPY.get(self)
        if found is None:
            from mithril.base.numpy import np

            if self is Dtype.bfloat16:
                import ml_dtypes

                found = np.dtype(ml_dtypes.bfloat16)
            else:
                found = np.dtype(self.value)
            _NUMPY[self] = found
            _FROM_NUMPY[found] = self
        return found


_NUMPY: dict[Dtype, Any] = {}  # as they were asked for: NumPy is not imported for them
_FROM_NUMPY: dict[Any, Dtype] = {}

_ITEM_SIZES = {
    Dtype.uint8: 1,
    Dtype.int8: 1,
    Dtype.int16: 2,
    Dtype.int32: 4,
    Dtype.int64: 8,
    Dtype.float16: 2,
    Dtype.bfloat16: 2,
    Dtype.float32: 4,
    Dtype.float64: 8,
    Dtype.bool: 1,
}

# Further spellings. Python's own `int` is the object, not this name: `as_dtype(int)` is int64,
# `as_dtype("int")` is int32 as `ml.int` is.
_ALIASES = {
    "short": Dtype.int16,
    "int": Dtype.int32,
    "long": Dtype.int64,
    "half": Dtype.float16,
    "float": Dtype.float32,
    "double": Dtype.float64,
    "bool_": Dtype.bool,
    "f16": Dtype.float16,
    "bf16": Dtype.bfloat16,
    "f32": Dtype.float32,
    "f64": Dtype.float64,
    "i8": Dtype.int8,
    "u8": Dtype.uint8,
    "i16": Dtype.int16,
    "i32": Dtype.int32,
    "i64": Dtype.int64,
}
_PYTHON = {builtins.int: Dtype.int64, builtins.float: Dtype.float32, builtins.bool: Dtype.bool}
_BY_NAME = {str(d): d for d in Dtype} | _ALIASES
DTypeLike = Dtype | str | type | Any


@public
def as_dtype(x: DTypeLike) -> Dtype:
    """The `Dtype` that `x` means: a string, or a dtype of numpy, ml_dtypes, torch, jax or mlx.

    >>> as_dtype("float32"), as_dtype(float)
    (<Dtype.float32: 'float32'>, <Dtype.float32: 'float32'>)
    """
    if isinstance(x, Dtype):
        return x
    if type(x).__module__ == "numpy.dtypes" and x in _FROM_NUMPY:
        return _FROM_NUMPY[x]  # spelling the name out takes NumPy microseconds
    return dtype_of("dtype", x)


def dtype_of(what: str, x: Any) -> Dtype:
    """`as_dtype` of what an argument was given; `what` names it."""
    if isinstance(x, Dtype):
        return x
    found = _PYTHON.get(x) if isinstance(x, type) else None
    if found is None:
        found = _BY_NAME.get(_dtype_name(x))
    if found is None:
        known = ", ".join(Dtype)
        raise DTypeError(f"{what}: requires one of {known}, got {shown(x)}", code="MTH201")
    return found


def _dtype_name(x: Any) -> str:
    if isinstance(x, str):
        return x
    if isinstance(x, (builtins.int, builtins.float, list, tuple, dict)) or x is None:
        return ""
    for attribute in ("__name__", "name"):
        name = getattr(x, attribute, None)
        if isinstance(name, str):
            return name
    try:
        return str(x).rpartition(".")[2]
    except Exception:  # a __repr__ of somebody
        return ""


class PaddingType(enum.IntEnum):
    """Padding of a window by name."""

    VALID = 0
    SAME = 1


class Constant(enum.IntEnum):
    """A number whose value depends on the backend's precision."""

    EPSILON = 0
    LEFT_EPSILON = 1
    MIN_POSITIVE_NORMAL = 2
    MIN_POSITIVE_SUBNORMAL = 3
    STABLE_RECIPROCAL_THRESHOLD = 4
    ZEROS = 5
    ONES = 6


epsilon_table: dict[builtins.int, dict[Constant, builtins.float]] = {
    64: {
        Constant.EPSILON: 2.220446049250313e-16,
        Constant.LEFT_EPSILON: 1.1102230246251565e-16,
        Constant.MIN_POSITIVE_NORMAL: 2.2250738585072014e-308,
        Constant.MIN_POSITIVE_SUBNORMAL: 5e-324,
        Constant.STABLE_RECIPROCAL_THRESHOLD: 1.4916681462400413e-153,
    },
    32: {
        Constant.EPSILON: 1.1920929e-07,
        Constant.LEFT_EPSILON: 5.9604645e-08,
        Constant.MIN_POSITIVE_NORMAL: 1.1754944e-38,
        Constant.MIN_POSITIVE_SUBNORMAL: 1e-45,
        Constant.STABLE_RECIPROCAL_THRESHOLD: 1.0842021951e-19,
    },
    16: {
        Constant.EPSILON: 0.000977,
        Constant.LEFT_EPSILON: 0.0004885,
        Constant.MIN_POSITIVE_NORMAL: 6.104e-05,
        Constant.MIN_POSITIVE_SUBNORMAL: 6e-08,
        Constant.STABLE_RECIPROCAL_THRESHOLD: 0.007812809993849843,
    },
}


# What a constant is, wherever it stands for a tensor: its element type, and its shape (None: that
# of the key).
constant_type_table: dict[Constant, type] = dict.fromkeys(Constant, builtins.float)
constant_shp_table: dict[Constant, list | None] = {
    constant: None if constant in (Constant.ZEROS, Constant.ONES) else [] for constant in Constant
}

PhysicalShapeType = Mapping[Any, Sequence[Any]]  # what `compile(shapes=)` takes
PhysicalConstantType = Mapping[Any, Any]  # what `compile(constant_keys=)` takes
DataType = Dtype


class _Singleton:
    """A value that stands for the absence of one; compared by identity."""

    def __init__(self, name: str):
        self._name = name

    def __repr__(self) -> str:
        return self._name

    def __reduce__(self) -> str:
        return self._name

    def __bool__(self) -> builtins.bool:
        return False


class ToBeDetermined(_Singleton):
    """The class of `TBD`."""


class NullConnection(_Singleton):
    """The class of `NOT_GIVEN`."""


TBD = ToBeDetermined("TBD")  # a key exists, its value is not known yet
NOT_GIVEN = NullConnection("NOT_GIVEN")  # the caller gave nothing
MISSING = _Singleton("MISSING")  # an argument without default

uint8 = Dtype.uint8
int8 = Dtype.int8
int16 = short = Dtype.int16
int32 = int = Dtype.int32
int64 = long = Dtype.int64
float16 = half = Dtype.float16
bfloat16 = Dtype.bfloat16
float32 = float = Dtype.float32
float64 = double = Dtype.float64
bool = Dtype.bool

# `int`, `float` and `bool` would shadow the builtins under `import *`.
__all__ = [
    "Constant",
    "DTypeLike",
    "Dtype",
    "NOT_GIVEN",
    "PaddingType",
    "TBD",
    "as_dtype",
    "bfloat16",
    "double",
    "epsilon_table",
    "float16",
    "float32",
    "float64",
    "half",
    "int8",
    "int16",
    "int32",
    "int64",
    "long",
    "short",
    "uint8",
]
