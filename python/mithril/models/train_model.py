"""The original's import path for `TrainModel`."""

from mithril.train_model import TrainModel

__all__ = ["TrainModel"]
