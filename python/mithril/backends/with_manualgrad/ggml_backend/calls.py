"""The custom nodes of a graph: our functions, which ggml calls while it computes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np

from . import library
from .graph import Node, Step, mapped, set_custom


class InputValues:
    """Stands for an input among the arguments of a function."""

    def __init__(self, index: int, shape: tuple[int, ...]) -> None:
        self.index, self.shape = index, shape


class CustomCalls:
    """The calls of one graph, by number. What a function raises is kept, and the rest left out."""

    def __init__(self) -> None:
        self.inputs: Sequence[Any] = []
        self._calls: list[Callable[[], None]] = []
        self._error: BaseException | None = None
        self._done = 0
        self._results: dict[Step, Any] = {}  # of functions that have several

    def __len__(self) -> int:
        return len(self._calls)

    def add(
        self, step: Step, number: int, values: Callable[[Node], Any], address: int | None
    ) -> None:
        """Binds a node: the function at an address is called with the number of its call.

        Parameters
        ----------
        step, number : the call, and which of its results
        values : of a node, an array over its memory or `InputValues`
        """
        place, node = step.results[number]
        take = (
            self._function(step, place, values) if number == 0 else self._taking_over(step, place)
        )
        out = values(node)

        def call() -> None:
            out[...] = take()

        self._calls.append(call)
        set_custom(node.tensor, address, 1, len(self._calls))

    def _function(self, step: Step, place: int, values: Callable[[Node], Any]) -> Callable[[], Any]:
        arguments = mapped(values, step.arguments)
        reads_inputs = any(isinstance(x, InputValues) for x in _leaves(arguments))
        function, has_several = step.function, place >= 0

        def result() -> Any:
            args, kwargs = _filled(arguments, self.inputs) if reads_inputs else arguments
            with np.errstate(all="ignore"):
                found = function(*args, **kwargs)
            if not has_several:
                return found
            self._results[step] = found
            return found[place]

        return result

    def _taking_over(self, step: Step, place: int) -> Callable[[], Any]:
        return lambda: self._results[step][place]

    # --- what ggml calls ----------------------------------------------------------------------

    def called(self, _tensor: Any, ith: int, _nth: int, number: int) -> None:
        """Runs a call and keeps its exception, which must not propagate through ggml."""
        try:
            if not ith and self._error is None:
                self._calls[number - 1]()
                self._done += 1
        except BaseException as error:
            self._error = error

    def stops(self) -> Generator[bool, Any, None]:
        """Yields after each node whether to stop the graph. In a plain function a signal handler
        could raise before its `try` begins; a generator resumes inside its own."""
        while True:
            try:
                yield self._error is not None
            except GeneratorExit:
                return
            except BaseException as error:
                self._error = error

    def start(self, inputs: Sequence[Any]) -> None:
        self.inputs, self._done = inputs, 0

    def check(self) -> None:
        """Raises what a function or a signal's handler has raised."""
        if self._error is not None:
            raise self._error
        if self._done != len(self._calls):  # a handler raised before a function could run
            raise KeyboardInterrupt

    def finish(self) -> None:
        self.inputs, self._error = [], None
        self._results.clear()


def callback(function: Callable[..., None]) -> tuple[Any, int | None]:
    """A function for ggml, which must be kept, and its address."""
    made = library.CALLBACK(function)
    return made, ctypes.cast(made, ctypes.c_void_p).value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        yield from _leaves(list(value.values()))
    else:
        yield value


def _filled(value: Any, inputs: Sequence[Any]) -> Any:
    if isinstance(value, InputValues):
        return inputs[value.index].reshape(value.shape)
    if type(value) in (tuple, list):
        return type(value)([_filled(item, inputs) for item in value])
    if isinstance(value, dict):
        return {key: _filled(item, inputs) for key, item in value.items()}
    return value
