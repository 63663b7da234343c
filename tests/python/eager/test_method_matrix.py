"""Every method and every kernel of the documents, on every backend: values are NumPy's, SciPy's or
written down. A method that is missing is a red test."""

import functools
import math

import numpy as np
import pytest
from conftest import backend_param
from mithril.backends import get_backend
from mithril.errors import MithrilError, UnsupportedError
from mithril.types import Dtype
from scipy import optimize

shared = functools.cache(get_backend)  # tests of a backend share one, and what it has compiled


@pytest.fixture
def b(backend_name):
    return shared(backend_name)


def same(b, actual, expected):
    """Arrays of the backend, or lists and tuples of them, or values of Python."""
    if isinstance(actual, list | tuple) and not isinstance(expected, np.ndarray):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            same(b, one, other)
    elif isinstance(expected, np.ndarray):
        assert isinstance(actual, b.get_backend_array_type())
        found = b.to_numpy(actual)
        assert found.shape == expected.shape
        assert (found.dtype.kind in "fV") == (expected.dtype.kind == "f")
        np.testing.assert_allclose(found.astype(np.float64), expected, rtol=2e-5, atol=1e-6)
    else:
        assert actual == expected
        assert type(actual) is type(expected)


V = np.array([3.0, -1.0, 2.0])
X = np.array([[3.0, -1.0, 2.0], [4.0, 5.0, -6.0]])
P = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])  # rows of probabilities
ONES = np.ones((2, 3))
SPD = np.array([[4.0, 2.0], [2.0, 3.0]])
YES = np.array([[True, False, True], [False, False, True]])
I = np.array([3, 5, 1])  # noqa: E741
J = np.array([1, 2, 3])
INF, NAN = math.inf, math.nan
ODD = np.array([NAN, 1.0, -INF, INF])


def softmax(x, axis=-1):
    w = np.exp(x - x.max(axis, keepdims=True))
    return w / w.sum(axis, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf)(x)


# In the order of the matrix: a call on a backend (arrays are made of NumPy's), and what it gives.
MATRIX = {
    "array": [
        (lambda b: b.array([[1.0, 2.0]]), np.array([[1.0, 2.0]])),
        (lambda b: b.array(X), X),
        (lambda b: b.array([1, 2], dtype="int16"), np.array([1, 2])),
    ],
    "zeros": [(lambda b: b.zeros(2, 3), 0 * ONES), (lambda b: b.zeros((2, 3)), 0 * ONES)],
    "ones": [(lambda b: b.ones(2, 3), ONES), (lambda b: b.ones(), np.array(1.0))],
    "zeros_like": [(lambda b: b.zeros_like(b.array(I)), 0 * I)],
    "ones_like": [(lambda b: b.ones_like(b.array(X)), ONES)],
    "arange": [
        (lambda b: b.arange(3), np.arange(3)),
        (lambda b: b.arange(2, 5), np.arange(2, 5)),
        (lambda b: b.arange(0.0, 1.0, 0.25), np.arange(0.0, 1.0, 0.25)),
        (lambda b: b.arange(3, dtype="float32"), np.arange(3.0)),
    ],
    "linspace": [(lambda b: b.linspace(0, 2, 5), np.linspace(0, 2, 5))],
    "cast": [(lambda b: b.cast(b.array(X), "int32"), X.astype(int))],
    "to_device": [(lambda b: b.to_device(b.array(X), b.get_device()), X)],
    "block_until_ready": [(lambda b: b.block_until_ready(b.array(X)), X)],
    "empty_cache": [(lambda b: b.empty_cache(), None)],
    "flatten": [
        (lambda b: b.flatten(b.array(X)), X.reshape(-1)),
        (lambda b: b.flatten(b.ones(2, 3, 4), 1), np.ones((2, 12))),
        (lambda b: b.flatten(b.ones(2, 3, 4), start_dim=0, end_dim=1), np.ones((6, 4))),
        (lambda b: b.flatten(b.array(2.0)), np.array([2.0])),
    ],
    "reshape": [(lambda b: b.reshape(b.array(X), (3, 2)), X.reshape(3, 2))],
    "squeeze": [(lambda b: b.squeeze(b.ones(1, 2, 1)), np.ones(2))],
    "expand_dims": [(lambda b: b.expand_dims(b.array(X), 1), X[:, None])],
    "transpose": [
        (lambda b: b.transpose(b.array(X)), X.T),
        (lambda b: b.transpose(b.ones(2, 3, 4), (1, 2, 0)), np.ones((3, 4, 2))),
    ],
    "concat": [
        (lambda b: b.concat([b.array(X), b.array(X)]), np.concatenate([X, X])),
        (lambda b: b.concat((b.array(X), b.array(X)), 1), np.concatenate([X, X], 1)),
        (lambda b: b.concat([b.array(X), b.array(V)], axis=None), np.concatenate([X, V], None)),
    ],
    "cat": [(lambda b: b.cat([b.array(X), b.array(X)], axis=1), np.concatenate([X, X], 1))],
    "stack": [
        (lambda b: b.stack([b.array(V), b.array(V)]), np.stack([V, V])),
        (lambda b: b.stack((b.array(V), b.array(V)), 1), np.stack([V, V], 1)),
        (lambda b: b.stack(inputs=[b.array(V), b.array(V)], axis=-1), np.stack([V, V], -1)),
    ],
    "pad": [
        (lambda b: b.pad(b.array(X), 1), np.pad(X, 1)),
        (lambda b: b.pad(b.array(X), (1, 2)), np.pad(X, (1, 2))),
        (lambda b: b.pad(b.array(X), ((1, 0), (0, 2))), np.pad(X, ((1, 0), (0, 2)))),
    ],
    "abs": [(lambda b: b.abs(b.array(X)), np.abs(X))],
    "sign": [(lambda b: b.sign(b.array(X)), np.sign(X))],
    "sin": [(lambda b: b.sin(b.array(X)), np.sin(X))],
    "cos": [(lambda b: b.cos(b.array(X)), np.cos(X))],
    "tanh": [(lambda b: b.tanh(b.array(X)), np.tanh(X))],
    "relu": [(lambda b: b.relu(b.array(X)), np.maximum(X, 0))],
    "sigmoid": [(lambda b: b.sigmoid(b.array(X)), sigmoid(X))],
    "softplus": [(lambda b: b.softplus(b.array(X)), np.logaddexp(X, 0))],
    "log": [(lambda b: b.log(b.array(P)), np.log(P))],
    "isnan": [(lambda b: b.isnan(b.array(ODD)), np.isnan(ODD))],
    "stop_gradient": [(lambda b: b.stop_gradient(b.array(X)), X)],
    "leaky_relu": [
        (lambda b: b.leaky_relu(b.array(X), 0.5), np.where(X > 0, X, X / 2)),
        (lambda b: b.leaky_relu(b.array(X), slope=b.array(0.5)), np.where(X > 0, X, X / 2)),
    ],
    "softmax": [
        (lambda b: b.softmax(b.array(X)), softmax(X)),
        (lambda b: b.softmax(b.array(X), dim=0), softmax(X, 0)),
        (lambda b: b.softmax(b.array(X), 0), softmax(X, 0)),
    ],
    "argmax": [
        (lambda b: b.argmax(b.array(X)), np.array(4)),
        (lambda b: b.argmax(b.array(X), axis=1, keepdim=True), np.array([[0], [1]])),
    ],
    "sort": [
        (lambda b: b.sort(b.array(X)), np.sort(X)),
        (lambda b: b.sort(b.array(X), 0, True), -np.sort(-X, 0)),
        (lambda b: b.sort(b.array(X), axis=1, descending=True), -np.sort(-X)),
        (lambda b: b.sort(b.array(YES), 1, True), -np.sort(-YES.astype(int))),
    ],
    "topk": [
        (lambda b: b.topk(b.array(X), 2), -np.sort(-X)[:, :2]),
        (lambda b: b.topk(b.array(X), k=1), X.max(1, keepdims=True)),
    ],
    "unique": [
        (lambda b: b.unique(b.array([[3, 1], [3, 2]])), np.array([1, 2, 3])),
        (
            lambda b: b.unique(b.array([3.0, 1.0, 3.0]), return_index=True, return_counts=True),
            (np.array([1.0, 3.0]), np.array([1, 0]), np.array([1, 2])),
        ),
        (
            lambda b: b.unique(b.array([3.0, 1.0, 3.0]), return_inverse=True),
            (np.array([1.0, 3.0]), np.array([1, 0, 1])),
        ),
        (lambda b: b.unique(b.array([1.5, NAN, NAN], "bfloat16")), np.array([1.5, NAN])),
    ],
    "where": [(lambda b: b.where(b.array(YES), b.array(X), b.array(ONES)), np.where(YES, X, 1))],
    "clip": [
        (lambda b: b.clip(b.array(X), -2.0, 3.0), np.clip(X, -2, 3)),
        (lambda b: b.clip(b.array(X), min=-2.0, max=3.0), np.clip(X, -2, 3)),
        (lambda b: b.clip(b.array(X), max=3.0), np.minimum(X, 3)),
    ],
    "all": [
        (lambda b: b.all(b.array(YES)), np.array(False)),
        (lambda b: b.all(b.array(YES), axis=0), YES.all(0)),
    ],
    "any": [(lambda b: b.any(b.array(YES)), np.array(True))],
    "atleast_1d": [
        (lambda b: b.atleast_1d(b.array(2.0)), np.array([2.0])),
        (lambda b: b.atleast_1d((b.array(2.0), b.array(X))), [np.array([2.0]), X]),
        (lambda b: b.atleast_1d([1.0, 2.0]), np.array([1.0, 2.0])),
    ],
    "atleast_2d": [
        (lambda b: b.atleast_2d(b.array(2.0)), np.array([[2.0]])),
        (lambda b: b.atleast_2d(b.array(V)), V[None]),
        (lambda b: b.atleast_2d((b.array(V), b.array(X))), [V[None], X]),
    ],
    "grad": [(lambda b: b.grad(lambda x: b.sum(b.square(x)))(b.array(X)), 2 * X)],
    "value_and_grad": [
        (
            lambda b: b.value_and_grad(lambda x: b.sum(b.square(x)))(b.array(V)),
            (np.array(14.0), 2 * V),
        )
    ],
    "vjp": [
        (
            lambda b: b.vjp(lambda x: b.square(x), b.array(V), cotangents=b.array(V))[:2],
            (V * V, 2 * V * V),
        ),
        (
            lambda b: b.vjp(
                lambda p: {"y": b.square(p["x"])}, {"x": b.array(V)}, cotangents={"y": b.array(V)}
            )[1]["x"],
            2 * V * V,
        ),
        (lambda b: b.vjp(lambda x: b.square(x), [b.array(V)])[1](b.array(V)), [2 * V * V]),
    ],
    "jvp": [(lambda b: b.jvp(b.square, b.array(V), b.array(V)), (V * V, 2 * V * V))],
    "vmap": [(lambda b: b.vmap(lambda x: b.sum(x))(b.array(X)), X.sum(1))],
    "jacrev": [(lambda b: b.jacrev(b.square)(b.array(V)), np.diag(2 * V))],
    "jacfwd": [(lambda b: b.jacfwd(b.square)(b.array(V)), np.diag(2 * V))],
    "jacobian": [(lambda b: b.jacobian(b.square)(b.array(V)), np.diag(2 * V))],
    "convert_to_logical": [
        (lambda b: b.convert_to_logical(b.dtype_map["float32"]), Dtype.float32),
        (lambda b: b.convert_to_logical("no dtype"), "no dtype"),
    ],
    "to_numpy": [(lambda b: b.to_numpy(b.array(X)).tolist(), X.tolist())],
    "accumulate_grads": [
        (lambda b: b.accumulate_grads(b.array(X), b.array(V)), X.sum(0)),
        (lambda b: b.accumulate_grads(b.array(X), b.ones(2, 1)), X.sum(1, keepdims=True)),
    ],
    # Beyond the matrix, from the documents.
    "tensor": [(lambda b: b.tensor([1, 2], "float32"), np.array([1.0, 2.0]))],
    "to_tensor": [
        (lambda b: b.to_tensor([1, 2.5]), np.array([1.0, 2.5])),
        (lambda b: b.to_tensor(3), np.array(3)),
        (lambda b: b.to_tensor((1, 2), "int16"), np.array([1, 2])),
    ],
    "eye": [(lambda b: b.eye(2, 3), np.eye(2, 3))],
    "from_numpy": [(lambda b: b.from_numpy(X.astype(np.float32)), X)],
    "shape": [(lambda b: b.shape(b.array(X)), (2, 3))],
    "dtype": [(lambda b: b.dtype(b.array(X)), Dtype.float32)],
    "chunk": [
        (lambda b: b.chunk(b.array(V), 2), [V[:2], V[2:]]),
        (lambda b: b.chunk(b.array(X), 3, 1), [X[:, :1], X[:, 1:2], X[:, 2:]]),
    ],
    "einsum": [
        (lambda b: b.einsum("ij,kj->ik", b.array(X), b.array(X)), X @ X.T),
        (lambda b: b.einsum("ij,j", b.array(X), b.array(V)), X @ V),
        (lambda b: b.einsum("ij->ji", b.array(X)), X.T),
    ],
}

RNG = np.random.default_rng(0)
IMAGE, FILTERS = RNG.standard_normal((2, 3, 4, 5)), RNG.standard_normal((4, 3, 2, 2))
LINE, TAPS = IMAGE[:, :, 0], FILTERS[:, :, 0]
BIAS = RNG.standard_normal(4)


def correlation(x, w):
    """Sums of products of windows, over the last axes of w."""
    sizes = w.shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(x, sizes, tuple(range(2, 2 + len(sizes))))
    axes = tuple(range(-len(sizes), 0))
    out = np.tensordot(windows, w, ((1, *axes), (1, *axes)))
    return np.moveaxis(out, -1, 1)


def entropy(log_p, target, weights=1.0):
    return -np.take_along_axis(log_p, target[:, None], 1)[:, 0] * weights


def joint_of_three():
    """Of points in a row: the middle one is as near to both; others have (q, 1 - q)."""

    def surplus(q):
        return -q * math.log(q) - (1 - q) * math.log(1 - q) - math.log(1.5)

    q = optimize.brentq(surplus, 0.5, 1 - 1e-12)
    near = np.array([[0.0, q, 1 - q], [0.5, 0.0, 0.5], [1 - q, q, 0.0]])
    return (near + near.T) / 6


T, T2 = np.array([1, 0]), np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
LOGITS = np.log(softmax(X, 1))
TRUTH = np.array([1.0, 0.0, 1.0])
Q = RNG.standard_normal((2, 3, 4))
SQUARES = np.array([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]])

KERNELS = {
    "add": [(lambda b: b.add(b.array(X), b.array(V)), X + V)],
    "subtract": [(lambda b: b.subtract(b.array(X), 2), X - 2)],
    "multiplication": [(lambda b: b.multiplication(b.array(X), b.array(V)), X * V)],
    "divide": [(lambda b: b.divide(b.array(I), b.array(J)), I / J)],
    "floor_divide": [(lambda b: b.floor_divide(b.array(I), b.array(J)), I // J)],
    "power": [(lambda b: b.power(b.array(X), 2), X**2)],
    "negate": [(lambda b: b.negate(b.array(X)), -X)],
    "square": [(lambda b: b.square(b.array(X)), X * X)],
    "exp": [(lambda b: b.exp(b.array(X)), np.exp(X))],
    "sqrt": [(lambda b: b.sqrt(b.array(P)), np.sqrt(P))],
    "minimum": [(lambda b: b.minimum(b.array(X), b.array(V)), np.minimum(X, V))],
    "maximum": [(lambda b: b.maximum(b.array(X), 0.5), np.maximum(X, 0.5))],
    "greater": [(lambda b: b.greater(b.array(X), b.array(V)), X > V)],
    "greater_equal": [(lambda b: b.greater_equal(b.array(X), b.array(V)), X >= V)],
    "less": [(lambda b: b.less(b.array(X), b.array(V)), X < V)],
    "less_equal": [(lambda b: b.less_equal(b.array(X), b.array(V)), X <= V)],
    "equal": [(lambda b: b.equal(b.array(X), b.array(V)), X == V)],
    "not_equal": [(lambda b: b.not_equal(b.array(X), b.array(V)), X != V)],
    "logical_and": [(lambda b: b.logical_and(b.array(YES), b.array(~YES)), YES & ~YES)],
    "logical_or": [(lambda b: b.logical_or(b.array(I), b.array(J)), I | J)],
    "logical_xor": [(lambda b: b.logical_xor(b.array(I), b.array(J)), I ^ J)],
    "logical_not": [(lambda b: b.logical_not(b.array(YES)), ~YES)],
    "shift_left": [(lambda b: b.shift_left(b.array(I), b.array(J)), I << J)],
    "shift_right": [(lambda b: b.shift_right(b.array(I), 1), I >> 1)],
    "floor": [(lambda b: b.floor(b.array(P)), np.floor(P).astype(int))],  # as the model says
    "clamp": [(lambda b: b.clamp(b.array(X), 0.0, 3.0), np.clip(X, 0, 3))],
    "nan_to_num": [
        (lambda b: b.nan_to_num(b.array(ODD), 7.0, 8.0, 9.0), np.array([7.0, 1.0, 9.0, 8.0]))
    ],
    "size": [(lambda b: b.size(b.array(X)), 6), (lambda b: b.size(b.array(X), dim=1), 3)],
    "length": [(lambda b: b.length(b.array(X)), 2)],
    "item": [(lambda b: b.item(b.array(2.0)), 2.0)],
    "tensor_to_list": [(lambda b: b.tensor_to_list(b.array(X)), X.tolist())],
    "ones_with_zero_diag": [(lambda b: b.ones_with_zero_diag(2, 3), 1 - np.eye(2, 3))],
    "reduce_mean": [
        (lambda b: b.reduce_mean(b.array(X), axis=1), X.mean(1)),
        (lambda b: b.reduce_mean(b.array(X), axis=0), X.mean(0)),
    ],
    "reduce_sum": [
        (lambda b: b.reduce_sum(b.array(X), (0, 1), True), X.sum(keepdims=True)),
        (lambda b: b.reduce_sum(b.array(X), (1,), True), X.sum(1, keepdims=True)),
    ],
    "reduce_max": [(lambda b: b.reduce_max(b.array(X), axis=0), X.max(0))],
    "reduce_min": [(lambda b: b.reduce_min(b.array(X)), np.array(X.min()))],
    "reduce_prod": [(lambda b: b.reduce_prod(b.array(X), axis=1), X.prod(1))],
    "reduce_argmax": [(lambda b: b.reduce_argmax(b.array(X), axis=0), X.argmax(0))],
    "reduce_argmin": [(lambda b: b.reduce_argmin(b.array(X), axis=0), X.argmin(0))],
    "variance": [
        (lambda b: b.variance(b.array(X)), np.array(X.var())),
        (lambda b: b.variance(b.array(X), axis=1, correction=1), X.var(1, ddof=1)),
    ],
    "matrix_multiplication": [
        (lambda b: b.matrix_multiplication(b.array(X), b.array(X.T)), X @ X.T)
    ],
    "linear": [
        (lambda b: b.linear(b.array(X), b.array(FILTERS[:, :, 0, 0])), X @ FILTERS[:, :, 0, 0].T)
    ],
    "linear_bias": [
        (
            lambda b: b.linear_bias(b.array(X), b.array(FILTERS[:, :, 0, 0]), b.array(BIAS)),
            X @ FILTERS[:, :, 0, 0].T + BIAS,
        )
    ],
    "swapaxes": [(lambda b: b.swapaxes(b.array(X), 0, 1), X.T)],
    "broadcast_to": [(lambda b: b.broadcast_to(b.array(V), (2, 3)), np.broadcast_to(V, (2, 3)))],
    "permute_tensor": [(lambda b: b.permute_tensor(b.array(V), b.array([2, 0, 1])), V[[2, 0, 1]])],
    "split": [
        (lambda b: b.split(b.array(X), 2), [X[:1], X[1:]]),
        (lambda b: b.split(b.array(X), 3, 1), np.split(X, 3, 1)),
    ],
    "indexer": [
        (lambda b: b.indexer(b.array(X), 1), X[1]),
        (lambda b: b.indexer(b.array(X), (slice(None), [2, 0])), X[:, [2, 0]]),
        (lambda b: b.indexer(b.array(IMAGE), (0, slice(1, None), [0, 2])), IMAGE[0, 1:, [0, 2]]),
        (lambda b: b.indexer(b.array(V), b.array([2, 2])), V[[2, 2]]),
        (lambda b: b.indexer(b.array(V), np.array([0, 2])), V[[0, 2]]),
    ],
    "primitive_slice": [(lambda b: b.primitive_slice(1, 5, 2), slice(1, 5, 2))],
    "union": [(lambda b: b.union((1, 2), 3), (1, 2, 3))],
    "to_tuple": [(lambda b: b.to_tuple(1, 2), (1, 2))],
    "to_list": [(lambda b: b.to_list(1, 2), [1, 2])],
    "tuple_converter": [(lambda b: b.tuple_converter(3), (3, 3))],
    "stride_converter": [(lambda b: b.stride_converter(None, 3), 3)],
    "padding_converter_1d": [(lambda b: b.padding_converter_1d("same", 3), (1, 1))],
    "padding_converter_2d": [(lambda b: b.padding_converter_2d(1, (3, 3)), ((1, 1), (1, 1)))],
    "primitive_embedding": [
        (lambda b: b.primitive_embedding(b.array([1, 0, 1]), b.array(X)), X[[1, 0, 1]])
    ],
    "buffer": [(lambda b: b.buffer(b.array(X)), X)],
    "gelu": [
        (lambda b: b.gelu(b.array(V), False), V * (1 + erf(V / math.sqrt(2))) / 2),
        (
            lambda b: b.gelu(b.array(V), approximate=True),
            V * (1 + np.tanh(math.sqrt(2 / math.pi) * (V + 0.044715 * V**3))) / 2,
        ),
    ],
    "conv1d": [
        (lambda b: b.conv1d(b.array(LINE), b.array(TAPS)), correlation(LINE, TAPS)),
        (
            lambda b: b.conv1d(b.array(LINE), b.array(TAPS), padding=(1, 0), stride=2),
            correlation(np.pad(LINE, ((0, 0), (0, 0), (1, 0))), TAPS)[..., ::2],
        ),
    ],
    "conv1d_bias": [
        (
            lambda b: b.conv1d_bias(b.array(LINE), b.array(TAPS), b.array(BIAS[:, None][None])),
            correlation(LINE, TAPS) + BIAS[:, None],
        )
    ],
    "conv2d": [(lambda b: b.conv2d(b.array(IMAGE), b.array(FILTERS)), correlation(IMAGE, FILTERS))],
    "conv2d_bias": [
        (
            lambda b: b.conv2d_bias(
                b.array(IMAGE), b.array(FILTERS), b.array(BIAS.reshape(1, 4, 1, 1))
            ),
            correlation(IMAGE, FILTERS) + BIAS.reshape(4, 1, 1),
        )
    ],
    "max_pool1d": [
        (lambda b: b.max_pool1d(b.array(LINE), 2), LINE[..., :4].reshape(2, 3, 2, 2).max(-1)),
        (lambda b: b.max_pool1d(b.array(LINE), 2, 1), np.maximum(LINE[..., 1:], LINE[..., :-1])),
    ],
    "max_pool2d": [
        (
            lambda b: b.max_pool2d(b.array(IMAGE[..., :4]), 2),
            IMAGE[..., :4].reshape(2, 3, 2, 2, 2, 2).max((3, 5)),
        )
    ],
    "avg_pool2d": [
        (
            lambda b: b.avg_pool2d(b.array(IMAGE[..., :4]), 2),
            IMAGE[..., :4].reshape(2, 3, 2, 2, 2, 2).mean((3, 5)),
        )
    ],
    "scaled_dot_product_attention": [
        (
            lambda b: b.scaled_dot_product_attention(b.array(Q), b.array(Q), b.array(Q)),
            softmax(Q @ Q.swapaxes(1, 2) / 2) @ Q,
        ),
        (
            lambda b: b.scaled_dot_product_attention(
                b.array(Q), b.array(Q), b.array(Q), is_causal=True, scale=1.0
            ),
            softmax(np.where(np.tri(3) > 0, Q @ Q.swapaxes(1, 2), -INF)) @ Q,
        ),
    ],
    "squared_error": [(lambda b: b.squared_error(b.array(X), b.array(ONES)), (X - 1) ** 2)],
    "absolute_error": [(lambda b: b.absolute_error(b.array(X), b.array(ONES)), np.abs(X - 1))],
    "quantile_loss": [
        (
            lambda b: b.quantile_loss(b.array(X), b.array(ONES), b.array(0.3)),
            np.maximum(0.3 * (1 - X), -0.7 * (1 - X)),
        )
    ],
    "hinge_loss": [(lambda b: b.hinge_loss(b.array(X), b.array(ONES)), np.maximum(0, 1 - X))],
    "quad_hinge_loss": [
        (lambda b: b.quad_hinge_loss(b.array(X), b.array(ONES)), np.maximum(0, 1 - X) ** 2)
    ],
    "kl_divergence": [
        (
            lambda b: b.kl_divergence(b.array(P), b.array(P[::-1].copy()), b.array(1e-6)),
            P[::-1] * (np.log(P[::-1]) - np.log(P)),
        )
    ],
    "cross_entropy": [
        (lambda b: b.cross_entropy(b.array(P), b.array(T)), entropy(np.log(P), T)),
        (
            lambda b: b.cross_entropy(b.array(P), b.array(T), [2.0, 3.0, 4.0], b.array(1e-6)),
            entropy(np.log(P), T, np.array([3.0, 2.0])),
        ),
        (
            lambda b: b.cross_entropy(b.array(P), b.array(T2), categorical=False),
            -(T2 * np.log(P)).sum(1),
        ),
    ],
    "cross_entropy_with_logits": [
        (lambda b: b.cross_entropy_with_logits(b.array(X), b.array(T)), entropy(LOGITS, T))
    ],
    "cross_entropy_with_log_probs": [
        (lambda b: b.cross_entropy_with_log_probs(b.array(LOGITS), b.array(T)), entropy(LOGITS, T))
    ],
    "binary_cross_entropy": [
        (
            lambda b: b.binary_cross_entropy(b.array(P[0]), b.array(TRUTH)),
            -TRUTH * np.log(P[0]) - (1 - TRUTH) * np.log(1 - P[0]),
        )
    ],
    "binary_cross_entropy_with_logits": [
        (
            lambda b: b.binary_cross_entropy_with_logits(b.array(V), b.array(TRUTH)),
            (1 - TRUTH) * V + np.log1p(np.exp(-V)),
        )
    ],
    "robust_log": [(lambda b: b.robust_log(b.array(P), b.array(1e-6)), np.log(P))],
    "robust_sqrt": [(lambda b: b.robust_sqrt(b.array(P), b.array(1e-6)), np.sqrt(P))],
    "robust_power": [(lambda b: b.robust_power(b.array(P), 2.0, b.array(1e-6)), P**2)],
    "stable_reciprocal": [(lambda b: b.stable_reciprocal(b.array(P), b.array(1e-6)), 1 / P)],
    "norm_modifier": [
        (
            lambda b: b.norm_modifier(b.array(2.5)),
            np.array(4 * (1 - 2 * abs(1.5 / 8 - 0.5)) + 1),
        )
    ],
    "distance_matrix": [
        (
            lambda b: b.distance_matrix(b.array(X), b.array(X), b.array(2.0)),
            ((X[:, None] - X[None]) ** 2).sum(-1),
        )
    ],
    "cartesian_diff": [(lambda b: b.cartesian_diff(b.array(X), b.array(X)), X[:, None] - X[None])],
    "polynomial_features": [
        (
            lambda b: b.polynomial_features(b.array([[2.0, 3.0]]), degree=2),
            np.array([[2.0, 3.0, 4.0, 6.0, 9.0]]),
        )
    ],
    "tsne_p_joint": [
        (
            lambda b: b.tsne_p_joint(b.array(SQUARES), b.array(1.5), b.array(1e-9)),
            joint_of_three(),
        )
    ],
    "transposed_diag": [(lambda b: b.transposed_diag(b.array(SPD)), np.diag(SPD)[:, None])],
    "auc_core": [
        (
            lambda b: b.auc_core(
                b.array([0.9, 0.4, 0.4, 0.1]), b.array([True, True, False, False])
            ),
            np.array([[0.5, 1.0, 1.0], [0.0, 0.5, 1.0]]),
        )
    ],
    "primitive_accuracy": [
        (lambda b: b.primitive_accuracy(b.array(P), b.array([1, 1])), np.array(0.5))
    ],
    "trapezoid": [(lambda b: b.trapezoid(b.array(V), b.array([0.0, 1.0, 3.0])), np.array(2.0))],
}
SPECTRUM = np.fft.fft(V)
KERNELS["fft"] = [(lambda b: b.fft(b.array(V)), (SPECTRUM.real, SPECTRUM.imag))]
PLACES = np.arange(3.0)[:, None] / 10000 ** (np.arange(0, 4, 2) / 4)  # (Vaswani et al., 2017)
KERNELS["positional_encoding"] = [
    (
        lambda b: b.positional_encoding(b.array(Q), 4, 8),
        Q + np.stack([np.sin(PLACES), np.cos(PLACES)], -1).reshape(3, 4),
    )
]
L = np.linalg.cholesky(SPD)
Y = np.array([[1.0], [2.0]])
LINALG = {
    "cholesky": [(lambda b: b.cholesky(b.array(SPD)), L)],
    "gpr_alpha": [
        (
            lambda b: b.gpr_alpha(b.array(Y), b.array(L), b.array(SPD)),
            np.linalg.solve(SPD, Y),
        )
    ],
    "gpr_v_outer": [
        (
            lambda b: b.gpr_v_outer(b.array(SPD), b.array(SPD), b.array(L)),
            SPD @ np.linalg.solve(SPD, SPD),
        )
    ],
    "eigvalsh": [(lambda b: b.eigvalsh(b.array(SPD)), np.linalg.eigvalsh(SPD)[:, None])],
}
CASES = {**MATRIX, **KERNELS, **LINALG}


@pytest.mark.parametrize("name", CASES)
def test_values(b, name):
    for call, expected in CASES[name]:
        try:
            actual = call(b)
        except UnsupportedError as error:
            if name in LINALG and b.backend_type == "mlx":
                pytest.skip(str(error))
            raise
        same(b, actual, expected)


def test_random_methods(b):
    for draw, low, high in (
        (lambda: b.rand(50, 4), 0, 1),
        (lambda: b.rand((50, 4), key=3), 0, 1),
        (lambda: b.randn(50, 4), -9, 9),
        (lambda: b.rand_uniform(-2, 3, 50, 4), -2, 3),
        (lambda: b.random_normal(shape=(50, 4), mean=50.0, stddev=0.1), 49, 51),
        (lambda: b.randint(-2, 3, 50, 4), -2, 3),
        (lambda: b.randint(-2, 3, (50, 4), key=1, dtype="int16"), -2, 3),
    ):
        b.set_seed(7)
        first = b.to_numpy(draw())
        assert first.shape == (50, 4)
        assert len(np.unique(first)) > 4
        assert first.min() >= low
        assert first.max() < high
        b.set_seed(7)
        np.testing.assert_array_equal(b.to_numpy(draw()), first)
    drawn = b.to_numpy(b.multinomial(b.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]), 2))
    assert [set(row) for row in drawn.tolist()] == [{0, 1}, {1, 2}]
    assert b.shape(b.empty(2, 3)) == (2, 3)


@pytest.mark.parametrize(
    "name", ["get_parallel_manager", "get_raw_device_mesh", "register_callable", "get_struct_cls"]
)
def test_what_no_backend_has_says_so(b, name):
    arguments = (len,) if name == "register_callable" else ()
    with pytest.raises(UnsupportedError, match=name) as told:
        getattr(b, name)(*arguments)
    assert told.value.hint


def test_what_compilers_follow(b):
    compiles = b.capabilities.jit
    assert b.check_op_jittable("add", (True, float), (True, float))
    assert b.check_op_jittable("item", (True, float)) is not compiles
    assert b.check_op_jittable("tensor_to_list") is not compiles
    follows_masks = not compiles or b.backend_type == "torch"
    assert b.check_op_jittable("unique", (True, float)) is follows_masks
    assert b.check_op_jittable("primitive_slice", (False, int), (False, int))
    assert b.check_op_jittable("primitive_slice", (False, bool)) is follows_masks
    with pytest.raises(KeyError, match="did you mean 'unique'"):
        b.check_op_jittable("uniqe")


def test_facts(b):
    assert b.DataType is b.get_backend_array_type()
    assert isinstance(b.array(X), b.DataType)
    assert Dtype.float32 in b.supported_dtypes
    assert set(b.dtype_map) == set(Dtype)
    for dtype in Dtype:
        own = getattr(b, dtype.value)
        assert own == b.dtype_map[dtype.value]
        assert b.convert_to_logical(own) is dtype
        assert b.dtype(b.zeros(1, dtype=own)) is dtype
    for dtype in b.supported_dtypes:
        assert type(b)(dtype=dtype).default_dtype is dtype
    functions = b.op_function_dict
    assert set(KERNELS) | set(LINALG) <= set(functions)
    same(b, functions["multiplication"](b.array(X), b.array(V)), X * V)
    told = b.capabilities
    assert told.autodiff == ("engine" if b.is_manualgrad else "framework")
    assert told.open_sizes
    assert told.dtypes == b.supported_dtypes
    assert b.get_device() in told.devices


def test_registered_primitives_are_those_of_the_class(b):
    def matrix_twice(input):
        return input + input

    before = dict(type(b).registered_primitives)
    own = type("Own", (type(b),), {})()
    own.register_primitive(matrix_twice)
    assert own.registered_primitives["matrix_twice"] is matrix_twice
    assert own.op_function_dict["matrix_twice"] is matrix_twice
    assert own.check_op_jittable("matrix_twice")
    assert dict(type(b).registered_primitives) == before


@pytest.mark.parametrize("name", [backend_param("jax"), backend_param("mlx")])
def test_prng_key(name):
    backend = get_backend(name)
    first = np.asarray(backend.prng_key)
    assert first.dtype == np.uint32
    assert first.shape == (2,)
    np.testing.assert_array_equal(np.asarray(backend.prng_key), first)
    backend.randn(2)
    assert not np.array_equal(np.asarray(backend.prng_key), first)


def test_bad_arguments(b):
    x = b.array(X)
    for call, error, told in (
        (lambda: b.pad(x, -1), ValueError, "pad_width requires"),
        (lambda: b.pad(x, ((1, 1),)), ValueError, "for each of 2 axes"),
        (lambda: b.split(x, 2, 1), ValueError, "multiple of 2 elements, got 3"),
        (lambda: b.split(x, 0), TypeError, "positive integer, got 0"),
        (lambda: b.chunk(x, 2, 5), ValueError, "axis 5 is out of range for rank 2"),
        (lambda: b.sort(x, 1, True, True, 0), TypeError, "takes 4 operands"),
        (lambda: b.sort(x, descend=True), TypeError, "did you mean 'descending'"),
        (lambda: b.sort(x, 1, dim=1), TypeError, "'axis' is given twice"),
        (lambda: b.topk(x), TypeError, "'k'"),
        (lambda: b.matmul(x), TypeError, "requires 'right'"),
        (lambda: b.einsum("ij,jk->ik", x), TypeError, "requires 2 operands, got 1"),
        (lambda: b.einsum("ii->i", x), ValueError, "twice"),
        (lambda: b.auc_core(x, x, x), TypeError, "takes input, label"),
        (lambda: b.negate(b.array(YES)), TypeError, "input requires int tensor or float tensor"),
    ):
        with pytest.raises(error, match=told) as raised:
            call()
        assert isinstance(raised.value, MithrilError)


def test_gradients_pass_through_methods(b):
    """Through promotion and through ops of more than one result, too."""
    x, n = b.array(V), b.array(J)
    for function, slope in (
        (lambda x: b.sum(b.multiply(x, n)), J * 1.0),
        (lambda x: b.sum(b.concat([x, n])), np.ones(3)),
        (lambda x: b.sum(b.topk(x, 2)), np.array([1.0, 0.0, 1.0])),
        (lambda x: b.sum(b.stack([x, x])), 2 * np.ones(3)),
        (lambda x: b.sum(b.pad(x, 1)), np.ones(3)),
        (lambda x: b.sum(b.split(x, 3)[1]), np.array([0.0, 1.0, 0.0])),
        (lambda x: b.sum(b.atleast_2d(x)), np.ones(3)),
        (lambda x: b.einsum("i,i->", x, x), 2 * V),
        (lambda x: b.sum(b.indexer(x, slice(1, None))), np.array([0.0, 1.0, 1.0])),
    ):
        same(b, b.grad(function)(x), slope)
