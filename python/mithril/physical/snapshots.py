"""A compiled model of a snapshot: what `compile` does once its options are checked."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from mithril import _core, errors
from mithril.base.explanations import report
from mithril.errors import FrozenModelError, NearMissWarning, warn
from mithril.logical.handles import node_of
from mithril.logical.model import Model
from mithril.physical.compilation import Compilation, compilation_of
from mithril.physical.model import PhysicalModel
from mithril.physical.options import CompileOptions, Pairs
from mithril.physical.predicting import frozen_names, frozen_patterns
from mithril.physical.targets import target_of


def compile_snapshot(model: Model, options: CompileOptions, frozen_keys: Any) -> PhysicalModel:
    """Compiles a snapshot of the model, and warns of what looks like a slip. `options`, whose keys
    are the model's, are this compilation's from here on."""
    snapshot = _core.Snapshot(node_of(model))
    _take_wires(options, snapshot)
    if frozen_keys is not None:
        options.frozen = _frozen(frozen_keys, snapshot, options)
    with _once(node_of(model)):
        physical = PhysicalModel(snapshot, options)
    compilation = compilation_of(physical)
    for category, said in compilation.compiled.warnings:
        warn(said, getattr(errors, category, errors.MithrilWarning))
    for said in report(compilation.node, physical.data_keys, _stated(compilation)):
        warn(said, NearMissWarning)
    return physical


class _UnderWay(threading.local):
    tags: frozenset[int] = frozenset()  # of the models that this thread compiles


_under_way = _UnderWay()


@contextlib.contextmanager
def _once(node: Any) -> Iterator[None]:
    """Refuses to compile a model while the same thread compiles it: a constraint that does so would
    be called again by each compile that it begins."""
    before = _under_way.tags
    if node.tag in before:
        raise FrozenModelError(
            "the model is busy: a call that changes or compiles it has not returned yet",
            hint="a constraint states facts about the keys that it is given, and compiles no model"
            " that it belongs to",
        )
    _under_way.tags = before | {node.tag}
    try:
        yield
    finally:
        _under_way.tags = before


def _take_wires(options: CompileOptions, snapshot: Any) -> None:
    """Puts the connections of the snapshot in the place of the model's, and shapes of our own in
    that of the caller's."""

    def key(given: Any) -> Any:
        return given if isinstance(given, str) else snapshot.wire(given)

    def wired(pairs: Pairs) -> Pairs:
        return [(key(given), value) for given, value in pairs]

    options.data_keys = [key(given) for given in options.data_keys]
    options.trainable_keys = [key(given) for given in options.trainable_keys]
    options.discard_keys = [key(given) for given in options.discard_keys]
    options.constants = wired(options.constants)
    options.types = wired(options.types)
    options.dtypes = wired(options.dtypes)
    shapes = wired(options.shapes)
    options.shapes = [(k, list(v) if isinstance(v, list) else v) for k, v in shapes]


def _frozen(patterns: Any, snapshot: Any, options: CompileOptions) -> tuple[str, ...]:
    """Names of the parameters that patterns of names or paths fit."""
    wanted = frozen_patterns(patterns)
    if not wanted:
        return ()
    by_name, by_path = (
        _core.compile(snapshot.model, said, target_of(options.backend)).keys
        for said in (
            options.for_engine(),
            options.for_engine(short_names=True, path_names=True),
        )
    )
    pairs = zip(by_name, by_path, strict=True)
    paths = {key["name"]: path["name"] for key, path in pairs if key["trainable"]}
    return frozen_names(wanted, paths, paths)


def _stated(compilation: Compilation) -> set[str]:
    """Inputs that the caller named: those are meant."""
    options = compilation.options
    pairs = (*options.shapes, *options.types, *options.dtypes)
    keys = [*options.data_keys, *(key for key, _ in pairs)]
    return {key if isinstance(key, str) else compilation.key_of(key) for key in keys}


__all__ = ["compile_snapshot"]
