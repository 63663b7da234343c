"""`step`: gradients of the cost and the optimizer's update, as one program where there is one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, overload

import mithril.physical.step_layout as layouts
from mithril.base.checks import checked_mapping
from mithril.base.numpy import np
from mithril.base.public import REQUIRED, public_with_shortcut, refusal, refuses_misfits
from mithril.errors import ArgumentError, UnsupportedError
from mithril.optim.optimizers import check_slots, check_state, clips
from mithril.physical.compilation import Call
from mithril.physical.compiled_step import CompiledStep
from mithril.physical.evaluation import Evaluation
from mithril.physical.gradients import check_gradients_allowed, cost_of
from mithril.physical.inputs import check_states, for_update, inputs_of
from mithril.physical.missing import missing_parameters, refuse_swapped_data
from mithril.physical.native_calls import step_call
from mithril.physical.open_kinds import model_for_kinds
from mithril.physical.results import Step, WithGradientsAndState

if TYPE_CHECKING:
    from mithril.logical.typing import Arrays


class Training(Evaluation):
    """The part of `PhysicalModel` that trains it."""

    _native_step: Any  # the engine's, of the program of the last step that took the slow path

    @overload
    def step(self, params: Arrays, opt_state: dict[str, Any]) -> Step: ...
    @overload
    def step(
        self,
        params: Arrays,
        opt_state: dict[str, Any],
        data: Arrays | None,
        state: Arrays | None = None,
    ) -> Step: ...

    @public_with_shortcut("_native_step")
    @refuses_misfits
    def step(
        self,
        params: Mapping[str, Any] = REQUIRED,
        opt_state: dict[str, Any] = REQUIRED,
        data: Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        *others: Any,
        **unknown: Any,
    ) -> Step:
        """One step of training: gradients of the cost, then the optimizer's update.

        Nothing given is changed, unless the model was compiled with ``stream_gradients=True``:
        then the arrays of `params` and `opt_state` are overwritten (those that are read-only or
        share memory are copied), and what is returned holds them.
        """
        if others:
            raise refusal(Training.step, (self, params, opt_state, data, state, *others), {})
        if unknown or params is REQUIRED or opt_state is REQUIRED:
            named = {"params": params, "opt_state": opt_state, **unknown}
            raise refusal(Training.step, (self,), named)
        if self._compilation.static is not None:
            refuse_swapped_data(opt_state, data)
            self._compilation.static.check(data)
        if self._compilation.lists is not None:
            raise UnsupportedError(
                "step: models with lists of tensors are trained by the gradients of evaluate"
            )
        found = self._fast_path.step(params, opt_state, data, state)
        if found is not None:
            return found
        refuse_swapped_data(opt_state, data)
        given_data = checked_mapping("data", data)
        model = model_for_kinds(self, given_data)
        if model is not self:
            return model.step(params, opt_state, data, state)
        take = self._way_of_step()
        given = self._checked_params(params, opt_state)
        given_state = checked_mapping("state", state)
        if given_state:
            check_states("step", self._compilation, given_state)
        return take(Call(given, given_data, given_state), opt_state)

    def _way_of_step(self) -> Any:
        """Returns the method that takes steps: by one program of the engine or of a framework, or
        by gradients and the optimizer's own update."""
        options = self._compilation.options
        optimizer = options.optimizer
        if options.loss_scale is not None:
            return self._scaled_step
        if optimizer is None:
            raise ArgumentError("step: compile with optimizer=, such as ml.optim.Adam()")
        if options.stream_gradients and clips(optimizer):
            raise UnsupportedError(
                "step: with stream_gradients no gradient waits until all can be clipped",
                hint="leave stream_gradients out, or clip_norm and clip_value",
            )
        if self.backend.runs_plans and optimizer.op and not clips(optimizer):
            return self._step_of_engine
        return self._step_of_framework if CompiledStep.suits(options) else self._plain_step

    def _checked_params(self, params: Any, opt_state: Any) -> Mapping[str, Any]:
        given = checked_mapping("step: params", params)
        missing = [name for name in self.trainable_keys if name not in given]
        if missing:
            raise missing_parameters(self._compilation, missing, given, opt_state)
        return given

    def _check_state(self, opt_state: Any) -> None:
        optimizer = self._compilation.options.optimizer
        check_state("step: opt_state", opt_state, optimizer, list(self.trainable_keys))

    def _plain_step(self, call: Call, opt_state: Any) -> Step:
        """Takes the step by `evaluate` and `update`."""
        self._check_state(opt_state)
        result = self.evaluate(call.params, call.data, output_gradients=True, state=call.state)
        optimizer = self._compilation.options.optimizer
        params, opt_state = for_update(self._compilation, call, opt_state)
        params, opt_state = optimizer.update(params, result.gradients, opt_state)
        return _stepped(result, params, opt_state)

    def _scaled_step(self, call: Call, opt_state: Any) -> Step:
        """Takes the step along gradients of a scaled cost."""
        self._check_state(opt_state)
        options = self._compilation.options
        optimizer, scaling = options.optimizer, options.loss_scale
        cost = cost_of(self._compilation, self._compilation.program_for(call))
        request = {cost: scaling.state_of(opt_state)["scale"]}
        result = self.evaluate(call.params, call.data, output_gradients=request, state=call.state)
        own = {name: result.gradients[name] for name in self.trainable_keys}
        params, opt_state = for_update(self._compilation, call, opt_state)
        params, opt_state = scaling.update(optimizer, params, own, opt_state, self.backend)
        return _stepped(result, params, opt_state)

    def _step_of_framework(self, call: Call, opt_state: Any) -> Step:
        """The step as one function, compiled where the framework compiles gradients; by itself
        where the program's gradients are the engine's."""
        self._check_state(opt_state)
        compilation = self._compilation
        program = compilation.program_for(call)
        if not CompiledStep.suits(program.options):
            return self._plain_step(call, opt_state)
        inputs = inputs_of(compilation, program, call)
        if not program.by_framework(inputs):
            return self._plain_step(call, opt_state)
        check_gradients_allowed(compilation)
        step = CompiledStep.of(
            program, cost_of(compilation, program), compilation.options.optimizer
        )
        self._fast_path.learn_step(program, step)
        return Step(*step.run(call, inputs, opt_state))

    def _step_of_engine(self, call: Call, opt_state: Any) -> Step:
        """The step as one program: gradients and updates are fused and planned together."""
        compilation = self._compilation
        program = compilation.program_for(call)
        inputs = inputs_of(compilation, program, call)
        check_gradients_allowed(compilation)
        optimizer = compilation.options.optimizer
        layout = layouts.StepLayout.of(program, optimizer)
        check_state("step: opt_state", opt_state, optimizer, layout.trained)
        extra = self._optimizer_inputs(program, optimizer, opt_state)
        slots: dict[str, dict[str, Any]] = {slot: {} for slot in optimizer.slots}
        for slot, name, key in layout.slot_keys():
            slots[slot][name] = extra[key]
        moved = {k.name: x for k, x in zip(program.inputs, inputs, strict=True) if k.trainable}
        check_slots("step: opt_state", slots, optimizer, moved)
        cost, streams = cost_of(compilation, program), compilation.options.stream_gradients
        before = dict(opt_state)
        with _counted(opt_state) if streams else contextlib.nullcontext():
            results = program.run_step(inputs, cost, optimizer, extra)
        if program is compilation.program and compilation.static is None and not streams:
            self._native_step = step_call(program, cost, optimizer, Step)
        return Step(*layout.moved(results, call.params, before))

    def _optimizer_inputs(self, program: Any, optimizer: Any, opt_state: Any) -> dict[str, Any]:
        """Returns the inputs of the program beside the model's own, by name."""
        rate_type = np.float64 if self.backend.default_dtype == "float64" else np.float32
        extra = {
            layouts.COUNT: np.asarray(opt_state["step"], np.int64),
            layouts.RATE: np.asarray(optimizer.lr, rate_type),
        }
        for slot in optimizer.slots:
            for name, value in opt_state[slot].items():
                if name in program.by_name:
                    kept = program.by_name[name].kept
                    extra[layouts.slot_key(slot, name)] = self._compilation.convert(kept, value)
        return extra


def _stepped(result: Any, params: Any, opt_state: Any) -> Step:
    state = result.state if isinstance(result, WithGradientsAndState) else {}
    return Step(params, opt_state, state, result.outputs)


@contextlib.contextmanager
def _counted(opt_state: Mapping[str, Any]) -> Iterator[None]:
    """While a step overwrites arrays, the given state counts it, too: Ctrl-C is raised after it,
    and whoever catches it has these arrays only."""
    if not isinstance(opt_state, dict):
        yield
        return
    before = opt_state["step"]
    opt_state["step"] = before + 1
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException:
        opt_state["step"] = before
        raise


__all__ = ["Training"]
