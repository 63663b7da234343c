"""Plans of the memory that a compiled model's programs take: `PhysicalModel.memory_plan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mithril import _core
from mithril.base.checks import checked_str
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    MithrilError,
    OutOfMemoryError,
    ShapeError,
    UnsupportedError,
    shown,
    suggestion,
)
from mithril.execution.memory import parse_size
from mithril.inspection.formula import Polynomial, fit
from mithril.physical.program import Program
from mithril.physical.sizes import (
    ProgramKind,
    Shapes,
    checked_shapes,
    input_shapes,
    program_for,
    program_kinds,
)
from mithril.types import Dtype

# Sizes that stand in for open ones: unlike one another, and unlike the widths of most layers.
_ASSUMED = (24, 40, 56, 72)
_MOST_OPEN = 4
_LARGEST = 2**48
_SHOWN = 8
_PARTS = ("inputs", "parameters", "optimizer", "constants", "outputs", "intermediates")


@dataclass(frozen=True)
class Contributor:
    """An allocation that is in use when the most memory is."""

    bytes: int
    kernel: str  # of the step that writes it
    path: str  # in the model
    dtype: Dtype | None  # None: what a loop or a branch takes for its own steps
    shape: tuple[int, ...] | None

    def __str__(self) -> str:
        what = "its own steps" if self.dtype is None else f"{self.dtype}{list(self.shape or ())}"
        where = f" in {self.path}" if self.path else ""
        return f"{_core.print_bytes(self.bytes)} {what} of {self.kernel}{where}"


@dataclass(frozen=True)
class ProgramMemory:
    """The memory that one program takes at given sizes, in bytes.

    `peak` is what it allocates for intermediate results: the arena, which rounds each of them up
    to 64 bytes and may have holes, and what loops and branches take beside it. `live` is the
    most of it in use at once, and `contributors` lists what that is.
    """

    name: str  # "evaluate", "gradient", "step"
    peak: int
    live: int
    inputs: int
    parameters: int
    optimizer: int
    constants: int
    outputs: int
    scratch: int  # of all threads together
    contributors: tuple[Contributor, ...] = field(repr=False)

    @property
    def total(self) -> int:
        """The bytes in use during a call, with what the caller holds."""
        held = self.inputs + self.parameters + self.optimizer + self.constants
        return held + self.outputs + self.peak + self.scratch


@dataclass(frozen=True)
class Formula:
    """Bytes as polynomials over the open sizes.

    `intermediates` counts what is in use at the step that is the peak at the planned sizes, without
    what the arena adds by rounding.
    """

    note: str  # for which sizes it was checked
    inputs: Polynomial
    parameters: Polynomial
    optimizer: Polynomial
    constants: Polynomial
    outputs: Polynomial
    intermediates: Polynomial

    @property
    def total(self) -> Polynomial:
        out = self.inputs
        for part in _PARTS[1:]:
            out = out + getattr(self, part)
        return out

    def __str__(self) -> str:
        return str(self.total)


class _Planned:
    """One program of the model, planned at any sizes."""

    def __init__(self, kind: ProgramKind, threads: int):
        self.name, self.executable, self._roles = kind
        self._threads = threads

    def raw(self, sizes: Mapping[str, int], step: int = -1) -> dict[str, Any]:
        shapes = self.executable.sizes(dict(sizes))
        return self.executable.memory(shapes, step)

    def held(self, raw: Mapping[str, Any]) -> dict[str, int]:
        """Returns the bytes of the inputs by role: inputs, parameters, optimizer."""
        out = {"inputs": 0, "parameters": 0, "optimizer": 0}
        for index, count in raw["inputs"].items():
            out[self._roles[index]] += count
        return out

    def at(self, sizes: Mapping[str, int]) -> ProgramMemory:
        raw = self.raw(sizes)
        return ProgramMemory(
            self.name,
            raw["arena"] + raw["regions"],
            raw["live"],
            **self.held(raw),
            constants=raw["constants"],
            outputs=raw["outputs"],
            scratch=raw["scratch"] * self._threads,
            contributors=tuple(Contributor(*row) for row in raw["contributors"]),
        )

    def formula(self, sizes: Mapping[str, int]) -> Formula | str:
        """Returns the formula, or a text that says why there is none."""
        if len(sizes) > _MOST_OPEN:
            return f"there are {len(sizes)} open sizes"
        sizes = {name: max(size, 2) for name, size in sizes.items()}  # one of 1 is broadcast
        base = self._tried(sizes)
        if base is None:
            return "the model takes few sizes only"
        step, structure = base["peak_step"], base["structure"]

        def measure(at: dict[str, int]) -> list[int] | None:
            raw = self._tried(at, step)
            return None if raw is None or raw["structure"] != structure else self._row(raw)

        found = fit(measure, sizes)
        if found is None:
            return "other sizes have other steps, or take what is no polynomial"
        return Formula(self._note(found, sizes), *found)

    def _tried(self, sizes: Mapping[str, int], step: int = -1) -> dict[str, Any] | None:
        try:
            return self.raw(sizes, step)
        except (ShapeError, OutOfMemoryError):  # not every size suits the model
            return None

    def _row(self, raw: Mapping[str, Any]) -> list[int]:
        held = self.held(raw)
        return [*held.values(), raw["constants"], raw["outputs"], raw["live"]]

    def _note(self, found: list[Polynomial], sizes: Mapping[str, int]) -> str:
        """Says where the formula holds, after comparing it with plans at other sizes."""
        right, wrong = [], []
        for name, size in sizes.items():
            for other in dict.fromkeys((1, max(size // 2, 1), 4 * size, 32 * size)):
                at = {**sizes, name: other}
                raw = self._tried(at)
                if raw is None or other == size:
                    continue
                exact = sum(self._row(raw))
                off = float(sum(p(at) for p in found)) / max(exact, 1) - 1
                text = f"{name}={other}"
                wrong += [f"{text} ({100 * off:+.2g} %)"] if off else []
                right += [] if off else [text]
        if not wrong:
            return f"exact at {', '.join(right)}" if right else ""
        near = ", ".join(f"{name}={size}" for name, size in sizes.items())
        return f"right near {near}; off at {', '.join(wrong)}"


class MemoryPlan:
    """The memory that a compiled model takes; made by `PhysicalModel.memory_plan`, read by `print`.

    `programs` has an entry for each kind of program: "evaluate", "gradient" where it has
    trainable parameters, "step" where it was compiled with an optimizer. The figures of the last
    one, which takes the most, are attributes of the plan, too: `peak`, `total`, `contributors` …
    """

    def __init__(self, planned: list[_Planned], sizes: dict[str, int], assumed: list[str]):
        self._planned = {one.name: one for one in planned}
        self.sizes = sizes
        self.assumed = tuple(assumed)
        self.programs = {one.name: one.at(sizes) for one in planned}
        self._formulas: dict[str, Formula | str] = {}

    def __getitem__(self, name: str) -> ProgramMemory:
        return self.programs[self._checked(name)]

    @property
    def main(self) -> ProgramMemory:
        """The last of the programs, which takes the most."""
        return list(self.programs.values())[-1]

    peak = property(lambda self: self.main.peak, doc="Bytes allocated for intermediate results.")
    total = property(lambda self: self.main.total, doc="Bytes of everything during a call.")
    inputs = property(lambda self: self.main.inputs, doc="Bytes of data, state and cotangents.")
    parameters = property(lambda self: self.main.parameters, doc="Bytes of the parameters.")
    optimizer = property(lambda self: self.main.optimizer, doc="Bytes of the optimizer's state.")
    constants = property(lambda self: self.main.constants, doc="Bytes of what was folded.")
    outputs = property(lambda self: self.main.outputs, doc="Bytes of what a call returns.")
    scratch = property(lambda self: self.main.scratch, doc="Bytes that kernels work in.")
    contributors = property(lambda self: self.main.contributors, doc="Values in use at the peak.")

    @property
    def formula(self) -> Formula | None:
        """Bytes as polynomials over the open sizes; None where no polynomials are found."""
        return self.formula_of(self.main.name)

    def formula_of(self, program: str) -> Formula | None:
        """Returns the formula of a program or None; `print` tells why there is none."""
        found = self._formula(self._checked(program))
        return found if isinstance(found, Formula) else None

    def _formula(self, name: str) -> Formula | str:
        if name not in self._formulas:
            self._formulas[name] = self._planned[name].formula(self.sizes)
        return self._formulas[name]

    def largest(
        self, size: str, memory: int | str, *, program: str | None = None, multiple_of: int = 1
    ) -> int:
        """Returns the largest value of an open size with which everything fits.

        Found by planning at sizes, the others as they are in this plan; nothing is run or
        allocated. It is taken for granted that memory grows with the size. The scratch memory of
        products may not: a larger size than the one found may fit, but the next one never does.

        Parameters
        ----------
        size : its name, as in `sizes`
        memory : bytes, "8GB" (decimal) or "512MiB" (binary), for the `total`
        program : "evaluate", "gradient" or "step"; None: the one that takes the most
        multiple_of : only multiples of this are tried, for models that take no others

        Returns
        -------
        The size; 0 where not even the smallest fits.

        Raises
        ------
        KeyNotFound : there is no such open size or program
        ArgumentError : memory does not depend on the size, or is no size of memory
        ShapeError : the model does not take a size that was tried

        >>> import mithril as ml
        >>> pm = ml.compile(ml.Relu(), ml.CpuBackend(), shapes={"input": ["batch", 256]})
        >>> pm.memory_plan().largest("batch", "8MB", multiple_of=500)
        3500
        """
        if checked_str("largest: size", size) not in self.sizes:
            near = suggestion(size, self.sizes)
            raise KeyNotFound(f"largest: no open size named '{size}'{near}")
        if type(multiple_of) is not int or multiple_of < 1:
            raise ArgumentError(
                f"largest: multiple_of requires 1 or more, got {shown(multiple_of)}"
            )
        limit = parse_size(memory)
        planned = self._planned[self._checked(program or self.main.name)]

        def fits(count: int) -> bool:
            try:
                return planned.at({**self.sizes, size: count * multiple_of}).total <= limit
            except OutOfMemoryError:  # more than an address space
                return False

        start = max(self.sizes[size] // multiple_of, 1)
        found = _grown(fits, size, start) if fits(start) else _shrunk(fits, start)
        return found * multiple_of

    def _checked(self, name: Any) -> str:
        if checked_str("memory_plan: program", name) not in self.programs:
            near = suggestion(name, self.programs)
            raise KeyNotFound(f"memory_plan: no program named '{name}'{near}")
        return name

    def __str__(self) -> str:
        return "\n\n".join(self._table(memory) for memory in self.programs.values())

    __repr__ = __str__  # what an interactive session shows

    def _table(self, memory: ProgramMemory) -> str:
        formula = self._formula(memory.name) if self.sizes else None
        lines = [f"memory of {memory.name}{self._where()}"]
        for part in _PARTS:
            count = memory.peak if part == "intermediates" else getattr(memory, part)
            if not count:
                continue
            lines.append(_line(part, count, _part(formula, part)))
        if memory.scratch:
            lines.append(_line("scratch", memory.scratch, None))
        lines.append(_line("total", memory.total, _part(formula, "total")))
        if isinstance(formula, Formula) and formula.note:
            lines.append(f"  formula: {formula.note}; without scratch and rounding")
        elif isinstance(formula, str):
            lines.append(f"  no formula: {formula}")
        if memory.contributors:
            lines.append(f"in use at the peak: {_core.print_bytes(memory.live)}")
            lines += [f"  {one}" for one in memory.contributors[:_SHOWN]]
        if len(memory.contributors) > _SHOWN:
            rest = memory.contributors[_SHOWN:]
            count = _core.print_bytes(sum(one.bytes for one in rest))
            lines.append(f"  {count} in {len(rest)} smaller ones")
        return "\n".join(lines)

    def _where(self) -> str:
        if not self.sizes:
            return ""
        each = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        return f" at {each}" + (" (assumed; shapes= tells others)" if self.assumed else "")


def _part(formula: Formula | str | None, part: str) -> Polynomial | None:
    return getattr(formula, part) if isinstance(formula, Formula) else None


def _line(part: str, count: int, formula: Polynomial | None) -> str:
    text = f"  {part:<14}{_core.print_bytes(count):>12}"
    return text if formula is None else f"{text}   {formula}"


def _grown(fits: Callable[[int], bool], name: str, low: int) -> int:
    """Returns the largest number that fits, where `low` does."""
    while fits(2 * low):
        low *= 2
        if low >= _LARGEST:
            raise ArgumentError(f"largest: memory does not grow with '{name}'")
    return _between(fits, low, 2 * low)


def _shrunk(fits: Callable[[int], bool], high: int) -> int:
    """Returns the largest number that fits, where `high` does not; 0 where nothing does."""
    too_small = {0}

    def fits_or_is_too_small(count: int) -> bool:
        try:
            return fits(count)
        except ShapeError:  # an image smaller than a window
            too_small.add(count)
            return True

    found = _between(fits_or_is_too_small, 0, high)
    return 0 if found in too_small else found


def _between(fits: Callable[[int], bool], low: int, high: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def memory_plan(physical: Any, shapes: Any) -> MemoryPlan:
    """See `PhysicalModel.memory_plan`."""
    if not physical.backend.runs_plans:
        raise UnsupportedError(
            f"memory_plan: {physical.backend!r} allocates while it runs: there is no plan",
            hint="compile the model for ml.CpuBackend() to see what the engine would take",
        )
    given = checked_shapes("memory_plan", physical, shapes)
    program = program_for("memory_plan", physical, given)
    if not program.is_native:
        raise UnsupportedError(
            "memory_plan: the model has ops that are Python functions, so NumPy runs it, without"
            " a plan"
        )
    threads = physical.backend.threads or _core.thread_count()
    planned = [_Planned(kind, threads) for kind in program_kinds(physical, program)]
    shapes = input_shapes(program, given)
    found = planned[0].executable.symbols(shapes)
    open_sizes = [name for name, size in found.items() if size is None]
    sizes = dict(found)
    for i, name in enumerate(open_sizes):
        sizes[name] = _ASSUMED[i % len(_ASSUMED)] + 128 * (i // len(_ASSUMED))
    _check_solved(program, shapes, planned[0].executable.sizes(sizes))
    try:
        return MemoryPlan(planned, sizes, open_sizes)
    except MithrilError as error:
        if not open_sizes or isinstance(error, UnsupportedError):
            raise
        assumed = ", ".join(f"{name} = {sizes[name]}" for name in open_sizes)
        raise UnsupportedError(
            f"memory_plan: the model does not take the sizes that stand in for open ones"
            f" ({assumed}): {str(error).splitlines()[0]}",
            hint="give shapes=",
        ) from None


def _check_solved(program: Program, shapes: Shapes, found: Shapes) -> None:
    """Raises unless the open sizes that were found make the shapes that are known."""
    for key, wanted, got in zip(program.inputs, shapes, found, strict=True):
        if any(a is not None and a != b for a, b in zip(wanted, got, strict=True)):
            raise ShapeError(
                f"memory_plan: open sizes make the shape of '{key.name}' {got}, not {wanted}",
                code="MTH108",
            )


__all__ = ["Contributor", "Formula", "MemoryPlan", "ProgramMemory", "memory_plan"]
