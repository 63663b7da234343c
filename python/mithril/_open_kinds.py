"""Models whose inputs may hold bools, integers or floats: nothing in the model decides it. What a
call gives does: for each set of element kinds there is a model of its own, compiled at the first
call with it."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from mithril._program import Key
from mithril.errors import DTypeError
from mithril.types import Dtype, as_dtype

if TYPE_CHECKING:
    from mithril.physical import PhysicalModel

MOST_MODELS = 16  # the one used longest ago goes
MOST_AXES = 64  # of NumPy's arrays
_DTYPES = {"bool": Dtype.bool, "int": Dtype.int64, "float": Dtype.float32}
Kinds = tuple[tuple[str, str], ...]  # (key, kind)


class OpenKinds:
    """Makes and keeps the models."""

    def __init__(self, keys: list[Key]) -> None:
        self._usual = {key.name: key.type.split()[0] for key in keys}  # what the model was made for
        self._open = {key.name: key.open_kinds for key in keys}
        self._models: collections.OrderedDict[Kinds, PhysicalModel] = collections.OrderedDict()

    @staticmethod
    def of(keys: list[Key]) -> OpenKinds | None:
        """None where the model decides all of them."""
        open_keys = [key for key in keys if key.open_kinds]
        return OpenKinds(open_keys) if open_keys else None

    def model(
        self, physical: PhysicalModel, data: Mapping[str, Any], floats: Collection[str]
    ) -> PhysicalModel | None:
        """The model for the kinds of these data; None: the one there is. `floats` are inputs whose
        gradients are wanted, so that they are floats whatever they hold."""
        kinds = {
            name: _kind_of_array(value)
            for name, value in data.items()
            if name in self._usual and name not in floats
        }
        if not any(self._differs(name, kind) for name, kind in kinds.items()):
            return None
        key = tuple((name, kind) for name, kind in sorted(kinds.items()) if kind)
        with physical._lock:
            found = self._models.get(key)
            if found is not None:
                self._models.move_to_end(key)
                return found
        made = _made(physical, key)
        with physical._lock:
            made = self._models.setdefault(key, made)
            if len(self._models) > MOST_MODELS:
                self._models.popitem(last=False)
        return made

    def _differs(self, name: str, kind: str) -> bool:
        usual = self._usual[name]
        # Bools where there may be integers or floats are integers.
        return kind != usual and (kind in self._open[name] or (kind, usual) == ("bool", "float"))


def _made(physical: PhysicalModel, kinds: Kinds) -> PhysicalModel:
    from mithril.physical import PhysicalModel

    lists, entries = physical._lists, []
    for name, kind in kinds:
        key = physical._by_name[name]
        place = lists.inputs[key.list].index(name) if key.list else 0
        entries.append((physical._node.find_connection(key.key), place, _DTYPES[kind]))
    options = {**physical._options, "element_kinds": entries}
    settings = dataclasses.replace(physical._settings, file_path=None)
    made = PhysicalModel(physical._snapshot, settings, options)
    made._kinds = None  # it takes what it was made for
    made._told = physical._told
    return made


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


__all__ = ["OpenKinds"]
