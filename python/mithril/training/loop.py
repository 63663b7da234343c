"""A loop of training for a compiled model: `train_model`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mithril.base.checks import checked_integer, checked_list, checked_mapping
from mithril.base.numpy import np
from mithril.base.public import public
from mithril.errors import ArgumentError, KeyNotFound, SignatureError, shown, suggestion
from mithril.execution.interface import CompileTarget
from mithril.logical.model import Model
from mithril.models import CrossEntropy, SquaredError
from mithril.optim import Adam, Optimizer
from mithril.optim.loss_scale import default_scale
from mithril.optim.optimizers import check_slots, check_state, refuse_foreign
from mithril.physical import PhysicalModel
from mithril.physical.compilation import compilation_of
from mithril.physical.compile import compile as compile_model
from mithril.physical.gradients import FINAL_COST
from mithril.physical.missing import other_naming
from mithril.physical.parameters import transfer
from mithril.physical.parting import kept_states
from mithril.physical.program_keys import RANDOM_KEY
from mithril.training.batches import Batch, batches_of

__all__ = ["Epoch", "train_model"]

Metric = Callable[[dict[str, Any], dict[str, Any]], Any]


@dataclass(frozen=True)
class Epoch:
    """One pass over the data, as callbacks get it.

    Attributes
    ----------
    number : from 1
    loss : the mean over the samples, each as it was before the step of its batch
    metrics : by name, likewise
    params, opt_state, state : after the last step
    """

    number: int
    loss: float
    metrics: dict[str, float]
    params: dict[str, Any] = field(repr=False)
    opt_state: dict[str, Any] = field(repr=False)
    state: dict[str, Any] = field(repr=False)


@public
def train_model(
    model: PhysicalModel,
    backend: CompileTarget,
    training_data: Iterable[Batch],
    *,
    optimizer: Optimizer | None = None,
    loss: Model | None = None,
    target: str = "target",
    epochs: int = 1,
    metrics: Mapping[str, Metric] | None = None,
    callbacks: Iterable[Callable[[Epoch], Any]] = (),
    params: Mapping[str, Any] | None = None,
    opt_state: Mapping[str, Any] | None = None,
    state: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Trains a compiled model, and returns its parameters; of one compiled with ``mode="train"``
    they include the running statistics, as the model takes them in ``mode="eval"``.

    Parameters
    ----------
    model : of a `TrainModel`, whose cost is minimised; or of a plain model with one output, which
        `loss` compares to the data called `target`
    backend : the one that the model was compiled for, or one made with the same arguments
    training_data : batches: dictionaries of data, or pairs of the model's only input and the
        target, which of a `TrainModel` is what its cost reads besides; something that can be gone
        through again, such as a list, for the first batch says which shapes parameters have
    optimizer : of `mithril.optim`; None: that of the model, else ``Adam(lr=1e-3)``
    loss : a model with `input`, `target` and one output, a scalar, which is compiled for
        the backend; None: ``CrossEntropy(reduction="mean")`` of logits and class numbers where
        targets are integers, else ``SquaredError(reduction="mean")``
    metrics : name -> function of the outputs and the data of a batch that gives a number
    callbacks : are called with an `Epoch` after each; one that returns True ends the training
    params : to begin with, as this function or an `Epoch` gave them; None: fresh ones from `seed`
    opt_state : of the optimizer, to go on with; None: that of its `init`
    state : of the model, to go on with; None: what `params` has of it, else that of
        ``initial_state(seed)``

    Raises
    ------
    ArgumentError : no batches, or several outputs and no cost, or another backend
    KeyNotFound : a batch lacks data or the target, or there is not all of params or a state

    >>> import mithril as ml, numpy as np
    >>> from mithril.training import train_model
    >>> x = np.random.default_rng(0).normal(size=(64, 2)).astype("f4")
    >>> batches = [(x[i : i + 16], x[i : i + 16] @ [[2.0], [-1.0]]) for i in range(0, 64, 16)]
    >>> model = ml.Model()
    >>> model |= ml.Linear(1)(input="input", output="output")
    >>> backend = ml.NumpyBackend()
    >>> pm = ml.compile(model, backend, data_keys={"input"}, shapes={"input": [None, 2]})
    >>> sgd = ml.optim.SGD(lr=0.2)
    >>> train_model(pm, backend, batches, optimizer=sgd, epochs=20)["weight"].round(2)
    array([[ 2., -1.]], dtype=float32)

    A training goes on from what the last `Epoch` held:

    >>> seen = []
    >>> options = {"optimizer": ml.optim.Adam(lr=0.1), "callbacks": [seen.append]}
    >>> params = train_model(pm, backend, batches, **options)
    >>> params = train_model(pm, backend, batches, params=params, opt_state=seen[-1].opt_state,
    ...                      **options)
    >>> seen[-1].opt_state["step"]
    8
    """
    _check(model, backend, training_data, optimizer, epochs)
    loop = _Loop(model, optimizer, loss, target, dict(checked_mapping("metrics", metrics)))
    checked_integer("train_model: seed", seed)
    calls = checked_list("train_model: callbacks", callbacks, "functions")
    loop.begin(next(iter(batches_of(model, training_data, target)), None), params, state, seed)
    loop.go_on_from(opt_state)
    for number in range(1, epochs + 1):
        epoch = loop.run(number, batches_of(model, training_data, target))
        answers = [call(epoch) for call in calls]  # all of them are called
        if any(answer is True for answer in answers):
            break
    return loop.trained()


def _check(model: Any, backend: Any, data: Any, optimizer: Any, epochs: Any) -> None:
    if not isinstance(model, PhysicalModel):
        raise SignatureError(
            f"train_model: requires a compiled model, got {shown(model)}",
            hint="give what ml.compile returns",
        )
    _check_backend(model.backend, backend)
    if optimizer is not None:
        refuse_foreign("train_model: optimizer", optimizer)
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
        raise ArgumentError(f"train_model: epochs requires at least 1, got {shown(epochs)}")
    if not isinstance(data, Iterable) or isinstance(data, Mapping | str):
        raise SignatureError(f"train_model: training_data requires batches, got {shown(data)}")
    if isinstance(data, Iterator):
        raise ArgumentError(
            "train_model: training_data can be gone through only once, and its first batch says"
            " which shapes parameters have",
            hint="give a list, or an object whose __iter__ begins anew",
        )


def _check_backend(own: Any, given: Any) -> None:
    """Raises unless the backend is the model's, or like it."""
    if given is own:
        return
    text = f"train_model: the model was compiled for {own!r}, got {shown(given)}"
    hint = "give pm.backend, the object that it was compiled for"
    if type(given) is not type(own):
        raise ArgumentError(text, hint=hint)
    one, other = _options_of(own), _options_of(given)
    differing = [n for n in one if one[n] != other.get(n)]
    if differing:
        own_ones, given_ones = (
            ", ".join(f"{n}={x.get(n)}" for n in differing) for x in (one, other)
        )
        raise ArgumentError(f"{text}: the model's has {own_ones}, this one {given_ones}", hint=hint)


def _options_of(backend: Any) -> dict[str, str]:
    """Returns the arguments that a backend was made with, and where it is now, as text."""
    args, options = backend.constructor_arguments
    made_with = inspect.signature(type(backend)).bind(*args, **options)
    made_with.apply_defaults()
    texts = {name: str(value) for name, value in made_with.arguments.items()}
    return {**texts, "device": str(backend.get_device()), "dtype": str(backend.default_dtype)}


def _require(
    what: str, names: Iterable[str], given: Mapping[str, Any], model: PhysicalModel
) -> None:
    missing = [name for name in names if name not in given]
    if missing:
        naming = other_naming(compilation_of(model), missing, given)
        near = "" if naming else suggestion(missing[0], given)
        raise KeyNotFound(
            f"train_model: {what} must have '{missing[0]}'{near}", code="MTH402", hint=naming
        )


class _Loop:
    """Keeps what changes from batch to batch."""

    def __init__(
        self, model: PhysicalModel, optimizer: Any, loss: Any, target: str, metrics: dict
    ) -> None:
        self._model = model
        self._optimizer = optimizer or compilation_of(model).options.optimizer or Adam(lr=1e-3)
        self._has_cost = FINAL_COST in model.output_keys
        self._target = target
        self._metrics = metrics
        self._scaling = compilation_of(model).options.loss_scale or default_scale(model.backend)
        self._loss = loss
        if self._has_cost and loss is not None:
            raise ArgumentError("train_model: the model has a cost of its own beside loss=")
        if not self._has_cost and len(model.output_keys) != 1:
            raise ArgumentError(
                f"train_model: a loss requires one output, got {list(model.output_keys)}",
                hint="compile an ml.TrainModel, which says what to minimise",
            )

    def begin(self, first: dict[str, Any] | None, params: Any, state: Any, seed: int) -> None:
        """Makes parameters and states, for shapes as the first batch has them."""
        if first is None:
            raise ArgumentError("train_model: training_data has no batches")
        model = self._model
        given = dict(checked_mapping("train_model: params", params))
        kept = {key: given.pop(key) for key in model.state_keys if key in given}
        self._params = {name: self._own(value) for name, value in given.items()}
        if not given:
            self._params = dict(model.init(self._data(first), seed))
        _require("params", model.param_keys, self._params, model)
        self._state = self._first_state(kept, checked_mapping("train_model: state", state), seed)
        self._cost = None if self._has_cost else self._compiled_loss(first)

    def _first_state(self, kept: dict[str, Any], state: Any, seed: int) -> dict[str, Any]:
        """Joins states of `params` and `state`; keys of random numbers may be missing in both."""
        model = self._model
        twice = [name for name in kept if name in state and kept[name] is not state[name]]
        if twice:
            raise ArgumentError(f"train_model: '{twice[0]}' is in params and in state")
        unknown = [name for name in state if name not in model.state_keys]
        if unknown:
            near = suggestion(unknown[0], model.state_keys)
            raise KeyNotFound(f"train_model: state: no state named {shown(unknown[0])}{near}")
        given = {**kept, **state}
        if given:
            _require("state", kept_states(compilation_of(model)), given, model)
        if len(given) == len(model.state_keys):
            return given
        return {**model.initial_state(seed=seed), **given}

    def go_on_from(self, opt_state: Any) -> None:
        """Takes the optimizer's state, or makes its first one."""
        names = self._model.trainable_keys
        if opt_state is None:
            self._opt_state = self._optimizer.init({name: self._params[name] for name in names})
            return
        check_state("train_model: opt_state", opt_state, self._optimizer, names)
        backend = self._model.backend
        slots = {slot: transfer(opt_state[slot], backend) for slot in self._optimizer.slots}
        check_slots(
            "train_model: opt_state", slots, self._optimizer, {n: self._params[n] for n in names}
        )
        self._opt_state = {**opt_state, **slots}

    def _own(self, value: Any) -> Any:
        backend = self._model.backend
        return value if backend._is_native(value) else backend.array(value)

    def _compiled_loss(self, batch: dict[str, Any]) -> PhysicalModel:
        loss = self._loss
        if loss is None:
            kind = np.asarray(self._of_batch(batch, self._target)).dtype.kind
            loss = CrossEntropy if kind in "iub" else SquaredError
            loss = loss(reduction="mean")
        if not isinstance(loss, Model):
            raise SignatureError(f"train_model: loss requires a model, got {shown(loss)}")
        whole = Model()
        whole |= loss(input="input", target="target", output="loss")
        return compile_model(whole, self._model.backend, data_keys={"input", "target"})

    def _of_batch(self, batch: dict[str, Any], name: str) -> Any:
        if name not in batch:
            near = suggestion(name, batch)
            raise KeyNotFound(f"train_model: a batch has no '{name}'{near}")
        return batch[name]

    def _data(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Picks what the model reads."""
        return {name: self._of_batch(batch, name) for name in self._model.data_keys}

    def run(self, number: int, batches: Iterator[dict[str, Any]]) -> Epoch:
        samples, sums = 0, dict.fromkeys(["", *self._metrics], 0.0)
        for batch in batches:
            data = self._data(batch)
            loss, outputs = self._step(data, batch)
            count = next((len(x) for x in data.values() if np.ndim(x)), 1)
            values = {name: metric(outputs, batch) for name, metric in self._metrics.items()}
            for name, value in {"": loss, **values}.items():
                sums[name] += count * float(value)
            samples += count
        means = {name: total / max(samples, 1) for name, total in sums.items()}
        return Epoch(
            number, means.pop(""), means, dict(self._params), self._opt_state, dict(self._state)
        )

    def _step(self, data: dict[str, Any], batch: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        losses: list[Any] = []
        scale = self._scaling.state_of(self._opt_state)["scale"] if self._scaling else 1.0
        output = self._model.output_keys[0]  # of a plain model

        def slope(outputs: dict[str, Any]) -> dict[str, Any]:
            assert self._cost is not None
            read = {"input": outputs[output], "target": self._of_batch(batch, self._target)}
            value, gradients = self._cost.evaluate({}, read, output_gradients=True, wrt=["input"])
            losses.append(value["loss"])
            return {output: gradients["input"] * scale}

        given: Any = slope
        if self._cost is None:
            given = True if self._scaling is None else {FINAL_COST: scale}
        state = self._state or None
        result: Any = self._model.evaluate(self._params, data, output_gradients=given, state=state)
        params, self._opt_state = self._moved(result.gradients)
        self._params = dict(params)
        self._state = dict(result.state) if self._state else {}
        value: Any = losses[0] if losses else result.outputs[FINAL_COST]
        return float(self._model.backend.to_numpy(value)), result.outputs

    def _moved(self, gradients: dict[str, Any]) -> tuple[Any, Any]:
        known = self._params, gradients, self._opt_state
        if self._scaling is None:
            updated: tuple[Any, Any] = self._optimizer.update(*known)
            return updated
        scaled: tuple[Any, Any] = self._scaling.update(self._optimizer, *known, self._model.backend)
        return scaled

    def trained(self) -> dict[str, Any]:
        """The parameters, with what normalization has seen."""
        statistics = {k: v for k, v in self._state.items() if k != RANDOM_KEY}
        return {**self._params, **statistics}
