"""Optimizers: parameters, gradients and a state in, new parameters and a state out."""

from typing import TYPE_CHECKING

from mithril import errors as _errors
from mithril.base import peer_names as _peer_names
from mithril.optim.adopted import AdoptedOptimizer, adopt
from mithril.optim.optimizers import SGD, Adam, AdamW, Momentum, Optimizer

__all__ = ["SGD", "Adam", "AdamW", "AdoptedOptimizer", "Momentum", "Optimizer", "adopt"]

if not TYPE_CHECKING:  # a type checker knows the names

    def __getattr__(name: str):
        title = f"module 'mithril.optim' has no attribute {name!r}"
        if name.startswith("_"):
            raise AttributeError(title)
        hint = _peer_names.optim_name_here(name) or _errors.suggestion(name, __all__)
        raise _errors.UnknownNameError(title + hint)
