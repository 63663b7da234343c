"""`Lambda`: a Python function as a model, recorded as ops (or, on request, called as it is)."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from typing import Any

from mithril.base.checks import checked_bool
from mithril.base.public import public, signature_of
from mithril.errors import ArgumentError, MithrilError, Place, SignatureError, TraceError, shown
from mithril.execution.primitives import Kept
from mithril.logical.connection import Connection
from mithril.logical.model import Model, create_node
from mithril.models.functional_models import results_of
from mithril.models.primitive import PrimitiveModel

_HINT = "write it with operators and methods of connections or of the backend, or give opaque=True"


class Lambda(Model):
    """A function of tensors as a model.

    The function is called once, with connections, and what it does with them is recorded: the
    model runs on every backend, is differentiated and saved like any other. Methods of a backend
    record too. A function with one parameter has the key `input`, else the keys are the
    parameters; results are `output`, or `output_0`, `output_1` … where it returns several.

    With ``opaque=True`` the function is called with the backend's own arrays at each run. Keywords
    declare its keys, inputs in the order in which the function takes them and `output`, each by an
    `IOKey` with a type and a shape: names stand for sizes, and those that are called alike are
    equal. ``backward(grad_output, inputs, outputs)`` gives the gradient of the input, or a tuple
    with one for each input; `inputs` and `outputs` are tuples. It counts on every backend. Without
    it frameworks differentiate the function, and backends without one cannot. A string is a
    function that was registered on the backend (`register_function`), and is opaque.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Lambda(lambda x: 0.01 * x + abs(x))(input="input", output="output")
    >>> [child.default_name for child in model.dag]
    ['Lambda']

    A step with the slope of a line (a straight-through estimator):

    >>> import numpy as np
    >>> key = ml.IOKey(shape=[("Any", ...)], type=ml.Tensor[float])
    >>> step = ml.Lambda(
    ...     np.round, opaque=True, backward=lambda g, inputs, outputs: g, input=key, output=key
    ... )
    >>> model = ml.Model()
    >>> model |= step(input="x", output="y")
    >>> pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": [2]}, trainable_keys={"x"})
    >>> pm.evaluate({"x": [0.4, 1.6]}, output_gradients={"y": [1.0, 2.0]}).gradients["x"].tolist()
    [1.0, 2.0]

    Raises
    ------
    TraceError
        where the function needs a tensor's content, or hands it to another library
    """

    def __new__(cls, function: Any = None, /, *args: Any, opaque: bool = False, **kwargs: Any):
        if cls is Lambda and (checked_bool("Lambda: opaque", opaque) or isinstance(function, str)):
            return super().__new__(OpaqueLambda)
        return super().__new__(cls)

    @public
    def __init__(
        self,
        function: Callable[..., Any] | str,
        *,
        name: str | None = None,
        opaque: bool = False,
        backward: Callable[..., Any] | None = None,
        **keys: Connection,
    ):
        if backward is not None or keys:
            raise ArgumentError("Lambda: keys and backward are declared with opaque=True only")
        parameters = _parameters(function)
        inner = ["input"] if len(parameters) == 1 else parameters
        outputs = _trace(function, [Connection(key) for key in inner])
        self._attach(create_node([], outputs, name, "Lambda"))
        known = set(self._node.input_keys)
        self._parameters = [key for key in inner if key in known]

    def _argument_order(self, count: int) -> list[str]:
        if count > len(self._parameters):
            raise SignatureError(
                f"{self!r}: takes at most {len(self._parameters)} positional arguments"
                f" ({', '.join(self._parameters)}), got {count}"
            )
        return self._parameters[:count]


class OpaqueLambda(PrimitiveModel, Lambda):
    """A `Lambda` that is called and not recorded."""

    @public
    def __init__(
        self,
        function: Callable[..., Any] | str,
        *,
        name: str | None = None,
        opaque: bool = True,
        backward: Callable[..., Any] | None = None,
        **keys: Connection,
    ):
        if isinstance(function, str):
            super().__init__(function, name=name, **keys)
            return
        if not callable(function) or (backward is not None and not callable(backward)):
            raise SignatureError(f"Lambda: requires a function, got {shown(function)}")
        kept = Kept(function, backward)
        self._declare(kept.formula, kept, name, keys)

    def _argument_order(self, count: int) -> list[str]:
        return Model._argument_order(self, count)


def _parameters(function: Any) -> list[str]:
    given = signature_of("Lambda", function).parameters.values()
    fixed = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wanted = [p.name for p in given if p.kind in fixed and p.default is inspect.Parameter.empty]
    if not wanted:
        raise SignatureError("Lambda: requires a function with parameters")
    return wanted


def _not_recorded(function: Any, error: Exception, message: str) -> TraceError:
    """The error with the line of the function that could not be recorded."""
    own = getattr(function, "__code__", None)
    frames = [(frame, line) for frame, line in traceback.walk_tb(error.__traceback__)
              if frame.f_code is own]  # fmt: skip
    place = Place(own.co_filename, frames[-1][1], "") if own and frames else None
    return TraceError(f"Lambda: cannot be recorded: {message}", hint=_HINT, place=place)


def _trace(function: Any, inputs: list[Connection]) -> dict[str, Connection]:
    """Calls the function with connections; returns its results by name."""
    try:
        results = results_of("Lambda's function", function(*inputs))
    except MithrilError as error:
        raise _not_recorded(function, error, error.message) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise _not_recorded(function, error, str(error)) from error
    if any(result is given for result in results for given in inputs):
        raise TraceError("Lambda: an argument is returned as it is; give it through Buffer()")
    if len(results) == 1:
        return {"output": results[0]}
    return {f"output_{i}": result for i, result in enumerate(results)}


__all__ = ["Lambda", "OpaqueLambda"]
