"""The arrays of an exported C program, and where they lie in memory and in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mithril.base.numpy import np
from mithril.physical.step_layout import state_key
from mithril.types import Dtype

__all__ = ["ALIGNMENT", "Array", "Export", "Wanted", "end_of", "placed_arrays"]

ALIGNMENT = 64  # bytes: of the arena, of files in memory and of every array in them


@dataclass(frozen=True)
class Array:
    """An array of the program: its number among inputs or outputs, and its name in C."""

    place: int
    kind: str  # "input", "output", "weight"; of what training keeps: "parameter", "optimizer.m" …
    field: str  # of a struct: "input_0"; of arrays in a block: ""
    name: str  # of the model; of constants: ""
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0  # in the block that it belongs to

    @property
    def bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * Dtype(self.dtype).itemsize

    def entry(self) -> dict[str, Any]:
        """Returns the entry of this array in the description of the layout."""
        names = {"kind": self.kind, "field": self.field, "name": self.name}
        facts = {"dtype": self.dtype, "shape": list(self.shape), "bytes": self.bytes}
        where = {} if self.field else {"offset": self.offset}
        return {key: value for key, value in names.items() if value} | facts | where


@dataclass(frozen=True)
class Wanted:
    """The form in which a program is exported."""

    name: str
    training: bool
    weights: str  # "binary", "array"
    freestanding: bool
    threads: int


@dataclass(frozen=True)
class Export:
    """A program with its arrays, ready to be written."""

    wanted: Wanted
    source: Mapping[str, Any]  # of `_core.CProgram.source`
    inputs: list[Array]  # that a caller gives
    outputs: list[Array]
    constants: list[Array]
    kept: list[Array] = field(default_factory=list)  # what steps of training update where it is
    values: dict[int, np.ndarray] = field(default_factory=dict)  # of states at first, by place
    aliases: dict[int, int] = field(default_factory=dict)  # output -> input with its memory

    @property
    def name(self) -> str:
        return self.wanted.name

    @property
    def training(self) -> bool:
        return self.wanted.training

    @property
    def weights(self) -> str:
        return self.wanted.weights

    @property
    def freestanding(self) -> bool:
        return self.wanted.freestanding

    @property
    def threads(self) -> int:
        return self.wanted.threads

    @property
    def arena_bytes(self) -> int:
        return int(self.source["arena_bytes"])

    @property
    def states(self) -> list[tuple[Array, Array]]:
        """Pairs each output that the next call reads with the input that it is then."""
        read = {state_key(one.name): one for one in self.inputs if one.kind == "state"}
        return [(one, read[one.name]) for one in self.outputs if one.name in read]

    @property
    def first_states(self) -> list[Array]:
        """The states among the inputs that do not begin with zeros."""
        states = [one for one in self.inputs if one.kind == "state"]
        return [one for one in states if self.values[one.place].tobytes().strip(b"\0")]

    @property
    def constant_arrays(self) -> list[np.ndarray]:
        return [constant["array"] for constant in self.source["constants"]]

    @property
    def kept_arrays(self) -> list[np.ndarray]:
        return [self.values[one.place] for one in self.kept]

    def layout(self) -> dict[str, Any]:
        """Returns the machine-readable description of the files."""
        found: dict[str, Any] = {
            "format": "mithril-c/1",
            "name": self.name,
            "training": self.training,
            "weights": self.weights,
            "threads": self.threads,
            "alignment": ALIGNMENT,
            "arena_bytes": self.arena_bytes,
            "weight_bytes": end_of(self.constants),
            "needs_libm": bool(self.source["needs_libm"]),
            "inputs": [one.entry() for one in self.inputs],
            "outputs": [one.entry() for one in self.outputs],
            "constants": [one.entry() for one in self.constants],
        }
        if self.training:
            found |= {
                "state_bytes": end_of(self.kept),
                "state": [one.entry() for one in self.kept],
            }
        return found


def placed_arrays(arrays: Iterable[Array]) -> list[Array]:
    """Places arrays one after another in a block, each at a multiple of the alignment."""
    out: list[Array] = []
    for one in arrays:
        out.append(replace(one, offset=end_of(out)))
    return out


def end_of(arrays: Sequence[Array]) -> int:
    """Returns the size in bytes of a block with these arrays."""
    if not arrays:
        return 0
    end = arrays[-1].offset + arrays[-1].bytes
    return -(-end // ALIGNMENT) * ALIGNMENT
