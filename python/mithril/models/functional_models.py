"""`functional`: a Python function of connections as a submodel of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mithril import models
from mithril.base.peer_names import functional_here
from mithril.base.public import public, refusal, signature_of
from mithril.errors import SignatureError, UnknownNameError
from mithril.logical.connection import Connection
from mithril.logical.handles import handle
from mithril.logical.model import create_node


@public
def functional(function: Callable[..., Any]) -> Callable[..., Any]:
    """Each call puts what the function builds into a submodel, called `name` or after the function.

    Arguments that are connections become inputs of the submodel, named like the parameters; all
    others reach the function as they are. It returns a connection, or several.

    >>> import mithril as ml
    >>> @ml.models.functional
    ... def scaled(x, by, plus=1):
    ...     return x * by + plus
    >>> model = ml.Model.create(out=scaled(ml.IOKey("a"), by=ml.IOKey("b")))
    >>> model.input_keys, list(model.get_unique_submodel_names().values())
    (['a', 'b'], ['scaled'])
    """
    signature = signature_of("functional", function)

    @functools.wraps(function)
    def call(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            raise refusal(function, args, kwargs) from None
        wired: dict[str, Connection] = {}
        _replace(bound, signature, wired)
        results = results_of(function.__name__, function(*bound.args, **bound.kwargs))
        outputs = {"output": results[0]} if len(results) == 1 else _numbered(results)
        model = handle(create_node([], outputs, name, function.__name__))
        return model(**{k: v for k, v in wired.items() if k in model.input_keys})

    return call


class _Functional:
    """`functional`, which PyTorch has as a module, too: its members lead to layers."""

    __wrapped__: Callable[..., Any]

    def __init__(self, function: Callable[..., Any]):
        functools.update_wrapper(self, function)

    @public
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    def __reduce__(self) -> str:
        return str(vars(self)["__qualname__"])

    if not TYPE_CHECKING:

        def __getattr__(self, name: str):
            title = f"functional has no attribute {name!r}"
            if name.startswith("_"):
                raise AttributeError(title)
            raise UnknownNameError(title + functional_here(name, models.__all__))


if not TYPE_CHECKING:
    functional = _Functional(functional)


def _replace(bound: inspect.BoundArguments, signature: inspect.Signature, wired: dict) -> None:
    """Puts a fresh key in the place of each connection, and notes what it stands for."""

    def inner(key: str, value: Any) -> Any:
        if not isinstance(value, Connection):
            return value
        wired[key] = value
        return Connection(key)

    for parameter, value in bound.arguments.items():
        kind = signature.parameters[parameter].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            fresh: Any = tuple(inner(f"{parameter}_{i}", v) for i, v in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            fresh = {key: inner(key, v) for key, v in value.items()}
        else:
            fresh = inner(parameter, value)
        bound.arguments[parameter] = fresh


def results_of(name: str, result: Any) -> list[Connection]:
    """Returns the results of a function as connections; raises for anything else."""
    results = list(result) if isinstance(result, tuple | list) else [result]
    bad = [r for r in results if not isinstance(r, Connection)]
    if bad or not results:
        got = type(bad[0]).__name__ if bad else "nothing"
        raise SignatureError(f"functional: {name} must return connections, got {got}")
    return results


def _numbered(results: list[Connection]) -> dict[str, Connection]:
    return {f"output_{i}": result for i, result in enumerate(results)}


__all__ = ["functional"]
