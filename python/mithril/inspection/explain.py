"""Explanations of how models and submodels run, read from the graphs of the stages of compiling and
from the engine's own report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mithril.errors import KeyNotFound, UnsupportedError, suggestion
from mithril.physical.sizes import checked_shapes, input_shapes, native, program_for, program_kinds

_ON_HOST = "It runs on the host"  # as the note of a step begins that a device leaves to the engine
_OPEN = "what is fused depends on sizes that are open: give shapes="


@dataclass(frozen=True)
class ExplainedStep:
    """A group of nodes that runs as one step.

    `kernel` is "loop" where it is a fused loop, "view" where nothing runs, the kernel's name
    otherwise; on backends that run source, how the op is written there. `members` are the nodes,
    (op, path of the submodel); `notes` say why it is so.
    """

    kernel: str
    members: tuple[tuple[str, str], ...]
    shape: tuple[int, ...] | None
    notes: tuple[str, ...]
    depth: int = 0  # in how many loops and branches it stands

    @property
    def is_on_host(self) -> bool:
        """Says that a device leaves the step to the engine's kernels on the host."""
        return any(note.startswith(_ON_HOST) for note in self.notes)

    @property
    def nodes(self) -> str:
        return "; ".join(f"{path}: {op}" if path else op for op, path in self.members)


class Explanation:
    """The steps in which a model runs, in order; `print` it to read it."""

    def __init__(self, steps: list[ExplainedStep], note: str):
        self.steps = tuple(steps)
        self.note = note

    @property
    def host_steps(self) -> int:
        """Counts the steps that fall back to the engine's kernels on the host; 0 on backends that
        are no devices. Each waits for the device, and its operands may be copied."""
        return sum(step.is_on_host for step in self.steps)

    def __str__(self) -> str:
        rows = [
            ("  " * s.depth + s.kernel, "" if s.shape is None else str(list(s.shape)), s.nodes)
            for s in self.steps
        ]
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
        lines = [self.note] if self.note else []
        for number, (step, row) in enumerate(zip(self.steps, rows, strict=True)):
            lines.append(f"{number:>3}  {row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}")
            lines += [f"{'':5}{'  ' * step.depth}  {note}" for note in step.notes]
        if self.host_steps:
            lines.append(f"{self.host_steps} of {len(self.steps)} steps on the host")
        return "\n".join(lines)

    __repr__ = __str__  # what an interactive session shows


def explain_all(physical: Any, shapes: Any, kind: str = "evaluate") -> Explanation:
    """See `PhysicalModel.explain`."""
    given = checked_shapes("explain", physical, shapes)
    program = program_for("explain", physical, given)
    if not program.is_native:
        if kind != "evaluate":
            raise UnsupportedError(f"explain: {_who_runs(physical)}: no program for '{kind}'")
        return Explanation(list(_written(physical, program)), _who_runs(physical))
    by_name = {one.name: one.executable for one in program_kinds(physical, program)}
    if kind not in by_name:
        near = suggestion(kind, by_name)
        raise KeyNotFound(f"explain: the model has no program '{kind}'{near}")
    report = _report(program, given, by_name[kind])
    if isinstance(report, str):
        raise UnsupportedError(f"explain: {report}")
    return Explanation([step for step in _flat(report, 0) if step.kernel != "constant"], "")


def explain(physical: Any, name: str, shapes: Any) -> list[str]:
    """See `mithril.inspect.explain`."""
    given = checked_shapes("explain", physical, shapes)
    program = program_for("explain", physical, given)
    flat = program.compiled.graph.nodes()
    paths = list(dict.fromkeys(path for _, path, *_ in flat if _is_in(path, name)))
    if not paths:
        known = [part for _, path, *_ in flat for part in (path, path.rpartition(".")[2])]
        near = suggestion(name, list(dict.fromkeys(known)))
        raise KeyNotFound(f"explain: no submodel named {name!r} is in the graph{near}")
    report = _report(program, given, native(program.forward)) if program.is_native else None
    steps = list(_flat(report, 0)) if isinstance(report, list) else report
    lines = []
    for path in paths:
        whole = [op for op, at, *_ in flat if at == path]
        lines.append(f"{path}: {', '.join(whole)}")
        lines += [f"  {text}" for text in _facts(physical, program, path, whole, steps)]
    return lines


def _is_in(path: str, name: str) -> bool:
    return f".{name}." in f".{path}."


def _facts(
    physical: Any, program: Any, path: str, whole: list[str], steps: list | str | None
) -> Iterable[str]:
    left = [op for op, at, *_ in program.compiled.forward.nodes() if at == path]
    if not left:
        yield "nothing of it is left: it is constant, equal to another one, or read by nothing"
        return
    if left != whole:
        yield f"decomposed into {', '.join(left)}"
    if steps is None:
        yield from (f"{op} {_how(physical, op)}" for op in dict.fromkeys(left))
    elif isinstance(steps, str):
        yield steps
    else:
        yield from _planned(path, steps)


def _how(physical: Any, op: str) -> str:
    native = op in physical.backend.op_names
    return "runs as the backend's own function" if native else "is printed as its expression"


def _planned(path: str, steps: list[ExplainedStep]) -> Iterator[str]:
    found = [step for step in steps if any(at == path for _, at in step.members)]
    if not found:
        yield "nothing of it is left at these sizes"
    for step in found:
        yield _sentence(step)
        yield from (f"  {note}" for note in step.notes)


def _sentence(step: ExplainedStep) -> str:
    op = step.members[0][0]
    if step.kernel == "loop":
        shape = list(step.shape or ())
        if len(step.members) > 1:
            return f"fused into one loop over {shape}: {step.nodes}"
        return f"{op} is a loop of its own over {shape}"
    if step.kernel in ("view", "constant"):
        return f"{op} is a {step.kernel}: nothing runs"
    if len(step.members) > 1:
        return f"one step, {step.kernel}: {step.nodes}"
    return f"{op} is a step of its own: {step.kernel}"


# --- the engine's report --------------------------------------------------------------------------


def _report(program: Any, given: Any, executable: Any) -> list | str:
    """Returns the steps of a planned program; a text where they are not known."""
    forward = native(program.forward)
    shapes = input_shapes(program, given)
    if executable is not forward:  # it has further inputs, of the same open sizes
        sizes = forward.symbols(shapes).items()
        shapes = executable.sizes({name: size for name, size in sizes if size is not None})
    if any(None in shape for shape in shapes):
        return _OPEN
    try:
        return executable.selection_report(shapes)
    except UnsupportedError as error:
        return f"unsupported: {error}"


def _flat(report: list, depth: int) -> Iterator[ExplainedStep]:
    """Yields the steps in order, those inside a step right after it."""
    for kernel, members, shape, notes, inner in report:
        yield ExplainedStep(kernel or "host", tuple(members), tuple(shape), tuple(notes), depth)
        for region in inner:
            yield from _flat(region, depth + 1)


# --- emitted source -------------------------------------------------------------------------------


def _who_runs(physical: Any) -> str:
    if physical.backend.runs_plans:
        return "the model has ops that are Python functions, so NumPy runs it, line by line"
    return f"{physical.backend!r} runs source, line by line; what it fuses is its own business"


def _written(physical: Any, program: Any) -> Iterator[ExplainedStep]:
    for op, path, *_ in program.compiled.forward.nodes():
        native = op in physical.backend.op_names
        kernel = "own function" if native else "constant" if op == "constant" else "expression"
        if kernel != "constant":
            yield ExplainedStep(kernel, ((op, path),), None, ())


__all__ = ["ExplainedStep", "Explanation", "explain", "explain_all"]
