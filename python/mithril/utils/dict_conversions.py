"""Models as dictionaries, under the original's names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mithril import models
from mithril.base.checks import checked_instance
from mithril.base.public import public
from mithril.formats import original
from mithril.logical.model import Model


@public
def model_to_dict(model: Model) -> dict[str, Any]:
    """The model as a dictionary of what JSON has, which `dict_to_model` reads: mithril's own form
    (docs/model_file.md), in which nothing is left out.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Relu()(input="x", output="y")
    >>> dict_to_model(model_to_dict(model)).input_keys
    ['x']
    """
    found: dict[str, Any] = json.loads(
        checked_instance("model_to_dict", model, Model, "a model").to_json()
    )
    return found


@public
def dict_to_model(modelparams: Mapping[str, Any] | str) -> Model:
    """The model of a dictionary that `model_to_dict` made, here or in the original, or of the name
    of a class.

    Raises
    ------
    ParseError : malformed
    KeyNotFound : a class, op or constraint that does not exist here

    >>> dict_to_model("relu").input_keys
    ['input']
    """
    if isinstance(modelparams, Mapping) and modelparams.get("format") == "mithril-model":
        return Model.from_json(json.dumps(dict(modelparams)))
    return original.dict_to_model(modelparams)


class _Classes(Mapping):
    """Class name in lower case -> class of `mithril.models`."""

    @staticmethod
    def _names() -> dict[str, str]:
        found = {name: getattr(models, name, None) for name in dir(models)}
        return {
            name.lower(): name
            for name, cls in found.items()
            if isinstance(cls, type) and issubclass(cls, Model)
        }

    def __getitem__(self, name: str) -> type[Model]:
        cls: type[Model] = getattr(models, self._names()[name])
        return cls

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())


model_dict: Mapping[str, type[Model]] = _Classes()

__all__ = ["dict_to_model", "model_dict", "model_to_dict"]
