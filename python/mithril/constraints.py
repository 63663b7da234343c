"""Relations between keys that users state as functions."""

from mithril.logical.constraints import Constraint, EdgeView, Updates, UpdateType, find, register

__all__ = ["Constraint", "EdgeView", "UpdateType", "Updates", "find", "register"]
