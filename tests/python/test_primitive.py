# Covers: mithril/execution/primitives.py
"""Primitives of users: their keys, their shapes, and the functions that backends have for them."""

import importlib

import mithril as ml
import numpy as np
import pytest
from mithril.errors import (
    DTypeError,
    KeyNotFound,
    MithrilError,
    ShapeError,
    SignatureError,
    UnsupportedError,
)

ANY = [("Any", ...)]


class Cube(ml.models.PrimitiveModel):
    def __init__(self, name=None):
        key = ml.IOKey(shape=ANY, type=ml.Tensor[float])
        super().__init__("cube_of_tests", name=name, input=key, output=key)


def outer_product(formula="outer_of_tests", **more):
    return ml.models.CustomPrimitiveModel(
        formula,
        left=ml.IOKey(shape=["N"], type=ml.Tensor[float]),
        right=ml.IOKey(shape=["M"], type=ml.Tensor[float]),
        output=ml.IOKey(shape=["N", "M"], type=ml.Tensor[float]),
        **more,
    )


def test_keys_and_shapes():
    model = ml.Model()
    model |= outer_product().connect("a", "b", "c")
    assert model.input_keys == ["a", "b"]
    model.set_shapes(c=[2, 3])
    assert model.shapes["a"] == [2] and model.shapes["b"] == [3]
    with pytest.raises(ShapeError):
        model.set_shapes(a=[4])


def test_it_is_a_model_like_others():
    cube = Cube(name="c")
    assert cube.is_frozen and cube.formula_key == "cube_of_tests" and cube.name == "c"
    assert [w.key for w in cube.conns.cins] == ["input"]
    assert [w.key for w in outer_product().conns.cins] == ["left"]
    model = ml.Model()
    model |= Cube()
    model += Cube()
    assert list(model.get_unique_submodel_names().values()) == ["Cube_0", "Cube_1"]


def test_values_of_keys():
    model = ml.models.CustomPrimitiveModel(
        "power_of_tests",
        input=ml.IOKey(shape=ANY, type=ml.Tensor[float]),
        exponent=ml.IOKey(type=int, value=3),
        output=ml.IOKey(shape=ANY, type=ml.Tensor[float]),
    )
    assert model._node.is_valued("exponent")
    outer = ml.Model()
    outer |= model(input="x", output="y")
    assert outer.input_keys == ["x"]


@pytest.mark.device
def test_values_and_gradients_on_numpy():
    backend = ml.NumpyBackend(dtype="float64")
    backend.register_function("cube_of_tests", lambda x: x**3)
    backend.register_function("backward_cube_of_tests", lambda g, i, o: (3 * i[0] ** 2 * g,))
    model = ml.Model()
    model |= Cube()(input="x", output="y")
    pm = ml.compile(model, backend, shapes={"x": [3]}, trainable_keys={"x"})
    x = np.array([1.0, -2.0, 0.5])
    outputs, gradients = pm.evaluate({"x": x}, {}, output_gradients={"y": np.ones(3)})
    np.testing.assert_array_equal(outputs["y"], x**3)
    np.testing.assert_array_equal(gradients["x"], 3 * x**2)


@pytest.mark.device
def test_several_inputs_and_a_value():
    backend = ml.NumpyBackend(dtype="float64")
    backend.register_function("outer_of_tests", np.outer)
    backend.register_function("backward_outer_of_tests", lambda g, i, o: (g @ i[1], i[0] @ g))
    model = ml.Model()
    model |= outer_product()(left="a", right="b", output="c")
    pm = ml.compile(model, backend, shapes={"a": [2], "b": [3]}, trainable_keys={"a", "b"})
    a, b, g = np.array([1.0, 2.0]), np.array([3.0, 4.0, 5.0]), np.arange(6.0).reshape(2, 3)
    outputs, gradients = pm.evaluate({"a": a, "b": b}, {}, output_gradients={"c": g})
    np.testing.assert_allclose(outputs["c"], a[:, None] * b)
    np.testing.assert_allclose(gradients["a"], g @ b)
    np.testing.assert_allclose(gradients["b"], a @ g)


@pytest.mark.device
def test_a_function_that_the_backend_does_not_have():
    model = ml.Model()
    model |= outer_product("nobody_has_it")(left="a", right="b", output="c")
    for backend in (ml.NumpyBackend(), ml.CpuBackend()):
        with pytest.raises(NotImplementedError, match="nobody_has_it"):
            pm = ml.compile(model, backend, shapes={"a": [2], "b": [3]}, inference=True)
            pm.evaluate({}, {"a": np.ones(2), "b": np.ones(3)})


KEY = ml.IOKey(shape=ANY, type=ml.Tensor[float])
BAD = {
    "no output": (lambda: ml.models.PrimitiveModel("f", input=KEY), KeyNotFound),
    "no key": (lambda: ml.models.PrimitiveModel("f", input=3, output=KEY), SignatureError),
    "a wire": (lambda: ml.models.PrimitiveModel("f", input=ml.Relu().input, output=KEY), TypeError),
    "no name": (lambda: ml.models.PrimitiveModel("a b", output=KEY), SignatureError),
    "no text": (lambda: ml.models.PrimitiveModel(3, output=KEY), SignatureError),
    "nul": (lambda: ml.models.PrimitiveModel("a\0", output=KEY), SignatureError),
    "long": (lambda: ml.models.PrimitiveModel("a" * 10**6, output=KEY), SignatureError),
    "unicode key": (
        lambda: ml.models.PrimitiveModel("f", output=KEY, 名=KEY),
        SignatureError,
    ),
    "two variadics": (
        lambda: ml.models.PrimitiveModel(
            "f", output=ml.IOKey(shape=[("A", ...), ("B", ...)], type=ml.Tensor)
        ),
        ShapeError,
    ),
    "unknown key": (lambda: Cube().connect(nope="a"), SignatureError),
    "twice": (lambda: Cube().connect("a", input="b"), SignatureError),
    "too many": (lambda: Cube().connect("a", "b", "c"), SignatureError),
    "value of another type": (
        lambda: ml.models.PrimitiveModel("f", n=ml.IOKey(type=int, value=2.5), output=KEY),
        DTypeError,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(name):
    call, error = BAD[name]
    with pytest.raises(error) as caught:
        call()
    assert isinstance(caught.value, MithrilError)


# --- activations by name --------------------------------------------------------------------------


@pytest.mark.device
def test_activations_by_the_name_of_an_op():
    x = np.array([-1.5, 0.0, 2.0])
    cases = {"relu": ({}, np.maximum(x, 0)), "leaky_relu": ({"slope": 0.5}, np.maximum(x, x / 2)),
             "softplus": ({"beta": 2.0}, np.log1p(np.exp(2 * x)) / 2)}  # fmt: skip
    for formula, (arguments, expected) in cases.items():
        activation = ml.models.Activation(formula, **arguments)
        assert activation.formula_key == formula and type(activation) is ml.models.Activation
        model = ml.Model()
        model |= activation(input="x", output="y")
        pm = ml.compile(model, ml.NumpyBackend(dtype="float64"), inference=True)
        np.testing.assert_allclose(pm.evaluate({}, {"x": x})["y"], expected, rtol=1e-15)


@pytest.mark.device
@pytest.mark.parametrize("polymorphic", [False, True])
def test_activations_by_the_name_of_a_function(polymorphic):
    backend = ml.NumpyBackend(dtype="float64")
    backend.register_function("successor_of_tests", lambda x: x + 1)
    model = ml.Model()
    model |= ml.models.Activation("successor_of_tests", polymorphic)(input="x", output="y")
    model.set_shapes(y=[2])
    assert model.shapes["x"] == [2]
    pm = ml.compile(model, backend, data_keys={"x"}, inference=True)
    assert pm.evaluate({}, {"x": np.array([1.0, 2.0])})["y"].tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"formula_key": "relu", "slope": 1.0}, "Activation: relu has no argument 'slope'"),
        ({"formula_key": "add"}, "Activation: add has no argument 'input'"),
        ({"formula_key": "a b"}, "primitive: formula_key must be a Python name, got 'a b'"),
    ],
)
def test_activations_that_cannot_be(arguments, message):
    with pytest.raises(SignatureError) as failure:
        ml.models.Activation(**arguments)
    assert str(failure.value).splitlines()[0].endswith(message)


# --- kernels of classes --------------------------------------------------------------------------


def saxpy_of_tests(left, right):
    return left * 2.0 + right * right


def saxpy_of_tests_grad(output_gradient, cache, idx, left, right):
    return output_gradient * (2.0 if idx == 0 else 2.0 * right)


def saxpy():
    key = {"shape": ANY, "type": ml.Tensor[float]}
    model = ml.Model()
    model |= ml.models.CustomPrimitiveModel(
        "saxpy_of_tests", left=ml.IOKey(**key), right=ml.IOKey(**key), output=ml.IOKey(**key)
    )(left="a", right="b", output="c")
    model |= ml.Tanh()(input="c", output="y")
    model.expose_keys("y")
    return model


@pytest.fixture
def for_every_backend():
    """The kernel on the base class, for the time of a test."""
    ml.Backend.register_primitive(saxpy_of_tests, saxpy_of_tests_grad)
    yield
    for name in ("saxpy_of_tests", "backward_saxpy_of_tests"):
        ml.Backend._primitives.pop(name)


@pytest.mark.parametrize("autodiff", ["engine", "framework"])
def test_kernels_of_every_backend(for_every_backend, backend_name, autodiff):
    if autodiff == "framework" and backend_name in ("cpu", "numpy", "c"):
        pytest.skip("no differentiation of its own")
    backend = ml.get_backend(backend_name)
    a, b = np.array([0.1, -0.2, 0.3], np.float32), np.array([0.5, 0.25, -1.0], np.float32)
    pm = ml.compile(
        saxpy(), backend, shapes={"a": [3]}, trainable_keys={"a", "b"}, autodiff=autodiff, jit=False
    )
    assert pm.shapes["b"] == [3]  # by the rule that the keys state
    given = {"y": backend.ones(3)}
    params = {"a": backend.array(a), "b": backend.array(b)}
    outputs, gradients = pm.evaluate(params, {}, output_gradients=given)
    y = np.tanh(2 * a + b * b)
    for got, want in ((outputs["y"], y), (gradients["a"], 2 * (1 - y**2)),
                      (gradients["b"], 2 * b * (1 - y**2))):  # fmt: skip
        np.testing.assert_allclose(backend.to_numpy(got), want, rtol=1e-5)


ANYTHING = ml.IOKey(shape=[("A", ...)], type=ml.Tensor[float])


def rounded(backend, backward=lambda g, i, o: 3 * g):
    """A step function of the backend's library, with a slope that no framework would find."""
    library = {"torch": "torch", "jax": "jax.numpy", "mlx": "mlx.core"}.get(backend, "numpy")
    keys = {"input": ANYTHING, "output": ANYTHING}
    return ml.Lambda(importlib.import_module(library).round, opaque=True, backward=backward, **keys)


def gradient_of(model, backend, x, **options):
    pm = ml.compile(model, backend, shapes={"x": list(x.shape)}, trainable_keys={"x"}, **options)
    given = {"y": backend.ones(*x.shape)}
    found = pm.evaluate({"x": backend.array(x)}, output_gradients=given)
    return backend.to_numpy(found.outputs["y"]), backend.to_numpy(found.gradients["x"])


X = np.array([0.4, 1.6, 2.2], np.float32)


@pytest.mark.parametrize("autodiff", [None, "engine"])
def test_a_gradient_that_somebody_wrote_counts_on_every_backend(backend_name, autodiff):
    backend = ml.get_backend(backend_name)
    model = ml.Model()
    model |= ml.Multiply()(left="x", right=2.0, output="h")
    model |= rounded(backend_name)(input="h", output="y")
    y, gradient = gradient_of(model, backend, X, autodiff=autodiff)
    assert y.tolist() == [1.0, 3.0, 4.0] and gradient.tolist() == [6.0, 6.0, 6.0]


def test_transformations_of_a_framework_see_the_gradient_that_somebody_wrote(backend_name):
    backend = ml.get_backend(backend_name)
    if backend.is_manualgrad:
        pytest.skip("no differentiation of its own")
    model = ml.Model()
    model |= rounded(backend_name)(input="x", output="h")
    model |= ml.Multiply()(left="h", right="scale", output="y")
    model.expose_keys("y")
    pm = ml.compile(
        model, backend, shapes={"x": [3], "scale": []}, trainable_keys={"x"}, data_keys={"scale"}
    )
    run, scale = pm.as_function(outputs="y"), backend.array(2.0)

    def total(x):
        return backend.sum(run({"x": x}, {"scale": scale})["y"])

    assert backend.to_numpy(backend.grad(total)(backend.array(X))).tolist() == [6.0, 6.0, 6.0]
    rows = backend.array(np.stack([X, X + 1]))
    by_row = backend.vmap(backend.grad(total))(rows)
    assert backend.to_numpy(by_row).tolist() == [[6.0, 6.0, 6.0]] * 2


def test_a_registered_gradient_counts_on_every_backend(backend_name):
    backend = ml.get_backend(backend_name)
    backend.register_function("square_of_tests", lambda x: x * x)
    backend.register_function("backward_square_of_tests", lambda g, i, o: 7 * g)
    model = ml.Model()
    model |= ml.Lambda("square_of_tests", input=ANYTHING, output=ANYTHING)(input="x", output="y")
    y, gradient = gradient_of(model, backend, X)
    np.testing.assert_allclose(y, X * X, rtol=1e-6)
    assert gradient.tolist() == [7.0, 7.0, 7.0]


@pytest.mark.parametrize("kind", ["loop", "branch"])
def test_functions_inside_of_loops_and_branches(kind, backend_name):
    """The engine ran loops without looking for them; frameworks differentiated them."""
    backend = ml.get_backend(backend_name)
    part = rounded(backend_name)
    model = ml.Model()
    if kind == "loop":
        body = ml.Model()
        body |= ml.Add()(left="h", right="x", output="s")
        body |= part(input="s", output="next")
        body.expose_keys("next")
        model |= ml.Scan(body, carry={"h": "next"}, xs=["x"])(h="h0", x="x", next="y")
        x, h = np.full((3, 2), 1.3, np.float32), np.zeros(2, np.float32)
        wanted = [[27.0, 27.0], [9.0, 9.0], [3.0, 3.0]]  # 3 at each step
        data, want = {"h0": h}, [3.0, 3.0]
    else:
        taken, other = ml.Model(), ml.Model()
        taken |= part(input="v", output="w")
        other |= ml.Sine()(input="v", output="w")
        model |= ml.Cond(taken, other)(predicate="p", v="x", w="y")
        x, wanted, want = X, [3.0, 3.0, 3.0], [0.0, 2.0, 2.0]
        data = {"p": np.array(True)}
    model.expose_keys("y")
    shapes = {key: list(value.shape) for key, value in {"x": x, **data}.items()}
    pm = ml.compile(model, backend, shapes=shapes, trainable_keys={"x"}, data_keys=set(data))
    given = {key: backend.array(value, value.dtype) for key, value in data.items()}
    found = pm.evaluate(
        {"x": backend.array(x)}, given, output_gradients={"y": backend.ones(len(want))}
        if kind == "loop" else {"y": backend.ones(3)},
    )  # fmt: skip
    assert backend.to_numpy(found.outputs["y"]).tolist() == want
    assert backend.to_numpy(found.gradients["x"]).tolist() == wanted


def test_the_framework_differentiates_what_came_without_a_gradient(backend_name):
    """Also beside a function that came with one, where the engine makes the gradient program."""
    backend = ml.get_backend(backend_name)
    if backend.is_manualgrad:
        pytest.skip("no differentiation of its own")
    keys = {"input": ANYTHING, "output": ANYTHING}
    model = ml.Model()
    model |= ml.Lambda(lambda x: x * x * x, opaque=True, **keys)(input="x", output="h")
    model |= rounded(backend_name)(input="h", output="y")
    _, gradient = gradient_of(model, backend, X)
    np.testing.assert_allclose(gradient, 3 * 3 * X.astype("f8") ** 2, rtol=1e-6)
    backend.register_function("product_of_tests", lambda a, b: a * b)
    model = ml.Model()
    model |= ml.Lambda("product_of_tests", a=ANYTHING, b=ANYTHING, output=ANYTHING)(
        a="x", b="x", output="y"
    )
    _, gradient = gradient_of(model, backend, X, autodiff="engine")
    np.testing.assert_allclose(gradient, 2 * X.astype("f8"), rtol=1e-6)


def test_results_and_gradients_of_other_shapes_are_refused(backend_name):
    backend = ml.get_backend(backend_name)
    keys = {"input": ANYTHING, "output": ANYTHING}

    def run(function, backward):
        model = ml.Model()
        part = ml.Lambda(function, opaque=True, backward=backward, **keys)
        model |= part(input="x", output="y")
        return gradient_of(model, backend, X)

    def first_two(x):
        return x[:2]

    with pytest.raises(ShapeError, match=r"first_two: requires a result of the shape \[3\].*\[2\]"):
        run(first_two, lambda g, i, o: g)
    with pytest.raises(
        ShapeError, match=r"gradient of operand 0 requires its shape \[3\], got \[1\]"
    ):
        run(lambda x: x * x, lambda g, i, o: g[:1])
    with pytest.raises(SignatureError, match="requires a gradient for each of 1 operands, got 2"):
        run(lambda x: x * x, lambda g, i, o: (g, g))
    assert run(lambda x: x * x, lambda g, i, o: (None,))[1].tolist() == [0.0, 0.0, 0.0]


def test_sizes_of_results_that_keys_declare():
    """Sizes by name and in numbers; what no operand tells is not looked at."""
    backend = ml.NumpyBackend()

    def result_of(function, **keys):
        model = ml.Model()
        model |= ml.Lambda(function, opaque=True, **keys)(a="a", output="y")
        return ml.compile(model, backend, data_keys={"a"}, shapes={"a": [4, 2, 3]}, inference=True
        ).evaluate({}, {"a": np.ones((4, 2, 3), "f4")})["y"].shape  # fmt: skip

    def key(*shape):
        return ml.IOKey(shape=list(shape), type=ml.Tensor[float])

    a = key(("B", ...), "n", 3)
    assert result_of(lambda a: a[..., 0], a=a, output=key(("B", ...), "n")) == (4, 2)
    assert result_of(lambda a: a[0, 0, :2], a=a, output=key("m")) == (2,)
    for output in (key("n", ("B", ...)), key(("B", ...), 5), key(("B", ...)), key("n", "n")):
        with pytest.raises(ShapeError, match="requires a result of the shape"):
            result_of(lambda a: a[..., 0], a=a, output=output)


@pytest.mark.device
def test_training_steps_of_the_engine_call_kernels(for_every_backend):
    model = ml.TrainModel(saxpy())
    model.add_loss(ml.SquaredError(), input="y", target="t", reduce_steps=[ml.Sum()])
    optimizer = ml.optim.SGD(lr=0.1)
    options = {"data_keys": {"a", "t"}, "shapes": {"a": [2]}, "optimizer": optimizer}
    a, b, t = np.array([0.1, -0.2]), np.array([0.5, 0.25]), np.array([1.0, -1.0])
    for backend in (ml.CpuBackend(dtype="float64"), ml.NumpyBackend(dtype="float64")):
        pm = ml.compile(model, backend, trainable_keys={"b"}, **options)
        params = {"b": b}
        step = pm.step(params, optimizer.init(params), {"a": a, "t": t})
        y = np.tanh(2 * a + b * b)
        slope = 2 * (y - t) * (1 - y**2) * 2 * b
        np.testing.assert_allclose(step.params["b"], b - 0.1 * slope, rtol=1e-10)
        step = pm.step(step.params, step.opt_state, {"a": a, "t": t})
        assert np.isfinite(step.params["b"]).all()


def test_second_derivatives_of_kernels_are_refused(for_every_backend, backend_name):
    """They would be those of a constant: nothing is known of the function that is the gradient."""
    backend = ml.get_backend(backend_name)
    options = {"data_keys": {"a", "b"}, "shapes": {"a": [3]}}
    once = ml.compile(ml.grad(saxpy(), "b"), backend, inference=True, **options)
    b = np.array([0.5, 0.25, -1.0], "f4")
    found = once.evaluate({}, {"a": b, "b": b})["grad_b"]
    y = np.tanh(2 * b + b * b)
    np.testing.assert_allclose(backend.to_numpy(found), 2 * b * (1 - y**2), rtol=1e-5)
    with pytest.raises(UnsupportedError, match="saxpy_of_tests has no second derivative"):
        ml.compile(ml.grad(ml.grad(saxpy(), "b"), "b"), backend, inference=True, **options)


@pytest.mark.device
def test_kernels_of_a_class_and_of_an_instance():
    class Own(ml.NumpyBackend):
        pass

    Own().register_primitive(saxpy_of_tests)  # as on the class
    a = np.ones(2, np.float32)
    pm = ml.compile(saxpy(), Own(), shapes={"a": [2]}, inference=True, trainable_keys={"a", "b"})
    np.testing.assert_allclose(pm.evaluate({"a": a, "b": a})["y"], np.tanh([3.0, 3.0]), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="saxpy_of_tests"):
        ml.compile(saxpy(), ml.NumpyBackend(), shapes={"a": [2]}, inference=True)


@pytest.mark.parametrize("wrong", [3, None, "saxpy"])
def test_kernels_are_functions(wrong):
    with pytest.raises(SignatureError, match="register_primitive"):
        ml.NumpyBackend.register_primitive(wrong)
    with pytest.raises(SignatureError, match="must be a Python name"):
        ml.NumpyBackend.register_primitive(lambda x: x)  # its name is no formula key
    if wrong is not None:
        with pytest.raises(SignatureError, match="fn_grad"):
            ml.NumpyBackend.register_primitive(saxpy_of_tests, wrong)
