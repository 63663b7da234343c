"""The original's names of operators: `AddOp` is the model `Add`, which is one op."""

from typing import Any

from mithril import models as _models


def __getattr__(name: str) -> Any:
    if name.startswith("_") or not name.endswith("Op") or name == "Op":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_models, name.removesuffix("Op"))
