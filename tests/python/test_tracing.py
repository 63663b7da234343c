"""`Lambda`: functions recorded as ops, and functions that are called as they are (C27)."""

import gc
import math
import subprocess
import sys
import weakref

import mithril as ml
import numpy as np
import pytest
from mithril import _core
from mithril.errors import ArgumentError, MithrilError, SignatureError, TraceError, UnsupportedError


def run(model, backend, **data):
    shapes = {key: list(np.shape(value)) for key, value in data.items()}
    pm = ml.compile(model, backend, shapes=shapes, data_keys=set(data), inference=True)
    return pm.evaluate({}, data)


def test_the_document():  # S3.15
    backend = ml.NumpyBackend()

    def custom_activation(x):
        return backend.maximum(0.01 * x, x)

    model = ml.Model()
    model |= ml.Linear(dimension=64)(input="input", output="hidden")
    model += ml.Lambda(custom_activation)(input="hidden", output="hidden_act")
    model += ml.Linear(dimension=10)(input="hidden_act", output="output")
    model.set_shapes(input=["N", 5])
    assert model.shapes["hidden_act"] == ["N", 64]
    (activation,) = [child for child in model.dag if type(child) is ml.Lambda]
    assert [type(child).__name__ for child in activation.dag] == ["Multiply", "Maximum"]


@pytest.mark.device
def test_recorded_on_one_backend_and_run_on_another():
    recorded_with = ml.NumpyBackend()
    x = np.linspace(-2, 2, 6).reshape(2, 3)
    model = ml.Model()
    model |= ml.Lambda(lambda v: recorded_with.maximum(0.01 * v, v))(input="x", output="y")
    for backend in (ml.NumpyBackend(dtype="float64"), ml.CpuBackend(dtype="float64")):
        np.testing.assert_array_equal(run(model, backend, x=x)["y"], np.maximum(0.01 * x, x))


@pytest.mark.device
def test_gradients():
    model = ml.Model()
    model |= ml.Lambda(lambda v: (v * v).sum())(input="x", output="y")
    pm = ml.compile(model, ml.CpuBackend(dtype="float64"), shapes={"x": [3]}, trainable_keys={"x"})
    x = np.array([1.0, 2.0, 3.0])
    _, gradients = pm.evaluate({"x": x}, {}, output_gradients={"y": np.ones(())})
    np.testing.assert_array_equal(gradients["x"], 2 * x)


BACKEND = ml.NumpyBackend()
METHODS = {
    "add": (lambda x: BACKEND.add(x, 1.0), lambda x: x + 1),
    "exp": (lambda x: BACKEND.exp(x), np.exp),
    "matmul": (lambda x: BACKEND.matmul(x, BACKEND.transpose(x)), lambda x: x @ x.T),
    "reduce_sum": (lambda x: BACKEND.reduce_sum(x, axis=1), lambda x: x.sum(1)),
    "reduce_mean": (
        lambda x: BACKEND.reduce_mean(x, axis=0, keepdim=True),
        lambda x: x.mean(0, keepdims=True),
    ),
    "relu": (lambda x: BACKEND.relu(x), lambda x: np.maximum(x, 0)),
    "softmax": (
        lambda x: BACKEND.softmax(x, axis=-1),
        lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    ),
    "reshape": (lambda x: BACKEND.reshape(x, (3, 2)), lambda x: x.reshape(3, 2)),
    "concat": (
        lambda x: BACKEND.concat([x, x * 2.0], axis=1),
        lambda x: np.concatenate([x, x * 2], 1),
    ),
    "less": (
        lambda x: BACKEND.where(BACKEND.less(x, 0.0), x, x * 2.0),
        lambda x: np.where(x < 0, x, x * 2),
    ),
    "remainder": (lambda x: BACKEND.remainder(x, 2.0), lambda x: np.mod(x, 2.0)),
    "shape": (lambda x: x.reshape((x.shape[1], x.shape[0])), lambda x: x.reshape(3, 2)),
}


@pytest.mark.device
@pytest.mark.parametrize("name", METHODS)
def test_methods_of_a_backend_record(name):
    function, expected = METHODS[name]
    x = np.linspace(-1.0, 1.5, 6).reshape(2, 3)
    model = ml.Model()
    model |= ml.Lambda(function)(input="x", output="y")
    found = run(model, ml.NumpyBackend(dtype="float64"), x=x)["y"]
    np.testing.assert_allclose(found, expected(x), rtol=1e-12)


def test_keys_are_the_parameters():
    assert ml.Lambda(lambda anything: anything * 2).input_keys == ["input"]
    model = ml.Lambda(lambda a, b: (b - a, a * 2), name="pair")
    assert (model.name, model.output_keys) == ("pair", ["output_0", "output_1"])
    assert sorted(model.input_keys) == ["a", "b"]
    outer = ml.Model()
    outer |= model("left", "right")
    assert {k: v.key for k, v in outer.dag[model].items() if k in "ab"} == {
        "a": "left",
        "b": "right",
    }


def test_defaults_are_closed_over():
    model = ml.Lambda(lambda x, slope=0.5: x * slope)
    assert model.input_keys == ["input"]


def branching(x):
    return x if x.sum() > 0 else -x


def looping(x):
    return sum(row for row in x)


FAILING = {
    "truth": branching,
    "loop": looping,
    "math": lambda x: math.exp(x),
    "numpy": lambda x: np.exp(x),
    "float": lambda x: float(x),
    "constant": lambda x: 3.0,
    "itself": lambda x: x,
    "nothing": lambda x: None,
    "attribute": lambda x: x.nope,
    "creation": lambda x: BACKEND.tensor(x),
}


@pytest.mark.parametrize("name", FAILING)
def test_what_cannot_be_recorded(name):
    with pytest.raises(TraceError, match="Lambda") as caught:
        ml.Lambda(FAILING[name])
    if name in ("truth", "math"):
        assert "opaque=True" in str(caught.value)


def test_the_line_of_the_user_is_in_the_traceback():
    with pytest.raises(TraceError) as caught:
        ml.Lambda(branching)
    cause = caught.value.__cause__.__traceback__
    functions = []
    while cause is not None:
        functions.append(cause.tb_frame.f_code.co_name)
        cause = cause.tb_next
    assert "branching" in functions


@pytest.mark.parametrize("bad", [None, 3, [], max, object()])
def test_no_function(bad):
    with pytest.raises(SignatureError):
        ml.Lambda(bad)


def test_functions_without_parameters():
    for function in (lambda: 3, lambda *xs: xs[0], lambda x=1: x):
        with pytest.raises(SignatureError, match="parameters"):
            ml.Lambda(function)


def test_keys_are_for_opaque_ones():
    with pytest.raises(ArgumentError, match="opaque"):
        ml.Lambda(lambda x: x * 2, backward=lambda g, i, o: g)


# --- opaque ---------------------------------------------------------------------------------------

SAME = {
    "input": ml.IOKey(shape=[("V", ...)], type=ml.Tensor[float]),
    "output": ml.IOKey(shape=[("V", ...)], type=ml.Tensor[float]),
}


@pytest.mark.device
def test_opaque():
    layer = ml.Lambda(
        lambda x: np.where(x.sum() > 0, x, -x),
        opaque=True,
        backward=lambda g, i, o: (np.where(i[0].sum() > 0, g, -g),),
        **SAME,
    )
    assert isinstance(layer, ml.Lambda)
    model = ml.Model()
    model |= layer(input="x", output="y")
    pm = ml.compile(
        model, ml.NumpyBackend(dtype="float64"), shapes={"x": [2]}, trainable_keys={"x"}
    )
    x = np.array([1.0, -3.0])
    outputs, gradients = pm.evaluate({"x": x}, {}, output_gradients={"y": np.ones(2)})
    np.testing.assert_array_equal(outputs["y"], -x)
    np.testing.assert_array_equal(gradients["x"], [-1.0, -1.0])


@pytest.mark.device
def test_a_registered_function_by_name():  # B16
    backend = ml.NumpyBackend(dtype="float64")
    backend.register_function("double_of_tests", lambda x: 2 * x)
    model = ml.Model()
    model |= ml.Lambda("double_of_tests", **SAME)(input="x", output="y")
    np.testing.assert_array_equal(run(model, backend, x=np.ones(3))["y"], 2 * np.ones(3))


def test_opaque_ones_are_freed_with_what_calls_them():
    def double(x):
        return 2 * x

    alive = weakref.ref(double)
    layer = ml.Lambda(double, opaque=True, **SAME)
    model = ml.Model()
    model |= layer(input="x", output="y")
    backend = ml.NumpyBackend()
    pm = ml.compile(model, backend, shapes={"x": [2]}, data_keys={"x"}, inference=True)
    del double, layer, model
    gc.collect()
    assert pm.evaluate({}, {"x": np.array([1.0, 3.0])})["y"].tolist() == [2.0, 6.0]
    del pm
    ml.compile(ml.Tanh(), backend, shapes={"input": [2]})  # inference keeps what it saw last
    gc.collect()
    assert alive() is None


def test_opaque_ones_that_are_declared_alike_are_one_op():
    """Each keeps its own function all the same."""
    ml.Lambda(len, opaque=True, **SAME)
    ops = len(_core.ops())
    model = ml.Model()
    for factor in range(2, 50):
        layer = ml.Lambda(lambda x, by=factor: by * x, opaque=True, **SAME)
        model |= layer(input="x", output=f"y{factor}")
    model.expose_keys(*(f"y{factor}" for factor in range(2, 50)))
    assert len(_core.ops()) == ops
    got = run(model, ml.NumpyBackend(), x=np.array([1.0, 2.0]))
    assert all(got[f"y{n}"].tolist() == [n, 2.0 * n] for n in range(2, 50))


def test_bad_opaque_ones():
    for make in (
        lambda: ml.Lambda(3, opaque=True, **SAME),
        lambda: ml.Lambda(abs, opaque=True),
        lambda: ml.Lambda(abs, opaque=True, backward=3, **SAME),
        lambda: ml.Lambda("a b", **SAME),
        lambda: ml.Lambda("f"),
    ):
        with pytest.raises(MithrilError):
            make()


NAMED = """
import mithril as ml
{before}
tensor = ml.IOKey(shape=[("Any", ...)], type=ml.Tensor[float])
model = ml.Model()
model |= ml.Lambda("double_of_files", input=tensor, output=tensor)(input="x", output="y")
"""


def test_files_name_functions_and_hold_none(tmp_path):
    opaque = ml.Model()
    opaque |= ml.Lambda(lambda x: 2 * x, opaque=True, **SAME)(input="x", output="y")
    with pytest.raises(UnsupportedError, match="function of this process") as error:
        opaque.to_json()
    assert "register_function" in str(error.value)
    # A process that declared other ops before gives a named one the same name.
    texts = []
    for before in ("", "ml.Lambda('another', input=ml.IOKey(), output=ml.IOKey())"):
        code = NAMED.format(before=before) + "print(model.to_json())"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    scope = {}
    exec(NAMED.format(before=""), scope)
    assert ml.Model.from_json(texts[0]).to_json() == scope["model"].to_json()
