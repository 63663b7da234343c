"""Pickles of models: a model's own JSON, and the attributes that its class gave it."""

from __future__ import annotations

from typing import Any

from mithril.logical.model import Model


def model_parts(model: Model, own: dict[str, Any]) -> tuple[Any, ...]:
    """Returns what a pickle holds; `own` are the attributes that the model's class gave it."""
    whole = model.clone() if model._node.is_submodel else model
    return model_of, (
        type(model),
        whole.to_json(history=True),
        {} if model._outermost_only else own,
    )


def model_of(cls: type[Model], text: str, own: dict[str, Any]) -> Model:
    model = Model.from_json(text)
    if type(model) is not cls:
        node = model._node
        model = cls.__new__(cls)
        model._attach(node)
    for name, value in own.items():
        setattr(model, name, value)
    return model


__all__ = ["model_of", "model_parts"]
