"""Looking into models and graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mithril import _core
from mithril._core import public
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


def dot(what: Any, path: Any = None) -> str:
    """Graphviz text of a graph, of a physical model's graph as flattened, or of a model.

    `path` is a file that gets it, too.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Relu()(input="x", output="y")
    >>> ml.inspect.dot(model).splitlines()[0]
    'digraph {'
    """
    if hasattr(what, "_node") and hasattr(what, "plot"):
        text = str(what.plot("dot"))
    else:
        graph = what if isinstance(what, _core.Graph) else getattr(what, "graph", None)
        if graph is None:
            raise SignatureError(f"dot: requires a model or a graph, got {type(what).__name__}")
        text = graph.dot()
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def explain(
    physical: Any, name: str, shapes: Mapping[str, Sequence[int]] | None = None
) -> list[str]:
    """What became of a submodel: kept whole, decomposed, fused with what, or left out.

    Parameters
    ----------
    physical : a compiled model
    name : of the submodel, with those around it where it is not the only one ("mlp.head")
    shapes : of data, where compile was not told them: fusion is decided for concrete sizes

    Returns
    -------
    One line for each fact.

    >>> import mithril as ml
    >>> model = ml.Model(name="net")
    >>> model |= ml.Linear(4, name="first")(input="x", output="h")
    >>> model |= ml.Relu(name="act")(input="h", output="y")
    >>> pm = ml.compile(model, ml.CpuBackend(), shapes={"x": [2, 3]})
    >>> for line in ml.inspect.explain(pm, "act"):
    ...     print(line)
    net.act: relu
      fused into one loop over [2, 4]: net.first: add; net.act: relu
    """
    from mithril._explain import explain as explain_model

    return explain_model(physical, name, shapes)


def profile() -> list[tuple[str, int, float, int]]:
    """(kernel, count, seconds, bytes) of what ran so far, if MITHRIL_PROFILE is set."""
    return _core.profile_rows()


@public
def parse(text: str) -> Any:
    """A graph from its text form."""
    return _core.Graph.parse(text)


def ops() -> list[dict[str, Any]]:
    """Everything that the registry says of each op."""
    return _core.ops()


__all__ = ["dot", "dump", "explain", "ops", "parse", "profile", "stages"]
