# Covers: mithril/eager/array_methods.py mithril/eager/op_programs.py
"""Ops as methods of backends, where they are compiled as models of one op."""

import mithril as ml
import numpy as np
import pytest
from conftest import FRAMEWORKS, backend_param
from mithril import _core
from mithril.backends import get_backend
from mithril.eager.methods import MOST_PROGRAMS, is_plain
from mithril.errors import (
    ArgumentError,
    DTypeError,
    MithrilError,
    OutOfMemoryError,
    ShapeError,
    SignatureError,
)


@pytest.fixture
def backend(backend_name):
    return get_backend(backend_name)


def same(backend, actual, expected):
    assert isinstance(actual, backend.get_backend_array_type())
    np.testing.assert_allclose(backend.to_numpy(actual), expected, rtol=1e-6)


def test_ops_without_a_function_of_their_own(backend):
    x = backend.array([[-1.0, 2.0]])
    same(backend, backend.square(x), [[1.0, 4.0]])
    same(backend, backend.leaky_relu(x, 0.5), [[-0.5, 2.0]])
    same(backend, backend.leaky_relu(x, slope=backend.array(0.25)), [[-0.25, 2.0]])
    same(backend, backend.clip(x, -0.5, 0.5), [[-0.5, 0.5]])
    same(backend, backend.variance(x), 2.25)
    same(backend, backend.squared_error(x, backend.zeros(1, 2)), [[1.0, 4.0]])
    same(backend, backend.square([3.0]), [9.0])
    same(backend, backend.square(3.0), 9.0)


def test_layers_take_what_layers_take(backend):
    x, w = backend.ones(2, 3, 4, 4), backend.ones(5, 3, 3, 3)
    same(backend, backend.conv2d(x, w), np.full((2, 5, 2, 2), 27.0))
    assert backend.shape(backend.conv2d(x, filters=w, strides=2)) == (2, 5, 1, 1)
    assert backend.shape(backend.conv2d(x, w, padding="same")) == (2, 5, 4, 4)
    same(backend, backend.conv2d(x, w, bias=backend.ones(1, 5, 1, 1)), np.full((2, 5, 2, 2), 28.0))
    same(backend, backend.max_pool2d(x, 2), np.ones((2, 3, 2, 2)))
    same(backend, backend.avg_pool2d(x, kernel_size=(2, 4)), np.ones((2, 3, 2, 1)))
    normalized = backend.batch_norm(x, backend.ones(3), backend.ones(3))
    same(backend, normalized, np.zeros((2, 3, 4, 4)))


def test_too_many_operands(backend):
    with pytest.raises(TypeError, match="square takes 1 operands"):
        backend.square(backend.ones(1), 2, 3)


@pytest.mark.parametrize(
    ("call", "error", "op"),
    [
        (lambda b: b.matmul(b.ones(2, 3), b.ones(2, 3)), ShapeError, "matmul"),
        (lambda b: b.add(b.ones(2), b.ones(3)), ShapeError, "add"),
        (lambda b: b.maximum(b.ones(2), b.ones(3)), ShapeError, "maximum"),
        (lambda b: b.linear(b.ones(2, 3), b.ones(4, 5)), ShapeError, "linear"),
        (lambda b: b.concatenate([b.ones(2, 3), b.ones(3, 2)], axis=0), ShapeError, "concat"),
        (lambda b: b.reshape(b.ones(2, 3), (4,)), ShapeError, "reshape"),
        (lambda b: b.broadcast_to(b.ones(2), (3,)), ShapeError, "broadcast_to"),
        (lambda b: b.softmax(b.ones(2, 3), axis=5), ArgumentError, "softmax"),
        (lambda b: b.transpose(b.ones(2, 3), (0, 5)), ArgumentError, "transpose"),
    ],
)
def test_what_libraries_refuse_is_a_typed_error(backend, call, error, op):
    with pytest.raises(error, match=f"^{op}: .*, got \\[") as raised:
        call(backend)
    assert isinstance(raised.value, ValueError) and "\n" not in raised.value.message
    if op == "matmul":
        assert raised.value.message.endswith("got [2, 3] and [2, 3]")
        call = lambda: backend.matmul(backend.ones(2, 3), backend.ones(3, 2))  # noqa: E731
        assert backend.shape(call()) == (2, 2)  # nothing was changed
        same(backend, call(), np.full((2, 2), 3.0))


@pytest.mark.parametrize(
    ("error", "is_ours"),
    [
        (RuntimeError("The size of tensor a (2) must match"), True),
        (TypeError("contracting dimensions to have the same shape"), True),
        (RuntimeError("CUDA out of memory"), False),
        (RuntimeError("element 0 of tensors does not require grad"), False),
        (NotImplementedError("no kernel"), False),
        (type("OfTracers", (TypeError,), {})("a tracer leaked"), False),
    ],
)
def test_what_is_not_of_arguments_stays_the_framework_s(error, is_ours):
    assert is_plain(error) is is_ours


def test_a_device_must_be_named(backend):
    with pytest.raises(SignatureError, match="to_device: requires a device, such as '") as error:
        backend.to_device({"w": backend.ones(2)})
    assert "there is nothing to move" in error.value.hint


def test_programs_are_kept_and_bounded(backend):
    for _ in range(3):
        backend.square(backend.ones(2))
    assert len(backend._twin()._op_programs) == 1
    if backend.backend_type == "numpy":
        for size in range(MOST_PROGRAMS + 5):
            backend.square(backend.ones(size))
        assert len(backend._op_programs) == MOST_PROGRAMS


@pytest.mark.parametrize("name", [backend_param(n) for n in FRAMEWORKS])
def test_methods_are_differentiable(name):
    backend = get_backend(name)
    gradient = backend.grad(lambda x: backend.sum(backend.leaky_relu(x, 0.5)))
    same(backend, gradient(backend.array([-1.0, 0.0, 2.0])), [0.5, 0.5, 1.0])


# --- axes -----------------------------------------------------------------------------------------


def axis_key(op):
    keys = {i["name"] for i in op["inputs"]} | dict(op["attrs"]).keys()
    return next((key for key in ("axis", "axis1", "start_dim") if key in keys), None)


WITH_AXES = {op["name"]: op for op in _core.ops() if op["python_name"] and axis_key(op)}
SECOND = {"chunk": [2], "split": [1]}


@pytest.mark.parametrize("name", WITH_AXES)
def test_axes_that_an_array_has_not(name, backend):
    """Some were counted modulo the rank: `argmax(x, axis=5)` of a matrix was that along axis 1."""
    x = backend.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    needed = [
        [x, x] if i["variadic"] else x
        for i in WITH_AXES[name]["inputs"]
        if "tensor" in i["type"] and not i["optional"] and not i["is_key"]
    ]
    key = axis_key(WITH_AXES[name])
    for axis in (5, -4):
        with pytest.raises(MithrilError):
            getattr(backend, name)(*needed, *SECOND.get(name, []), **{key: axis})


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "any", "argmax", "var"])
def test_an_axis_that_is_named_twice(name, backend):
    x = backend.array([[True, False]] if name == "any" else [[1.0, 2.0]])
    for axes in ((0, 0), (1, -1)):
        with pytest.raises(MithrilError):
            getattr(backend, name)(x, axis=axes)


# --- arguments that backends took in different ways ----------------------------------------------


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "any", "all", "argmax"])
def test_what_is_no_bool(name, backend):
    x = backend.array([[True, False]] if name in ("any", "all") else [[1.0, 2.0]])
    for keepdim in (0, 2, -1, "yes", None):
        with pytest.raises(DTypeError, match=f"{name}: keepdim requires a bool, got"):
            getattr(backend, name)(x, axis=0, keepdim=keepdim)
    assert backend.shape(getattr(backend, name)(x, axis=0, keepdim=np.bool_(True))) == (1, 2)


def test_axes_that_cannot_be_squeezed(backend):
    x = backend.array([[[1.0, 2.0]]])
    assert backend.shape(backend.squeeze(x, axis=(0, 1))) == (2,)
    for axis in (2, -1, (0, 2)):
        with pytest.raises(MithrilError):
            backend.squeeze(x, axis=axis)


def test_a_place_that_an_axis_has_not(backend):
    x = backend.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    same(backend, backend.index(x, -2), [1.0, 2.0, 3.0])
    for index in (2, -3, 2**40, (0, 3), (slice(None), -4)):
        with pytest.raises(MithrilError):
            backend.index(x, index)


SLICES = [
    slice(a, b, c) for a in (None, 0, 2, -1, -5) for b in (None, 1, -5, 4) for c in (-3, -1, 2, 3)
]


@pytest.mark.parametrize("open_size", [False, True])
def test_gradients_of_slices(open_size, backend):
    """MLX gave those of other elements where a step of 2 and more takes one, and failed at none."""
    for size in (1, 3, 4):
        for entry in SLICES:
            model = ml.Model.create(y=ml.IOKey("x")[entry])
            pm = ml.compile(
                model, backend, trainable_keys={"x"}, shapes={"x": [None if open_size else size]}
            )
            x = np.arange(size, dtype="f4")
            given = np.arange(2.0, 2.0 + len(x[entry]), dtype="f4")
            wanted = np.zeros_like(x)
            wanted[entry] = given
            found = pm.evaluate(
                {"x": backend.array(x)}, output_gradients={"y": backend.array(given)}
            )
            same(backend, found.gradients["x"], wanted)


@pytest.mark.parametrize("diagonal", [2**31, 2**40, -(2**40), 2**62])
def test_results_without_an_address(diagonal, backend):
    """XLA ended the process."""
    with pytest.raises(OutOfMemoryError, match="does not fit an address space"):
        backend.diag(backend.array([1.0, 2.0, 3.0]), diagonal=diagonal)


@pytest.mark.parametrize("method", ["zeros", "ones", "empty", "rand", "randn"])
def test_sizes_that_no_array_has(method, backend):
    make = getattr(backend, method)
    with pytest.raises(ShapeError, match=r"not negative, got \(2, -1\)"):
        make(2, -1)
    with pytest.raises(OutOfMemoryError, match="does not fit an address space"):
        make((2**40, 2**40))
    assert backend.shape(make(0, 3)) == (0, 3)


def test_values_inside_a_model_without_an_address(backend):
    for shape in ([3], ["n"]):
        model = ml.Model()
        model |= ml.Diag(diagonal=2**40)(input="x", output="y")
        model |= ml.Sum()(input="y", output="z")
        model.expose_keys("z")
        with pytest.raises(OutOfMemoryError, match="does not fit an address space"):
            pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": shape})
            pm.evaluate({}, {"x": backend.array([1.0, 2.0, 3.0])})
