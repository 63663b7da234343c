"""Compiled graphs behind one small interface, whether source is emitted or plans are run.

An executable has ``run(inputs) -> outputs`` over lists of arrays in the graph's order. A `Program`
holds the executables of one compiled model: the forward one, and gradients as they are asked for.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril.base.logging import note_option
from mithril.errors import ShapeError, UnsupportedError
from mithril.execution import own_ops, primitives
from mithril.execution.emitted import EmittedExecutable
from mithril.execution.executed import Executed
from mithril.optim.optimizers import attributes_of
from mithril.physical.literals import literal_array
from mithril.physical.program_keys import Key, keys_of
from mithril.physical.quantized import Quantized
from mithril.physical.step_layout import StepLayout
from mithril.physical.targets import (
    brings_gradient,
    calls_python,
    dynamic_features,
    runs_natively,
    target_of,
)

if TYPE_CHECKING:
    from mithril.physical.options import CompileOptions

MOST_GRADIENTS = 16  # programs that are kept; the one used longest ago goes
MOST_SHAPES = 256
_TAKES_OUT = re.compile(r"\bops\.(item|tensor_to_list)\(")  # in emitted text: values of tensors


def _compiles(options: CompileOptions, graph: Any, text: str) -> bool:
    """Tells whether the framework's compiler gets the graph; a note says why not."""
    if not options.jit or (not options.jit_is_asked and calls_python(graph)):
        return False
    hard = dynamic_features(graph) | ({"values"} if _TAKES_OUT.search(text) else set())
    hard &= options.backend._not_compiled
    if not hard:
        return True
    reason = f"its compiler cannot follow {' and '.join(sorted(hard))} that depend on data"
    note_option(type(options.backend).__name__, "jit=True", f"runs line by line: {reason}")
    return False


class Program:
    """The executables of one compiled model."""

    def __init__(self, compiled: Any, options: CompileOptions):
        self.compiled = compiled
        self.is_data_dependent = bool(dynamic_features(compiled.forward))
        if options.autodiff == "framework" and (
            # Some frameworks would differentiate it: what has no gradient is told by the engine.
            compiled.forward.has_op("while_loop")
            or compiled.forward.has_empty()
            and not options.backend.differentiates_empty
            or brings_gradient(compiled, options.backend)
            or own_ops.runs_graphs(options.backend)
        ):
            options = dataclasses.replace(options, autodiff="engine")
        self.options = options
        self.keys = keys_of(compiled, options)
        self.outputs: list[str] = compiled.outputs
        self.state_names = [name for name, _ in compiled.states]
        self.output_types: dict[str, tuple] = compiled.output_types
        self._target = target_of(options.backend, runs_natively(compiled, options.backend))
        by_name = {key.name: key for key in self.keys}
        self.by_name = by_name
        self.inputs = [by_name[name] for name, *_ in compiled.forward.inputs]
        self.forward = self._forward_of(compiled.forward)
        self._gradients: collections.OrderedDict[tuple, Any] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._checked: dict[tuple, list] = {}
        self.compiled_step: Any = None  # the last one that was made (_compiled_step.py)

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
            from mithril.physical.watch import watched

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

    # --- checks -------------------------------------------------------------------------------
    def output_shapes(self, shapes: Sequence[tuple[int, ...]]) -> list[list | None]:
        """Returns the shapes of the outputs for those of the tensor inputs; raises unless these
        agree with what was compiled. Equal calls are looked up."""
        key = tuple(shapes)
        found = self._checked.get(key)
        if found is None:
            tensors = [k.name for k in self.inputs if k.is_tensor]
            found = self.compiled.solve_outputs(dict(zip(tensors, key, strict=True)), check=True)
            if len(self._checked) >= MOST_SHAPES:
                self._checked.clear()
            self._checked[key] = found
        return found

    def shapes_of(self, inputs: Sequence[Any]) -> list[tuple[int, ...]]:
        """Returns the shapes of the tensors among the inputs."""
        pairs = zip(self.inputs, inputs, strict=True)
        return [value.shape for key, value in pairs if key.is_tensor]

    def _check_own_results(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        """Raises where ops of the backend's class give shapes that the model does not have."""
        wanted = self.output_shapes(self.shapes_of(inputs))
        for name, shape, result in zip(self.outputs, wanted, results, strict=False):
            got = list(getattr(result, "shape", ()))
            sizes = [size for size in (shape or []) if size is not None]
            if shape is None or (len(got) == len(shape) and len(sizes) < len(shape)):
                continue
            if got != list(shape):
                of = type(self.options.backend).__name__
                brought = ", ".join(f"{of}.{op}" for op in self._target["own_functions"])
                raise ShapeError(
                    f"{name}: requires the shape {list(shape)}, got {got}",
                    hint=f"ops that the backend brings: {brought}; run_backend_tests finds which",
                )

    def output_key(self, name: str) -> Key:
        """An output as something that data are converted for."""
        dtype, _ = self.output_types[name]
        return Key(name, "data", False, True, dtype, "", "none", (), "", "", "")

    # --- running ------------------------------------------------------------------------------
    def run(self, inputs: list[Any], donates_state: bool = False) -> tuple[list[Any], list[Any]]:
        """Returns (outputs, new states). Plans may update states that are donated in place."""
        in_place = donates_state and self.is_native and not self.options.check_nan
        results = self.forward.run(inputs, True) if in_place else self.forward.run(inputs)
        count = len(self.outputs)
        if self._target["own_functions"]:
            self._check_own_results(inputs, results)
        return list(results[:count]), list(results[count:])

    def run_gradient(
        self, inputs: list[Any], cotangents: dict[str, Any], wrt: Sequence[str]
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Returns (outputs, new states, gradients of `wrt`). A cotangent None means 1."""
        if self.by_framework(inputs):
            return self._framework_gradient(inputs, cotangents, wrt)
        return self.engine_gradient(inputs, cotangents, wrt)

    def by_framework(self, inputs: Sequence[Any]) -> bool:
        """Tells whether the framework differentiates a call with these inputs."""
        if self.options.autodiff != "framework":
            return False
        if self.options.backend.differentiates_empty:
            return True
        return all(0 not in getattr(value, "shape", ()) for value in inputs)

    def engine_gradient(
        self, inputs: list[Any], cotangents: dict[str, Any], wrt: Sequence[str]
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Does what `run_gradient` does by the gradient program of the engine."""
        given = tuple(name for name, value in cotangents.items() if value is not None)
        unit = tuple(name for name, value in cotangents.items() if value is None)
        executable = self._gradient(given, tuple(wrt), unit)
        results = executable.run([*inputs, *(cotangents[name] for name in given)])
        count, gradients = len(self.outputs), len(wrt)
        return (
            list(results[:count]),
            list(results[count + gradients :]),
            list(results[count : count + gradients]),
        )

    def run_step(
        self, inputs: list[Any], output: str, optimizer: Any, extra: dict[str, Any]
    ) -> dict[str, Any]:
        """Outputs, new parameters and new slots of one training step, by the graph's names.

        Names of the engine's own inputs and results begin with "$", as no name of a user does.
        """
        executable, order, names = self.step_program(output, optimizer)
        own = {key.name: value for key, value in zip(self.inputs, inputs, strict=True)}
        values = [extra[n] if n in extra else own[n] for n in order]
        return dict(zip(names, executable.run(values), strict=False))

    def step_program(self, output: str, optimizer: Any) -> tuple[Any, list[str], list[str]]:
        """An executable with the names of its inputs and results."""
        numbers = attributes_of(optimizer)
        key = (output, optimizer.op, tuple(numbers.items()))
        with self._lock:
            found = self._gradients.get(key)
        if found is not None:
            return found
        layout = StepLayout.of(self, optimizer)
        graph = self.compiled.step([], list(layout.trained), [output], optimizer.op, numbers)
        order = [name for name, *_ in graph.inputs]
        overwrites = layout.overwrites() if self.options.stream_gradients else []
        executable = self._executable(graph, overwrites=overwrites, differentiates=True)
        made = executable, order, [*graph.outputs, *layout.state_keys()]
        with self._lock:
            self._gradients[key] = made
        return made

    def _gradient(self, outputs: tuple, wrt: tuple, unit: tuple) -> Any:
        """An executable that takes the model's inputs, then the cotangents of `outputs`."""
        key = (outputs, wrt, unit)
        with self._lock:
            found = self._gradients.get(key)
            if found is not None:
                self._gradients.move_to_end(key)
                return found
        graph = self.compiled.gradient(list(outputs), list(wrt), list(unit))
        made = self._executable(graph, differentiates=True)
        with self._lock:
            self._gradients[key] = made
            while len(self._gradients) > MOST_GRADIENTS:
                self._gradients.popitem(last=False)
        return made

    def positions(self, names: Sequence[str]) -> list[int]:
        """Returns the places of these inputs in the program's order."""
        order = [key.name for key in self.inputs]
        return [order.index(name) for name in names]

    def cotangents_of(self, cotangents: Mapping[str, Any], inputs: Sequence[Any]) -> list[Any]:
        """Returns a cotangent for each result: an array, or None where no gradient flows from."""
        values = [cotangents.get(name) for name in self.outputs]
        for i, name in enumerate(self.outputs):
            if name in cotangents and values[i] is None:
                dtype, _ = self.output_types[name]
                shape = self.output_shapes(self.shapes_of(inputs))[i] or []
                values[i] = self.options.backend.ones(tuple(shape), dtype=dtype)
        return values + [None] * len(self.state_names)

    def _framework_gradient(
        self, inputs: list[Any], cotangents: dict[str, Any], wrt: Sequence[str]
    ) -> tuple[list[Any], list[Any], list[Any]]:
        values = self.cotangents_of(cotangents, inputs)
        results, gradients = self.forward.run_vjp(inputs, values, self.positions(wrt))
        if self.options.check_nan:
            from mithril.physical.watch import check_gradients

            check_gradients(self, dict(zip(wrt, gradients, strict=True)), inputs, cotangents)
        count = len(self.outputs)
        return list(results[:count]), list(results[count:]), list(gradients)
