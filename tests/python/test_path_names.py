"""`compile(naming="path")`: keys by the parts that they lie in and their nearest names."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError


def _block(named=False):
    block = ml.Model(name="mlp")
    block |= ml.Linear(4, name="up" if named else None)(input="x", output="h")
    block |= ml.Linear(3)(input="h", output="y")
    block.expose_keys("y")
    return block


def _net(named=False, more=False):
    net = ml.Model(name="net")
    net |= _block(named)(x="x", y="h")
    net |= ml.MultiHeadAttention(1, 3, name="attn", use_bias=False)(query="h", output="a")
    if more:
        net |= ml.Linear(2)(input="a", output="z")
        net.expose_keys("z")
    net |= ml.Linear(2, name="head")(input="a", bias="offset", output="y")
    net.expose_keys("y")
    return net


def _compiled(model, backend=None, **options):
    options = {"shapes": {"x": [1, 5, 3]}, "data_keys": {"x"}, "naming": "path"} | options
    return ml.compile(model, backend or ml.NumpyBackend(dtype="float64"), **options)


NAMES = {
    *("mlp.linear_0.weight", "mlp.linear_0.bias", "mlp.linear_1.weight", "mlp.linear_1.bias"),
    *("attn.w_q", "attn.w_k", "attn.w_v", "attn.w_o", "head.weight", "offset"),
}


def test_names_are_those_of_the_parts():
    assert set(_compiled(_net()).randomize_params(seed=0)) == NAMES
    assert set(_compiled(_net()).get_parameters()) == NAMES


def test_names_and_values_stay_when_a_sibling_is_named_or_added():
    before = _compiled(_net()).randomize_params(seed=3)
    named = _compiled(_net(named=True)).randomize_params(seed=3)
    more = _compiled(_net(more=True)).randomize_params(seed=3)
    assert set(named) == {n.replace("linear_0", "up") for n in NAMES}
    assert set(more) == NAMES | {"linear_0.weight", "linear_0.bias"}
    for key in NAMES:
        np.testing.assert_array_equal(more[key], before[key])
        if "linear_0" not in key:
            np.testing.assert_array_equal(named[key], before[key])


def test_the_default_is_as_it_was():
    pm = _compiled(_net(), naming=None)
    assert {"weight_0", "weight_1", "offset"} <= set(pm.randomize_params(seed=0))


@pytest.mark.parametrize("backend", [ml.CpuBackend, ml.NumpyBackend])
def test_gradients_and_options_take_these_names(backend):
    pm = _compiled(_net(), backend(dtype="float64"), shapes={"x": [1, 5, 3], "head.weight": [2, 3]})
    params = pm.randomize_params(seed=0)
    x = np.linspace(-1, 1, 15).reshape(1, 5, 3)
    _, gradients = pm.evaluate(params, {"x": x}, output_gradients={"y": np.ones((1, 5, 2))})
    assert set(gradients) == NAMES
    np.testing.assert_allclose(np.asarray(gradients["offset"]), [5.0, 5.0])
    _, some = pm.evaluate(
        params, {"x": x}, output_gradients={"y": np.ones((1, 5, 2))}, wrt=["attn.w_q"]
    )
    np.testing.assert_array_equal(some["attn.w_q"], gradients["attn.w_q"])
    fixed = _compiled(_net(), constant_keys={"head.weight": np.zeros((2, 3))})
    assert "head.weight" not in fixed.randomize_params(seed=0)


def test_a_training_model_has_the_names_of_what_it_trains():
    train = ml.TrainModel(_net())
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="y", target="t")
    data = {"data_keys": {"x", "t"}, "shapes": {"x": [1, 5, 3], "t": [1, 5, 2]}}
    trained = _compiled(train, **data).randomize_params(seed=1)
    alone = _compiled(_net()).randomize_params(seed=1)
    assert set(trained) == NAMES
    for key in NAMES:
        np.testing.assert_array_equal(trained[key], alone[key])


def test_names_with_dots_survive_files(tmp_path):
    pm = _compiled(_net())
    params = pm.randomize_params(seed=0)
    ml.formats.write_safetensors(tmp_path / "p.safetensors", params)
    arrays = ml.formats.read_safetensors(tmp_path / "p.safetensors")
    assert set(arrays) == NAMES
    np.savez(tmp_path / "p.npz", **params)
    with np.load(tmp_path / "p.npz") as read:
        assert set(read) == NAMES
        data = {"x": np.ones((1, 5, 3))}
        again = pm.evaluate(dict(read), data)["y"]
        np.testing.assert_array_equal(again, pm.evaluate(params, data)["y"])


def test_of_two_equal_names_the_later_one_gets_an_underscore():
    model = ml.Model()
    model |= ml.Linear(2, name="linear_1")(input="x", output="h")
    model |= ml.Linear(2)(input="h", output="y")
    model.expose_keys("y")
    names = set(_compiled(model, shapes={"x": [1, 3]}).randomize_params(seed=0))
    assert names == {"linear_1.weight", "linear_1.bias", "_linear_1.weight", "_linear_1.bias"}


def test_state_has_its_path():
    model = ml.Model()
    model |= ml.BatchNorm1D(name="norm")(input="x", output="y")
    pm = _compiled(model, shapes={"x": [4, 3]}, mode="train")
    assert {"norm.running_mean", "norm.running_var"} <= set(pm.initial_state())


@pytest.mark.parametrize("options", [{"naming": "paths"}, {"naming": True},
                                     {"naming": "path", "use_short_namings": False}])  # fmt: skip
def test_refused(options):
    with pytest.raises(ArgumentError, match="naming"):
        _compiled(_net(), **options)
