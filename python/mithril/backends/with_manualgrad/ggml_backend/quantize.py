"""Weights of products in ggml's block types: made by ggml, and how far they are off."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mithril import _core
from mithril.errors import ArgumentError, SignatureError, shown, suggestion

from .graph import NOTHING, Node, Trace, set_custom, struct
from .library import ALL_THREADS, F32, Library, Tensor, TypeTraits
from .memory import ALIGNMENT
from .rows import all_rows

# That ggml makes of floats alone; the numbers are those of GGUF files.
TYPES = {
    "f16": 1, "bf16": 30, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_K": 10,
    "q3_K": 11, "q4_K": 12, "q5_K": 13, "q6_K": 14, "iq4_nl": 20, "iq4_xs": 23, "tq1_0": 34,
    "tq2_0": 35, "mxfp4": 39,
}  # fmt: skip
# Of the largest element of a weight. What lies outside is scaled, for blocks keep their scales in
# float16.
_LEAST, _MOST = 2.0**-10, 65504.0
SHORT = {"int8": "q8_0", "int4": "q4_0"}


def type_named(name: Any) -> str | None:
    """The name of a block type; None for none. Case does not matter."""
    if name is None:
        return None
    if not isinstance(name, str):
        raise SignatureError(
            f"GGMLBackend: quantize requires the name of a type, got {shown(name)}"
        )
    known = {key.lower(): key for key in TYPES} | SHORT
    found = known.get(name.lower())
    if found is None:
        names = [*SHORT, *TYPES]
        raise ArgumentError(
            f"GGMLBackend: quantize: no type named {shown(name)}{suggestion(name, names)}",
            hint=f"one of {', '.join(names)}",
        )
    return found


def check_type(lib: Library, name: str) -> int:
    """Returns the number of a type, which the library must have under that name."""
    number = TYPES[name]
    if lib.type_name(number) != name.encode() or not _to_float(lib, number):
        raise ArgumentError(f"GGMLBackend: quantize: this ggml has no type {name}")
    return number


def _to_float(lib: Library, kind: int) -> int:
    """Returns the address of ggml's function that dequantizes blocks; 0 if there is none."""
    traits = TypeTraits.from_address(lib.get_type_traits(kind))
    facts = traits.name, traits.block, traits.size
    if facts != (lib.type_name(kind), lib.blck_size(kind), lib.type_size(kind)):
        return 0  # the struct is another one
    return traits.to_float or 0


@dataclass
class Weight:
    """A matrix [n, k] in blocks along k, of an input (made anew at each call) or a constant."""

    lib: Library
    kind: int
    tensor: int
    shape: tuple[int, int]
    source: int | None
    constant: np.ndarray | None
    is_turned: bool  # whether the array has k first
    of: int  # the tensor of that array
    guards: list[Any] = field(default_factory=list)  # of the products with it

    def __post_init__(self) -> None:
        self.factor = np.ones(1)  # which its numbers still have to be multiplied by

    @property
    def size(self) -> int:
        return self.lib.row_size(self.kind, self.shape[1]) * self.shape[0]

    def place(self) -> None:
        self._bytes = np.empty(self.size + ALIGNMENT, np.uint8)
        start = -(-self._bytes.ctypes.data // ALIGNMENT) * ALIGNMENT
        struct(self.tensor).data = start
        if self.constant is not None:
            self._quantize(self.constant)

    def refresh(self, inputs: Sequence[Any]) -> None:
        if self.source is not None:
            self._quantize(inputs[self.source])

    def _quantize(self, values: np.ndarray) -> None:
        values = np.ascontiguousarray(values.T if self.is_turned else values, np.float32)
        largest = float(np.abs(values).max(initial=0.0))
        if not np.isfinite(largest):
            raise ArgumentError("GGMLBackend: quantize: a weight has elements that are not finite")
        self.factor[0] = 1.0
        if largest and not _LEAST <= largest <= _MOST:
            self.factor[0] = 2.0 ** math.frexp(largest)[1]
            values = (values / self.factor).astype(np.float32)
        rows, columns = self.shape
        target = struct(self.tensor).data
        self.lib.quantize_chunk(self.kind, values.ctypes.data, target, 0, rows, columns, None)

    def values(self) -> np.ndarray:
        """Returns the dequantized weight, [n, k] in float32."""
        found = all_rows(self.lib, struct(self.tensor).data, self.kind, self.shape)
        return (found * self.factor).astype(np.float32)

    def guarded(self, trace: Trace, rows: int, count: int) -> int:
        """Returns the product with `rows`, guarded against values that blocks cannot hold."""
        lib, width = self.lib, self.shape[1]
        source = (ctypes.c_void_p * 1)(rows)
        scaled = lib.custom_4d(
            trace.context, F32, width, count, 1, 1, source, 1, NOTHING, ALL_THREADS, None
        )
        product = lib.mul_mat(trace.context, self.tensor, scaled)
        finished = lib.custom_inplace(trace.context, product, source, 1, NOTHING, ALL_THREADS, None)
        guard = _core.GGMLRowGuard(
            rows_at=_place(rows),
            scaled_at=_place(scaled),
            results_at=_place(product),
            blocks_at=_place(self.tensor),
            factor_at=self.factor.ctypes.data,
            to_float_at=_to_float(lib, self.kind),
            count=count,
            width=width,
            weights=self.shape[0],
            row_bytes=lib.row_size(self.kind, width),
        )
        set_custom(scaled, guard.prepare_at, ALL_THREADS, guard.address)
        set_custom(finished, guard.finish_at, ALL_THREADS, guard.address)
        self.guards.append(guard)
        trace.order += [scaled, product]
        return finished


def _place(tensor: int) -> int:
    """Returns the address of the field of a tensor that holds its data pointer."""
    return tensor + Tensor.data.offset


def in_blocks(trace: Trace, node: Node, is_turned: bool = False) -> Weight | None:
    """Returns a weight [n, k] in blocks, or None if it is not quantized.

    Parameters
    ----------
    is_turned : whether the node has k first
    """
    constant = trace.constants.get(node.tensor)
    shape = node.shape[::-1] if is_turned else node.shape
    if not _can_be_blocks(trace, node, constant, shape):
        return None
    for known in trace.derived:
        if (known.of, known.is_turned) == (node.tensor, is_turned):
            return known
    kind = trace.quantize
    assert kind is not None
    rows, columns = shape
    tensor = trace.lib.new_tensor_4d(trace.context, kind, columns, rows, 1, 1)
    array = None if constant is None else constant[1]
    source = node.source if constant is None else None
    made = Weight(trace.lib, kind, tensor, (rows, columns), source, array, is_turned, node.tensor)
    trace.derived.append(made)
    return made


def _can_be_blocks(trace: Trace, node: Node, constant: Any, shape: tuple[int, ...]) -> bool:
    if trace.quantize is None or len(shape) != 2 or node.dtype != np.float32:
        return False
    is_weight = constant is not None or node.source in trace.parameters
    return is_weight and shape[1] % trace.lib.blck_size(trace.quantize) == 0
