"""The additions to MLX, and its optimizers adopted. Expected values are PyTorch's and MLX's own."""

# Covers: mithril/optim/adopted.py

import subprocess
import sys

import mithril as ml
import numpy as np
import pytest
import torch
from mithril.compat.mlx import install, uninstall
from mithril.errors import ArgumentError, KeyNotFound, ShapeError, SignatureError

mx = pytest.importorskip("mlx.core")
optim = pytest.importorskip("mlx.optimizers")


@pytest.fixture(autouse=True)
def mlx_as_it_was():
    before = optim.Optimizer.update
    yield
    uninstall()
    assert not hasattr(mx, "devices")
    assert optim.Optimizer.update is before


def one_step(**devices):
    params = {"w": mx.array([1.0, 2.0])}
    return params, optim.SGD(learning_rate=0.5).update(params, {"w": mx.array([2.0, 2.0])})


# --------------------------------------------------------------------------------- additions


def test_devices_are_those_of_mlx():
    install()
    assert (mx.devices.cpu, mx.devices.gpu) == (mx.cpu, mx.gpu)
    from mlx.core.devices import gpu

    assert gpu == mx.gpu
    assert ml.MlxBackend(device=mx.devices.cpu).get_device() == "cpu:0"


def test_update_returns_what_it_has_updated():
    assert one_step()[1] is None  # MLX's own
    install()
    params, returned = one_step()
    assert returned is params
    assert params["w"].tolist() == [0.0, 1.0]


def test_update_of_a_module_returns_the_module():
    import mlx.nn as nn

    layer = nn.Linear(2, 2, bias=False)
    layer.weight = mx.ones((2, 2))
    with install():
        got = optim.SGD(learning_rate=1.0).update(layer, {"weight": mx.ones((2, 2))})
    assert got is layer
    assert layer.weight.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_each_is_a_switch_of_its_own():
    assert install(optimizer_update=False).added == ("devices",)
    assert one_step()[1] is None
    uninstall()
    assert install(devices=False).added == ("optimizer_update",)
    assert not hasattr(mx, "devices")


def test_twice_is_once():
    install()
    update = optim.Optimizer.update
    assert install().added == ()
    assert optim.Optimizer.update is update
    uninstall()
    uninstall()
    assert one_step()[1] is None


def test_a_context_takes_away_what_it_has_added():
    with install(devices=False):
        with install():
            assert hasattr(mx, "devices")
        assert not hasattr(mx, "devices")
        assert one_step()[1] is not None
    assert one_step()[1] is None


def test_devices_that_mlx_has_by_itself_stay(monkeypatch):
    monkeypatch.setattr(mx, "devices", "its own", raising=False)
    assert install().added == ("optimizer_update",)
    uninstall()
    assert mx.devices == "its own"
    monkeypatch.undo()


def test_an_update_that_somebody_has_wrapped_since_stays(monkeypatch):
    install()
    ours = optim.Optimizer.update
    monkeypatch.setattr(optim.Optimizer, "update", lambda *given: ours(*given))
    uninstall()
    assert one_step()[1] is not None
    monkeypatch.undo()
    optim.Optimizer.update = ours.__wrapped__


def test_flags_are_flags():
    with pytest.raises(SignatureError, match="install: devices: requires True or False, got 'gpu'"):
        install(devices="gpu")
    assert not hasattr(mx, "devices")


def test_nothing_is_added_unasked():
    code = (
        "import mlx.core as mx, mlx.optimizers as o, mithril as ml; before = o.Optimizer.update\n"
        "ml.compat.mlx, ml.MlxBackend(); assert not hasattr(mx, 'devices')\n"
        "assert o.Optimizer.update is before"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --------------------------------------------------------------------------------- adopt

RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.standard_normal((3, 2)), "b": RNG.standard_normal(2)}
SLOPES = [{k: RNG.standard_normal(v.shape) for k, v in PARAMS.items()} for _ in range(4)]
PAIRS = {
    "sgd": (
        lambda: optim.SGD(learning_rate=0.1, momentum=0.9),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    ),
    "adam": (
        lambda: optim.Adam(learning_rate=0.1, bias_correction=True),
        lambda p: torch.optim.Adam(p, lr=0.1),
    ),
    "adamw": (
        lambda: optim.AdamW(learning_rate=0.1, weight_decay=0.2, bias_correction=True),
        lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.2),
    ),
}


def to_mlx(arrays):
    return {name: mx.array(value.astype(np.float32)) for name, value in arrays.items()}


@pytest.mark.parametrize("name", PAIRS)
def test_adopted_steps_are_those_of_torch(name):
    make, make_torch = PAIRS[name]
    leaves = {k: torch.tensor(v, requires_grad=True) for k, v in PARAMS.items()}
    other = make_torch(list(leaves.values()))
    optimizer, params = ml.optim.adopt(make()), to_mlx(PARAMS)
    for slopes in SLOPES:
        params = optimizer.update(params, to_mlx(slopes))
        for key, leaf in leaves.items():
            leaf.grad = torch.tensor(slopes[key])
        other.step()
    for key, leaf in leaves.items():
        np.testing.assert_allclose(params[key], leaf.detach().numpy(), atol=1e-5)
    assert int(optimizer.state["step"]) == len(SLOPES)


def test_what_is_given_stays_as_it_is():
    params = to_mlx(PARAMS)
    first, before = dict(params), np.array(params["w"])
    new = ml.optim.adopt(optim.SGD(learning_rate=1.0)).update(params, to_mlx(SLOPES[0]))
    assert all(params[key] is value for key, value in first.items())
    np.testing.assert_array_equal(params["w"], before)
    np.testing.assert_allclose(new["w"], PARAMS["w"] - SLOPES[0]["w"], atol=1e-6)


def test_parameters_without_a_gradient_stay_and_may_have_one_later():
    optimizer, params = ml.optim.adopt(optim.Adam(learning_rate=0.1)), to_mlx(PARAMS)
    new = optimizer.update(params, {"w": params["w"]})
    assert new["b"] is params["b"]
    newer = optimizer.update(new, {"b": params["b"]})
    assert newer["w"] is new["w"]
    assert not np.allclose(newer["b"], new["b"])


def test_training_of_a_compiled_model():
    model = ml.Model()
    model |= ml.Linear(1)(input="x", output="y")
    backend = ml.MlxBackend()
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [8, 3]})
    x = RNG.standard_normal((8, 3)).astype(np.float32)
    target = x @ np.array([[1.0], [-2.0], [0.5]], np.float32) + 3.0
    optimizer, params = ml.optim.adopt(optim.SGD(learning_rate=0.2)), pm.randomize_params(0)
    for _ in range(300):
        y = np.array(pm.evaluate(params, {"x": x})["y"])
        result = pm.evaluate(params, {"x": x}, output_gradients={"y": 2 * (y - target) / 8})
        params = optimizer.update(params, result.gradients)
    np.testing.assert_allclose(params["weight"], [[1.0, -2.0, 0.5]], atol=1e-3)
    np.testing.assert_allclose(params["bias"], [3.0], atol=1e-3)


W = {"w": np.ones(2)}
REFUSED = {
    "no parameter": (W, {"v": np.ones(2)}, KeyNotFound, "no parameter named 'v'"),
    "shape": (W, {"w": np.ones(3)}, ShapeError, r"of 'w' requires the shape \[2\], got \[3\]"),
    "name": ({"step": np.ones(2)}, {}, ArgumentError, "'step' is a name in the state of MLX"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_steps_that_are_refused_change_nothing(case):
    params, gradients, error, said = REFUSED[case]
    optimizer = ml.optim.adopt(optim.Adam(learning_rate=0.1))
    with pytest.raises(error, match=said):
        optimizer.update(to_mlx(params), to_mlx(gradients))
    assert int(optimizer.state["step"]) == 0


def test_only_arrays_of_mlx():
    optimizer = ml.optim.adopt(optim.SGD(learning_rate=0.1))
    with pytest.raises(SignatureError, match="params: 'w' requires an array of MLX, got array"):
        optimizer.update(W, to_mlx(W))
    with pytest.raises(SignatureError, match="gradients requires a dictionary, got 3"):
        optimizer.update(to_mlx(W), 3)


@pytest.mark.parametrize("other", [ml.optim.Adam(), None, optim.SGD])
def test_only_optimizers_of_mlx_are_adopted(other):
    with pytest.raises(SignatureError, match="adopt: requires an optimizer of mlx.optimizers, got"):
        ml.optim.adopt(other)


def test_numbers_of_adopted_optimizers_are_those_of_mlx():
    optimizer = ml.optim.adopt(optim.Adam(learning_rate=0.1))
    with pytest.raises(AttributeError, match="adopt: has no attribute 'lr'") as caught:
        optimizer.lr = 0.5
    assert isinstance(caught.value, ml.errors.MithrilError)
    optimizer.optimizer.learning_rate = 0.5
    assert float(optimizer.state["learning_rate"]) == 0.5
