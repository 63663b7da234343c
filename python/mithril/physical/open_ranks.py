"""Programs of a model that is compiled before its ranks are known, or sizes and numbers of which
its ops are made: one for each set of them that a call gives, parameters as well as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mithril.base.recently_used import RecentlyUsed
from mithril.errors import ShapeError, ShapeNotKnown
from mithril.logical.values import as_value
from mithril.physical.conversion import as_numpy
from mithril.physical.initial import Uninitialized
from mithril.physical.missing import missing_keys
from mithril.physical.program import Program

if TYPE_CHECKING:
    from mithril.physical.compilation import Call, Compilation

MOST_PROGRAMS = 64


class Shaped(NamedTuple):
    """Stands for an array of which only the shape matters."""

    shape: tuple[int, ...]


def _hashable(value: Any) -> Any:
    """Tells 1, 1.0 and True apart."""
    if isinstance(value, (list, tuple)):
        return type(value), *map(_hashable, value)
    if isinstance(value, slice):
        return slice, *map(_hashable, (value.start, value.stop, value.step))
    return type(value), value


def _is_number(initial: tuple) -> bool:
    return bool(initial) and isinstance(initial[0], (int, float))


def shape_of(value: Any, name: str) -> tuple[int, ...]:
    shape: Any = getattr(value, "shape", None)
    try:
        return tuple(int(n) for n in shape)
    except (TypeError, ValueError):  # no array of anybody
        return as_numpy(value, name).shape


class OpenRanks:
    """Makes and keeps the programs."""

    def __init__(self, compilation: Compilation) -> None:
        self._compilation = compilation
        self._programs: RecentlyUsed[Program] = RecentlyUsed(MOST_PROGRAMS)
        compiled = compilation.compiled
        self._sizes = set(compiled.unknown_sizes)  # inputs of which every size counts
        self._names = list(dict.fromkeys([*compiled.unknown_ranks, *compiled.unknown_sizes]))
        self._numbers = list(compiled.unknown_values)  # axes, lengths, paddings …

    def programs(self) -> list[Program]:
        """Those that calls have made so far."""
        return self._programs.values()

    def program(self, call: Call) -> Program:
        """The program of the shapes of these arrays. What is not given follows from the others."""
        shapes = {
            name: shape if name in self._sizes else (None,) * len(shape)
            for name, shape in self._shapes(call).items()
        }
        values = self._values(call.data)
        key = (*shapes.items(), *((name, _hashable(value)) for name, value in values.items()))
        return self._programs.get_or_make(key, lambda: self._make(shapes, values, call))

    def _shapes(self, call: Call) -> dict[str, tuple[int, ...]]:
        keys = self._compilation.by_name
        sources = {name: call.of(keys[name].role) for name in self._names}
        return {
            name: shape_of(source[name], name)
            for name, source in sources.items()
            if name in source and not isinstance(source[name], Uninitialized)
        }

    def _values(self, data: Mapping[str, Any]) -> dict[str, Any]:
        keys, convert = self._compilation.by_name, self._compilation.convert
        return {
            name: as_value(convert(keys[name], data[name]), name)
            for name in self._numbers
            if name in data
        }

    def _filled_states(self, compiled: Any, shapes: Mapping[str, Any]) -> dict[str, tuple]:
        """States that start filled with one number, and whose rank nothing shows: they have no
        more axes than they must, to be what they become."""
        return {
            entry["name"]: (None,) * entry["least_rank"]
            for entry in compiled.keys
            if entry["name"] in compiled.unknown_ranks
            and entry["name"] not in shapes
            and entry["role"] == "state"
            and _is_number(entry["initial"])
        }

    def _tensors(self, data: Mapping[str, Any]) -> list[str]:
        by_name = self._compilation.by_name
        return [name for name in data if name in by_name and by_name[name].is_tensor]

    def _count_sizes(self, names: Sequence[str]) -> None:
        """From now on every size of these inputs counts."""
        self._sizes.update(names)
        self._names = list(dict.fromkeys([*self._names, *names]))

    def _make(
        self,
        shapes: Mapping[str, tuple[int | None, ...]],
        values: Mapping[str, Any],
        call: Call,
    ) -> Program:
        compilation = self._compilation
        sizes = {name: list(shape) for name, shape in shapes.items()}
        failure = None
        try:
            compiled, program = compilation.make(sizes, values)
        except ShapeError as error:
            failure = error
        if failure is not None:
            told = {name: list(shape) for name, shape in self._shapes(call).items()}
            compilation.make(told, values)  # fails as well, and names sizes beside ranks
            raise failure
        if program is not None:
            return program
        if not set(compiled.unknown_values) <= set(self._numbers):
            self._numbers = list(compiled.unknown_values)  # the ranks said that they count, too
            return self.program(call)
        unknown = compiled.unknown_values or compiled.unknown_ranks or compiled.unknown_sizes
        is_size = not (compiled.unknown_ranks or compiled.unknown_values)
        if is_size and not self._sizes.issuperset(unknown):
            self._count_sizes(unknown)  # as the ranks said
            return self.program(call)
        states = self._filled_states(compiled, shapes)
        tensors = self._tensors(call.data) if states else []
        if not self._sizes.issuperset(tensors):
            self._count_sizes(tensors)
            return self.program(call)
        if states:
            return self._make({**shapes, **states}, values, call)
        by_name, params = compilation.by_name, compilation.param_keys
        missing = [by_name[name] for name in unknown if name not in params]
        if missing:
            raise missing_keys(compilation, missing, call)
        names = ", ".join(f"'{name}'" for name in unknown)
        what = "ranks" if compiled.unknown_ranks else "sizes"
        raise ShapeNotKnown(
            f"evaluate: the {what} of {names} are not known",
            hint="give arrays for them in params, or shapes= to compile",
        )
