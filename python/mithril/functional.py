"""`functional`: a Python function of connections as a submodel."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from mithril.connection import Connection
from mithril.errors import SignatureError
from mithril.model import Model


def functional(function: Callable[..., Connection]) -> Callable[..., Connection]:
    """Each call puts what the function builds into a submodel of its own, called `name`.

    >>> import mithril as ml
    >>> @ml.models.functional
    ... def scaled(x, by):
    ...     return x * by + 1
    >>> ml.Model.create(out=scaled(ml.IOKey("a"), ml.IOKey("b"))).input_keys
    ['a', 'b']
    """
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, name: str | None = None, **kwargs: Any) -> Any:
        wired = {
            k: v
            for k, v in signature.bind(*args, **kwargs).arguments.items()
            if isinstance(v, Connection)
        }
        inner = {key: Connection(key) for key in wired}
        given = {**signature.bind(*args, **kwargs).arguments, **inner}
        result = function(**given)
        if not isinstance(result, Connection):
            raise SignatureError(
                f"functional: {function.__name__} must return a connection,"
                f" got {type(result).__name__}"
            )
        model = Model.create(output=result, name=name)
        return model(**{key: value for key, value in wired.items() if key in model.input_keys})

    return call


__all__ = ["functional"]
