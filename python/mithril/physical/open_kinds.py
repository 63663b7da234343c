"""Models whose inputs may hold bools, integers or floats: nothing in the model decides it. What a
call gives does: for each set of element kinds there is a model of its own, compiled at the first
call with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from mithril.base.recently_used import RecentlyUsed
from mithril.errors import DTypeError
from mithril.physical.derived import compiled_with
from mithril.physical.program_keys import Key
from mithril.types import Dtype, as_dtype

if TYPE_CHECKING:
    from mithril.physical.compilation import Compilation

MOST_MODELS = 16
MOST_AXES = 64  # of NumPy's arrays
_DTYPES = {"bool": Dtype.bool, "int": Dtype.int64, "float": Dtype.float32}
Kinds = tuple[tuple[str, str], ...]  # (key, kind)


class OpenKinds:
    """Makes and keeps the models."""

    def __init__(self, keys: list[Key]) -> None:
        self._usual = {key.name: key.type.split()[0] for key in keys}  # what the model was made for
        self._open = {key.name: key.open_kinds for key in keys}
        self._models: RecentlyUsed[Any] = RecentlyUsed(MOST_MODELS)
        self.last: Any = None  # the model of the last call that needed another one

    @staticmethod
    def of(keys: list[Key]) -> OpenKinds | None:
        """None where the model decides all of them."""
        open_keys = [key for key in keys if key.open_kinds]
        return OpenKinds(open_keys) if open_keys else None

    def model(self, physical: Any, data: Mapping[str, Any], floats: Collection[str]) -> Any:
        """The model for the kinds of these data, by the names of keys."""
        kinds, is_usual = {}, True
        for name in self._usual:
            if name in data and name not in floats:
                kind = kinds[name] = _kind_of_array(data[name])
                is_usual = is_usual and not self._differs(name, kind)
        if is_usual:
            return physical
        key = tuple((name, kind) for name, kind in sorted(kinds.items()) if kind)
        self.last = self._models.get_or_make(key, lambda: _made(physical, key))
        return self.last

    def _differs(self, name: str, kind: str) -> bool:
        usual = self._usual[name]
        # Bools where there may be integers or floats are integers.
        return kind != usual and (kind in self._open[name] or (kind, usual) == ("bool", "float"))


def model_for_kinds(physical: Any, data: Mapping[str, Any], floats: Collection[str] = ()) -> Any:
    """The `PhysicalModel` for what the data hold: mostly this one. `floats` are inputs whose
    gradients are wanted, so that they are floats whatever they hold."""
    compilation: Compilation = physical._compilation
    kinds, lists = compilation.open_kinds, compilation.lists
    if kinds is None:
        return physical
    return kinds.model(physical, lists.split("data", data) if lists else data, floats)


def called_for_kinds(physical: Any) -> Any:
    """The `PhysicalModel` of the last call: this one, or one that it made for other kinds."""
    compilation: Compilation = physical._compilation
    kinds = compilation.open_kinds
    return physical if compilation.first_inputs or not (kinds and kinds.last) else kinds.last


def _made(physical: Any, kinds: Kinds) -> Any:
    compilation: Compilation = physical._compilation
    lists, entries = compilation.lists, []
    for name, kind in kinds:
        key = compilation.by_name[name]
        place = lists.inputs[key.list].index(name) if lists and key.list else 0
        entries.append((compilation.node.find_connection(key.key), place, _DTYPES[kind]))
    return compiled_with(physical, file_path=None, element_kinds=entries)


def _kind_of_array(value: Any) -> str:
    """Python's numbers are weak: integers take the kind there is, bools are bools."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return "bool" if _holds_bools(value) else ""
    try:
        found = as_dtype(dtype)
    except DTypeError:  # uint16 … count as integers
        return "int" if getattr(dtype, "kind", "") in "iu" else ""
    return "bool" if found is Dtype.bool else "float" if found.is_float else "int"


def _holds_bools(value: Any) -> bool:
    for _ in range(MOST_AXES):  # a list may hold itself
        if not isinstance(value, (list, tuple)) or not value:
            break
        value = value[0]
    return isinstance(value, bool)


__all__ = ["OpenKinds", "called_for_kinds", "model_for_kinds"]
