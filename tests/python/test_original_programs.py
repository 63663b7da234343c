"""Small programs as users of the original write them: its names, its styles of wiring, and training
by their own steps over `evaluate(…, output_gradients=True)`.
"""

import re

import mithril as ml
import numpy as np
import pytest
from mithril import Tensor, compile
from mithril.models import (
    L2,
    MLP,
    Add,
    Arange,
    AvgPool2D,
    BinaryCrossEntropy,
    Buffer,
    Cholesky,
    Convolution1D,
    Convolution2D,
    CrossEntropy,
    Embedding,
    Flatten,
    Gelu,
    GPRAlpha,
    HingeLoss,
    IOKey,
    LayerNorm,
    LeakyRelu,
    Linear,
    LinearSVM,
    LogisticRegression,
    ManyToOne,
    MaxPool1D,
    MaxPool2D,
    Mean,
    Model,
    RBFKernel,
    Relu,
    RNNCell,
    ScaledDotProduct,
    Size,
    Split,
    SquaredError,
    Tanh,
    TrainModel,
)

RNG = np.random.default_rng(0)


@pytest.fixture
def backend(backend_name):
    return ml.get_backend(backend_name)


def trained(backend, pm, data, steps, rate):
    """Costs of steps of gradient descent."""
    params, costs = pm.randomize_params(0), []
    for _ in range(steps):
        outputs, gradients = pm.evaluate(params, data, output_gradients=True)
        params = {key: params[key] - rate * gradients[key] for key in params}
        costs.append(float(backend.to_numpy(outputs["final_cost"])))
    return costs


def test_regression_with_a_regularizer(backend):
    model = MLP(activations=[Tanh(), Relu(), Buffer()], dimensions=[16, 8, 1])
    context = TrainModel(model)
    context.add_loss(SquaredError(), [Mean()], input=model.cout, target="target")
    context.add_regularization(L2(), coef=Tensor(1e-3), input=re.compile(r"weight\d"))
    x = RNG.standard_normal((32, 4))
    constants = {"input": backend.array(x), "target": backend.array(x[:, :1] * 2 - x[:, 1:2])}
    pm = compile(context, backend, constant_keys=constants, jit=False)
    assert set(pm.trainable_keys) == {f"{key}{i}" for key in ("weight", "bias") for i in range(3)}
    costs = trained(backend, pm, {}, 80, 0.05)
    assert costs[-1] < 0.2 * costs[0]


def test_a_recurrent_net(backend):
    model = Model()
    inputs = {f"input{i}": f"input{i}" for i in range(4)}
    model |= ManyToOne(cell_type=RNNCell(), max_sequence_length=4).connect(
        **inputs, initial_hidden="initial_hidden", output3="output"
    )
    model.expose_keys("output")
    context = TrainModel(model)
    context.add_loss(SquaredError(), [Mean()], input="output", target="target")
    x = RNG.standard_normal((8, 4, 1, 1))
    constants = {f"input{i}": backend.array(x[:, i]) for i in range(4)}
    constants |= {"target": backend.array(x.sum(1)), "initial_hidden": backend.zeros(8, 1, 6)}
    pm = compile(context, backend, constant_keys=constants, jit=False)
    costs = trained(backend, pm, {}, 60, 0.05)
    assert costs[-1] < costs[0]


def attention(width, heads):
    model = Model()
    model |= Linear(width * 3, name="c_attn").connect(input="input", output="c_attn_out")
    sizes = model.c_attn_out.shape
    model |= Split(3, axis=-1).connect("c_attn_out", output="parts")

    def head(i):
        part = model.parts[i].reshape((sizes[0], sizes[1], heads, -1))
        return part.transpose((0, 2, 1, 3))

    model |= ScaledDotProduct(is_causal=True).connect(
        query=head(0), key=head(1), value=head(2), output="mixed"
    )
    joined = model.mixed.transpose((0, 2, 1, 3)).reshape((sizes[0], sizes[1], width))
    model |= Linear(width, name="c_proj").connect(joined, output="output")
    model.expose_keys("output")
    return model


def block(name, width, heads):
    model = Model(name=name)
    model |= LayerNorm(name="ln_1").connect("input", output="n1")
    model |= attention(width, heads).connect(input="n1", output="a")
    model |= Add().connect("input", "a", output="h")
    model |= LayerNorm(name="ln_2").connect("h", output="n2")
    mlp = Model(name="mlp")
    mlp += Linear(width * 4, name="c_fc").connect(input="input")
    mlp += Gelu()
    mlp += Linear(width, name="c_proj").connect(output="output")
    model |= mlp.connect(input="n2", output="m")
    model |= Add().connect("h", "m", output="output")
    model.expose_keys("output")
    return model


def test_a_language_model(backend):
    model = Model()
    model |= Embedding(name="wte", num_embeddings=20, dim=12).connect("input", output="tokens")
    model |= Size(dim=1).connect("input", output="size")
    model |= Arange().connect(stop="size", output="places")
    model |= Embedding(name="wpe", num_embeddings=16, dim=12).connect("places", output="p")
    model |= Add().connect("tokens", "p", output="h0")
    for i in range(2):
        model |= block(f"h_{i}", 12, 3).connect(input=f"h{i}", output=f"h{i + 1}")
    model |= LayerNorm(name="ln_f").connect("h2", output="n")
    model |= Linear(20, use_bias=False, name="lm_head").connect("n", output="output")
    model.expose_keys("output")
    pm = compile(model, backend, data_keys={"input"}, use_short_namings=False, jit=False)
    params = pm.randomize_params(0)
    for length in (7, 5):
        data = {"input": backend.array(RNG.integers(0, 20, (2, length)))}
        slopes = {"output": backend.ones(2, length, 20)}
        outputs, gradients = pm.evaluate(params, data, output_gradients=slopes)
        assert tuple(outputs["output"].shape) == (2, length, 20)
        assert set(gradients) == set(params) >= {"h_1_mlp_c_fc_weight", "lm_head_weight"}


def test_a_support_vector_machine(backend):
    model = Model()
    model |= LinearSVM().connect(input="input", output="output", decision_output="decision")
    model.expose_keys("output", "decision")
    context = TrainModel(model)
    context.add_loss(HingeLoss(), [Mean()], input="output", target="target")
    x = RNG.standard_normal((40, 2))
    data = {"input": backend.array(x), "target": backend.array(np.sign(x @ [[1.0], [0.5]]))}
    shapes = {"input": [40, 2], "target": [40, 1]}
    pm = compile(context, backend, data_keys=set(data), shapes=shapes, jit=False)
    costs = trained(backend, pm, data, 60, 0.5)
    assert costs[-1] < 0.7 * costs[0]


def test_a_gaussian_process(backend):
    model = Model()
    model |= RBFKernel().connect(input1="x", input2="z", l_scale="l", sigma="s", output="kernel")
    model.expose_keys("kernel")
    pm = compile(model, backend, inference=True, jit=False)
    x, one = backend.array([[0.0], [1.0], [2.0]]), backend.array([1.0])
    kernel = backend.to_numpy(pm.evaluate({}, {"x": x, "z": x, "l": one, "s": one})["kernel"])
    want = np.exp(-0.5 * (np.arange(3)[:, None] - np.arange(3)) ** 2)
    np.testing.assert_allclose(kernel, want, rtol=1e-5)
    solve = Model()
    solve |= Cholesky().connect(input="k", output="L")
    solve |= GPRAlpha().connect(label_mu_diff="d", L="L", K_term="k", output="alpha")
    solve.expose_keys("alpha")
    noisy, labels = want + 0.1 * np.eye(3), np.array([[1.0], [2.0], [3.0]])
    data = {"k": backend.array(noisy), "d": backend.array(labels)}
    alpha = compile(solve, backend, inference=True, jit=False).evaluate({}, data)["alpha"]
    np.testing.assert_allclose(
        backend.to_numpy(alpha), np.linalg.solve(noisy, labels), rtol=1e-4, atol=1e-5
    )


def test_an_autoencoder_with_noise(backend):
    encoder = Model()
    encoder |= Linear(16).connect(input="x", output="a")
    encoder |= Relu().connect("a", output="h")
    encoder |= Linear(2).connect("h", output="mean")
    encoder |= Linear(2).connect("h", output="spread")
    encoder.expose_keys("mean", "spread")
    model = Model()
    model |= encoder.connect(x="x", mean="mean", spread="spread")
    code = model.mean + (model.spread * 0.5).exp() * IOKey("noise")
    model |= Linear(16).connect(code, output="b")
    model |= Relu().connect("b", output="c")
    model |= Linear(6).connect("c", output="again")
    terms = (model.mean**2 + model.spread.exp() - model.spread - 1.0).sum(axis=1) * 0.5
    model |= Mean().connect(terms, output="distance")
    model.expose_keys("again", "distance")
    context = TrainModel(model)
    context.add_loss(SquaredError(), [Mean()], input="again", target="x")
    context.add_loss(Buffer(), input="distance", coef=Tensor(0.01))
    x = RNG.standard_normal((24, 6)) * [1, 1, 0.1, 0.1, 0.1, 0.1]
    data = {"x": backend.array(x), "noise": backend.array(RNG.standard_normal((24, 2)))}
    pm = compile(context, backend, data_keys=set(data), shapes={"x": [24, 6]}, jit=False)
    costs = trained(backend, pm, data, 60, 0.1)
    assert costs[-1] < 0.9 * costs[0]


def test_a_convolutional_classifier(backend):
    model = Model()
    model |= Convolution2D(kernel_size=3, out_channels=4, padding=1).connect(input="input")
    model += Relu()
    model += MaxPool2D(kernel_size=2, stride=2)
    model += Convolution2D(3, 8, padding=ml.common.PaddingType.SAME)
    model += LeakyRelu()
    model += AvgPool2D(kernel_size=2)
    model += Flatten(start_dim=1)
    model += Linear(3).connect(output="logits")
    model.expose_keys("logits")
    model.set_shapes(input=[None, 1, 8, 8])
    context = TrainModel(model)
    context.add_loss(CrossEntropy(), [Mean()], input="logits", target="target")
    x, labels = RNG.standard_normal((12, 1, 8, 8)), RNG.integers(0, 3, 12)
    data = {"input": backend.array(x), "target": backend.array(labels)}
    pm = compile(context, backend, data_keys=set(data), jit=False)
    costs = trained(backend, pm, data, 40, 0.3)
    assert costs[-1] < 0.9 * costs[0]


def test_a_forecast(backend):
    model = Model()
    model |= Convolution1D(kernel_size=3, out_channels=4, padding=1).connect(input="input")
    model += Relu()
    model += MaxPool1D(kernel_size=2)
    model += Flatten(start_dim=1)
    model += Linear(1).connect(output="predictions")
    model.expose_keys("predictions")
    model.set_shapes(input=[None, 1, 10])
    context = TrainModel(model)
    context.add_loss(SquaredError(), [Mean()], input="predictions", target="target")
    wave = np.sin(np.arange(30) / 3)
    x = np.stack([wave[i : i + 10] for i in range(20)])[:, None]
    data = {"input": backend.array(x), "target": backend.array(wave[10:30, None])}
    pm = compile(context, backend, data_keys=set(data), jit=False)
    costs = trained(backend, pm, data, 60, 0.1)
    assert costs[-1] < 0.5 * costs[0]


def test_a_logistic_regression(backend):
    context = TrainModel(LogisticRegression())
    loss = BinaryCrossEntropy(input_type="probs")
    context.add_loss(loss, [Mean()], input="probs_output", target="target")
    x = RNG.standard_normal((30, 3))
    data = {"input": backend.array(x), "target": backend.array((x[:, :1] > 0).astype("f4"))}
    shapes = {"input": [30, 3], "target": [30, 1]}
    pm = compile(context, backend, data_keys=set(data), shapes=shapes, jit=False)
    costs = trained(backend, pm, data, 60, 1.0)
    assert costs[-1] < 0.7 * costs[0]
    assert sorted(pm.output_keys) == ["final_cost", "output", "probs_output"]
