"""Loops of model files, as the oracle runs them: the steps between marks, one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Wire = tuple[str, str]
MARKS = {"scan_enter", "scan_slice", "scan_stack", "scan_exit", "while_exit"}
ENDS = {"scan_stack", "scan_exit", "while_exit"}


class OracleError(Exception):
    """The file, the values given, or an op's result contradict each other."""


class Loop(NamedTuple):
    """A loop: the ops between the marks of one model; a unit of the program, as an op is."""

    marks: dict[str, list[Any]]  # by name
    steps: list[Any]  # ops and loops, in order
    reads: list[Wire]
    writes: list[Wire]

    @property
    def end(self) -> Any:
        return next(self.marks[name][0] for name in sorted(ENDS) if self.marks[name])

    @property
    def exits(self) -> list[Any]:
        return self.marks["scan_exit"] + self.marks["while_exit"]

    @property
    def next(self) -> list[Wire]:
        """The wires of the carries of the next step."""
        return next_of(self.end)


def next_of(end: Any) -> list[Wire]:
    count = sum(key.startswith("carries") for key in end.wires)
    return [end.wires[f"carries{i + 1}"] for i in range(count)]


def wanted_of(end: Any) -> list[Wire]:
    """Returns the wires that steps compute: the result, the condition and the next carries."""
    condition = [end.wires["condition"]] if end.name == "while_exit" else []
    return [end.wires["input"], *condition, *next_of(end)]


class Folding:
    """Replaces marks and steps by loops, inner ones first."""

    def __init__(self, reads: Callable, writes: Callable, ordered: Callable):
        self._reads, self._writes, self._ordered = reads, writes, ordered

    def folded(self, units: Iterable[Any]) -> list[Any]:
        units = list(units)
        models = {unit.model for unit in units if is_mark(unit)}
        while models:
            for model in sorted(models):
                steps = self._steps(units, model)
                if not any(map(is_mark, steps)):
                    break
            else:
                raise OracleError("loops that read each other")
            models.discard(model)
            units = self._replaced(units, model, steps)
        return units

    def _steps(self, units: list[Any], model: str) -> list[Any]:
        """Returns the units that depend on the loop's entries and that its ends depend on."""
        own = [unit for unit in units if is_mark(unit) and unit.model == model]
        others = [unit for unit in units if unit not in own]
        reached = {w for mark in own if mark.name not in ENDS for w in self._writes(mark)}
        asked = {w for mark in own if mark.name in ENDS
                 for w in wanted_of(mark)}  # fmt: skip
        grown = True
        while grown:
            grown = False
            for unit in others:
                reads, writes = set(self._reads(unit)), set(self._writes(unit))
                if reads & reached and not writes <= reached:
                    reached |= writes
                    grown = True
                if writes & asked and not reads <= asked:
                    asked |= reads
                    grown = True
        return [
            u for u in others if reached & set(self._writes(u)) and asked & set(self._writes(u))
        ]

    def _replaced(self, units: list[Any], model: str, steps: list[Any]) -> list[Any]:
        own = [unit for unit in units if is_mark(unit) and unit.model == model]
        marks = {name: [mark for mark in own if mark.name == name] for name in MARKS}
        inside = {wire for unit in [*steps, *own] for wire in self._writes(unit)}
        reads = [w for unit in [*steps, *own] for w in self._reads(unit) if w not in inside]
        ends = [mark for mark in own if mark.name in ENDS]
        wanted = [w for mark in ends for w in wanted_of(mark)]
        loop = Loop(
            marks, self._ordered(steps, wanted), reads, [w for m in ends for w in self._writes(m)]
        )
        return [unit for unit in units if unit not in own and unit not in steps] + [loop]


def is_mark(unit: Any) -> bool:
    return not isinstance(unit, Loop) and unit.name in MARKS


def _places(loop: Loop, values: dict[Wire, Any], is_reverse: bool) -> Iterable[int]:
    if loop.marks["while_exit"]:
        return itertools.count()
    length = int(values[loop.end.wires["length"]])
    return reversed(range(length)) if is_reverse else range(length)


def run(loop: Loop, values: dict[Wire, Any], step: Callable, stack: Callable) -> None:
    """Runs `step(unit, values)` for each unit of a step; `stack(0, *rows)` joins what is kept."""
    enters, exits = loop.marks["scan_enter"], loop.exits
    state = {mark.attrs["index"]: values[mark.wires["start"]] for mark in exits}
    state |= {mark.attrs["index"]: values[mark.wires["input"]] for mark in enters}
    kept: list[list[Any]] = [[] for _ in loop.marks["scan_stack"]]
    is_reverse = loop.end.attrs.get("reverse", False)
    for at in _places(loop, values, is_reverse):
        inside = dict(values)
        for mark in enters:
            inside[mark.wires["output"]] = state[mark.attrs["index"]]
        for mark in loop.marks["scan_slice"]:
            inside[mark.wires["output"]] = values[mark.wires["input"]][at]
        for unit in loop.steps:
            step(unit, inside)
        if loop.marks["while_exit"] and not inside[loop.end.wires["condition"]]:
            break
        state = {index: inside[loop.next[index]] for index in state}
        for rows, mark in zip(kept, loop.marks["scan_stack"], strict=True):
            rows.append(inside[mark.wires["input"]])
    for mark in exits:
        values[mark.wires["output"]] = state[mark.attrs["index"]]
    for rows, mark in zip(kept, loop.marks["scan_stack"], strict=True):
        if not rows:
            raise OracleError("a loop without steps keeps rows of no known shape")
        values[mark.wires["output"]] = stack(0, *(rows[::-1] if is_reverse else rows))


__all__ = ["Folding", "Loop", "OracleError", "is_mark", "run"]
