"""Unknown names lead from what PyTorch, Keras, JAX and NumPy call things to what they are here."""

import re

import mithril as ml
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
    ],
)
@pytest.mark.parametrize("module", [ml, ml.models], ids=["ml", "models"])
def test_of_the_package(module, name, said):
    assert not hasattr(module, name)
    with pytest.raises(AttributeError) as caught:
        getattr(module, name)
    assert isinstance(caught.value, MithrilError)
    assert f"has no attribute {name!r}: {said}" in str(caught.value)


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
        ("evaluate_gradients", "evaluate_gradients is pm.evaluate(params, data, output"),
        ("sumary", "did you mean 'summary'?"),
    ],
)
def test_of_compiled_models(name, said):
    pm = ml.compile(ml.Relu(), ml.CpuBackend(), shapes={"input": [3]})
    assert not hasattr(pm, name)
    with pytest.raises(AttributeError, match=re.escape(said)):
        getattr(pm, name)


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
    ],
)
def test_of_arguments(make, said):
    with pytest.raises(SignatureError, match=re.escape(said)):
        make()


def test_the_tables_name_what_there_is():
    rows = [here for _, here in [
        *peer_names._NAMES.values(),
        *peer_names._MEMBERS.values(),
        *peer_names._OF_COMPILED.values(),
    ]]  # fmt: skip
    for here in rows:
        for path in re.findall(r"\bml\.([A-Za-z_][A-Za-z_.0-9]*)", here.replace("{}", "Adam")):
            value = ml
            for part in path.rstrip(".").split("."):
                value = getattr(value, part)
    of_compiled = [here for _, here in peer_names._OF_COMPILED.values()]
    for member in re.findall(r"\bpm\.([a-z_]+)", " ".join(of_compiled)):
        assert hasattr(ml.PhysicalModel, member), member
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
