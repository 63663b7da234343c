"""`ml.recommend_backend`: a choice among the backends that this machine has, with its reasons.

The reasons are facts: what is installed, which devices it has, whether it compiles the model and
how it runs the model's operations, which sizes are open. Speed is measured, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mithril.backends import registry
from mithril.backends.registry import get_backend
from mithril.base.checks import checked_instance, checked_list, checked_mapping, checked_str
from mithril.base.public import public
from mithril.errors import ArgumentError, MithrilError, shown
from mithril.logical.model import Model
from mithril.physical.compilation import compilation_of
from mithril.physical.compile import compile as compile_model
from mithril.physical.targets import dynamic_features
from mithril.types import DTypeLike

if TYPE_CHECKING:
    from mithril.logical.typing import ByKey

# Without other grounds: what needs least beside the package first, then what needs no compiler.
_ORDER = ("cpu", "torch", "jax", "mlx", "numpy")


@dataclass(frozen=True)
class Recommendation:
    """The result of `recommend_backend`; `print` it to read its reasons.

    Attributes
    ----------
    name : of the backend, as `ml.get_backend` takes it
    options : of its constructor: the device and the dtype that the choice is for
    reasons : why this one, a sentence each
    others : the same of each other backend that takes the model, best first
    refused : what each backend says that does not, such as one that is not installed
    """

    name: str
    options: dict[str, Any]
    reasons: tuple[str, ...]
    others: dict[str, tuple[str, ...]]
    refused: dict[str, str]

    def make(self) -> Any:
        """Constructs the backend."""
        return get_backend(self.name, **self.options)

    def __str__(self) -> str:
        lines = [self.name, *(f"  {reason}" for reason in self.reasons)]
        for name, reasons in self.others.items():
            lines += [f"or {name}", *(f"  {reason}" for reason in reasons)]
        for name, reason in self.refused.items():
            lines += [f"not {name}", f"  {reason}"]
        return "\n".join(lines)

    __repr__ = __str__


@public
def recommend_backend(
    model: Model,
    *,
    training: bool | None = None,
    dtype: DTypeLike | None = None,
    shapes: ByKey = None,
    data_keys: Iterable[str] | None = None,
    backends: Iterable[str] | None = None,
) -> Recommendation:
    """Chooses a backend for a model, and says why.

    Each backend is constructed and compiles the model, which takes milliseconds and the import of
    its framework. Devices count first: a GPU or TPU before a CPU. Among CPUs the engine comes
    first where it runs every operation; where Python functions are called or data say how many
    elements there are, a framework that runs line by line.

    Parameters
    ----------
    training : whether gradients are wanted; None: they may be
    dtype : that the backend must compute in; None: its own default
    shapes, data_keys : as of `ml.compile`; more known sizes, more to go by
    backends : names to choose from; None: all that come with the package

    Raises
    ------
    KeyNotFound : a name in `backends` that no backend has
    MithrilError : no backend takes the model: what the first one says

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Linear(2)(input="x", output="y")
    >>> found = ml.recommend_backend(model, shapes={"x": [8, 3]}, backends=["numpy", "cpu"])
    >>> print(found)
    cpu
      It has no device but the CPU.
      The engine runs the model's one operation in plans of its own, with gradients.
      All sizes are known: one plan is enough.
    or numpy
      It has no device but the CPU.
      It runs line by line and needs NumPy alone: the easiest one to step through.
      All sizes are known.
    >>> found.make()
    CpuBackend(device='cpu', dtype='float32')
    """
    checked_instance("recommend_backend: model", model, Model, "a model")
    if training is not None and not isinstance(training, bool):
        raise ArgumentError(
            f"recommend_backend: training: requires True, False or None, got {shown(training)}"
        )
    for key, shape in (
        {} if shapes is None else checked_mapping("recommend_backend: shapes", shapes)
    ).items():
        checked_list(f"recommend_backend: shapes of {shown(key)}", shape, "a list of sizes")
    options = {"shapes": shapes, "data_keys": data_keys, "inference": training is False}
    found = [_candidate(name, model, dtype, options) for name in _names(backends)]
    usable = sorted((c for c in found if c.error is None), key=_rank)
    if not usable:
        raise next(c.error for c in found if c.error is not None)
    best, *rest = usable
    return Recommendation(
        best.name,
        _options(best, dtype),
        _reasons(best),
        {c.name: _reasons(c) for c in rest},
        {c.name: _refusal(c.error) for c in found if c.error is not None},
    )


def _options(best: _Candidate, dtype: Any) -> dict[str, Any]:
    chosen = {"device": next(iter(best.accelerators), None), "dtype": dtype}
    return {name: value for name, value in chosen.items() if value is not None}


@dataclass
class _Candidate:
    """A backend, and the model compiled for it or the error."""

    name: str
    backend: Any = None
    physical: Any = None
    error: MithrilError | None = None

    @property
    def accelerators(self) -> list[str]:
        devices = self.backend.capabilities.devices
        return [name for name in devices if not name.startswith("cpu")]

    @property
    def graph(self) -> Any:
        return compilation_of(self.physical).compiled.forward

    @property
    def runs_plans(self) -> bool:
        compilation = compilation_of(self.physical)
        return compilation.runs_plans(compilation.compiled)

    @property
    def open_keys(self) -> list[str]:
        """Lists the data of which a size is not known."""
        shapes = self.physical.shapes
        return [
            key
            for key in self.physical.data_keys
            if any(not isinstance(size, int) for size in shapes.get(key) or [])
        ]


def _names(given: Any) -> list[str]:
    if given is None:
        return sorted(registry.built_in_backends(), key=_place)
    what = "recommend_backend: backends"
    names = [checked_str(what, name) for name in checked_list(what, given, "a list of names")]
    if not names:
        raise ArgumentError(f"{what}: requires a name at least, got {shown(given)}")
    for name in names:
        try:
            registry.backend_class(name)
        except MithrilError as error:
            raise type(error)(f"{what}: {error}") from None
    return list(dict.fromkeys(names))


def _place(name: str) -> int:
    return _ORDER.index(name) if name in _ORDER else len(_ORDER)


def _candidate(name: str, model: Model, dtype: Any, options: dict[str, Any]) -> _Candidate:
    try:
        backend = get_backend(name, **({} if dtype is None else {"dtype": dtype}))
        return _Candidate(name, backend, compile_model(model, backend, **options))
    except MithrilError as error:
        return _Candidate(name, error=error)


def _rank(candidate: _Candidate) -> tuple[int, int, int]:
    if candidate.accelerators:
        # A compiler pays where it compiles once, and can follow what it compiles.
        favoured = "torch" if candidate.open_keys or dynamic_features(candidate.graph) else "jax"
        return 0, int(candidate.name != favoured), _place(candidate.name)
    unplanned = candidate.backend.runs_plans and not candidate.runs_plans
    return 1, int(unplanned), _place(candidate.name)


# --- sentences -----------------------------------------------------------------------------------


def _reasons(candidate: _Candidate) -> tuple[str, ...]:
    return _of_devices(candidate), _of_operations(candidate), _of_sizes(candidate)


def _refusal(error: MithrilError) -> str:
    hint = f"; {error.hint}" if error.hint else ""
    return f"{error.message.splitlines()[0]}{hint}."


def _of_devices(candidate: _Candidate) -> str:
    found = candidate.accelerators
    return f"It has {_listed(found)}." if found else "It has no device but the CPU."


def _of_operations(candidate: _Candidate) -> str:
    backend = candidate.backend
    ops = [op for op, *_ in compilation_of(candidate.physical).compiled.typed.nodes()]
    if candidate.runs_plans:
        gradients = "" if candidate.physical.inference else ", with gradients"
        count = _counted(len(ops))
        return f"The engine runs the model's {count} in plans of its own{gradients}."
    if backend.runs_plans:
        return "The model calls Python functions or data choose sizes, so NumPy runs all of it."
    if candidate.name == "numpy":
        return "It runs line by line and needs NumPy alone: the easiest one to step through."
    own = sum(op in backend.op_names for op in ops)
    whole = "all" if own == len(ops) else str(own)
    of = f"{whole} of the model's {_counted(len(ops))}"
    return f"Functions of its own run {of}{_compiling(candidate)}."


def _compiling(candidate: _Candidate) -> str:
    if not candidate.physical.jit:
        return ", line by line unless jit=True"
    hard = dynamic_features(candidate.graph) & candidate.backend.not_compiled
    if hard:
        return f", line by line: its compiler cannot follow {' and '.join(sorted(hard))} of data"
    return ", compiled"


def _of_sizes(candidate: _Candidate) -> str:
    open_keys = [shown(key) for key in candidate.open_keys]
    compiles = candidate.physical.jit
    if not open_keys:
        once = {True: ": one plan is enough", False: ": it compiles once" if compiles else ""}
        return f"All sizes are known{once[candidate.runs_plans]}."
    if candidate.runs_plans:
        return f"Sizes of {_listed(open_keys)} are open: it plans anew for each set of them."
    if compiles:
        return f"Sizes of {_listed(open_keys)} are open: it compiles anew for each set of them."
    return f"Sizes of {_listed(open_keys)} are open, which costs nothing line by line."


def _counted(count: int) -> str:
    return "one operation" if count == 1 else f"{count} operations"


def _listed(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


__all__ = ["Recommendation", "recommend_backend"]
