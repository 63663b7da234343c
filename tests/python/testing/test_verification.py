"""`ml.verify` names the first node that is wrong, and only what is wrong."""

import types

import mithril as ml
import numpy as np
import pytest
from mithril.backends.with_manualgrad.numpy_backend import ops as numpy_ops
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    ShapeNotKnown,
    SignatureError,
    UnsupportedError,
)
from mithril.testing import assert_gradients
from mithril.testing._probes import probed


def with_ops(**changed):
    table = types.SimpleNamespace(**{**vars(numpy_ops), **changed})
    return type("Changed", (ml.NumpyBackend,), {"ops": table})()


def net():
    """Linear, halves, sigmoid, the square of its result, and an argmax beside it."""
    model = ml.Model(name="net")
    model |= ml.Linear(4, name="first")(input="x", output="h")
    model |= ml.Split(split_size=2, axis=-1, name="halves")(input="h", output="pieces")
    model |= ml.Sigmoid(name="gate")(input=model["pieces"][0], output="q")
    model |= ml.Multiply(name="square")(left="q", right="q", output="y")
    model |= ml.ArgMax(axis=-1, name="best")(input="q", output="i")
    model.set_cout("y", "i")
    return model


SHAPES = {"x": [2, 3]}


# --- models and backends that are right ----------------------------------------------------------


def test_all_agree():
    report = ml.verify(net(), ["numpy", ml.NumpyBackend(dtype="float64")], shapes=SHAPES)
    assert report and report.first is None
    assert [row.nodes for row in report.rows] == [5, 5, 5]
    assert report.rows[0].backend.startswith("reference")
    assert 0 < report.rows[1].output_ulps < 20
    assert report.rows[2].output_ulps == report.rows[2].gradient_ulps == 0
    assert str(report).startswith("net: 3 of 3 agree (seed 0)\n")


@pytest.mark.device
def test_the_engine_agrees():
    assert ml.verify(net(), ["cpu"], shapes=SHAPES)


@pytest.mark.frameworks
@pytest.mark.parametrize("autodiff", ["framework", "engine"])
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_frameworks_agree(name, autodiff):
    pytest.importorskip(name)
    report = ml.verify(net(), [name], shapes=SHAPES, autodiff=autodiff)
    assert report, str(report)


def train():
    model = ml.Model()
    model |= ml.Linear(3, name="head")(input="x", output="h")
    context = ml.TrainModel(model)
    context.add_loss(ml.SquaredError(), input="h", target="t", reduce_steps=[ml.Mean()])
    return context, {"shapes": {"x": [4, 2], "t": [4, 3]}}


def embedding():
    model = ml.Model()
    model |= ml.Embedding(10, 4)(input="tokens", output="e")
    model |= ml.Mean(axis=-1)(input="e", output="y")
    return model, {"shapes": {"tokens": [3, 5]}}


def norm_and_dropout():
    model = ml.Model()
    model |= ml.BatchNorm2D(3)(input="x", output="n")
    model |= ml.Dropout(0.3)(input="n", output="y")
    return model, {"shapes": {"x": [2, 3, 4, 4]}, "mode": "train"}


def comparison():
    model = ml.Model()
    model |= ml.Greater()(left="a", right="b", output="c")
    return model, {"shapes": {"a": [2], "b": [2]}}


def data_alone():
    model = ml.Model()
    model |= ml.Multiply()(left="a", right="b", output="c")
    model |= ml.ArgMax(axis=-1)(input="a", output="i")
    model |= ml.Cast(ml.float32)(input="i", output="of no float")
    model.set_cout("c", "of no float")
    return model, {"shapes": {"a": [3], "b": [3]}}


def hostile_names():
    model = ml.Model(name='n"e\nt>(')
    model |= ml.Relu(name="a # b : c\\")(input='x y"', output="z = %0")
    model |= ml.Exponential()(input="z = %0", output="y")
    return model, {"shapes": {'x y"': [2]}}


@pytest.mark.parametrize(
    "make", [train, embedding, norm_and_dropout, comparison, data_alone, hostile_names]
)
def test_models_that_agree(make):
    model, options = make()
    report = ml.verify(model, ["numpy"], **options)
    assert report, str(report)
    assert report.rows[1].nodes == report.rows[0].nodes > 0


def test_given_inputs_are_used():
    ml.verify(net(), ["numpy"], inputs={"x": np.ones((2, 3))})
    seen = []

    def sigmoid(input):
        seen.append(input.copy())
        return numpy_ops.sigmoid(input)

    weight, bias = np.full((4, 3), 0.5), np.zeros(4)
    given = {"x": np.full((2, 3), 2.0), "weight": weight, "bias": bias}
    assert ml.verify(net(), [with_ops(sigmoid=sigmoid)], inputs=given)
    assert all((array == 3.0).all() for array in seen) and seen


def test_equal_seeds_draw_equal_inputs():
    def drawn(seed):
        seen = []
        wrong = with_ops(
            sigmoid=lambda input: seen.append(input.copy()) or numpy_ops.sigmoid(input)
        )
        ml.verify(net(), [wrong], shapes=SHAPES, seed=seed)
        return seen[0].tolist()

    assert drawn(3) == drawn(3) != drawn(4)


# --- faults --------------------------------------------------------------------------------------


def fault(**changed):
    report = ml.verify(net(), ["numpy", with_ops(**changed)], shapes=SHAPES)
    assert not report
    assert report.rows[0] and report.rows[1] and not report.rows[2]
    return report.first or report.rows[2].error


def test_the_first_wrong_value_is_named():
    """The square and the argmax behind it are off, too."""
    found = fault(sigmoid=lambda input: numpy_ops.sigmoid(input) * np.float32(1.001))
    assert (found.direction, found.node, found.op) == ("forward", "net.gate", "sigmoid")
    assert "ops.sigmoid(" in found.line and found.line.endswith("# net.gate")
    assert len(found.line.splitlines()) == 1
    assert found.location.endswith(f"test_verification.py:{net.__code__.co_firstlineno + 5}")
    assert 5_000 < found.ulps < 20_000  # 0.001 is about 8,400 to 16,800 steps of 2**-23
    assert "forward diverges first at net.gate: sigmoid, " in str(found)


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (lambda y: y[:, :0], "shape (2, 0), not (2, 2)"),
        (lambda y: None, "got NoneType, which is no array"),
        (lambda y: (y * 100).astype(np.int32), "dtype int32, not float64"),
        (lambda y: np.full_like(y, np.nan), "got nan"),
        (lambda y: 1 // 0, "raised ZeroDivisionError"),
        (lambda y: y[..., None], "shape (2, 2, 1), not (2, 2)"),
    ],
)
def test_whatever_a_node_gives_it_is_named(result, said):
    found = fault(sigmoid=lambda input: result(numpy_ops.sigmoid(input)))
    assert (found.direction, found.node) == ("forward", "net.gate")
    assert said in found.problem and "ops.sigmoid(" in found.line


def test_a_wrong_gradient_names_the_node_whose_rule_it_is():
    """Only the gradient of the linear layer swaps axes; all values are right."""
    found = fault(swapaxes=lambda input, **axes: numpy_ops.swapaxes(input, **axes) * 2)
    assert (found.direction, found.node, found.op) == ("backward", "net.first", "linear")
    assert "operand 0" in found.problem and "ops.swapaxes(" in found.line
    assert "ops.linear(" not in found.line  # a line of the forward part


def test_the_line_is_that_of_the_node_and_not_of_its_twin():
    """Both pieces of a split have the path of the split."""
    model = ml.Model(name="net")
    model |= ml.Split(split_size=2, axis=-1, name="halves")(input="x", output="pieces")
    model |= ml.Add(name="sum")(left=model["pieces"][0], right=model["pieces"][1], output="y")

    def index(input, index):
        return numpy_ops.index(input, index=index) * (2 if index[-1].start == 2 else 1)

    report = ml.verify(model, [with_ops(index=index)], shapes={"x": [2, 4]})
    assert report.first.node == "net.halves"
    assert "slice(2, 4, None)" in report.first.line
    assert len(report.first.line.splitlines()) == 1


def test_the_first_wrong_gradient_is_named():
    """On the way back relu comes before the layer, which gets its wrong gradient."""
    model = ml.Model(name="net")
    model |= ml.Linear(4, name="first")(input="x", output="h")
    model |= ml.Relu(name="act")(input="h", output="y")
    wrong = with_ops(where=lambda cond, a, b: numpy_ops.where(cond, a, b) * 2)
    report = ml.verify(model, [wrong], shapes=SHAPES)
    assert (report.first.direction, report.first.node) == ("backward", "net.act")


def test_a_gradient_that_raises():
    said = fault(swapaxes=lambda input, **axes: 1 // 0)
    assert said == "backward raised ZeroDivisionError: integer division or modulo by zero"


def test_a_backend_that_cannot_even_compile():
    class Broken(ml.NumpyBackend):
        def tensor(self, data, dtype=None):
            raise RuntimeError("no memory\nat all")

    report = ml.verify(net(), [Broken(), "numpy"], shapes=SHAPES)
    assert [bool(row) for row in report.rows] == [True, False, True]
    assert "raised RuntimeError: no memory" in str(report)


@pytest.mark.frameworks
def test_a_fault_in_one_framework(monkeypatch):
    """A wrong rule of PyTorch's autograd, behind a right value."""
    torch = pytest.importorskip("torch")
    from mithril.backends.with_autograd.torch_backend import ops

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(torch.sigmoid(x))
            return torch.sigmoid(x)

        @staticmethod
        def backward(context, cotangent):
            (y,) = context.saved_tensors
            return cotangent * y

    monkeypatch.setattr(ops, "sigmoid", lambda input: Wrong.apply(input))
    report = ml.verify(net(), ["numpy", "torch"], shapes=SHAPES)
    assert [bool(row) for row in report.rows] == [True, True, False]
    assert (report.first.direction, report.first.node) == ("backward", "net.gate")
    assert "ops.sigmoid(" in report.first.line


def test_a_reference_that_the_oracle_contradicts(monkeypatch):
    monkeypatch.setattr(numpy_ops, "sigmoid", lambda input: np.tanh(input))
    report = ml.verify(net(), ["numpy"], shapes=SHAPES)
    assert not report.rows[0] and report.rows[1]  # both are wrong alike
    assert report.first.op == "output 'y'" and "by the oracle" in report.first.problem


def test_what_only_the_whole_program_gets_wrong():
    """A node is right by itself, and wrong where nobody watches what goes into it."""
    calls = []

    def multiply(left, right):
        calls.append(left is right)
        return numpy_ops.multiply(left, right) * np.float32(2 if left is right else 1)

    found = fault(multiply=multiply)
    assert any(calls)
    assert found.node == "" and found.op == "output 'y'"
    assert "each node by itself agrees" in found.problem


# --- windows -------------------------------------------------------------------------------------


def test_windows_change_no_value():
    pm = ml.compile(net(), ml.NumpyBackend(dtype="float64"), shapes=SHAPES)
    windows = probed(pm._compilation.compiled.typed)
    assert [node.op for node in windows.nodes] == [
        "linear",
        "index",
        "sigmoid",
        "multiply",
        "argmax",
    ]
    assert [len(node.probes) for node in windows.nodes] == [3, 1, 1, 2, 1]
    assert windows.graph.outputs[:2] == ["y", "i"]
    assert len(probed(pm._compilation.compiled.typed, 2).nodes) == 2


# --- arguments -----------------------------------------------------------------------------------


def test_bad_arguments():
    with pytest.raises(SignatureError, match="requires a model"):
        ml.verify(None)
    with pytest.raises(KeyNotFound, match="no backend named 'numpi', did you mean 'numpy'"):
        ml.verify(net(), ["numpi"])
    with pytest.raises(SignatureError, match="instances of backends"):
        ml.verify(net(), [ml.NumpyBackend])
    with pytest.raises(SignatureError, match="backends or names"):
        ml.verify(net(), "numpy")
    with pytest.raises(ShapeNotKnown, match="requires a value for 'x', its shape is"):
        ml.verify(net(), ["numpy"])
    with pytest.raises(SignatureError, match="seed requires an integer"):
        ml.verify(net(), ["numpy"], shapes=SHAPES, seed="one")
    with pytest.raises(SignatureError, match="has no argument 'frob'"):
        ml.verify(net(), ["numpy"], shapes=SHAPES, frob=1)
    with pytest.raises(SignatureError, match="inputs: requires a dictionary"):
        ml.verify(net(), ["numpy"], shapes=SHAPES, inputs=3)
    with pytest.raises(KeyNotFound, match="'z'"):
        ml.verify(net(), ["numpy"], shapes=SHAPES, inputs={"z": 3})
    with pytest.raises(ArgumentError, match="tolerance"):
        ml.verify(net(), ["numpy"], shapes=SHAPES, tolerance=-1.0)


def test_devices_are_not_mixed_unasked():
    class Elsewhere(ml.NumpyBackend):
        def get_device(self):
            return "accelerator:0"

    with pytest.raises(ArgumentError, match="on one device, got accelerator, cpu"):
        ml.verify(net(), ["numpy", Elsewhere()], shapes=SHAPES)
    report = ml.verify(net(), ["numpy", Elsewhere()], shapes=SHAPES, mixed_devices=True)
    assert report and report.rows[2].device == "accelerator:0"


def test_the_model_is_not_changed():
    model = net()
    before = model.to_json()
    ml.verify(model, ["numpy"], shapes=SHAPES)
    assert model.to_json() == before


# --- registered functions ------------------------------------------------------------------------

ANYTHING = {"shape": [("Any", ...)], "type": ml.Tensor[float]}


def cubes(name="cube_of_verify"):
    model = ml.Model()
    keys = {key: ml.IOKey(**ANYTHING) for key in ("input", "output")}
    model |= ml.Lambda(name, **keys)(input="x", output="y")
    return model


def right_gradient(grad_output, inputs, outputs):
    return grad_output * 3 * inputs[0] ** 2


@pytest.mark.parametrize("name", ["numpy", "cpu"])
def test_registered_functions_are_verified(name):
    backend = ml.get_backend(name)
    backend.register_function("cube_of_verify", lambda x: x**3)
    backend.register_function("backward_cube_of_verify", right_gradient)
    report = ml.verify(cubes(), [backend], shapes={"x": [2, 3]})
    assert report, str(report)
    assert report.rows[-1].nodes == 1
    assert_gradients(cubes(), [backend], shapes={"x": [2, 3]})


def test_functions_without_a_name_are_refused():
    key = ml.IOKey(shape=[("Any", ...)], type=ml.Tensor[float])
    model = ml.Model()
    part = ml.Lambda(lambda x: x**3, opaque=True, backward=right_gradient, input=key, output=key)
    model |= part(input="x", output="y")
    with pytest.raises(UnsupportedError, match="calls a function that has no name") as raised:
        ml.verify(model, ["numpy"], shapes={"x": [3]})
    assert "register_function" in str(raised.value)


def test_a_wrong_gradient_of_a_registered_function_is_found():
    backend = ml.NumpyBackend()
    backend.register_function("cube_of_verify", lambda x: x**3)
    backend.register_function("backward_cube_of_verify", lambda g, i, o: g * 2 * i[0] ** 2)
    with pytest.raises(AssertionError, match="gradient of 'x': slope"):
        assert_gradients(cubes(), [backend], shapes={"x": [2]})
    report = ml.verify(cubes(), [backend], shapes={"x": [2]})
    assert report.first.direction == "backward" and report.first.op == "cube_of_verify"


def test_backends_are_compared_by_the_first_one_with_the_function():
    right, wrong = ml.NumpyBackend(), ml.NumpyBackend()
    for backend, power in ((right, 3), (wrong, 2)):
        backend.register_function("cube_of_verify", lambda x, power=power: x**power)
        backend.register_function("backward_cube_of_verify", right_gradient)
    report = ml.verify(cubes(), [right, wrong], shapes={"x": [2]})
    assert [bool(row) for row in report.rows] == [True, True, False]


def test_a_registered_function_of_another_framework():
    torch = pytest.importorskip("torch")
    backend = ml.TorchBackend()
    backend.register_function("cube_of_verify", lambda x: torch.pow(x, 3))
    assert ml.verify(cubes(), [backend], shapes={"x": [2]})
    assert_gradients(cubes(), [backend], shapes={"x": [2]})


def test_a_registered_kernel_with_several_operands():
    class Own(ml.NumpyBackend):
        pass

    def scaled_of_verify(left, right):
        return left * np.sin(right)

    def scaled_gradient(output_gradient, cache, idx, left, right):
        return output_gradient * (np.sin(right) if idx == 0 else left * np.cos(right))

    Own.register_primitive(scaled_of_verify, scaled_gradient)
    model = ml.Model()
    keys = {key: ml.IOKey(**ANYTHING) for key in ("left", "right", "output")}
    model |= ml.models.CustomPrimitiveModel("scaled_of_verify", **keys)(
        left="x", right="z", output="y"
    )
    report = ml.verify(model, [Own()], shapes={"x": [2, 3], "z": [2, 3]})
    assert report, str(report)


def test_what_a_registered_function_lacks():
    backend = ml.NumpyBackend()
    with pytest.raises(UnsupportedError) as error:
        ml.verify(cubes(), [backend], shapes={"x": [2]})
    assert error.value.message.startswith(
        "cube_of_verify: the numpy backend has no function of that name"
    )
    assert "register_function('cube_of_verify', function)" in error.value.hint
    backend.register_function("cube_of_verify", lambda x: x**3)
    report = ml.verify(cubes(), [backend], shapes={"x": [2]})
    assert not report and "has no gradient of it" in str(report)
    pm = ml.compile(cubes(), backend, shapes={"x": [2]}, trainable_keys={"x"})
    with pytest.raises(UnsupportedError) as error:
        pm.evaluate({"x": [1.0, 2.0]}, output_gradients={"y": [1.0, 1.0]})
    assert 'register "backward_cube_of_verify"' in error.value.hint
    with pytest.raises(UnsupportedError, match="more than 20000"):
        ml.verify(cubes(), [backend], shapes={"x": [200, 200]})
