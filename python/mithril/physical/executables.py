"""Executables of graphs: plans of a backend that has some, else emitted source and its compiler."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril.base.logging import note_option
from mithril.errors import UnsupportedError
from mithril.execution import own_ops, primitives
from mithril.execution.emitted import EmittedExecutable
from mithril.execution.executed import Executed
from mithril.physical.literals import literal_array
from mithril.physical.quantized import Quantized
from mithril.physical.targets import (
    calls_python,
    dynamic_features,
)
from mithril.physical.watch import watched

if TYPE_CHECKING:
    from mithril.physical.options import CompileOptions
    from mithril.physical.program_keys import Key

_TAKES_OUT = re.compile(r"\bops\.(item|tensor_to_list)\(")  # in emitted text: values of tensors


class Executables:
    """The part of `Program` that makes executables of graphs."""

    compiled: Any
    options: CompileOptions
    keys: list[Key]
    _target: dict[str, Any]

    def _forward_of(self, graph: Any) -> Any:
        kind = self.options.quantize
        if not kind:
            return self._executable(graph, self.options.file_path)

        def made(one: Any) -> Any:
            return self._executable(one, self.options.file_path)

        quantized = Quantized(self.options.backend, graph, kind, made)
        return quantized if quantized.weights else quantized.executable

    def _executable(
        self,
        graph: Any,
        file_path: str | None = None,
        overwrites: Sequence[tuple[str, str]] = (),
        differentiates: bool = False,
    ) -> Any:
        if self.options.check_nan:
            return watched(self, graph, file_path, differentiates)
        return self._plain(graph, file_path, overwrites, differentiates)

    def _plain(self, graph: Any, *arguments: Any, **named: Any) -> Any:
        """Makes the executable, run by the backend's own `execute` where its class has one."""
        made = self._made(graph, *arguments, **named)
        if not own_ops.runs_graphs(self.options.backend):
            return made
        return Executed(self.options.backend, graph, made)

    def _made(
        self,
        graph: Any,
        file_path: str | None = None,
        overwrites: Sequence[tuple[str, str]] = (),
        differentiates: bool = False,
    ) -> Any:
        options = self.options
        if self._target["native"]:
            return options.backend._program(
                graph,
                self.compiled.trace,
                options.passes_off,
                options.exact_conv,
                options.canonical,
                options.recorder,
                options.weights,
                overwrites,
                options.memory_limit,
                differentiates and options.gradient_checkpointing,
            )
        jit_options = options.jit_options
        if differentiates and options.gradient_checkpointing:
            graph = _core.rematerialize(graph, self.compiled.trace)
            jit_options = options.backend._keeping_copies(jit_options)
        if options.weights:
            graph = _core.dequantize_weights(graph, options.weights)
        try:
            text, constants = _core.emit_python(graph, self._target, self.compiled.trace)
        except UnsupportedError as error:
            raise primitives.named(error) from None
        executable = EmittedExecutable(
            options.backend,
            text,
            [
                literal_array(
                    c,
                    options.backend.default_dtype,
                    options.backend.default_int,
                    options.backend._widest_int,
                )
                for c in constants
            ],
            jit=_compiles(options, graph, text),
            jit_options=jit_options,
            file_path=file_path,
            checkpoints=options.gradient_checkpointing and options.autodiff == "framework",
            folds=options.static_inference,
        )
        if not differentiates:
            names = {key.name for key in self.keys if key.role == "param"}
            positions = [i for i, (name, *_) in enumerate(graph.inputs) if name in names]
            options.backend._note_parameters(executable.function, positions)
        return executable

    @property
    def is_native(self) -> bool:
        """Tells whether plans are run; a step of a plan cannot call Python."""
        return bool(self._target["native"])


def _compiles(options: CompileOptions, graph: Any, text: str) -> bool:
    """Tells whether the framework's compiler gets the graph; a note says why not."""
    if not options.jit or (not options.jit_is_asked and calls_python(graph)):
        return False
    hard = dynamic_features(graph) | ({"values"} if _TAKES_OUT.search(text) else set())
    hard &= options.backend.not_compiled
    if not hard:
        return True
    reason = f"its compiler cannot follow {' and '.join(sorted(hard))} that depend on data"
    note_option(type(options.backend).__name__, "jit=True", f"runs line by line: {reason}")
    return False


__all__ = ["Executables"]
