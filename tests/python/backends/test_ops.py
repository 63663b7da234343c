"""The tables of functions that emitted text calls: equal names, equal meaning, on each framework.

Expected values are NumPy's in float64, Python's own integers, or written down by hand.
"""

import importlib.util
import math
import re
from pathlib import Path

import numpy as np
import pytest
from mithril import _core
from mithril.backends import get_backend
from mithril.cli import docs
from mithril.cli._tables import built_in_ops
from mithril.testing import op_matrix
from mithril.types import as_dtype

ROOT = Path(__file__).resolve().parents[3]
FRAMEWORKS = ("torch", "jax", "mlx")
NAN, INF = math.nan, math.inf


def params(*names):
    for name in names:
        marks = [pytest.mark.frameworks] if name in FRAMEWORKS else []
        if name in FRAMEWORKS and importlib.util.find_spec(name) is None:
            marks.append(pytest.mark.skip(reason=f"{name} is not installed"))
        yield pytest.param(name, marks=marks)


class Table:
    """The functions of one backend, on NumPy arrays in and out."""

    def __init__(self, name):
        self.backend = get_backend(name, dtype="float64")

    def __getattr__(self, function):
        def call(*arguments, **options):
            with self.backend._scope():
                given = [self.native(a) for a in arguments]
                options = {k: self.native(v) for k, v in options.items()}
                return self.host(getattr(self.backend.ops, function)(*given, **options))

        return call

    def native(self, value):
        if isinstance(value, np.ndarray):
            return self.backend._from_host(value)
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            return [self.native(v) for v in value]
        if isinstance(value, str):
            return getattr(self.backend.ops, value)
        return value

    def host(self, value):
        return value if isinstance(value, int | tuple) else np.asarray(self.backend.to_numpy(value))


@pytest.fixture(params=list(params("numpy", *FRAMEWORKS)))
def ops(request):
    return Table(request.param)


@pytest.fixture(params=list(params(*FRAMEWORKS)))
def differentiable(request):
    return Table(request.param)


def check(actual, expected, dtype=None, **tolerance):
    expected = np.asarray(expected)
    assert actual.shape == expected.shape
    assert str(actual.dtype) == (dtype or str(expected.dtype))
    np.testing.assert_allclose(actual, expected, **({"rtol": 1e-12, "atol": 1e-300} | tolerance))


def array(*values, dtype=np.float64):
    return np.array(values, dtype)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def test_tables_have_the_same_functions():
    tables = [get_backend(p.values[0]) for p in params("numpy", *FRAMEWORKS) if len(p.marks) < 2]
    # Images with channels last are MLX's own layout.
    own = {name for name in tables[0].op_names.union(*(t.op_names for t in tables))
           if name.endswith("_channels_last")}  # fmt: skip
    # Ops that some framework has a function for, and calls that some differentiate better.
    own |= {"layer_norm", "plain_attention", "squared_error", "split_with_sizes", "pinv", "lstsq"}
    assert len({table.op_names - own for table in tables}) == 1
    assert not tables[0].op_names & own  # NumPy's


def test_no_framework_lacks_an_op():
    """Nothing runs by a fallback: what is no composition has a function in each table."""
    supports = {name: how for name, how in docs._supports().items() if name != "CPU"}
    assert len(supports) == 1 + len(FRAMEWORKS)
    ops = built_in_ops()
    missing = [(op["name"], n) for op in ops for n, how in supports.items()
               if how(op) == "unsupported"]  # fmt: skip
    assert not missing


def test_every_tile_instruction_has_a_function(ops):
    header = (ROOT / "csrc" / "tile" / "instruction.h").read_text()
    rows = re.findall(r"^  X\(k(.*)\)", header, re.MULTILINE)  # the function is the last text
    names = {re.findall(r'"(\w*)"', row)[-1] for row in rows} - {""}
    assert len(names) > 60
    # Positions inside rows occur in programs of the native engine only.
    assert names - ops.backend.op_names == {"row_position", "reduced_position"}


# ------------------------------------------------------------------------- functions of one lane

POINTS = array(-INF, -30.0, -2.5, -1.0, -0.3, -0.0, 0.0, 1e-9, 0.3, 0.5, 1.0, 1.5, 2.5, 30.0, INF)


def scalar_function(f):
    def apply(x):
        try:
            return f(x)
        except ValueError:
            return NAN
        except (OverflowError, ZeroDivisionError):
            return INF

    return apply


UNARY = {
    "negate": lambda x: -x,
    "abs": math.fabs,
    "sign": lambda x: math.copysign(1.0, x) if x else x,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "expm1": math.expm1,
    "log": lambda x: -INF if x == 0 else math.log(x),
    "log2": lambda x: -INF if x == 0 else math.log2(x),
    "log1p": lambda x: -INF if x == -1 else math.log1p(x),
    "tanh": math.tanh,
    "erf": math.erf,
    "erfc": math.erfc,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": lambda x: float(round(x)) if math.isfinite(x) else x,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0,
    "softplus": lambda x: max(x, 0.0) + math.log1p(math.exp(-abs(x))),
    "relu": lambda x: max(x, 0.0),
}
FINITE_ONLY = {
    "sin": math.sin,
    "cos": math.cos,
    "gelu": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "gelu_tanh": lambda x: (
        0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


@pytest.mark.parametrize("name", sorted(UNARY))
def test_functions_of_one_operand(ops, name):
    expected = array(*[scalar_function(UNARY[name])(float(x)) for x in POINTS])
    check(getattr(ops, name)(POINTS), expected, rtol=2e-14, atol=1e-16)
    assert np.isnan(getattr(ops, name)(array(NAN))).all()


@pytest.mark.parametrize("name", sorted(FINITE_ONLY))
def test_functions_of_one_finite_operand(ops, name):
    finite = POINTS[np.isfinite(POINTS)]
    expected = array(*[FINITE_ONLY[name](float(x)) for x in finite])
    check(getattr(ops, name)(finite), expected, rtol=1e-12, atol=1e-14)


def test_reciprocal_square_root(ops):
    check(ops.rsqrt(array(0.25, 1.0, 4.0)), [2.0, 1.0, 0.5])


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("name", ["exp", "sigmoid", "erf", "relu", "gelu", "softplus"])
def test_functions_keep_the_dtype(ops, name, dtype):
    x = ops.astype(array(-1.0, 0.5), dtype)
    assert str(getattr(ops, name)(x).dtype) == dtype
    number = ops.scalar(2.0, dtype) if dtype == "bfloat16" else 2.0  # never weak in emitted text
    assert str(ops.multiply(x, number).dtype) == dtype
    assert str(ops.maximum(x, number).dtype) == dtype
    assert str(ops.reduce_sum(x, None, False).dtype) == dtype


def test_arithmetic_takes_numbers_on_either_side(ops):
    x = array(1.0, 4.0)
    check(ops.add(2.0, x), [3.0, 6.0])
    check(ops.subtract(2.0, x), [1.0, -2.0])
    check(ops.multiply(x, 2.0), [2.0, 8.0])
    check(ops.divide(1.0, x), [1.0, 0.25])
    check(ops.divide(x, 4.0), [0.25, 1.0])
    check(ops.power(2.0, x), [2.0, 16.0])
    check(ops.power(x, 0.5), [1.0, 2.0])
    check(ops.less(2.0, x), [False, True])
    check(ops.greater_equal(x, 1.0), [True, True])
    check(ops.where(np.array([True, False]), 0.0, x), [0.0, 4.0])


def test_extrema_propagate_nan(ops):
    x, y = array(1.0, NAN, 2.0, -INF), array(3.0, 0.0, NAN, 1.0)
    check(ops.maximum(x, y), [3.0, NAN, NAN, 1.0])
    check(ops.minimum(x, y), [1.0, NAN, NAN, -INF])
    check(ops.maximum(x, 0.5), [1.0, NAN, 2.0, 0.5])


def test_bounds_are_comparisons(ops):
    x = array(-2.0, 0.5, 3.0, NAN)
    check(ops.at_least(x, 0.0), [0.0, 0.5, 3.0, NAN])
    check(ops.at_most(x, 1.0), [-2.0, 0.5, 1.0, NAN])


def test_fused_products(ops):
    x, y, z = array(2.0), array(3.0), array(1.0)
    check(ops.fma(x, y, z), [7.0])
    check(ops.fms(x, y, z), [5.0])
    check(ops.fnma(x, y, z), [-5.0])
    check(ops.scale(x, array(3.0)), [16.0])


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integer_division_is_total(ops, dtype):
    lowest = np.iinfo(dtype).min
    x = np.array([7, -7, 7, -7, 5, lowest, 0], dtype)
    y = np.array([2, 2, -2, -2, 0, -1, 3], dtype)
    check(ops.floor_divide(x, y), np.array([3, -4, -4, 3, 0, lowest, 0], dtype))
    check(ops.remainder(x, y), np.array([1, 1, -1, -1, 0, 0, 0], dtype))


def test_float_division_rounds_down(ops):
    x = array(7.0, -7.0, 7.0, -7.5, 5.0, -5.0, 0.0)
    y = array(2.0, 2.0, -2.0, -2.0, 0.0, 0.0, 3.0)
    check(ops.floor_divide(x, y), [3.0, -4.0, -4.0, 3.0, INF, -INF, 0.0])
    check(ops.remainder(x, y), [1.0, 1.0, -1.0, -1.5, NAN, NAN, 0.0])


def test_integers_wrap(ops):
    top = np.array([2**31 - 1], np.int32)
    check(ops.add(top, top), np.array([-2], np.int32))
    check(ops.multiply(top, np.array([2], np.int32)), np.array([-2], np.int32))


def test_shifts_are_total(ops):
    x = np.array([1, -8, 5, -1, -1], np.int32)
    count = np.array([4, 1, 0, 32, -1], np.int32)
    check(ops.shift_left(x, count), np.array([16, -16, 5, 0, 0], np.int32))
    check(ops.shift_right(x, count), np.array([0, -4, 5, -1, -1], np.int32))
    check(
        ops.shift_right_logical(x[:4], np.array([0, 1, 2, 31], np.int32)),
        np.array([1, 2**31 - 4, 1, 1], np.int32),
    )
    check(ops.shift_right_logical(x[1:2], 28), np.array([15], np.int32))


def test_bits(ops):
    x, y = np.array([0b1100], np.int32), np.array([0b1010], np.int32)
    check(ops.bitwise_and(x, y), np.array([0b1000], np.int32))
    check(ops.bitwise_or(x, y), np.array([0b1110], np.int32))
    check(ops.bitwise_xor(x, y), np.array([0b0110], np.int32))
    check(ops.bitwise_not(x), np.array([-13], np.int32))
    check(ops.bitwise_not(np.array([True, False])), [False, True])
    check(ops.bitcast(array(1.0, dtype=np.float32), "int32"), np.array([0x3F800000], np.int32))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_casts_to_integers_saturate(ops, dtype):
    info = np.iinfo(dtype)
    x = array(NAN, INF, -INF, 1e30, -1e30, 2.9, -0.5, 100.0)
    expected = [0, info.max, info.min, info.max, info.min, 2, 0, 100]
    check(ops.astype(x, dtype), np.array(expected, dtype))
    check(ops.astype(np.float32(x), dtype), np.array(expected, dtype))


def test_casts_to_bool_and_back(ops):
    check(ops.astype(array(0.0, -0.0, 0.5, NAN), "bool_"), [False, False, True, True])
    check(ops.astype(np.array([True, False]), "float64"), [1.0, 0.0])


# ------------------------------------------------------------------------------------ reductions

X = random(2, 3, 4)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1,)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions(ops, axis, keepdim):
    for name, function in {
        "sum": np.sum,
        "mean": np.mean,
        "prod": np.prod,
        "max": np.max,
        "min": np.min,
    }.items():
        expected = function(X, axis=axis, keepdims=keepdim)
        check(getattr(ops, name)(X, axis=axis, keepdim=keepdim), expected)
    truth = X > 0.5
    check(ops.any(truth, axis=axis, keepdim=keepdim), np.any(truth, axis=axis, keepdims=keepdim))
    check(ops.all(truth, axis=axis, keepdim=keepdim), np.all(truth, axis=axis, keepdims=keepdim))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_places_of_extrema(ops, axis):
    for keepdim in (False, True):
        expected = np.argmax(X, axis, keepdims=keepdim)
        check(ops.argmax(X, axis=axis, keepdim=keepdim), expected, "int64")
        expected = np.argmin(X, axis, keepdims=keepdim)
        check(ops.argmin(X, axis=axis, keepdim=keepdim), expected, "int64")


def test_place_over_two_axes_is_row_major(ops):
    expected = np.argmax(np.moveaxis(X, 1, 0).reshape(3, 8), -1)
    check(ops.argmax(X, axis=(0, 2)), expected, "int64")


def test_first_of_equals_and_first_nan_win(ops):
    check(ops.argmax(array(1.0, 3.0, 3.0)), np.int64(1))
    check(ops.argmin(array(1.0, 1.0, 3.0)), np.int64(0))
    check(ops.argmax(array(1.0, NAN, 3.0, NAN)), np.int64(1))
    check(ops.max(array(1.0, NAN)), NAN)


def test_empty_reductions_give_the_identity(ops):
    empty = np.zeros((2, 0))
    check(ops.sum(empty, axis=1), [0.0, 0.0])
    check(ops.prod(empty, axis=1), [1.0, 1.0])
    check(ops.max(empty, axis=1), [-INF, -INF])
    check(ops.min(empty, axis=1, keepdim=True), [[INF], [INF]])
    check(ops.max(np.zeros((0,), np.int32)), np.int32(-(2**31)))
    check(ops.sum(empty, axis=0), np.zeros(0))


def test_reductions_of_rank_0(ops):
    check(ops.sum(np.array(2.0)), 2.0)
    check(ops.max(np.array(2.0)), 2.0)
    check(ops.argmax(np.array(2.0)), np.int64(0))
    check(ops.any(np.array(2.0)), True)
    check(ops.all(np.array(0.0)), False)


def test_sums_of_integers_keep_their_type(ops):
    check(ops.sum(np.array([1, 2], np.int32)), np.int32(3))
    check(ops.cumsum(np.array([1, 2], np.int8), 0), np.array([1, 3], np.int8))
    check(ops.cumsum(X, -1), np.cumsum(X, -1))


def test_narrow_floats_are_summed_in_float32(ops):
    x = ops.astype(np.full(4096, 0.1), "float16")
    assert abs(float(ops.sum(x)) - 409.5) < 0.5
    assert abs(float(ops.mean(x)) - 0.1) < 1e-3


def test_sum_to_undoes_broadcasting(ops):
    for shape in [(3, 4), (1, 4), (2, 1, 4), (4,), (), (1, 1, 1), (2, 3, 4)]:
        expected = X.reshape(X.shape)
        lead = 3 - len(shape)
        axes = tuple(i for i in range(3) if i < lead or shape[i - lead] == 1)
        expected = X.sum(axes).reshape(shape)
        check(ops.sum_to(X, np.zeros(shape)), expected)


@pytest.mark.parametrize("axis", [-1, 0, 1, None])
def test_softmax(ops, axis):
    x = X * 400
    shifted = np.exp(x - x.max(axis, keepdims=True))
    expected = shifted / shifted.sum(axis, keepdims=True)
    check(ops.softmax(x, axis=axis), expected)
    with np.errstate(divide="ignore"):
        log = x - x.max(axis, keepdims=True) - np.log(shifted.sum(axis, keepdims=True))
    check(ops.log_softmax(x, axis=axis), log)


# -------------------------------------------------------------------------- products and movement


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 4), (4, 2)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((4,), (4,)),
        ((4,), (4, 3)),
    ],
)
def test_matmul(ops, a, b):
    x, y = random(*a), random(*b, seed=1)
    check(ops.matmul(x, y), x @ y)


def test_linear(ops):
    x, w, b = random(2, 3, 4), random(5, 4, seed=1), random(5, seed=2)
    check(ops.linear(w, x, b, dimension=5, use_bias=True), x @ w.T + b)
    check(ops.linear(w, x), x @ w.T)


def test_movement(ops):
    check(ops.transpose(X), X.T)
    check(ops.transpose(X, axes=(1, 2, 0)), X.transpose(1, 2, 0))
    check(ops.transpose(np.array(1.0)), np.array(1.0))
    check(ops.swapaxes(X, axis1=0, axis2=-1), X.swapaxes(0, -1))
    check(ops.reshape(X, shape=(4, -1)), X.reshape(4, -1))
    check(ops.flatten(X, start_dim=1, end_dim=-1), X.reshape(2, 12))
    check(ops.flatten(X, start_dim=0, end_dim=1), X.reshape(6, 4))
    check(ops.flatten(np.array(1.0)), np.array([1.0]))
    check(ops.squeeze(X[:, None, :1]), X[:, 0])
    check(ops.squeeze(X[None, :, :, :1], axis=(0, -1)), X[:, :, 0])
    check(ops.expand_dims(X, axis=0), X[None])
    check(ops.expand_dims(X, axis=(0, -1)), X[None, ..., None])
    check(ops.broadcast_to(X[:, :1], shape=(5, 2, 3, 4)), np.broadcast_to(X[:, :1], (5, 2, 3, 4)))
    check(ops.broadcast_like(X[0, 0], X), np.broadcast_to(X[0, 0], X.shape))
    check(ops.concat(input=[X, X[:, :1]], axis=1), np.concatenate([X, X[:, :1]], 1))
    check(ops.concat(input=[X, X[0]], axis=None), np.concatenate([X, X[0]], None))
    check(ops.pad(X, pad_width=((1, 0), (0, 2), (0, 0))), np.pad(X, ((1, 0), (0, 2), (0, 0))))


def test_sizes(ops):
    assert ops.shape(X) == (2, 3, 4)
    assert ops.size(X) == 24
    assert ops.size(X, dim=-1) == 4
    assert ops.size(X, dim=(1, 0)) == (3, 2)
    assert ops.length(X) == 2


def test_creation(ops):
    check(ops.full(shape=(2, 3), value=1.5, dtype="float32"), np.full((2, 3), 1.5, np.float32))
    check(ops.zeros(shape=(2,), dtype="int64"), np.zeros(2, np.int64))
    check(ops.ones(shape=(), dtype="float64"), np.ones(()))
    check(ops.zeros_like(X), np.zeros_like(X))
    check(ops.ones_like(X), np.ones_like(X))
    check(ops.eye(N=2, M=3, dtype="float64"), np.eye(2, 3))
    check(ops.arange(start=0, stop=5, step=1, dtype="int64"), np.arange(5))
    check(ops.arange(start=5, stop=0, step=-2, dtype="int32"), np.array([5, 3, 1], np.int32))
    check(ops.arange(start=0.0, stop=1.0, step=0.25, dtype="float64"), np.arange(0, 1, 0.25))
    check(ops.arange(start=3, stop=0, step=1, dtype="int64"), np.zeros(0, np.int64))
    check(ops.position((2, 3)), np.arange(6).reshape(2, 3))
    check(ops.scalar(0.1, "float32"), np.float32(0.1))
    check(ops.to_tensor([[1, 2], [3, 4]], dtype="int64"), np.array([[1, 2], [3, 4]]))


INDICES = [
    1,
    -1,
    slice(1, 3),
    slice(None, None, -2),
    slice(10, None, -1),
    (slice(None), 2),
    (Ellipsis, slice(None, None, -1)),
    (None, 1, Ellipsis),
    ([0, 2, 2],),
    (slice(None), [1, 0]),
    (0, slice(None), [1, 1]),
    ([0, 1], [1, 2]),
    (slice(1, None), slice(None, None, 2), -1),
]


@pytest.mark.parametrize("index", INDICES, ids=repr)
def test_indexing_is_numpys(ops, index):
    x = random(4, 3, 2)
    check(ops.index(x, [], index=index), x[index])
    value = random(*x[index].shape, seed=3)
    expected = x.copy()
    np.add.at(expected, index, value)
    check(ops.index_add(x, value, [], index=index), expected)


def test_indexing_by_arrays(ops):
    x, at = random(5, 3), np.array([[0, 4], [2, -1]])
    check(ops.index(x, [at]), x[at])
    check(ops.gather(x, at), x[at])
    check(ops.embedding(at, x), x[at])
    value = random(2, 2, 3, seed=1)
    expected = np.zeros((5, 3))
    np.add.at(expected, at, value)
    check(ops.embedding_grad(value, at, shape=(5, 3)), expected)
    check(ops.index_add(np.zeros((5, 3)), value, [at]), expected)


# ---------------------------------------------------------------------------------------- windows

WINDOWS = [
    {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)},
    {"stride": (2, 1), "padding": ((1, 0), (2, 1)), "dilation": (1, 2)},
    {"stride": (2, 2), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)},
]


def naive_taps(x, kernel, stride, padding, dilation, fill):
    """[places, …]: each window's elements, written as loops."""
    x = np.pad(x, ((0, 0),) * (x.ndim - 2) + padding, constant_values=fill)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    rows = range(0, x.shape[-2] - reach[0] + 1, stride[0])
    columns = range(0, x.shape[-1] - reach[1] + 1, stride[1])
    return np.array(
        [
            [
                [[x[..., r + i * dilation[0], c + j * dilation[1]] for c in columns] for r in rows]
                for j in range(kernel[1])
            ]
            for i in range(kernel[0])
        ]
    )  # [kh, kw, rows, columns, …]


def naive_conv2d(x, w, groups, stride, padding, dilation):
    taps = naive_taps(x, w.shape[2:], stride, padding, dilation, 0.0)
    parts = []
    for g in range(groups):
        channels = slice(g * w.shape[1], (g + 1) * w.shape[1])
        filters = w[g * (len(w) // groups) : (g + 1) * (len(w) // groups)]
        parts.append(np.einsum("ijrcnk,okij->norc", taps[..., channels], filters))
    return np.concatenate(parts, 1)


@pytest.mark.parametrize("window", WINDOWS, ids=["plain", "uneven", "strided"])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolution_and_its_gradients(ops, window, groups):
    x, w = random(2, 4, 7, 6), random(6, 4 // groups, 3, 2, seed=1)
    y = naive_conv2d(x, w, groups, **window)
    check(ops.conv2d(x, w, groups=groups, **window), y, rtol=1e-10)
    dy = random(*y.shape, seed=2)
    dx = ops.conv2d_dx(dy, w, shape=x.shape, groups=groups, **window)
    dw = ops.conv2d_dw(x, dy, shape=w.shape, groups=groups, **window)
    assert dx.shape == x.shape
    assert dw.shape == w.shape
    # Both are adjoint to the convolution, which is linear in each operand.
    u, v = random(*x.shape, seed=3), random(*w.shape, seed=4)
    np.testing.assert_allclose((dx * u).sum(), (dy * naive_conv2d(u, w, groups, **window)).sum())
    np.testing.assert_allclose((dw * v).sum(), (dy * naive_conv2d(x, v, groups, **window)).sum())


def taps_last(x, kernel, fill, window):
    """[…, rows, columns, places]: the elements of each window in row-major order."""
    taps = naive_taps(x, kernel, fill=fill, **window)
    taps = taps.reshape(len(taps) * taps.shape[1], *taps.shape[2:])
    return np.moveaxis(taps, (1, 2, 0), (-3, -2, -1))


@pytest.mark.parametrize("window", WINDOWS, ids=["plain", "uneven", "strided"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (2, 5, 6)])
def test_max_pooling_and_its_gradients(ops, window, shape):
    x = np.round(random(*shape) * 2)  # with ties
    options = {"kernel_size": (3, 2)} | window
    taps = taps_last(x, (3, 2), -INF, window)
    check(ops.max_pool2d(x, **options), taps.max(-1))
    # The first maximum of a window is where a value counts, and where a cotangent goes.
    value, dy = random(*shape, seed=2), random(*taps.shape[:-1], seed=1)
    first = taps.argmax(-1)[..., None]
    picked = np.take_along_axis(taps_last(value, (3, 2), 0.0, window), first, -1)[..., 0]
    check(ops.max_pool2d_pick(x, value, dy, **options), picked)
    dx = ops.max_pool2d_grad(x, dy, **options)
    np.testing.assert_allclose((dx * value).sum(), (dy * picked).sum())


@pytest.mark.parametrize("window", WINDOWS, ids=["plain", "uneven", "strided"])
@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (2, 5, 6)])
def test_average_pooling_and_its_gradient(ops, window, shape):
    x, options = random(*shape), {"kernel_size": (3, 2)} | window
    mean = taps_last(x, (3, 2), 0.0, window).mean(-1)
    check(ops.avg_pool2d(x, **options), mean, rtol=1e-10, atol=1e-15)
    dy = random(*mean.shape, seed=1)
    dx = ops.avg_pool2d_grad(dy, shape=shape, **options)
    np.testing.assert_allclose((dx * x).sum(), (dy * mean).sum())


def test_windows_of_no_images(ops):
    x = np.zeros((0, 3, 4, 4))
    assert ops.conv2d(x, np.zeros((2, 3, 3, 3))).shape == (0, 2, 2, 2)
    assert ops.max_pool2d(x, kernel_size=(2, 2), stride=(2, 2)).shape == (0, 3, 2, 2)
    assert ops.avg_pool2d(x, kernel_size=(2, 2), stride=(2, 2)).shape == (0, 3, 2, 2)


def test_random_bits_are_those_of_threefry(ops):
    # Known answers of Random123, and the next block, whose key words are the counter's.
    zero = np.zeros((), np.int32)
    check(ops.threefry(zero, zero, np.array([0]), 0), np.array([0x6B200159], np.int32))
    words = np.array([0x99BA4EFE], np.uint32).view(np.int32)
    check(ops.threefry(zero, zero, np.array([0]), 1), words)
    ones = np.array(-1, np.int32)
    check(ops.threefry(ones, ones, np.array([-1]), 0), np.array([0x1CB996FC], np.int32))


# ------------------------------------------------------------------------------ gradients at kinks

KINKS = [
    ("abs", lambda o, x: o.abs(x), [-2.0, 0.0, 3.0], [-1.0, 0.0, 1.0]),
    ("relu", lambda o, x: o.relu(x), [-2.0, 0.0, 3.0], [0.0, 0.0, 1.0]),
    ("sign", lambda o, x: o.sign(x), [-2.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    ("sqrt", lambda o, x: o.sqrt(x), [0.0, 4.0], [INF, 0.25]),
    ("maximum", lambda o, x: o.maximum(x, 1.0), [0.0, 1.0, 2.0], [0.0, 0.5, 1.0]),
    ("minimum", lambda o, x: o.minimum(x, 1.0), [0.0, 1.0, 2.0], [1.0, 0.5, 0.0]),
    ("at_least", lambda o, x: o.at_least(x, 1.0), [0.0, 1.0, 2.0], [0.0, 1.0, 1.0]),
    ("at_most", lambda o, x: o.at_most(x, 1.0), [0.0, 1.0, 2.0], [1.0, 1.0, 0.0]),
    ("max", lambda o, x: o.max(x, axis=0), [2.0, 3.0, 3.0], [0.0, 0.5, 0.5]),
    ("min", lambda o, x: o.min(x, axis=0), [2.0, 2.0, 3.0], [0.5, 0.5, 0.0]),
    ("power", lambda o, x: o.power(x, 0.0), [0.0, 2.0], [0.0, 0.0]),
    ("power", lambda o, x: o.power(x, x * 0.0), [0.0, 2.0], [0.0, 2 * 0.0]),
    ("prod", lambda o, x: o.prod(x), [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
    ("prod", lambda o, x: o.prod(x), [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
    ("stop", lambda o, x: o.stop_gradient(x) * x, [2.0, 3.0], [2.0, 3.0]),
    ("softplus", lambda o, x: o.softplus(x), [-800.0, 0.0, 800.0], [0.0, 0.5, 1.0]),
    ("sigmoid", lambda o, x: o.sigmoid(x), [-800.0, 0.0, 800.0], [0.0, 0.25, 0.0]),
    ("where", lambda o, x: o.where(x > 1.0, x, 0.0), [1.0, 2.0], [0.0, 1.0]),
    ("floor", lambda o, x: o.floor(x), [1.0, 2.5], [0.0, 0.0]),
]


def gradient(table, function, x, cotangent=None):
    backend = table.backend
    point = backend.array(np.asarray(x, np.float64))

    def total(value):
        out = function(backend.ops, value)
        weighted = out if cotangent is None else out * backend.array(cotangent)
        return backend.ops.sum(weighted)

    with backend._scope():
        return backend.to_numpy(backend.grad(total)(point))


@pytest.mark.parametrize(
    ("function", "x", "expected"),
    [case[1:] for case in KINKS],
    ids=[f"{i}-{case[0]}" for i, case in enumerate(KINKS)],
)
def test_gradients_at_kinks(differentiable, function, x, expected):
    np.testing.assert_allclose(gradient(differentiable, function, x), expected, atol=1e-300)


def test_the_branch_not_taken_gets_exactly_0(differentiable):
    x, cotangent = np.array([1.0, 2.0]), np.array([NAN, 3.0])
    taken = gradient(differentiable, lambda o, v: o.where(v > 1.5, v, 0.0), x, cotangent)
    np.testing.assert_array_equal(taken, [0.0, 3.0])


def test_max_pooling_sends_the_gradient_to_the_first_maximum(differentiable):
    x = np.array([[1.0, 1.0], [1.0, 0.0]])
    pooled = gradient(
        differentiable, lambda o, v: o.max_pool2d(v, kernel_size=(2, 2), stride=(2, 2)), x
    )
    np.testing.assert_array_equal(pooled, [[1.0, 0.0], [0.0, 0.0]])


def test_repeated_places_add_up(differentiable):
    rows = gradient(differentiable, lambda o, v: o.index(v, [], index=[0, 0, 2]), np.zeros(3))
    np.testing.assert_array_equal(rows, [2.0, 0.0, 1.0])


def test_smooth_gradients_agree_with_differences(differentiable):
    points = np.array([-1.7, -0.4, 0.3, 1.2, 2.6])
    for name in ["gelu", "gelu_tanh", "silu", "erf", "tanh", "exp", "expm1", "sin", "cos"]:
        table = Table("numpy")
        h = 1e-6
        above, below = getattr(table, name)(points + h), getattr(table, name)(points - h)
        actual = gradient(differentiable, lambda o, v, n=name: getattr(o, n)(v), points)
        np.testing.assert_allclose(actual, (above - below) / (2 * h), rtol=1e-7, atol=1e-9)


HALF_OPS = ("floor_divide", "mod", "dft", "rdft", "fft", "irfft", "cholesky", "solve", "det")
HALF_OPS += ("solve_triangular", "inverse", "eigh", "qr", "svd")


@pytest.mark.frameworks
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["numpy", "torch", "mlx"])
def test_halves_compute_in_float32(name, dtype):
    """Results are those of float64 on the same numbers, rounded: type, and digits."""
    backend, half = get_backend(name, dtype=dtype), as_dtype(dtype).numpy()
    bound = {"float16": 4e-3, "bfloat16": 3e-2}[dtype]
    for op in HALF_OPS:
        case = op_matrix.cases(_core.find_op(op))[0]
        inputs = {key: x.astype(half).astype(np.float64) for key, x in case.draw(False).items()}
        model = op_matrix.compiled(case, backend)
        got = op_matrix.evaluate(model, case, inputs).outputs
        for key, wanted in op_matrix.expected(model, case, inputs, "float64").outputs.items():
            assert got[key].dtype == half, (op, key)
            found = got[key].astype(np.float64)
            assert op_matrix.difference(found, wanted, bound) is None, (op, key)
