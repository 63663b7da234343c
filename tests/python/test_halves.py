"""float16 and bfloat16 as a backend's element type: whole models store halves, and lose few units.

The reference is NumPy in float64 on the same halves.
"""

import mithril as ml
import numpy as np
import pytest
from mithril.testing.distances import TOLERANCE, distance

HALVES = ("float16", "bfloat16")
every_half = pytest.mark.parametrize("dtype", HALVES)


def mlp():
    model = ml.Model()
    model |= ml.Linear(16)(input="input", output="hidden")
    model |= ml.LayerNorm()(input="hidden", output="normed")
    model |= ml.Gelu()(input="normed", output="active")
    model |= ml.Linear(4)(input="active", output="output")
    return model


def convolutions():
    model = ml.Model()
    model |= ml.Convolution2D(3, 4, padding=1)(input="input", output="features")
    model |= ml.Relu()(input="features", output="active")
    model |= ml.MaxPool2D(2)(input="active", output="pooled")
    model |= ml.Flatten(start_dim=1)(input="pooled", output="flat")
    model |= ml.Linear(3)(input="flat", output="output")
    return model


def attention():
    model = ml.Model()
    for name in ("query", "key", "value"):
        model |= ml.Linear(8)(input="input", output=name)
    model |= ml.ScaledDotProduct(is_causal=True)(
        query="query", key="key", value="value", output="attended"
    )
    model |= ml.Linear(4)(input="attended", output="output")
    return model


def recurrent():
    model = ml.Model()
    model |= ml.CumSum(axis=1)(input="input", output="sums")
    model |= ml.Softmax()(input="sums", output="shares")
    model |= ml.Linear(4)(input="shares", output="output")
    return model


MODELS = {
    "mlp": (mlp, (5, 8)),
    "convolutions": (convolutions, (2, 2, 8, 8)),
    "attention": (attention, (2, 6, 8)),
    "sums": (recurrent, (3, 7)),
}


def plain(backend, arrays):
    return {name: np.asarray(backend.to_numpy(x)) for name, x in arrays.items()}


@every_half
@pytest.mark.parametrize("name", MODELS)
def test_models(name, dtype, backend_name):
    make, shape = MODELS[name]
    backend = ml.get_backend(backend_name, dtype=dtype)
    pm = ml.compile(make(), backend, data_keys={"input"}, shapes={"input": list(shape)})
    params = pm.randomize_params(1)
    x = backend.array(np.random.default_rng(0).standard_normal(shape))
    ones = {"output": backend.ones(pm.shapes["output"])}
    got = pm.evaluate(params, {"input": x}, output_gradients=ones)
    outputs, gradients = plain(backend, got.outputs), plain(backend, got.gradients)
    found = {**plain(backend, params), **outputs, **gradients}
    assert {str(array.dtype) for array in found.values()} == {dtype}

    exact = ml.compile(
        make(), ml.NumpyBackend(dtype="float64"), data_keys={"input"}, shapes={"input": list(shape)}
    )
    wide = {key: value.astype("float64") for key, value in plain(backend, params).items()}
    given = np.asarray(backend.to_numpy(x)).astype("float64")
    want = exact.evaluate(
        wide, {"input": given}, output_gradients={"output": np.ones(exact.shapes["output"])}
    )
    for key, value in want.outputs.items():
        assert not distance(outputs[key], value, TOLERANCE[dtype]).problem, key
    for key, value in want.gradients.items():
        assert not distance(gradients[key], value, TOLERANCE[dtype]).problem, key


@every_half
def test_a_training_step(dtype, backend_name):
    """Parameters and their moments stay halves; the loss falls. (Adam's eps is 0 in float16.)"""
    backend = ml.get_backend(backend_name, dtype=dtype)
    model = ml.TrainModel(mlp())
    model.add_loss(ml.SquaredError(), [ml.Mean()], input="output", target="target")
    optimizer = ml.optim.Momentum(lr=0.0625, momentum=0.5)
    pm = ml.compile(
        model,
        backend,
        data_keys={"input", "target"},
        shapes={"input": [16, 8]},
        optimizer=optimizer,
    )
    random = np.random.default_rng(0)
    data = {"input": random.standard_normal((16, 8)), "target": random.standard_normal((16, 4))}
    params = pm.randomize_params(1)
    slots = optimizer.init(params)
    losses = []
    for _ in range(20):
        params, slots, _, outputs = pm.step(params, slots, data)
        losses.append(float(np.asarray(backend.to_numpy(outputs["final_cost"]))))
    moments = slots["v"].values()
    assert losses[-1] < 0.9 * losses[0]
    kept = [*plain(backend, params).values(), *(np.asarray(backend.to_numpy(x)) for x in moments)]
    assert {str(x.dtype) for x in kept} == {dtype}


@every_half
def test_state_of_layers(dtype, backend_name):
    """Running statistics and dropped elements, in train mode."""
    backend = ml.get_backend(backend_name, dtype=dtype)
    model = ml.Model()
    model |= ml.BatchNorm2d()(input="input", output="normed")
    model |= ml.Dropout(0.5)(input="normed", output="output")
    pm = ml.compile(
        model, backend, data_keys={"input"}, shapes={"input": [4, 3, 5, 5]}, mode="train"
    )
    x = np.random.default_rng(0).standard_normal((4, 3, 5, 5))
    state = pm.initial_state()
    result = pm.evaluate(pm.randomize_params(), {"input": x}, state=state)
    out = np.asarray(backend.to_numpy(result.outputs["output"]))
    assert str(out.dtype) == dtype
    assert 0.3 < np.mean(out.astype("float64") == 0) < 0.7
    mean = next(v for k, v in plain(backend, result.state).items() if "mean" in k)
    assert str(mean.dtype) == dtype
    want = 0.1 * x.mean((0, 2, 3))
    np.testing.assert_allclose(mean.astype("float64").ravel(), want, atol=2e-2)


@every_half
def test_initial_parameters_are_equal(dtype, backend_name):
    """Bit by bit those of NumPy, as float32's are."""
    shapes = {"input": [2, 8]}
    models = [
        ml.compile(mlp(), ml.get_backend(name, dtype=dtype), data_keys={"input"}, shapes=shapes)
        for name in (backend_name, "numpy")
    ]
    here, there = (plain(pm.backend, pm.randomize_params(3)) for pm in models)
    for key, value in there.items():
        np.testing.assert_array_equal(here[key], value, key)


@every_half
def test_arrays(dtype, backend_name):
    backend = ml.get_backend(backend_name, dtype=dtype)
    random = backend.rand(50)
    for array in (backend.array([1, 2.5]), backend.zeros(3), random, backend.randn(4)):
        assert backend.dtype(array) == dtype
    values = np.asarray(backend.to_numpy(random)).astype("float64")
    assert ((values >= 0) & (values < 1)).all() and len(set(values)) > 20
    total = np.asarray(backend.to_numpy(backend.array([1, 2.5]) + backend.ones(2)))
    np.testing.assert_array_equal(total.astype("float64"), [2, 3.5])
    assert str(total.dtype) == dtype
