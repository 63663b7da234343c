"""The original's import path for `TrainModel`."""

from mithril.training.training_model import TrainModel

__all__ = ["TrainModel"]
