"""The ggml backend: numbers against NumPy in float64, what it refuses, and that ggml never gets to
see what it aborts at."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import mithril as ml
import numpy as np
import pytest
from backends.ggml_cases import Cases
from mithril import _core
from mithril.backends.with_manualgrad.ggml_backend import quantize
from mithril.errors import (
    ArgumentError,
    DataIndexError,
    DeviceNotAvailable,
    DTypeError,
    InternalError,
    OutOfMemoryError,
    SignatureError,
    UnsupportedError,
)
from mithril.testing import backend_tests, run_backend_tests
from scipy import special
from test_random_models import CHUNKS, Trial, seeds

pytest.importorskip("ggml", reason="ggml-python is not installed")
pytestmark = pytest.mark.device

RANDOM = np.random.default_rng(0)
FIRST_STATE = RANDOM.bit_generator.state
OPS = backend_tests.op_names()


@pytest.fixture(scope="module")
def backend():
    return ml.GGMLBackend()


@pytest.fixture(scope="module")
def ops(backend):
    return backend.ops


@pytest.fixture(autouse=True)
def same_numbers():
    """Each test draws the same ones, whichever tests ran before it."""
    RANDOM.bit_generator.state = FIRST_STATE


def floats(*shape):
    return RANDOM.standard_normal(shape).astype("float32")


def run(backend, function, *inputs):
    """The results of a program of `ops`, and how each op of it ran."""
    outputs = backend._call(function, inputs)
    (graph,) = backend._graphs[function].values()
    return outputs, None if graph is None else graph.ways


# --- every op, against the oracle ----------------------------------------------------------------


@pytest.mark.parametrize("name", OPS)
def test_every_op(name, backend, support_table):
    row = backend_tests.check(backend, name, dtypes=("float16", "int32"))
    for dtype, how in row.dtypes.items():
        support_table.note(name, "ggml", dtype, how)
    support_table.checks["checks of ggml"] += row.checks
    assert row.outcome != "failed", "\n".join(row.reasons)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_conformance_suite():
    report = run_backend_tests(ml.GGMLBackend())
    assert report and report.passed == report.total, str(report)
    assert report.native >= 40 and report.native + report.fallback == report.total


# --- what ggml computes itself -------------------------------------------------------------------

UNARY = {
    "exp": np.exp,
    "sin": np.sin,
    "cos": np.cos,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "tanh": np.tanh,
    "negate": np.negative,
    "sigmoid": special.expit,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * special.expit(x),
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_tanh": lambda x: x * special.expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
}
POSITIVE = {"log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}
SHAPES = [(7,), (3, 5), (2, 1, 4, 3, 2, 2), ()]
BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
PAIRS = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((3, 1), (1, 4)),
    ((4,), (2, 3, 4)),
    ((2, 3, 4, 5, 6, 7), (3, 1, 1, 6, 7)),
    ((), (2, 3)),
]


def within(got, want, bound=2e-6):
    scale = max(1.0, float(np.abs(want).max(initial=0.0)))
    assert got.shape == want.shape and got.dtype == np.float32
    np.testing.assert_allclose(got, want, 0, bound * scale)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*UNARY, *POSITIVE])
def test_functions(name, shape, backend, ops):
    x = 3 * floats(*shape) if name in UNARY else np.abs(floats(*shape)) + np.float32(0.1)
    (got,), ways = run(backend, lambda x: (getattr(ops, name)(x),), np.asarray(x, "float32"))
    assert ways == [(name, "native")]
    within(got, (UNARY | POSITIVE)[name](np.asarray(x, "float64")))


@pytest.mark.parametrize("shapes", PAIRS)
@pytest.mark.parametrize("name", BINARY)
def test_two_operands(name, shapes, backend, ops):
    x, y = (np.asarray(floats(*shape)) for shape in shapes)
    (got,), ways = run(backend, lambda x, y: (getattr(ops, name)(x, y),), x, y)
    assert ways == [(name, "native")]
    within(got, BINARY[name](x.astype("float64"), y))


@pytest.mark.parametrize("number", [2.0, -0.3, 1e-30, float("inf")])
@pytest.mark.parametrize("name", BINARY)
def test_numbers_beside_arrays(name, number, backend, ops):
    x = floats(3, 4)
    function = getattr(ops, name)
    got, ways = run(backend, lambda x: (function(x, number), function(number, x)), x)
    assert {way for _, way in ways} == {"native"}
    pairs = [(x, np.float32(number)), (np.float32(number), x)]
    for found, (left, right) in zip(got, pairs, strict=True):
        np.testing.assert_allclose(found, BINARY[name](left, right), 1e-6)


def test_multiply_and_add(backend, ops):
    x, y = floats(3, 4), floats(4)

    def program(x, y):
        return (
            ops.fma(x, y, y),
            ops.fma(x, 2.0, y),
            ops.fma(np.float32(3), 2.0, x),
            ops.fma(x, y, 1),
        )

    got, _ = run(backend, program, x, y)
    a, b = x.astype("f8"), y.astype("f8")
    for found, want in zip(got, (a * b + b, 2 * a + b, 6 + a, a * b + 1), strict=True):
        within(found, want)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 1e-40], "float32")


@pytest.mark.parametrize("name", ["relu", "silu", "gelu", "gelu_tanh", "sigmoid", "tanh", "abs"])
def test_what_is_not_finite(name, backend, ops):
    """ggml's own relu makes 0 of NaN, its silu and gelu NaN of -inf."""
    (got,), ways = run(backend, lambda x: (getattr(ops, name)(x),), SPECIAL)
    limits = {"abs": np.abs(SPECIAL), "tanh": np.tanh(SPECIAL), "sigmoid": special.expit(SPECIAL)}
    want = limits.get(name, np.where(SPECIAL < 0, 0, SPECIAL))
    half = 0.5 if name in ("silu", "gelu", "gelu_tanh") else 1.0
    want = np.where(np.abs(SPECIAL) < 1e-30, want * half, want)
    assert ways == [(name, "native")]
    np.testing.assert_allclose(got, want, 1e-6, 1e-40)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 4), (2, 3, 4, 5), (2, 1, 3, 2, 4)])
def test_softmax_along_every_axis(backend, ops, shape):
    x = floats(*shape)
    for axis in (None, *range(-len(shape), len(shape))):
        (got,), ways = run(backend, lambda x, axis=axis: (ops.softmax(x, axis=axis),), x)
        np.testing.assert_allclose(got, special.softmax(x.astype("f8"), axis), 1e-5, 1e-7)
        if axis is not None and len(shape) < 5:
            assert set(ways) == {("softmax", "native")}


def test_softmax_of_rows_that_are_not_finite(backend, ops):
    x = np.array([[1, 2, -np.inf], [-np.inf] * 3, [np.nan, 0, 1]], "float32")
    (got,), ways = run(backend, lambda x: (ops.softmax(x),), x)
    assert ways == [("softmax", "native")]
    np.testing.assert_allclose(got[0], special.softmax(x[0]), 1e-6)
    assert np.isnan(got[1:]).all()


PRODUCTS = [
    ((3, 4), (4, 5)),
    ((20, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((1, 3, 4), (2, 4, 5)),
    ((6, 2, 3, 4), (1, 2, 4, 5)),
    ((2, 3, 2, 3, 4), (2, 3, 2, 4, 5)),
    ((2, 3, 2, 3, 4), (3, 1, 4, 5)),
]


@pytest.mark.parametrize("turned", ["", "left", "right", "left right"])
@pytest.mark.parametrize("shapes", PRODUCTS)
def test_products(shapes, turned, backend, ops):
    operands = [floats(*shape) for shape in shapes]
    names = ("left", "right")
    want = np.matmul(*(x.astype("float64") for x in operands))
    given = [
        np.swapaxes(x, -1, -2) if name in turned else x
        for x, name in zip(operands, names, strict=True)
    ]

    def program(*given):
        pairs = zip(given, names, strict=True)
        return (
            ops.matmul(
                *(ops.swapaxes(x, x.ndim - 2, x.ndim - 1) if n in turned else x for x, n in pairs)
            ),
        )

    (got,), ways = run(backend, program, *given)
    assert {way for _, way in ways} == {"native"}
    within(got, want)


CONVOLUTIONS = [
    {},
    {"stride": (2, 1)},
    {"padding": ((1, 1), (2, 2))},
    {"padding": ((0, 2), (1, 0)), "stride": (2, 2)},
    {"dilation": (2, 1), "padding": ((1, 1), (0, 0))},
]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("options", CONVOLUTIONS)
def test_convolutions(options, n, backend, ops):
    torch = pytest.importorskip("torch")
    x, w = floats(n, 4, 9, 8), floats(5, 4, 3, 2)
    (got,), ways = run(backend, lambda x, w: (ops.conv2d(x, w, **options),), x, w)
    assert ways == [("conv2d", "native")]
    (top, bottom), (left, right) = options.get("padding", ((0, 0), (0, 0)))
    padded = np.pad(x.astype("float64"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    kept = {key: value for key, value in options.items() if key != "padding"}
    want = torch.nn.functional.conv2d(*map(torch.from_numpy, (padded, w.astype("float64"))), **kept)
    within(got, want.numpy())


@pytest.mark.parametrize("padding", [((0, 0), (0, 0)), ((1, 1), (1, 0))])
def test_average_pooling(padding, backend, ops):
    torch = pytest.importorskip("torch")
    x = floats(2, 3, 7, 6)
    (got,), ways = run(backend, lambda x: (ops.avg_pool2d(x, (3, 2), (2, 2), padding),), x)
    assert ways == [("avg_pool2d", "native")]
    padded = torch.from_numpy(np.pad(x.astype("float64"), ((0, 0), (0, 0), *padding)))
    within(got, torch.nn.functional.avg_pool2d(padded, (3, 2), (2, 2)).numpy())


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(5, 8), (3, 6, 16), (2, 4, 33, 64)])
def test_attention(shape, causal, backend, ops):
    torch = pytest.importorskip("torch")
    q, k, v = (floats(*shape) for _ in range(3))
    (got,), ways = run(backend, lambda *x: (ops.plain_attention(*x, is_causal=causal),), q, k, v)
    assert ways == [("plain_attention", "native")]
    operands = (torch.from_numpy(x.astype("float64")) for x in (q, k, v))
    want = torch.nn.functional.scaled_dot_product_attention(*operands, is_causal=causal)
    within(got, want.numpy())


MOVES = {
    "transpose": lambda ops, x: ops.transpose(x, (2, 0, 3, 1)),
    "swapaxes": lambda ops, x: ops.swapaxes(x, 0, 2),
    "reshape": lambda ops, x: ops.reshape(x, (6, -1)),
    "flatten": lambda ops, x: ops.flatten(x, 1, 2),
    "expand_dims": lambda ops, x: ops.expand_dims(x, 1),
    "squeeze": lambda ops, x: ops.squeeze(x, None),
    "broadcast_to": lambda ops, x: ops.broadcast_to(x, (2, 2, 3, 4, 5)),
    "concat": lambda ops, x: ops.concat([x, x, x], 1),
    "pad": lambda ops, x: ops.pad(x, ((0, 1), (2, 0), (0, 0), (1, 1))),
    "index": lambda ops, x: ops.index(x, (slice(None), 1, slice(1, None), slice(0, 4))),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(name, backend, ops):
    from mithril.backends.with_manualgrad.numpy_backend import ops as numpy_ops

    x = floats(2, 3, 4, 5)
    (got,), ways = run(backend, lambda x: (MOVES[name](ops, x),), x)
    assert ways == [(name, "native")]
    np.testing.assert_array_equal(got, MOVES[name](numpy_ops, x))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1, 3)])
@pytest.mark.parametrize("name", ["sum", "mean"])
def test_sums(name, axis, backend, ops):
    x = floats(2, 3, 4, 5)
    function = getattr(ops, name)
    got, ways = run(backend, lambda x: (function(x, axis), function(x, axis, True)), x)
    assert {way for _, way in ways} == {"native"}
    for found, keep in zip(got, (False, True), strict=True):
        within(found, getattr(np, name)(x.astype("float64"), axis, keepdims=keep))


def test_look_ups(backend, ops):
    table, places = floats(7, 3), np.array([[0, 6, -1], [2, 2, 5]])
    (got,), ways = run(backend, lambda t, i: (ops.gather(t, i),), table, places)
    assert ways == [("row_numbers", "custom"), ("gather", "native")]
    np.testing.assert_array_equal(got, table[places])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_random_calls(seed, backend, ops):
    """What NumPy makes of the same arrays, or an error where that raises one."""
    from mithril.backends.with_manualgrad.ggml_backend import norms
    from mithril.backends.with_manualgrad.numpy_backend import ops as numpy_ops

    plain = SimpleNamespace(**vars(numpy_ops), **norms.composites)
    for name, arrays, function in itertools.islice(Cases(seed), 700):
        told = name, [x.shape for x in arrays], [str(x.dtype) for x in arrays]
        with np.errstate(all="ignore"):
            want, error = result_of(lambda: function(plain, *arrays))  # noqa: B023
        found, refusal = result_of(
            lambda: backend._call(lambda *x: (function(ops, *x),), arrays)  # noqa: B023
        )
        assert (error is None) == (refusal is None), (told, error, refusal)
        if error is None:
            want, got = np.asarray(want), np.asarray(found[0])
            assert (got.shape, got.dtype) == (want.shape, want.dtype), told
            finite = np.abs(want[np.isfinite(want)].astype("f8")).max(initial=1.0)
            same = np.allclose(got.astype("f8"), want.astype("f8"), 1e-5, 1e-5 * finite, True)
            assert same, told


def result_of(function):
    """(result, None) or (None, exception)."""
    try:
        return function(), None
    except Exception as error:
        return None, error


MISFITS = {
    "matmul": ([(2, 3), (4, 5)], lambda ops, x, y: ops.matmul(x, y)),
    "linear": ([(2, 3), (4, 5)], lambda ops, x, y: ops.linear(x, y)),
    "add": ([(2, 3), (4, 5)], lambda ops, x, y: ops.add(x, y)),
    "concat": ([(2, 3), (4, 5)], lambda ops, x, y: ops.concat([x, y], 0)),
    "conv2d": ([(1, 3, 4, 4), (2, 4, 2, 2)], lambda ops, x, y: ops.conv2d(x, y)),
    "reshape": ([(2, 3), (1,)], lambda ops, x, y: ops.reshape(x, (4, 2))),
    "broadcast_to": ([(2, 3), (1,)], lambda ops, x, y: ops.broadcast_to(x, (4, 2))),
    "attention": ([(2, 3, 4), (2, 3, 5)], lambda ops, x, y: ops.plain_attention(x, y, y)),
    "places": ([(2, 3, 4), (2, 5, 4)], lambda ops, x, y: ops.plain_attention(x, y, x)),
    "group_norm": ([(1, 6, 2), (1,)], lambda ops, x, y: ops.group_norm(x, num_groups=5)),
    "index": ([(2, 3), (1,)], lambda ops, x, y: ops.index(x, (5,))),
    "axis": ([(2, 3), (1,)], lambda ops, x, y: ops.sum(x, 4)),
    "axes": ([(2, 3), (1,)], lambda ops, x, y: ops.transpose(x, (0, 0))),
}


@pytest.mark.parametrize("name", MISFITS)
def test_misfits_never_get_to_ggml(name, backend, ops):
    """Shapes are checked when models are composed; should one pass, it is an error of NumPy's."""
    shapes, function = MISFITS[name]
    with pytest.raises((ValueError, IndexError)):
        backend._call(lambda *x: (function(ops, *x),), [floats(*shape) for shape in shapes])


def test_native_ops_are_forty():
    """Of those that emitted text calls; the tests above and the matrix run them."""
    from mithril.backends.with_manualgrad.ggml_backend.operands import native_ops

    assert len(native_ops) >= 40


# --- custom nodes --------------------------------------------------------------------------------

ODD = {
    "integers": lambda ops, x: ops.add(ops.astype(x, ops.int64), 3),
    "wide floats": lambda ops, x: ops.multiply(ops.astype(x, ops.float64), 0.1),
    "bools": lambda ops, x: ops.greater(x, 0.0),
    "halves": lambda ops, x: ops.astype(x, ops.bfloat16),
    "several results": lambda ops, x: ops.qr(x)[1],
    "no elements": lambda ops, x: ops.sum(ops.index(x, (slice(0, 0),)), 0),
    "many operands": lambda ops, x: ops.concat([x] * 12, 0),
    "largest": lambda ops, x: ops.max(x, 1),
}


@pytest.mark.parametrize("case", ODD)
def test_ops_between_those_of_ggml(case, backend, ops):
    from mithril.backends.with_manualgrad.numpy_backend import ops as numpy_ops

    x = floats(4, 4)
    (got,), _ = run(backend, lambda x: (ODD[case](ops, ops.multiply(x, x)),), x)
    want = ODD[case](numpy_ops, x * x)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got.astype("f8"), np.asarray(want).astype("f8"), 1e-6)


def test_inputs_are_left_alone(backend, ops):
    """ggml clamps and rectifies where the elements are."""
    x = floats(3, 4)
    before = x.copy()

    def program(x):
        y = ops.relu(x)
        return y, x, ops.reshape(x, (4, 3)), ops.silu(x), ops.gelu(x)

    outputs, _ = run(backend, program, x)
    np.testing.assert_array_equal(x, before)
    assert not any(np.shares_memory(x, y) for y in outputs)
    kept = [y.copy() for y in outputs]
    backend._call(program, [x + 1])
    for y, was in zip(outputs, kept, strict=True):
        np.testing.assert_array_equal(y, was)


def test_arrays_in_any_layout(backend, ops):
    x = floats(6, 8)
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view("float32").reshape(x.shape)
    for same in (x[::1], np.asfortranarray(x), x.astype(">f4"), shifted):

        def program(x):
            return (ops.exp(x),)

        np.testing.assert_array_equal(
            backend._call(program, [same])[0], backend._call(program, [x])[0]
        )


def test_a_long_chain(backend, ops):
    def program(x):
        for _ in range(5000):
            x = ops.add(x, 1.0)
        return (x,)

    np.testing.assert_array_equal(backend._call(program, [np.zeros(3, "float32")])[0], 5000.0)
    (graph,) = backend._graphs[program].values()
    assert graph.size <= 2 * 64  # memory is used again


def test_values_that_choose_run_on_numpy():
    """Masks say how many elements there are; no graph can be recorded."""
    model = ml.Model()
    model |= ml.Greater()(left="x", right=0.0, output="mask")
    x = ml.IOKey("x", shape=[4], type=ml.Tensor[float])
    model |= ml.Indexer()(input=x, index="mask", output="y")
    backend = ml.GGMLBackend()
    pm = ml.compile(model, backend)
    for values in ([1.0, -1.0, 2.0, 0.0], [1.0, 1.0, 1.0, -1.0]):
        found = pm.evaluate({}, {"x": values})["y"]
        assert found.tolist() == [v for v in values if v > 0]
    assert not any(backend.coverage(pm).values())


def test_python_functions_run_on_numpy():
    class Steep(ml.GGMLBackend):
        def relu(self, input):
            return np.sort(np.maximum(input, 0)) * 2

    model = ml.Model()
    model |= ml.Exponential()(input="x", output="e")
    model |= ml.Relu()(input="e", output="y")
    backend = Steep()
    pm = ml.compile(model, backend, shapes={"x": [2]})
    x = np.array([1.0, -1.0], "float32")
    np.testing.assert_allclose(pm.evaluate({}, {"x": x})["y"], 2 * np.sort(np.exp(x)), 1e-6)
    assert not any(backend.coverage(pm).values())


@pytest.mark.parametrize("place", [7, -8, 2**40])
def test_an_index_out_of_bounds_is_an_error(place):
    """ggml calls abort() at one."""
    model = ml.Model()
    model |= ml.Embedding(7, 3)(input="i", output="y")
    pm = ml.compile(model, ml.GGMLBackend(), shapes={"i": [2]})
    params = pm.randomize_params()
    with pytest.raises(DataIndexError, match=f"index {place} is out of bounds"):
        pm.evaluate(params, {"i": np.array([0, place])})
    assert pm.evaluate(params, {"i": np.array([0, 6])})["y"].shape == (2, 3)


# --- models --------------------------------------------------------------------------------------


def mlp():
    model = ml.Model()
    model |= ml.MLP([ml.Relu(), ml.Gelu(), ml.Softmax()], [32, 16, 4])(input="x", output="y")
    return model, {"x": (5, 8)}


def gpt_block():
    model = ml.Model()
    model |= ml.LayerNorm()(input="x", output="n")
    for name in "qkv":
        model |= ml.Linear(16)(input="n", output=name)
        model |= ml.SplitHeads(4)(input=name, output=f"{name}h")
    model |= ml.ScaledDotProduct()(query="qh", key="kh", value="vh", output="a")
    model |= ml.MergeHeads()(input="a", output="m")
    model |= ml.Linear(16)(input="m", output="p")
    model |= ml.Add()(left="x", right="p", output="r")
    model |= ml.LayerNorm()(input="r", output="s")
    model |= ml.Linear(64)(input="s", output="f")
    model |= ml.Gelu(approximate=True)(input="f", output="g")
    model |= ml.Linear(16)(input="g", output="h")
    model |= ml.Add()(left="r", right="h", output="y")
    return model, {"x": (2, 7, 16)}


def resnet18():
    return ml.models.resnet18(num_classes=10), {"input": (2, 3, 48, 40)}


MODELS = {"mlp": mlp, "gpt block": gpt_block, "ResNet-18": resnet18}


@pytest.mark.parametrize("name", MODELS)
def test_models(name, backend):
    """Values and gradients beside NumPy's in float64; of the forward pass ggml computes 90 %."""
    model, shapes = MODELS[name]()
    pm = ml.compile(model, backend, shapes=shapes, inference=True)
    exact = ml.compile(model, ml.NumpyBackend(dtype="float64"), shapes=shapes, inference=True)
    params = exact.randomize_params(3)
    data = {key: RANDOM.standard_normal(shape) for key, shape in shapes.items()}
    rounded = {key: value.astype("float32") for key, value in params.items()}
    want, got = exact.evaluate(params, data), pm.evaluate(rounded, data)
    for key, value in want.items():
        within(got[key], value, 1e-5)
    counts = {way: sum(found.values()) for way, found in backend.coverage(pm).items()}
    assert counts["native"] > 9 * counts["custom"], backend.coverage(pm)


@pytest.mark.parametrize("name", ["mlp", "gpt block"])
def test_training(name, backend):
    """Twenty steps are those of NumPy in float64."""
    model, shapes = MODELS[name]()
    data = {key: RANDOM.standard_normal(shape) for key, shape in shapes.items()}
    results = []
    for on in (backend, ml.NumpyBackend(dtype="float64")):
        pm = ml.compile(model, on, shapes=shapes)
        params = ml.compile(model, ml.NumpyBackend(dtype="float64"), shapes=shapes)
        params = params.randomize_params(1)
        params = {key: on.array(value) for key, value in params.items()}
        for _ in range(20):
            y, gradients = pm.evaluate(params, data, output_gradients=lambda y: {"y": 2 * y["y"]})
            params = {key: value - 0.01 * gradients[key] for key, value in params.items()}
        results.append(params)
    got, want = results
    for key, value in want.items():
        within(got[key], value, 2e-5)


def test_constants_are_computed_once(backend):
    model = ml.Model()
    model |= ml.Sine()(input="a", output="s")
    model |= ml.Add()(left="x", right="s", output="y")
    a = np.array([0.5, 1.0], "float32")
    pm = ml.compile(
        model, backend, constant_keys={"a": a}, shapes={"x": [2]}, static_inference=True
    )
    np.testing.assert_allclose(pm.evaluate({}, {"x": a})["y"], a + np.sin(a), 1e-6)
    assert backend.coverage(pm) == {"native": {"add": 1}, "custom": {}}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_models(chunk, request, check_counts):
    """A quarter of `--graphs`: values, with gradients and without, and slopes as the oracle has."""
    for seed in seeds(request.config, request.config.getoption("--graphs") // 4)[chunk::CHUNKS]:
        trial = Trial(seed, "GGMLBackend", "float32")
        trial.check_slopes(trial.check_values())
        check_counts["random models on ggml"] += 1


def test_threads(backend):
    model, shapes = gpt_block()
    pm = ml.compile(model, ml.GGMLBackend(threads=2), shapes=shapes)
    one = ml.compile(model, backend, shapes=shapes)
    params, data = one.randomize_params(), {"x": floats(*shapes["x"])}
    want = one.evaluate(params, data)["y"]
    found, problems = [], []

    def call():
        try:
            found.extend(pm.evaluate(params, data)["y"] for _ in range(20))
        except Exception as error:
            problems.append(error)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not problems and len(found) == 80
    for y in found:
        np.testing.assert_allclose(y, want, 1e-5, 1e-5)


def test_sizes_that_change(backend):
    from mithril.backends.with_manualgrad.ggml_backend.backend import MOST_GRAPHS

    model = ml.Model()
    model |= ml.Linear(3)(input="x", output="y")
    pm = ml.compile(model, backend, shapes={"x": [None, 4]})
    params = pm.randomize_params()
    for n in range(1, 40):
        x = floats(n, 4)
        want = x @ params["weight"].T + params["bias"].reshape(-1)
        np.testing.assert_allclose(pm.evaluate(params, {"x": x})["y"], want, 1e-5, 1e-5)
    assert len(backend._graphs[pm._compilation.program.forward.function]) == MOST_GRAPHS


# --- weights in blocks ---------------------------------------------------------------------------


def two_products():
    model = ml.Model()
    model |= ml.Linear(64)(input="x", output="h")
    w = ml.IOKey("w", shape=[64, 32], type=ml.Tensor[float])
    model |= ml.MatrixMultiply()(left="h", right=w, output="y")
    return model


def compiled_products(backend):
    return ml.compile(two_products(), backend, shapes={"x": [3, 256]}, trainable_keys={"w"})


def quantized(kind):
    return compiled_products(ml.GGMLBackend(quantize=kind))


KINDS = {"int8": "Q8_0", "int4": "Q4_0", "q5_1": "Q5_1", "bf16": "BF16", "mxfp4": "MXFP4"}


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_those_of_gguf(kind, bound):
    """Bit for bit what the package `gguf` makes of the same floats."""
    gguf = pytest.importorskip("gguf")
    pm = quantized(kind)
    params, data = pm.randomize_params(2), {"x": floats(3, 256)}
    weights, bias = [params["weight"], params["w"].T], params["bias"].reshape(-1)
    if bound:
        pm, params = pm.bind(params), {}
    got = pm.evaluate(params, data)["y"]
    (graph,) = pm.backend._graphs_of(pm)
    number = getattr(gguf.GGMLQuantizationType, KINDS[kind])
    values = []
    for weight, given in zip(graph.weights, weights, strict=True):
        blocks = gguf.quants.quantize(np.ascontiguousarray(given), number)
        values.append(gguf.quants.dequantize(blocks, number))
        np.testing.assert_array_equal(weight.values(), values[-1])
    want = (data["x"].astype("f8") @ values[0].T + bias) @ values[1].T
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


def test_weights_that_change_are_converted_again():
    pm = quantized("int8")
    params, data = pm.randomize_params(), {"x": floats(3, 256)}
    first = pm.evaluate(params, data)["y"]
    params["weight"] *= 2  # the same array
    params["bias"] *= 2
    np.testing.assert_allclose(pm.evaluate(params, data)["y"], 2 * first, 0.02, 0.02)


def test_the_report_of_quantization():
    pm = quantized("int8")
    params, data = pm.randomize_params(), {"x": floats(3, 256)}
    report = pm.quantization_report(params, data)
    assert [row.name for row in report.weights] == ["weight", "w"]
    want = compiled_products(ml.NumpyBackend()).evaluate(params, data)["y"]
    error = pm.evaluate(params, data)["y"].astype("f8") - want
    (row,) = report.outputs
    assert row.largest == pytest.approx(np.abs(error).max(), rel=1e-3)
    assert "weight [64, 256] q8_0 (8.5 bits): relative error" in str(report)


def test_gradients_are_those_of_float32():
    pm = quantized("int4")
    plain = compiled_products(ml.NumpyBackend())
    params, data = pm.randomize_params(), {"x": floats(3, 256)}
    weights = {"y": floats(3, 32)}
    got = pm.evaluate(params, data, output_gradients=weights).gradients
    want = plain.evaluate(params, data, output_gradients=weights).gradients
    for key, value in want.items():
        np.testing.assert_allclose(got[key], value, 1e-4, 1e-4)


def test_reports_of_other_backends():
    model = ml.Model()
    model |= ml.Linear(4)(input="x", output="y")
    pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": [1, 4]})
    with pytest.raises(UnsupportedError, match="keeps weights as they are"):
        pm.quantization_report({}, {})


def test_weights_that_are_not_finite():
    pm = quantized("int8")
    params = pm.randomize_params()
    params["w"][0, 0] = np.nan
    with pytest.raises(ArgumentError, match="not finite"):
        pm.evaluate(params, {"x": floats(3, 256)})


@pytest.mark.parametrize("factor", [1e-42, 1e-30, 1e-5, 1e5, 1e30])
@pytest.mark.parametrize("kind", quantize.TYPES)
def test_weights_of_any_size(kind, factor):
    """Blocks hold their scales in float16: of these they would be inf or 0."""
    x, weight = floats(3, 256), floats(4, 256)
    tiny = np.float32(weight * factor)
    want = x.astype("f8") @ tiny.T.astype("f8")
    error, ordinary = (
        np.abs(product_of(kind, x, w) - x.astype("f8") @ w.T.astype("f8")).max() / size
        for w, size in ((tiny, np.abs(want).max()), (weight, np.abs(want).max() / factor))
    )
    assert error <= 2 * ordinary + 0.01


# --- what the other operand of weights in blocks may hold -----------------------------------------


def product_of(kind, x, weight, threads=1):
    """x times weight turned, whose weights are in blocks."""
    model = ml.Model()
    model |= ml.Linear(len(weight), use_bias=False)(input="x", output="y")
    backend = ml.GGMLBackend(quantize=kind, threads=threads)
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": list(x.shape)})
    return pm.evaluate({"weight": weight}, {"x": x})["y"]


FACTORS = [1e-44, 1e-39, 1e-20, 1e-6, 1e-3, 3000.0, 1e5, 1e7, 1e20, 1e35]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", quantize.TYPES)
def test_rows_of_any_size(kind, threads):
    """ggml rounds rows to numbers with scales of float16: each is as exact as one near 1."""
    weight, row = floats(32, 256), floats(256)
    x = np.stack([np.float32(row * np.float64(f)) for f in (1.0, *FACTORS)])
    got = product_of(kind, x, weight, threads).astype("f8")
    for factor, found, rounded in zip(FACTORS, got[1:], x[1:], strict=True):
        lost = np.abs(rounded - row * np.float64(factor)).max() / factor  # digits of denormals
        error = np.abs(found / factor - got[0]).max() / np.abs(got[0]).max()
        assert error < 0.01 + lost, factor


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kind", quantize.TYPES)
def test_rows_with_nan_and_inf(kind, threads):
    """They are NumPy's products with what the blocks stand for, and other rows stay as they are."""
    weight, x = floats(32, 256), floats(9, 256)
    x[2] *= 1e-6
    plain = product_of(kind, x, weight, threads)
    x[0, 7], x[3, :2], x[5, 255], x[6, 0], x[7] = np.nan, (np.nan, np.inf), -np.inf, np.inf, np.inf
    blocks = product_of(kind, np.eye(256, dtype="f4"), weight).T
    with np.errstate(invalid="ignore"):
        want = np.float32(x.astype("f8") @ blocks.T.astype("f8"))
    got = product_of(kind, x, weight, threads)
    whole = [1, 2, 4, 8]
    np.testing.assert_array_equal(got[whole], plain[whole])
    np.testing.assert_array_equal(got[[0, 3, 5, 6, 7]], want[[0, 3, 5, 6, 7]])


def test_sums_of_rows_that_are_large():
    """q8_1 keeps the sum of 32 numbers in float16, too."""
    x, weight = np.full((1, 256), 5000, "f4"), floats(4, 256)
    want = x.astype("f8") @ weight.T
    for kind in ("q4_1", "q5_1"):
        assert np.abs(product_of(kind, x, weight) - want).max() < 0.2 * np.abs(want).max()


def test_a_library_whose_types_are_another_struct(backend, monkeypatch):
    monkeypatch.setattr(backend._library, "type_size", lambda kind: 7)
    with pytest.raises(ArgumentError, match="this ggml has no type q8_0"):
        quantize.check_type(backend._library, "q8_0")


# --- a process of its own ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def isolated():
    return ml.GGMLBackend(isolate=True, quantize="int8")


def test_another_process_computes_the_same(isolated):
    here = ml.GGMLBackend(quantize="int8")
    params, data = compiled_products(here).randomize_params(), {"x": floats(3, 256)}
    for bound in (False, True):
        results = []
        for backend in (isolated, here):
            pm = compiled_products(backend)
            if bound:
                results.append(pm.bind(params).evaluate({}, data)["y"])
            else:
                given = {"y": np.ones((3, 32), "float32")}
                found = pm.evaluate(params, data, output_gradients=given)
                results += [pm.evaluate(params, data)["y"], *found.gradients.values()]
        half = len(results) // 2
        for got, want in zip(results[:half], results[half:], strict=True):
            np.testing.assert_array_equal(got, want)


def test_errors_come_from_another_process(isolated):
    model = ml.Model()
    model |= ml.Embedding(7, 3)(input="i", output="y")
    pm = ml.compile(model, isolated, shapes={"i": [2]})
    with pytest.raises(DataIndexError, match="index 7 is out of bounds"):
        pm.evaluate(pm.randomize_params(), {"i": np.array([0, 7])})


def test_a_process_that_ends_is_an_error(isolated):
    """As when ggml calls abort()."""
    pm = compiled_products(isolated)
    params, data = pm.randomize_params(), {"x": floats(3, 256)}
    want = pm.evaluate(params, data)["y"]
    isolated._isolated._process.send_signal(signal.SIGABRT)
    with pytest.raises(InternalError, match="ggml ended its process"):
        pm._compilation.program.forward.run(
            [{**params, **data}[key.name] for key in pm._compilation.program.inputs]
        )
    np.testing.assert_array_equal(pm.evaluate(params, data)["y"], want)


def test_what_another_process_does_not_tell(isolated):
    pm = compiled_products(isolated)
    params, data = pm.randomize_params(), {"x": floats(3, 256)}
    with pytest.raises(UnsupportedError, match="in another process"):
        isolated.coverage(pm)
    with pytest.raises(UnsupportedError, match="in another process"):
        pm.quantization_report(params, data)


# --- bad input -----------------------------------------------------------------------------------

BAD = [
    ({"mem_size": 0}, ArgumentError, "at least 1 byte, got 0"),
    ({"mem_size": 1.5}, SignatureError, "a number of bytes, got 1.5"),
    ({"mem_size": True}, SignatureError, "a number of bytes"),
    ({"threads": 0}, ArgumentError, "1 to 512, got 0"),
    ({"threads": 10**9}, ArgumentError, "1 to 512"),
    ({"threads": "2"}, SignatureError, "an integer, got '2'"),
    ({"quantize": "int16"}, ArgumentError, "no type named 'int16', did you mean"),
    ({"quantize": "q8_O"}, ArgumentError, "did you mean 'q8_0'"),
    ({"quantize": 8}, SignatureError, "the name of a type, got 8"),
    ({"device": "cuda"}, DeviceNotAvailable, "no device 'cuda'"),
    ({"dtype": "float64"}, DTypeError, "floats are float32, got dtype float64"),
    ({"isolate": "yes"}, SignatureError, "isolate"),
]


@pytest.mark.parametrize(("options", "kind", "said"), BAD)
def test_arguments(options, kind, said):
    with pytest.raises(kind, match=said):
        ml.GGMLBackend(**options)


def test_memory_that_does_not_suffice_is_named_before_anything_runs():
    model, shapes = mlp()
    small = ml.GGMLBackend(mem_size=64)
    pm = ml.compile(model, small, shapes=shapes)
    params, data = pm.randomize_params(), {"x": floats(*shapes["x"])}
    with pytest.raises(OutOfMemoryError, match="the graph needs") as raised:
        pm.evaluate(params, data)
    need = int(str(raised.value).split("needs ")[1].split()[0])
    for size, fits in ((need, True), (need - 1, False)):
        pm = ml.compile(model, ml.GGMLBackend(mem_size=size), shapes=shapes)
        if fits:
            assert pm.evaluate(params, data)["y"].shape == (5, 4)
        else:
            with pytest.raises(OutOfMemoryError, match=str(need)):
                pm.evaluate(params, data)


def test_ggml_that_is_missing(monkeypatch):
    from mithril.backends.with_manualgrad.ggml_backend import library

    monkeypatch.setattr(library.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DeviceNotAvailable, match="pip install ggml-python"):
        ml.GGMLBackend()


@pytest.mark.parametrize("kind", ["nothing", "text", "another library"])
def test_a_library_that_is_none(kind, tmp_path):
    """The self-test runs in a process of its own; this one goes on."""
    path = tmp_path / "libggml.so"
    if kind == "text":
        path.write_text("no library")
    elif kind == "another library":
        path.symlink_to(_core.__file__)
    assert "GGMLBackend" in refused(path)


def refused(path):
    """What a process says that is to use that library."""
    code = (
        "import mithril as ml\n"
        "try: ml.GGMLBackend()\n"
        "except ml.errors.DeviceNotAvailable as error: print('refused', error)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MITHRIL_GGML_LIB": str(path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stdout.startswith("refused "), told
    return told.stdout


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("too old", "has no function ggml_"),
        ("null", "fails the self-test: MemoryError"),
        ("crashes", "fails the self-test: exit status -"),
    ],
)
def test_a_library_of_another_version(kind, said, tmp_path):
    """Some functions are missing, or all are there and do something else."""
    from mithril.backends.with_manualgrad.ggml_backend import library

    names = [*library._SIGNATURES, "ggml_init"]
    body = "__builtin_trap();" if kind == "crashes" else "return 0;"
    source, path = tmp_path / "ggml.c", tmp_path / "libggml.so"
    there = names[:40] if kind == "too old" else names
    source.write_text("".join(f"void *{name}(void) {{ {body} }}\n" for name in there))
    subprocess.run(["cc", "-w", "-shared", "-fPIC", source, "-o", path], check=True)
    assert said in refused(path)


def test_a_library_by_name_is_used(tmp_path):
    from mithril.backends.with_manualgrad.ggml_backend import library

    code = "import mithril as ml; print(ml.GGMLBackend()._library.path)"
    path = tmp_path / "libggml.so"
    path.symlink_to(library.find())
    for part in ("base", "cpu"):
        (tmp_path / f"libggml-{part}.so").symlink_to(library.find().with_name(f"libggml-{part}.so"))
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "MITHRIL_GGML_LIB": str(path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == str(path)
