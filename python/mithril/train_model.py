"""`TrainModel`: a model with losses, regularizers and metrics, and one cost to minimise."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from mithril._core import public
from mithril.connection import Connection, Tensor
from mithril.errors import (
    ArgumentError,
    FrozenModelError,
    KeyNotFound,
    SignatureError,
    UnsupportedError,
    WireNameError,
    suggestion,
)
from mithril.model import Model

FINAL_COST = "final_cost"
LOSS = "loss"


class TrainModel(Model):
    """Wraps a model; `add_loss` says what to minimise, compile adds the output `final_cost`.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Linear(1)(input="input", output="prediction")
    >>> train = ml.TrainModel(model)
    >>> train.add_loss(ml.SquaredError(), input="prediction", target="target")
    """

    _default_mode = "train"

    def __init__(self, model: Model):
        if not isinstance(model, Model) or isinstance(model, TrainModel):
            raise SignatureError(f"TrainModel: requires a model, got {type(model).__name__}")
        taken = {FINAL_COST, LOSS} & set(model.external_keys)
        if taken:
            raise WireNameError(f"TrainModel: the key '{min(taken)}' is reserved")
        super().__init__()
        self._inner = model
        self._losses: list[tuple[Connection, list[Connection], Any]] = []
        self._regularizers: list[tuple[Any, Connection]] = []
        self._is_final = False
        keys = self._outer_keys(model)
        super()._extend(model.connect(**keys), canonical=False)
        outputs = model.output_keys or [wire.key_name for wire in model._node.couts]
        self._outputs = [keys.get(key, key) for key in outputs]
        self._node.expose_keys([k for k in self._outputs if self._is_wire(k)], {})

    @staticmethod
    def _outer_keys(model: Model) -> dict[str, str]:
        """Every external key gets its own name, unnamed ones the name that they are shown with."""
        shown = model.generate_keys(symbolic=False, include_outputs=True)
        keys = list(model.external_keys)
        keys += [wire.key_name for wire in model._node.couts if wire.key_name not in keys]
        names: dict[str, str] = {}
        for key in keys:
            names[key] = shown.get(key, key) if key.startswith("$") else key
        return {k: n for k, n in names.items() if not n.startswith("$")}

    def _is_wire(self, key: str) -> bool:
        return self._node.find_connection(key) is not None

    def _extend(self, other: Any, canonical: bool) -> Model:
        if canonical:
            raise UnsupportedError("TrainModel: `+=` has no meaning; use add_loss and its like")
        self._check_open()
        return super()._extend(other, canonical)

    # --- losses -------------------------------------------------------------------------------
    @public
    def add_loss(
        self,
        loss_model: Model,
        reduce_steps: Iterable[Model] | None = None,
        key_name: str | None = None,
        coef: Any = None,
        **connections: Any,
    ) -> None:
        """Adds a term to the cost.

        `reduce_steps` (default: the mean) make it a scalar, `coef` weighs it, `key_name` makes it
        an output; `connections` wire the loss's inputs, at least one of them to an output.
        """
        self._check_open()
        self._check_loss(loss_model, connections)
        result = self._chain(loss_model, self._steps(reduce_steps, "Mean"), connections)
        if coef is not None:
            result = self._put("Multiply", left=result, right=_tensor(coef))
        if key_name is not None:
            self._node.rename_key(result._wire, key_name)
            self._node.expose_keys([key_name], {})
        self._losses.append((result, [], coef))

    def _check_loss(self, loss: Any, connections: dict[str, Any]) -> None:
        if not isinstance(loss, Model):
            raise SignatureError(f"add_loss: requires a model, got {type(loss).__name__}")
        node = loss._node
        outputs = node.output_keys or [wire.key_name for wire in node.couts]
        if len(outputs) != 1:
            raise KeyNotFound(f"add_loss: the loss must have one output, it has {outputs}")
        if outputs[0] in connections:
            raise KeyNotFound(f"add_loss: the loss's output '{outputs[0]}' must not be wired")
        needed = [k for k in node.input_keys if not node.is_valued(k)]
        missing = [k for k in needed if k not in connections]
        if missing:
            raise KeyNotFound(f"add_loss: '{missing[0]}' of {loss!r} must be wired", code="MTH402")
        targets = {
            c if isinstance(c, str) else getattr(c, "_wire", None) for c in connections.values()
        }
        names = {t if isinstance(t, str) else t.key_name for t in targets if t is not None}
        if not names & set(self._outputs):
            wanted = ", ".join(f"'{k}'" for k in self._outputs)
            near = "".join(suggestion(name, self._outputs) for name in sorted(names))
            raise KeyNotFound(
                f"add_loss: one input must be an output of the model ({wanted}){near}"
            )

    def _steps(self, steps: Iterable[Model] | None, default: str) -> list[Model]:
        found = list(steps or ())
        if any(not isinstance(step, Model) for step in found):
            raise SignatureError("reduce_steps: requires models")
        return found or [_new(default)]

    def _chain(self, model: Model, steps: list[Model], connections: dict[str, Any]) -> Connection:
        super()._extend(model.connect(**connections), canonical=False)
        result = self._result_of(model)
        for step in steps:
            (key,) = [wire.key_name for wire in step._node.cins] or [None]
            super()._extend(step.connect(**{key: result}), canonical=False)
            result = self._result_of(step)
        return result

    def _result_of(self, child: Model) -> Connection:
        node = child._node
        (key,) = node.output_keys or [wire.key_name for wire in node.couts]
        wire = self._node.find_connection(node.connection(key))
        return Connection._of(wire)

    def _put(self, name: str, **connections: Any) -> Connection:
        model = _new(name)
        super()._extend(model.connect(**connections), canonical=False)
        return self._result_of(model)

    # --- the rest -----------------------------------------------------------------------------
    @public
    def add_regularization(
        self,
        model: Model,
        coef: Any,
        reg_key: str | None = None,
        key_name: str | None = None,
        **connections: Any,
    ) -> None:
        """Adds `coef` times a function of parameters to the cost.

        A value of `connections` may be a compiled pattern: one term for each input whose name it
        is found in.
        """
        self._check_open()
        for wiring in self._matches(connections):
            term_model = model if wiring is connections else _copy(model)
            super()._extend(term_model.connect(**wiring), canonical=False)
            term = self._result_of(term_model)
            if key_name is not None:
                self._node.rename_key(term._wire, key_name)
            self._regularizers.append((coef, term))

    def _matches(self, connections: dict[str, Any]) -> list[dict[str, Any]]:
        patterns = {k: v for k, v in connections.items() if isinstance(v, re.Pattern)}
        if not patterns:
            return [connections]
        if len(connections) != 1:
            raise ArgumentError("add_regularization: a pattern requires a model of one input")
        ((key, pattern),) = patterns.items()
        return [{key: name} for name in self.input_keys if pattern.search(name)]

    @public
    def add_metric(
        self,
        model: Model,
        reduce_steps: Iterable[Model] | None = None,
        key_name: str | None = None,
        **connections: Any,
    ) -> None:
        """Adds an output that does not count in the cost."""
        self._check_open()
        result = self._chain(model, list(reduce_steps or ()), connections)
        if key_name is not None:
            self._node.rename_key(result._wire, key_name)
            self._node.expose_keys([key_name], {})

    @public
    def finalize(self) -> None:
        """Makes `final_cost` from the terms; `compile` calls it."""
        if self._is_final:
            return
        if not self._losses:
            raise ArgumentError("TrainModel: has no loss", hint="call add_loss(...)")
        cost = self._sum([result for result, *_ in self._losses])
        by_coefficient: dict[Any, list[Connection]] = {}
        for coef, term in self._regularizers:
            by_coefficient.setdefault(coef, []).append(term)
        for coef, terms in by_coefficient.items():
            weighted = self._put("Multiply", left=self._sum(terms), right=_tensor(coef))
            cost = self._put("Add", left=cost, right=weighted)
        buffer = _new("Buffer")
        super()._extend(buffer.connect(input=cost, output=FINAL_COST), canonical=False)
        self._node.expose_keys([FINAL_COST], {})
        self._node.set_cout([FINAL_COST], True)
        self._node.freeze()
        self._is_final = True

    def _sum(self, terms: list[Connection]) -> Connection:
        total = terms[0]
        for term in terms[1:]:
            total = self._put("Add", left=total, right=term)
        return total

    def _check_open(self) -> None:
        if self._is_final:
            raise FrozenModelError("TrainModel: is final once it was compiled")


def _new(name: str) -> Model:
    from mithril import models

    return getattr(models, name)()


def _copy(model: Model) -> Model:
    """Another of a model without arguments: what a pattern needs for its further terms."""
    if model._node.is_submodel:
        return type(model)()
    return model


def _tensor(coef: Any) -> Any:
    return coef if isinstance(coef, (Connection, Tensor)) else Tensor(coef)


__all__ = ["TrainModel"]
