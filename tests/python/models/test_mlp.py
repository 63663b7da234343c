import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, KeyNotFound, OptionError, SignatureError
from mithril.models import MLP, Layer
from models.composite_cases import check, numbers, run


def test_layer(backend_name):
    def by_hand(input, weight, bias):
        return {"output": np.tanh(input @ weight.T + bias)}

    inputs = numbers(1, input=(3, 2, 4), weight=(5, 4), bias=(5,))
    check(Layer(ml.Tanh(), 5), by_hand, inputs, backend_name)


def test_mlp(backend_name):
    def by_hand(input, weight0, bias0, weight1, bias1, weight2, bias2):
        hidden = np.tanh(input @ weight0.T + bias0)
        hidden = 1 / (1 + np.exp(-(hidden @ weight1.T + bias1)))
        return {"output": hidden @ weight2.T + bias2}

    inputs = numbers(
        2, input=(6, 4), weight0=(5, 4), bias0=(5,), weight1=(3, 5), bias1=(3,),
        weight2=(2, 3), bias2=(2,),
    )  # fmt: skip
    model = MLP([ml.Tanh(), ml.Sigmoid(), ml.Buffer()], [5, 3, 2])
    check(model, by_hand, inputs, backend_name)


def test_sizes_of_numpy():
    assert Layer(ml.Relu(), np.int64(3)).shapes["bias"] == [3]


def test_names_of_parameters():
    model = MLP([ml.Relu()] * 2, [3, 2], input_name_templates={"weight": "w", "bias": "b_"})
    assert model.input_keys == ["w0", "input", "b_0", "w1", "b_1"]
    assert MLP([ml.Relu()], [3], {"bias": "b"}).input_keys == ["weight0", "input", "b0"]


def test_one_activation_in_several_places():
    relu = ml.Relu()
    model = MLP([relu, relu, ml.Tanh(), relu], [4, 3, 2, 1])
    names = [next(reversed(layer.dag)).default_name for layer in model.dag]
    assert names == ["Relu", "Relu", "Tanh", "Relu"]
    Layer(relu, 3)  # and once more elsewhere


def test_parameters_with_values():
    weight = [[1.0, 2.0], [3.0, 4.0]]
    model = MLP([ml.Buffer()], [2], weight0=ml.Tensor(weight), bias0=ml.IOKey(shape=[2]))
    inputs = {"input": np.array([[1.0, 1.0]]), "bias0": np.array([10.0, 20.0])}
    outputs, _ = run(model, inputs, "numpy")
    assert outputs["output"].tolist() == [[13.0, 27.0]]


def test_as_a_function_and_by_connect():
    x = ml.IOKey("x")
    called = ml.Model.create(y=MLP([ml.Relu()], [3])(x))
    connected = ml.Model()
    connected |= MLP([ml.Relu()], [3]).connect("x", "y", weight0="w", bias0="b")
    assert called.output_keys == ["y"] and "x" in called.input_keys
    assert connected.input_keys == ["w", "x", "b"]


REFUSED = {
    "as many": (
        lambda: MLP([ml.Relu()], [3, 4]),
        OptionError,
        "MLP: requires one activation for each dimension, got 1 activations and 2 dimensions\n"
        "  help: a layer without an activation has Buffer()",
    ),
    "none": (lambda: MLP([], []), OptionError, "MLP: requires at least one layer, got none"),
    "a class": (
        lambda: MLP([ml.Buffer(), ml.Relu], [3, 3]),
        SignatureError,
        "MLP: activations[1]: requires a model, got <class"
        " 'mithril.models._generated.activation.Relu'>\n  help: make one: Relu()",
    ),
    "no model": (
        lambda: Layer("relu", 3),
        SignatureError,
        "Layer: activation: requires a model, got 'relu'\n  help: such as Relu()",
    ),
    "another stem": (
        lambda: MLP([ml.Relu()], [3], {"wieght": "w"}),
        ArgumentError,
        "MLP: input_name_templates has the keys 'weight' and 'bias', got 'wieght'",
    ),
    "one stem": (
        lambda: MLP([ml.Relu()], [3], {"weight": "p", "bias": "p"}),
        ArgumentError,
        "MLP: input_name_templates must differ, got 'p' for both",
    ),
    "another parameter": (
        lambda: MLP([ml.Relu()], [3], wieght0=ml.Tensor([1.0])),
        SignatureError,
        "MLP: has no argument 'wieght0', did you mean 'weight0'?",
    ),
    "a size": (
        lambda: MLP([ml.Relu()], [-1]),
        ArgumentError,
        "Layer: dimension: requires an integer of at least 0, got -1",
    ),
    "no list": (
        lambda: MLP(ml.Relu(), [3]),
        SignatureError,
        "MLP: activations: requires a list of models, got Relu()",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    make, error, text = REFUSED[case]
    with pytest.raises(error) as caught:
        make()
    assert str(caught.value) == text


def test_the_number_of_layers_is_a_value_and_an_assertion():
    for kind in (ValueError, AssertionError):
        with pytest.raises(kind):
            MLP([ml.Relu()], [3, 4])


def test_a_key_that_is_not_there():
    with pytest.raises(KeyNotFound, match="weight7"):
        MLP([ml.Relu()], [3]).connect(weight7="w")


def test_a_failed_constructor_takes_no_tensor():
    bias = ml.Tensor([1.0, 2.0])
    with pytest.raises(ValueError, match="bias"):
        Layer(ml.Relu(), 3, bias=bias)
    Layer(ml.Relu(), 2, bias=bias)
    with pytest.raises(ValueError, match="one place"):
        Layer(ml.Relu(), 2, bias=bias)
