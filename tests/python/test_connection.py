"""Connections, symbolic tensors, and the ops behind operators."""

import inspect
import operator

import mithril as ml
import numpy as np
import pytest
from mithril.errors import ArgumentError, DTypeError, MithrilError
from mithril.logical.annotation import type_of

# What Python's operator or method makes, and the op that stands for it.
EXPRESSIONS = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "floor_divide": lambda a, b: a // b,
    "power": lambda a, b: a**b,
    "matmul": lambda a, b: a @ b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "equal": lambda a, b: a.eq(b),
    "not_equal": lambda a, b: a.ne(b),
    "logical_and": lambda a, b: a & b,
    "logical_or": lambda a, b: a | b,
    "logical_xor": lambda a, b: a ^ b,
    "shift_left": lambda a, b: a << b,
    "shift_right": lambda a, b: a >> b,
    "logical_not": lambda a, b: ~a,
    "negate": lambda a, b: -a,
    "abs": lambda a, b: a.abs(),
    "length": lambda a, b: a.len(),
    "shape": lambda a, b: a.shape,
    "dtype": lambda a, b: a.dtype(),
    "reshape": lambda a, b: a.reshape((2, -1)),
    "size": lambda a, b: a.size(),
    "mean": lambda a, b: a.mean(),
    "sum": lambda a, b: a.sum(axis=0, keepdim=True),
    "max": lambda a, b: a.max(),
    "min": lambda a, b: a.min(),
    "prod": lambda a, b: a.prod(),
    "variance": lambda a, b: a.var(),
    "sqrt": lambda a, b: a.sqrt(),
    "exp": lambda a, b: a.exp(),
    "sin": lambda a, b: a.sin(),
    "cos": lambda a, b: a.cos(),
    "floor": lambda a, b: a.floor(),
    "item": lambda a, b: a.item(),
    "transpose": lambda a, b: a.T,
    "cast": lambda a, b: a.cast(ml.float16),
    "clamp": lambda a, b: a.clamp(0, 1),
    "index": lambda a, b: a[1:, None, ..., 0],
}


@pytest.mark.parametrize("op", EXPRESSIONS)
def test_expressions_are_ops(op):
    model = ml.Model()
    result = EXPRESSIONS[op](ml.IOKey("a"), ml.IOKey("b"))
    model |= ml.Buffer()(input=result, output="out")
    assert [m._node.op for m in model.dag] == [op, "buffer"]


def test_reflected_operators_keep_the_order():
    model = ml.Model()
    model |= ml.Buffer()(input=2 - ml.IOKey("a"))
    subtract = next(iter(model.dag))
    assert model.dag[subtract]["right"].key == "a"


@pytest.mark.device
def test_values_of_an_expression():
    a, b = ml.IOKey("a", type=ml.Tensor[float]), ml.IOKey("b", type=ml.Tensor[float])
    model = ml.Model.create(out=(2 - a) / b + a[0] * (a @ b).mean() - b.sum(axis=1, keepdim=True))
    pm = ml.compile(model, ml.NumpyBackend(dtype="float64"), inference=True)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(3, 3)), rng.normal(size=(3, 3))
    wanted = (2 - x) / y + x[0] * (x @ y).mean() - y.sum(1, keepdims=True)
    np.testing.assert_allclose(pm.evaluate({}, {"a": x, "b": y})["out"], wanted)


def test_unused_expressions_vanish():
    model = ml.Model()
    x = ml.IOKey("x")
    _ = x * 3
    model |= ml.Relu()(input=x + 1)
    assert len(model.dag) == 2


def test_equality_is_identity():
    a, b = ml.IOKey("a"), ml.IOKey("a")
    assert a == a and a != b
    assert len({a, b}) == 2
    assert a in [a] and b not in [a]


def test_what_makes_no_sense():
    a = ml.IOKey("a")
    with pytest.raises(DTypeError, match="no truth value"):
        bool(a > 1)
    with pytest.raises(TypeError):
        list(a)
    with pytest.raises(ArgumentError, match="a name is no operand"):
        a + "b"


def test_iokey_is_connection():
    assert ml.IOKey is ml.Connection is ml.models.IOKey


@pytest.mark.parametrize(
    ("annotation", "same_as"),
    [
        (ml.Tensor, ml.Tensor[int | float | bool]),
        (int | None, None | int),
        (ml.Tensor[int] | ml.Tensor[float], ml.Tensor[float | int]),
        (list[int | float], list[float | int]),
    ],
)
def test_types(annotation, same_as):
    assert type_of(annotation) == type_of(same_as) != 0


@pytest.mark.parametrize("bad", [3, "int", object, np.float32, ml.Tensor, [int]])
def test_bad_types(bad):
    if bad is ml.Tensor:
        with pytest.raises(DTypeError):
            ml.Tensor[str]
        return
    with pytest.raises(DTypeError):
        type_of(bad)


@pytest.mark.parametrize(
    ("value", "shape", "kind"),
    [
        ([[1, 2], [3, 4]], [2, 2], "int"),
        ([1, 2.0], [2], "float"),
        (True, [], "bool"),
        (range(3), [3], "int"),
        (np.zeros((2, 0), np.float32), [2, 0], "float"),
    ],
)
def test_tensors_with_values(value, shape, kind):
    model = ml.Model()
    model |= ml.Buffer()(input=ml.IOKey("x", value=ml.Tensor(value)), output="y")
    assert model.shapes["y"] == shape
    assert kind in model.conns.get_type("y")


def nested(depth):
    out = []
    for _ in range(depth):
        out = [out]
    return out


@pytest.mark.parametrize(
    "make",
    [
        lambda: ml.Tensor([[1], [2, 3]]),
        lambda: ml.Tensor(["a"]),
        lambda: ml.Tensor([1, 2**70]),
        lambda: ml.Tensor(nested(10_000)),
        lambda: ml.IOKey("a", value=nested(10_000)),
        lambda: ml.Model().extend(ml.Add(), left=nested(10_000)),
        lambda: ml.IOKey("a", value=tuple(nested(100))),
        lambda: ml.IOKey("a")[nested(10_000)],
        lambda: ml.IOKey("a", value=1.0, type=int),
        lambda: ml.IOKey("a", shape=[2], type=int),
        lambda: ml.IOKey("a", shape=[-2]),
        lambda: ml.IOKey("a", differentiable=True, type=ml.Tensor[int]),
    ],
)
def test_facts_that_clash_by_themselves(make):
    with pytest.raises((MithrilError, OverflowError)):
        make()


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("Linear", "dimension use_bias input weight bias"),
        ("Convolution2D", "kernel_size out_channels stride padding dilation groups use_bias"),
        ("Mean", "axis keepdim input"),
        ("Arange", "start stop step dtype"),
        ("Embedding", "num_embeddings dim input weight"),
        ("Dropout", "p input"),
        ("Add", "left right"),
        ("Flatten", "start_dim end_dim input"),
        ("LayerNorm", "use_scale use_bias eps input weight bias"),
        ("BatchNorm2D", "num_features use_scale use_bias eps momentum"),
        ("ToTuple", "n"),
        ("ToTensor", "input dtype"),
        ("Cast", "dtype input"),
        ("Eye", "N M dtype"),
        ("Randn", "shape"),
    ],
)
def test_constructors_take_their_arguments_in_the_documented_order(name, wanted):
    signature = inspect.signature(getattr(ml, name).__init__)
    assert list(signature.parameters)[1 : len(wanted.split()) + 1] == wanted.split()


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            np.exp,
            "numpy.exp: a connection has no content before the model runs\n  help: write x.exp",
        ),
        (np.tanh, "help: ml.Tanh()(x)"),
        (np.arctanh, "help: layers of ml compute"),
        (lambda x: np.add(x, 1.0), "numpy.add: a connection"),
        (lambda x: np.add.reduce(x), "numpy.add: a connection"),
    ],
)
def test_functions_of_numpy_say_what_to_write(function, said):
    with pytest.raises(DTypeError) as caught:
        function(ml.IOKey("x"))
    assert said in str(caught.value)


def test_a_condition_says_what_chooses():
    with pytest.raises(DTypeError, match=r"ml.Where\(\) chooses by elements"):
        if ml.IOKey("x") > 0:
            pass


OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge")


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("left", [np.array([1.5, 2.5]), np.float64(2.5)], ids=["array", "scalar"])
def test_arrays_on_the_left_of_operators(name, left):
    apply = getattr(operator, name)
    model = ml.Model.create(y=apply(left, ml.IOKey("x", shape=[2])))
    pm = ml.compile(model, ml.NumpyBackend(dtype="float64"), data_keys={"x"}, inference=True)
    x = np.array([2.0, 1.5])
    np.testing.assert_allclose(pm.evaluate({}, {"x": x})["y"], apply(left, x), rtol=1e-15)


def test_an_array_that_a_connection_is_added_to_is_a_connection_then():
    left = np.array([1.0, 2.0])
    sum_ = left
    sum_ += ml.IOKey("x")
    assert isinstance(sum_, ml.Connection)
    assert left.tolist() == [1.0, 2.0]
    assert (left == ml.IOKey("x")) is False
