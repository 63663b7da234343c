"""Unknown names lead from what PyTorch, Keras, JAX and NumPy call things to what they are here."""

import copy
import inspect
import pickle
import re

import mithril as ml
import numpy as np
import pytest
from mithril.base import peer_names
from mithril.errors import MithrilError, SignatureError


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Dense", "Keras' Dense is ml.Linear(dimension)"),
        ("MSELoss", 'PyTorch\'s MSELoss is ml.SquaredError(reduction="mean")'),
        ("Sequential", "PyTorch's Sequential is ml.Model()"),
        (
            "SparseCategoricalCrossentropy",
            "Keras' SparseCategoricalCrossentropy is ml.CrossEntropy()",
        ),
        ("Identity", "PyTorch's Identity is ml.Buffer"),
        ("nn", "PyTorch's nn is ml itself"),
        ("Adam", "Adam is ml.optim.Adam"),
        ("value_and_grad", "JAX's value_and_grad is pm.evaluate("),
        ("Dropout2d", "PyTorch's Dropout2d is x * ml.Dropout(p)(ml.OnesLike()(x[:, :, :1, :1]))"),
        ("InstanceNorm2d", "PyTorch's InstanceNorm2d is ml.InstanceNorm"),
        ("EarlyStopping", "Keras' EarlyStopping is a callback of mithril.training.train_model"),
        ("callbacks", "Keras' callbacks is mithril.training.train_model(..., callbacks=["),
        ("lr_scheduler", "PyTorch's lr_scheduler is optimizer.lr = ..."),
        ("RMSprop", "Keras' RMSprop is not there; ml.optim.Adam is nearest"),
        ("DataLoader", 'any batches: dictionaries, {"x": ..., "y": ...}, in a list'),
        ("load_model", "Keras' load_model is ml.load(path)"),
    ],
)
@pytest.mark.parametrize("module", [ml, ml.models], ids=["ml", "models"])
def test_of_the_package(module, name, said):
    assert not hasattr(module, name)
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert isinstance(caught.value, MithrilError)
    text = str(caught.value)
    assert f"has no attribute {name!r}: " in text and said in text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("view", "PyTorch's view is x.reshape"),
        ("permute", "PyTorch's permute is x.transpose"),
        ("unsqueeze", "PyTorch's unsqueeze is x[:, None]"),
        ("dim", "PyTorch's dim is len(shape)"),
        ("astype", "NumPy's astype is x.cast"),
    ],
)
def test_of_connections(name, said):
    x = ml.IOKey("x")
    assert not hasattr(x, name)
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(x, name)
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(ml.Relu()(x), name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("forward", "PyTorch's forward is pm.evaluate(params, data)"),
        ("fit", "Keras' fit is mithril.training.train_model"),
        ("params", "JAX's params is pm.get_parameters()"),
        ("params", "then the params that pm.step returned"),
        ("state_dict", "state_dict is the params that pm.step returned, {**params, **state}"),
        ("state_dict", "pm.get_parameters() gives initial ones"),
        ("parameters", "parameters is the params that pm.step returned"),
        ("named_parameters", "is the params that pm.step returned"),
        ("get_weights", "is the params that pm.step returned"),
        ("weights", "is the params that pm.step returned"),
        ("save", "PyTorch's save is model.save(path, {**params, **state})"),
        ("evaluate_gradients", "evaluate_gradients is pm.evaluate(params, data, output"),
        ("sumary", "did you mean 'summary'?"),
    ],
)
def test_of_compiled_models(name, said):
    pm = ml.compile(ml.Relu(), ml.CpuBackend(), shapes={"input": [3]})
    assert not hasattr(pm, name)
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(pm, name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fit", "Keras' fit is mithril.training.train_model(pm, backend, batches)"),
        ("eval", 'PyTorch\'s eval is ml.compile(model, backend, mode="eval")'),
        ("train", 'PyTorch\'s train is ml.compile(model, backend, mode="train")'),
        ("to", "PyTorch's to is the backend's device"),
        ("state_dict", "PyTorch's state_dict is params, as pm.step"),
        ("load_state_dict", "is params = ml.formats.load_state_dict(pm, state_dict)"),
        ("predict", "Keras' predict is pm.predict(params, data)"),
        ("parameters", "PyTorch's parameters is pm.randomize_params(seed=0)"),
        ("evaluate", "Keras' evaluate is pm.evaluate(params, data)"),
        ("forward", "PyTorch's forward is the wiring: model |= layer("),
        ("layers", "Keras' layers is model.get_unique_submodel_names()"),
    ],
)
@pytest.mark.parametrize("make", [ml.Model, ml.Relu], ids=["Model", "Relu"])
def test_of_models(make, name, said):
    with pytest.raises(AttributeError, match=f"no wire or member '{name}'") as caught:
        getattr(make(), name)
    assert isinstance(caught.value, MithrilError)
    assert said in str(caught.value)


def test_wires_go_before_names_of_other_libraries():
    model = ml.Model()
    model |= ml.Relu()(input="fit", output="layers")
    assert (model.fit.key, model.layers.key) == ("fit", "layers")


@pytest.mark.parametrize("name", ["trained", "module", "is_traine", "ad", "$1"])
def test_no_private_name_is_suggested(name):
    model = ml.Model()
    model |= ml.Relu()(input="x")
    with pytest.raises(AttributeError) as caught:
        getattr(model, name)
    assert not re.search("mean '[_$]", str(caught.value))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("step", "PyTorch's step is params, opt_state, state, outputs = pm.step(params, opt_state"),
        ("zero_grad", "PyTorch's zero_grad is not needed"),
        ("param_groups", "PyTorch's param_groups is optimizer.lr = ..."),
        ("apply_gradients", "Keras' apply_gradients is optimizer.update(params, gradients"),
        ("learning_rate", "it is 'lr' here"),
        ("updat", "did you mean 'update'?"),
    ],
)
def test_of_optimizers(name, said):
    with pytest.raises(AttributeError, match=re.escape(said)) as caught:
        getattr(ml.optim.Adam(), name)
    assert isinstance(caught.value, MithrilError)


def test_optimizers_are_copied_and_pickled_as_before():
    for twin in (copy.deepcopy(ml.optim.Adam(lr=0.5)), pickle.loads(pickle.dumps(ml.optim.Adam()))):
        assert twin.beta1 == 0.9 and not hasattr(twin, "_momentum")


def test_a_property_of_an_optimizer_keeps_its_error():
    class Mine(ml.optim.SGD):
        @property
        def half(self):
            return self.nothing / 2

    with pytest.raises(AttributeError, match="'nothing'"):
        Mine().half  # noqa: B018


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("RMSprop", "PyTorch's RMSprop is not there; ml.optim.Adam is nearest"),
        ("Adagrad", "PyTorch's Adagrad is not there"),
        ("lr_scheduler", "PyTorch's lr_scheduler is optimizer.lr = ..."),
        ("Adm", "did you mean 'Adam'?"),
    ],
)
def test_of_the_module_of_optimizers(name, said):
    assert not hasattr(ml.optim, name)
    with pytest.raises(MithrilError, match=re.escape(said)):
        getattr(ml.optim, name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("relu", "PyTorch's functional.relu is ml.Relu()(x)"),
        ("softmax", "PyTorch's functional.softmax is ml.Softmax(axis=-1)(x)"),
        ("cross_entropy", 'functional.cross_entropy is ml.CrossEntropy(reduction="mean")'),
        ("layer_norm", "PyTorch's functional.layer_norm is ml.LayerNorm(...)(x)"),
    ],
)
def test_of_functional(name, said):
    with pytest.raises(AttributeError, match=re.escape(said)) as caught:
        getattr(ml.functional, name)
    assert isinstance(caught.value, MithrilError)


def test_functional_is_a_function_still():
    assert pickle.loads(pickle.dumps(ml.functional)) is ml.functional
    assert ml.functional.__doc__.startswith("Each call puts")
    with pytest.raises(SignatureError, match="functional: requires 'function'"):
        ml.functional()


def test_a_slip_still_gets_the_nearest_name():
    with pytest.raises(AttributeError, match="did you mean 'reshape'"):
        ml.IOKey("x").reshap  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean 'Linear'"):
        ml.Linaer  # noqa: B018


def test_errors_of_properties_are_their_own():
    with pytest.raises(ml.errors.ArgumentError, match="has no name before"):
        ml.IOKey().key  # noqa: B018


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ml.Linear(out_features=3), "'out_features': it is 'dimension' here"),
        (lambda: ml.Linear(units=3), "'units': it is 'dimension' here"),
        (lambda: ml.Linear(3, in_features=2), "'in_features': it follows from the input"),
        (lambda: ml.Conv2d(3, in_channels=1), "'in_channels': it follows from the input"),
        (lambda: ml.Conv2d(3, strides=2), "'strides': it is 'stride' here"),
        (lambda: ml.MaxPool2D(pool_size=2), "'pool_size': it is 'kernel_size' here"),
        (lambda: ml.Dropout(rate=0.1), "'rate': it is 'p' here"),
        (lambda: ml.Sum(dim=1), "'dim': it is 'axis' here"),
        (lambda: ml.LSTM(units=8), "'units': it is 'hidden_size' here"),
        (lambda: ml.optim.Adam(learning_rate=0.1), "'learning_rate': it is 'lr' here"),
        (lambda: ml.CrossEntropy(axis=-1), "'axis': the classes are axis 1 of the input"),
        (lambda: ml.BatchNorm2D(axis=-1), "'axis': the channels are axis 1 of the input"),
        (lambda: ml.Conv2D(data_format="channels_last"), "the channels are axis 1 of the input"),
        (
            lambda: ml.Linear(4, activation="relu"),
            "'activation': activations are layers: `model +=",
        ),
        (lambda: ml.LSTM(8, batch_first=True), "'batch_first': the batch is the first axis"),
        (lambda: ml.Relu(init="zeros"), "'init': layers with parameters take init={"),
        (lambda: ml.Linear(3, kernel_initializer="zeros"), 'take init={"weight": ...}, models'),
        (lambda: ml.optim.SGD(lr=0.1, momentum=0.9), "it is ml.optim.Momentum(lr=..., momentum="),
        (lambda: ml.optim.Adam(betas=(0.9, 0.99)), "'betas': they are beta1= and beta2="),
        (lambda: ml.optim.Adam({}, lr=0.1), "opt_state = optimizer.init(params)"),
        (lambda: ml.optim.Adam(params={}), "opt_state = optimizer.init(params)"),
        (
            lambda: ml.Model().compile(None, loss="mse"),
            "losses are those of train = ml.TrainModel(",
        ),
    ],
)
def test_of_arguments(make, said):
    with pytest.raises(SignatureError, match=re.escape(said)):
        make()


@pytest.mark.parametrize(
    ("make", "hint"),
    [
        (lambda: ml.Linear(4, 8), "the width of the input follows from the input: ml.Linear(8)"),
        (lambda: ml.LayerNorm(64), "the width of the input follows from the input: ml.LayerNorm()"),
        (lambda: ml.RMSNorm(64), "the width of the input follows from the input: ml.RMSNorm()"),
        (lambda: ml.InstanceNorm(64), "the channels follow from the input: ml.InstanceNorm()"),
        (lambda: ml.GroupNorm(4, 16), "the channels follow from the input: ml.GroupNorm(4)"),
        (lambda: ml.Linear(4, bias=False), "write use_bias=False; 'bias' takes the array"),
        (lambda: ml.Conv2D(3, 8, bias=True), "write use_bias=True; 'bias' takes the array"),
        (lambda: ml.Softmax(1), "the input comes first: name the argument, ml.Softmax(axis=1)"),
        (lambda: ml.LogSoftmax(-1), "ml.LogSoftmax(axis=-1)"),
        (lambda: ml.Concat(1), "ml.Concat(axis=1)"),
        (lambda: ml.Gelu(approximate="tanh"), "approximate='tanh' is approximate=True"),
        (lambda: ml.SmoothL1Loss(0.5), "ml.SmoothL1Loss(beta=0.5)"),
        (lambda: ml.SquaredError("mean"), "ml.SquaredError(reduction='mean')"),
        (lambda: ml.LSTM(4, 8), "the width of the input follows from the input: ml.LSTM(8)"),
        (lambda: ml.GRU(4, 8, 2), "follows from the input: ml.GRU(8, num_layers=2)"),
        (lambda: ml.SimpleRNN(4, 8), "follows from the input: ml.SimpleRNN(8)"),
        (lambda: ml.LSTM(8, True, 2), "name it: ml.LSTM(8, num_layers=2)"),
        (lambda: ml.LSTM(8, 1), ""),
        (lambda: ml.MultiHeadAttention(64, 8), "heads come first: ml.MultiHeadAttention(8, 64)"),
        (lambda: ml.optim.Adam({"w": 1}), "opt_state = optimizer.init(params), then pm.step("),
        (lambda: ml.optim.SGD([1, 2]), "opt_state = optimizer.init(params), then pm.step("),
    ],
)
def test_of_arguments_in_another_order(make, hint):
    with pytest.raises(MithrilError) as caught:
        make()
    assert hint in caught.value.hint and bool(hint) == bool(caught.value.hint)


FLAGS = [
    (name, parameter)
    for name in sorted(ml.models.__all__)
    if isinstance(cls := getattr(ml.models, name), type) and issubclass(cls, ml.Model)
    for parameter in inspect.signature(cls).parameters.values()
    if isinstance(parameter.default, bool) and name != "Lambda"
]
SIZES = {"hidden_size": 8, "num_heads": 2, "cell_type": ml.LSTMCell(), "n_classes": 3,
         "num_embeddings": 3, "dim": 4, "num_classes": 3, "n": 2, "kernel_size": 3,
         "out_channels": 4, "body": ml.Relu(), "prediction_dim": 2, "output_size": 2,
         "k": 2, "length": 3, "max_sequence_length": 3, "max_input_sequence_length": 3,
         "max_target_sequence_length": 3}  # fmt: skip


@pytest.mark.parametrize(("name", "parameter"), FLAGS, ids=lambda x: getattr(x, "name", x))
def test_no_layer_takes_a_number_for_a_flag(name, parameter):
    """A size in another library's order would make a layer that runs, and is another one."""
    cls = getattr(ml.models, name)
    parameters = inspect.signature(cls).parameters
    required = {key: SIZES[key] for key in parameters if key in SIZES and key != parameter.name}
    required |= {"formula_key": "relu"} if name == "Activation" else {}
    with pytest.raises(MithrilError, match=f"{parameter.name}.*(bool|True or False)"):
        cls(**required, **{parameter.name: 8})


class WithForward(ml.Model):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return ml.Relu()(x)


@pytest.mark.parametrize(
    "call",
    [
        lambda: WithForward()(ml.IOKey("x")),
        lambda: WithForward()(x="x"),
        lambda: WithForward()("x"),
    ],
)
def test_of_a_class_with_forward(call):
    with pytest.raises(MithrilError) as caught:
        call()
    assert caught.value.hint.startswith("forward is not called: write `self |= layer(input=")


def test_what_the_table_says_of_dropout_of_channels_is_so():
    x = ml.IOKey("x")
    model = ml.Model.create(y=x * ml.Dropout(0.5)(ml.OnesLike()(x[:, :, :1, :1])))
    pm = ml.compile(model, ml.NumpyBackend(), mode="train", shapes={"x": [4, 8, 2, 3]})
    data, state = {"x": np.ones((4, 8, 2, 3), "f4")}, pm.initial_state(seed=1)
    y = pm.evaluate({}, data, state=state).outputs["y"].reshape(32, 6)
    assert set(y.ravel()) == {0.0, 2.0}
    assert (y.min(1) == y.max(1)).all()


def test_the_tables_name_what_there_is():
    rows = [here for _, here in [
        *peer_names._NAMES.values(),
        *peer_names._MEMBERS.values(),
        *peer_names._OF_COMPILED.values(),
        *peer_names._OF_MODEL.values(),
        *peer_names._OF_OPTIMIZER.values(),
        *peer_names._OF_OPTIM.values(),
    ]]  # fmt: skip
    rows += [*peer_names._LINES.values(), *peer_names._LINES_OF.values()]
    rows += peer_names._OF_FUNCTIONAL.values()
    for here in rows:
        for path in re.findall(r"\bml\.([A-Za-z_][A-Za-z_.0-9]*)", here.replace("{}", "Adam")):
            value = ml
            for part in path.rstrip(".").split("."):
                value = getattr(value, part)
    for owner, cls in {"pm": ml.PhysicalModel, "model": ml.Model, "train": ml.TrainModel,
                       "optimizer": ml.optim.Adam()}.items():  # fmt: skip
        for member in re.findall(rf"\b{owner}\.([a-z_]+)", " ".join(rows)):
            assert hasattr(cls, member), (owner, member)
    for table, cls in ((peer_names._OF_MODEL, ml.Model), (peer_names._OF_OPTIMIZER, ml.optim.SGD)):
        assert not [name for name in table if hasattr(cls, name)]
    for name in peer_names._OF_COMPILED:
        assert not hasattr(ml.PhysicalModel, name), name
    for name in peer_names._NAMES:
        assert not hasattr(ml, name), name
    for name in peer_names._MEMBERS:
        assert not hasattr(ml.Connection, name), name
    for name in peer_names._ON_AXIS_1:
        assert hasattr(ml, name), name
    members = re.compile(r"\bx\.([a-z_A-Z]+)")
    for here in rows:
        assert all(hasattr(ml.Connection, member) for member in members.findall(here)), here
