# Covers: backends/device/plan_code.cc backends/device/executable.cc
"""Networks that run on a device as a whole: values, and steps of training, without the host."""

import mithril as ml
import numpy as np
import pytest
from backends.test_device_kernels import backend_of, every_device, host_steps
from formats.c_cases import drawn

pytestmark = [pytest.mark.device]
rng = np.random.default_rng(0)


def attended(width, heads, places):
    """[b, t, width] to the same by causal attention."""
    model = ml.Model(name="attention")
    model |= ml.Linear(3 * width, name="qkv")(input="x", output="qkv")
    for number, role in enumerate(("query", "key", "value")):
        first = number * width
        model |= ml.Indexer((..., slice(first, first + width)))(input="qkv", output=f"{role}_rows")
        model |= ml.Reshape((-1, places, heads, width // heads))(
            input=f"{role}_rows", output=f"{role}_heads"
        )
        model |= ml.Transpose((0, 2, 1, 3))(input=f"{role}_heads", output=role)
    model |= ml.ScaledDotProduct(is_causal=True)("query", "key", "value", output="mixed")
    model |= ml.Transpose((0, 2, 1, 3))(input="mixed", output="rows")
    model |= ml.Reshape((-1, places, width))(input="rows", output="merged")
    model |= ml.Linear(width, name="out")(input="merged", output="y")
    model.expose_keys("y")
    return model


def transformer():
    """Tokens [b, 24] to logits [b * 24, 50], as GPT-2 has its blocks."""
    model = ml.Model(name="transformer")
    model |= ml.Embedding(50, 32, name="wte")(input="tokens", output="vectors")
    model |= ml.Embedding(24, 32, name="wpe")(input="places", output="place_vectors")
    model |= ml.Add()(left="vectors", right="place_vectors", output="h")
    model |= ml.LayerNorm(name="norm_1")(input="h", output="n")
    model |= attended(32, 4, 24)(x="n", y="attended")
    model |= ml.Add()(left="h", right="attended", output="middle")
    model |= ml.LayerNorm(name="norm_2")(input="middle", output="m")
    model |= ml.Linear(128, name="up")(input="m", output="u")
    model |= ml.Gelu()(input="u", output="a")
    model |= ml.Linear(32, name="down")(input="a", output="d")
    model |= ml.Add()(left="middle", right="d", output="last")
    model |= ml.Linear(50, name="head")(input="last", output="logits")
    model |= ml.Reshape((-1, 50))(input="logits", output="y")
    model.expose_keys("y")
    return model


def residual():
    """Images [b, 3, 16, 16] to logits [b, 10], as ResNets have their blocks."""
    model = ml.Model(name="residual")
    model |= ml.Conv2d(filters=8, kernel_size=7, stride=2, padding=3, name="stem")(
        input="x", output="c"
    )
    model |= ml.BatchNorm2D(mode=None, name="bn1")(input="c", output="n")
    model |= ml.Relu()(input="n", output="r")
    model |= ml.MaxPool2d(kernel_size=3, stride=2, padding=1)(input="r", output="p")
    model |= ml.Conv2d(filters=16, kernel_size=3, stride=2, padding=1, name="conv1")(
        input="p", output="c1"
    )
    model |= ml.Relu()(input="c1", output="r1")
    model |= ml.Conv2d(filters=16, kernel_size=3, padding=1, name="conv2")(input="r1", output="c2")
    model |= ml.Conv2d(filters=16, kernel_size=1, stride=2, name="shortcut")(input="p", output="s")
    model |= ml.Add()(left="c2", right="s", output="sum")
    model |= ml.Relu()(input="sum", output="r2")
    model |= ml.Mean(axis=(2, 3))(input="r2", output="features")
    model |= ml.Linear(10, name="fc")(input="features", output="y")
    model.expose_keys("y")
    return model


NETWORKS = {
    "transformer": (
        transformer,
        {"tokens": rng.integers(0, 50, (2, 24)), "places": np.arange(24)[None]},
        rng.integers(0, 50, 48),
    ),
    "residual": (residual, {"x": drawn([2, 3, 16, 16])}, rng.integers(0, 10, 2)),
}  # fmt: skip


@every_device
@pytest.mark.parametrize("title", NETWORKS)
def test_no_step_is_the_hosts(title, device):
    """Forward, and a step of SGD, whose results are the engine's up to rounding."""
    make, data, target = NETWORKS[title]
    model = make()
    train = ml.TrainModel(model)
    train.add_loss(ml.CrossEntropy(input_type="logits"), [ml.Mean()], input="y",
                   target="target")  # fmt: skip
    backend, programs = backend_of(device)
    shapes = {key: list(value.shape) for key, value in data.items()}
    optimizer = ml.optim.SGD(lr=0.1)
    results = []
    for one in (ml.CpuBackend(), backend):
        pm = ml.compile(make(), one, data_keys=set(data), shapes=shapes, mode="eval")
        y = np.array(pm.evaluate(pm.get_parameters(), data)["y"])
        step = ml.compile(train, one, data_keys={*data, "target"}, optimizer=optimizer,
                          shapes=shapes | {"target": list(target.shape)})  # fmt: skip
        params = step.get_parameters()
        run = step.step(params, optimizer.init(params), data | {"target": target},
                        step.initial_state())  # fmt: skip
        results.append({"y": y, **{key: np.array(value) for key, value in run.params.items()}})
    for name, want in results[0].items():
        np.testing.assert_allclose(results[1][name], want, rtol=1e-3, atol=3e-5, err_msg=name)
    assert len(programs) >= 2 and host_steps(programs) == 0
