"""`load_state_dict`: parameters by the names of modules, and what does not fit."""

import warnings

import mithril as ml
import ml_dtypes
import numpy as np
import pytest
from mithril.errors import UnusedParamsWarning

from tests.python.rows.common import backend_of


def network(backend=None, **options):
    model = ml.Model()
    model |= ml.Convolution2D(3, 4, name="conv")(input="x", output="grid")
    model |= ml.BatchNorm2D(mode=None, name="norm")(input="grid", output="h")
    model |= ml.Mean(axis=(2, 3))(input="h", output="flat")
    model |= ml.Linear(4, use_bias=False, name="fc")(input="flat", output="y")
    options = {"data_keys": {"x"}, "shapes": {"x": [1, 2, 5, 5]}, "naming": "path", **options}
    return ml.compile(model, backend or ml.NumpyBackend(dtype=ml.float64), **options)


def arrays():
    rng = np.random.default_rng(0)
    shapes = {"conv.weight": (4, 2, 3, 3), "conv.bias": (4,), "norm.weight": (4,),
              "norm.bias": (4,), "norm.running_mean": (4,), "norm.running_var": (4,),
              "fc.weight": (4, 4)}  # fmt: skip
    return {name: rng.uniform(0.5, 1.5, shape) for name, shape in shapes.items()}


def by_hand(w, x):
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    grid = np.einsum("ncijkl,ockl->noij", windows, w["conv.weight"])
    channels = {key: value[:, None, None] for key, value in w.items() if value.ndim == 1}
    grid = grid + channels["conv.bias"] - channels["norm.running_mean"]
    grid = grid / np.sqrt(channels["norm.running_var"] + 1e-5) * channels["norm.weight"]
    return (grid + channels["norm.bias"]).mean((2, 3)) @ w["fc.weight"].T


X = np.random.default_rng(1).standard_normal((1, 2, 5, 5))


def test_arrays_find_their_parameters():
    pm, w = network(), arrays()
    params = ml.formats.load_state_dict(pm, w)
    np.testing.assert_allclose(pm.evaluate(params, {"x": X})["y"], by_hand(w, X), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int64", "bool", "float16", ml_dtypes.bfloat16])
def test_numbers_of_any_type_become_floats(dtype):
    ones = {name: np.ones(array.shape, dtype) for name, array in arrays().items()}
    params = ml.formats.load_state_dict(network(), ones)
    assert {array.dtype.name for array in params.values()} == {"float64"}
    assert all(np.all(array == 1) for array in params.values())


def test_matrices_may_lie_the_other_way_around():
    pm, w = network(), arrays()
    turned = {**w, "fc.weight": w["fc.weight"].T}
    params = ml.formats.load_state_dict(pm, turned, transposed=["fc.*"])
    np.testing.assert_allclose(pm.evaluate(params, {"x": X})["y"], by_hand(w, X), rtol=1e-12)


def test_statistics_in_training_are_state():
    pm = network(mode="train")
    params = ml.formats.load_state_dict(pm, arrays())
    assert sorted(params) == ["conv.bias", "conv.weight", "fc.weight", "norm.bias", "norm.weight"]


def test_statistics_in_training_are_never_dropped_without_a_word():
    pm = network(mode="train")
    with pytest.warns(UnusedParamsWarning, match="'norm.running_mean', 'norm.running_var' are st"):
        ml.formats.load_state_dict(pm, arrays())
    own = {name: value for name, value in arrays().items() if name in pm.param_keys}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ml.formats.load_state_dict(pm, own)


@pytest.mark.parametrize("name", ["numpy", "cpu", "torch", "jax", "mlx"])
def test_statistics_in_training_are_loaded_as_state(name):
    backend = backend_of(name)
    pm, w = network(backend=backend, mode="train"), arrays()
    w["norm.num_batches_tracked"] = np.array(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        params, state = ml.formats.load_state_dict(pm, w, with_state=True)
        found = pm.predict(params, {"x": X}, state=state)["y"]
    assert set(params) == set(pm.param_keys) and set(state) == set(pm.state_keys)
    want = by_hand({key: a for key, a in w.items() if a.ndim}, X)
    np.testing.assert_allclose(backend.to_numpy(found), want, rtol=1e-4)
    after = pm.evaluate(params, {"x": X}, state=state).state["norm.running_mean"]
    windows = np.lib.stride_tricks.sliding_window_view(X, (3, 3), (2, 3))
    grid = np.einsum("ncijkl,ockl->noij", windows, w["conv.weight"])
    mean = grid.mean((0, 2, 3)) + w["conv.bias"]
    want = 0.9 * w["norm.running_mean"] + 0.1 * mean
    np.testing.assert_allclose(backend.to_numpy(after), want, rtol=1e-4)


def test_a_model_without_state_has_an_empty_one():
    params, state = ml.formats.load_state_dict(network(), arrays(), with_state=True)
    assert set(params) == set(arrays()) and state == {}


def test_missing_statistics_and_wrong_ones_are_errors():
    pm, w = network(mode="train"), arrays()
    wrong = {**w, "norm.running_var": np.ones(5)}
    with pytest.raises(ml.ShapeError, match=r"'norm.running_var' must have shape \[4\], got \[5\]"):
        ml.formats.load_state_dict(pm, wrong, with_state=True)
    del w["norm.running_var"]
    with pytest.raises(ml.KeyNotFound, match="1 parameter not in the state dict: 'norm.running_v"):
        ml.formats.load_state_dict(pm, w, with_state=True)


def test_keys_of_random_numbers_are_fresh_or_those_saved():
    model = ml.Model()
    model |= ml.Linear(2, name="fc")(input="x", output="h")
    model |= ml.Dropout(0.5)(input="h", output="y")
    options = {"data_keys": {"x"}, "shapes": {"x": [1, 3]}, "naming": "path", "mode": "train"}
    pm = ml.compile(model, ml.NumpyBackend(), **options)
    w = {"fc.weight": np.ones((2, 3)), "fc.bias": np.zeros(2)}
    _, state = ml.formats.load_state_dict(pm, w, with_state=True)
    np.testing.assert_array_equal(state["rng_key"], pm.initial_state(seed=0)["rng_key"])
    kept = {"rng_key": np.array([5, 7])}
    _, state = ml.formats.load_state_dict(pm, w | kept, with_state=True)
    np.testing.assert_array_equal(state["rng_key"], [5, 7])


def test_a_count_of_batches_is_left_out():
    counted = {**arrays(), "norm.num_batches_tracked": np.array(3)}
    assert "norm.num_batches_tracked" not in ml.formats.load_state_dict(network(), counted)


def test_a_part_of_a_state_dict_is_taken_where_that_is_said():
    more = {**arrays(), "head.weight": np.ones(3)}
    with pytest.raises(ml.KeyNotFound, match="not have 1 parameter: 'head.weight'"):
        ml.formats.load_state_dict(network(), more)
    assert len(ml.formats.load_state_dict(network(), more, strict=False)) == 7


def test_what_is_missing_is_named_with_what_is_like_it():
    w = arrays()
    w["fc.weights"] = w.pop("fc.weight")
    with pytest.raises(ml.KeyNotFound, match="1 parameter not .*'fc.weight', did you mean 'fc.wei"):
        ml.formats.load_state_dict(network(), w)


def test_what_is_missing_and_what_is_too_much_is_named():
    w = {name.replace("conv", "c").replace("fc", "f"): array for name, array in arrays().items()}
    with pytest.raises(ml.KeyNotFound) as caught:
        ml.formats.load_state_dict(network(), w)
    assert str(caught.value) == (
        "load_state_dict: 3 parameters not in the state dict: 'conv.weight', 'conv.bias',"
        " 'fc.weight'; it has 'c.weight', 'c.bias', 'f.weight', which the model has not\n"
        '  help: names are made of name= of the parts: call them as the modules are, name="fc"'
    )
    with pytest.raises(ml.KeyNotFound, match="2 parameters: 'more', 'most'"):
        ml.formats.load_state_dict(network(), {**arrays(), "more": 1, "most": 1})


def attention():
    model = ml.Model()
    model |= ml.MultiHeadAttention(2, 4, name="self_attn")(query="x", output="y")
    shapes = {"x": [None, 3, 4]}
    return ml.compile(model, ml.NumpyBackend(), naming="path", data_keys={"x"}, shapes=shapes)


def test_joined_matrices_of_attention():
    whole = {"in_proj_weight": (12, 4), "in_proj_bias": 12, "out_proj.weight": (4, 4)}
    w = {f"self_attn.{name}": np.ones(shape) for name, shape in whole.items()}
    with pytest.raises(ml.KeyNotFound) as caught:
        ml.formats.load_state_dict(attention(), w)
    assert "'self_attn.w_q'" in str(caught.value)
    assert "it has 'self_attn.in_proj_weight', 'self_attn.in_proj_bias'" in str(caught.value)
    assert caught.value.hint == (
        "PyTorch's attention joins three matrices: w_q, w_k, w_v = in_proj_weight.chunk(3) and"
        " b_q, b_k, b_v = in_proj_bias.chunk(3); out_proj.weight is w_o, out_proj.bias b_o"
    )


@pytest.mark.frameworks
def test_joined_matrices_of_attention_split_as_the_hint_says():
    torch = pytest.importorskip("torch")
    module = torch.nn.MultiheadAttention(4, 2, batch_first=True)
    whole, x = module.state_dict(), torch.randn(2, 3, 4)
    w = {}
    w["w_q"], w["w_k"], w["w_v"] = whole["in_proj_weight"].chunk(3)
    w["b_q"], w["b_k"], w["b_v"] = whole["in_proj_bias"].chunk(3)
    w["w_o"], w["b_o"] = whole["out_proj.weight"], whole["out_proj.bias"]
    pm = attention()
    params = ml.formats.load_state_dict(pm, {f"self_attn.{k}": v for k, v in w.items()})
    wanted = module(x, x, x)[0].detach().numpy()
    np.testing.assert_allclose(pm.evaluate(params, {"x": x.numpy()})["y"], wanted, atol=1e-6)


def test_the_hint_is_of_naming_only_where_that_is_missing():
    w = {name.replace("fc.", "head."): array for name, array in arrays().items()}
    for options, hinted in (({}, False), ({"naming": None}, True)):
        with pytest.raises(ml.KeyNotFound) as caught:
            ml.formats.load_state_dict(network(**options), w)
        assert ("compile with" in caught.value.hint) is hinted


@pytest.mark.parametrize("shape", [(4, 5), (5, 4), (16,), (2, 8), (4, 4, 4)])
def test_an_array_of_another_shape_is_refused(shape):
    with pytest.raises(ml.ShapeError, match="'fc.weight' must have shape \\[4, 4\\], got"):
        ml.formats.load_state_dict(network(), {**arrays(), "fc.weight": np.ones(shape)})


WRONG = {
    "no model": ({"pm": 3}, ml.errors.SignatureError, "a compiled model, got 3"),
    "no dictionary": ({"state_dict": [1]}, ml.errors.SignatureError, "requires a dictionary"),
    "strict": ({"strict": "no"}, ml.errors.SignatureError, "True or False"),
    "state": ({"with_state": "no"}, ml.errors.SignatureError, "True or False"),
    "patterns": ({"transposed": "fc.*"}, ml.errors.SignatureError, "transposed: requires patterns"),
    "pattern": ({"transposed": ["fd.*"]}, ml.KeyNotFound, "no name fits 'fd.*'"),
    "no matrix": ({"transposed": ["conv.weight"]}, ml.ShapeError, "must be a matrix"),
    "text": ({"state_dict": {**arrays(), "fc.weight": "abc"}}, ml.DTypeError, "fc.weight"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name):
    changed, error, said = WRONG[name]
    arguments = {"pm": network(), "state_dict": arrays(), **changed}
    with pytest.raises(error, match=said):
        ml.formats.load_state_dict(**arguments)


@pytest.mark.frameworks
def test_arrays_of_pytorch_are_taken():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(3, 2, bias=False).double()
    model = ml.Model()
    model |= ml.Linear(2, use_bias=False)(input="x", output="y")
    options = {"data_keys": {"x"}, "shapes": {"x": [1, 3]}, "naming": "path"}
    pm = ml.compile(model, ml.NumpyBackend(dtype=ml.float64), **options)
    (key,) = pm.param_keys
    params = ml.formats.load_state_dict(pm, {key: module.state_dict()["weight"]})
    np.testing.assert_array_equal(params[key], module.weight.detach().numpy())
