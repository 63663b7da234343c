"""`TrainModel`: a model with losses, regularizers and metrics, and one cost to minimise."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any, NamedTuple, Self

from mithril import _core
from mithril.base.checks import checked_instance, checked_list, checked_str
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    FrozenModelError,
    KeyNotFound,
    SignatureError,
    UnexpectedKeyError,
    UnsupportedError,
    UnusedKeyWarning,
    WireNameError,
    shown,
    suggestion,
    warn,
)
from mithril.logical.connection import Connection, Tensor, as_arguments, connection_on, twin_of
from mithril.logical.editing import unused
from mithril.logical.handles import adopt, handle, node_of, wire_of
from mithril.logical.model import Model, note_trained
from mithril.logical.typing import Initial
from mithril.logical.values import Uses, as_value
from mithril.training import cost as costs

FINAL_COST = "final_cost"
LOSS = "loss"

Writers = dict[str, tuple[int, list[str]]]  # wire -> the submodel that makes it, what that reads


class MetricKey(NamedTuple):
    text: str
    key: str


class TrainModel(Model):
    """Wraps a model; `add_loss` says what to minimise, compile adds the output `final_cost`.

    The cost is the sum of the losses (`set_loss_combiner` chooses another way to combine them)
    plus the regularization terms.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Linear(1)(input="input", output="prediction")
    >>> train = ml.TrainModel(model)
    >>> train.add_loss(ml.SquaredError(), input="prediction", target="target")
    """

    _default_mode = "train"
    _outermost_only = True

    @public
    def __init__(self, model: Model):
        if not isinstance(model, Model) or isinstance(model, TrainModel):
            raise SignatureError(f"TrainModel: requires a model, got {type(model).__name__}")
        taken = {FINAL_COST, LOSS} & set(model.external_keys)
        if taken:
            raise WireNameError(f"TrainModel: the key '{min(taken)}' is reserved")
        super().__init__()
        model = unused(model)
        self._inner = model
        note_trained(model)
        self._losses: list[costs.Loss] = []
        self._penalties: list[costs.Penalty] = []
        self._metrics: list[MetricKey] = []
        self._combiner: Model | None = None
        self._is_final = False
        keys = self._outer_keys(model)
        super()._extend(model.connect(**keys), canonical=False)
        outputs = model.output_keys or [wire.key_name for wire in node_of(model).couts]
        self._predicted = [keys.get(key, key) for key in outputs]
        self._node.expose_keys([k for k in self._predicted if self._is_wire(k)], {})

    @staticmethod
    def _outer_keys(model: Model) -> dict[str, str]:
        """Every external key gets its own name: unnamed parameters those that they have when the
        model is compiled alone, the canonical input and outputs those that they are shown with."""
        shown_as = model.generate_keys(symbolic=False, include_outputs=True)
        compiled = dict(node_of(model).compiled_names)
        for key, name in shown_as.items():
            shown_as[key] = name if name == "input" else compiled.get(key, name)
        keys = list(model.external_keys)
        keys += [wire.key_name for wire in node_of(model).couts if wire.key_name not in keys]
        names: dict[str, str] = {}
        for key in keys:
            names[key] = shown_as.get(key, key) if key.startswith("$") else key
        return {k: n for k, n in names.items() if not n.startswith("$")}

    @property
    def model(self) -> Model:
        """The model that is trained. It compiles by itself, with the same names of parameters."""
        return self._inner

    @public
    def set_initializers(self, init: Initial = None, /, **kwargs: str | float) -> None:
        """States how parameters start, by their names here or in the model that is trained."""
        try:
            super().set_initializers(init, **kwargs)
        except KeyNotFound as error:
            try:
                self.model.set_initializers(init, **kwargs)
            except KeyNotFound:
                raise error from None

    def _is_wire(self, key: str) -> bool:
        return self._node.find_connection(key) is not None

    def _extend(self, other: Any, canonical: bool) -> Self:
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

        Parameters
        ----------
        loss_model : a model with one output; all its inputs must be wired, at least one of them
            to an output of the model or to what is computed from one, such as
            ``train.output.transpose((0, 2, 1))``
        reduce_steps : models of one input and one output that follow it; None or none: the mean.
            `[ml.Buffer()]` keeps the loss as it is
        key_name : makes the reduced and weighted term an output of that name
        coef : a number or a Tensor that weighs the term

        Raises
        ------
        KeyNotFound : a key that the loss has not, or that is not wired; a loss that no output of
            the model is in (raised by `finalize` where it is computed by operators)
        """
        self._check_open()
        steps = self._steps("add_loss", loss_model, reduce_steps, "Mean")
        self._check_loss(loss_model, connections)
        key = self._free_name("add_loss", key_name)
        if coef is not None:
            _check_coefficient("add_loss", coef)
        chain = _Chain(self)
        result, read = chain.put(loss_model, connections), []
        for step in steps:
            read.append((result, step))
            result = chain.put(step, {_cin(step): result})
        if coef is not None:
            result = chain.put(costs.new("Multiply"), {"left": result, "right": coef})
        chain.take((key, result))
        self._losses.append(costs.Loss(_text(loss_model, connections), result, read))

    def _check_loss(self, loss: Model, connections: dict[str, Any]) -> None:
        if _output(loss) in connections:
            raise KeyNotFound(f"add_loss: the loss's output '{_output(loss)}' must not be wired")
        _check_known("add_loss", loss, connections)
        self._check_wired("add_loss", loss, connections)
        if not self._reads_model(connections.values()):
            given = {self._name_of(target) for target in connections.values()} - {""}
            wanted = ", ".join(f"'{k}'" for k in self._predicted)
            near = "".join(suggestion(name, self._predicted) for name in sorted(given))
            raise KeyNotFound(
                f"add_loss: one input must be an output of the model ({wanted}){near}"
            )

    def _reads_model(self, targets: Iterable[Any]) -> bool:
        """Tells whether an output of the model is among these wires or in what computes them.
        Results of operators count: what they are made of is known only to `finalize`."""
        names, ahead = [], list(targets)
        while ahead:
            target = ahead.pop()
            request = getattr(target, "_request", None)
            if request is not None:  # of a call
                ahead += request.connections.values()
            elif isinstance(target, (list, tuple)):
                ahead += target
            elif isinstance(target, Connection) and wire_of(target).pending:
                return True
            else:
                names.append(self._name_of(target))
        if not set(names).isdisjoint(self._predicted):
            return True
        writers = self._writers()
        return any(node_of(self._inner).tag in _parts_of(name, writers) for name in names)

    def _check_wired(self, where: str, model: Model, connections: dict[str, Any]) -> None:
        missing = [k for k in _open_inputs(model) if k not in connections]
        if missing:
            raise KeyNotFound(f"{where}: '{missing[0]}' of {model!r} must be wired", code="MTH402")

    def _name_of(self, target: Any) -> str:
        """The name in this model of what a key is wired to; "" if it is no wire of it."""
        if isinstance(target, str):
            return target
        if not isinstance(target, Connection):
            return ""
        wire = self._node.find_connection(wire_of(target)) if wire_of(target).attached else None
        return wire_of(target).key_name if wire is None else wire.key_name

    def _steps(self, where: str, first: Any, steps: Any, default: str) -> list[Model]:
        """The models that follow `first`, all of them checked."""
        checked_instance(where, first, Model, "a model")
        found = checked_list(f"{where}: reduce_steps", steps, "a list of models", optional=True)
        for step in found:
            _cin(checked_instance(f"{where}: reduce_steps", step, Model, "models"))
        _check_distinct(where, [self, first, *found])
        for model in (first, *found):
            _output(model)
        return found or [costs.new(default)]

    def _free_name(self, where: str, name: Any) -> str | None:
        if name is None:
            return None
        checked_str(f"{where}: key_name", name)
        if name in (FINAL_COST, LOSS):
            raise WireNameError(f"{where}: the key '{name}' is reserved")
        if self._is_wire(name):
            raise WireNameError(f"{where}: the model has a wire named {name!r} already")
        return name

    @public
    def set_loss_combiner(self, loss_combiner: Model) -> None:
        """Sets the model that makes one number of several losses: it has ``input``, a vector that
        holds all elements of all losses, and ``output``. Default: the sum."""
        self._check_open()
        checked_instance("set_loss_combiner", loss_combiner, Model, "a model")
        node = node_of(loss_combiner)
        outputs = node.output_keys or [wire.key_name for wire in node.couts]
        if "input" not in node.input_keys or "output" not in outputs:
            raise KeyNotFound("set_loss_combiner: requires a model with 'input' and 'output'")
        others = [k for k in _open_inputs(loss_combiner) if k != "input"]
        if others:
            raise KeyNotFound(f"set_loss_combiner: '{others[0]}' would stay open", code="MTH402")
        _check_distinct("set_loss_combiner", [self, loss_combiner])
        self._combiner = loss_combiner

    # --- regularization -----------------------------------------------------------------------
    @public
    def add_regularization(
        self,
        model: Model,
        coef: Any,
        reg_key: str | Connection | None = None,
        key_name: str | None = None,
        **connections: Any,
    ) -> None:
        """Adds `coef` times a function of parameters to the cost.

        Each term is divided by the number of elements that the steps `Mean`, `Max` and `Min` of
        the losses reduce (of those losses that depend on the parameter; for several the geometric
        mean of the numbers), so that `coef` means the same for sums and for means over a batch.

        Parameters
        ----------
        model : a model with one output; exactly its open inputs must be wired
        coef : a number or a Tensor
        reg_key : the key of `model` that the parameter is wired to; default: its canonical input
        key_name : makes the term, neither weighted nor divided, an output
        connections : key of `model` -> name or connection; or, where it has one input, a compiled
            pattern: one term for each input in whose name it is found
        """
        self._check_open()
        self._steps("add_regularization", model, None, "Buffer")
        _check_coefficient("add_regularization", coef)
        self._check_exactly_wired(model, connections)
        key = _regularized(model, reg_key)
        wirings = self._matches(connections)
        name = self._free_name("add_regularization", key_name)
        if not wirings:
            return
        models = [model, *(Model.clone(model) for _ in wirings[1:])]
        chain, made, labels = _Chain(self), [], []
        for i, (term, wiring) in enumerate(zip(models, wirings, strict=False)):
            target = self._check_differentiable(wiring, key)
            result = chain.put(term, wiring)
            made.append(costs.Penalty(_text(model, wiring), coef, result, target))
            labels.append(name if name is None or len(wirings) == 1 else f"{name}_{i}")
        chain.take(*zip(labels, (penalty.result for penalty in made), strict=True))
        self._penalties += made

    def _check_exactly_wired(self, model: Model, connections: dict[str, Any]) -> None:
        self._check_wired("add_regularization", model, connections)
        wanted = _open_inputs(model)
        extra = [k for k in connections if k not in wanted]
        if extra:
            near = suggestion(extra[0], wanted)
            raise KeyNotFound(f"add_regularization: {model!r} has no open input '{extra[0]}'{near}")

    def _matches(self, connections: dict[str, Any]) -> list[dict[str, Any]]:
        patterns = {k: v for k, v in connections.items() if isinstance(v, re.Pattern)}
        if not patterns:
            return [connections]
        if len(connections) != 1:
            raise ArgumentError("add_regularization: a pattern requires a model of one input")
        ((key, pattern),) = patterns.items()
        if not isinstance(pattern.pattern, str):
            raise SignatureError(f"add_regularization: the pattern of '{key}' must be of text")
        names = [k for k in self.input_keys if not self._node.is_valued(k)]
        hits = [{key: name} for name in names if pattern.search(name)]
        if not hits:
            known = ", ".join(f"'{name}'" for name in names)
            warn(
                f"add_regularization: {pattern.pattern!r} is found in no input ({known})",
                UnusedKeyWarning,
            )
        return hits

    def _check_differentiable(self, wiring: dict[str, Any], key: str) -> str:
        """The input that is regularized; one of the wired ones must be trained."""
        names = {k: self._name_of(target) for k, target in wiring.items()}
        inputs = [n for n in names.values() if n in self.input_keys]
        if not any(self._node.differentiable(n) for n in inputs):
            told = ", ".join(f"'{n}'" for n in names.values())
            raise KeyNotFound(
                f"add_regularization: one of {told} must be a differentiable input of the model",
                hint="model.set_differentiability({name: True}) makes it one",
            )
        return names[key]

    # --- the rest -----------------------------------------------------------------------------
    @public
    def add_metric(
        self,
        model: Model,
        reduce_steps: Iterable[Model] | None = None,
        key_name: str | None = None,
        **connections: Any,
    ) -> None:
        """Adds an output that does not count in the cost; without `key_name` its name is
        ``metric_0``, ``metric_1`` …

        Without `reduce_steps` it is what the model gives.
        """
        self._check_open()
        steps = self._steps("add_metric", model, reduce_steps, "Buffer")
        wanted = f"metric_{len(self._metrics)}" if key_name is None else key_name
        key = self._free_name("add_metric", wanted)
        chain = _Chain(self)
        result = chain.put(model, connections)
        for step in steps:
            result = chain.put(step, {_cin(step): result})
        chain.take((key, result))
        self._metrics.append(MetricKey(_text(model, connections), wanted))

    @property
    def loss_keys(self) -> list[str]:
        """The wires of the losses, reduced and weighted."""
        return [wire_of(loss.result).key_name for loss in self._losses]

    @property
    def regularization_keys(self) -> list[str]:
        """The wires of the regularization terms, neither weighted nor divided."""
        return [wire_of(penalty.result).key_name for penalty in self._penalties]

    @property
    def metric_keys(self) -> list[str]:
        return [metric.key for metric in self._metrics]

    @public
    def finalize(self) -> None:
        """Makes `final_cost` from the terms; `compile` calls it. Nothing can be added after it."""
        if self._is_final:
            return
        if not self._losses:
            raise ArgumentError("TrainModel: has no loss", hint="call add_loss(...)")
        writers = self._writers()
        for loss in self._losses:
            if node_of(self._inner).tag not in _parts_of(wire_of(loss.result).key_name, writers):
                wanted = ", ".join(f"'{k}'" for k in self._predicted)
                raise KeyNotFound(f"add_loss: no output of the model ({wanted}) is in {loss.text}")
        chain = _Chain(self)
        cost = costs.assemble(self._node, self._losses, self._penalties, self._combiner, chain)
        chain.take((FINAL_COST, chain.put(costs.new("Buffer"), {"input": cost})))
        self._node.set_cout([FINAL_COST], True)
        self._node.freeze()
        self._is_final = True

    # --- editing ------------------------------------------------------------------------------
    @public
    def remove(self, *submodels: Model | str) -> None:
        """`Model.remove`; the trained model and what a term of the cost or a metric is made of
        stay (`UnsupportedError`)."""
        self._check_editable("remove", submodels)
        super().remove(*submodels)

    @public
    def replace(
        self, submodel: Model | str, new: Model, keys: Mapping[str, str | None] | None = None
    ) -> Model:
        """`Model.replace`; the trained model and what a term of the cost or a metric is made of
        stay (`UnsupportedError`)."""
        self._check_editable("replace", (submodel,))
        return super().replace(submodel, new, keys)

    def _check_editable(self, where: str, submodels: Iterable[Model | str]) -> None:
        for part in self._node.submodels:
            handle(part)  # which gives it a tag of its own
        for submodel in submodels:
            tag = self._part(where, submodel).tag
            if tag == node_of(self._inner).tag:
                kept = "is the model that is trained"
            elif term := next((t for t, tags in self._parts_of_terms() if tag in tags), ""):
                kept = f"is a part of {term}"
            else:
                continue
            raise UnsupportedError(
                f"{where}: {submodel!r} {kept}",
                hint="edit inside it, or make another TrainModel of the model",
            )

    def _parts_of_terms(self) -> Iterable[tuple[str, set[int]]]:
        """Each term and metric with the submodels that compute it from the trained model."""
        writers = self._writers()
        terms = [(loss.text, wire_of(loss.result)) for loss in self._losses]
        terms += [(term.text, wire_of(term.result)) for term in self._penalties]
        terms += [(m.text, self._node.find_connection(m.key)) for m in self._metrics]
        for text_of_term, result in terms:
            yield text_of_term, _parts_of(result.key_name, writers)

    def _writers(self) -> Writers:
        """The submodel that computes each wire, and the wires that it reads; those that the trained
        model reads are its own matter."""
        inner = node_of(self._inner).tag
        writers: Writers = {}
        for part in self._node.submodels:
            wiring = self._node.wiring(part)
            read = [wire.key_name for _, wire in wiring] if part.tag != inner else []
            made = [wire.key_name for key, wire in wiring if key in part.output_keys]
            writers |= dict.fromkeys(made, (part.tag, read))
        return writers

    def _take_over(self, original: TrainModel) -> None:
        parts = {at.tag: number for number, at in enumerate(node_of(original).submodels)}
        own = self._node.submodels

        def wire(of: Connection) -> Connection:
            """The wire here that has the place of one there."""
            found = node_of(original).find_connection(wire_of(of))
            return connection_on(self._node.connection(found.key_name))

        def part(of: Model) -> Model:
            return adopt(self, handle(own[parts[node_of(of).tag]]))

        self._inner = part(original._inner)
        note_trained(self._inner)
        self._losses = [
            loss._replace(
                result=wire(loss.result),
                steps=[(wire(read), part(step)) for read, step in loss.steps],
            )
            for loss in original._losses
        ]
        coefs = {id(term.coef): _copy_of(term.coef, wire) for term in original._penalties}
        self._penalties = [
            term._replace(coef=coefs[id(term.coef)], result=wire(term.result))
            for term in original._penalties
        ]
        self._metrics, self._predicted = list(original._metrics), list(original._predicted)
        combiner = original._combiner
        self._combiner = None if combiner is None else combiner.clone()

    def _check_open(self) -> None:
        if self._is_final:
            raise FrozenModelError("TrainModel: is final once it was compiled")

    @public
    def summary(self, *args: Any, **kwargs: Any) -> None:
        """`Model.summary`, followed by the losses, regularization terms and metrics."""
        super().summary(*args, **kwargs)
        rows: dict[str, list[tuple[str, str]]] = {
            "losses": [(x.text, wire_of(x.result).key_name) for x in self._losses],
            "regularization": [
                (f"{_shown_coefficient(x.coef)} * {x.text}", wire_of(x.result).key_name)
                for x in self._penalties
            ],
            "metrics": [(x.text, x.key) for x in self._metrics],
        }
        for title, entries in rows.items():
            for term, key in entries:
                print(f"{title}: {term} -> {key}")


def _copy_of(coef: Any, wire: Callable[[Connection], Connection]) -> Any:
    """A coefficient for another model: finalizing takes tensors and keys for good."""
    if isinstance(coef, Tensor):
        twin = copy(coef)
        twin._used = False
        return twin
    if not isinstance(coef, Connection):
        return coef
    return wire(coef) if wire_of(coef).attached else twin_of(coef)


class _Chain:
    """Calls that become part of a model all at once, or not at all."""

    def __init__(self, owner: TrainModel):
        self._owner = owner
        self._made: list[Model] = []
        self._used = Uses()

    def put(self, model: Model, connections: dict[str, Any]) -> Connection:
        """The one result of a model on these arguments."""
        arguments = as_arguments(model, connections, self._used)
        (wire, *_) = _core.ModelNode.call(node_of(model), arguments, False)
        self._made.append(model)
        return connection_on(wire)

    def take(self, *results: tuple[str | None, Connection]) -> None:
        """Takes in the connections and all that they need; named ones become outputs."""
        with self._used:
            node_of(self._owner).take([(key or "", wire_of(wire)) for key, wire in results])
        for model in self._made:
            adopt(self._owner, model)


def _parts_of(wire: str, writers: Writers) -> set[int]:
    """The submodels that compute a wire."""
    before, ahead = {wire}, [wire]
    while ahead:
        read = writers.get(ahead.pop(), (0, []))[1]
        ahead += [name for name in read if name not in before]
        before.update(read)
    return {writers[name][0] for name in before if name in writers}


def _output(model: Model) -> str:
    outputs = node_of(model).output_keys or [wire.key_name for wire in node_of(model).couts]
    if len(outputs) != 1:
        told = ", ".join(f"'{key}'" for key in outputs) or "none"
        raise KeyNotFound(f"{model!r}: must have one output, it has {told}")
    key: str = outputs[0]
    return key


def _cin(model: Model) -> str:
    """The key that a reduce step takes its operand by."""
    keys = [wire.key_name for wire in node_of(model).cins]
    if len(keys) != 1:
        told = ", ".join(f"'{key}'" for key in keys) or "none"
        raise KeyNotFound(f"{model!r}: must have one canonical input, it has {told}")
    others = [k for k in _open_inputs(model) if k != keys[0]]
    if others:
        raise KeyNotFound(f"reduce_steps: '{others[0]}' of {model!r} would stay open")
    key: str = keys[0]
    return key


def _regularized(model: Model, reg_key: Any) -> str:
    """The key of a regularizer that the parameter is wired to."""
    if isinstance(reg_key, Connection):
        wire = (
            node_of(model).find_connection(wire_of(reg_key)) if wire_of(reg_key).attached else None
        )
        reg_key = wire_of(reg_key).key_name if wire is None else wire.key_name
    if reg_key is None:
        cins = [wire.key_name for wire in node_of(model).cins]
        if len(cins) != 1:
            raise KeyNotFound(
                f"add_regularization: {model!r} has {len(cins)} canonical inputs",
                hint="say which one is regularized by reg_key=",
            )
        reg_key = cins[0]
    if not isinstance(reg_key, str):
        raise SignatureError(f"reg_key: requires a key of the model, got {shown(reg_key)}")
    wanted = _open_inputs(model)
    if reg_key not in wanted:
        raise KeyNotFound(
            f"reg_key: {model!r} has no open input {reg_key!r}{suggestion(reg_key, wanted)}"
        )
    return reg_key


def _open_inputs(model: Model) -> list[str]:
    return [k for k in node_of(model).input_keys if not node_of(model).is_valued(k)]


def _check_known(where: str, model: Model, connections: dict[str, Any]) -> None:
    known = node_of(model).input_keys
    unknown = [key for key in connections if key not in known]
    if unknown:
        wanted = ", ".join(f"'{key}'" for key in _open_inputs(model))
        near = suggestion(unknown[0], known)
        raise UnexpectedKeyError(
            f"{where}: {model!r} has no key '{unknown[0]}'{near}",
            hint=f"its keys are {wanted}" if wanted else "",
        )


def _check_distinct(where: str, models: list[Model]) -> None:
    for i, model in enumerate(models):
        if any(other is model for other in models[:i]):
            raise ArgumentError(f"{where}: one model can be used once only, got {model!r} twice")


def _check_coefficient(where: str, coef: Any) -> None:
    if isinstance(coef, (Tensor, Connection)):
        return
    if isinstance(coef, bool) or not isinstance(coef, (int, float)):
        raise SignatureError(f"{where}: coef requires a number or a Tensor, got {shown(coef)}")
    as_value(coef, f"{where}: coef")
    if not math.isfinite(coef):
        raise ArgumentError(f"{where}: coef requires a finite number, got {coef}")


def _text(model: Model, connections: dict[str, Any]) -> str:
    def name(value: Any) -> str:
        return value if isinstance(value, str) else getattr(value, "key", "") or "..."

    given = ", ".join(f"{key}={name(value)}" for key, value in connections.items())
    return f"{type(model).__name__}({given})"


def _shown_coefficient(coef: Any) -> str:
    return str(coef) if isinstance(coef, (int, float)) else type(coef).__name__


__all__ = ["TrainModel"]
