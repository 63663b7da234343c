"""Compiled models: what `compile` makes, and how it runs. Names are resolved when they are first
used, so that a module of this room loads alone."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mithril.physical.initial import Uninitialized
    from mithril.physical.model import PhysicalModel
    from mithril.physical.parameters import transfer
    from mithril.physical.results import (
        Params,
        Step,
        WithGradients,
        WithGradientsAndState,
        WithState,
    )

_LAZY = {
    "PhysicalModel": "model",
    "Uninitialized": "initial",
    "transfer": "parameters",
    **dict.fromkeys(
        ("Params", "Step", "WithGradients", "WithGradientsAndState", "WithState"), "results"
    ),
}

__all__ = [
    "Params",
    "PhysicalModel",
    "Step",
    "Uninitialized",
    "WithGradients",
    "WithGradientsAndState",
    "WithState",
    "transfer",
]


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module 'mithril.physical' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mithril.physical.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
