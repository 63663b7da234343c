"""Initial values: a pure function of seed, parameter path and shape, equal on every backend."""

from __future__ import annotations

import math
from typing import Any

from mithril import _core
from mithril._program import Key, literal_array
from mithril.errors import ShapeNotKnown
from mithril.types import Dtype


class Uninitialized:
    """Stands for a parameter whose shape is not known before data are seen.

    The first `evaluate` that tells the shape puts the value in its place.
    """

    __slots__ = ("_why", "name", "seed", "sizes")
    __array_ufunc__ = None

    def __init__(self, name: str, shape: list | None, why: str = "", seed: int = 0):
        self.name = name
        self.sizes = shape
        self.seed = seed
        self._why = why

    def __repr__(self) -> str:
        return f"Uninitialized({self.name!r}, shape={self.sizes})"

    def __reduce__(self):
        return Uninitialized, (self.name, self.sizes, self._why, self.seed)

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
    import numpy as np

    dtype = key.dtype or Dtype.float32
    if key.initial:
        return _given(key.initial[0], key, shape, seed)
    if key.init == "zeros":
        return np.zeros(shape, dtype.numpy())
    if key.init == "ones":
        return np.ones(shape, dtype.numpy())
    # Drawn in double precision, so that all widths of floats start from the same numbers.
    if key.init == "uniform_fan_in":
        bound = 1.0 / math.sqrt(max(fan_in or 1, 1))
        drawn = _core.random_uniform(seed, key.path, -bound, bound, shape)
    else:
        from mithril.backends.random import normal

        words = np.array(_core.derive_key(seed, key.path), np.uint32)
        drawn = normal(words, tuple(shape), np.float64)
    return np.asarray(drawn).astype(dtype.numpy())


def _given(value: Any, key: Key, shape: list[int], seed: int) -> Any:
    import numpy as np

    dtype = (key.dtype or Dtype.float32).numpy()
    if value == "key":
        return np.array(_core.derive_key(seed, key.path), np.uint32).astype(dtype)
    if isinstance(value, _core.TensorLiteral):
        return literal_array(value).astype(dtype)
    return np.full(shape, value, dtype)
