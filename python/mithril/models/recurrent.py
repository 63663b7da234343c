"""Recurrent networks: the steps of a cell written out, with the same parameters in each.

Step i works on the rows of the sequences that are at least i + 1 long (`recurrent_cells`).
"""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.checks import checked_flag, checked_size
from mithril.base.public import public
from mithril.errors import OptionError, SignatureError, shown, suggestion
from mithril.logical.connection import Connection
from mithril.logical.model import ExtendInfo
from mithril.logical.typing import Wire, as_connected
from mithril.models._composite import Composite
from mithril.models.recurrent_cells import Cell
from mithril.types import NOT_GIVEN, TBD


class RNN(Composite):
    """The base of recurrent networks: a cell, of which each step has a copy.

    Parameters
    ----------
    cell_type : a cell, such as `RNNCell()`; it stays free for other uses

    >>> import mithril as ml
    >>> rnn = ml.models.ManyToOne(ml.models.RNNCell(), max_sequence_length=3)
    >>> rnn.cell_type, len(list(rnn.submodels))
    (RNNCell(), 5)
    """

    @public
    def __init__(self, cell_type: Cell):
        raise SignatureError(
            "RNN: is the base of recurrent networks and none itself",
            hint="use SimpleRNN(hidden_size) for a layer over sequences, or ManyToOne, OneToMany or"
            " EncoderDecoder for cells",
        )

    @property
    def cell_type(self) -> Cell:
        return self._arguments["cell_type"]

    def _take(self, cell: Any, **lengths: Any) -> None:
        """Checks the cell and the numbers of steps, and keeps the cell."""
        what = type(self).__name__
        for key, length in lengths.items():
            checked_size(f"{what}: {key}", length)
        self._arguments = {"cell_type": _checked(what, cell)}

    def _values(self, keys: list[str], given: dict[str, Any]) -> dict[str, Any]:
        """Returns the value that the constructor was given for each key, else TBD."""
        unknown = [key for key in given if key not in keys]
        if unknown:
            raise SignatureError(
                f"{type(self).__name__}: has no argument {unknown[0]!r}"
                f"{suggestion(unknown[0], keys)}"
            )
        return {key: given.get(key, TBD) for key in keys}

    def _initial_keys(self) -> list[str]:
        return [f"initial_{state}" for state in self.cell_type.state_keys]

    def _step(
        self, at: int, keys: dict[str, Connection], before: dict[str, Connection], input: Any
    ) -> dict[str, Connection]:
        """Adds a step and returns its outputs. `before` are those of the step before it."""
        cell = self.cell_type
        copy = cell.clone(None if cell.name is None else f"{cell.name}_{at}")
        wires: dict[str, Any] = {"input": input, **{key: keys[key] for key in cell.shared_keys}}
        for state in cell.state_keys:
            wires[f"prev_{state}"] = before[state] if at else keys[f"initial_{state}"]
        for key in {*cell.private_keys} & {*cell.input_keys} - {"input"}:
            wires[key] = Connection(f"{key}{at}")
        results = {key: Connection() for key in cell.output_keys}
        results[cell.out_key] = Connection(f"output{at}")
        self |= copy.connect(**wires, **results)
        return results


def _checked(what: str, cell: Any) -> Cell:
    """A cell whose keys are as its class says."""
    if not isinstance(cell, Cell):
        is_class = isinstance(cell, type) and issubclass(cell, Cell)
        hint = f"make one: {cell.__name__}()" if is_class else "such as RNNCell()"
        raise SignatureError(f"{what}: cell_type requires a cell, got {shown(cell)}", hint=hint)
    for attribute in ("shared_keys", "private_keys", "state_keys", "hidden_key", "out_key"):
        if getattr(cell, attribute) is None:
            raise OptionError(f"{what}: {type(cell).__name__} does not say its {attribute}")
    states = list(cell.state_keys)
    inputs = ["input", *cell.shared_keys, *(f"prev_{state}" for state in states)]
    outputs = [cell.out_key, *states, f"{cell.hidden_key}_compl"]
    for kind, wanted, found in (("input", inputs, cell.input_keys),
                                ("output", outputs, cell.output_keys)):  # fmt: skip
        missing = sorted(set(wanted) - set(found))
        if missing:
            raise OptionError(
                f"{what}: {type(cell).__name__} requires an {kind} {missing[0]!r}, it has"
                f" {', '.join(found)}"
            )
    if cell.hidden_key not in states:
        raise OptionError(
            f"{what}: the hidden_key of {type(cell).__name__} must be one of its state_keys, got"
            f" {cell.hidden_key!r} and {sorted(states)}"
        )
    return cell


class OneToMany(RNN):
    """A decoder: from one input, an output in each step.

    Step i reads the output of the step before it or, with `teacher_forcing`, what that should
    have been, `target{i-1}`; of this as many rows as `target{i}` has.

    Parameters
    ----------
    cell_type : a cell, such as `RNNCell()`
    max_sequence_length : the number of steps
    teacher_forcing : whether steps read targets
    input, **kwargs : values or `IOKey`s for these keys

    Keys
    ----
    input : what the first step reads, [N, 1, d]
    initial_<state> : for each state of the cell
    the parameters of the cell, the same in all steps
    target1, target2 …, with `teacher_forcing` from target0 on : the first axis is the number of
        sequences that last until that step
    output0, output1 … : the outputs of the cell

    Raises
    ------
    SignatureError : no cell, or a keyword that is no input.
    OptionError : a cell without the keys that its class names.

    >>> import mithril as ml
    >>> ml.models.OneToMany(ml.models.RNNCell(), 2).input_keys
    ['input', 'initial_hidden', 'w_hh', 'w_ih', 'bias_h', 'w_ho', 'bias_o', 'target1']
    """

    _connect_order = ("input",)

    @public
    def __init__(
        self,
        cell_type: Cell,
        max_sequence_length: int,
        teacher_forcing: bool = False,
        input: Any = TBD,
        *,
        name: str | None = None,
        **kwargs: Any,
    ):
        forced = checked_flag("OneToMany: teacher_forcing", teacher_forcing)
        self._take(cell_type, max_sequence_length=max_sequence_length)
        first = 0 if forced and max_sequence_length > 1 else 1
        targets = [f"target{i}" for i in range(first, max_sequence_length)]
        inputs = [*self._initial_keys(), *cell_type.shared_keys, *targets]
        arguments = {
            "cell_type": cell_type,
            "max_sequence_length": max_sequence_length,
            "teacher_forcing": forced,
        }
        given = self._values(inputs, kwargs)
        with self._compose(name, arguments, input=input, **given) as keys:
            self._unroll(keys, max_sequence_length, forced)

    def _unroll(self, keys: dict[str, Any], length: int, forced: bool) -> None:
        results = self._step(0, keys, {}, keys["input"])
        for at in range(1, length):
            before: Any = results[self.cell_type.out_key]
            source = keys[f"target{at - 1}"] if forced else before
            rows = keys[f"target{at}"].shape[0]
            results = self._step(at, keys, results, source[:rows])
        _expose_steps(self, length)

    @public
    def connect(self, input: Wire = NOT_GIVEN, **model_keys: Any) -> ExtendInfo:
        return ExtendInfo(self, {"input": input, **model_keys})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


def _expose_steps(model: Composite, length: int) -> None:
    model.set_cin("input")
    model.set_cout(f"output{length - 1}")
    model.expose_keys(*(f"output{i}" for i in range(length)))


class OneToManyInference(RNN):
    """A decoder without targets: each step reads the output of the step before it.

    Parameters, keys and errors are those of `OneToMany`, whose parameters it takes.

    >>> import mithril as ml
    >>> ml.models.OneToManyInference(ml.models.RNNCell(), 3).output_keys
    ['output0', 'output1', 'output2']
    """

    _connect_order = ("input",)

    @public
    def __init__(
        self,
        cell_type: Cell,
        max_sequence_length: int,
        input: Any = TBD,
        *,
        name: str | None = None,
        **kwargs: Any,
    ):
        self._take(cell_type, max_sequence_length=max_sequence_length)
        arguments = {"cell_type": cell_type, "max_sequence_length": max_sequence_length}
        given = self._values([*self._initial_keys(), *cell_type.shared_keys], kwargs)
        with self._compose(name, arguments, input=input, **given) as keys:
            results = self._step(0, keys, {}, keys["input"])
            for at in range(1, max_sequence_length):
                results = self._step(at, keys, results, results[cell_type.out_key])
            _expose_steps(self, max_sequence_length)

    @public
    def connect(self, input: Wire = NOT_GIVEN, **model_keys: Any) -> ExtendInfo:
        return ExtendInfo(self, {"input": input, **model_keys})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class ManyToOne(RNN):
    """An encoder: from an input in each step to the last hidden state of each sequence.

    Parameters
    ----------
    cell_type : a cell, such as `RNNCell()`
    max_sequence_length : the number of steps
    hidden_concat, **kwargs : values or `IOKey`s for these keys

    Keys
    ----
    input0, input1 … : what the steps read, [N_i, 1, d]; N_i falls from step to step
    initial_<state> : for each state of the cell
    the parameters of the cell, the same in all steps
    output0, output1 … : the outputs of the cell
    hidden_concat : the last hidden state of each sequence in the order of the batch, [N_0, 1, h]

    Raises
    ------
    SignatureError : no cell, or a keyword that is no input.
    OptionError : a cell without the keys that its class names.

    >>> import mithril as ml
    >>> rnn = ml.models.ManyToOne(ml.models.RNNCell(), 2)
    >>> rnn.set_shapes(input0=[5, 1, 3], input1=[2, 1, 3], initial_hidden=[5, 1, 8])
    >>> rnn.shapes["hidden_concat"]
    [5, 1, 8]
    """

    _connect_order = ("hidden_concat",)

    @public
    def __init__(
        self,
        cell_type: Cell,
        max_sequence_length: int,
        hidden_concat: Any = TBD,
        *,
        name: str | None = None,
        **kwargs: Any,
    ):
        self._take(cell_type, max_sequence_length=max_sequence_length)
        inputs = [f"input{i}" for i in range(max_sequence_length)]
        given = self._values([*inputs, *self._initial_keys(), *cell_type.shared_keys], kwargs)
        arguments = {"cell_type": cell_type, "max_sequence_length": max_sequence_length}
        with self._compose(name, arguments, hidden_concat=hidden_concat, **given) as keys:
            results: dict[str, Connection] = {}
            ended: list[Connection] = []  # longest sequences first, as in the batch
            for at, key in enumerate(inputs):
                results = self._step(at, keys, results, keys[key])
                if at > 0:
                    ended.insert(0, results[f"{cell_type.hidden_key}_compl"])
            hidden = [results[cell_type.hidden_key], *ended]
            self |= models.Concat(axis=0).connect(input=hidden, output=keys["hidden_concat"])
            self.set_cin("input0")
            self.set_cout("hidden_concat")
            outputs = [f"output{i}" for i in range(max_sequence_length)]
            self.expose_keys(*reversed(outputs), "hidden_concat")

    @public
    def connect(self, hidden_concat: Wire = NOT_GIVEN, **model_keys: Any) -> ExtendInfo:
        return ExtendInfo(self, {"hidden_concat": hidden_concat, **model_keys})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class _Pair(RNN):
    """An encoder whose result is where a decoder begins."""

    def _join(self, encoder: ManyToOne, decoder: RNN, indices: Connection | None) -> None:
        hidden = Connection()
        named = {key: key for key in encoder.input_keys if not key.startswith("$")}
        self |= encoder.connect(hidden_concat=hidden, **named)
        if indices is not None:
            permuted = Connection()
            self |= models.Indexer().connect(input=hidden, index=indices, output=permuted)
            hidden = permuted
            self.set_types({indices: models.Tensor[int]})
            self.set_shapes({indices: [None]})
        begin = f"initial_{self.cell_type.hidden_key}"
        wires: dict[str, Any] = {key: key for key in decoder.output_keys}
        for key in decoder.input_keys:
            if not key.startswith(("$", "target")):
                wires[key] = hidden if key == begin else f"decoder_{key}"
            elif key.startswith("target"):
                wires[key] = key
        self |= decoder.connect(**wires)
        self.set_cin("decoder_input", "input0")
        self.set_cout(decoder.cout.key)
        self.expose_keys(*decoder.output_keys)


class EncoderDecoder(_Pair):
    """A `ManyToOne` whose hidden state a `OneToMany` begins with: sequence to sequence.

    Sutskever et al., Sequence to Sequence Learning with Neural Networks (2014).

    Parameters
    ----------
    cell_type : a cell, such as `RNNCell()`; encoder and decoder have parameters of their own
    max_input_sequence_length, max_target_sequence_length : the numbers of steps
    teacher_forcing : whether steps of the decoder read targets
    indices : a value or an `IOKey` for this key

    Keys
    ----
    those of the encoder : `input0` …, `initial_<state>`, parameters
    indices : int [N]; row i of the decoder's batch (sorted by the length of targets) is row
        indices[i] of the encoder's (sorted by the length of inputs)
    those of the decoder : with `decoder_` before them, targets apart
    output0, output1 … : the outputs of the decoder

    Raises
    ------
    SignatureError : no cell.
    OptionError : a cell without the keys that its class names.

    >>> import mithril as ml
    >>> model = ml.models.EncoderDecoder(ml.models.RNNCell(), 2, 2)
    >>> [key for key in model.input_keys if "w_" not in key and "bias" not in key]
    ['input0', 'initial_hidden', 'input1', 'indices', 'decoder_input', 'target1']
    """

    _connect_order = ("indices",)

    @public
    def __init__(
        self,
        cell_type: Cell,
        max_input_sequence_length: int,
        max_target_sequence_length: int,
        teacher_forcing: bool = False,
        indices: Any = TBD,
        *,
        name: str | None = None,
    ):
        lengths = {
            "max_input_sequence_length": max_input_sequence_length,
            "max_target_sequence_length": max_target_sequence_length,
        }
        forced = checked_flag("EncoderDecoder: teacher_forcing", teacher_forcing)
        self._take(cell_type, **lengths)
        arguments = {"cell_type": cell_type, **lengths, "teacher_forcing": forced}
        with self._compose(name, arguments, indices=indices) as keys:
            encoder = ManyToOne(cell_type, max_input_sequence_length)
            decoder = OneToMany(cell_type, max_target_sequence_length, forced)
            self._join(encoder, decoder, keys["indices"])

    @public
    def connect(self, indices: Wire = NOT_GIVEN, **model_keys: Any) -> ExtendInfo:
        return ExtendInfo(self, {"indices": indices, **model_keys})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class EncoderDecoderInference(_Pair):
    """An `EncoderDecoder` for use after training: the decoder reads its own outputs.

    Parameters, keys and errors are those of `EncoderDecoder`, but for targets and `indices`.

    >>> import mithril as ml
    >>> ml.models.EncoderDecoderInference(ml.models.RNNCell(), 2, 3).output_keys
    ['output0', 'output1', 'output2']
    """

    @public
    def __init__(
        self,
        cell_type: Cell,
        max_input_sequence_length: int,
        max_target_sequence_length: int,
        *,
        name: str | None = None,
    ):
        lengths = {
            "max_input_sequence_length": max_input_sequence_length,
            "max_target_sequence_length": max_target_sequence_length,
        }
        self._take(cell_type, **lengths)
        with self._compose(name, {"cell_type": cell_type, **lengths}):
            encoder = ManyToOne(cell_type, max_input_sequence_length)
            decoder = OneToManyInference(cell_type, max_target_sequence_length)
            self._join(encoder, decoder, None)

    @public
    def connect(self, **model_keys: Any) -> ExtendInfo:
        return ExtendInfo(self, model_keys)

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


__all__ = [
    "RNN",
    "EncoderDecoder",
    "EncoderDecoderInference",
    "ManyToOne",
    "OneToMany",
    "OneToManyInference",
]
