"""A training step on a framework as one function: its own gradients, then the update.

Where the framework compiles gradients with what they are of (JAX, MLX), all of it is compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mithril.base.numpy import np
from mithril.optim.optimizers import check_slots, clipped, factors_of, numbers_of, stepped
from mithril.physical.program import Program
from mithril.physical.quick_call import Arrays, GuardedCalls, Missed, Signature, bounded

if TYPE_CHECKING:
    from mithril.physical.options import CompileOptions


class CompiledStep:
    """Steps of one program with one optimizer, whose rate may change from step to step."""

    def __init__(self, program: Program, output: str, optimizer: Any) -> None:
        self._program = program
        self._backend = program.options.backend
        self._optimizer = optimizer
        self._numbers = numbers_of(optimizer)
        self._trained = [key.name for key in program.inputs if key.trainable]
        self._arrays = Arrays(program)
        self._output = output
        self._one: Any = None  # the cotangent of the cost, where that has rank 0
        self._rate: tuple[float, Any] | None = None  # of the last step, and as an array
        self._met: dict[Signature, Any] = {}  # -> the cotangent of the cost
        # Whether a compiler sees the update too; else factors and rate are numbers.
        self._is_whole = program.options.jit and self._backend.compiles_steps
        step = self._whole()
        self._function = program.forward._compiled(step) if self._is_whole else step
        self._guarded = GuardedCalls(program, self._function)
        parting = _parting(program, self._trained, optimizer.slots)
        self._split_results = eval(f"lambda results, param, opt_state: {parting}", {})
        # (params, opt_state, data, state) -> as `run`, or None where arrays have to be looked at.
        self.try_run = _quick_function(self, parting)
        # Of the rate and its like, which halves would spoil.
        self._wide = "float64" if str(self._backend.default_dtype) == "float64" else "float32"

    @staticmethod
    def suits(options: CompileOptions) -> bool:
        """Tells whether the framework has a function of gradients that a step can use."""
        if options.autodiff != "framework" or options.check_nan:
            return False
        return hasattr(options.backend, "_vjp_function")

    @staticmethod
    def of(program: Program, output: str, optimizer: Any) -> CompiledStep:
        """Returns the program's own step; `suits` says whether there is any."""
        found = program.compiled_step
        if found is None or found._numbers != numbers_of(optimizer):
            found = program.compiled_step = CompiledStep(program, output, optimizer)
        return found

    def _whole(self) -> Any:
        program, optimizer = self._program, self._optimizer
        places = program.positions(self._trained)
        asked = tuple(name == self._output for name in program.outputs)
        asked += (False,) * len(program.state_names)
        both = self._backend._vjp_function(program.forward, tuple(places), asked)
        inputs, slots = len(program.inputs), len(optimizer.slots)

        def step(*arrays: Any) -> tuple[Any, ...]:
            outputs, gradients = both(*arrays[: inputs + 1])
            kept, numbers = arrays[inputs + 1 : -1], arrays[-1]
            moving, factors = self._moving(numbers)
            results = []
            moderate = clipped(moving, gradients)
            for i, (place, gradient) in enumerate(zip(places, moderate, strict=True)):
                parameter = arrays[place]
                own: Any = kept[i * slots : (i + 1) * slots]
                updated, own = stepped(moving, parameter, gradient, own, factors)
                results += [updated, *own]
            return (*outputs, *results)

        return step

    def _moving(self, numbers: Any) -> tuple[Any, tuple]:
        """Returns the optimizer at the rate of the step, and the step's factors."""
        optimizer = self._optimizer
        if not self._is_whole:
            return optimizer, numbers
        moving = copy.copy(optimizer)
        vars(moving)["lr"] = numbers[0]  # of a program, which checks no values
        return moving, tuple(numbers[1 + i] for i in range(len(factors_of(optimizer, 1))))

    def _looked_up(self, params: Any, opt_state: Any, data: Any, state: Any) -> tuple | None:
        """Takes a step with arrays unlike those of the last one; None where checks are due."""
        values, kept = self._arrays.gather(params, data, state), self._kept(opt_state)
        arrays = (*values, *kept)
        run, one = self._guarded.of(arrays), self._one
        if run is None:
            signature = self._arrays.signature(arrays)
            if signature not in self._met:
                return None
            run, one = self._slow_path, self._met[signature]
        results = run(*values, one, *kept, self._numbers_of(opt_state))
        return self._split_results(results, params, opt_state)

    def _slow_path(self, *arrays: Any) -> Any:
        return self._backend._call(self._function, arrays)

    def run(self, given: Sequence[Any], inputs: list, opt_state: Mapping) -> tuple:
        """Takes a step with inputs that were checked, converted; `given`: params, data, state."""
        cotangents = self._program.cotangents_of({self._output: None}, inputs)
        one = next(c for c in cotangents if c is not None)
        kept = self._kept(opt_state)
        native = [x if self._backend._is_native(x) else self._backend.tensor(x) for x in kept]
        self._check_slots(native, inputs)
        results = self._slow_path(*inputs, one, *native, self._numbers_of(opt_state))
        signature = self._arrays.as_given(given, inputs)
        if signature is not None and all(a is b for a, b in zip(kept, native, strict=True)):
            bounded(self._met)[signature + self._arrays.signature(kept)] = one
            if one.shape == ():
                self._one = one if self._backend.compiles_steps else None  # PyTorch makes one
                self._guarded.learn([*inputs, *kept])
        return self._split_results(results, given[0], opt_state)

    def _check_slots(self, kept: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Raises unless what is kept is shaped like the parameters; `kept`: as `_kept` gives it."""
        slots, places = self._optimizer.slots, self._program.positions(self._trained)
        params = dict(zip(self._trained, (inputs[i] for i in places), strict=True))
        state = {
            slot: dict(zip(params, kept[i :: len(slots)], strict=True))
            for i, slot in enumerate(slots)
        }
        check_slots("step: opt_state", state, self._optimizer, params)

    def _kept(self, opt_state: Mapping) -> list[Any]:
        slots = [opt_state[slot] for slot in self._optimizer.slots]
        return [slot[name] for name in self._trained for slot in slots]

    def _numbers_of(self, opt_state: Mapping) -> Any:
        """Returns what changes from step to step: the rate where it is compiled, and factors."""
        factors = factors_of(self._optimizer, int(opt_state["step"]) + 1)
        if not self._is_whole:
            return factors
        rate = float(self._optimizer.lr)
        if factors:
            return self._backend._argument(np.array([rate, *factors], self._wide))
        if self._rate is None or self._rate[0] != rate:  # the same array serves all steps
            self._rate = rate, self._backend.tensor(np.array([rate], self._wide), self._wide)
        return self._rate[1]


# Checks the arrays of a step as one, runs it and parts its results.
_QUICK = """
def quick(param, opt_state, data, state):
    try:
        data, state = data or {{}}, state or {{}}
        if len(param) + len(data) + len(state) != {count}{changed}:
            return None
        arrays = ({inputs}{kept})
        guard, run = guarded.last
        if not guard(*arrays):
            return step._looked_up(param, opt_state, data, state)
        results = run({call}{numbers})
        return {parting}
    except Exception as error:  # the slow path says what is wrong
        return missed(error)
"""


def _quick_function(step: CompiledStep, parting: str) -> Any:
    """Writes out `try_run` of a step for its program, as loops and calls take longer."""
    program, optimizer = step._program, step._optimizer
    inputs = [f"{key.role}[{key.name!r}], " for key in program.inputs]
    slots = [(name, slot) for name in step._trained for slot in optimizer.slots]
    kept = [f"opt_state[{slot!r}][{name!r}], " for name, slot in slots]
    numbers = "step._numbers_of(opt_state)"
    if step._is_whole and not factors_of(optimizer, 1):
        numbers = f"last[1] if (last := step._rate) and optimizer.lr == last[0] else {numbers}"
    text = _QUICK.format(
        count=len(inputs),
        changed="".join(f" or optimizer.{n} != numbers[{n!r}]" for n in step._numbers),
        inputs="".join(inputs),
        kept="".join(kept),
        call=f"*arrays[:{len(inputs)}], step._one, *arrays[{len(inputs)}:], ",
        numbers=numbers,
        parting=parting,
    )
    scope = {
        "step": step,
        "guarded": step._guarded,
        "optimizer": optimizer,
        "numbers": step._numbers,
    }
    scope["missed"] = Missed("step")
    exec(compile(text, "mithril_quick_step.py", "exec"), scope)
    return scope["quick"]


def _parting(program: Program, trained: Sequence[str], slots: Sequence[str]) -> str:
    """Writes the expression for what `run` returns, of `results`, `param` and `opt_state`."""

    def entries(names: Sequence[str], first: int, width: int = 1) -> str:
        return "".join(f"{n!r}: results[{first + i * width}], " for i, n in enumerate(names))

    states = len(program.outputs)
    first, width = states + len(program.state_names), 1 + len(slots)
    moved = [entries(trained, first + i, width) for i in range(width)]
    kept = "".join(
        f"{slot!r}: {{**opt_state[{slot!r}], {text}}}, "
        for slot, text in zip(slots, moved[1:], strict=True)
    )
    return (
        f"({{**param, {moved[0]}}}, {{'step': int(opt_state['step']) + 1, {kept}}}, "
        f"{{{entries(program.state_names, states)}}}, {{{entries(program.outputs, 0)}}})"
    )
