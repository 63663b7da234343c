"""Inference cases of the original (reference/logical-api.md 3.2, 3.3, 3.5 and 3.7), row by row."""

from __future__ import annotations

import operator

import mithril as ml
import numpy as np
import pytest
from inference_cases import Case, each, use, value_of
from mithril.errors import DTypeError, MithrilError, ShapeError

Tensor = ml.Tensor
ELEMENTS = {"bool": True, "int": 3, "float": 2.5}


def key(name: str, **facts):
    return lambda: ml.IOKey(name, **facts)


def shape_of_x(**wires):
    """Shape of x as s, and an operator that reads s."""

    def make():
        model = ml.Model()
        model |= ml.models.Shape()(input="x", output="s")
        model |= ml.models.BroadcastTo()(input="y", shape="s", output="filled")
        return model

    return make


def nested_linear():
    inner = ml.Model()
    inner |= ml.Relu()(input="x", output="y")
    outer = ml.Model()
    outer |= inner(x="wire", y="out")
    inner.set_shapes(x=[3, 4])
    return outer


def second_half():
    model = ml.Model()
    model |= ml.models.Split(2, 0)(input="x", output="halves")
    model |= ml.models.Indexer(index=1)(input="halves", output="half")
    return model


def joined(op: str, axis: int):
    """Two tensors a and b, joined as y."""

    def make():
        model = ml.Model()
        join = getattr(ml.models, op)(axis=axis)
        model |= join(input=[ml.IOKey("a"), ml.IOKey("b")], output="y")
        return model

    return make


V = "(V1, ...)"
# What known axes say of shapes whose ranks are open.
EARLY = [
    Case(
        "Mean(axis=(1, -1))",
        use("Mean", axis=(1, -1)),
        found={"input": ["u1", "u2", V, "u3"], "output": ["u1", V]},
    ),
    Case(
        "Mean(axis=(1, -1), keepdim=True)",
        use("Mean", axis=(1, -1), keepdim=True),
        found={"input": ["u1", "u2", V, "u3"], "output": ["u1", 1, V, 1]},
    ),
    Case(
        "Mean(axis=(1, -2)), of which rank 2 has both and rank 3 has one",
        use("Mean", axis=(1, -2)),
        found={
            "input": [["u1", "u2", V], ["(V2, ...)", "u3", "u4"]],
            "output": ["(V3, ...)"],
        },
    ),
    Case(
        "Mean(axis=(1, -1)) backward",
        use("Mean", axis=(1, -1)),
        shapes={"output": [5, 6]},
        found={"input": [5, "u1", 6, "u2"]},
    ),
    Case(
        "Flatten(start_dim=1)",
        use("Flatten", start_dim=1),
        found={"input": ["u1", "u2", V], "output": ["u1", "u3"]},
    ),
    Case(
        "Flatten(start_dim=1, end_dim=2)",
        use("Flatten", start_dim=1, end_dim=2),
        found={"input": ["u1", "u2", "u3", V], "output": ["u1", "u2*u3", V]},
    ),
    Case(
        "Flatten(start_dim=-3, end_dim=-2)",
        use("Flatten", start_dim=-3, end_dim=-2),
        found={"input": [V, "u1", "u2", "u3"], "output": [V, "u1*u2", "u3"]},
    ),
    Case(
        "Flatten(start_dim=2, end_dim=-2)",
        use("Flatten", start_dim=2, end_dim=-2),
        found={
            "input": ["u1", "u2", "u3", V, "u4"],
            "output": ["u1", "u2", "u5", "u4"],
        },
    ),
    Case(
        "Flatten(start_dim=1, end_dim=2) backward",
        use("Flatten", start_dim=1, end_dim=2),
        shapes={"output": [5, 6, 7]},
        found={"input": [5, "u1", "u2", 7]},
    ),
    Case(
        "SwapAxes(axis2=0)",
        use("SwapAxes", ml.TBD, 0),
        found={"input": ["u1", V], "output": ["(V2, ...)"]},
    ),
    Case(
        "SwapAxes(0, 2)",
        use("SwapAxes", 0, 2),
        found={"input": ["u1", "u2", "u3", V], "output": ["u3", "u2", "u1", V]},
    ),
    Case(
        "SwapAxes(-1, -2)",
        use("SwapAxes", -1, -2),
        found={"input": [V, "u1", "u2"], "output": [V, "u2", "u1"]},
    ),
    Case(
        "Concat(axis=1)",
        joined("Concat", 1),
        found={"a": ["u1", "u2", V], "b": ["u1", "u3", V], "y": ["u1", "u2+u3", V]},
    ),
    Case(
        "Concat(axis=-2) backward",
        joined("Concat", -2),
        shapes={"a": [2, 3, 4], "y": [2, 7, 4]},
        found={"b": [2, 4, 4]},
    ),
    Case(
        "Stack(axis=1)",
        joined("Stack", 1),
        found={"a": ["u1", V], "b": ["u1", V], "y": ["u1", 2, V]},
    ),
    Case(
        "Stack(axis=-1)",
        joined("Stack", -1),
        found={"a": [V], "b": [V], "y": [V, 2]},
    ),
    Case("Split(2, 1)", use("Split", 2, 1), found={"input": ["u1", "2*u2", V]}),
    Case(
        "Size(dim=(1, -1))",
        use("Size", dim=(1, -1)),
        found={"input": [["u1", "u2", V], ["(V2, ...)", "u3"]]},
    ),
    Case(
        "Indexer((0:2, None, ..., 1))",
        use("Indexer", index=(slice(0, 2), None, ..., 1)),
        found={"input": ["u1", V, "u2"], "output": ["u3", 1, V]},
    ),
    Case(
        "Indexer((0, 1))",
        use("Indexer", index=(0, 1)),
        found={"input": ["u1", "u2", V], "output": [V]},
    ),
    Case(
        "GroupNorm(2)",
        use("GroupNorm", 2),
        found={"input": ["u1", "u2", V], "weight": [1, "u2", "(V2, ...)"]},
    ),
]

OBSERVED = [
    Case(
        "Linear(3)",
        use("Linear", 3),
        shapes={"input": [2, 7, 5]},
        found={"weight": [3, 5], "bias": [3], "output": [2, 7, 3]},
    ),
    Case(
        "Convolution2D(3, 8, stride=2, padding=1)",
        use("Convolution2D", 3, 8, stride=2, padding=1),
        shapes={"input": [2, 3, 32, 32]},
        found={"weight": [8, 3, 3, 3], "bias": [1, 8, 1, 1], "output": [2, 8, 16, 16]},
    ),
    Case(
        "MaxPool2D(2)",
        use("MaxPool2D", 2),
        shapes={"input": [2, 3, 32, 32]},
        found={"output": [2, 3, 16, 16]},
    ),
    Case(
        "Concat(axis=1) of [2,3] and [2,k]",
        use(
            "Concat",
            axis=1,
            wires={"input": lambda: [ml.IOKey("a"), ml.IOKey("b")], "output": "out"},
        ),
        shapes={"a": [2, 3], "b": [2, "k"], "out": [2, 7]},
        found={"b": [2, 4]},
    ),
    Case(
        "PolynomialFeatures(degree=2)",
        use("PolynomialFeatures", degree=2),
        shapes={"output": [3, 5]},
        found={"input": [3, 2]},
    ),
    Case(
        "Pad(((1,1),(0,2)))",
        use("Pad", ((1, 1), (0, 2))),
        shapes={"output": [5, 6]},
        found={"input": [3, 4]},
    ),
    Case(
        "Transpose()",
        use("Transpose"),
        shapes={"output": [2, 3, 4]},
        found={"input": [4, 3, 2]},
    ),
    Case(  # the original leaves the size open: [2, u]
        "Flatten(start_dim=1)",
        use("Flatten", start_dim=1),
        shapes={"input": [2, 3, 4, "a"]},
        found={"output": [2, "12*a"]},
    ),
    Case(
        "Squeeze",
        use("Squeeze"),
        shapes={"input": [2, 1, "a", 3, 1]},
        found={"output": [2, "(V1, ...)", 3]},
    ),
    Case(
        "Reshape((2,-1))",
        use("Reshape", (2, -1)),
        shapes={"input": [3, 4]},
        found={"output": [2, 6]},
    ),
    Case(  # the original leaves the size open: [2, 3, u]
        "Reshape((2,3,-1))",
        use("Reshape", (2, 3, -1)),
        shapes={"input": [12, "a"]},
        found={"output": [2, 3, "2*a"]},
    ),
    Case(
        "Add (polymorphic)",
        use("Add"),
        shapes={"left": [3, 1], "output": [3, 4]},
        found={"right": None},
        kinds={"right": "tensor or bool or int or float", "output": "tensor"},
    ),
    Case(
        "Add, both typed Tensor",
        use("Add"),
        types={"left": Tensor, "right": Tensor},
        shapes={"left": [3, 1], "output": [3, 4]},
        found={"right": ["(V1, ...)", 4]},
    ),
    Case(
        "MatrixMultiply",
        use("MatrixMultiply"),
        shapes={"left": ["b", 3, 4], "output": [7, 3, 5]},
        found={"left": ["b", 3, 4], "right": ["(V1, ...)", 4, 5]},
    ),
    Case(
        "Where",
        use("Where"),
        shapes={"cond": [3, 1], "input1": [4]},
        found={"input2": ["(V1, ...)"], "output": ["(V2, ...)", 3, 4]},
    ),
    Case(
        "Indexer((0:2, None, ..., 1))",
        use("Indexer", index=(slice(0, 2), None, ..., 1)),
        shapes={"input": [4, 5, 6]},
        found={"output": [2, 1, 5]},
    ),
    Case(
        "Indexer([[0,1],[1,2]])",
        use("Indexer", index=[[0, 1], [1, 2]]),
        shapes={"input": [4, 5, 6]},
        found={"output": [2, 2, 5, 6]},
    ),
    Case(
        "ToTensor([[1,2.0],[3,4]])",
        use("ToTensor", [[1, 2.0], [3, 4]]),
        found={"output": [2, 2]},
        kinds={"output": "float tensor"},
    ),
    Case(
        "Shape",
        shape_of_x(),
        shapes={"x": ["a", 3]},
        found={"filled": ["a", 3]},
        known={"s": ml.models.TBD},
    ),
    Case(
        "Shape, setting value (2,3)",
        shape_of_x(),
        shapes={"x": ["a", 3], "filled": [2, 3]},
        found={"x": [2, 3]},
        known={"s": (2, 3)},
    ),
    Case("Size", use("Size"), shapes={"input": [5, 3]}, known={"output": 15}),
    Case("Size of an unknown shape", use("Size"), kinds={"output": "int"}),
    Case("Size of one axis", use("Size", dim=1), kinds={"output": "int"}),
    Case("Size of two axes", use("Size", dim=(0, 1)), kinds={"output": "tuple"}),
    Case("Arange(stop=10, step=3)", use("Arange", stop=10, step=3), found={"output": [4]}),
    Case(
        "CrossEntropy()",
        use("CrossEntropy"),
        shapes={"input": [8, 10]},
        found={"target": [8], "output": [8]},
    ),
    Case(
        "SquaredError()",
        use("SquaredError"),
        shapes={"input": [8, 10]},
        found={"target": ["(V1, ...)"], "output": ["(V2, ...)", 8, 10]},
    ),
    Case("Add left=2, right=3", use("Add", left=2, right=3), known={"output": 5}),
    Case("Model inside Model", nested_linear, found={"wire": [3, 4], "out": [3, 4]}),
]


@each(EARLY)
def test_known_axes_say_what_open_ranks_have(case):
    case.check()


FAR = (2**63 - 1, -(2**63), 2**31, 1 << 20, 65, -66)


@pytest.mark.parametrize("axis", FAR)
@pytest.mark.parametrize(
    "make",
    [
        lambda axis: ml.Mean(axis=(axis, 0)),
        lambda axis: ml.Mean(axis=(axis, -1), keepdim=True),
        lambda axis: ml.Flatten(axis, axis),
        lambda axis: ml.Flatten(1, axis),
        lambda axis: ml.Flatten(axis, -1),
        lambda axis: ml.models.SwapAxes(axis, 0),
        lambda axis: ml.models.SwapAxes(-1, axis),
        lambda axis: ml.models.Size(dim=axis),
        lambda axis: ml.models.Split(2, axis),
        lambda axis: joined("Concat", axis)(),
        lambda axis: joined("Stack", axis)(),
    ],
)
def test_axes_far_away_are_refused(make, axis):
    with pytest.raises(MithrilError):
        model = make(axis)
        model.set_shapes({model.input_keys[0]: [2, 3]})


@each(OBSERVED)
def test_observed(case):
    """Table 3.7."""
    case.check()


def test_safe_shapes_decide_what_broadcasts():
    """Table 3.7, SquaredError: with safe shapes the operands have equal ranks at compile."""
    model = ml.Model()
    model |= ml.SquaredError()(input="x", target="t", output="loss")
    model.set_shapes(x=[8, 10])
    pm = ml.compile(model, ml.CpuBackend(), data_keys={"x", "t"}, inference=True)
    assert pm.shapes["loss"] == [8, 10]


# --- output given, input inferred ----------------------------------------------------------------

CONV = {"kernel_size": 3, "out_channels": 8}
BACKWARD = [
    Case("Relu", use("Relu"), shapes={"output": [2, "N"]}, found={"input": [2, "N"]}),
    Case("Softmax", use("Softmax"), shapes={"output": [2, 5]}, found={"input": [2, 5]}),
    Case("Buffer", use("Buffer"), shapes={"output": [2, 5]}, found={"input": [2, 5]}),
    Case(
        "Linear",
        use("Linear"),
        shapes={"output": [4, 3], "weight": [None, 7]},
        found={"input": [4, 7], "weight": [3, 7], "bias": [3]},
    ),
    Case(
        "Linear of any rank",
        use("Linear"),
        shapes={"output": [("V", ...), 3], "weight": [None, 7]},
        found={"input": ["(V1, ...)", 7]},
    ),
    Case(
        "Transpose by axes",
        use("Transpose", axes=(2, 0, 1)),
        shapes={"output": [4, 2, 3]},
        found={"input": [2, 3, 4]},
    ),
    Case(
        "Transpose by negative axes",
        use("Transpose", axes=(-1, 0)),
        shapes={"output": [4, 2]},
        found={"input": [2, 4]},
    ),
    Case(
        "SwapAxes",
        use("SwapAxes", 0, -1),
        shapes={"output": [4, 3, 2]},
        found={"input": [2, 3, 4]},
    ),
    Case(
        "Sum with keepdim",
        use("Sum", axis=1, keepdim=True),
        shapes={"output": [2, 1, 4]},
        found={"input": [2, "u1", 4]},
    ),
    Case(
        "Sum of the last axis",
        use("Sum", axis=-1),
        shapes={"output": [2, 3]},
        found={"input": [2, 3, "u1"]},
    ),
    Case(
        "Sum of two axes",
        use("Sum", axis=(0, 2)),
        shapes={"output": [5, 6]},
        found={"input": ["u1", 5, "u2", 6]},
    ),
    Case(
        "Max of everything",
        use("Max", keepdim=True),
        shapes={"input": [("V", ...), 3, 4], "output": [None, None, None]},
        found={"input": ["u1", 3, 4], "output": [1, 1, 1]},
    ),
    Case(
        "Reshape of one unknown",
        use("Reshape", (2, -1)),
        shapes={"input": ["k", 4], "output": [2, 6]},
        found={"input": [3, 4]},
    ),
    Case(
        "Flatten of one unknown",
        use("Flatten", start_dim=1),
        shapes={"input": [None, 3, "k"], "output": [5, 12]},
        found={"input": [5, 3, 4]},
    ),
    Case(
        "ExpandDims",
        use("ExpandDims", 0),
        shapes={"output": [1, 3, "N"]},
        found={"input": [3, "N"]},
    ),
    Case(
        "ExpandDims behind",
        use("ExpandDims", -1),
        shapes={"output": [3, "N", None]},
        found={"input": [3, "N"], "output": [3, "N", 1]},
    ),
    Case(
        "Add of tensors",
        use("Add"),
        types={"left": Tensor, "right": Tensor},
        shapes={"left": [3, 1], "output": [3, 4]},
        found={"right": ["(V1, ...)", 4]},
    ),
    Case(
        "Multiply whose output is ones",
        use("Multiply"),
        types={"left": Tensor, "right": Tensor},
        shapes={"output": [1, 1], "left": [None, None]},
        found={"left": [1, 1]},
    ),
    Case(
        "Add to a tensor of rank 0",
        use("Add"),
        types={"right": Tensor},
        shapes={"left": [], "output": [3, 4]},
        found={"right": [3, 4]},
    ),
    Case(
        "MatrixMultiply of matrices",
        use("MatrixMultiply"),
        shapes={"left": [None, 4], "right": [None, None], "output": [3, 5]},
        found={"left": [3, 4], "right": [4, 5]},
    ),
    Case(
        "Concat of symbols",
        use(
            "Concat",
            axis=0,
            wires={
                "input": lambda: [ml.IOKey("a"), ml.IOKey("b")],
                "output": "out",
            },
        ),
        shapes={"a": ["N", 3], "b": [5, None], "out": [8, None]},
        found={"a": [3, 3], "b": [5, 3], "out": [8, 3]},
    ),
    Case(
        "Split",
        second_half,
        shapes={"half": [3, 4]},
        found={"x": [6, 4]},
    ),
    Case(
        "Embedding",
        use("Embedding"),
        shapes={"output": [2, 5, 8], "weight": [100, None]},
        found={"weight": [100, 8], "input": [2, 5]},
    ),
    Case(
        "Convolution2D with stride 1",
        use("Convolution2D", **CONV),
        shapes={"output": [2, 8, 30, 28], "weight": [None, 3, None, None]},
        found={"input": [2, 3, 32, 30], "bias": [1, 8, 1, 1], "weight": [8, 3, 3, 3]},
    ),
    Case(
        "Convolution2D with padding 1",
        use("Convolution2D", padding=1, **CONV),
        shapes={"output": [2, 8, 30, 28]},
        found={"input": [2, "u1", 30, 28]},
    ),
    Case(
        "MaxPool2D with stride 1",
        use("MaxPool2D", (2, 3), stride=1, padding=(0, 1)),
        shapes={"output": [2, 3, 31, 32]},
        found={"input": [2, 3, 32, 32]},
    ),
    Case(
        "Pad of a symbol",
        use("Pad", ((1, 2),)),
        shapes={"output": ["M"]},
        found={"input": ["M-3"]},
    ),
    Case(
        "BroadcastTo",
        use("BroadcastTo", shape=(2, 3)),
        shapes={"input": [None, 3]},
        found={"output": [2, 3]},
    ),
    Case(
        "CrossEntropy",
        use("CrossEntropy"),
        shapes={"output": [8, 5], "input": [None, 10, None]},
        found={"input": [8, 10, 5], "target": [8, 5]},
    ),
    Case(
        "LayerNorm",
        use("LayerNorm"),
        shapes={"output": [2, 7]},
        found={"input": [2, 7]},
    ),
    Case(
        "ScaledDotProduct",
        use("ScaledDotProduct"),
        shapes={"output": [2, 5, 4], "query": [2, 5, 6]},
        found={"key": [2, "u1", 6], "value": [2, "u1", 4]},
    ),
    Case(
        "Indexer by an int",
        use("Indexer", index=1, wires={"input": key("x", type=Tensor), "output": "y"}),
        shapes={"x": [3, None, None], "y": [4, 5]},
        found={"x": [3, 4, 5]},
    ),
    Case(
        "Arange of an open length",
        use("Arange", start=0, step=1, stop=ml.IOKey("stop"), wires={"output": "out"}),
        shapes={"out": [4]},
        found={"out": [4]},
    ),
    Case(
        "CumSum",
        use("CumSum", axis=0),
        shapes={"output": [2, 5]},
        found={"input": [2, 5]},
    ),
]


@each(BACKWARD)
def test_input_from_output(case):
    case.check()


def test_enough_cases_of_inputs_from_outputs():
    assert len(BACKWARD) >= 30


# --- kinds of results (3.2) ----------------------------------------------------------------------

# Operator -> what Python does with scalars, what NumPy does with tensors.
ARITHMETIC = {
    "Add": (operator.add, np.add),
    "Multiply": (operator.mul, np.multiply),
    "Divide": (operator.truediv, np.true_divide),
    "FloorDivide": (operator.floordiv, np.floor_divide),
    "Power": (operator.pow, np.power),
    "Maximum": (None, np.maximum),
    "Minimum": (None, np.minimum),
    "Less": (operator.lt, np.less),
    "Equal": (operator.eq, np.equal),
    "LogicalAnd": (operator.and_, np.bitwise_and),
    "LogicalOr": (operator.or_, np.bitwise_or),
    "LogicalXOr": (operator.xor, np.bitwise_xor),
    "ShiftLeft": (operator.lshift, np.left_shift),
    "ShiftRight": (operator.rshift, np.right_shift),
}
PAIRS = [(left, right) for left in ELEMENTS for right in ELEMENTS]
NUMPY_KINDS = {"b": "bool", "i": "int", "f": "float"}


def kind_of_result(function, left: str, right: str, wrap) -> str | None:
    """The kind that Python or NumPy gives for samples of two kinds; None where they refuse."""
    if function is None:
        return None
    try:
        result = function(wrap(ELEMENTS[left]), wrap(ELEMENTS[right]))
    except TypeError:
        return None
    return NUMPY_KINDS[np.asarray(result).dtype.kind]


def typed(op: str, left, right) -> ml.Model:
    """The operator with its two operands typed."""
    model = getattr(ml.models, op)()
    first, second, *_ = model.conns.all
    model.set_types({first: left, second: right})
    return model


PYTHON = {"bool": bool, "int": int, "float": float}


@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_kinds_of_tensors(op, left, right):
    expected = kind_of_result(ARITHMETIC[op][1], left, right, np.asarray)
    operands = Tensor[PYTHON[left]], Tensor[PYTHON[right]]
    if expected is None:
        with pytest.raises(DTypeError):
            typed(op, *operands)
        return
    model = typed(op, *operands)
    assert model.conns.get_type("output") == f"{expected} tensor"


@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_kinds_of_scalars(op, left, right):
    expected = kind_of_result(ARITHMETIC[op][0], left, right, lambda x: x)
    if expected is None:
        with pytest.raises(DTypeError):
            typed(op, PYTHON[left], PYTHON[right])
        return
    model = typed(op, PYTHON[left], PYTHON[right])
    assert model.conns.get_type("output") == expected


@pytest.mark.parametrize("op", ["Add", "Divide", "Power", "Less"])
@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_a_tensor_with_a_scalar_is_a_tensor_of_its_shape(op, left, right):
    expected = kind_of_result(ARITHMETIC[op][1], left, right, np.asarray)
    model = typed(op, Tensor[PYTHON[left]], PYTHON[right])
    model.set_shapes({next(iter(model.conns.all)): [2, "N"]})
    assert model.conns.get_type("output") == f"{expected} tensor"
    assert model.shapes["output"] == [2, "N"]


@pytest.mark.parametrize(("left", "right"), PAIRS)
def test_kinds_of_matrix_products(left, right):
    operands = Tensor[PYTHON[left]], Tensor[PYTHON[right]]
    if "bool" in (left, right):
        with pytest.raises(DTypeError):
            typed("MatrixMultiply", *operands)
        return
    expected = kind_of_result(np.matmul, left, right, lambda x: np.full((2, 2), x))
    model = typed("MatrixMultiply", *operands)
    assert model.conns.get_type("output") == f"{expected} tensor"


FLOAT_RESULTS = ["Mean", "Variance", "Exponential", "Sqrt", "Sine", "Cosine", "Log", "Sigmoid"]
FLOAT_RESULTS += ["Softmax", "Gelu", "LeakyRelu", "Square", "BinaryCrossEntropy", "CrossEntropy"]
TIED = ["Relu", "StopGradient", "Max", "Min", "Absolute", "Negate", "Transpose", "Flatten"]
TIED += ["Squeeze", "SwapAxes", "BroadcastTo", "AtLeast1D", "Buffer", "PermuteTensor"]
TIED += ["TransposedDiagonal", "PolynomialFeatures", "PrimitiveMaxPool1D"]
INTEGERS = ["ArgMax", "ArgMin", "Floor"]


def operator_of(name: str, **arguments) -> ml.Model:
    cls = getattr(ml.models, name, None)
    if cls is None:
        pytest.skip(f"no operator {name} yet (the catalogue)")
    return cls(**arguments)


@pytest.mark.parametrize("op", FLOAT_RESULTS)
def test_results_that_are_float(op):
    model = operator_of(op)
    model.set_types(input=Tensor[float])
    assert model.conns.get_type("output") == "float tensor"


@pytest.mark.parametrize("element", ["int", "float"])
@pytest.mark.parametrize("op", TIED)
def test_results_of_the_kind_of_the_input(op, element):
    model = operator_of(op)
    model.set_types(output=Tensor[PYTHON[element]])
    assert model.conns.get_type("input") == f"{element} tensor"


@pytest.mark.parametrize("op", INTEGERS)
def test_results_that_are_int(op):
    assert operator_of(op).conns.get_type("output") == "int tensor"


@pytest.mark.parametrize("op", ["Sum", "Prod"])
@pytest.mark.parametrize(
    ("element", "result"), [("bool", "int"), ("int", "int"), ("float", "float")]
)
def test_kinds_of_sums(op, element, result):
    model = operator_of(op)
    model.set_types(input=Tensor[PYTHON[element]])
    assert model.conns.get_type("output") == f"{result} tensor"


@pytest.mark.parametrize(
    ("op", "given", "expected"),
    [
        ("Add", int, "bool tensor or int tensor or bool or int"),
        ("Add", float, "tensor or bool or int or float"),
        ("Sum", int, "bool tensor or int tensor"),
        ("Sum", float, "float tensor"),
    ],
)
def test_the_output_prunes_the_inputs(op, given, expected):
    model = operator_of(op)
    model.set_types(output=Tensor[given])
    assert model.conns.get_type("left" if op == "Add" else "input") == expected


def test_a_tensor_output_leaves_the_operands_open():
    model = ml.Add()
    model.set_types(output=Tensor)
    assert model.conns.get_type("left") == "tensor or bool or int or float"


def test_scalars_on_a_tensor_key_are_refused():
    for value in (3, 2.5, [1, 2], True):
        with pytest.raises(DTypeError):
            ml.Relu(input=value)


# --- polymorphic keys: decided late --------------------------------------------------------------


def sum_of_three():
    model = ml.Model()
    model |= ml.Add()(left="a", right="b", output="ab")
    model |= ml.Multiply()(left="ab", right="c", output="out")
    return model


def test_undecided_operands_infer_nothing_wrong():
    model = sum_of_three()
    model.set_shapes(out=[2, 3])
    assert {k: model.conns.get_type(k) for k in ("a", "b", "c", "ab")} == {
        "a": "tensor or bool or int or float",
        "b": "tensor or bool or int or float",
        "c": "tensor or bool or int or float",
        "ab": "tensor or int or float",  # Python adds bools to ints
    }


@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")])
def test_a_kind_decided_late_lets_the_shapes_through(order):
    model = sum_of_three()
    model.set_shapes(out=[2, 3])
    stated = {
        "a": lambda: model.set_shapes(a=[2, None]),
        "b": lambda: model.set_types(b=float),
        "c": lambda: model.set_types(c=int),
    }
    for name in order:
        stated[name]()
    assert model.shapes["ab"] == model.shapes["a"] == [2, 3]
    assert model.conns.get_type("b") == "float"


def test_a_scalar_operand_cannot_widen_a_shape():
    model = sum_of_three()
    model.set_shapes(a=[2, 1], out=[2, 3])
    assert model.shapes["out"] == [2, 3]
    with pytest.raises(ShapeError):
        model.set_types(b=float, c=int)


def test_scalars_all_the_way_fold():
    model = sum_of_three()
    model.set_values(a=2, b=3, c=4)
    assert value_of(model, "out") == 20
    assert model.conns.get_type("out") == "int"


# --- broadcasting (3.3), differentiability (3.5) -------------------------------------------------


def test_sizes_that_do_not_broadcast_name_both():
    model = ml.Add()
    model.set_shapes(left=[3, 4])
    with pytest.raises(ShapeError, match=r"3, 4.*2, 4|2, 4.*3, 4"):
        model.set_shapes(right=[2, 4])


def test_a_possible_one_stays_possible():
    model = typed("Add", Tensor, Tensor)
    model.set_shapes(left=["a"], right=["b"], output=[4])
    assert model.shapes["left"] == ["a"]
    model.set_shapes(left=[1])
    assert model.shapes["right"] == [4]


@pytest.mark.parametrize("first", [True, False])
def test_true_and_false_differentiability_clash(first):
    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.set_differentiability(x=first)
    with pytest.raises(MithrilError):
        model.set_differentiability(x=not first)


def test_undecided_differentiability_adopts_the_other():
    model = ml.Model()
    model |= ml.Relu()(input=ml.IOKey("a", differentiable=True), output="h")
    model |= ml.Relu()(input="b", output="y")
    model.merge_connections("a", "b", name="a")
    assert model._node.differentiable("a") is True


def test_differentiable_means_float():
    with pytest.raises(DTypeError):
        ml.IOKey("x", type=Tensor[int], differentiable=True)
    model = ml.Model()
    model |= ml.Buffer()(input=ml.IOKey("x", differentiable=True), output="y")
    assert model.conns.get_type("y") == "float tensor"


def test_undecided_inputs_are_data_and_outputs_follow_the_inputs():
    model = ml.Model()
    model |= ml.Relu()(input="x", output="h")
    model |= ml.Multiply()(left="h", right=ml.IOKey("w", differentiable=True), output="y")
    model.set_types(x=Tensor[float])
    model.set_shapes(w=[3])
    model.expose_keys("h", "y")
    pm = ml.compile(model, ml.CpuBackend(), shapes={"x": [3]})
    assert list(pm.param_keys) == ["w"]
    ones = np.ones(3, "float32")
    gradients = pm.evaluate({"w": ones}, {"x": ones}, output_gradients={"y": ones})[1]
    assert set(gradients) == {"w"}


@pytest.mark.parametrize("op", ["ArgMax", "Floor"])
def test_integers_made_of_parameters_have_no_gradient(op):
    """The original refuses the model (reference 7, row 39); here only its gradient is refused."""
    model = ml.Model()
    model |= operator_of(op)(input=ml.IOKey("w", differentiable=True, shape=[3]), output="y")
    pm = ml.compile(model, ml.CpuBackend())
    params = {"w": np.array([1.0, 2.5, 3.0], "float32")}
    given = np.ones(pm.evaluate(params)["y"].shape)
    with pytest.raises(MithrilError, match="'y' is no tensor of floats"):
        pm.evaluate(params, output_gradients={"y": given})
