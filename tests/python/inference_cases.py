"""What the tables of inference share: one case is a model, facts given to it, and facts found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mithril as ml
import pytest


@dataclass(frozen=True)
class Case:
    """`make` builds the model; the other fields map keys to what is stated and what follows."""

    row: str
    make: Callable[[], ml.Model]
    shapes: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    found: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict)

    def state(self) -> ml.Model:
        model = self.make()
        if self.types:
            model.set_types(dict(self.types))
        if self.shapes:
            model.set_shapes(dict(self.shapes))  # at once: their symbols are shared
        if self.values:
            model.set_values(dict(self.values))
        return model

    def check(self) -> None:
        model = self.state()
        shapes = model.get_shapes(verbose=True)
        assert {key: shapes[key] for key in self.found} == dict(self.found)
        assert {key: model.conns.get_type(key) for key in self.kinds} == dict(self.kinds)
        assert {key: value_of(model, key) for key in self.known} == dict(self.known)


def value_of(model: ml.Model, key: str) -> Any:
    """The value that inference found; TBD while a part of it is open."""
    found = model._node.value(key)
    return found[0] if found else ml.models.TBD


def each(cases: list[Case]):
    """One test for each case, named after its row."""
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.row)


def use(op: str, /, *args: Any, wires: Mapping[str, Any] | None = None, **kwargs: Any):
    """Makes a model of one operator; with `wires`, one inside a model, connected by name."""

    def make() -> ml.Model:
        cls = getattr(ml.models, op, None)
        if cls is None:
            pytest.skip(f"no operator {op} yet (the catalogue)")
        child = cls(*args, **kwargs)
        if wires is None:
            return child
        model = ml.Model()
        model |= child.connect(**{k: v() if callable(v) else v for k, v in wires.items()})
        return model

    return make
