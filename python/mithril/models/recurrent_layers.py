"""Recurrent layers over whole sequences: a `Scan` per layer and direction.

The products with the input stand outside of the loop, for all places at once; a step has those
with the state. Keys, gates and biases are those of PyTorch's layers, so their weights load as they
are.
"""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.checks import checked_flag, checked_size
from mithril.base.peer_names import recurrent_order_here
from mithril.base.public import public
from mithril.errors import ArgumentError, OptionError, shown
from mithril.logical.connection import Connection, IOKey
from mithril.logical.model import Model
from mithril.logical.typing import Initial
from mithril.models._composite import Composite
from mithril.models.attention import _probability
from mithril.types import TBD


class _Recurrent(Composite):
    """The base of recurrent layers: directions, stacked layers, masks and states."""

    _gates = 1
    _states: tuple[str, ...] = ("hidden",)
    _tensors = ("input",)

    def _make(
        self, name: str | None, arguments: dict[str, Any], keys: dict[str, Any], init: Initial
    ) -> None:
        self._check(arguments)
        wires = dict.fromkeys(("input", *self._optional_keys(), *self._weight_keys()), TBD)
        wires |= self._given(wires, keys)
        with self._compose(name, {**arguments, "init": init}, **wires) as connections:
            self._build(connections)
            self.set_cin("input")
            self.set_cout("output")
            self.expose_keys("output", *(f"final_{state}" for state in self._states))

    def _check(self, arguments: dict[str, Any]) -> None:
        what = type(self).__name__
        self.hidden_size = checked_size(f"{what}: hidden_size", arguments["hidden_size"])
        self._layers = checked_size(f"{what}: num_layers", arguments["num_layers"])
        for option in ("return_sequences", "bidirectional", "use_bias", "use_mask", "use_lengths",
                       "use_initial_state"):  # fmt: skip
            hint = recurrent_order_here(what, arguments)
            checked_flag(f"{what}: {option}", arguments[option], hint)
        self._options = arguments
        self._sides = ("", "_reverse") if arguments["bidirectional"] else ("",)
        try:
            self._dropout = _probability(arguments["dropout"])
        except ArgumentError:
            given = shown(arguments["dropout"])
            raise ArgumentError(
                f"{what}: dropout requires a probability below 1, got {given}"
            ) from None
        if self._dropout and self._layers == 1:
            raise OptionError(
                f"{what}: dropout is between layers, and there is one",
                hint="give num_layers, or put a Dropout() behind the layer",
            )
        if arguments["use_mask"] and arguments["use_lengths"]:
            raise OptionError(f"{what}: use_mask and use_lengths say the same", hint="give one")

    def _optional_keys(self) -> list[str]:
        keys = [key for key in ("mask", "lengths") if self._options[f"use_{key}"]]
        if self._options["use_initial_state"]:
            keys += [f"initial_{state}" for state in self._states]
        return keys

    def _weight_keys(self) -> list[str]:
        kinds = ["weight_ih", "weight_hh"]
        kinds += ["bias_ih", "bias_hh"] if self._options["use_bias"] else []
        places = [f"l{i}{side}" for i in range(self._layers) for side in self._sides]
        return [f"{kind}_{place}" for place in places for kind in kinds]

    def _given(self, known: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
        for key, value in keys.items():
            if value is not TBD and key not in known:
                option = "use_initial_state" if key.startswith("initial") else f"use_{key}"
                raise OptionError(
                    f"{type(self).__name__}: has no key {key!r}", hint=f"give {option}=True"
                )
        return {key: value for key, value in keys.items() if key in known}

    # --- composing ----------------------------------------------------------------------------
    def _build(self, keys: dict[str, Connection]) -> None:
        input: Any = keys["input"]
        places: Any = models.SwapAxes(axis1=0, axis2=1)(input)
        goes_on = self._goes_on(keys, input)
        finals: list[dict[str, Any]] = []
        for layer in range(self._layers):
            if layer and self._dropout:
                places = models.Dropout(self._dropout)(places)
            sides = []
            for side in self._sides:
                start = self._start(keys, len(finals), input)
                kept, final = self._run(keys, f"l{layer}{side}", places, start, goes_on)
                sides.append(kept)
                finals.append(final)
            places = sides[0] if len(sides) == 1 else models.Concat(axis=-1)(sides)
        for state in self._states:
            all_of_them = models.Stack(axis=0)([final[state] for final in finals])
            self |= models.Buffer().connect(input=all_of_them, output=f"final_{state}")
        self._end(places, finals[-len(self._sides) :])
        self._state_facts(keys)

    def _state_facts(self, keys: dict[str, Connection]) -> None:
        size = len(self._sides) * self._layers
        shapes: dict[str, list] = {"input": ["N", "T", None], "mask": ["N", "T"], "lengths": ["N"]}
        shapes |= {f"initial_{state}": [size, "N", self.hidden_size] for state in self._states}
        self.set_shapes({key: shape for key, shape in shapes.items() if key in keys})
        types = {"mask": models.Tensor[bool], "lengths": models.Tensor[int]}
        self.set_types({key: kind for key, kind in types.items() if key in keys})

    def _goes_on(self, keys: dict[str, Any], input: Any) -> Any:
        """bool [T, N, 1], true where a sequence has a place; None: everywhere."""
        if "mask" in keys:
            return models.SwapAxes(axis1=0, axis2=1)(keys["mask"])[..., None]
        if "lengths" in keys:
            place = models.Arange()(start=0, stop=input.shape[1], step=1)
            return (place[:, None] < keys["lengths"][None, :])[..., None]
        return None

    def _start(self, keys: dict[str, Any], at: int, input: Any) -> dict[str, Any]:
        """[N, h] for each state, of the scan number `at`."""
        if self._options["use_initial_state"]:
            return {state: keys[f"initial_{state}"][at] for state in self._states}
        return {state: self._zeros(input) for state in self._states}

    def _zeros(self, input: Any) -> Any:
        shape = models.ToTuple(n=2)(input1=input.shape[0], input2=self.hidden_size)
        return models.Zeros()(shape=shape)

    def _run(
        self, keys: dict[str, Any], place: str, input: Any, start: dict[str, Any], goes_on: Any
    ) -> tuple[Any, dict[str, Any]]:
        """One layer in one direction: its outputs [T, N, h] and its last states."""
        wires = {"weight": keys[f"weight_ih_{place}"]}
        recurrent = {"weight": keys[f"weight_hh_{place}"]}
        if self._options["use_bias"]:
            wires["bias"] = keys[f"bias_ih_{place}"]
            recurrent["bias"] = keys[f"bias_hh_{place}"]
        width = self._gates * self.hidden_size
        linear = models.Linear(width, use_bias=self._options["use_bias"])
        outside = Connection()
        self |= linear.connect(input=input, output=outside, **wires)
        step = self._step(goes_on is not None)
        states = {state: f"next_{state}" for state in self._states}
        sequences = ["x"] if goes_on is None else ["x", "goes_on"]
        scan = models.Scan(
            step,
            carry=states,
            xs=sequences,
            ys={"next_hidden" if goes_on is None else "shown": "kept"},
            reverse=place.endswith("_reverse"),
        )
        results: dict[str, Any] = {key: Connection() for key in ("kept", *states.values())}
        given: dict[str, Any] = {"x": outside, **start, **recurrent, **results}
        given |= {} if goes_on is None else {"goes_on": goes_on}
        self |= scan.connect(**given)
        return results["kept"], {state: results[key] for state, key in states.items()}

    def _step(self, has_ends: bool) -> Model:
        """One place of one layer: x [N, gates · h] is the input's part of the gates."""
        step = Model()
        before = {state: IOKey(state) for state in self._states}
        use_bias = self._options["use_bias"]
        linear = models.Linear(self._gates * self.hidden_size, use_bias=use_bias)
        wires = {"weight": "weight", **({"bias": "bias"} if use_bias else {})}
        of_state: Any = Connection()
        step |= linear.connect(input=before["hidden"], output=of_state, **wires)
        after = self._formula(IOKey("x"), of_state, before)
        exposed = [f"next_{state}" for state in self._states]
        if has_ends:
            goes_on: Any = IOKey("goes_on", type=models.Tensor[bool])
            nothing: Any = models.ZerosLike()(after["hidden"])
            shown_: Any = models.Where()(goes_on, after["hidden"], nothing)
            step |= models.Buffer().connect(input=shown_, output="shown")
            exposed.append("shown")
            after = {k: models.Where()(goes_on, new, before[k]) for k, new in after.items()}
        for state, value in after.items():
            step |= models.Buffer().connect(input=value, output=f"next_{state}")
        step.expose_keys(*exposed)
        return step

    def _formula(self, x: Any, of_state: Any, before: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def _gate(self, scores: Any, at: int) -> Any:
        return scores[..., at * self.hidden_size : (at + 1) * self.hidden_size]

    def _end(self, places: Any, finals: list[dict[str, Any]]) -> None:
        if self._options["return_sequences"]:
            swap = models.SwapAxes(axis1=0, axis2=1)
            self |= swap.connect(input=places, output="output")
            return
        last = [final["hidden"] for final in finals]
        joined = last[0] if len(last) == 1 else models.Concat(axis=-1)(last)
        self |= models.Buffer().connect(input=joined, output="output")


def _sigmoid(x: Any) -> Any:
    return models.Sigmoid()(x)


def _tanh(x: Any) -> Any:
    return models.Tanh()(x)


class LSTM(_Recurrent):
    """Long short-term memory over [batch, time, features]: one `Scan` per layer and direction.

    With a = x W_ihᵀ + b_ih + h W_hhᵀ + b_hh, of which the quarters are i, f, g, o:
    c' = σ(f) · c + σ(i) · tanh(g), h' = σ(o) · tanh(c').
    Hochreiter and Schmidhuber, Long Short-Term Memory (1997), with the forget gate of Gers et al.
    (2000); keys, order of gates and both biases are those of `torch.nn.LSTM(batch_first=True)`:
    `state_dict()` has the parameters under the keys' names. Keras has one bias, and matrices that
    are the transposes of these.

    Parameters
    ----------
    hidden_size : h
    return_sequences : True: `output` is that of each place; False: of the last one (of the first
        one for the reverse direction)
    bidirectional : whether another direction goes from the end to the start; both outputs stand
        side by side
    num_layers : how many layers stand one on another
    dropout : probability with which an output of a layer is dropped before the next one, in
        training (mode="train")
    use_bias : whether the biases exist
    use_mask : whether there is an input `mask` that says which places there are
    use_lengths : whether there is an input `lengths` that says how many places there are
    use_initial_state : whether the initial states are inputs; else they are zeros
    input, mask, lengths, initial_hidden, initial_cell : values or `IOKey`s for these keys

    Keys
    ----
    input : float [N, T, d]
    mask : bool [N, T]. States pass over places where it is false, whose outputs are 0
    lengths : int [N], as a mask of that many places in front
    initial_hidden, initial_cell : float [layers · directions, N, h], in the order of layers and,
        in each, forward and reverse
    weight_ih_l0 … : float [4 h, d], of later layers [4 h, h · directions], trainable; the reverse
        direction has `_reverse` behind it, as have the next three
    weight_hh_l0 … : float [4 h, h], trainable
    bias_ih_l0, bias_hh_l0 … : float [4 h], trainable
    output : float [N, T, h · directions]; without return_sequences [N, h · directions]
    final_hidden, final_cell : float, as the initial ones

    Raises
    ------
    ArgumentError : a size, number of layers or probability that is none.
    OptionError : dropout of a single layer; a mask and lengths; keys of options that are off.

    >>> import mithril as ml
    >>> layer = ml.LSTM(16, bidirectional=True)
    >>> model = ml.Model()
    >>> model |= layer(input="x", output="y")
    >>> model.set_shapes(x=["N", "T", 3])
    >>> model.shapes["y"], layer.shapes["weight_ih_l0"]
    (['N', 'T', 32], [64, 3])
    """

    _gates = 4
    _states = ("hidden", "cell")

    @public
    def __init__(
        self,
        hidden_size: int,
        return_sequences: bool = True,
        bidirectional: bool = False,
        num_layers: int = 1,
        dropout: float = 0.0,
        use_bias: bool = True,
        use_mask: bool = False,
        use_lengths: bool = False,
        use_initial_state: bool = False,
        input: Any = TBD,
        mask: Any = TBD,
        lengths: Any = TBD,
        initial_hidden: Any = TBD,
        initial_cell: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        arguments = {"hidden_size": hidden_size, "return_sequences": return_sequences,
                     "bidirectional": bidirectional, "num_layers": num_layers, "dropout": dropout,
                     "use_bias": use_bias, "use_mask": use_mask, "use_lengths": use_lengths,
                     "use_initial_state": use_initial_state}  # fmt: skip
        keys = {"input": input, "mask": mask, "lengths": lengths,
                "initial_hidden": initial_hidden, "initial_cell": initial_cell}  # fmt: skip
        self._make(name, arguments, keys, init)

    def _formula(self, x: Any, of_state: Any, before: dict[str, Any]) -> dict[str, Any]:
        scores = x + of_state
        i, f, g, o = (self._gate(scores, at) for at in range(4))
        cell = _sigmoid(f) * before["cell"] + _sigmoid(i) * _tanh(g)
        return {"hidden": _sigmoid(o) * _tanh(cell), "cell": cell}


class GRU(_Recurrent):
    """Gated recurrent units over [batch, time, features]: one `Scan` per layer and direction.

    With a = x W_ihᵀ + b_ih and u = h W_hhᵀ + b_hh, of which the thirds are r, z, n:
    n = tanh(a_n + σ(a_r + u_r) · u_n), h' = (1 − z) · n + z · h with z = σ(a_z + u_z).
    Cho et al., arXiv:1406.1078, with the reset after the product, as in `torch.nn.GRU` and Keras'
    `GRU(reset_after=True)`; keys, order of gates and biases are PyTorch's, as those of `LSTM`.

    Parameters
    ----------
    hidden_size, return_sequences, bidirectional, num_layers, dropout, use_bias, use_mask,
        use_lengths, use_initial_state : as those of `LSTM`
    input, mask, lengths, initial_hidden : values or `IOKey`s for these keys

    Keys
    ----
    input, mask, lengths, initial_hidden, output, final_hidden : as those of `LSTM`
    weight_ih_l0 …, weight_hh_l0 …, bias_ih_l0 …, bias_hh_l0 … : as those of `LSTM`, with 3 h in the
        place of 4 h

    Raises
    ------
    ArgumentError, OptionError : as by `LSTM`.

    >>> import mithril as ml
    >>> layer = ml.GRU(16, return_sequences=False)
    >>> model = ml.Model()
    >>> model |= layer(input="x", output="y")
    >>> model.set_shapes(x=["N", "T", 3])
    >>> model.shapes["y"], layer.shapes["weight_hh_l0"]
    (['N', 16], [48, 16])
    """

    _gates = 3

    @public
    def __init__(
        self,
        hidden_size: int,
        return_sequences: bool = True,
        bidirectional: bool = False,
        num_layers: int = 1,
        dropout: float = 0.0,
        use_bias: bool = True,
        use_mask: bool = False,
        use_lengths: bool = False,
        use_initial_state: bool = False,
        input: Any = TBD,
        mask: Any = TBD,
        lengths: Any = TBD,
        initial_hidden: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        arguments = {"hidden_size": hidden_size, "return_sequences": return_sequences,
                     "bidirectional": bidirectional, "num_layers": num_layers, "dropout": dropout,
                     "use_bias": use_bias, "use_mask": use_mask, "use_lengths": use_lengths,
                     "use_initial_state": use_initial_state}  # fmt: skip
        keys = {"input": input, "mask": mask, "lengths": lengths, "initial_hidden": initial_hidden}
        self._make(name, arguments, keys, init)

    def _formula(self, x: Any, of_state: Any, before: dict[str, Any]) -> dict[str, Any]:
        reset = _sigmoid(self._gate(x, 0) + self._gate(of_state, 0))
        kept = _sigmoid(self._gate(x, 1) + self._gate(of_state, 1))
        new = _tanh(self._gate(x, 2) + reset * self._gate(of_state, 2))
        return {"hidden": new + kept * (before["hidden"] - new)}


class SimpleRNN(_Recurrent):
    """Elman's network over [batch, time, features]: one `Scan` per layer and direction.

    h' = tanh(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh), or relu of it. Elman, Finding Structure in Time
    (1990). `torch.nn.RNN` has the same keys and the same parameters; `ml.models.RNN` is the base of
    networks whose steps are written out.

    Parameters
    ----------
    hidden_size, return_sequences, bidirectional, num_layers, dropout, use_bias, use_mask,
        use_lengths, use_initial_state : as those of `LSTM`
    nonlinearity : "tanh" or "relu"
    input, mask, lengths, initial_hidden : values or `IOKey`s for these keys

    Keys
    ----
    input, mask, lengths, initial_hidden, output, final_hidden : as those of `LSTM`
    weight_ih_l0 …, weight_hh_l0 …, bias_ih_l0 …, bias_hh_l0 … : as those of `LSTM`, with h in the
        place of 4 h

    Raises
    ------
    ArgumentError, OptionError : as by `LSTM`; another nonlinearity.

    >>> import mithril as ml
    >>> layer = ml.SimpleRNN(8, nonlinearity="relu", num_layers=2)
    >>> model = ml.Model()
    >>> model |= layer(input="x", output="y")
    >>> model.set_shapes(x=["N", "T", 3])
    >>> model.shapes["y"], layer.shapes["weight_ih_l1"]
    (['N', 'T', 8], [8, 8])
    """

    @public
    def __init__(
        self,
        hidden_size: int,
        return_sequences: bool = True,
        bidirectional: bool = False,
        num_layers: int = 1,
        dropout: float = 0.0,
        use_bias: bool = True,
        use_mask: bool = False,
        use_lengths: bool = False,
        use_initial_state: bool = False,
        nonlinearity: str = "tanh",
        input: Any = TBD,
        mask: Any = TBD,
        lengths: Any = TBD,
        initial_hidden: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        if not isinstance(nonlinearity, str) or nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(
                f'SimpleRNN: nonlinearity requires "tanh" or "relu", got {shown(nonlinearity)}'
            )
        arguments = {"hidden_size": hidden_size, "return_sequences": return_sequences,
                     "bidirectional": bidirectional, "num_layers": num_layers, "dropout": dropout,
                     "use_bias": use_bias, "use_mask": use_mask, "use_lengths": use_lengths,
                     "use_initial_state": use_initial_state,
                     "nonlinearity": nonlinearity}  # fmt: skip
        keys = {"input": input, "mask": mask, "lengths": lengths, "initial_hidden": initial_hidden}
        self._make(name, arguments, keys, init)

    def _formula(self, x: Any, of_state: Any, before: dict[str, Any]) -> dict[str, Any]:
        layer = models.Relu() if self._options["nonlinearity"] == "relu" else models.Tanh()
        return {"hidden": layer(x + of_state)}


__all__ = ["GRU", "LSTM", "SimpleRNN"]
