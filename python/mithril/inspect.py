"""Looking into models and graphs."""

from __future__ import annotations

from typing import Any

from mithril import _core
from mithril.errors import SignatureError


def dump(what: Any) -> str:
    """The graph text of a physical model (as flattened), a graph, or a model's solver state."""
    if isinstance(what, _core.Graph):
        return str(what)
    if hasattr(what, "graph"):
        return str(what.graph)
    if hasattr(what, "_node"):
        return what._node.dump()
    raise SignatureError(f"dump: requires a model or a graph, got {type(what).__name__}")


def stages(physical: Any) -> dict[str, str]:
    """The graph after each stage of compiling: flattened, typed, optimised."""
    compiled = physical._compiled
    return {
        "flatten": str(compiled.graph),
        "assign_dtypes": str(compiled.typed),
        "optimize": str(compiled.forward),
    }


def parse(text: str) -> Any:
    """A graph from its text form."""
    return _core.Graph.parse(text)


def ops() -> list[dict[str, Any]]:
    """Everything that the registry says of each op."""
    return _core.ops()


__all__ = ["dump", "ops", "parse", "stages"]
