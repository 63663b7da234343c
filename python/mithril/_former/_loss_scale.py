"""The name of before."""

from mithril.optim.loss_scale import LossScale

__all__ = ["LossScale"]
