"""The dtypes in which operands of methods meet: the rule of `docs/numerics.md`, which each op's
block states for the engine (ir::DTypeRule)."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from mithril.types import Dtype

_ORDER = {name: rank for rank, name in enumerate(
    ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
     "float64")
)}  # fmt: skip


def promote(a: Dtype, b: Dtype) -> Dtype:
    """Returns the dtype to which operands of two dtypes are promoted."""
    if a is b:
        return a
    if {a, b} == {Dtype.uint8, Dtype.int8}:
        return Dtype.int16
    if {a, b} == {Dtype.float16, Dtype.bfloat16}:
        return Dtype.float32
    return a if _ORDER[a.value] >= _ORDER[b.value] else b


def compute_type(
    backend: Any, rule: str, arrays: Iterable[Dtype], numbers: Iterable[Any] = ()
) -> Dtype:
    """Returns the dtype that an op of that rule computes in; Python numbers widen only the kind."""
    joined = functools.reduce(promote, arrays)
    weak = max([0, *(_kind_of_number(number) for number in numbers)])
    if weak > _kind(joined):
        joined = backend.default_dtype if weak == 2 else backend.default_int
    if rule == "promote_float" and not joined.is_float:
        return backend.default_dtype
    if rule == "promote_int" and not joined.is_float:
        return backend.default_int
    if rule == "promote_number" and joined is Dtype.bool:
        return backend.default_int
    return joined


def _kind(dtype: Dtype) -> int:
    return 0 if dtype is Dtype.bool else 2 if dtype.is_float else 1


def _kind_of_number(number: Any) -> int:
    return 0 if isinstance(number, bool) else 1 if isinstance(number, int) else 2
