"""The original's import path for models that are one op; `mithril.models` has all of them."""

from typing import Any

from mithril import models as _models
from mithril.models.operator_model import OperatorModel
from mithril.models.primitive import CustomPrimitiveModel, PrimitiveModel

__all__ = ["CustomPrimitiveModel", "OperatorModel", "PrimitiveModel"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_models, name)
