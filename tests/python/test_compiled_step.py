"""`step` as one function, compiled on JAX and MLX, against the steps of torch.optim in float64."""

import importlib.util

import mithril as ml
import numpy as np
import pytest
from mithril.physical.compiled_step import CompiledStep

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.frameworks
BACKENDS = [
    pytest.param(name, marks=pytest.mark.skipif(not importlib.util.find_spec(name), reason=name))
    for name in ("torch", "jax", "mlx")
]
OPTIMIZERS = {
    "sgd": (ml.optim.SGD(0.1, 0.01), lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.01)),
    "momentum": (
        ml.optim.Momentum(0.05, 0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.05, momentum=0.9, nesterov=True),
    ),
    "adam": (ml.optim.Adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "adamw": (ml.optim.AdamW(0.01), lambda p: torch.optim.AdamW(p, 0.01)),
}


@pytest.fixture(params=BACKENDS)
def backend(request):
    return ml.get_backend(request.param)


def compiled(backend, optimizer, **options):
    model = ml.Model()
    model |= ml.Linear(3)(input="x", weight="w", bias="b", output="y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="y", target="t")
    return ml.compile(train, backend, data_keys={"x", "t"}, shapes={"x": ["n", 4]},
                      optimizer=optimizer, jit=backend.compiles_steps, **options)  # fmt: skip


def batch(seed, rows=5):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((rows, 4)).astype(np.float32),
            "t": rng.standard_normal((rows, 3)).astype(np.float32)}  # fmt: skip


def start():
    rng = np.random.default_rng(9)
    return {"w": rng.standard_normal((3, 4)).astype(np.float32),
            "b": rng.standard_normal(3).astype(np.float32)}  # fmt: skip


def native(backend, arrays):
    return {name: backend.array(value) for name, value in arrays.items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_torch(backend, name, monkeypatch):
    optimizer, reference = OPTIMIZERS[name]
    leaves = {n: torch.tensor(v.astype(np.float64), requires_grad=True) for n, v in start().items()}
    other = reference(list(leaves.values()))
    pm = compiled(backend, optimizer)
    params = native(backend, start())
    state = optimizer.init(params)
    for i in range(5):
        if i == 1:  # from then on nothing is looked at again
            monkeypatch.setattr(CompiledStep, "run", None)
        data = batch(i)
        params, state, none, outputs = pm.step(params, state, native(backend, data))
        x, t = (torch.tensor(v.astype(np.float64)) for v in data.values())
        other.zero_grad()
        cost = torch.mean((x @ leaves["w"].T + leaves["b"] - t) ** 2)
        cost.backward()
        other.step()
        np.testing.assert_allclose(np.asarray(outputs["final_cost"]), cost.item(), rtol=1e-5)
        assert state["step"] == i + 1 and none == {}
        for n, leaf in leaves.items():
            np.testing.assert_allclose(
                np.asarray(params[n]), leaf.detach().numpy(), rtol=1e-5, atol=1e-6
            )


def test_the_rate_may_change_and_nothing_else_goes_unseen(backend):
    optimizer = ml.optim.SGD(0.1)
    pm = compiled(backend, optimizer)
    params, data = native(backend, start()), native(backend, batch(0))
    state = optimizer.init(params)

    def moved():
        new = pm.step(params, state, data).params
        return np.asarray(new["w"]) - np.asarray(params["w"])

    first = moved()
    np.testing.assert_array_equal(moved(), first)
    optimizer.lr = 0.2
    np.testing.assert_allclose(moved(), 2 * first, rtol=1e-4)
    optimizer.weight_decay = 0.5
    np.testing.assert_allclose(moved(), 2 * first - 0.1 * start()["w"], rtol=1e-4, atol=1e-7)
    # Other sizes, arrays of NumPy, what is missing.
    pm.step(params, state, native(backend, batch(0, rows=2)))
    new = pm.step(start(), optimizer.init(start()), batch(0)).params
    assert backend.dtype(new["w"]) is ml.float32
    with pytest.raises(ml.errors.KeyNotFound, match="params must have 'b'"):
        pm.step({"w": params["w"]}, state, data)
    with pytest.raises(ml.errors.ShapeError):
        pm.step(params, state, {**data, "x": params["b"]})


def test_states_of_the_optimizer_may_be_numpy_arrays(backend):
    optimizer = ml.optim.Adam(0.01)
    pm = compiled(backend, optimizer)
    params, data = native(backend, start()), native(backend, batch(0))
    expected = pm.step(params, optimizer.init(params), data)
    slots = {s: {n: np.zeros_like(v) for n, v in start().items()} for s in optimizer.slots}
    found = pm.step(params, {"step": 0, **slots}, data)
    np.testing.assert_array_equal(np.asarray(found.params["w"]), np.asarray(expected.params["w"]))
    np.testing.assert_array_equal(
        np.asarray(found.opt_state["v"]["w"]), np.asarray(expected.opt_state["v"]["w"])
    )


def test_the_state_of_the_model_moves(backend):
    optimizer = ml.optim.Adam(0.01)
    model = ml.Model()
    model |= ml.BatchNorm1D(mode=None)(input="x", output="h")
    model |= ml.Linear(3)(input="h", weight="w", bias="b", output="y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="y", target="t")
    results = []
    for jit in (False, backend.compiles_steps):
        pm = ml.compile(train, backend, data_keys={"x", "t"}, shapes={"x": ["n", 4]},
                        optimizer=optimizer, jit=jit, mode="train")  # fmt: skip
        params, state = pm.randomize_params(3), pm.initial_state()
        kept = optimizer.init(params)
        for i in range(3):
            params, kept, state, outputs = pm.step(
                params, kept, native(backend, batch(i)), state=state
            )
        results.append({**params, **state, **outputs})
    for name, value in results[0].items():
        np.testing.assert_allclose(
            np.asarray(results[1][name]), np.asarray(value), rtol=1e-4, atol=1e-5, err_msg=name
        )


def test_tensors_that_require_gradients_stay_out_of_the_graph_of_a_step():
    backend, optimizer = ml.TorchBackend(), ml.optim.Momentum(0.1)
    pm = compiled(backend, optimizer)
    data = native(backend, batch(0))
    params, plain = native(backend, start()), native(backend, start())
    for value in params.values():
        value.requires_grad_(True)
    kept, other = optimizer.init(plain), optimizer.init(plain)
    for _ in range(3):
        plain, other, _, expected = pm.step(plain, other, data)
        params, kept, _, outputs = pm.step(params, kept, data)
        assert not any(x.requires_grad for x in (*params.values(), *outputs.values()))
        assert not any(x.requires_grad for x in (*kept["v"].values(), *expected.values()))
        for name, value in plain.items():
            torch.testing.assert_close(params[name], value, rtol=0, atol=0)
        torch.testing.assert_close(outputs["y"], expected["y"], rtol=0, atol=0)
        params = {name: value.requires_grad_(True) for name, value in params.items()}
    with torch.no_grad():
        again = pm.step(plain, other, data).params
    torch.testing.assert_close(again["w"], pm.step(plain, other, data).params["w"])
