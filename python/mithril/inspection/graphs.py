"""Looking into models and graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mithril import _core
from mithril.base.checks import checked_instance
from mithril.base.checks import checked_str as checked_text
from mithril.base.files import write_text
from mithril.base.public import public
from mithril.inspection.explain import explain as explain_model
from mithril.inspection.explain import explain_all
from mithril.logical.handles import node_of
from mithril.logical.model import Model
from mithril.physical import PhysicalModel
from mithril.physical.compilation import compilation_of


@public
def dump(what: Any) -> str:
    """The graph text of a physical model (as flattened), a graph, or a model's solver state."""
    if _is_model(what):
        return node_of(what).dump()
    return str(_graph("dump", what))


@public
def stages(physical: Any) -> dict[str, str]:
    """The graph after each stage of compiling: flattened, typed, optimised."""
    compiled = compilation_of(_compiled("stages", physical)).compiled
    return {
        "flatten": str(compiled.graph),
        "assign_dtypes": str(compiled.typed),
        "optimize": str(compiled.forward),
    }


@public
def dot(what: Any, path: Any = None) -> str:
    """Graphviz text of a graph, of a physical model's graph as flattened, or of a model.

    `path` is a file that gets it, too.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Relu()(input="x", output="y")
    >>> ml.inspect.dot(model).splitlines()[0]
    'digraph {'
    """
    drawn = str(what.plot("dot")) if _is_model(what) else _graph("dot", what).dot()
    if path is not None:
        write_text("dot: path", path, drawn)
    return drawn


@public
def explain(
    physical: Any, name: str | None = None, shapes: Mapping[str, Sequence[int]] | None = None
) -> list[str]:
    """Explains what became of a submodel: kept whole, decomposed, fused with what, or left out.

    Parameters
    ----------
    physical : a compiled model
    name : of the submodel, with those around it where it is not the only one ("mlp.head"); None:
        every step of the model, as `PhysicalModel.explain` shows them
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
      one step, gemm: net.first: matmul; net.first: add; net.act: relu
        net.first (matmul) is finished block by block with what follows it
        ...
    """
    if name is None:
        return str(explain_all(_compiled("explain", physical), shapes)).splitlines()
    named = checked_text("explain: name", name)
    return explain_model(_compiled("explain", physical), named, shapes)


def _is_model(thing: Any) -> bool:
    return isinstance(thing, Model)


def _graph(what: str, thing: Any) -> Any:
    wanted = (_core.Graph, PhysicalModel)
    found = checked_instance(what, thing, wanted, "a model, a physical model or a graph")
    return found if isinstance(found, _core.Graph) else found.graph


def _compiled(what: str, physical: Any) -> Any:
    return checked_instance(what, physical, PhysicalModel, "a physical model")


@public
def profile() -> list[tuple[str, int, float, int]]:
    """Lists (kernel, count, seconds, bytes) of what ran so far, if MITHRIL_PROFILE is set."""
    return _core.profile_rows()


@public
def parse(text: str) -> Any:
    """A graph from its text form."""
    return _core.Graph.parse(checked_text("parse: text", text))


@public
def ops() -> list[dict[str, Any]]:
    """Everything that the registry says of each op."""
    return _core.ops()


__all__ = ["dot", "dump", "explain", "ops", "parse", "profile", "stages"]
