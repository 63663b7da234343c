"""Emitted functions as TorchScript: ``jit_options={"backend": "torchscript"}``.

A trace holds for the sizes that it was made of, so that there is one for each set of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from mithril.errors import UnsupportedError

MOST_TRACES = 64  # of one function; the oldest one goes


class Traced:
    """A function of tensors and host values that runs as TorchScript."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._traces: dict[Any, Callable[..., Any]] = {}

    def __call__(self, *inputs: Any) -> Any:
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        if not tensors:  # there is nothing to trace by
            return self._function(*inputs)
        key = tuple(map(_kind, inputs))
        trace = self._traces.get(key)
        if trace is None:
            trace = self._trace(inputs, tensors)
            while len(self._traces) >= MOST_TRACES:
                self._traces.pop(next(iter(self._traces)), None)
            self._traces[key] = trace
        return trace(*tensors)

    def _trace(self, inputs: tuple[Any, ...], tensors: list[Any]) -> Callable[..., Any]:
        def of_tensors(*given: Any) -> Any:
            left = iter(given)
            return self._function(
                *(next(left) if isinstance(x, torch.Tensor) else x for x in inputs)
            )

        examples = tuple(x.detach() for x in tensors)
        try:
            with warnings.catch_warnings():
                # PyTorch says that it is on its way out, and that shapes become numbers.
                warnings.simplefilter("ignore")
                made: Callable[..., Any] = torch.jit.trace(of_tensors, examples, check_trace=False)
                return made
        except (AttributeError, RuntimeError, TypeError) as error:
            said = (str(error).strip().splitlines() or [""])[0]
            raise UnsupportedError(
                f"jit_options: PyTorch {torch.__version__} does not trace this program: {said}",
                hint='leave out "backend", and torch.compile runs it',
            ) from error


def _kind(value: Any) -> Any:
    """Names what a trace depends on: all of a host value, and of a tensor all but its elements."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.device
    return repr(value)
