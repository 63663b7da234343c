"""`PhysicalModel.predict`, and which parameters compile leaves as they are."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril.base.checks import checked_list, checked_mapping, checked_str
from mithril.errors import ArgumentError, KeyNotFound, suggestion
from mithril.physical.inputs import check_states, warn_of_states
from mithril.physical.program_keys import RANDOM_KEY
from mithril.physical.results import WithState

if TYPE_CHECKING:
    from mithril.physical import PhysicalModel


def predict(physical: Any, params: Any, data: Any, state: Any) -> dict[str, Any]:
    params, data = (
        checked_mapping("predict: params", params),
        checked_mapping("predict: data", data),
    )
    state = checked_mapping("predict: state", state)
    warn_of_states(physical._compilation, params, state)
    model = predictor_of(physical)
    if state:
        also = [key for key in model.param_keys if key not in physical.trainable_keys]
        training = physical._compilation
        check_states("predict", training, state, [*model.state_keys, *also, RANDOM_KEY])
    known = model.input_keys
    data = {key: x for key, x in data.items() if key in known or key not in physical.input_keys}
    statistics = {key: x for key, x in state.items() if key in model.param_keys}
    own = {key: x for key, x in state.items() if key in model.state_keys}
    used = {key: x for key, x in params.items() if key in known or key not in physical.input_keys}
    missing = [key for key in model.data_keys if key not in data and key not in used]
    if missing:
        raise KeyNotFound(f"predict: data must have {', '.join(map(repr, missing))}")
    result = model.evaluate({**used, **statistics}, data, state=own)
    return result.outputs if isinstance(result, WithState) else result


def predictor_of(physical: Any) -> PhysicalModel:
    """The same model for inference without what only training reads; compiled once."""
    compilation = physical._compilation
    if compilation.predictor is not None:
        return compilation.predictor
    options = compilation.options
    kept = options.predicted
    unwanted = [name for name in physical.output_keys if kept is not None and name not in kept]
    options = dataclasses.replace(
        options,
        discard_keys=[*options.discard_keys, *unwanted],
        train=False,
        inference=True,
        drops_discarded=True,
        optimizer=None,
        stream_gradients=False,
        gradient_checkpointing=False,
        file_path=None,
        recorder=_core.Recorder(),
    )
    made = type(physical)(compilation.snapshot, options)
    with compilation.lock:
        if compilation.predictor is None:
            compilation.predictor = made
        return compilation.predictor


def frozen_names(
    patterns: Iterable[str], names: Iterable[str], paths: Mapping[str, str]
) -> tuple[str, ...]:
    """The parameters whose name or path fits one of the patterns."""
    names, found = list(names), []
    for pattern in patterns:
        hits = [
            name
            for name in names
            if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(paths[name], pattern)
        ]
        if not hits:
            near = suggestion(pattern, {*names, *paths.values()})
            raise KeyNotFound(f"frozen_keys: no parameter is named '{pattern}'{near}")
        found += hits
    return tuple(dict.fromkeys(found))


def frozen_patterns(given: Any) -> list[str]:
    given = [given] if isinstance(given, str) else given
    found = checked_list("frozen_keys", given, "names or patterns", optional=True)
    for pattern in found:
        if not checked_str("frozen_keys", pattern):
            raise ArgumentError("frozen_keys: requires names or patterns, got ''")
    return list(found)


__all__ = ["frozen_names", "frozen_patterns", "predict", "predictor_of"]
