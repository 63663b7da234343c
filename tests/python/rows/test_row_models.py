"""Rows M1–M14: composition."""

import inspect

import mithril as ml
import numpy as np
import pytest
from mithril.errors import KeyNotFound

from tests.python.rows.common import B, W, X, backend_of, close, compiled, every, needs, values

pytestmark = pytest.mark.documents


def relu(x):
    return np.maximum(x, 0.0)


def test_M1():
    model = ml.Model()
    assert list(model.dag) == [] and model.input_keys == []
    with pytest.warns(ml.errors.EmptyModelWarning):
        assert ml.compile(model, ml.NumpyBackend()).evaluate({}) == {}


def test_M2():
    """`|=` and `+=` both take what the call of a layer gives; names are keys."""
    for extend in ("|=", "+="):
        model = ml.Model()
        extension = ml.Linear(dimension=2)(input="x", weight="w", bias="b", output="hidden")
        if extend == "|=":
            model |= extension
        else:
            model += extension
        pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"})
        close(pm.evaluate({"w": W, "b": B}, {"x": X})["hidden"], X @ W.T + B)


def test_M3():
    model = ml.Model()
    model |= ml.Linear(dimension=2)(input="x", weight="w", bias="b", output="hidden1")
    model += ml.Relu()(input="hidden1", output="hidden1_act")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"})
    close(pm.evaluate({"w": W, "b": B}, {"x": X})["hidden1_act"], relu(X @ W.T + B))


def test_M4():
    import mithril.models as models

    for name in ("Linear", "Relu", "Softmax"):
        assert getattr(ml, name) is getattr(models, name)
        assert name in dir(ml)
    model = ml.Model()
    model |= ml.Softmax()(input="x", output="y")
    got = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}).evaluate({}, {"x": X})["y"]
    close(got, np.exp(X) / np.exp(X).sum(1, keepdims=True))


@every
def test_M5(name):
    backend, torch = backend_of(name), needs("torch")
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s) for s in ((2, 3, 5, 5), (16, 3, 3, 3), (1, 16, 1, 1)))
    model = ml.Model()
    model |= ml.Conv2d(filters=16, kernel_size=3, stride=1, padding="same")(
        input="x", weight="w", bias="b", output="y"
    )
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [2, 3, 5, 5]})
    params = {"w": backend.array(w), "b": backend.array(b)}
    got = pm.evaluate(params, {"x": backend.array(x)})["y"]
    x, w, b = map(torch.tensor, (x, w, b))
    want = torch.nn.functional.conv2d(x, w, b.reshape(16), padding="same")
    close(values(backend, got), want, 1e-4, 1e-4)


@every
def test_M6(name):
    backend = backend_of(name)
    x = np.random.default_rng(1).standard_normal((2, 3, 4, 6))
    model = ml.Model()
    model |= ml.MaxPool2d(kernel_size=2)(input="x", output="y")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [2, 3, 4, 6]})
    got = values(backend, pm.evaluate({}, {"x": backend.array(x)})["y"])
    close(got, x.reshape(2, 3, 2, 2, 3, 2).max((3, 5)))


def test_M7():
    model = ml.Model()
    model |= ml.Flatten()(input="x", output="flat")
    model += ml.Linear(dimension=2)(input="flat", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [5, 3, 2]})
    assert sorted(map(tuple, (pm.shapes[k] for k in pm.param_keys))) == [(2,), (2, 6)]
    assert pm.shapes["y"] == [5, 2]


def test_M8():
    model = ml.Model()
    model |= ml.Lambda(lambda x: 0.01 * x + abs(x))(input="x", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": [4, 3]}, trainable_keys={"x"})
    out = pm.evaluate({"x": X.astype("f")}, output_gradients={"y": np.ones((4, 3), "f")})
    close(out.outputs["y"], 0.01 * X + np.abs(X))
    close(out.gradients["x"], 0.01 + np.sign(X))


def test_M9():
    model = ml.Model()
    model |= ml.Relu()(input="input", output="hidden")
    model += ml.Tanh()(input="hidden", output="output")
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"input"})
    out = pm.evaluate({}, {"input": X})
    assert list(out) == ["output"]
    close(out["output"], np.tanh(relu(X)))
    model.expose_keys("hidden")


def test_M10():
    model = ml.Model()
    model |= ml.Linear(dimension=128)(input="input", output="output")
    pm = ml.compile(model, ml.NumpyBackend())
    params = pm.get_parameters()
    x = np.random.default_rng(0).standard_normal((100, 784))
    out = pm.evaluate(params, {"input": x})["output"]
    weight, bias = sorted(params.values(), key=lambda v: -v.ndim)
    assert weight.shape == (128, 784) and np.abs(weight).max() <= 784**-0.5
    close(out, x @ weight.T + bias, 1e-4, 1e-4)


def test_M11():
    from mithril.models import resnet18

    for name in ("num_classes", "n_classes"):
        pm = ml.compile(resnet18(**{name: 7}), ml.NumpyBackend(), data_keys={"input"},
                        shapes={"input": [2, 3, 64, 64]}, inference=True)  # fmt: skip
        assert pm.shapes["output"] == [2, 7]
    with pytest.raises((TypeError, ValueError)):
        resnet18(num_classes=7, n_classes=8)


def test_M12():
    from examples.gpt.model import create_gpt

    names = ["bias", "block_size", "dims", "num_heads", "num_layers", "vocab_size"]
    assert list(inspect.signature(create_gpt).parameters)[:6] == names
    model = create_gpt(bias=True, block_size=8, dims=16, num_heads=2, num_layers=2, vocab_size=50)
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"input"}, shapes={"input": [1, 8]})
    trained = sum(int(np.prod(pm.shapes[k])) for k in pm.param_keys)
    d, v, t, layers = 16, 50, 8, 2
    block = 12 * d * d + 13 * d  # two norms, attention and an MLP four times as wide, with biases
    assert trained == v * d + t * d + layers * block + 2 * d + v * d  # the head has its own weights
    assert pm.shapes["output"] == [1, 8, 50]
    params, tokens = pm.get_parameters(), np.array([[1, 2, 3, 4, 5, 6, 7, 8]])
    logits = pm.evaluate(params, {"input": tokens})["output"]
    tokens[0, 5:] = 0  # what comes later is not seen
    np.testing.assert_array_equal(
        pm.evaluate(params, {"input": tokens})["output"][:, :5], logits[:, :5]
    )
    bare = create_gpt(bias=False, block_size=8, dims=16, num_heads=2, num_layers=2, vocab_size=50)
    pm = ml.compile(bare, ml.NumpyBackend(), data_keys={"input"}, shapes={"input": [1, 8]})
    assert not [key for key in pm.param_keys if "bias" in key]


def test_M13():
    from examples.clip.model import clip

    names = "embed_dim image_resolution vision_layers vision_width vision_patch_size context_length"
    names += " vocab_size transformer_width transformer_heads transformer_layers"
    assert list(inspect.signature(clip).parameters)[:10] == names.split()
    model = clip(32, 64, (1, 1, 1, 1), 8, 0, 7, 50, 16, 2, 1)
    pm = ml.compile(model, ml.NumpyBackend(), data_keys={"image", "text"}, inference=True,
                    shapes={"image": [2, 3, 64, 64], "text": [3, 7]})  # fmt: skip
    assert pm.shapes["logits_per_image"] == [2, 3] and pm.shapes["logits_per_text"] == [3, 2]


def test_M14():
    from examples.t5 import T5_CONFIGS, t5_decode, t5_encode

    config = T5_CONFIGS["t5-small"]
    for make, keys in ((t5_encode, {"input"}), (t5_decode, {"input", "memory"})):
        pm = ml.compile(make(config), ml.NumpyBackend(), data_keys=keys, inference=True)
        assert set(pm.data_keys) == keys
        assert next(iter(inspect.signature(make).parameters)) == "config"
        with pytest.raises(KeyNotFound):
            pm.evaluate({}, {"inputt": np.zeros((1, 2), int)})


def test_models_compile_as_the_documents_do():
    close(compiled().evaluate({"w": W, "b": B}, {"x": X})["y"], X @ W.T + B)
