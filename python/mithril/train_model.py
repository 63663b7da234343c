"""`TrainModel`: a model with losses, regularizers and metrics."""

from mithril.training.training_model import TrainModel

__all__ = ["TrainModel"]
