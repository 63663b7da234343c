"""The fast path of `evaluate` on frameworks: same results, and none of the checks lost."""

# Covers: mithril/physical/fast_path.py

import importlib.util

import mithril as ml
import numpy as np
import pytest

pytestmark = pytest.mark.frameworks
BACKENDS = [
    pytest.param(name, marks=pytest.mark.skipif(not importlib.util.find_spec(name), reason=name))
    for name in ("torch", "jax", "mlx")
]


@pytest.fixture(params=BACKENDS)
def backend(request):
    return ml.get_backend(request.param)


def compiled(backend, **options):
    model = ml.Model()
    model |= ml.Linear(3)(input="x", weight="w", bias="b", output="y")
    train = ml.TrainModel(model)
    train.add_loss(ml.SquaredError(), [ml.Mean()], input="y", target="t")
    shapes = {"x": ["n", 4]}
    return ml.compile(train, backend, data_keys={"x", "t"}, shapes=shapes, **options)


def arguments(backend, rows=5, seed=0):
    rng = np.random.default_rng(seed)
    of = lambda *shape: backend.array(rng.standard_normal(shape).astype(np.float32))  # noqa: E731
    return {"w": of(3, 4), "b": of(3)}, {"x": of(rows, 4), "t": of(rows, 3)}


def by_hand(params, data):
    """(cost, gradients) in float64."""
    w, b, x, t = (np.asarray(a, np.float64) for a in (*params.values(), *data.values()))
    rest = x @ w.T + b - t
    slope = 2 * rest / rest.size
    return np.mean(rest**2), {"w": slope.T @ x, "b": slope.sum(0)}


def forbid_the_long_way(pm, monkeypatch):
    def long_way(*_):
        raise AssertionError("the slow path")

    monkeypatch.setattr("mithril.physical.slow_path.gather", long_way)


@pytest.mark.parametrize("jit", [False, True])
def test_the_second_call_is_quick_and_right(backend, monkeypatch, jit):
    if jit and backend.backend_type == "torch":
        pytest.skip("compiling takes long; the way is the same")
    pm = compiled(backend, jit=jit)
    pm.evaluate(*arguments(backend))
    pm.evaluate(*arguments(backend), output_gradients=True)
    forbid_the_long_way(pm, monkeypatch)
    params, data = arguments(backend, seed=1)
    cost, gradients = by_hand(params, data)
    alone = pm.evaluate(params, data)["final_cost"]
    outputs, found = pm.evaluate(params, data, output_gradients=True)
    for value in (alone, outputs["final_cost"]):
        np.testing.assert_allclose(np.asarray(value), cost, rtol=1e-5)
    for name, expected in gradients.items():
        np.testing.assert_allclose(np.asarray(found[name]), expected, rtol=1e-4, atol=1e-6)
    assert list(outputs) == ["y", "final_cost"] and list(found) == ["w", "b"]


def test_other_arrays_go_the_long_way(backend):
    pm = compiled(backend)
    params, data = arguments(backend)
    pm.evaluate(params, data)
    pm.evaluate(params, data, output_gradients=True)
    for extra in ({}, {"output_gradients": True}):
        # Further rows are fine; then that is a signature, too.
        pm.evaluate(*arguments(backend, rows=2), **extra)
        with pytest.raises(ml.errors.KeyNotFound, match="params must have 'b'"):
            pm.evaluate({"w": params["w"]}, data, **extra)
        with pytest.raises(ml.errors.ShapeError):
            pm.evaluate(params, {**data, "x": params["b"]}, **extra)
        wrong = {**data, "x": backend.array(np.ones((5, 4), np.int32))}
        with pytest.raises(ml.errors.MithrilError):
            pm.evaluate(params, {**wrong, "t": "no array"}, **extra)
    with pytest.warns(ml.errors.UnusedKeyWarning, match="other"):
        pm.evaluate(params, {**data, "other": data["x"]})


def test_lists_are_converted_each_time(backend):
    pm = compiled(backend)
    params, data = arguments(backend)
    plain = {name: np.asarray(value).tolist() for name, value in data.items()}
    expected = np.asarray(pm.evaluate(params, data)["final_cost"])
    for _ in range(3):
        found = np.asarray(pm.evaluate(params, plain)["final_cost"])
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_arrays_of_another_dtype_are_converted_each_time(backend):
    pm = ml.compile(ml.Relu(), backend, data_keys={"input"}, shapes={"input": [3]})
    for _ in range(3):
        found = pm.evaluate({}, {"input": backend.array(np.array([-1, 0, 2], np.float16))})
        assert backend.dtype(found["output"]) is ml.float32


def test_results_share_no_memory_with_what_is_kept(backend):
    # The gradient of the cost with respect to `a` is the cotangent itself.
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="y")
    pm = ml.compile(model, backend, shapes={"a": [], "b": []}, trainable_keys={"a", "b"})
    one = lambda: backend.array(np.float32(1.0))  # noqa: E731
    for _ in range(3):
        gradients = pm.evaluate({"a": one(), "b": one()}, output_gradients=True).gradients
        values = [float(np.asarray(g)) for g in gradients.values()]
        assert values == [1.0, 1.0]
        if backend.backend_type != "jax":  # whose arrays do not change
            for gradient in gradients.values():
                gradient += 5


def test_models_with_state_go_the_long_way(backend):
    model = ml.Model()
    model |= ml.BatchNorm1D(mode=None)(input="x", output="y")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [4, 3]}, mode="train")
    state = pm.initial_state()
    x = {"x": backend.array(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32))}
    first = pm.evaluate(pm.get_parameters(), x, state=state)
    second = pm.evaluate(pm.get_parameters(), x, state=first.state)
    name = next(iter(state))
    assert not np.array_equal(np.asarray(first.state[name]), np.asarray(second.state[name]))


def quick(pm, *given):
    """The outputs by the way of programs without state; None: it leaves the call to others."""
    found = pm._fast_path._quick.forward
    assert found is not None
    return found(*given)


@pytest.mark.parametrize("name, jit", [("torch", False), ("jax", True)])
def test_what_one_check_of_all_arrays_lets_through(name, jit):
    pytest.importorskip(name)
    backend = ml.get_backend(name)
    pm = compiled(backend, jit=jit)
    params, data = arguments(backend)
    assert quick(pm, params, data) is None
    expected = np.asarray(pm.evaluate(params, data)["final_cost"])
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(quick(pm, params, data)["final_cost"]), expected)
    x, w = data["x"], params["w"]
    wrong = [
        ({**params, "w": backend.array(np.ones((3, 4)), ml.float16)}, data),
        (params, {**data, "x": x[:2]}),
        (params, {**data, "x": np.asarray(x)}),
        (params, {**data, "x": 1.0}),
        (params, {**data, "other": x}),
        ({"w": w}, data),
        ({"w": w, "c": params["b"]}, data),
    ]
    for given in wrong:
        assert quick(pm, *given) is None
    # They are left to the slow path, which takes note of further sizes.
    few = {name: value[:2] for name, value in data.items()}
    pm.evaluate(params, few)
    for given in ((params, few), (params, data)):
        cost, _ = by_hand(*given)
        found = quick(pm, *given)["final_cost"]
        np.testing.assert_allclose(np.asarray(found), cost, rtol=1e-5)
    for given in wrong:
        assert quick(pm, *given) is None


def test_quick_outputs_share_no_memory_with_inputs():
    pytest.importorskip("torch")
    backend = ml.TorchBackend()
    model = ml.Model()
    model |= ml.Reshape((6,))(input="x", output="flat")
    model |= ml.StopGradient()(input="flat", output="same")
    model |= ml.Relu()(input="x", output="fresh")
    model.expose_keys("flat", "same", "fresh")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [2, 3]})
    x = backend.array(np.ones((2, 3), np.float32))
    for _ in range(3):
        out = pm.evaluate({}, {"x": x})
        for value in out.values():
            value += 1
        assert [float(v.sum()) for v in (x, *out.values())] == [6.0, 12.0, 12.0, 12.0]
    assert quick(pm, {}, {"x": x}) is not None


@pytest.mark.parametrize("name, jit", [("torch", False), ("jax", True)])
def test_what_an_op_would_take_is_checked_still(name, jit):
    pytest.importorskip(name)
    backend = ml.get_backend(name)
    pm = ml.compile(ml.Relu(), backend, data_keys={"input"}, shapes={"input": [3]}, jit=jit)
    for _ in range(3):
        pm.evaluate({}, {"input": backend.array(np.ones(3, np.float32))})
        half = pm.evaluate({}, {"input": backend.array(np.ones(3), ml.float16)})
        assert backend.dtype(half["output"]) is ml.float32
        with pytest.raises(ml.errors.ShapeError):
            pm.evaluate({}, {"input": backend.array(np.ones(4, np.float32))})


def test_what_is_detached_from_a_part_of_an_input_is_copied():
    pytest.importorskip("torch")
    backend = ml.TorchBackend()
    model = ml.Model()
    x = ml.IOKey("x", shape=[4])
    model |= ml.StopGradient()(input=x[1:], output="y")
    pm = ml.compile(model, backend, data_keys={"x"})
    given = backend.array(np.ones(4, np.float32))
    for _ in range(3):
        pm.evaluate({}, {"x": given})["y"].fill_(7)
        assert given.tolist() == [1, 1, 1, 1]


def test_a_state_that_nobody_asked_for_is_looked_at_each_time(backend):
    pm = compiled(backend)
    params, data = arguments(backend)
    for _ in range(3):
        with pytest.raises(ml.errors.MithrilError, match="state"):
            pm.evaluate(params, data, state=5)
        pm.evaluate(params, data)


def test_fetches_and_counts_of_nan_work_beside_it(backend):
    pm = compiled(backend, check_nan=True)
    params, data = arguments(backend)
    bad = {**data, "x": backend.array(np.full((5, 4), np.nan, np.float32))}
    for _ in range(3):
        pm.evaluate(params, data)
        with pytest.raises(ml.errors.NotFiniteError):
            pm.evaluate(params, bad)
    pm = compiled(backend)
    for _ in range(3):
        assert set(pm.evaluate(params, data)) == {"y", "final_cost"}
        assert "w" in pm.evaluate(params, data, fetch=["w"])


@pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="torch")
def test_tensors_without_elements_of_their_own_are_refused_still():
    import torch

    relu = ml.compile(ml.Relu(), ml.TorchBackend(), data_keys={"input"}, shapes={"input": [5, 4]})
    x = torch.zeros(5, 4)
    for _ in range(2):
        relu.evaluate({}, {"input": x})
    for value in (x.to_sparse(), x.to("meta")):
        with pytest.raises(ml.errors.ArgumentError, match="dense array"):
            relu.evaluate({}, {"input": value})
    pm = compiled(ml.TorchBackend())
    params, data = arguments(ml.TorchBackend())
    leaves = {name: value.requires_grad_(True) for name, value in params.items()}
    for _ in range(2):
        assert not pm.evaluate(leaves, data)["final_cost"].requires_grad
        for part in pm.evaluate(leaves, data, output_gradients=True):
            assert not any(value.requires_grad for value in part.values())
    parameters = {name: torch.nn.Parameter(value.detach()) for name, value in params.items()}
    for _ in range(2):
        assert not pm.evaluate(parameters, data)["final_cost"].requires_grad


@pytest.mark.skipif(not importlib.util.find_spec("jax"), reason="jax")
def test_deleted_arrays_are_refused_still():
    pm = compiled(ml.JaxBackend())
    params, data = arguments(ml.JaxBackend())
    pm.evaluate(params, data)
    data["x"].delete()
    with pytest.raises(ml.errors.ArgumentError, match="deleted"):
        pm.evaluate(params, data)


def test_the_first_exception_that_is_swallowed_is_logged(backend, caplog):
    pm = compiled(backend)
    params, data = arguments(backend)
    lists = {**data, "x": np.asarray(data["x"]).tolist()}
    pm.evaluate(params, data)
    expected = by_hand(params, data)[0]
    with caplog.at_level("DEBUG", "mithril"):
        costs = [pm.evaluate(params, lists)["final_cost"] for _ in range(3)]
    np.testing.assert_allclose([float(cost) for cost in costs], expected, rtol=1e-5)
    told = [record.message for record in caplog.records if "the slow path" in record.message]
    assert len(told) == 1 and "has no attribute" in told[0]
