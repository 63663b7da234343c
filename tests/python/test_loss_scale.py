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


def adams(gradient, params, steps, rate=0.01):
    """Adam's steps by hand (Kingma and Ba 2015, algorithm 1), in float64."""
    w, m, v = params.astype(np.float64), 0.0, 0.0
    for t in range(1, steps + 1):
        g = gradient(w)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w


@pytest.mark.parametrize("options", [{"loss_scale": 1024}, {"check_nan": True}])
@pytest.mark.parametrize("of_numpy", [("params",), ("opt_state",), ("params", "opt_state")])
@pytest.mark.parametrize("name", BACKENDS)
def test_a_training_goes_on_from_arrays_of_files(name, of_numpy, options):
    """Files give NumPy's arrays, numbers as arrays without axes."""
    scaled = "loss_scale" in options
    backend, optimizer = half(name) if scaled else backend_of(name), ml.optim.Adam(lr=0.01)
    pm = training(backend, optimizer, **options)
    params = {"w": backend.array(W)}
    given = {"params": params, "opt_state": optimizer.init(params)}

    def as_files_give(nest):
        if isinstance(nest, dict):
            return {key: as_files_give(value) for key, value in nest.items()}
        return np.array(nest if isinstance(nest, int | float) else backend.to_numpy(nest))

    for step in range(4):
        if step == 2:
            given |= {what: as_files_give(given[what]) for what in of_numpy}
        after = pm.step(given["params"], given["opt_state"], {"x": X, "t": T})
        given = {"params": after.params, "opt_state": after.opt_state}
    want = adams(lambda w: 2 / T.size * (X @ w.T - T).T @ X, W, 4)
    got = after.params["w"]
    assert isinstance(got, backend.get_backend_array_type())
    np.testing.assert_allclose(backend.to_numpy(got), want, atol=2e-3 if scaled else 1e-5)
    assert after.opt_state["step"] == 4
    assert not scaled or after.opt_state["loss_scale"] == {"scale": 1024.0, "good": 4}


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
    with pytest.raises(UnsupportedError, match="losses are scaled in float16, and with stream_gra"):
        training(half("cpu"), optimizer, stream_gradients=True)
    with pytest.raises(UnsupportedError, match="stream_gradients: NumpyBackend"):
        training(half("numpy"), optimizer, stream_gradients=True)


def test_streams_in_float16_have_no_scale_where_that_is_said():
    """One step on gradients that float16 holds, beside the gradient by hand."""
    optimizer, w = ml.optim.SGD(lr=0.1), W.copy()
    pm = training(half("cpu"), optimizer, stream_gradients=True, loss_scale=1)
    after = pm.step({"w": w}, optimizer.init({"w": w}), {"x": X, "t": T})
    want = W - 0.1 * 2 / T.size * (X @ W.T - T).T @ X
    np.testing.assert_allclose(after.params["w"], want, atol=2e-3)
    assert "loss_scale" not in after.opt_state


def test_losses_of_halves_as_element_types_are_scaled_where_that_is_said():
    optimizer, w = ml.optim.SGD(lr=0.1), W.astype(np.float16)
    for options, kept in (({}, set()), ({"loss_scale": 8}, {"loss_scale"})):
        pm = training(ml.CpuBackend(dtype="float16"), optimizer, **options)
        state = pm.step({"w": w}, optimizer.init({"w": w}), {"x": X, "t": T}).opt_state
        assert set(state) - {"step"} == kept
