"""An earlier path of `mithril.training.model_file`."""

from mithril.training.model_file import model_of, text_of

__all__ = ["model_of", "text_of"]
