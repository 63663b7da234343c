"""Training: `train_model` goes over batches, `TrainModel` is a model with a cost.

Names are resolved when they are first used; `TrainModel` is that of `mithril`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mithril.training.loop import Epoch, train_model

__all__ = ["Epoch", "train_model"]


def __getattr__(name: str):
    if name not in __all__:
        raise AttributeError(f"module 'mithril.training' has no attribute {name!r}")
    from mithril.training import loop

    value = globals()[name] = getattr(loop, name)
    return value
