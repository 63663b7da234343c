"""The original's names of operators: `AddOp` is the model `Add`, which is one op."""

from typing import Any


def __getattr__(name: str) -> Any:
    from mithril import models

    if name.startswith("_") or not name.endswith("Op") or name == "Op":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(models, name.removesuffix("Op"))
