"""`PhysicalModel`: a compiled model, which maps parameters and data to outputs and gradients."""

from __future__ import annotations

import inspect
import keyword
from typing import TYPE_CHECKING, Any

from mithril.base.peer_names import compiled_member_here
from mithril.errors import UnknownNameError, suggestion
from mithril.physical.binding import Binding
from mithril.physical.compilation import Compilation
from mithril.physical.fast_path import FastPath
from mithril.physical.key_facts import KeyFacts
from mithril.physical.keys import Keys
from mithril.physical.options import CompileOptions
from mithril.physical.parameters import Parameters
from mithril.physical.pickling import physical_parts
from mithril.physical.program import Program
from mithril.physical.shortcuts import Shortcuts
from mithril.physical.training import Training


class PhysicalModel(Training, Parameters, Binding, Keys, Shortcuts):
    """A model compiled for a backend; made by `ml.compile`.

    It keeps no parameters: they go in and come out as plain dictionaries of arrays. Many threads
    may evaluate it at once.
    """

    def __init__(self, snapshot: Any, options: CompileOptions) -> None:
        self.backend = options.backend
        self.inference = options.inference
        self.jit = options.jit
        compilation = Compilation(snapshot, options)
        self._compilation = compilation
        self._key_facts = KeyFacts(compilation)
        self._fast_path = FastPath(compilation)
        self._native_evaluate = self._fast_path.native_evaluate
        self._native_step = None
        self.trainable_keys = compilation.trainable_keys
        self.param_keys = compilation.param_keys
        self.data_keys = compilation.data_keys
        self.state_keys = compilation.state_keys
        self.input_keys = self._key_facts.inputs
        self.output_keys = compilation.output_keys

    @property
    def _program(self) -> Program | None:
        """The program, where one serves all calls: None where each call fixes ranks."""
        return self._compilation.program

    @property
    def source(self) -> str:
        """The emitted source, or the text of the graph where plans are run."""
        program = self._program
        if program is None:
            return ""
        return getattr(program.forward, "source", None) or str(program.compiled.forward)

    @property
    def graph(self) -> Any:
        """The graph as it was flattened, before any pass."""
        return self._compilation.compiled.graph

    def __reduce__(self) -> tuple[Any, ...]:
        return physical_parts(self)

    if not TYPE_CHECKING:  # a type checker knows the members

        def __getattr__(self, name: str):
            if name == "__signature__":  # what `inspect.signature` looks for first
                self.__signature__ = _signature(self.data_keys)
                return self.__signature__
            if name.startswith("_"):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            if hasattr(type(self), name):  # a property of ours that raised AttributeError: say so
                return object.__getattribute__(self, name)
            members = [member for member in dir(self) if not member.startswith("_")]
            hint = compiled_member_here(name) or suggestion(name, members)
            raise UnknownNameError(f"a compiled model has no attribute {name!r}{hint}")

    def __repr__(self) -> str:
        return (
            f"PhysicalModel(backend={self.backend!r}, data={list(self.data_keys)},"
            f" outputs={self.output_keys})"
        )


def _signature(data_keys: tuple[str, ...]) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = [name for name in data_keys if name.isidentifier() and not keyword.iskeyword(name)]
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])


__all__ = ["PhysicalModel"]
