"""Batches of data as `train_model` is given them: dictionaries, or pairs of input and target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from mithril.errors import ArgumentError, shown
from mithril.physical import PhysicalModel
from mithril.physical.gradients import FINAL_COST
from mithril.physical.predicting import predictor_of

Batch = Mapping[str, Any] | tuple[Any, Any]


def batches_of(
    model: PhysicalModel, data: Iterable[Batch], target: str
) -> Iterator[dict[str, Any]]:
    pair: tuple[str, str] | None = None
    for batch in data:
        if isinstance(batch, Mapping):
            yield dict(batch)
            continue
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise _no_pair(batch, model)
        pair = pair or _keys_of_pair(model, target)
        if pair is None:
            raise _no_pair(batch, model)
        yield dict(zip(pair, batch, strict=True))


def _keys_of_pair(model: PhysicalModel, target: str) -> tuple[str, str] | None:
    """The model's only input, and the target: of a model with a cost that reads no `target`, what
    the cost alone reads."""
    inputs = [key for key in model.data_keys if key != target]
    if len(inputs) == 2 and len(model.data_keys) == 2 and FINAL_COST in model.output_keys:
        predicts = predictor_of(model).data_keys
        inputs, others = (
            [k for k in inputs if k in predicts],
            [k for k in inputs if k not in predicts],
        )
        target = others[0] if others else target
    return (inputs[0], target) if len(inputs) == 1 else None


def _no_pair(batch: Any, model: PhysicalModel) -> ArgumentError:
    return ArgumentError(
        "train_model: a batch is a dictionary of data, or for a model with one input a pair of it"
        f" and the target, got {shown(batch)} for {list(model.data_keys)}",
        hint="give dictionaries with these names, or target=, the name of the target",
    )


__all__ = ["Batch", "batches_of"]
