"""Initial values: a pure function of seed, parameter path and shape, equal on every backend."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mithril import _core
from mithril.base.checks import checked_list
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    DataOverflowError,
    DTypeError,
    KeyNotFound,
    OutOfMemoryError,
    ShapeNotKnown,
    SignatureError,
    shown,
    suggestion,
)
from mithril.execution.random import normal
from mithril.physical.conversion import as_numpy
from mithril.physical.literals import literal_array
from mithril.physical.program_keys import Key
from mithril.types import Dtype

_MOST_ELEMENTS = 2**58  # of which no machine has the bytes, and NumPy counts them in 64 bits
NAMED = _core.initializers()


class Uninitialized:
    """Stands for a parameter whose shape is not known before data are seen.

    The first `evaluate` that tells the shape puts the value in its place.
    """

    __slots__ = ("_why", "init", "name", "seed", "sizes")
    __array_ufunc__ = None

    def __init__(
        self, name: str, shape: list | None, why: str = "", seed: int = 0, init: Any = None
    ):
        self.name = name
        self.sizes = shape
        self.seed = seed
        self.init = init
        self._why = why

    def __repr__(self) -> str:
        return f"Uninitialized({self.name!r}, shape={self.sizes})"

    def __reduce__(self):
        return Uninitialized, (self.name, self.sizes, self._why, self.seed, self.init)

    @public
    def _fail(self, *_: Any, **__: Any) -> Any:
        text = "unknown" if self.sizes is None else str(self.sizes)
        raise ShapeNotKnown(
            f"parameter '{self.name}' has no value yet: its shape is {text}",
            hint=self._why or "give shapes= to compile, or call init(sample)",
        )

    @property
    def shape(self) -> Any:
        return self._fail()

    @property
    def dtype(self) -> Any:
        return self._fail()


for _name in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "floordiv",
    "rfloordiv",
    "pow",
    "rpow",
    "matmul",
    "rmatmul",
    "neg",
    "pos",
    "abs",
    "getitem",
    "len",
    "iter",
    "float",
    "int",
    "index",
    "bool",
    "array",
    "lt",
    "le",
    "gt",
    "ge",
]:
    setattr(Uninitialized, f"__{_name}__", Uninitialized._fail)


def draw(key: Key, shape: list[int], fan_in: int | None, seed: int) -> Any:
    """The initial value of a parameter or statistic as a NumPy array."""
    too_large = OutOfMemoryError(f"'{key.name}' does not fit in memory, its shape is {shape}")
    if math.prod(shape) >= _MOST_ELEMENTS:
        raise too_large
    try:
        return _draw(key, shape, fan_in, seed)
    except MemoryError:
        raise too_large from None


def _draw(key: Key, shape: list[int], fan_in: int | None, seed: int) -> Any:
    from mithril.base.numpy import np

    dtype = key.dtype or Dtype.float32
    if key.initial:
        return _given(key.initial[0], key, shape, seed)
    if not isinstance(key.init, str):
        return _made(key.init, key, shape)
    if key.init == "zeros":
        return np.zeros(shape, dtype.numpy())
    if key.init == "ones":
        return np.ones(shape, dtype.numpy())
    # Drawn in double precision, so that all widths of floats start from the same numbers.
    spread, is_uniform = _spread(key, shape, fan_in)
    if is_uniform:
        drawn = _core.random_uniform(seed, key.path, -spread, spread, shape)
    else:
        words = np.array(_core.derive_key(seed, key.path), np.uint32)
        drawn = normal(words, tuple(shape), np.float64)
        if spread != 1.0:
            drawn = np.asarray(drawn) * spread
    return np.asarray(drawn).astype(dtype.numpy())


def _spread(key: Key, shape: list[int], fan_in: int | None) -> tuple[float, bool]:
    """Returns (bound, True) for uniform numbers, (standard deviation, False) for normal ones.

    Glorot and Bengio 2010 ("xavier") and He et al. 2015 ("kaiming", for ReLU), with the inputs and
    outputs that `torch.nn.init` counts.
    """
    if key.init == "uniform_fan_in":
        return 1.0 / math.sqrt(max(fan_in or 1, 1)), True
    scheme, _, law = key.init.partition("_")
    if scheme not in ("xavier", "kaiming"):
        return 1.0, False
    if len(shape) < 2:
        raise ArgumentError(
            f"init of '{key.name}': {key.init!r} requires two axes or more, its shape is {shape}",
            hint='name the parameters that it is for: init={"weight": "' + key.init + '"}',
        )
    field = math.prod(shape[2:])
    read, written = shape[1] * field, shape[0] * field
    deviation = math.sqrt(2.0 / max(read + written if scheme == "xavier" else read, 1))
    return (deviation * math.sqrt(3.0), True) if law == "uniform" else (deviation, False)


def _made(init: Any, key: Key, shape: list[int]) -> Any:
    """Makes an initial array of a number, an array or a function of the user's."""
    from mithril.base.numpy import np

    what = f"init of '{key.name}'"
    value = as_numpy(init(tuple(shape)) if callable(init) else init, what)
    if value.dtype.kind not in "fiub":
        raise DTypeError(f"{what}: requires numbers, got {value.dtype}")
    if value.ndim and list(value.shape) != shape:
        raise ArgumentError(f"{what}: requires shape {shape}, got {list(value.shape)}")
    return np.broadcast_to(value, shape).astype((key.dtype or Dtype.float32).numpy())


def initializers(init: Any, names: Sequence[str]) -> dict[str, Any]:
    """Maps parameters to initializers, by names and patterns; the first that fits counts."""
    if init is None:
        return {}
    if not isinstance(init, Mapping):
        raise SignatureError(f"init: requires a dictionary, got {shown(init)}")
    found: dict[str, Any] = {}
    for pattern, initializer in init.items():
        hits = _hits(pattern, names)
        if not hits:
            near = suggestion(pattern, names) if isinstance(pattern, str) else ""
            raise KeyNotFound(f"init: no parameter is named {shown(pattern)}{near}")
        _check_initializer(initializer)
        for name in hits:
            found.setdefault(name, initializer)
    return found


def _hits(pattern: Any, names: Sequence[str]) -> list[str]:
    if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
        return [name for name in names if pattern.search(name)]
    if not isinstance(pattern, str):
        raise SignatureError(f"init: requires names or patterns, got {shown(pattern)}")
    return [n for n in names if n == pattern] or fnmatch.filter(names, pattern)


def _check_initializer(initializer: Any) -> None:
    named = isinstance(initializer, str)
    if named and initializer not in NAMED:
        near = suggestion(initializer, NAMED)
        raise ArgumentError(f"init: no initializer named {initializer!r}{near}")
    if initializer is None or isinstance(initializer, (bool, Uninitialized)):
        raise SignatureError(
            f"init: requires a name, a number, an array or a function, got {shown(initializer)}"
        )


def left_out_names(excluded: Any, names: Sequence[str]) -> set[str]:
    wanted = checked_list("excluded_keys", excluded, "names", optional=True)
    for name in wanted:
        if not isinstance(name, str) or name not in names:
            near = suggestion(name, names) if isinstance(name, str) else ""
            raise KeyNotFound(f"excluded_keys: no parameter is named {shown(name)}{near}")
    return set(wanted)


def _given(value: Any, key: Key, shape: list[int], seed: int) -> Any:
    from mithril.base.numpy import np

    # Where ranks are open no dtype has been assigned yet.
    is_int = isinstance(value, int) and not isinstance(value, bool)
    dtype = (key.dtype or (Dtype.int64 if is_int else Dtype.float32)).numpy()
    if value == "key":
        return np.array(_core.derive_key(seed, key.path), np.uint32).astype(dtype)
    if isinstance(value, _core.TensorLiteral):
        return literal_array(value).astype(dtype)
    with np.errstate(over="ignore"):
        made = np.full(shape, value, dtype)
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if is_finite and dtype.kind == "f" and made.size and not np.isfinite(made.flat[0]):
        raise DataOverflowError(f"init of '{key.name}': {value} is beyond {dtype}")
    return made
