"""Compiled graphs behind one small interface, whether source is emitted or plans are run.

An executable has ``run(inputs) -> outputs`` over lists of arrays in the graph's order. A `Program`
holds the executables of one compiled model: the forward one, and gradients as they are asked for.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mithril.errors import ShapeError
from mithril.execution import own_ops
from mithril.optim.optimizers import attributes_of
from mithril.physical.executables import Executables
from mithril.physical.program_keys import Key, keys_of
from mithril.physical.step_layout import StepLayout
from mithril.physical.targets import (
    brings_gradient,
    dynamic_features,
    runs_natively,
    target_of,
)
from mithril.physical.watch import check_gradients

if TYPE_CHECKING:
    from mithril.physical.options import CompileOptions

MOST_GRADIENTS = 16  # programs that are kept; the one used longest ago goes
MOST_SHAPES = 256


class Program(Executables):
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
            check_gradients(self, dict(zip(wrt, gradients, strict=True)), inputs, cotangents)
        count = len(self.outputs)
        return list(results[:count]), list(results[count:]), list(gradients)
