"""The process in which GGML runs, where it must not end its caller's."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Sequence
from typing import Any

from mithril.errors import InternalError
from mithril.execution.emitted import load_source

from .backend import GGMLBackend
from .isolated import read, write

__all__ = ["serve"]


class _Server:
    """Answers one kind of message by each of its methods."""

    def options(self, options: dict[str, Any]) -> None:
        self._backend = GGMLBackend(**options)
        self._programs: list[Callable[..., Any]] = []

    def program(self, text: str, constants: Sequence[Any], parameters: list[int]) -> int:
        function = load_source(self._backend, text, constants)
        self._backend._note_parameters(function, parameters)
        self._programs.append(function)
        return len(self._programs) - 1

    def call(self, number: int, inputs: list[Any]) -> list[Any]:
        return self._backend._call(self._programs[number], inputs)


def serve() -> None:
    """Answers messages from standard input until it is closed."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what is printed is no answer
    server = _Server()
    while True:
        try:
            kind, *message = read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = True, getattr(server, kind)(*message)
        except Exception as error:
            answer = False, error
        try:
            write(answers, answer)
        except (pickle.PicklingError, TypeError):
            write(answers, (False, InternalError(f"{type(answer[1]).__name__}: {answer[1]}")))
