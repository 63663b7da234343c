"""The small networks of `mithril.examples` against modules of PyTorch, and what they learn."""

import mithril as ml
import numpy as np
import pytest
import torch
from frameworks.parity import CASES, OF_FRAMEWORKS, check, compiled, draw
from mithril.examples.networks import lstm_classifier, mlp, small_cnn
from torch import nn


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 3, 3, padding=1)
        self.conv2 = nn.Conv2d(3, 6, 3, padding=1)
        self.fc = nn.Linear(6 * 2 * 2, 5)

    def forward(self, x):
        for conv in (self.conv1, self.conv2):
            x = nn.functional.max_pool2d(conv(x).relu(), 2)
        return self.fc(x.flatten(1))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)
        self.fc = nn.Linear(6, 5)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


def perceptron():
    return nn.Sequential(nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 5))


NETWORKS = {
    "mlp": (lambda: mlp([7, 6, 5]), perceptron, (3, 4)),
    "cnn": (lambda: small_cnn(5, 3), Cnn, (3, 2, 8, 8)),
    "lstm": (lambda: lstm_classifier(6, 5), Lstm, (3, 7, 4)),
}


@pytest.mark.parametrize("case", CASES + OF_FRAMEWORKS, ids="-".join)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_computes_what_pytorch_does(name, case):
    make, module, shape = NETWORKS[name]
    x = np.float32(np.random.default_rng(2).standard_normal(shape))
    wide = torch.from_numpy(x).double()
    check(make(), draw(module()), {"input": x}, lambda m: m(wide), case)


def problem(name, rng):
    """Data and classes that are told apart by what the network is for."""
    if name == "mlp":  # the sign of a product
        x = rng.uniform(-1, 1, (256, 2))
        return x, (x[:, 0] * x[:, 1] > 0).astype(int)
    if name == "cnn":  # a line that lies or stands
        x, y = 0.1 * rng.standard_normal((256, 1, 8, 8)), rng.integers(0, 2, 256)
        for image, lies, at in zip(x, y, rng.integers(0, 8, 256), strict=True):
            image[0][(at, slice(None)) if lies else (slice(None), at)] += 1
        return x, y
    x = rng.standard_normal((256, 6, 1))  # the sign of the first number
    return x, (x[:, 0, 0] > 0).astype(int)


LEARNERS = {"mlp": lambda: mlp([16, 16, 2]), "cnn": lambda: small_cnn(2, 4),
            "lstm": lambda: lstm_classifier(8, 2)}  # fmt: skip


@pytest.mark.parametrize("name", LEARNERS)
def test_a_network_learns(name):
    x, y = problem(name, np.random.default_rng(0))
    train = ml.TrainModel(LEARNERS[name]())
    train.add_loss(ml.CrossEntropy(input_type="logits"), [ml.Mean()], input="output", target="y")
    data, optimizer = {"input": x[:192], "y": y[:192]}, ml.optim.Adam(lr=0.02)
    pm = ml.compile(
        train, ml.CpuBackend(), data_keys=set(data), optimizer=optimizer, naming="path",
        shapes={key: list(value.shape) for key, value in data.items()},
    )  # fmt: skip
    params = pm.randomize_params(seed=0)
    state = optimizer.init(params)
    for _ in range(150):
        params, state, _, _ = pm.step(params, state, data)
    predict = compiled(LEARNERS[name](), {"input": x[192:]}, inference=True)
    logits = predict.evaluate(params, {"input": x[192:]})["output"]
    assert (logits.argmax(-1) == y[192:]).mean() > 0.9


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "4", None, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_sizes_are_checked(name, wrong):
    builds = {"mlp": lambda: mlp([3, wrong]), "cnn": lambda: small_cnn(wrong),
              "lstm": lambda: lstm_classifier(wrong, 2)}  # fmt: skip
    with pytest.raises(ml.errors.ArgumentError, match="requires an integer"):
        builds[name]()


def test_a_network_has_a_layer():
    with pytest.raises(ml.errors.ArgumentError, match="mlp: sizes requires at least one"):
        mlp([])
