"""Unrolled networks against one sequence after the other, and against those of PyTorch."""

import os
import subprocess
import sys
from types import SimpleNamespace

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, OptionError, SignatureError
from mithril.models import (
    RNN,
    Cell,
    EncoderDecoder,
    EncoderDecoderInference,
    GRUCell,
    LSTMCell,
    ManyToOne,
    OneToMany,
    OneToManyInference,
    RNNCell,
)
from models.composite_cases import (
    BACKENDS,
    check,
    far,
    gru_sizes,
    gru_step,
    lstm_sizes,
    lstm_step,
    numbers,
    on_native,
    rnn_sizes,
    rnn_step,
    run,
)

D, H = 2, 3
CELLS = {
    "rnn": (RNNCell, rnn_sizes, rnn_step, ["hidden"]),
    "lstm": (LSTMCell, lstm_sizes, lstm_step, ["hidden", "cell"]),
    "gru": (GRUCell, gru_sizes, gru_step, ["hidden"]),
}
each_cell = pytest.mark.parametrize("kind", CELLS)


def walk(step, p, state, inputs, wanted):
    """Outputs and last state of one sequence. `inputs` are vectors; None is the last output."""
    outputs = []
    for i in range(wanted):
        x = inputs[i] if inputs[i] is not None else outputs[-1]
        y, state = step(p, x, state)
        outputs.append(y)
    return outputs, state


def by_steps(sequences, sizes):
    """Outputs of sequences as the arrays of steps: that of step i has sizes[i] rows."""
    width = len(sequences[0][0])
    return [
        np.array([sequence[i] for sequence in sequences[:n]]).reshape(n, 1, width)
        for i, n in enumerate(sizes)
    ]


def states_at(row, states, given, before=""):
    return {state: given[f"{before}initial_{state}"][row, 0] for state in states}


def length_of(row, sizes):
    return sum(row < n for n in sizes)


def encode(step, states, sizes, given):
    """Outputs by step, and the last states, of an encoder."""
    sequences, last = [], []
    for row in range(sizes[0]):
        length = length_of(row, sizes)
        inputs = [given[f"input{i}"][row, 0] for i in range(length)]
        outputs, state = walk(step, given, states_at(row, states, given), inputs, length)
        sequences.append(outputs)
        last.append(state["hidden"])
    return by_steps(sequences, sizes), np.array(last)[:, None]


def decode(step, p, sizes, first, states, targets=None):
    """Outputs by step of a decoder, from `first` [N, 1, d] and a state for each row."""
    sequences = []
    for row in range(sizes[0]):
        length = length_of(row, sizes)
        later = [None] * length if targets is None else [t[row, 0] for t in targets[: length - 1]]
        outputs, _ = walk(step, p, states[row], [first[row, 0], *later], length)
        sequences.append(outputs)
    return {f"output{i}": y for i, y in enumerate(by_steps(sequences, sizes))}


@on_native
@each_cell
@pytest.mark.parametrize("sizes", [(4, 3, 1), (3, 2, 2), (2,), (2, 0)])
def test_many_to_one(native, kind, sizes):
    make, sizes_of, step, states = CELLS[kind]

    def by_hand(**given):
        outputs, last = encode(step, states, sizes, given)
        named = {f"output{i}": y for i, y in enumerate(outputs)}
        return named | {"hidden_concat": last}

    inputs = numbers(
        1,
        **{f"input{i}": (n, 1, D) for i, n in enumerate(sizes)},
        **{f"initial_{state}": (sizes[0], 1, H) for state in states},
        **sizes_of(D, H, 4),
    )
    check(ManyToOne(make(), len(sizes)), by_hand, inputs, native, fixed=True)


@on_native
@each_cell
@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("sizes", [(3, 2, 1), (2, 2), (2,)])
def test_one_to_many(native, kind, forced, sizes):
    make, sizes_of, step, states = CELLS[kind]

    def by_hand(input, **given):
        begin = [states_at(row, states, given) for row in range(sizes[0])]
        targets = [given[f"target{i}"] for i in range(len(sizes))] if forced else None
        return decode(step, given, sizes, input, begin, targets)

    first = 0 if forced else 1
    targets = {f"target{i}": (sizes[i], 1, D) for i in range(first, len(sizes))}
    if len(sizes) == 1:
        targets = {}
    parameters = sizes_of(D, H, D)
    begin = {f"initial_{state}": (sizes[0], 1, H) for state in states}
    inputs = numbers(2, input=(sizes[0], 1, D), **begin, **parameters, **targets)
    given = inputs if len(sizes) > 1 else inputs | {"target0": np.zeros((sizes[0], 1, D))}

    def oracle(**moved):
        return by_hand(**{**given, **moved})

    read = [f"target{i}" for i in range(len(sizes) - 1)] if forced else []
    wrt = ["input", *begin, *parameters, *read]
    model = OneToMany(make(), len(sizes), forced)
    check(model, oracle, inputs, native, wrt, fixed=True)


@on_native
@each_cell
def test_one_to_many_in_use(native, kind):
    make, sizes_of, step, states = CELLS[kind]

    def by_hand(input, **given):
        begin = [states_at(row, states, given) for row in range(3)]
        return decode(step, given, (3, 3, 3), input, begin)

    begin = {f"initial_{state}": (3, 1, H) for state in states}
    inputs = numbers(3, input=(3, 1, D), **begin, **sizes_of(D, H, D))
    check(OneToManyInference(make(), 3), by_hand, inputs, native, fixed=True)


# What the encoder of a pair does not compute: its outputs.
UNREAD = {"w_ho": np.zeros((1, H)), "bias_o": np.zeros(1)}
UNREAD |= {"w_out": np.zeros((1, H)), "bias_out": np.zeros(1)}


def pair_inputs(kind, encoder_sizes, rows):
    _, sizes_of, _, states = CELLS[kind]
    others = [state for state in states if state != "hidden"]
    unread = {"w_ho", "bias_o"} if kind == "rnn" else {"w_out", "bias_out"}
    return {
        **{f"input{i}": (n, 1, D) for i, n in enumerate(encoder_sizes)},
        **{f"initial_{state}": (encoder_sizes[0], 1, H) for state in states},
        **{key: shape for key, shape in sizes_of(D, H, 4).items() if key not in unread},
        "decoder_input": (rows, 1, 2),
        **{f"decoder_initial_{state}": (rows, 1, H) for state in others},
        **{f"decoder_{key}": shape for key, shape in sizes_of(2, H, 2).items()},
    }


def decoder_of(given):
    return {k.removeprefix("decoder_"): v for k, v in given.items() if k.startswith("decoder_")}


@on_native
@each_cell
@pytest.mark.parametrize("forced", [False, True])
def test_encoder_decoder(native, kind, forced):
    make, _, step, states = CELLS[kind]
    indices = np.array([2, 0, 1])

    def by_hand(indices, **given):
        _, last = encode(step, states, (3, 1), UNREAD | given)
        inner = decoder_of(given)
        begin = [
            {s: inner[f"initial_{s}"][row, 0] for s in states if s != "hidden"}
            | {"hidden": last[indices[row], 0]}
            for row in range(3)
        ]
        targets = [given["target0"], given["target1"]] if forced else None
        return decode(step, inner, (3, 2), inner["input"], begin, targets)

    shapes = pair_inputs(kind, (3, 1), 3)
    targets = {"target0": (3, 1, 2)} if forced else {}
    inputs = numbers(4, **shapes, **targets, target1=(2, 1, 2)) | {"indices": indices}
    wrt = [*shapes, *targets]
    check(EncoderDecoder(make(), 2, 2, forced), by_hand, inputs, native, wrt, fixed=True)


@each_cell
def test_encoder_decoder_in_use(backend_name, kind):
    make, _, step, states = CELLS[kind]

    def by_hand(**given):
        _, last = encode(step, states, (3, 2), UNREAD | given)
        inner = decoder_of(given)
        begin = [
            {s: inner[f"initial_{s}"][row, 0] for s in states if s != "hidden"}
            | {"hidden": last[row, 0]}
            for row in range(3)
        ]
        return decode(step, inner, (3, 3, 3), inner["input"], begin)

    shapes = pair_inputs(kind, (3, 2), 3)
    model = EncoderDecoderInference(make(), 2, 3)
    check(model, by_hand, numbers(5, **shapes), backend_name, fixed=True)


# --- structure -----------------------------------------------------------------------------------


def test_a_cell_stays_free():
    cell = RNNCell(name="unit")
    model = ManyToOne(cell, 3)
    assert list(model.submodels)[:3] == ["unit_0", "unit_1", "unit_2"]
    assert cell.parent is None and model.cell_type is cell and model.clone().cell_type is cell
    OneToMany(cell, 2)


def test_parameters_with_values():
    weight = ml.Tensor(np.eye(3).tolist())
    model = ManyToOne(RNNCell(), 3, w_hh=weight, initial_hidden=ml.IOKey(shape=[5, 1, None]))
    assert model.shapes["initial_hidden"] == [5, 1, 3]
    assert model._node.is_valued("w_hh")


def test_a_parameter_of_the_cell_with_a_value():
    cell = RNNCell(bias_o=ml.Tensor([1.0, 2.0]))
    model = ManyToOne(cell, 2)
    assert model.shapes["output1"][-1] == 2


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_keys_do_not_depend_on_the_order_of_sets(seed):
    code = (
        "from mithril.models import EncoderDecoder, LSTMCell;"
        "print(*EncoderDecoder(LSTMCell(), 2, 2).input_keys)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.split() == EncoderDecoder(LSTMCell(), 2, 2).input_keys


class Mask(Cell):
    """Has an input of its own in each step, and no parameters."""

    shared_keys = set()
    private_keys = {"input", "mask", "output"}
    state_keys = {"total"}
    hidden_key = "total"

    def __init__(self):
        super().__init__()
        x, mask, total = (ml.IOKey(k) for k in ("input", "mask", "prev_total"))
        rows = x.shape[0]
        self |= ml.Add()(left=total[:rows], right=x * mask, output="total")
        self |= ml.Buffer()(input=total[rows:], output="total_compl")
        self |= ml.Negate()(input="total", output="output")
        self.expose_keys("total", "total_compl", "output")


def test_a_cell_of_the_user(backend_name):
    def by_hand(input0, mask0, input1, mask1, initial_total):
        first = initial_total + input0 * mask0
        second = first[:1] + input1 * mask1
        last = np.concatenate([second, first[1:]])
        return {"output0": -first, "output1": -second, "hidden_concat": last}

    model = ManyToOne(Mask(), 2)
    sizes = {"input0": (2, 1, 3), "mask0": (2, 1, 3), "initial_total": (2, 1, 3)}
    inputs = numbers(6, **sizes, input1=(1, 1, 3), mask1=(1, 1, 3))
    check(model, by_hand, inputs, backend_name, fixed=True)


class Odd(Mask):
    hidden_key = "sum"


class Silent(Mask):
    state_keys = None


class Lacking(Mask):
    shared_keys = {"weight"}


class Elsewhere(Mask):
    state_keys = set()


REFUSED = {
    "a class": (
        lambda: ManyToOne(RNNCell, 2),
        SignatureError,
        "ManyToOne: cell_type requires a cell, got <class"
        " 'mithril.models.recurrent_cells.RNNCell'>\n  help: make one: RNNCell()",
    ),
    "no cell": (
        lambda: OneToMany(ml.Relu(), 2),
        SignatureError,
        "OneToMany: cell_type requires a cell, got Relu()\n  help: such as RNNCell()",
    ),
    "no steps": (
        lambda: OneToManyInference(RNNCell(), 0),
        ArgumentError,
        "OneToManyInference: max_sequence_length: requires an integer of at least 1, got 0",
    ),
    "half a step": (
        lambda: EncoderDecoder(RNNCell(), 2, 1.5),
        ArgumentError,
        "EncoderDecoder: max_target_sequence_length: requires an integer of at least 1, got 1.5",
    ),
    "another parameter": (
        lambda: ManyToOne(RNNCell(), 2, w_hhh=ml.Tensor([1.0])),
        SignatureError,
        "ManyToOne: has no argument 'w_hhh', did you mean 'w_hh'?",
    ),
    "no attribute": (
        lambda: ManyToOne(Silent(), 2),
        OptionError,
        "ManyToOne: Silent does not say its state_keys",
    ),
    "no input": (
        lambda: ManyToOne(Lacking(), 2),
        OptionError,
        "ManyToOne: Lacking requires an input 'weight', it has input, prev_total, mask",
    ),
    "no output": (
        lambda: ManyToOne(Odd(), 2),
        OptionError,
        "ManyToOne: Odd requires an output 'sum_compl', it has total, total_compl, output",
    ),
    "a state elsewhere": (
        lambda: ManyToOne(Elsewhere(), 2),
        OptionError,
        "ManyToOne: the hidden_key of Elsewhere must be one of its state_keys, got 'total' and []",
    ),
    "the base": (
        lambda: RNN(RNNCell()),
        SignatureError,
        "RNN: is the base of recurrent networks and none itself\n"
        "  help: use SimpleRNN(hidden_size) for a layer over sequences, or ManyToOne, OneToMany or"
        " EncoderDecoder for cells",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, error, text = REFUSED[case]
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == text


# --- against PyTorch, whose packed sequences are batches of falling length -----------------------

SIZES = (4, 3, 2, 2)  # rows of the steps: sequences of 4, 4, 2 and 1 steps


def of_torch(kind, layer):
    """The parameters of a layer of PyTorch under the names that they have here, as tensors."""
    import torch

    w_ih, w_hh = layer.weight_ih_l0, layer.weight_hh_l0
    b_ih, b_hh = layer.bias_ih_l0, layer.bias_hh_l0
    if kind == "rnn":
        return {"w_ih": w_ih, "w_hh": w_hh, "bias_h": b_ih + b_hh}
    if kind == "gru":
        gates = {"w_n": w_ih[2 * H :], "w_hn": w_hh[2 * H :]}
        gates |= {"bias_n": b_ih[2 * H :], "bias_hn": b_hh[2 * H :]}
    else:
        gates = {}
    for at, gate in enumerate({"lstm": "ifco", "gru": "ru"}[kind]):
        rows = slice(at * H, at * H + H)
        gates[f"w_{gate}"] = torch.cat([w_ih[rows], w_hh[rows]], dim=1)
        gates[f"bias_{gate}"] = (b_ih + b_hh)[rows]
    return gates


@pytest.mark.frameworks
@pytest.mark.parametrize("name", BACKENDS)
@each_cell
def test_against_torch(kind, name):
    """Last hidden states and outputs of a packed batch, and their gradients."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    make, sizes_of, _, states = CELLS[kind]
    layer = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](D, H).double()
    head = torch.nn.Linear(H, 5).double()
    steps = [torch.randn(n, D, dtype=torch.float64, requires_grad=True) for n in SIZES]
    begin = {
        state: torch.randn(1, SIZES[0], H, dtype=torch.float64, requires_grad=True)
        for state in states
    }
    packed = torch.nn.utils.rnn.PackedSequence(torch.cat(steps), torch.tensor(SIZES))
    found, last = layer(packed, tuple(begin.values()) if kind == "lstm" else begin["hidden"])
    hidden = last[0] if kind == "lstm" else last
    wanted = dict(
        zip((f"output{i}" for i in range(4)), head(found.data).split(SIZES), strict=True)
    ) | {"hidden_concat": hidden[0]}

    own = of_torch(kind, layer)
    heads = [key for key in sizes_of(1, 1, 1) if key not in own]
    own |= dict(zip(heads, head.parameters(), strict=True))
    given = {key: value.detach().numpy() for key, value in own.items()}
    given |= {f"input{i}": x.detach().numpy()[:, None] for i, x in enumerate(steps)}
    given |= {f"initial_{k}": v.detach().numpy().reshape(-1, 1, H) for k, v in begin.items()}
    cotangents = {k: np.random.default_rng(1).standard_normal(v.shape) for k, v in wanted.items()}
    total = sum((wanted[k] * torch.tensor(c)).sum() for k, c in cotangents.items())
    total.backward()
    slopes = {f"input{i}": x.grad for i, x in enumerate(steps)}
    slopes |= {f"initial_{k}": v.grad for k, v in begin.items()}
    slopes |= {key: own[key].grad for key in heads}
    slopes |= gradients_of_torch(kind, layer)
    outputs, gradients = run(
        ManyToOne(make(), 4),
        given,
        name,
        {k: c[:, None] for k, c in cotangents.items()},
        list(slopes),
        fixed=True,
    )
    for key, value in wanted.items():
        assert far(outputs[key][:, 0], value.detach().numpy(), 1e-12) is None, key
    for key, slope in slopes.items():
        wanted_slope = np.asarray(slope).reshape(given[key].shape)
        assert far(gradients[key], wanted_slope, 1e-11) is None, key


def gradients_of_torch(kind, layer):
    """Gradients under the names here; that of a sum of biases is that of either."""
    grads = {name: parameter.grad for name, parameter in layer.named_parameters()}
    slopes = of_torch(kind, SimpleNamespace(**grads))
    own = ("bias_n", "bias_hn")
    return {k: v / 2 if "bias" in k and k not in own else v for k, v in slopes.items()}


@pytest.mark.parametrize("cell", [RNNCell, ml.models.LSTMCell, ml.models.GRUCell])
def test_cells_run_over_open_batches(cell):
    step = cell()
    states = [f"prev_{state}" for state in sorted(step.state_keys)]
    model = ml.Model()
    model |= step.connect(input="x", **{key: key for key in states}, hidden="h")
    model.set_shapes(x=[None, 1, 3], prev_hidden=[None, 1, 4])
    model.expose_keys("h")
    data = {"x": np.linspace(-1, 1, 15).reshape(5, 1, 3)}
    data |= {key: np.linspace(-1, 0.5, 20).reshape(5, 1, 4) for key in states}
    pm = ml.compile(model, ml.NumpyBackend(dtype="float64"), data_keys=set(data))
    params = pm.randomize_params(seed=0)
    whole = pm.evaluate(params, data)["h"]
    assert whole.shape == (5, 1, 4)
    for at in range(5):
        row = pm.evaluate(params, {key: value[at : at + 1] for key, value in data.items()})
        np.testing.assert_allclose(row["h"], whole[at : at + 1], rtol=0, atol=1e-12)
