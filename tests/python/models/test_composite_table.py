"""The table of composite models (reference 5.1), row by row: arguments with their defaults, the
order of `connect`, keys, canonical keys. What the table has as unnamed constants is no key here."""

import inspect
from dataclasses import dataclass

import mithril as ml
import pytest
from mithril import models as m
from mithril.types import NOT_GIVEN, TBD


@dataclass
class Row:
    make: object
    arguments: str
    connect: str
    inputs: str
    outputs: str
    cin: str
    cout: str


RNN_PARAMETERS = "w_ih=TBD, w_hh=TBD, w_ho=TBD, bias_h=TBD, bias_o=TBD"
GATES = "w_i=TBD, w_f=TBD, w_c=TBD, w_o=TBD, "
GATE_BIASES = "bias_f=TBD, bias_i=TBD, bias_c=TBD, bias_o=TBD"
LSTM_KEYS = "w_f bias_f w_i bias_i w_c bias_c w_o bias_o"
RNN_KEYS = "w_hh w_ih bias_h w_ho bias_o"
DECODER_KEYS = " ".join(f"decoder_{key}" for key in RNN_KEYS.split())
FLAGS = "threshold=None, is_binary=False, is_pred_one_hot=True, is_label_one_hot=True, "
SCORES = "average='micro', n_classes=None, " + FLAGS + "pred=TBD, label=TBD"
TABLE = {
    "Layer": Row(
        lambda: m.Layer(ml.Relu()),
        "activation, dimension=None, input=TBD, weight=TBD, bias=TBD",
        "input weight bias output",
        "weight input bias",
        "output",
        "input",
        "output",
    ),
    "L1": Row(m.L1, "input=TBD", "input output", "input", "output", "input", "output"),
    "L2": Row(m.L2, "input=TBD", "input output", "input", "output", "input", "output"),
    "QuadraticFormRegularizer": Row(
        m.QuadraticFormRegularizer,
        "input=TBD, kernel=TBD",
        "input kernel output",
        "input kernel",
        "output",
        "input",
        "output",
    ),
    "RBFKernel": Row(
        m.RBFKernel,
        "input1=TBD, input2=TBD, l_scale=TBD, sigma=TBD",
        "input1 input2 l_scale sigma output",
        "input1 input2 sigma l_scale",
        "output",
        "input1 input2",
        "output",
    ),
    "PolynomialKernel": Row(
        m.PolynomialKernel,
        "robust=True, input1=TBD, input2=TBD, poly_coef=TBD, degree=TBD",
        "input1 input2 poly_coef degree output",
        "input2 input1 poly_coef degree",
        "output",
        "input1 input2",
        "output",
    ),
    "KernelizedSVM": Row(
        lambda: m.KernelizedSVM(m.RBFKernel()),
        "kernel, weight=TBD, bias=TBD, **kwargs",
        "input1 input2 weight bias output",
        "input1 input2 sigma l_scale weight bias",
        "kernel output",
        "input1 input2",
        "output",
    ),
    "LinearSVM": Row(
        m.LinearSVM,
        "input=TBD, weight=TBD, bias=TBD",
        "input weight bias output decision_output",
        "weight input bias",
        "output decision_output",
        "input",
        "output",
    ),
    "LogisticRegression": Row(
        m.LogisticRegression,
        "input=TBD, weight=TBD, bias=TBD",
        "input weight bias output probs_output",
        "weight input bias",
        "output probs_output",
        "input",
        "output",
    ),
    "MLP": Row(
        lambda: m.MLP([ml.Relu(), ml.Relu()], [3, 2]),
        "activations, dimensions, input_name_templates=None, input=TBD, **kwargs",
        "input output",
        "weight0 input bias0 weight1 bias1",
        "output",
        "input",
        "output",
    ),
    "Metric": Row(
        m.Metric,
        FLAGS + "pred=TBD, label=TBD",
        "pred label output pred_formatted label_formatted",
        "label pred",
        "pred_formatted label_formatted output",
        "pred",
        "label_formatted output pred_formatted",
    ),
    "Accuracy": Row(
        m.Accuracy,
        FLAGS + "pred=TBD, label=TBD",
        "pred label output",
        "label pred",
        "output",
        "pred",
        "output",
    ),
    **{
        name: Row(
            getattr(m, name), SCORES, "pred label output", "label pred", "output", "pred", "output"
        )
        for name in ("Precision", "Recall", "F1")
    },
    "RNNCell": Row(
        m.RNNCell,
        "input=TBD, " + RNN_PARAMETERS,
        "input prev_hidden w_ih w_hh w_ho bias_h bias_o hidden hidden_compl output",
        "input prev_hidden " + RNN_KEYS,
        "output hidden hidden_compl",
        "input",
        "output",
    ),
    "LSTMCell": Row(
        m.LSTMCell,
        "input=TBD, " + GATES + "w_out=TBD, " + GATE_BIASES + ", bias_out=TBD",
        "input prev_hidden prev_cell w_i w_f w_c w_o w_out bias_f bias_i bias_c bias_o bias_out"
        " hidden cell hidden_compl output",
        "input prev_cell prev_hidden " + LSTM_KEYS + " w_out bias_out",
        "hidden cell hidden_compl output",
        "input",
        "output",
    ),
    "LSTMCellBody": Row(
        m.LSTMCellBody,
        "input=TBD, prev_hidden=TBD, prev_cell=TBD, " + GATES + GATE_BIASES,
        "input prev_hidden prev_cell w_i w_f w_c w_o bias_f bias_i bias_c bias_o output",
        "input prev_hidden w_f bias_f prev_cell w_i bias_i w_c bias_c w_o bias_o",
        "output",
        "prev_cell",
        "output",
    ),
    "OneToMany": Row(
        lambda: m.OneToMany(m.RNNCell(), 2),
        "cell_type, max_sequence_length, teacher_forcing=False, input=TBD, **kwargs",
        "input",
        "input initial_hidden " + RNN_KEYS + " target1",
        "output0 output1",
        "input",
        "output1",
    ),
    "OneToManyInference": Row(
        lambda: m.OneToManyInference(m.RNNCell(), 2),
        "cell_type, max_sequence_length, input=TBD, **kwargs",
        "input",
        "input initial_hidden " + RNN_KEYS,
        "output0 output1",
        "input",
        "output1",
    ),
    "ManyToOne": Row(
        lambda: m.ManyToOne(m.RNNCell(), 2),
        "cell_type, max_sequence_length, hidden_concat=TBD, **kwargs",
        "hidden_concat",
        "input0 initial_hidden " + RNN_KEYS + " input1",
        "output1 output0 hidden_concat",
        "input0",
        "hidden_concat",
    ),
    "EncoderDecoder": Row(
        lambda: m.EncoderDecoder(m.RNNCell(), 2, 2),
        "cell_type, max_input_sequence_length, max_target_sequence_length,"
        " teacher_forcing=False, indices=TBD",
        "indices",
        f"input0 initial_hidden {RNN_KEYS} input1 indices decoder_input {DECODER_KEYS} target1",
        "output0 output1",
        "decoder_input input0",
        "output1",
    ),
    "EncoderDecoderInference": Row(
        lambda: m.EncoderDecoderInference(m.RNNCell(), 2, 2),
        "cell_type, max_input_sequence_length, max_target_sequence_length",
        "",
        f"input0 initial_hidden {RNN_KEYS} input1 decoder_input {DECODER_KEYS}",
        "output0 output1",
        "decoder_input input0",
        "output1",
    ),
}

each = pytest.mark.parametrize("name", TABLE)


def arguments_of(cls):
    out = []
    for parameter in list(inspect.signature(cls.__init__).parameters.values())[1:]:
        if parameter.name in ("name", "init"):  # `init` is ours
            assert parameter.kind is parameter.KEYWORD_ONLY and parameter.default is None
        elif parameter.kind is parameter.VAR_KEYWORD:
            out.append("**kwargs")
        elif parameter.default is parameter.empty:
            out.append(parameter.name)
        else:
            default = "TBD" if parameter.default is TBD else repr(parameter.default)
            out.append(f"{parameter.name}={default}")
    return ", ".join(out)


@each
def test_arguments(name):
    assert arguments_of(getattr(ml, name)) == TABLE[name].arguments


@each
def test_order_of_connect(name):
    parameters = list(inspect.signature(getattr(ml, name).connect).parameters.values())[1:]
    named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
    assert " ".join(p.name for p in named) == TABLE[name].connect
    assert all(p.default is NOT_GIVEN for p in named)


@each
def test_keys(name):
    row, model = TABLE[name], TABLE[name].make()
    assert " ".join(model.input_keys) == row.inputs
    assert " ".join(model.output_keys) == row.outputs
    assert sorted(c.key for c in model.conns.cins) == row.cin.split()
    assert sorted(c.key for c in model.conns.couts) == sorted(row.cout.split())
    assert model.is_frozen and model.default_name == name


@each
def test_places_of_a_call_are_those_of_connect(name):
    row = TABLE[name]
    model, outer = row.make(), ml.Model()
    inputs = [key for key in row.connect.split() if key in row.inputs.split()]
    outer |= model(*(f"wire_{key}" for key in inputs))
    wires = dict(zip(outer.input_keys, row.inputs.split(), strict=True))
    named = {wire: key for wire, key in wires.items() if not wire.startswith("$")}
    assert named == {f"wire_{key}": key for key in inputs}


@each
def test_a_file_and_a_copy(name):
    model = TABLE[name].make()
    loaded = ml.Model.from_json(model.to_json())
    assert loaded.to_json() == model.to_json()
    for other in (loaded, model.clone()):
        assert other.input_keys == model.input_keys
        assert other.output_keys == model.output_keys
        assert other.default_name == name and other.is_frozen
    assert type(model.clone()) is type(model) and type(loaded) is ml.Model
    assert model.clone().factory_args.keys() == model.factory_args.keys()


@each
def test_a_name(name):
    cls, given = type(TABLE[name].make()), TABLE[name].make().factory_args
    assert cls(**given, name="mine").name == "mine"


# Sizes of the table, the same letter for the same size; "V" stands for any number of them.
SHAPES = {
    "Layer": (
        lambda: m.Layer(ml.Relu(), 3),
        {"input": [2, 7, 5]},
        {"weight": [3, 5], "bias": [3], "output": [2, 7, 3]},
    ),
    "MLP": (
        lambda: m.MLP([ml.Relu(), ml.Relu()], [3, 2]),
        {"input": [4, 5]},
        {"weight0": [3, 5], "bias0": [3], "weight1": [2, 3], "bias1": [2], "output": [4, 2]},
    ),
    "L1": (m.L1, {"input": [2, 3]}, {"output": []}),
    "L2": (m.L2, {"input": [2, 3]}, {"output": []}),
    "QuadraticFormRegularizer": (
        m.QuadraticFormRegularizer,
        {"input": [1, 5]},
        {"kernel": [5, 5], "output": [1, 1]},
    ),
    "RBFKernel": (
        m.RBFKernel,
        {"input1": [4, 3], "input2": [5, None]},
        {"input2": [5, 3], "sigma": [1], "l_scale": [1], "output": [4, 5]},
    ),
    "PolynomialKernel": (
        m.PolynomialKernel,
        {"input1": [4, 3], "input2": [5, None]},
        {"input2": [5, 3], "degree": [], "output": [4, 5]},
    ),
    "KernelizedSVM": (
        lambda: m.KernelizedSVM(m.RBFKernel()),
        {"input1": [4, 3], "input2": [5, None]},
        {"input2": [5, 3], "kernel": [4, 5], "weight": [1, 5], "bias": [1], "output": [4, 1]},
    ),
    "LinearSVM": (
        m.LinearSVM,
        {"input": [4, 7, 3]},
        {"weight": [1, 3], "bias": [1], "output": [4, 7, 1], "decision_output": [4, 7, 1]},
    ),
    "LogisticRegression": (
        m.LogisticRegression,
        {"input": [4, 3]},
        {"weight": [1, 3], "bias": [1], "output": [4, 1], "probs_output": [4, 1]},
    ),
    "Metric": (
        m.Metric,
        {"pred": [6, 3], "label": [6, 3]},
        {"pred_formatted": [6], "label_formatted": [6], "output": [6]},
    ),
    "Accuracy": (m.Accuracy, {"pred": [6, 3]}, {"output": []}),
    "Precision": (m.Precision, {"pred": [6, 3]}, {"output": []}),
    "Recall": (m.Recall, {"pred": [6, 3]}, {"output": []}),
    "F1": (m.F1, {"pred": [6, 3]}, {"output": []}),
    "RNNCell": (
        m.RNNCell,
        {"input": [4, 1, 2], "prev_hidden": [6, 1, 3], "output": [4, 1, 5]},
        {"w_hh": [3, 3], "w_ih": [3, 2], "bias_h": [3], "w_ho": [5, 3], "bias_o": [5]}
        | {"hidden": [4, 1, 3], "hidden_compl": [2, 1, 3]},
    ),
    "LSTMCell": (
        m.LSTMCell,
        {"input": [4, 1, 2], "prev_hidden": [6, 1, 3], "output": [4, 1, 5]},
        {"prev_cell": [6, 1, 3], "hidden": [4, 1, 3], "cell": [4, 1, 3], "bias_f": [3]}
        | {"hidden_compl": [2, 1, 3], "w_out": [5, 3], "bias_out": [5], "w_i": [3, 5]},
    ),
    "LSTMCellBody": (
        m.LSTMCellBody,
        {"input": [4, 1, 2], "prev_cell": [4, 1, 3]},
        {"prev_hidden": [4, 1, 3], "w_c": [3, 5], "bias_o": [3], "output": [8, 1, 3]},
    ),
    "OneToMany": (
        lambda: m.OneToMany(m.RNNCell(), 2),
        {"input": [4, 1, 2], "initial_hidden": [4, 1, 3], "target1": [3, 1, 2]},
        {"output0": [4, 1, 2], "output1": [3, 1, 2], "w_hh": [3, 3], "w_ih": [3, 2]}
        | {"bias_h": [3], "w_ho": [2, 3], "bias_o": [2]},
    ),
    "OneToManyInference": (
        lambda: m.OneToManyInference(m.RNNCell(), 2),
        {"input": [4, 1, 2], "initial_hidden": [4, 1, 3]},
        {"output0": [4, 1, 2], "output1": [4, 1, 2], "w_ho": [2, 3], "bias_o": [2]},
    ),
    "ManyToOne": (
        lambda: m.ManyToOne(m.RNNCell(), 2),
        {"input0": [4, 1, 2], "input1": [3, 1, None], "initial_hidden": [4, 1, 3]},
        {"input1": [3, 1, 2], "hidden_concat": [4, 1, 3], "w_ih": [3, 2]},
    ),
    "EncoderDecoder": (
        lambda: m.EncoderDecoder(m.RNNCell(), 2, 2),
        {"input0": [4, 1, 2], "input1": [3, 1, 2], "initial_hidden": [4, 1, 3]}
        | {"decoder_input": [4, 1, 6], "target1": [2, 1, 6]},
        {"decoder_w_hh": [3, 3], "decoder_w_ih": [3, 6], "output0": [4, 1, 6]}
        | {"output1": [2, 1, 6], "decoder_w_ho": [6, 3]},
    ),
    "EncoderDecoderInference": (
        lambda: m.EncoderDecoderInference(m.RNNCell(), 2, 2),
        {"input0": [4, 1, 2], "input1": [3, 1, 2], "initial_hidden": [4, 1, 3]}
        | {"decoder_input": [4, 1, 6]},
        {"decoder_w_ih": [3, 6], "output0": [4, 1, 6], "decoder_w_ho": [6, 3]},
    ),
}


@each
def test_shapes(name):
    make, given, found = SHAPES[name]
    model = make()
    model.set_shapes(given)
    assert {key: model.shapes[key] for key in found} == found


TRAINABLE = ("weight", "bias", "w_", "decoder_bias", "decoder_w_")


@each
def test_what_is_trained(name):
    model = TABLE[name].make()
    for key in model.input_keys:
        assert bool(model._node.differentiable(key)) == key.startswith(TRAINABLE), key
