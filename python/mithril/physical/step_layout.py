"""Names of a training step's inputs and results in its program, beside the model's own.

They begin with "$", as no name of a user does (csrc/passes/append_optimizer.h has the same).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

COUNT, RATE = "$opt.t", "$opt.lr"  # steps so far, learning rate


def slot_key(slot: str, name: str) -> str:
    """Names the input with what the optimizer keeps of a parameter."""
    return f"$opt.{slot}.{name}"


def new_key(name: str) -> str:
    """Names the result that takes the place of an input."""
    return f"$new.{name}"


def state_key(name: str) -> str:
    """Names the result with the next state."""
    return f"$state.{name}"


class StepLayout(NamedTuple):
    """The names of one program of steps."""

    trained: Sequence[str]
    slots: Sequence[str]  # what the optimizer keeps of each parameter
    states: Sequence[str]
    outputs: Sequence[str]

    @classmethod
    def of(cls, program: Any, optimizer: Any) -> StepLayout:
        trained = [key.name for key in program.inputs if key.trainable]
        return cls(trained, optimizer.slots, program.state_names, program.outputs)

    def slot_keys(self) -> Iterator[tuple[str, str, str]]:
        """Yields (slot, parameter, name of the input) of all that the optimizer keeps."""
        return ((slot, n, slot_key(slot, n)) for slot in self.slots for n in self.trained)

    def state_keys(self) -> list[str]:
        return [state_key(name) for name in self.states]

    def overwrites(self) -> list[tuple[str, str]]:
        """Lists results, each with the input whose array it may overwrite."""
        kept = [key for *_, key in self.slot_keys()]
        return [(new_key(name), name) for name in [*self.trained, *kept]]

    def params(self, found: Callable[[str], Any]) -> dict[str, Any]:
        """Returns `found(name)` of the result of each parameter, by parameter."""
        return {name: found(new_key(name)) for name in self.trained}

    def kept(self, found: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
        """Returns `found(name)` of the result of each slot, by slot and parameter."""
        return {
            slot: {name: found(new_key(slot_key(slot, name))) for name in self.trained}
            for slot in self.slots
        }

    def next_states(self, found: Callable[[str], Any]) -> dict[str, Any]:
        return {name: found(state_key(name)) for name in self.states}

    def moved(self, results: Mapping[str, Any], params: Any, opt_state: Any) -> tuple[Any, ...]:
        """Returns (params, opt_state, state, outputs) after a step."""
        found = results.__getitem__
        slots = {slot: {**opt_state[slot], **own} for slot, own in self.kept(found).items()}
        return (
            {**params, **self.params(found)},
            {"step": int(opt_state["step"]) + 1, **slots},
            self.next_states(found),
            {name: results[name] for name in self.outputs},
        )


__all__ = ["COUNT", "RATE", "StepLayout", "new_key", "slot_key", "state_key"]
