"""Whole models against the same models written by hand in PyTorch, in float64, on every backend:
outputs, gradients, running statistics. One bound for all: 1e-10, relative to the largest element.
"""

import mithril as ml
import numpy as np
import pytest
from mithril.testing import oracle
from mithril.testing.op_matrix import difference

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.frameworks
BOUND = 1e-10
BACKENDS = {
    "numpy": "NumpyBackend",
    "cpu": "CpuBackend",
    "c": "CBackend",
    "torch": "TorchBackend",
    "jax": "JaxBackend",
    "mlx": "MlxBackend",
}
FRAMEWORKS = ("torch", "jax", "mlx")


def modes(backend_name):
    return ("framework", "engine") if backend_name in FRAMEWORKS else ("engine",)


def numbers(seed, **shapes):
    rng = np.random.default_rng(seed)
    return {name: 0.5 * rng.standard_normal(shape) for name, shape in shapes.items()}


def check(model, by_hand, params, data, backend_name, state=None, **options):
    """Runs both; `by_hand(params, data, state)` returns outputs and the next state."""
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in params.items()}
    inputs = {k: torch.tensor(v) for k, v in data.items()}
    wanted, wanted_state = by_hand(tensors, inputs, state and dict(state))
    cotangents = {k: np.random.default_rng(9).standard_normal(v.shape) for k, v in wanted.items()}
    total = sum((wanted[k] * torch.tensor(c)).sum() for k, c in cotangents.items())
    trained = [k for k in tensors if not k.startswith("running")]
    slopes = torch.autograd.grad(total, [tensors[k] for k in trained])
    given = {**params, **data, **(state or {})}
    told = oracle.evaluate(model.to_json(), given, mode=options.get("mode", "eval"))
    for key, value in wanted.items():
        assert difference(told.outputs[key], value.detach().numpy(), BOUND) is None, key
    for key, value in (wanted_state or {}).items():
        assert difference(told.states[key], np.asarray(value), BOUND) is None, key
    backend = getattr(ml, BACKENDS[backend_name])(dtype="float64")
    to = backend.to_numpy
    for mode in modes(backend_name):
        pm = ml.compile(model, backend, data_keys=set(data), autodiff=mode, jit=False, **options)
        assert set(pm.trainable_keys) == set(trained)
        result = pm.evaluate(params, data, output_gradients=cotangents, state=state)
        for key, value in wanted.items():
            problem = difference(to(result.outputs[key]), value.detach().numpy(), BOUND)
            assert problem is None, f"{mode} {key}: {problem}"
        for key, slope in zip(trained, slopes, strict=True):
            problem = difference(to(result.gradients[key]), slope.numpy(), BOUND)
            assert problem is None, f"{mode} gradient of {key}: {problem}"
        for key, value in (wanted_state or {}).items():
            problem = difference(to(result.state[key]), np.asarray(value), BOUND)
            assert problem is None, f"{mode} state {key}: {problem}"


# --- a perceptron --------------------------------------------------------------------------------


def test_mlp(backend_name):
    model = ml.Model()
    model |= ml.Linear(16)(input="x", weight="w1", bias="b1", output="h1")
    model += ml.Relu()(output="a1")
    model += ml.Linear(16)(weight="w2", bias="b2", output="h2")
    model += ml.Tanh()(output="a2")
    model += ml.Linear(3, use_bias=False)(weight="w3", output="y")
    model.expose_keys("y", "a1")
    params = numbers(1, w1=(16, 8), b1=(16,), w2=(16, 16), b2=(16,), w3=(3, 16))

    def by_hand(p, d, _):
        a1 = torch.relu(F.linear(d["x"], p["w1"], p["b1"]))
        return {"y": torch.tanh(F.linear(a1, p["w2"], p["b2"])) @ p["w3"].T, "a1": a1}, None

    check(model, by_hand, params, numbers(2, x=(7, 8)), backend_name)


# --- a convolutional network ----------------------------------------------------------------------


def cnn():
    model = ml.Model()
    model |= ml.Convolution2D(3, 6, padding=1)(input="x", weight="w1", bias="b1", output="c1")
    model |= ml.BatchNorm2D().connect(
        input="c1",
        output="n1",
        weight="g1",
        bias="s1",
        running_mean="running_mean",
        running_var="running_var",
    )
    model |= ml.Relu()(input="n1", output="r1")
    model |= ml.MaxPool2D(2)(input="r1", output="p1")
    model |= ml.Convolution2D(3, 5, stride=2)(input="p1", weight="w2", bias="b2", output="c2")
    model |= ml.AvgPool2D(2, stride=1)(input="c2", output="p2")
    model |= ml.Flatten()(input="p2", output="f")
    model |= ml.Linear(4)(input="f", weight="w3", bias="b3", output="y")
    return model


CNN_SHAPES = {
    "w1": (6, 2, 3, 3), "b1": (1, 6, 1, 1), "g1": (1, 6, 1, 1), "s1": (1, 6, 1, 1),
    "w2": (5, 6, 3, 3), "b2": (1, 5, 1, 1), "w3": (4, 5), "b3": (4,),
}  # fmt: skip


def statistics():
    rng = np.random.default_rng(4)
    return {"running_mean": rng.standard_normal(6), "running_var": rng.uniform(0.5, 2.0, 6)}


def cnn_by_hand(train):
    def by_hand(p, d, state):
        source = p if state is None else state
        mean, var = (
            torch.tensor(np.asarray(source[k].detach() if state is None else source[k]))
            for k in ("running_mean", "running_var")
        )
        h = F.conv2d(d["x"], p["w1"], p["b1"].reshape(-1), padding=1)
        h = F.batch_norm(
            h, mean, var, p["g1"].reshape(-1), p["s1"].reshape(-1), train, momentum=0.1, eps=1e-5
        )
        h = F.max_pool2d(torch.relu(h), 2)
        h = F.avg_pool2d(F.conv2d(h, p["w2"], p["b2"].reshape(-1), stride=2), 2, stride=1)
        y = F.linear(h.flatten(1), p["w3"], p["b3"])
        moved = {"running_mean": mean.numpy(), "running_var": var.numpy()}
        return {"y": y}, moved if train else None

    return by_hand


def test_cnn_in_training(backend_name):
    data = numbers(6, x=(3, 2, 10, 10))
    params = numbers(5, **CNN_SHAPES)
    check(cnn(), cnn_by_hand(True), params, data, backend_name, statistics(), mode="train")


@pytest.mark.filterwarnings("ignore")  # gradients in eval mode are asked for on purpose
def test_cnn_in_evaluation(backend_name):
    data = numbers(6, x=(3, 2, 10, 10))
    params = numbers(5, **CNN_SHAPES) | statistics()
    check(cnn(), cnn_by_hand(False), params, data, backend_name, mode="eval")


# --- an attention block ---------------------------------------------------------------------------

HEADS, WIDTH = 2, 8


def attention_block():
    model = ml.Model()
    x = ml.IOKey("x", shape=["n", "t", WIDTH])
    model |= ml.LayerNorm()(input=x, weight="g1", bias="s1", output="n1")
    heads = {}
    for name in "qkv":
        model |= ml.Linear(WIDTH)(
            input="n1", weight=f"w{name}", bias=f"b{name}", output=f"{name}_flat"
        )
        flat = model[f"{name}_flat"]
        shape = flat.shape
        split = flat.reshape((shape[0], shape[1], HEADS, WIDTH // HEADS))
        heads[name] = split.transpose((0, 2, 1, 3))
    model |= ml.ScaledDotProduct(is_causal=True)(
        query=heads["q"], key=heads["k"], value=heads["v"], output="mixed"
    )
    mixed = model["mixed"].transpose((0, 2, 1, 3))
    shape = mixed.shape
    model |= ml.Linear(WIDTH)(
        input=mixed.reshape((shape[0], shape[1], WIDTH)), weight="wo", bias="bo", output="o"
    )
    model |= ml.Add()(left=x, right="o", output="r1")
    model |= ml.LayerNorm()(input="r1", weight="g2", bias="s2", output="n2")
    model |= ml.Linear(4 * WIDTH)(input="n2", weight="w1", bias="b1", output="up")
    model |= ml.Gelu()(input="up", output="act")
    model |= ml.Linear(WIDTH)(input="act", weight="w2", bias="b2", output="down")
    model |= ml.Add()(left="r1", right="down", output="y")
    return model


def attention_by_hand(p, d, _):
    x = d["x"]
    n, t, _ = x.shape
    h = F.layer_norm(x, (WIDTH,), p["g1"], p["s1"])
    q, k, v = (
        F.linear(h, p[f"w{name}"], p[f"b{name}"]).reshape(n, t, HEADS, -1).transpose(1, 2)
        for name in "qkv"
    )
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    r = x + F.linear(mixed.transpose(1, 2).reshape(n, t, WIDTH), p["wo"], p["bo"])
    h = F.gelu(F.linear(F.layer_norm(r, (WIDTH,), p["g2"], p["s2"]), p["w1"], p["b1"]))
    return {"y": r + F.linear(h, p["w2"], p["b2"])}, None


def test_attention_block(backend_name):
    square = {f"w{name}": (WIDTH, WIDTH) for name in "qkvo"}
    flat = {f"b{name}": (WIDTH,) for name in ("q", "k", "v", "o", "2")}
    norms = dict.fromkeys(("g1", "s1", "g2", "s2"), (WIDTH,))
    feed = {"w1": (4 * WIDTH, WIDTH), "b1": (4 * WIDTH,), "w2": (WIDTH, 4 * WIDTH)}
    params = numbers(7, **square, **flat, **norms, **feed)
    check(attention_block(), attention_by_hand, params, numbers(8, x=(3, 5, WIDTH)), backend_name)


# --- losses ---------------------------------------------------------------------------------------


def classifier(loss):
    model = ml.Model()
    model |= ml.Linear(5)(input="x", weight="w", bias="b", output="logits")
    model |= loss(input="logits", target="t", output="loss")
    model |= ml.Mean()(input="loss", output="cost")
    model.expose_keys("cost", "loss")
    return model


def loss_by_hand(function):
    def by_hand(p, d, _):
        loss = function(F.linear(d["x"], p["w"], p["b"]), d["t"])
        return {"cost": loss.mean(), "loss": loss}, None

    return by_hand


CLASSES = np.array([0, 3, 4, 4, 1, 2])
SHARES = np.random.default_rng(1).dirichlet(np.ones(5), 6)
YES = (np.arange(30).reshape(6, 5) % 3 == 0).astype(float)
LOSSES = {
    "classes": (
        lambda: ml.CrossEntropy(),
        CLASSES,
        lambda z, t: F.cross_entropy(z, t, reduction="none"),
    ),
    "weighted classes": (
        lambda: ml.CrossEntropy(weights=[1.0, 2.0, 0.5, 1.5, 3.0]),
        CLASSES,
        lambda z, t: F.cross_entropy(
            z, t, torch.tensor([1.0, 2.0, 0.5, 1.5, 3.0]).double(), reduction="none"
        ),
    ),
    "shares of classes": (
        lambda: ml.CrossEntropy(categorical=False),
        SHARES,
        lambda z, t: F.cross_entropy(z, t, reduction="none"),
    ),
    "yes or no": (
        lambda: ml.BinaryCrossEntropy(pos_weight=2.0),
        YES,
        lambda z, t: F.binary_cross_entropy_with_logits(
            z, t, reduction="none", pos_weight=torch.tensor(2.0)
        ),
    ),
    "squared error": (lambda: ml.SquaredError(), SHARES, lambda z, t: (z - t) ** 2),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, backend_name):
    loss, target, function = LOSSES[name]
    data = numbers(3, x=(6, 4)) | {"t": target}
    params = numbers(2, w=(5, 4), b=(5,))
    check(classifier(loss()), loss_by_hand(function), params, data, backend_name)
