"""The fast path of `evaluate` on frameworks: arrays that are like former ones go straight in.

Which calls are alike says the *signature* of their arrays: class, dtype, shape and what else the
backend's `_signature` names. It is kept once a call with it took the slow path and no array was
converted there, so every check of that path holds for it. For the first signatures there is
something quicker, a *guarded call* of the backend's own: a *guard*, which checks all arrays at
once, and the function that runs those which pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mithril.execution.emitted import EmittedExecutable
from mithril.physical.program import Program

_logger = logging.getLogger("mithril")

MOST_SIGNATURES = 64
MOST_GUARDS = 8  # which are tried one after another
Signature = tuple[tuple, ...]
Function = Callable[..., Any]


class Missed:
    """Logs the first exception that a fast path met, and swallowed: such calls take longer."""

    def __init__(self, call: str) -> None:
        self._call = call
        self._is_told = False

    def __call__(self, error: Exception) -> None:
        if not self._is_told:
            self._is_told = True
            _logger.debug("%s: a call takes the slow path: %r", self._call, error)


class GuardedCalls:
    """The quick calls of one function of arrays; the one that was used last is tried first."""

    def __init__(self, program: Program, function: Function) -> None:
        self._backend = program.options.backend
        # What data choose may share memory with inputs in one call and not in the next one.
        self._varies = program.is_data_dependent
        self._function = function
        self._guards: list[Function] = []
        self._runs: dict[int, Function] = {}  # of those that were called
        self.last: tuple[Function, Function] = (_never, _never)  # (guard, run)

    def of(self, arrays: Sequence[Any]) -> Function | None:
        """Returns the function that runs these arrays, if they are like former ones, or None."""
        for i, guard in enumerate(self._guards):
            if guard(*arrays):
                run = self._runs.get(i)
                if run is None:
                    return lambda *same: self._first(i, same)
                self.last = guard, run
                return run
        return None

    def _first(self, i: int, arrays: Sequence[Any]) -> Any:
        results, run = self._backend._guarded_call(self._function, arrays)
        self._runs[i] = run
        self.last = self._guards[i], run
        return results

    def learn(self, arrays: Sequence[Any]) -> None:
        """Takes note of arrays that have passed all checks as they are."""
        if not self._varies and len(self._guards) < MOST_GUARDS and self.of(arrays) is None:
            guard = self._backend._guard(self._function, arrays)
            if guard is not None:
                self._guards.append(guard)


def _never(*_: Any) -> bool:
    return False


_QUICK = """
def quick(param, data):
    try:
        if len(param) + len(data) != {count}:
            return None
        arrays = ({arrays})
        guard, run = guarded.last
        if not guard(*arrays):
            run = guarded.of(arrays)
            if run is None:
                return None
        {targets} = run(*arrays)
        return {{{entries}}}
    except Exception as error:  # the slow path says what is wrong
        return missed(error)
"""


def _quick_function(program: Program, guarded: GuardedCalls, missed: Missed) -> Function | None:
    """Params and data -> outputs, or None; written out for the program, as loops take longer."""
    if program.state_names or any(key.role == "state" for key in program.inputs):
        return None
    results = [f"y{i}" for i in range(len(program.outputs))]
    pairs = zip(program.outputs, results, strict=True)
    text = _QUICK.format(
        count=len(program.inputs),
        arrays="".join(f"{key.role}[{key.name!r}], " for key in program.inputs),
        targets=f"[{', '.join(results)}]",
        entries=", ".join(f"{name!r}: {result}" for name, result in pairs),
    )
    scope: dict[str, Any] = {"guarded": guarded, "missed": missed}
    exec(compile(text, "mithril_quick_call.py", "exec"), scope)
    return scope["quick"]


class Arrays:
    """The arrays of a call in the order of the program's inputs, and their signature."""

    def __init__(self, program: Program) -> None:
        self._signature = program.options.backend._signature
        self._gather = _gather([(key.role, key.name) for key in program.inputs])
        self._count = len(program.inputs)

    def gather(self, params: Any, data: Any, state: Any) -> tuple:
        """Fails on dictionaries that have other entries than the inputs."""
        params, data, state = params or {}, data or {}, state or {}
        if len(params) + len(data) + len(state) != self._count:
            raise KeyError
        return self._gather(params, data, state)

    def signature(self, arrays: Sequence[Any]) -> Signature:
        return tuple(map(self._signature, arrays))

    def read(self, params: Any, data: Any, state: Any) -> tuple[tuple, Signature]:
        values = self.gather(params, data, state)
        return values, tuple(map(self._signature, values))

    def as_given(self, given: Sequence[Any], inputs: Sequence[Any]) -> Signature | None:
        """The signature of what was given, unless an input was made of it first."""
        try:
            values, signature = self.read(*given)
        except (KeyError, TypeError, AttributeError):
            return None
        same = all(a is b for a, b in zip(values, inputs, strict=True))
        return signature if same else None


class QuickCall:
    """Evaluates what needs no conversion and no warning; None sends a call down the slow path."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.arrays = Arrays(program)
        self._missed = Missed("evaluate")
        self._guarded = GuardedCalls(program, program.forward.compiled)
        self.forward = _quick_function(program, self._guarded, self._missed)
        self._met: set[Signature] = set()
        # Signature -> (cotangents, names of the gradients, their positions).
        self._gradients: dict[Signature, tuple[list, list[str], list[int]]] = {}

    @staticmethod
    def of(program: Program | None) -> QuickCall | None:
        """None where calls have to take the slow path."""
        if program is None or not isinstance(program.forward, EmittedExecutable):
            return None
        return QuickCall(program) if all(key.is_tensor for key in program.inputs) else None

    def evaluate(self, params: Any, data: Any, state: Any, gradients: Any) -> tuple | None:
        """(outputs, gradients by name or None, new states); `gradients`: None, or True for those of
        the cost."""
        forward = self.program.forward
        try:
            values, signature = self.arrays.read(params, data, state)
            if gradients is None and signature in self._met:
                return self._split_results(forward.run(values), None)
            if gradients is not True or signature not in self._gradients:
                return None
            cotangents, names, places = self._gradients[signature]
            results, found = forward.run_vjp(values, cotangents, places)
            return self._split_results(results, dict(zip(names, found, strict=True)))
        except Exception as error:  # the slow path says what is wrong
            self._missed(error)
            return None

    def _split_results(self, results: Sequence[Any], gradients: dict | None) -> tuple:
        count = len(self.program.outputs)
        return results[:count], gradients, results[count:]

    def learn(self, given: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Takes note of a call that took the slow path; `given`: params, data and state."""
        signature = self.arrays.as_given(given, inputs)
        if signature is not None:
            bounded(self._met).add(signature)
            self._guarded.learn(inputs)

    def learn_gradients(
        self, given: Sequence[Any], inputs: Sequence[Any], cotangents: Mapping, names: list[str]
    ) -> None:
        """The same for gradients of the cost: `cotangents` has it alone, as None."""
        signature = self.arrays.as_given(given, inputs)
        if signature is None or not self.program.by_framework(inputs):
            return
        values = self.program.cotangents_of(cotangents, inputs)
        places = self.program.positions(names)
        bounded(self._gradients)[signature] = values, names, places


def _gather(sources: Sequence[tuple[str, str]]) -> Callable[..., tuple]:
    """Makes a function of params, data and state that gives these entries: faster than a loop."""
    items = "".join(f"{role}[{name!r}], " for role, name in sources)
    return eval(f"lambda param, data, state: ({items})", {})


def bounded(kept: Any) -> Any:
    """Returns the collection that is kept for signatures, emptied when it has too many."""
    if len(kept) >= MOST_SIGNATURES:
        kept.clear()
    return kept
