"""`ml.grad` and `ml.hvp`: derivatives of any order as models, on every backend."""

import math

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, FrozenModelError, KeyNotFound, ShapeError, SignatureError

POINTS = np.array([-1.5, -0.3, 0.0, 0.7, 2.0])


def quartic():
    return ml.Model.create(y=ml.IOKey("x") ** 4)


def hyperbolic():
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="y")
    return model


def mlp(width=4):
    model = ml.Model()
    model |= ml.Linear(width, name="first")(input="x", output="h")
    model |= ml.Tanh()(input="h", output="a")
    model |= ml.Linear(1, name="last")(input="a", output="y")
    model |= ml.Mean()(input="y", output="cost")
    model.expose_keys("cost")
    return model


def backend_of(name):
    return ml.get_backend(name, dtype="float32" if name == "mlx" else "float64")


def run(model, backend, data, params=None):
    shapes = {key: np.shape(value) for key, value in data.items()}
    pm = ml.compile(model, backend, data_keys=set(data), shapes=shapes)
    outputs = pm.evaluate(params or {}, {k: backend.array(v) for k, v in data.items()})
    return {key: np.asarray(backend.to_numpy(value)) for key, value in outputs.items()}


def times(model, order):
    for _ in range(order):
        model = ml.grad(model, "x")
    return model


# Derivatives by hand.
def tanh_derivative(x, order):
    t = np.tanh(x)
    s = 1 - t**2
    return {1: s, 2: -2 * t * s, 3: s * (6 * t**2 - 2)}[order]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_orders_of_a_polynomial(order, backend_name):
    backend = backend_of(backend_name)
    got = run(times(quartic(), order), backend, {"x": POINTS})
    assert list(got) == ["grad_x"]
    slope = math.perm(4, order) * POINTS ** (4 - order)
    np.testing.assert_allclose(got["grad_x"], slope, rtol=1e-5 if backend_name == "mlx" else 1e-12,
                               atol=1e-5 if backend_name == "mlx" else 1e-12)  # fmt: skip


@pytest.mark.parametrize("order", [1, 2, 3])
def test_orders_of_tanh(order, backend_name):
    backend = backend_of(backend_name)
    got = run(times(hyperbolic(), order), backend, {"x": POINTS})["grad_x"]
    bound = 2e-5 if backend_name == "mlx" else 1e-12
    np.testing.assert_allclose(got, tanh_derivative(POINTS, order), rtol=bound, atol=bound)


def values(seed=0):
    random = np.random.default_rng(seed)
    shapes = {"x": (3, 2), "w1": (4, 2), "b1": (4,), "w2": (1, 4), "b2": (1,)}
    return {name: random.normal(size=shape) for name, shape in shapes.items()}


def cost(v):
    return np.mean(np.tanh(v["x"] @ v["w1"].T + v["b1"]) @ v["w2"].T + v["b2"])


def along(function, at, name, direction, step=1e-5):
    def moved(t):
        return function({**at, name: at[name] + t * direction})

    return (moved(step) - moved(-step)) / (2 * step)


NAMES = {"w1": "weight_0", "b1": "bias_0", "w2": "weight_1", "b2": "bias_1"}


def params_of(v):
    return {name: v[key] for key, name in NAMES.items()}


@pytest.mark.device
@pytest.mark.parametrize("backend_class", [ml.NumpyBackend, ml.CpuBackend])
def test_gradients_of_a_network_by_parameters_and_data(backend_class):
    backend = backend_class(dtype="float64")
    v, random = values(), np.random.default_rng(1)
    model = ml.grad(mlp(), ["x", "weight_0", "last.bias", "a"], keep_outputs=True)
    assert model.output_keys == ["cost", "grad_x", "grad_weight_0", "grad_last_bias", "grad_a"]
    got = run(model, backend, {"x": v["x"]}, params_of(v))
    np.testing.assert_allclose(got["cost"], cost(v), rtol=1e-12)
    for name, key in (("x", "grad_x"), ("w1", "grad_weight_0"), ("b2", "grad_last_bias")):
        direction = random.normal(size=v[name].shape)
        slope = along(cost, v, name, direction)
        np.testing.assert_allclose(np.sum(got[key] * direction), slope, rtol=1e-8)
    np.testing.assert_allclose(got["grad_a"], np.broadcast_to(v["w2"] / 3, (3, 4)), rtol=1e-12)


@pytest.mark.device
@pytest.mark.parametrize("backend_class", [ml.NumpyBackend, ml.CpuBackend])
def test_products_with_the_hessian(backend_class):
    backend = backend_class(dtype="float64")
    v, random = values(), np.random.default_rng(2)
    model = ml.hvp(mlp(), ["weight_0", "x"])
    vectors = {
        "vector_weight_0": random.normal(size=(4, 2)),
        "vector_x": random.normal(size=(3, 2)),
    }
    got = run(model, backend, {"x": v["x"], **vectors}, params_of(v))
    step = 1e-4

    def moved(t):
        new = {**v, "w1": v["w1"] + t * vectors["vector_weight_0"],
               "x": v["x"] + t * vectors["vector_x"]}  # fmt: skip
        gradients = ml.grad(mlp(), ["weight_0", "x"])
        return run(gradients, backend, {"x": new["x"]}, params_of(new))

    up, down = moved(step), moved(-step)
    for name in ("weight_0", "x"):
        want = (up[f"grad_{name}"] - down[f"grad_{name}"]) / (2 * step)
        np.testing.assert_allclose(got[f"hvp_{name}"], want, rtol=1e-6, atol=1e-9)


@pytest.mark.frameworks
def test_network_against_jax():
    jax = pytest.importorskip("jax")
    v = values()

    def function(x, w):
        h = jax.numpy.tanh(x @ w.T + v["b1"])
        return jax.numpy.mean(h @ v["w2"].T + v["b2"])

    with jax.enable_x64(True):
        slope = np.asarray(jax.grad(function)(v["x"], v["w1"]))
        direction = np.random.default_rng(5).normal(size=(3, 2))
        product = jax.jvp(lambda x: jax.grad(function)(x, v["w1"]), (v["x"],), (direction,))[1]
    numpy = ml.NumpyBackend(dtype="float64")
    got = run(ml.grad(mlp(), "x"), numpy, {"x": v["x"]}, params_of(v))["grad_x"]
    np.testing.assert_allclose(got, slope, rtol=1e-10)
    data = {"x": v["x"], "vector_x": direction}
    got = run(ml.hvp(mlp(), "x"), numpy, data, params_of(v))["hvp_x"]
    np.testing.assert_allclose(got, np.asarray(product), rtol=1e-10, atol=1e-14)


def penalised():
    """The cost of a gradient penalty: it is trained through a gradient."""
    model = ml.Model()
    model |= ml.grad(mlp(), "x")(x="x", grad_x="slope")
    model |= ml.Square()(input="slope", output="squares")
    model |= ml.Sum()(input="squares", output="penalty")
    model.expose_keys("penalty")
    return model


@pytest.mark.device
@pytest.mark.parametrize("backend_class", [ml.NumpyBackend, ml.CpuBackend])
def test_training_through_a_gradient(backend_class):
    backend, v = backend_class(dtype="float64"), values()
    pm = ml.compile(penalised(), backend, data_keys={"x"}, shapes={"x": [3, 2]})
    result = pm.evaluate(params_of(v) | {}, {"x": v["x"]}, output_gradients=True)

    def penalty(at):
        s = 1 - np.tanh(at["x"] @ at["w1"].T + at["b1"]) ** 2
        return np.sum(((s * at["w2"]) @ at["w1"] / 3) ** 2)

    np.testing.assert_allclose(result.outputs["penalty"], penalty(v), rtol=1e-12)
    for key, name in NAMES.items():
        if name not in result.gradients:
            continue
        direction = np.random.default_rng(3).normal(size=v[key].shape)
        slope = along(penalty, v, key, direction)
        np.testing.assert_allclose(np.sum(result.gradients[name] * direction), slope, rtol=1e-6,
                                   atol=1e-10)  # fmt: skip


@pytest.mark.device
def test_models_of_gradients_are_saved(tmp_path):
    path = tmp_path / "second.mithril"
    times(hyperbolic(), 2).save(path)
    model = ml.load(path).model
    got = run(model, ml.CpuBackend(dtype="float64"), {"x": POINTS})["grad_x"]
    np.testing.assert_allclose(got, tanh_derivative(POINTS, 2), rtol=1e-12, atol=1e-14)


@pytest.mark.device
def test_open_sizes():
    pm = ml.compile(times(quartic(), 2), ml.CpuBackend(), data_keys={"x"}, shapes={"x": [None]})
    for n in (1, 3, 0):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_allclose(pm.evaluate({}, {"x": x})["grad_x"], 12 * x**2)


@pytest.mark.device
def test_what_does_not_depend_has_zeros():
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="y")
    model |= ml.Relu()(input="z", output="other")
    model.expose_keys("y")
    got = run(ml.grad(model, "z", "y"), ml.NumpyBackend(), {"x": POINTS, "z": POINTS})
    np.testing.assert_array_equal(got["grad_z"], np.zeros(5))


def test_the_model_is_not_changed():
    model = mlp()
    before = model.to_json()
    ml.hvp(ml.grad(model, "x"), "x")
    assert model.to_json() == before and not model._node.is_submodel


def test_shapes_are_known_before_anything_runs():
    model = ml.hvp(quartic(), "x")
    model.set_shapes(vector_x=[3, 2])
    assert model.shapes["x"] == model.shapes["hvp_x"] == [3, 2]
    with pytest.raises(ShapeError):
        model.set_shapes(x=[4, 2])


def two_outputs():
    model = ml.Model()
    model |= ml.Tanh()(input="x", output="y")
    model |= ml.Relu()(input="x", output="z")
    model.expose_keys("y", "z")
    return model


BAD = {
    "no model": (lambda: ml.grad(3, "x"), SignatureError, "requires a model"),
    "unknown": (lambda: ml.grad(mlp(), "weight_2"), KeyNotFound, "grad: wrt"),
    "misspelt": (lambda: ml.grad(hyperbolic(), "xx"), KeyNotFound, "xx"),
    "nothing": (lambda: ml.grad(mlp(), []), ArgumentError, "one wire at least"),
    "a number": (lambda: ml.grad(mlp(), 3), SignatureError, "wrt"),
    "a foreign wire": (lambda: ml.grad(mlp(), mlp()["x"]), KeyNotFound, "no wire of"),
    "several outputs": (lambda: ml.grad(two_outputs(), "x"), ArgumentError, "'y', 'z'"),
    "unknown output": (lambda: ml.grad(two_outputs(), "x", "w"), KeyNotFound, "grad: output"),
    "a TrainModel": (lambda: ml.grad(ml.TrainModel(mlp()), "x"), FrozenModelError, "TrainModel"),
    "a flag": (lambda: ml.grad(mlp(), "x", keep_outputs="yes"), SignatureError, "keep_outputs"),
}


@pytest.mark.parametrize("name", BAD)
def test_refusals(name):
    make, cls, said = BAD[name]
    with pytest.raises(cls, match=said):
        make()


def test_connections_name_wires():
    model = mlp()
    assert ml.grad(model, model["x"], model["cost"]).output_keys == ["grad_x"]
