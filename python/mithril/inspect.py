"""Functions that look inside models, compiled models and the engine."""

from mithril.inspection.graphs import dot, dump, explain, ops, parse, profile, stages

__all__ = ["dot", "dump", "explain", "ops", "parse", "profile", "stages"]
