"""One step of recurrent networks; `mithril.models.recurrent` strings steps together.

A batch holds sequences sorted by length, longest first. A step gets the rows of those that still
go on: the cell reads as many rows of its previous state, and hands on the rest of the hidden state,
that of the sequences which have ended, as `hidden_compl`.
"""

from __future__ import annotations

from typing import Any

from mithril import models
from mithril.base.public import public
from mithril.errors import SignatureError
from mithril.logical.connection import Connection
from mithril.logical.model import ExtendInfo
from mithril.logical.typing import Initial, Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD


class Cell(Composite):
    """The base of models that are a step of a recurrent network; derive from it.

    Attributes
    ----------
    shared_keys : inputs that are the same in all steps, the parameters
    private_keys : keys that each step has for itself: `input` and the output
    state_keys : outputs that the next step reads as `prev_` and the key
    hidden_key : the state that a sequence is summed up in; with `_compl` behind it, an output:
        the rows of the previous one that this step has no input for
    out_key : the output proper

    >>> import mithril as ml
    >>> class Counter(ml.models.Cell):
    ...     shared_keys = {"speed"}
    ...     private_keys = {"input", "output"}
    ...     state_keys = {"hidden"}
    ...     hidden_key = "hidden"
    ...     def __init__(self):
    ...         super().__init__()
    ...         hidden = ml.IOKey("prev_hidden")
    ...         rows = ml.IOKey("input").shape[0]
    ...         self |= ml.Buffer()(input=hidden[rows:], output="hidden_compl")
    ...         self |= ml.Add()(left=hidden[:rows], right="speed", output="hidden")
    ...         self |= ml.Multiply()(left="hidden", right="input", output="output")
    ...         self.expose_keys("output", "hidden", "hidden_compl")
    >>> ml.models.ManyToOne(Counter(), 2).input_keys
    ['input0', 'initial_hidden', 'speed', 'input1']
    """

    shared_keys: Any = None
    private_keys: Any = None
    state_keys: Any = None
    hidden_key: Any = None
    out_key: str = "output"

    @public
    def __init__(self, name: str | None = None, formula_key: str | None = None):
        if type(self) is Cell:
            raise SignatureError(
                "Cell: is the base of cells and none itself",
                hint="derive a class from it, or use RNNCell(), LSTMCell() or GRUCell()",
            )
        super().__init__(name, formula_key)


class RNNCell(Cell):
    """A step of Elman's network: h' = tanh(x W_ihᵀ + h W_hhᵀ + b_h), y = h' W_hoᵀ + b_o.

    Elman, Finding Structure in Time (1990). `torch.nn.RNN` has two biases, whose sum is `bias_h`.

    Keys
    ----
    input : float or int [N, 1, d]
    prev_hidden : float or int [M, 1, h]; M ≥ N, or 1 row for all
    w_hh, w_ih, bias_h : float [h, h], [h, d], [h], trainable
    w_ho, bias_o : float [o, h], [o], trainable
    output : float [N, 1, o]
    hidden : float [N, 1, h]
    hidden_compl : rows N … M of `prev_hidden`

    >>> import mithril as ml
    >>> cell = ml.models.RNNCell()
    >>> cell.set_shapes(input=[4, 1, 3], prev_hidden=[4, 1, 8])
    >>> cell.shapes["w_ih"], cell.shapes["hidden"]
    ([8, 3], [4, 1, 8])
    """

    shared_keys = {"w_ih", "w_hh", "w_ho", "bias_h", "bias_o"}
    private_keys = {"input", "output"}
    state_keys = {"hidden"}
    hidden_key = "hidden"
    _connect_order = (
        *("input", "prev_hidden", "w_ih", "w_hh", "w_ho", "bias_h", "bias_o"),
        *("hidden", "hidden_compl", "output"),
    )

    @public
    def __init__(
        self,
        input: Any = TBD,
        w_ih: Any = TBD,
        w_hh: Any = TBD,
        w_ho: Any = TBD,
        bias_h: Any = TBD,
        bias_o: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        given = {"input": input, "prev_hidden": TBD, "w_ih": w_ih, "w_hh": w_hh, "w_ho": w_ho}
        with self._compose(name, {"init": init}, **given, bias_h=bias_h, bias_o=bias_o) as keys:
            rows = keys["input"].shape[0]
            previous, of_hidden, of_input = Connection(), Connection(), Connection()
            self |= _rows(keys["prev_hidden"], None, rows, previous)
            plain = models.Linear(use_bias=False)
            wired = {"weight": keys["w_ih"], "bias": keys["bias_h"]}
            self |= plain.connect(input=previous, weight=keys["w_hh"], output=of_hidden)
            self |= models.Linear().connect(input=keys["input"], output=of_input, **wired)
            self |= models.Add().connect(left=of_input, right=of_hidden)
            self += models.Tanh().connect(output="hidden")
            self += models.Linear().connect(
                weight=keys["w_ho"], bias=keys["bias_o"], output="output"
            )
            self |= _rows(keys["prev_hidden"], rows, None, "hidden_compl")
            self.set_shapes(
                input=["N", 1, "d"],
                prev_hidden=["M", 1, "h"],
                hidden=["N", 1, "h"],
                w_hh=["h", "h"],
                w_ih=["h", "d"],
            )
            self.set_cin("input")
            self.set_cout("output")
            self.expose_keys("output", "hidden", "hidden_compl")

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        prev_hidden: Wire = NOT_GIVEN,
        w_ih: Wire = NOT_GIVEN,
        w_hh: Wire = NOT_GIVEN,
        w_ho: Wire = NOT_GIVEN,
        bias_h: Wire = NOT_GIVEN,
        bias_o: Wire = NOT_GIVEN,
        hidden: Wire = NOT_GIVEN,
        hidden_compl: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input": input, "prev_hidden": prev_hidden, "w_ih": w_ih, "w_hh": w_hh}
        keys |= {"w_ho": w_ho, "bias_h": bias_h, "bias_o": bias_o}
        keys |= {"hidden": hidden, "hidden_compl": hidden_compl, "output": output}
        return ExtendInfo(self, keys)

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


def _rows(state: Connection, start: Any, stop: Any, output: Any) -> ExtendInfo:
    """state[start:stop] as what a model is extended with."""
    index = models.Slice()(start, stop, None)
    return models.Indexer().connect(input=state, index=index, output=output)


def _as_many_rows(state: Any, rows: Any, output: Any) -> ExtendInfo:
    """The first rows of a state, said to be as many as the input has: both sizes may be open."""
    shape = models.ToTuple(n=3)(input1=rows, input2=1, input3=state.shape[2])
    return models.BroadcastTo().connect(input=state[:rows], shape=shape, output=output)


class LSTMCellBody(Composite):
    """The gates of `LSTMCell`, for as many rows of state as of input.

    With z = [input, prev_hidden] along the last axis: f, i, o = σ(z Wᵀ + b) each of its own,
    cell = f · prev_cell + i · tanh(z W_cᵀ + b_c), hidden = o · tanh(cell).

    Keys
    ----
    input : [N, 1, d]
    prev_hidden, prev_cell : [N, 1, h]
    w_f, w_i, w_c, w_o : float [h, d + h], trainable
    bias_f, bias_i, bias_c, bias_o : float [h], trainable
    output : float [2 N, 1, h], the rows of `cell` and then those of `hidden`

    >>> import mithril as ml
    >>> body = ml.models.LSTMCellBody()
    >>> body.set_shapes(input=[4, 1, 3], prev_cell=[4, 1, 8])
    >>> body.shapes["w_f"], body.shapes["output"]
    ([8, 11], [8, 1, 8])
    """

    _connect_order = (
        *("input", "prev_hidden", "prev_cell", "w_i", "w_f", "w_c", "w_o"),
        *("bias_f", "bias_i", "bias_c", "bias_o", "output"),
    )
    _tensors = ("input", "prev_hidden")

    @public
    def __init__(
        self,
        input: Any = TBD,
        prev_hidden: Any = TBD,
        prev_cell: Any = TBD,
        w_i: Any = TBD,
        w_f: Any = TBD,
        w_c: Any = TBD,
        w_o: Any = TBD,
        bias_f: Any = TBD,
        bias_i: Any = TBD,
        bias_c: Any = TBD,
        bias_o: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        given = {"input": input, "prev_hidden": prev_hidden, "prev_cell": prev_cell}
        given |= {"w_i": w_i, "w_f": w_f, "w_c": w_c, "w_o": w_o}
        given |= {"bias_f": bias_f, "bias_i": bias_i, "bias_c": bias_c, "bias_o": bias_o}
        with self._compose(name, {"init": init}, **given) as keys:
            both: Any = models.Concat(axis=-1)([keys["input"], keys["prev_hidden"]])

            def gate(which: str, activation: Any) -> Any:
                score = models.Linear()(both, keys[f"w_{which}"], bias=keys[f"bias_{which}"])
                return activation(score)

            kept = gate("f", models.Sigmoid()) * keys["prev_cell"]
            cell = kept + gate("i", models.Sigmoid()) * gate("c", models.Tanh())
            hidden = gate("o", models.Sigmoid()) * models.Tanh()(cell)
            self |= models.Concat(axis=0).connect(input=[cell, hidden], output="output")
            self.set_shapes(
                {
                    "input": ["N", 1, "d"],
                    "prev_hidden": ["N", 1, "h"],
                    "prev_cell": ["N", 1, "h"],
                    **{f"w_{which}": ["h", None] for which in "fico"},
                }
            )
            self.set_cin("prev_cell")

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        prev_hidden: Wire = NOT_GIVEN,
        prev_cell: Wire = NOT_GIVEN,
        w_i: Wire = NOT_GIVEN,
        w_f: Wire = NOT_GIVEN,
        w_c: Wire = NOT_GIVEN,
        w_o: Wire = NOT_GIVEN,
        bias_f: Wire = NOT_GIVEN,
        bias_i: Wire = NOT_GIVEN,
        bias_c: Wire = NOT_GIVEN,
        bias_o: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input": input, "prev_hidden": prev_hidden, "prev_cell": prev_cell}
        keys |= {"w_i": w_i, "w_f": w_f, "w_c": w_c, "w_o": w_o}
        keys |= {"bias_f": bias_f, "bias_i": bias_i, "bias_c": bias_c, "bias_o": bias_o}
        return ExtendInfo(self, {**keys, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class LSTMCell(Cell):
    """A step of a network with long short-term memory: `LSTMCellBody`, y = h' W_outᵀ + b_out.

    Hochreiter and Schmidhuber, Long Short-Term Memory (1997), with the forget gate of Gers et al.
    (2000). The rows of `torch.nn.LSTM`'s weights are the gates i, f, c, o; [w_ih, w_hh] side by
    side is the weight here, and the sum of the two biases the bias.

    Keys
    ----
    input : [N, 1, d]
    prev_cell, prev_hidden : [M, 1, h], M ≥ N
    w_f, w_i, w_c, w_o : float [h, d + h], trainable
    bias_f, bias_i, bias_c, bias_o : float [h], trainable
    w_out, bias_out : float [o, h], [o], trainable
    hidden, cell : float [N, 1, h]
    hidden_compl : rows N … M of `prev_hidden`
    output : float [N, 1, o]

    >>> import mithril as ml
    >>> cell = ml.models.LSTMCell()
    >>> cell.set_shapes(input=[4, 1, 3], prev_hidden=[4, 1, 8])
    >>> cell.shapes["w_f"], cell.shapes["cell"]
    ([8, 11], [4, 1, 8])
    """

    shared_keys = {
        *("w_i", "w_f", "w_c", "w_o", "w_out"),
        *("bias_i", "bias_f", "bias_c", "bias_o", "bias_out"),
    }
    private_keys = {"input", "output"}
    state_keys = {"hidden", "cell"}
    hidden_key = "hidden"
    _connect_order = (
        *("input", "prev_hidden", "prev_cell", "w_i", "w_f", "w_c", "w_o", "w_out"),
        *("bias_f", "bias_i", "bias_c", "bias_o", "bias_out"),
        *("hidden", "cell", "hidden_compl", "output"),
    )

    @public
    def __init__(
        self,
        input: Any = TBD,
        w_i: Any = TBD,
        w_f: Any = TBD,
        w_c: Any = TBD,
        w_o: Any = TBD,
        w_out: Any = TBD,
        bias_f: Any = TBD,
        bias_i: Any = TBD,
        bias_c: Any = TBD,
        bias_o: Any = TBD,
        bias_out: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        given = {"input": input, "prev_hidden": TBD, "prev_cell": TBD}
        given |= {"w_i": w_i, "w_f": w_f, "w_c": w_c, "w_o": w_o, "w_out": w_out}
        given |= {"bias_f": bias_f, "bias_i": bias_i, "bias_c": bias_c, "bias_o": bias_o}
        with self._compose(name, {"init": init}, **given, bias_out=bias_out) as keys:
            rows = keys["input"].shape[0]
            state = {key: Connection() for key in ("prev_cell", "prev_hidden")}
            for key, wire in state.items():
                self |= _as_many_rows(keys[key], rows, wire)
            gates = {key: keys[key] for key in keys if key[-2:] in ("_f", "_i", "_c", "_o")}
            both = Connection()
            self |= LSTMCellBody().connect(input=keys["input"], output=both, **state, **gates)
            self |= _rows(both, None, rows, "cell")
            self |= _rows(both, rows, None, "hidden")
            wired = {"weight": keys["w_out"], "bias": keys["bias_out"]}
            self |= models.Linear().connect(input="hidden", output="output", **wired)
            self |= _rows(keys["prev_hidden"], rows, None, "hidden_compl")
            self.set_shapes(
                input=["N", 1, "d"],
                prev_hidden=["M", 1, "h"],
                prev_cell=["M", 1, "h"],
                hidden=["N", 1, "h"],
                cell=["N", 1, "h"],
            )
            self.set_cin("input")
            self.set_cout("output")
            self.expose_keys("hidden", "cell", "hidden_compl", "output")

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        prev_hidden: Wire = NOT_GIVEN,
        prev_cell: Wire = NOT_GIVEN,
        w_i: Wire = NOT_GIVEN,
        w_f: Wire = NOT_GIVEN,
        w_c: Wire = NOT_GIVEN,
        w_o: Wire = NOT_GIVEN,
        w_out: Wire = NOT_GIVEN,
        bias_f: Wire = NOT_GIVEN,
        bias_i: Wire = NOT_GIVEN,
        bias_c: Wire = NOT_GIVEN,
        bias_o: Wire = NOT_GIVEN,
        bias_out: Wire = NOT_GIVEN,
        hidden: Wire = NOT_GIVEN,
        cell: Wire = NOT_GIVEN,
        hidden_compl: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input": input, "prev_hidden": prev_hidden, "prev_cell": prev_cell}
        keys |= {"w_i": w_i, "w_f": w_f, "w_c": w_c, "w_o": w_o, "w_out": w_out}
        keys |= {"bias_f": bias_f, "bias_i": bias_i, "bias_c": bias_c, "bias_o": bias_o}
        keys |= {"bias_out": bias_out, "hidden": hidden, "cell": cell}
        return ExtendInfo(self, {**keys, "hidden_compl": hidden_compl, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class GRUCell(Cell):
    """A step of a network of gated recurrent units, and y = h' W_outᵀ + b_out.

    With z = [input, prev_hidden] along the last axis: r, u = σ(z Wᵀ + b) each of its own,
    n = tanh(x W_nᵀ + b_n + r · (h W_hnᵀ + b_hn)), h' = (1 − u) · n + u · h.

    Cho et al., Learning Phrase Representations using RNN Encoder–Decoder (2014), with the reset
    gate behind the product, as cuDNN and PyTorch have it. The rows of `torch.nn.GRU`'s weights are
    the gates r, u (there z) and n; side by side the first two are `w_r` and `w_u` here, with the
    sum of the two biases.

    Keys
    ----
    input : [N, 1, d]
    prev_hidden : [M, 1, h], M ≥ N
    w_r, w_u : float [h, d + h], trainable
    w_n, w_hn : float [h, d], [h, h], trainable
    bias_r, bias_u, bias_n, bias_hn : float [h], trainable
    w_out, bias_out : float [o, h], [o], trainable
    hidden : float [N, 1, h]
    hidden_compl : rows N … M of `prev_hidden`
    output : float [N, 1, o]

    >>> import mithril as ml
    >>> cell = ml.models.GRUCell()
    >>> cell.set_shapes(input=[4, 1, 3], prev_hidden=[4, 1, 8])
    >>> cell.shapes["w_r"], cell.shapes["w_n"], cell.shapes["hidden"]
    ([8, 11], [8, 3], [4, 1, 8])
    """

    shared_keys = {
        *("w_r", "w_u", "w_n", "w_hn", "w_out"),
        *("bias_r", "bias_u", "bias_n", "bias_hn", "bias_out"),
    }
    private_keys = {"input", "output"}
    state_keys = {"hidden"}
    hidden_key = "hidden"
    _connect_order = (
        *("input", "prev_hidden", "w_r", "w_u", "w_n", "w_hn", "w_out"),
        *("bias_r", "bias_u", "bias_n", "bias_hn", "bias_out"),
        *("hidden", "hidden_compl", "output"),
    )

    @public
    def __init__(
        self,
        input: Any = TBD,
        w_r: Any = TBD,
        w_u: Any = TBD,
        w_n: Any = TBD,
        w_hn: Any = TBD,
        w_out: Any = TBD,
        bias_r: Any = TBD,
        bias_u: Any = TBD,
        bias_n: Any = TBD,
        bias_hn: Any = TBD,
        bias_out: Any = TBD,
        *,
        name: str | None = None,
        init: Initial = None,
    ):
        given = {"input": input, "prev_hidden": TBD}
        given |= {"w_r": w_r, "w_u": w_u, "w_n": w_n, "w_hn": w_hn, "w_out": w_out}
        given |= {"bias_r": bias_r, "bias_u": bias_u, "bias_n": bias_n, "bias_hn": bias_hn}
        with self._compose(name, {"init": init}, **given, bias_out=bias_out) as keys:
            rows = keys["input"].shape[0]
            before: Any = Connection()
            self |= _as_many_rows(keys["prev_hidden"], rows, before)

            def linear(of: Any, which: str) -> Any:
                return models.Linear()(of, keys[f"w_{which}"], bias=keys[f"bias_{which}"])

            both = models.Concat(axis=-1)([keys["input"], before])
            reset, kept = (models.Sigmoid()(linear(both, gate)) for gate in "ru")
            new = models.Tanh()(linear(keys["input"], "n") + reset * linear(before, "hn"))
            hidden = new + kept * (before - new)
            self |= models.Buffer().connect(input=hidden, output="hidden")
            wired = {"weight": keys["w_out"], "bias": keys["bias_out"]}
            self |= models.Linear().connect(input="hidden", output="output", **wired)
            self |= _rows(keys["prev_hidden"], rows, None, "hidden_compl")
            self.set_shapes(
                input=["N", 1, "d"],
                prev_hidden=["M", 1, "h"],
                hidden=["N", 1, "h"],
                w_r=["h", None],
                w_u=["h", None],
                w_n=["h", "d"],
                w_hn=["h", "h"],
            )
            self.set_cin("input")
            self.set_cout("output")
            self.expose_keys("hidden", "hidden_compl", "output")

    @public
    def connect(
        self,
        input: Wire = NOT_GIVEN,
        prev_hidden: Wire = NOT_GIVEN,
        w_r: Wire = NOT_GIVEN,
        w_u: Wire = NOT_GIVEN,
        w_n: Wire = NOT_GIVEN,
        w_hn: Wire = NOT_GIVEN,
        w_out: Wire = NOT_GIVEN,
        bias_r: Wire = NOT_GIVEN,
        bias_u: Wire = NOT_GIVEN,
        bias_n: Wire = NOT_GIVEN,
        bias_hn: Wire = NOT_GIVEN,
        bias_out: Wire = NOT_GIVEN,
        hidden: Wire = NOT_GIVEN,
        hidden_compl: Wire = NOT_GIVEN,
        output: Output = NOT_GIVEN,
    ) -> ExtendInfo:
        keys = {"input": input, "prev_hidden": prev_hidden}
        keys |= {"w_r": w_r, "w_u": w_u, "w_n": w_n, "w_hn": w_hn, "w_out": w_out}
        keys |= {"bias_r": bias_r, "bias_u": bias_u, "bias_n": bias_n, "bias_hn": bias_hn}
        keys |= {"bias_out": bias_out, "hidden": hidden}
        return ExtendInfo(self, {**keys, "hidden_compl": hidden_compl, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


__all__ = ["Cell", "GRUCell", "LSTMCell", "LSTMCellBody", "RNNCell"]
