"""Optimizers: parameters, gradients and a state in, new parameters and a state out."""

from mithril.optim.adopted import AdoptedOptimizer, adopt
from mithril.optim.optimizers import SGD, Adam, AdamW, Momentum, Optimizer

__all__ = ["SGD", "Adam", "AdamW", "AdoptedOptimizer", "Momentum", "Optimizer", "adopt"]
