"""Loss scaling in float16, beside PyTorch's GradScaler."""

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, UnsupportedError
from mithril.optim import loss_scale as _loss_scale
from mithril.training import train_model

from tests.python.rows.common import backend_of

pytestmark = pytest.mark.device

BACKENDS = ("numpy", "cpu", "c", "torch", "jax", "mlx")
HALF = {"torch": "precision", "jax": "precision"}
RNG = np.random.default_rng(2)
X, T = RNG.normal(size=(8, 6)).astype(np.float32), RNG.normal(size=(8, 3)).astype(np.float32)
W = RNG.normal(size=(3, 6)).astype(np.float32)


def half(name, dtype="float16"):
    return backend_of(name, **{HALF.get(name, "compute_precision"): dtype})


def training(backend, optimizer, factor=1.0, **options):
    """The mean of squares of x @ w.T * factor - t."""
    model = ml.Model()
    model |= ml.Linear(3, use_bias=False)(input="x", weight="w", output="h")
    model |= ml.Multiply()(left="h", right=factor, output="y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), input="y", target="t", reduce_steps=[ml.Mean()])
    return ml.compile(train, backend, optimizer=optimizer, data_keys={"x", "t"},
                      shapes={"x": [8, 6], "t": [8, 3]}, **options)  # fmt: skip


def run(pm, backend, optimizer, batches, opt_state=None):
    """(parameters, scales after each step)."""
    params = {"w": backend.array(W)}
    opt_state = optimizer.init(params) if opt_state is None else opt_state
    scales = []
    for x, t in batches:
        data = {"x": backend.array(x), "t": backend.array(t)}
        params, opt_state, _, _ = pm.step(params, opt_state, data)
        scales.append(opt_state["loss_scale"]["scale"])
    return backend.to_numpy(params["w"]), scales, opt_state


BATCHES = [(X, T), (X * 3e5, T), (X, T), (X * np.nan, T), (X, T), (X, T)]


@pytest.mark.parametrize("name", BACKENDS)
def test_steps_are_those_of_gradscaler(name, monkeypatch):
    """Good steps, one of gradients that overflow, one of NaN; the scale doubles after two."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(_loss_scale, "INTERVAL", 2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=2)
    weight = torch.nn.Parameter(torch.tensor(W))
    descent, wanted = torch.optim.SGD([weight], 0.1), []
    for x, t in BATCHES:
        descent.zero_grad()
        with torch.autocast("cpu", torch.float16):
            y = torch.nn.functional.linear(torch.tensor(x), weight)
        scaler.scale(torch.nn.functional.mse_loss(y.float(), torch.tensor(t))).backward()
        scaler.step(descent)
        scaler.update()
        wanted.append(scaler.get_scale())
    backend, optimizer = half(name), ml.optim.SGD(lr=0.1)
    got, scales, state = run(training(backend, optimizer), backend, optimizer, BATCHES)
    assert scales == wanted and len(set(wanted)) > 2
    np.testing.assert_allclose(got, weight.detach().numpy(), rtol=5e-3, atol=5e-3)
    assert int(state["step"]) < len(BATCHES)  # steps that are left out do not count


@pytest.mark.parametrize("name", BACKENDS)
def test_small_gradients_survive(name):
    """Gradients are about 1e-8, which float16 rounds to 0 or to 6e-8."""
    backend, optimizer = half(name), ml.optim.SGD(lr=1e6)
    x, t = X, np.zeros_like(T)

    def moved(**options):
        pm = training(backend, optimizer, factor=1e-4, **options)
        return run(pm, backend, optimizer, [(x, t)])[0] - W

    exact = -1e6 * 2 / T.size * 1e-8 * (x.astype(float) @ W.T).T @ x
    scaled = moved()
    assert np.abs(scaled - exact).max() < 0.02 * np.abs(exact).max()
    plain = moved(loss_scale=1.0)
    assert np.abs(plain - exact).max() > 0.2 * np.abs(exact).max()


def test_a_number_stays_and_bad_steps_are_left_out():
    backend, optimizer = half("cpu"), ml.optim.Adam(lr=0.1)
    pm = training(backend, optimizer, loss_scale=1024)
    got, scales, state = run(pm, backend, optimizer, [(X, T), (X * np.nan, T)])
    once = run(pm, backend, optimizer, [(X, T)])[0]
    assert scales == [1024.0, 1024.0] and int(state["step"]) == 1
    np.testing.assert_array_equal(got, once)


def test_the_state_goes_on():
    backend, optimizer = half("numpy"), ml.optim.SGD(lr=0.1)
    pm = training(backend, optimizer)
    state = {**optimizer.init({"w": W}), "loss_scale": {"scale": 4.0, "good": 1999}}
    assert run(pm, backend, optimizer, [(X, T)], state)[1] == [8.0]


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_other_types_are_not_scaled(dtype):
    backend = ml.CpuBackend(compute_precision=dtype)
    optimizer = ml.optim.SGD(lr=0.1)
    pm = training(backend, optimizer)
    state = pm.step({"w": W}, optimizer.init({"w": W}), {"x": X, "t": T}).opt_state
    assert "loss_scale" not in state


def test_loops_are_scaled_too():
    backend, optimizer = half("numpy"), ml.optim.SGD(lr=1e6)
    pm = training(backend, optimizer, factor=1e-4)
    data = {"x": X, "t": np.zeros_like(T)}
    seen = []
    got = train_model(pm, backend, [data], params={"w": W}, callbacks=[seen.append])
    want = run(pm, backend, optimizer, [(X, data["t"])])[0]
    np.testing.assert_allclose(got["w"], want, rtol=1e-6)
    assert seen[0].opt_state["loss_scale"]["good"] == 1


def test_what_is_refused():
    optimizer = ml.optim.SGD(lr=0.1)
    for value in (0, -1.0, True, "much", np.inf):
        with pytest.raises(ArgumentError, match="loss_scale: requires a number above 0"):
            training(ml.NumpyBackend(), optimizer, loss_scale=value)
    with pytest.raises(ArgumentError, match="there is no optimizer"):
        training(ml.NumpyBackend(), None, loss_scale=8.0)
    with pytest.raises(UnsupportedError, match="with stream_gradients"):
        training(ml.CpuBackend(), optimizer, loss_scale=8.0, stream_gradients=True)
