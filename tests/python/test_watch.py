"""`compile(check_nan=...)`: the op that makes the first NaN is named, on every backend."""

import inspect

import mithril as ml
import numpy as np
import pytest
from mithril.errors import NotFiniteError, SignatureError


def here():
    return inspect.currentframe().f_back.f_lineno


def network():
    """(model, line of the logarithm): sqrt(log(x)) behind a layer that keeps numbers."""
    inner = ml.Model(name="inner")
    line = here() + 1
    inner |= ml.Log(name="ln")(input="input", output="h")
    inner |= ml.Relu(name="act")(input="h", output="output")
    inner.expose_keys("output")
    model = ml.Model()
    model |= ml.Buffer(name="first")(input="x", output="a")
    model |= inner(input="a", output="b")
    model |= ml.Sine(name="last")(input="b", output="y")
    model.expose_keys("y")
    return model, line


def compiled(model, backend, shape, **options):
    options = {"check_nan": True, "jit": False} | options
    return ml.compile(model, backend, trainable_keys={"x"}, shapes={"x": shape}, **options)


def array(backend, values):
    return backend.array(np.array(values, np.float32))


def test_forward(backend_name):
    backend = ml.get_backend(backend_name)
    model, line = network()
    pm = compiled(model, backend, [3])
    good = pm.evaluate({"x": array(backend, [1.0, 2.0, 3.0])}, {})["y"]
    want = np.sin(np.log([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(np.asarray(backend.to_numpy(good)), want, atol=1e-6)
    with pytest.raises(NotFiniteError) as failed:
        pm.evaluate({"x": array(backend, [1.0, -2.0, -3.0])}, {})
    text = str(failed.value)
    assert text == (
        f"log: made 2 NaN of operands that have none\n  in model inner.ln (test_watch.py:{line})\n"
        "  help: keep its operands where it is finite (Clamp, robust=True of losses); in training a"
        " smaller rate, or clip_norm= of the optimizer"
    )
    assert failed.value.place.path == "inner.ln" and failed.value.place.line == line
    assert isinstance(failed.value, FloatingPointError) and failed.value.code == "MTH705"


def root():
    model = ml.Model()
    line = here() + 1
    model |= ml.Sqrt(name="root")(input="x", output="r")
    model |= ml.Multiply(name="scale")(left="r", right=0.0, output="y")
    model.expose_keys("y")
    return model, line


@pytest.mark.parametrize("autodiff", ["engine", "framework"])
def test_gradients(backend_name, autodiff):
    if autodiff == "framework" and backend_name in ("cpu", "numpy", "c"):
        pytest.skip("no differentiation of its own")
    backend = ml.get_backend(backend_name)
    model, line = root()
    pm = compiled(model, backend, [2], autodiff=autodiff)
    given = {"y": array(backend, [1.0, 1.0])}
    pm.evaluate({"x": array(backend, [1.0, 4.0])}, {}, output_gradients=given)
    # The slope of the root at 0 is Inf, times the 0 behind it NaN; the values are fine.
    pm.evaluate({"x": array(backend, [0.0, 4.0])}, {})
    with pytest.raises(NotFiniteError) as failed:
        pm.evaluate({"x": array(backend, [0.0, 4.0])}, {}, output_gradients=given)
    assert "made 1 NaN in the gradient program" in str(failed.value)
    assert f"in model root (test_watch.py:{line})\n" in str(failed.value)


@pytest.mark.frameworks
@pytest.mark.parametrize("name", ["jax", "mlx"])
def test_compiled_by_the_framework(name):
    pytest.importorskip(name)
    backend = ml.get_backend(name)
    model, line = network()
    pm = compiled(model, backend, [2], jit=True)
    with pytest.raises(NotFiniteError, match=rf"inner\.ln \(test_watch\.py:{line}\)"):
        pm.evaluate({"x": array(backend, [1.0, -1.0])}, {})


def test_infinities(backend_name):
    backend = ml.get_backend(backend_name)
    model, _ = network()
    x = array(backend, [1.0, 0.0])
    compiled(model, backend, [2]).evaluate({"x": x}, {})  # -Inf, which the rectifier takes out
    pm = compiled(model, backend, [2], check_nan="inf")
    with pytest.raises(NotFiniteError, match=r"log: made 1 Inf or NaN .*\n  in model inner\.ln"):
        pm.evaluate({"x": x}, {})


def test_infinities_on_the_way_are_those_of_the_engine_s_gradients(backend_name):
    """d sqrt(relu(x)) is Inf behind the root and 0 behind relu: frameworks show its end only."""
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= ml.Relu()(input="x", output="r")
    model |= ml.Sqrt(name="root")(input="r", output="y")

    def gradient(**options):
        pm = compiled(model, backend, [2], check_nan="inf", **options)
        cotangents = {"y": array(backend, [1.0, 1.0])}
        params = {"x": array(backend, [-1.0, 4.0])}
        found = pm.evaluate(params, output_gradients=cotangents).gradients["x"]
        return backend.to_numpy(found).tolist()

    with pytest.raises(NotFiniteError, match="made 1 Inf or NaN in the gradient program"):
        gradient(autodiff="engine")
    if backend_name in ("torch", "jax", "mlx"):
        assert gradient() == [0.0, 0.25]


@pytest.mark.device
@pytest.mark.parametrize("backend_class", [ml.NumpyBackend, ml.CpuBackend])
def test_masks_of_infinities_are_nobody_s_fault(backend_class):
    model = ml.Model()
    model |= ml.ScaledDotProduct(is_causal=True)(query="q", key="k", value="v", output="y")
    keys = dict.fromkeys("qkv", [1, 4, 8])
    pm = ml.compile(model, backend_class(), data_keys=set(keys), shapes=keys, check_nan="inf")
    data = {key: np.ones(shape, np.float32) for key, shape in keys.items()}
    assert np.isfinite(pm.evaluate({}, data)["y"]).all()


@pytest.mark.device
@pytest.mark.parametrize("backend_class", [ml.NumpyBackend, ml.CpuBackend])
def test_nan_that_come_in(backend_class):
    model = ml.Model()
    model |= ml.Relu(name="act")(input="x", output="y")
    pm = compiled(model, backend_class(), [2])
    with pytest.raises(NotFiniteError, match="input 'x' holds 1 NaN, which reach the results"):
        pm.evaluate({"x": [np.nan, 1.0]}, {})
    model = ml.Model()
    model |= ml.IsNan()(input="x", output="missing")
    model |= ml.Where()(cond="missing", input1=ml.Tensor(0.0), input2="x", output="y")
    model.expose_keys("y")
    pm = compiled(model, backend_class(), [2])
    np.testing.assert_array_equal(pm.evaluate({"x": [np.nan, 1.0]}, {})["y"], [0.0, 1.0])


@pytest.mark.device
@pytest.mark.parametrize("backend_class", [ml.NumpyBackend, ml.CpuBackend])
def test_steps_of_training(backend_class):
    model = ml.Model()
    model |= ml.Log(name="ln")(input="w", output="h")
    model |= ml.Sum()(input="h", output="cost")
    model.expose_keys("cost")
    pm = ml.compile(
        model, backend_class(), trainable_keys={"w"}, shapes={"w": [2]}, check_nan=True,
        optimizer=ml.optim.SGD(lr=3.0),
    )  # fmt: skip
    params = {"w": np.array([1.0, 2.0], np.float32)}
    state = ml.optim.SGD(lr=3.0).init(params)
    step = pm.step(params, state)
    np.testing.assert_allclose(step.params["w"], [-2.0, 0.5])
    for _ in range(2):  # the second step would go the quick way
        with pytest.raises(NotFiniteError, match="log: made 1 NaN"):
            pm.step(step.params, step.opt_state)


@pytest.mark.device
def test_nothing_is_added_without_it():
    model, _ = network()
    plain = compiled(model, ml.NumpyBackend(), [2], check_nan=False)
    assert (
        "isnan" not in plain.source
        and type(plain._compilation.program.forward).__name__ != "WatchedExecutable"
    )
    assert "isnan" in compiled(model, ml.NumpyBackend(), [2]).source


@pytest.mark.device
def test_with_fetched_wires():
    model, _ = network()
    pm = compiled(model, ml.CpuBackend(), [2])
    got = pm.evaluate({"x": np.array([1.0, 2.0], np.float32)}, {}, fetch=["inner.ln"])
    np.testing.assert_allclose(got["inner.ln"], np.log([1.0, 2.0]), rtol=1e-6)
    with pytest.raises(NotFiniteError, match="log"):
        pm.evaluate({"x": np.array([-1.0, 2.0], np.float32)}, {}, fetch=["inner.ln"])


@pytest.mark.parametrize("wrong", [1, None, "NaN", "off"])
def test_refusals(wrong):
    with pytest.raises(SignatureError, match="check_nan"):
        ml.compile(network()[0], ml.NumpyBackend(), check_nan=wrong)
