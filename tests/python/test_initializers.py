"""How parameters start: what `init=` of layers and `set_initializers` of models say (K9)."""

import pickle

import mithril as ml
import numpy as np
import pytest


def drawn(model, shapes, seed=3, backend=None, **options):
    options = {"mode": "train", **options}
    pm = ml.compile(model, backend or ml.NumpyBackend(), shapes=shapes, **options)
    return pm.randomize_params(seed=seed)


LAYERS = {
    "Linear": (lambda init: ml.Linear(3, init=init), [2, 4]),
    "Convolution1D": (lambda init: ml.Convolution1D(3, 2, init=init), [2, 4, 8]),
    "Convolution2D": (lambda init: ml.Convolution2D(3, 2, init=init), [2, 4, 8, 8]),
    "ConvTranspose2D": (lambda init: ml.ConvTranspose2D(3, 2, init=init), [2, 4, 8, 8]),
    "BatchNorm1D": (lambda init: ml.BatchNorm1D(init=init), [2, 4]),
    "LayerNorm": (lambda init: ml.LayerNorm(init=init), [2, 4]),
    "GroupNorm": (lambda init: ml.GroupNorm(2, init=init), [2, 4, 8]),
    "RMSNorm": (lambda init: ml.RMSNorm(init=init), [2, 4]),
    "Embedding": (lambda init: ml.Embedding(5, 3, init=init), None),
    "PReLU": (lambda init: ml.PReLU(init=init), [2, 4]),
    "Layer": (lambda init: ml.models.Layer(ml.Relu(), 3, init=init), [2, 4]),
    "MLP": (lambda init: ml.MLP([ml.Relu(), ml.Tanh()], [3, 2], init=init), [2, 4]),
    "LinearSVM": (lambda init: ml.models.LinearSVM(init=init), [2, 4]),
    "LogisticRegression": (lambda init: ml.models.LogisticRegression(init=init), [2, 4]),
    "PolynomialRegression": (lambda init: ml.models.PolynomialRegression(2, 3, init=init), [2, 4]),
    "LSTM": (lambda init: ml.LSTM(3, bidirectional=True, init=init), [2, 5, 4]),
    "GRU": (lambda init: ml.GRU(3, num_layers=2, init=init), [2, 5, 4]),
    "SimpleRNN": (lambda init: ml.SimpleRNN(3, init=init), [2, 5, 4]),
    "MultiHeadAttention": (lambda init: ml.MultiHeadAttention(2, init=init), [2, 5, 4]),
}  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_with_parameters_takes_init(layer):
    make, shape = LAYERS[layer]
    model = make(0.25)
    key = "query" if layer == "MultiHeadAttention" else "input"
    params = drawn(model, {} if shape is None else {key: shape})
    assert params and all((value == 0.25).all() for value in params.values())
    again = type(model)(**model.factory_args)
    again_params = drawn(again, {} if shape is None else {key: shape})
    assert all((value == 0.25).all() for value in again_params.values())
    other = drawn(make(None), {} if shape is None else {key: shape})
    assert not all((value == 0.25).all() for value in other.values())


def test_every_class_with_parameters_has_the_argument():
    """What the registry says is trained, and the table above."""
    import inspect

    for op in ml._core.ops():
        if not op["python_name"]:
            continue
        layer = getattr(ml.models, op["python_name"])
        has_init = "init" in inspect.signature(layer).parameters
        assert has_init == any(i["trainable"] for i in op["inputs"]), layer


def test_starts_are_the_same_on_every_backend(backend_name):
    model = ml.Model()
    model |= ml.Linear(3, init={"weight": "kaiming_normal", "bias": "ones"})(input="x")
    model += ml.Linear(2, init="xavier_uniform", use_bias=False)(output="y")
    got = drawn(model, {"x": [2, 5]}, backend=ml.get_backend(backend_name))
    want = drawn(model, {"x": [2, 5]})
    assert list(got) == list(want)
    for name, value in want.items():
        np.testing.assert_array_equal(np.asarray(got[name]), value)


@pytest.mark.parametrize("shape", [(300, 200), (64, 32, 3, 3), (40, 30, 25)], ids=str)
@pytest.mark.parametrize(
    "name", ["xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal"]
)
def test_schemes_have_the_spread_of_pytorch(name, shape):
    torch = pytest.importorskip("torch")
    make = {2: lambda: ml.Linear(shape[0], init={"weight": name}),
            3: lambda: ml.Convolution1D(shape[2], shape[0], init={"weight": name}),
            4: lambda: ml.Convolution2D(shape[2], shape[0], init={"weight": name})}  # fmt: skip
    given = [2, shape[1], *[30] * (len(shape) - 2)]
    got = drawn(make[len(shape)](), {"input": given})["weight"]
    assert got.shape == shape
    want = torch.empty(shape)
    options = {"nonlinearity": "relu"} if name.startswith("kaiming") else {}
    getattr(torch.nn.init, name + "_")(want, **options)
    assert abs(got.std() / float(want.std()) - 1) < 0.03 and abs(got.mean()) < 0.02 * got.std() * 5
    if name.endswith("uniform"):
        assert 0.99 < np.abs(got).max() / float(want.abs().max()) < 1.01
    else:
        assert np.abs(got).max() > 3 * got.std()


def test_zeros_ones_and_numbers():
    model = ml.Model()
    model |= ml.Linear(2, init={"weight": "zeros", "bias": -0.5}, name="a")(input="x")
    model += ml.Linear(2, init="ones", name="b")(output="y")
    params = drawn(model, {"x": [1, 3]}, naming="path")
    assert params["a.weight"].tolist() == [[0] * 3] * 2 and params["a.bias"].tolist() == [-0.5] * 2
    assert params["b.weight"].tolist() == [[1] * 2] * 2 and params["b.bias"].tolist() == [1] * 2


def test_a_number_is_a_float_before_types_are_known():
    model = ml.Model()
    model |= ml.Linear(2, init={"bias": 2})(input="x", bias="b", output="y")
    assert ml.compile(model, ml.NumpyBackend()).get_parameters()["b"].dtype == np.float32


def test_fan_in_of_what_no_layer_says():
    embedding = drawn(ml.Embedding(1000, 16, init="uniform_fan_in"), {})["weight"]
    assert 0.249 < np.abs(embedding).max() <= 0.25  # 16 inputs of each row
    norm = drawn(ml.LayerNorm(init="uniform_fan_in"), {"input": [2, 400]})["weight"]
    assert 0.045 < np.abs(norm).max() <= 0.05


def nested():
    block = ml.Model(name="block")
    block |= ml.Linear(3, name="first", init="zeros")(input="x", weight="w", output="h")
    block |= ml.Linear(3, name="second")(input="h", output="y")
    model = ml.Model()
    model |= block(x="x", y="y", w="w_of_block")
    return model, block


def test_names_are_those_of_the_model_or_the_path():
    model, block = nested()
    block.set_initializers({"w": 2, "second.bias": 3})
    params = drawn(model, {"x": [1, 3]}, naming="path")
    assert (params["w_of_block"] == 2).all() and (params["block.second.bias"] == 3).all()
    assert (params["block.first.bias"] == 0).all()
    model.set_initializers({"block.*": 4})  # not of the wire that the model itself names
    params = drawn(model, {"x": [1, 3]}, naming="path")
    assert (params["w_of_block"] == 2).all() and (params["block.second.bias"] == 4).all()
    assert (params["block.second.weight"] == 4).all() and (params["block.first.bias"] == 4).all()


def test_what_is_said_around_a_part_and_later_counts_first():
    model, _ = nested()
    model.set_initializers("ones")
    assert all((value == 1).all() for value in drawn(model, {"x": [1, 3]}).values())
    model.set_initializers({"*bias": 5, "*.first.*": 6})
    params = drawn(model, {"x": [1, 3]}, naming="path")
    assert (params["block.first.bias"] == 6).all() and (params["block.second.bias"] == 5).all()
    assert (params["w_of_block"] == 1).all()
    model.set_initializers("ones")  # again: now it is the last
    assert all((value == 1).all() for value in drawn(model, {"x": [1, 3]}).values())


def test_a_value_where_training_starts_and_a_call_count_before_layers():
    model = ml.Model()
    model |= ml.Linear(1, init="ones")(input="x", weight="w", bias="b", output="y")
    model.set_values({"w": ml.Tensor([[7.0, 8.0]])}, initial=True)
    pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": [1, 2]})
    params = pm.randomize_params(0)
    assert params["w"].tolist() == [[7.0, 8.0]] and params["b"].tolist() == [1.0]
    assert pm.randomize_params(0, init={"b": "zeros"})["b"].tolist() == [0.0]


def test_open_shapes_are_filled_in_later():
    model = ml.Model()
    model |= ml.Linear(2, init={"weight": "xavier_uniform", "bias": "ones"})(
        input="x", weight="w", bias="b", output="y"
    )
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"})
    params = pm.randomize_params(0)
    assert params["b"].tolist() == [1, 1] and not hasattr(params["w"], "sum")
    pm.evaluate(params, {"x": np.ones((1, 3), np.float32)})
    assert params["w"].shape == (2, 3) and np.abs(params["w"]).max() <= np.sqrt(6 / 5)


@pytest.mark.parametrize("copy", [
    lambda model: model.clone(),
    lambda model: pickle.loads(pickle.dumps(model)),
    lambda model: ml.Model.from_json(model.to_json()),
], ids=["clone", "pickle", "json"])  # fmt: skip
def test_copies_start_alike(copy):
    model, block = nested()
    model.set_initializers({"block.second.*": "kaiming_uniform"}, w_of_block="xavier_normal")
    block.set_initializers({"second.bias": 1})
    model.set_initializers({"block.second.bias": 2})
    want = drawn(model, {"x": [1, 3]})
    got = drawn(copy(model), {"x": [1, 3]})
    assert list(got) == list(want)
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)


def test_a_shared_weight_starts_as_its_first_reader_says():
    model = ml.Model()
    model |= ml.Linear(3, init="ones")(input="x", weight="w", output="h")
    model |= ml.Linear(3, init="zeros")(input="h", weight="w", output="y")
    params = drawn(model, {"x": [1, 3]})
    assert (params["w"] == 1).all()


def test_what_was_compiled_stays_as_it_was():
    model = ml.Model()
    model |= ml.Linear(2, init="ones")(input="x", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": [1, 3]})
    model.set_initializers("zeros")
    assert (pm.randomize_params(0)["weight"] == 1).all()
    assert (drawn(model, {"x": [1, 3]})["weight"] == 0).all()


def test_training_starts_where_the_model_says():
    model = ml.Model()
    model |= ml.Linear(1, init={"weight": 0.5, "bias": "zeros"})(input="x", output="y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="t", reduce_steps=[ml.Mean()])
    x, t = np.array([[1.0, 3.0]], np.float32), np.array([[0.0]], np.float32)
    pm = ml.compile(train, ml.NumpyBackend(), data_keys={"x", "t"}, shapes={"x": [1, 2]})
    outputs = pm.evaluate(pm.get_parameters(), {"x": x, "t": t})
    np.testing.assert_allclose(outputs["final_cost"], 4.0)


def test_names_of_a_training_are_its_own_or_the_models():
    model = ml.Model()
    model |= ml.Linear(2, name="body")(input="x")
    model += ml.Linear(1, name="head")(output="y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="t", reduce_steps=[ml.Mean()])
    train.set_initializers({"body.*": 0, "head.weight": 2})
    options = {"data_keys": {"x", "t"}, "shapes": {"x": [1, 2]}, "naming": "path"}
    params = ml.compile(train, ml.NumpyBackend(), **options).randomize_params(0)
    assert (params["body.weight"] == 0).all() and (params["head.weight"] == 2).all()
    with pytest.raises(ml.KeyNotFound, match="no parameter 'tail"):
        train.set_initializers({"tail.*": 0})


def test_what_was_said_goes_with_a_new_name():
    model = ml.Model()
    layer = ml.Linear(2, name="l")
    model |= layer(input="x", weight="w", output="y")
    model.set_initializers({"w": 4, "l.bias": 5})
    model.rename_key("w", "w2")
    model.expose_keys(b=layer.bias)
    params = drawn(model, {"x": [1, 3]})
    assert (params["w2"] == 4).all() and (params["b"] == 5).all()


def test_a_refused_init_leaves_tensors_to_their_owner():
    weight = ml.Tensor(np.ones((3, 4)).tolist())
    for make in (lambda **init: ml.MLP([ml.Relu()], [3], weight0=weight, **init),
                 lambda **init: ml.Linear(3, weight=weight, **init)):  # fmt: skip
        with pytest.raises(ml.KeyNotFound, match="nope"):
            make(init={"nope": 1})
    assert ml.MLP([ml.Relu()], [3], weight0=weight) is not None


@pytest.mark.parametrize("shapes", [None, {"input": [1, 3]}])
def test_starts_have_the_precision_of_the_backend(shapes):
    layer = ml.Linear(2, init={"bias": 1 / 3})
    pm = ml.compile(layer, ml.NumpyBackend(dtype="float64"), data_keys={"input"}, shapes=shapes)
    assert pm.randomize_params(0)["bias"].tolist() == [1 / 3] * 2


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("init, error, text", [
    ("zero", ml.ArgumentError, "init: no initializer named 'zero', did you mean 'zeros'?"),
    ("none", ml.ArgumentError, "no initializer named 'none'"),
    ({"wight": "zeros"}, ml.KeyNotFound, "Linear has no parameter 'wight', did you mean 'weight'?"),
    ({"w*t_": "zeros"}, ml.KeyNotFound, "its parameters are weight, bias"),
    ({"input": "zeros"}, ml.KeyNotFound, "Linear has no parameter 'input'"),
    ({3: "zeros"}, ml.SignatureError, "init: requires a string, got 3"),
    ({"weight": None}, ml.SignatureError, "init of 'weight': requires the name of an initializer"),
    ({"weight": True}, ml.SignatureError, "or a number, got True"),
    (np.ones(3), ml.SignatureError, "arrays and functions are given to pm.randomize_params(init="),
    (lambda shape: 1, ml.SignatureError, "a number or a dictionary of these, got <function"),
    (["zeros"], ml.SignatureError, r"a dictionary of these, got ['zeros']"),
    (1j, ml.SignatureError, "got 1j"),
    (10**400, ml.ArgumentError, "is beyond all floats"),
], ids=[str(i) for i in range(13)])  # fmt: skip
def test_refused(init, error, text):
    with pytest.raises(error) as refusal:
        ml.Linear(3, init=init)
    assert text in str(refusal.value)
    model = ml.Model()
    model |= ml.Linear(3)(input="input", weight="weight", bias="bias", output="y")
    before = model.to_json()
    with pytest.raises(error):
        model.set_initializers(init)
    assert model.to_json() == before


def test_parameters_of_a_part_that_has_none():
    with pytest.raises(ml.KeyNotFound, match="init: Relu has no parameters"):
        ml.Relu().set_initializers("zeros")
    layer = ml.Linear(3, weight=ml.Tensor(np.ones((3, 2))), use_bias=False)
    with pytest.raises(ml.KeyNotFound, match="init: Linear has no parameters"):
        layer.set_initializers("zeros")


def test_numbers_beyond_the_type():
    pm = ml.compile(ml.Linear(3, init=1e39), ml.NumpyBackend(), shapes={"input": [1, 2]})
    with pytest.raises(ml.errors.DataOverflowError, match=r"init of 'weight': 1e\+39 is beyond"):
        pm.randomize_params(0)


def test_schemes_need_two_axes():
    pm = ml.compile(
        ml.Linear(3, init="kaiming_normal"), ml.NumpyBackend(), shapes={"input": [1, 2]}
    )
    with pytest.raises(ml.ArgumentError, match=r"init of 'bias': 'kaiming_normal' requires two axes"
                       r" or more, its shape is \[3\]") as error:  # fmt: skip
        pm.randomize_params(0)
    assert 'init={"weight": "kaiming_normal"}' in str(error.value)


@pytest.mark.parametrize("value", ['"zeross"', "true", "null", "[1]", '{"dtype": "float32"}'])
def test_a_file_with_another_initializer_is_refused(value):
    model = ml.Model()
    model |= ml.Linear(3, init={"weight": "zeros"})(input="x", output="y")
    text = model.to_json()
    assert text.count('"zeros"') == 1
    with pytest.raises(ml.MithrilError, match="init"):
        ml.Model.from_json(text.replace('"zeros"', value))
