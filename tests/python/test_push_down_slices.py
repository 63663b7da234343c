"""The CPU backend computes only what slices read: the values are those of the whole.

The NumPy backend, which computes everything, is the oracle.
"""

import re

import mithril as ml
import numpy as np
import pytest

WIDTH, HEADS, TOKENS = 32, 4, 17


def encoder(model, at, layers):
    """Blocks of attention and two products, as ViT and BERT have them."""
    for i in range(layers):
        model |= ml.LayerNorm(name=f"ln_{i}")(input=at, output=f"n_{i}")
        model |= ml.Linear(3 * WIDTH, name=f"qkv_{i}")(input=f"n_{i}", output=f"qkv_{i}")
        model |= ml.Split(3, axis=-1)(input=f"qkv_{i}", output=f"split_{i}")
        parts = getattr(model, f"split_{i}")
        heads = [
            parts[k].reshape((2, TOKENS, HEADS, WIDTH // HEADS)).transpose((0, 2, 1, 3))
            for k in range(3)
        ]
        model |= ml.ScaledDotProduct(is_causal=False)(
            query=heads[0], key=heads[1], value=heads[2], output=f"attended_{i}"
        )
        together = getattr(model, f"attended_{i}").transpose((0, 2, 1, 3))
        together = together.reshape((2, TOKENS, WIDTH))
        model |= ml.Linear(WIDTH, name=f"out_{i}")(input=together, output=f"o_{i}")
        model |= ml.Add()(left=at, right=f"o_{i}", output=f"r_{i}")
        model |= ml.Linear(4 * WIDTH, name=f"up_{i}")(input=f"r_{i}", output=f"u_{i}")
        model |= ml.Gelu()(input=f"u_{i}", output=f"g_{i}")
        model |= ml.Linear(WIDTH, name=f"down_{i}")(input=f"g_{i}", output=f"d_{i}")
        model |= ml.Add()(left=f"r_{i}", right=f"d_{i}", output=f"h_{i}")
        at = f"h_{i}"
    return at


def classifier(token=0, layers=2):
    model = ml.Model(name="encoder")
    last = encoder(model, "x", layers)
    model |= ml.Linear(5, name="head")(input=getattr(model, last)[:, token], output="logits")
    model.expose_keys("logits")
    return model


def drawn(pm, seed=0):
    rng = np.random.default_rng(seed)
    return {k: rng.standard_normal(np.shape(v)) * 0.1 for k, v in pm.get_parameters().items()}


def compiled(model, backend, **more):
    shapes = {"x": [2, TOKENS, WIDTH]}
    return ml.compile(model, backend, data_keys={"x"}, shapes=shapes, inference=True, **more)


@pytest.fixture
def x():
    return np.random.default_rng(1).standard_normal((2, TOKENS, WIDTH))


BOUNDS = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2}


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("token", [0, 4, -1, slice(2, 4)])
def test_a_classifier_of_one_token_computes_the_same(token, dtype, x):
    """Kernels that take many queries only, as well as those that take one."""
    model = classifier(token)
    oracle = compiled(model, ml.NumpyBackend(dtype=ml.float64))
    weights = drawn(oracle)
    wanted = oracle.evaluate(weights, {"x": x})["logits"]
    pm = compiled(model, ml.CpuBackend(dtype=getattr(ml, dtype)))
    weights = {key: value.astype(dtype) for key, value in weights.items()}
    x = x.astype(dtype)
    got = pm.evaluate(weights, {"x": x})["logits"]
    np.testing.assert_allclose(got, wanted, atol=BOUNDS[dtype])
    bound = pm.bind(weights).evaluate({}, {"x": x})["logits"]
    np.testing.assert_allclose(bound, wanted, atol=BOUNDS[dtype])


def shapes_of_products(pm):
    """Of what the products of each part of the model compute."""
    found = re.findall(r"^ *\d+ +gemm +(\[[\d, ]+\]) +encoder\.(\w+)", str(pm.explain()), re.M)
    return {(name, shape) for shape, name in found}


def test_the_last_layer_computes_one_token(x):
    model = classifier()
    pm, whole = (
        compiled(model, ml.CpuBackend(dtype=ml.float64), passes=passes)
        for passes in ([], ["-push_down_slices"])
    )
    weights = drawn(pm)
    for each in (pm, whole):
        each.evaluate(weights, {"x": x})
    part, all_of_it = shapes_of_products(pm), shapes_of_products(whole)
    for name, width in (("out", WIDTH), ("up", 4 * WIDTH), ("down", WIDTH)):
        assert (f"{name}_0", f"[2, {TOKENS}, {width}]") in part
        assert (f"{name}_1", f"[2, 1, {width}]") in part
        assert (f"{name}_1", f"[2, {TOKENS}, {width}]") in all_of_it
    keys_and_values = ("qkv_1", f"[2, {TOKENS}, {2 * WIDTH}]")
    assert {("qkv_1", f"[2, 1, {WIDTH}]"), keys_and_values} <= part


REDUCTIONS = [ml.Sum, ml.Mean, ml.Prod, ml.Variance, ml.Max, ml.Min, ml.Any, ml.All]


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=lambda reduction: reduction.__name__)
def test_slices_pass_reductions(reduction, x):
    """A token that is read behind a reduction of each is the only one that is computed."""
    model = ml.Model(name="encoder")
    model |= ml.Linear(WIDTH, name="up_0")(input="x", output="a")
    model |= reduction(axis=-1, keepdim=True)(input="a", output="r")
    model |= ml.Buffer()(input=model.r[:, 3], output="y")
    pm, oracle = (
        compiled(model, ml.CpuBackend(dtype=ml.float64)),
        compiled(model, ml.NumpyBackend(dtype=ml.float64)),
    )
    weights = drawn(pm)
    wanted = oracle.evaluate(weights, {"x": x})["y"]
    np.testing.assert_allclose(pm.evaluate(weights, {"x": x})["y"], wanted, rtol=1e-12)
    assert shapes_of_products(pm) == {("up_0", f"[2, 1, {WIDTH}]")}


@pytest.mark.parametrize("seed", range(8))
def test_random_slices_of_layers(seed, x):
    """Slices, axes that move, and several readers of what one product computes."""
    rng = np.random.default_rng(seed)
    model = ml.Model()
    model |= ml.Linear(WIDTH)(input="x", output="a")
    at, outputs = "a", []
    for i in range(6):
        kind = rng.integers(0, 6)
        here = getattr(model, at)
        if kind == 0:
            model |= ml.Linear(WIDTH)(input=at, output=f"v{i}")
        elif kind == 1:
            other = here.mean(axis=int(rng.integers(0, 3)), keepdim=True)
            model |= ml.Subtract()(left=at, right=other, output=f"v{i}")
        elif kind == 2:
            turned = here.transpose((1, 0, 2)).reshape((TOKENS, 2, 4, 8))
            model |= ml.Transpose((1, 0, 2, 3))(input=turned, output=f"t{i}")
            back = getattr(model, f"t{i}").reshape((2, TOKENS, WIDTH))
            model |= ml.Tanh()(input=back, output=f"v{i}")
        elif kind == 3:
            model |= ml.ScaledDotProduct(is_causal=bool(rng.integers(0, 2)))(
                query=at, key=at, value=at, output=f"v{i}"
            )
        elif kind == 4:
            model |= ml.Add()(left=at, right="a", output=f"v{i}")
        else:
            model |= ml.Multiply()(left=at, right=here[:, 3:4], output=f"v{i}")
        at = f"v{i}"
        first = int(rng.integers(0, TOKENS - 1))
        index = [first, slice(first, first + 2), slice(None, None, 2), slice(0, 0)][
            rng.integers(0, 4)
        ]
        if i % 2 or i == 5:
            model |= ml.Buffer()(input=getattr(model, at)[:, index], output=f"y{i}")
            outputs.append(f"y{i}")
    model.expose_keys(*outputs)
    oracle = compiled(model, ml.NumpyBackend(dtype=ml.float64))
    weights = drawn(oracle, seed)
    wanted = oracle.evaluate(weights, {"x": x})
    got = compiled(model, ml.CpuBackend(dtype=ml.float64)).evaluate(weights, {"x": x})
    assert got.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-11, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("weights_dtype", ["bfloat16", "int8"])
def test_packed_weights_keep_their_columns(weights_dtype, x):
    model = classifier()
    x = x.astype(np.float32)
    pm = compiled(model, ml.CpuBackend())
    weights = {k: v.astype(np.float32) for k, v in drawn(pm).items()}
    wanted = pm.evaluate(weights, {"x": x})["logits"]
    got = pm.bind(weights, weights=weights_dtype).evaluate({}, {"x": x})["logits"]
    np.testing.assert_allclose(got, wanted, atol=0.1)


def test_gradients_are_those_of_the_whole(x):
    model = classifier()
    options = {"data_keys": {"x"}, "shapes": {"x": [2, TOKENS, WIDTH]}}
    oracle = ml.compile(model, ml.NumpyBackend(dtype=ml.float64), **options)
    weights = drawn(oracle)
    ones = {"logits": np.ones((2, 5))}
    wanted = oracle.evaluate(weights, {"x": x}, output_gradients=ones)[1]
    pm = ml.compile(model, ml.CpuBackend(dtype=ml.float64), **options)
    got = pm.evaluate(weights, {"x": x}, output_gradients=ones)[1]
    for key, value in wanted.items():
        np.testing.assert_allclose(got[key], value, rtol=1e-10, atol=1e-12, err_msg=key)
