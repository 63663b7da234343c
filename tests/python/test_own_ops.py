"""Ops that a backend's class brings: what it defines is what compiled models run."""

# Covers: mithril/execution/executed.py

import mithril as ml
import numpy as np
import pytest
from mithril.backends.backend import Backend
from mithril.errors import ShapeError, SignatureError, UnsupportedError

X = np.array([[-1.0, 0.0, 2.0]], np.float32)


def one(layer, **keys):
    model = ml.Model()
    model |= layer(**(keys or {"input": "x"}), output="y")
    return model


def compiled(model, backend, **options):
    return ml.compile(model, backend, trainable_keys={"x"}, shapes={"x": [1, 3]}, **options)


def results(pm, backend, x=X):
    out, gradients = pm.evaluate({"x": backend.array(x)}, output_gradients={"y": np.ones_like(x)})
    return backend.to_numpy(out["y"]), backend.to_numpy(gradients["x"])


@pytest.fixture
def base(backend_name):
    return type(ml.get_backend(backend_name))


def test_a_function_of_the_class_is_the_op(base):
    class Doubled(base):
        def tanh(self, x):
            return super().tanh(x) * 2

    backend = Doubled()
    out, gradient = results(compiled(one(ml.Tanh()), backend), backend)
    np.testing.assert_allclose(out, 2 * np.tanh(X), rtol=1e-6)
    # A framework differentiates the function; the engine has the op's rule, 1 - y^2.
    of_rule, of_function = 1 - (2 * np.tanh(X)) ** 2, 2 * (1 - np.tanh(X) ** 2)
    want = of_rule if backend.is_manualgrad else of_function
    np.testing.assert_allclose(gradient, want, rtol=1e-4)


def test_a_gradient_of_the_class_is_the_gradient_of_the_op(base):
    class Steep(base):
        def backward_tanh(self, grad_output, inputs, outputs):
            return grad_output * 3 + inputs[0] * 0 + outputs[0] * 0

    backend = Steep()
    out, gradient = results(compiled(one(ml.Tanh()), backend), backend)
    np.testing.assert_allclose(out, np.tanh(X), rtol=1e-6)
    np.testing.assert_array_equal(gradient, np.full_like(X, 3))


def test_function_and_gradient_of_two_operands(base):
    class Mine(base):
        def subtract(self, left, right):
            return right - left

        def backward_subtract(self, grad_output, inputs, outputs):
            return None, grad_output * 5

    backend = Mine()
    model = one(ml.Subtract(), left="x", right="x2")
    pm = ml.compile(model, backend, trainable_keys={"x", "x2"}, shapes={"x": [1, 3], "x2": [1, 3]})
    given = {"x": backend.array(X), "x2": backend.array(X * 3)}
    out, gradients = pm.evaluate(given, output_gradients={"y": np.ones_like(X)})
    np.testing.assert_array_equal(backend.to_numpy(out["y"]), X * 2)
    np.testing.assert_array_equal(backend.to_numpy(gradients["x"]), np.zeros_like(X))
    np.testing.assert_array_equal(backend.to_numpy(gradients["x2"]), np.full_like(X, 5))


def test_composites_call_what_they_are_made_of(base):
    seen = []

    class Counted(base):
        def matmul(self, left, right):
            seen.append(tuple(right.shape))
            return super().matmul(left, right)

    backend = Counted()
    model = one(ml.Linear(2), input="x", weight="w", bias="b")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [1, 3]})
    w, b = np.ones((2, 3), np.float32), np.array([1.0, 2.0], np.float32)
    out = pm.evaluate({"w": backend.array(w), "b": backend.array(b)}, {"x": backend.array(X)})
    np.testing.assert_allclose(backend.to_numpy(out["y"]), X @ w.T + b, rtol=1e-6)
    assert (3, 2) in seen


def test_a_convolution_in_the_documents_signature(base):
    seen = []

    class Mine(base):
        def conv2d(self, x, filters, kernel_size, strides=(1, 1), padding="SAME"):
            seen.append((kernel_size, strides, padding))
            return super().conv2d(x, filters, stride=strides)

    backend = Mine()
    layer = ml.Convolution2D(kernel_size=(2, 3), out_channels=4, stride=2)
    model = one(layer, input="x", weight="w", bias="b")
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [1, 2, 7, 7]})
    plain = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [1, 2, 7, 7]})
    params = plain.randomize_params(0)
    x = np.arange(98, dtype=np.float32).reshape(1, 2, 7, 7)
    want = plain.evaluate(params, {"x": x})["y"]
    given = {key: backend.array(value) for key, value in params.items()}
    out = pm.evaluate(given, {"x": backend.array(x)})["y"]
    np.testing.assert_allclose(backend.to_numpy(out), want, rtol=1e-5)
    assert seen[0] == ((2, 3), (2, 2), ((0, 0), (0, 0)))


def test_attributes_arrive_by_name_or_are_refused(base):
    class Taken(base):
        def leaky_relu(self, x, slope):
            return x * slope

    class NotTaken(base):
        def softmax(self, x):
            return x

    backend = Taken()
    out, _ = results(compiled(one(ml.LeakyRelu(slope=0.5)), backend), backend)
    np.testing.assert_array_equal(out, X * np.float32(0.5))
    backend = NotTaken()
    pm = compiled(one(ml.Softmax(axis=0)), backend, inference=True)
    with pytest.raises(UnsupportedError, match="NotTaken.softmax: takes no 'axis'"):
        pm.evaluate({"x": backend.array(X)})


def test_results_that_do_not_fit(base):
    class Wrong(base):
        def relu(self, x):
            return "nothing"

        def backward_tanh(self, grad_output, inputs, outputs):
            return grad_output[:, :1]

    backend = Wrong()
    with pytest.raises(SignatureError, match="Wrong.relu: requires an array"):
        compiled(one(ml.Relu()), backend, inference=True).evaluate({"x": backend.array(X)})
    with pytest.raises(ShapeError, match=r"Wrong.backward_tanh: the gradient of operand 0"):
        results(compiled(one(ml.Tanh()), backend), backend)


def test_gradients_of_lists_are_refused(base):
    class Mine(base):
        def backward_concat(self, grad_output, inputs, outputs):
            return grad_output

    with pytest.raises(UnsupportedError, match="backward_concat"):
        ml.compile(one(ml.Relu()), Mine())


def test_a_subclass_overrides_its_base(base):
    class First(base):
        def relu(self, x):
            return x * 2

    class Second(First):
        def relu(self, x):
            return super().relu(x) + 1

    backend = Second()
    out, _ = results(compiled(one(ml.Relu()), backend), backend)
    np.testing.assert_array_equal(out, X * 2 + 1)
    # The base's own instances know nothing of it.
    plain = base()
    out, _ = results(compiled(one(ml.Relu()), plain), plain)
    np.testing.assert_array_equal(out, np.maximum(X, 0))


def test_an_instruction_inside_of_another_op(base):
    class Mine(base):
        def exp(self, x):
            return x * 0 + 2

    backend = Mine()
    pm = compiled(one(ml.Exponential()), backend, inference=True)
    out = pm.evaluate({"x": backend.array(X)})["y"]
    np.testing.assert_array_equal(backend.to_numpy(out), np.full_like(X, 2))


def test_ops_of_a_class_that_stands_on_its_own():
    class Own(Backend):
        def tensor(self, data, dtype=None):
            return np.array(data, None if dtype is None else np.dtype(str(dtype)))

        def zeros(self, shape, dtype=None):
            return np.zeros(shape, dtype and str(dtype))

        def ones(self, shape, dtype=None):
            return np.ones(shape, dtype and str(dtype))

        def add(self, left, right):
            return left - right

    backend = Own()
    model = ml.Model()
    model |= ml.Add()(left="x", right=1.0, output="y")
    pm = ml.compile(model, backend, inference=True, shapes={"x": [1, 3]})
    np.testing.assert_array_equal(pm.evaluate({}, {"x": X})["y"], X - 1)


@pytest.mark.device
def test_a_class_without_ops_of_its_own_keeps_the_engine():
    class Mine(ml.CpuBackend):
        def hello(self):
            return "hello"

        def softplus(self, x):
            return x

    backend = Mine()
    assert compiled(one(ml.Tanh()), backend)._compilation.program.is_native
    assert not compiled(one(ml.Softplus()), backend)._compilation.program.is_native


@pytest.mark.parametrize("many", [False, True])
def test_a_registered_gradient_may_be_one_array(many):
    """Its first row was the gradient, without a word."""
    backend = ml.NumpyBackend()
    backend.register_function("cube_of_tests", lambda x: x**3)
    backend.register_function(
        "backward_cube_of_tests",
        lambda dy, inputs, outputs: (dy * 3 * inputs[0] ** 2,) if many else dy * 3 * inputs[0] ** 2,
    )
    anything = ml.IOKey(shape=[("V", ...)], type=ml.Tensor[float])
    model = ml.Model()
    model |= ml.Lambda("cube_of_tests", input=anything, output=anything)(input="x", output="y")
    pm = ml.compile(model, backend, shapes={"x": [2]}, trainable_keys={"x"})
    x = np.array([1.0, 2.0], np.float32)
    found = pm.evaluate({"x": x}, output_gradients={"y": np.ones(2, np.float32)}).gradients["x"]
    assert found.tolist() == [3.0, 12.0]


# --- wrong signatures and names ------------------------------------------------------------------


def evaluated_with_gradient(backend):
    pm = compiled(one(ml.Tanh()), backend)
    return pm.evaluate({"x": backend.array(X)}, output_gradients={"y": np.ones_like(X)})


@pytest.mark.parametrize(
    ("method", "got"),
    [
        (lambda self: 1, "tanh(): it has no parameter for 'input'"),
        (lambda self, x, alpha: x, "tanh(x, alpha): nothing is given for 'alpha'"),
    ],
)
def test_a_method_of_the_wrong_signature(base, method, got):
    Wrong = type("Wrong", (base,), {"tanh": method, "__module__": __name__})
    with pytest.raises(SignatureError) as error:
        evaluated_with_gradient(Wrong())
    assert error.value.message == f"Wrong.tanh: requires the signature tanh(input), got {got}"
    assert "by the op's names, or by place" in error.value.hint


def test_the_signature_tells_operands_and_attributes():
    class Wrong(ml.NumpyBackend):
        def cumsum(self, x, along):
            return x

    wanted = r"requires the signature cumsum\(input, axis\), got cumsum\(x, along\)"
    with pytest.raises(SignatureError, match=wanted) as error:
        compiled(one(ml.CumSum()), Wrong()).evaluate({"x": X})
    assert "leave out what it does not use of axis" in error.value.hint


@pytest.mark.parametrize(
    ("rule", "got"),
    [
        (lambda self, g, x: g, "(g, x)"),
        (lambda self, g, i, o, alpha: g, "(g, i, o, alpha)"),
        (lambda self, *, g, i, o: g, "(*, g, i, o)"),
    ],
)
def test_a_gradient_rule_of_the_wrong_signature(base, rule, got):
    Wrong = type("Wrong", (base,), {"backward_tanh": rule, "__module__": __name__})
    with pytest.raises(SignatureError) as error:
        evaluated_with_gradient(Wrong())
    assert error.value.message == (
        "Wrong.backward_tanh: requires the signature backward_tanh(grad_output, inputs, outputs),"
        f" got backward_tanh{got}"
    )
    assert "a tuple of the operands and a tuple of the results" in error.value.hint


def test_signatures_that_will_do(base):
    """Operands by place alone, all by place, and parameters that have defaults."""
    methods = [
        lambda self, x, /: x * 2,
        lambda self, *all: all[0] * 2,
        lambda self, x, by=2: x * by,
    ]
    rules = [lambda self, *all: all[0] * 3, lambda self, g, i, o, by=3: g * by,
             lambda self, g, i, o, **rest: g * 3]  # fmt: skip
    for method, rule in zip(methods, rules, strict=True):
        names = {"tanh": method, "backward_tanh": rule, "__module__": __name__}
        backend = type("Good", (base,), names)()
        out, gradient = results(compiled(one(ml.Tanh()), backend), backend)
        np.testing.assert_array_equal(out, X * 2)
        np.testing.assert_array_equal(gradient, np.full_like(X, 3))


def test_a_registered_gradient_of_the_wrong_signature():
    backend = ml.NumpyBackend()
    backend.register_function("cube_of_tests", lambda x: x**3)
    backend.register_function("backward_cube_of_tests", lambda g, x: g)
    anything = ml.IOKey(shape=[("Any", ...)], type=ml.Tensor[float])
    model = ml.Model()
    model |= ml.Lambda("cube_of_tests", input=anything, output=anything)(input="x", output="y")
    with pytest.raises(SignatureError, match=r"requires the signature .*inputs, outputs\), got"):
        results(compiled(model, backend), backend)
    # What a right one raises goes through.
    backend.register_function("backward_cube_of_tests", lambda g, i, o: g + "text")
    with pytest.raises(TypeError, match="ufunc") as error:
        results(compiled(model, backend), backend)
    assert not isinstance(error.value, SignatureError)


class Misspelt(ml.NumpyBackend):
    def backward_tahn(self, grad_output, inputs, outputs):
        return grad_output

    def matmull(self, left, right):
        return left @ right

    def helper(self):
        return 1

    def close(self):  # near cos, and no misspelling of it
        return 1

    def _rellu(self, x):
        return x

    def get_device(self):
        return "cpu"


def test_names_that_are_almost_those_of_ops():
    from mithril.errors import MithrilWarning
    from mithril.execution import own_ops

    said = [
        "backward_tahn: no op has this name; did you mean backward_tanh?",
        "matmull: no op has this name; did you mean matmul?",
    ]
    assert list(own_ops.misspelt(Misspelt).values()) == said
    own_ops._names.cache_clear()
    with pytest.warns(MithrilWarning) as warned:
        compiled(one(ml.Tanh()), Misspelt())
    assert [str(w.message) for w in warned] == [f"Misspelt: {text}" for text in said]
    assert own_ops.misspelt(ml.NumpyBackend) == {}


def test_a_gradient_of_what_nothing_has_the_name_of():
    from mithril.execution import own_ops

    class Idle(ml.NumpyBackend):
        def backward_of_something(self, grad_output, inputs, outputs):
            return grad_output

    backend = Idle()
    assert own_ops.idle_gradients(backend) == {
        "backward_of_something": "backward_of_something: no op or registered function is called"
        " like that"
    }
    backend.register_function("of_something", lambda x: x)
    assert own_ops.idle_gradients(backend) == {}
