"""Weights of products in ggml's block types: made by ggml, and how far they are off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mithril.errors import ArgumentError, SignatureError, shown, suggestion

from .graph import Node, Trace, struct
from .library import Library
from .memory import ALIGNMENT

# That ggml makes of floats alone; the numbers are those of GGUF files.
TYPES = {
    "f16": 1, "bf16": 30, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_K": 10,
    "q3_K": 11, "q4_K": 12, "q5_K": 13, "q6_K": 14, "iq4_nl": 20, "iq4_xs": 23, "tq1_0": 34,
    "tq2_0": 35, "mxfp4": 39,
}  # fmt: skip
_WIDE = {TYPES["bf16"], TYPES["mxfp4"]}
_LARGEST = 65504.0  # of float16, in which the others keep their scales
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
    """The number of a type, which the library must have under that name."""
    number = TYPES[name]
    if lib.type_name(number) != name.encode():
        raise ArgumentError(f"GGMLBackend: quantize: this ggml has no type {name}")
    return number


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
        if largest > _LARGEST and self.kind not in _WIDE:
            raise ArgumentError(
                f"GGMLBackend: quantize: a weight has an element of {largest:.6g}, where types with"
                f" numbers of float16 hold at most {_LARGEST:.0f}",
                hint="bf16 and mxfp4 hold all",
            )
        rows, columns = self.shape
        target = struct(self.tensor).data
        self.lib.quantize_chunk(self.kind, values.ctypes.data, target, 0, rows, columns, None)

    def values(self) -> np.ndarray:
        """What the blocks stand for, [n, k]."""
        from .rows import all_rows

        return all_rows(self.lib, struct(self.tensor).data, self.kind, self.shape)


def weight_of(trace: Trace, node: Node, is_turned: bool = False) -> int:
    """The tensor [n, k] of a weight: in blocks if the backend wants that and it can be."""
    constant = trace.constants.get(node.tensor)
    shape = node.shape[::-1] if is_turned else node.shape
    if not _can_be_blocks(trace, node, constant, shape):
        from .products import swapped

        return swapped(node).tensor if is_turned else node.tensor
    for known in trace.derived:
        if (known.of, known.is_turned) == (node.tensor, is_turned):
            return known.tensor
    kind = trace.quantize
    assert kind is not None
    rows, columns = shape
    tensor = trace.lib.new_tensor_4d(trace.context, kind, columns, rows, 1, 1)
    array = None if constant is None else constant[1]
    source = node.source if constant is None else None
    trace.derived.append(
        Weight(trace.lib, kind, tensor, (rows, columns), source, array, is_turned, node.tensor)
    )
    return tensor


def _can_be_blocks(trace: Trace, node: Node, constant: Any, shape: tuple[int, ...]) -> bool:
    if trace.quantize is None or len(shape) != 2 or node.dtype != np.float32:
        return False
    is_weight = constant is not None or node.source in trace.parameters
    return is_weight and shape[1] % trace.lib.blck_size(trace.quantize) == 0
