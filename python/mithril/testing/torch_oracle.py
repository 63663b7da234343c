"""The oracle for gradients: a model file, run eagerly by PyTorch in float64.

Forward functions are PyTorch's own; what has no gradient is left to `oracle_ops.py`. Gradients at
kinks are part of an op's definition (relu and abs 0, clamp on a limit 1, ties shared, leaky_relu
the slope, x ** 0 at 0 0, sqrt inf, the first maximum of a pooling window). PyTorch's rule is the
same, but for these, which are written differently here:

- max_pool2d: which of equal elements PyTorch takes is not documented: the window's elements are
  stacked, and the first maximum is taken;
- max and min over several axes: amax and amin share among ties, max(dim=) does not;
- softplus: PyTorch's is linear beyond a threshold; logsigmoid is exact;
- prod of several axes, negative steps, asymmetric padding: PyTorch has none, they are composed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from mithril.testing import (
    oracle,
    oracle_ops,
    torch_attention,
    torch_functions,
    torch_losses,
    torch_windows,
)
from mithril.testing.oracle_losses import reducible
from mithril.testing.oracle_ops import NO_PADDING, axes_tuple
from mithril.testing.torch_arrays import ARRAYS, eigvalsh
from mithril.testing.torch_fourier import FOURIER


def held(value: Any) -> Any:
    """Converts a NumPy result to a tensor; returns host values unchanged."""
    if isinstance(value, np.ndarray | np.generic):
        return torch.as_tensor(np.array(value))
    return value


def plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(plain, value))
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def through_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a NumPy function as an op without gradient."""

    def run(*args: Any, **attrs: Any) -> Any:
        results = function(*map(plain, args), **{k: plain(v) for k, v in attrs.items()})
        return tuple(map(held, results)) if isinstance(results, tuple) else held(results)

    run.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return run


def real(x: Any) -> torch.Tensor:
    return torch.as_tensor(x).to(torch.float64)


def both(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """PyTorch's function where a float takes part, else the oracle's (bools, wrapping integers)."""
    exact = oracle_ops.SIMPLE[name]
    signature = inspect.signature(exact)

    def run(*args, **attrs):
        left, right, *_ = signature.bind(*args, **attrs).args
        if any(torch.as_tensor(x).is_floating_point() for x in (left, right)):
            return function(real(left), real(right))
        return held(np.asarray(exact(plain(left), plain(right))))

    run.__signature__ = signature  # type: ignore[attr-defined]
    return run


def one(function: Callable[..., Any], name: str | None = None) -> Callable[..., Any]:
    """A function of one operand; `name`: integers keep their type and are the oracle's."""

    def run(input):
        if name is not None and not input.is_floating_point():
            return held(oracle_ops.SIMPLE[name](plain(input)))
        return function(real(input))

    return run


def clamp(input, min_val=None, max_val=None):
    if not input.is_floating_point():
        return held(oracle_ops.clamp(plain(input), min_val, max_val))
    limits = [min_val, max_val]
    if any(isinstance(limit, torch.Tensor) for limit in limits):  # both must be, then
        limits = [x if x is None else torch.as_tensor(x, dtype=input.dtype) for x in limits]
    return input if min_val is None and max_val is None else torch.clamp(input, *limits)


def where(cond, input1, input2):
    return torch.where(cond, input1, input2)


def cast(input, dtype):
    result = held(oracle_ops.cast(plain(input), dtype))
    if not (input.is_floating_point() and result.is_floating_point()):
        return result
    return input + (result - input).detach()  # rounding has the slope 1


def leaky_relu(input, slope=0.01):
    x = real(input)
    return torch.where(x > 0, x, x * slope)


def softplus(input, beta=1.0):
    return -F.logsigmoid(-real(input) * beta) / beta


def gelu(input, approximate=False):
    return F.gelu(real(input), approximate="tanh" if approximate else "none")


def as_rows(x: torch.Tensor, axis: Any) -> torch.Tensor:
    """Merges axes into one, the last."""
    axes = sorted(axes_tuple(axis, x.ndim))
    kept = [a for a in range(x.ndim) if a not in axes]
    count = int(np.prod([x.shape[a] for a in axes], dtype=int))
    return torch.permute(x, (*kept, *axes)).reshape(*(x.shape[a] for a in kept), count)


def log_softmax(input, axis=-1):
    x = real(input)
    if axis is None:
        return F.log_softmax(x.reshape(-1), 0).reshape(x.shape)
    return F.log_softmax(x, axis)


def softmax(input, axis=-1):
    return torch.exp(log_softmax(input, axis))


def reduction(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def reduce(input, axis=None, keepdim=False):
        if not input.is_floating_point() and name not in ("mean", "variance"):
            return held(oracle_ops.SIMPLE[name](plain(input), axis, keepdim))
        x = real(input)
        result = function(as_rows(x, axis))
        return unreduced(result, x, axis) if keepdim else result

    return reduce


def unreduced(result: torch.Tensor, x: torch.Tensor, axis: Any) -> torch.Tensor:
    axes = axes_tuple(axis, x.ndim)
    return result.reshape([1 if a in axes else n for a, n in enumerate(x.shape)])


def variance(input, axis=None, keepdim=False, correction=0.0):
    x = real(input)
    rows = as_rows(x, axis)
    freedom = rows.shape[-1] - correction
    result = ((rows - rows.mean(-1, keepdim=True)) ** 2).sum(-1) / freedom
    return unreduced(result, x, axis) if keepdim else result


def solve_triangular(matrix, right, lower=True, transposed=False):
    half = torch.tril(matrix) if lower else torch.triu(matrix)
    return torch.linalg.solve(half.mT if transposed else half, right)


def eigh(input):
    """The largest component of each vector is positive."""
    values, vectors = torch.linalg.eigh((input + input.mT) / 2)
    if not vectors.numel():
        return values, vectors
    lowest, highest = vectors.aminmax(dim=-2, keepdim=True)
    return values, torch.where(-lowest > highest, -vectors, vectors)


def cofactor(input):
    rows = range(input.shape[-1])
    if len(rows) == 0:
        return input

    def at(i, j):
        minor = input[..., [r for r in rows if r != i], :][..., [c for c in rows if c != j]]
        return (-1) ** (i + j) * torch.linalg.det(minor)

    return torch.stack([torch.stack([at(i, j) for j in rows], -1) for i in rows], -2)


def scaled_det(input):
    det = torch.linalg.det(input)
    exponent = torch.frexp(det.detach()).exponent.to(det.dtype)
    return det * 2.0**-exponent, exponent


def pinv(input, rtol=None):
    return torch.linalg.pinv(input, rtol=rtol) if input.numel() else input.mT


def cumsum(input, axis=-1):
    if not input.is_floating_point():
        return held(oracle_ops.SIMPLE["cumsum"](plain(input), axis))
    return torch.cumsum(input, axis)


def linear(weight, input, bias=None, dimension=None, use_bias=True):
    return F.linear(real(input), weight, bias)


# --- convolution, pooling ------------------------------------------------------------------------


def zero_pad(x: torch.Tensor, padding: Any, value: float = 0.0) -> torch.Tensor:
    (top, bottom), (left, right) = padding
    return F.pad(x, (left, right, top, bottom), value=value)


def conv2d(input, weight, stride=(1, 1), padding=NO_PADDING, dilation=(1, 1), groups=1):
    return F.conv2d(zero_pad(real(input), padding), weight, None, stride, 0, dilation, groups)


def adjoint(function: Callable[..., Any], at: torch.Tensor, cotangent: Any) -> torch.Tensor:
    """Returns the vector-Jacobian product of a cotangent; it can be differentiated again."""
    at = at.detach().requires_grad_()
    return torch.autograd.grad(function(at), at, cotangent, create_graph=True)[0]


def conv2d_dx(cotangent, weight, shape, stride=(1, 1), padding=NO_PADDING, dilation=(1, 1),
              groups=1):  # fmt: skip
    zeros = torch.zeros(shape, dtype=torch.float64)
    return adjoint(lambda x: conv2d(x, weight, stride, padding, dilation, groups), zeros, cotangent)


def conv2d_dw(input, cotangent, shape, stride=(1, 1), padding=NO_PADDING, dilation=(1, 1),
              groups=1):  # fmt: skip
    zeros = torch.zeros(tuple(shape), dtype=torch.float64)
    return adjoint(lambda w: conv2d(input, w, stride, padding, dilation, groups), zeros, cotangent)


def windows(x, kernel_size, stride, padding, dilation, fill):
    padded = zero_pad(real(x), padding, fill)
    shape = oracle_ops.window_count(padded, kernel_size, stride, dilation)
    places = oracle_ops.taps(kernel_size, stride, dilation, shape)
    return torch.stack([padded[where] for _, where in places])


def max_pool2d_pick(input, value, like, kernel_size, stride, padding=NO_PADDING, dilation=(1, 1)):
    chosen = oracle_ops.first_maxima(plain(input), kernel_size, stride, padding, dilation)
    values = windows(value, kernel_size, stride, padding, dilation, 0.0)
    return torch.gather(values, 0, torch.as_tensor(chosen)[None])[0]


def max_pool2d(input, kernel_size, stride, padding=NO_PADDING, dilation=(1, 1)):
    return max_pool2d_pick(input, input, None, kernel_size, stride, padding, dilation)


def max_pool2d_grad(input, cotangent, kernel_size, stride, padding=NO_PADDING, dilation=(1, 1)):
    def pick(value):
        return max_pool2d_pick(input, value, None, kernel_size, stride, padding, dilation)

    return adjoint(pick, torch.zeros_like(input), cotangent)


def avg_pool2d(input, kernel_size, stride, padding=NO_PADDING, dilation=(1, 1)):
    return windows(input, kernel_size, stride, padding, dilation, 0.0).mean(0)


def avg_pool2d_grad(cotangent, shape, kernel_size, stride, padding=NO_PADDING, dilation=(1, 1)):
    zeros = torch.zeros(tuple(shape), dtype=torch.float64)
    return adjoint(
        lambda x: avg_pool2d(x, kernel_size, stride, padding, dilation), zeros, cotangent
    )


def channels_last(function):
    """Converts a function on images [n, c, h, w] to one on images [n, h, w, c]."""

    def call(input, **attributes):
        return function(input.movedim(-1, 1), **attributes).movedim(1, -1)

    return call


# --- norms, attention, losses --------------------------------------------------------------------


def layer_norm(input, eps=1e-5, weight=None, bias=None, use_scale=True, use_bias=True):
    return F.layer_norm(real(input), input.shape[-1:], weight, bias, float(eps))


def flat(x: torch.Tensor | None) -> torch.Tensor | None:
    return None if x is None else x.reshape(-1)


def batch_norm(input, running_mean, running_var, weight=None, bias=None, num_features=None,
               use_scale=True, use_bias=True, eps=1e-5, momentum=0.1, mode=None):  # fmt: skip
    train = mode == "train"
    mean, var = running_mean, running_var
    new_mean, new_var = running_mean, running_var
    if train:
        new_mean, new_var = running_mean.detach().clone(), running_var.detach().clone()
        mean, var = new_mean, new_var  # PyTorch moves them
    y = F.batch_norm(real(input), mean, var, flat(weight), flat(bias), train, momentum, eps)
    return y, new_mean, new_var


def scaled_dot_product_attention(query, key, value, dropout_p=0.0, attn_mask=None, is_causal=True,
                                 scale=None, use_attn_mask=False, enable_gqa=False,
                                 broadcast=False):  # fmt: skip
    q, k, v = real(query), real(key), real(value)
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scores = torch.einsum("...ld,...sd->...ls", q, k)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.einsum("...ls,...sv->...lv", torch.softmax(scores, -1), v)


# --- movement, indexing --------------------------------------------------------------------------


def concat(axis=0, *input):
    operands = [x.reshape(-1) for x in input] if axis is None else list(input)
    return torch.cat(operands, 0 if axis is None else axis)


def expand_dims(input, axis):
    axes = axes_tuple(axis, input.ndim + (1 if isinstance(axis, int) else len(axis)))
    for a in sorted(axes):
        input = input.unsqueeze(a)
    return input


def squeeze(input, axis=None):
    return input.squeeze() if axis is None else input.squeeze(axis)


def flatten(input, start_dim=1, end_dim=-1):
    return torch.flatten(input, start_dim, end_dim)


NAMES_OF_MODES = {"edge": "replicate", "wrap": "circular"}  # PyTorch's


def pad(input, pad_width, mode="constant", value=0.0):
    widths = np.broadcast_to(np.asarray(pad_width, int), (input.ndim, 2))
    if mode != "constant":
        return torch_windows.pad_with(NAMES_OF_MODES.get(mode, mode))(input, widths.tolist())
    return F.pad(input, [int(n) for pair in widths[::-1] for n in pair], value=value)


def sum_to(input, like):
    return input.sum_to_size(like.shape)


def places(shape: tuple[int, ...], index: Any) -> torch.Tensor:
    """Returns the place of each element of NumPy's indexing in the flattened operand."""
    numbers = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
    return torch.as_tensor(np.array(numbers[oracle_ops.selection(plain(index))]))


def index(input, index):
    if isinstance(input, tuple | list):
        return input[index]
    found = places(tuple(input.shape), index)
    return input.reshape(-1)[found.reshape(-1)].reshape(found.shape)


def index_add(input, value, index):
    found = places(tuple(input.shape), index)
    values = value.broadcast_to(found.shape).reshape(-1).to(input.dtype)
    return input.reshape(-1).index_add(0, found.reshape(-1), values).reshape(input.shape)


def embedding_grad(value, indices, shape):
    rows = value.reshape(indices.numel(), *value.shape[indices.ndim :])
    zeros = torch.zeros(tuple(shape), dtype=value.dtype)
    return zeros.index_add(0, indices.reshape(-1).to(torch.int64), rows)


def dropout(input, rng_key=None, p=0.5, mode=None):
    ones = np.ones(tuple(input.shape))
    mask, new_key = oracle_ops.dropout(ones, plain(rng_key), p, mode)
    return real(input) * held(mask), held(new_key)


def dropout_attention(query, key, value, attn_mask=None, bias=None, offset=0, rng_key=None, p=0.5,
                      mode=None, **how):  # fmt: skip
    def thinned(weights):
        return dropout(weights, rng_key, p, mode)[0]

    found = torch_attention.attention(
        query, key, value, attn_mask, bias, offset, **how, thinned=thinned
    )
    return found, dropout(torch.zeros(0), rng_key, p, mode)[1]


DIFFERENTIABLE: dict[str, Callable[..., Any]] = {
    "add": both(torch.add, "add"),
    "subtract": both(torch.sub, "subtract"),
    "multiply": both(torch.mul, "multiply"),
    "divide": lambda numerator, denominator: real(numerator) / real(denominator),
    "mod": both(torch.remainder, "mod"),
    "power": both(torch.pow, "power"),
    "maximum": both(torch.maximum, "maximum"),
    "minimum": both(torch.minimum, "minimum"),
    "clamp": clamp,
    "cond_join": lambda input, other, predicate, **_: input if predicate else other,
    "where": where,
    "negate": one(torch.neg, "negate"),
    "abs": one(torch.abs, "abs"),
    "stop_gradient": lambda input: input.detach(),
    "after": lambda input, token: input,
    "square": one(torch.square),
    "exp": one(torch.exp),
    "expm1": one(torch.expm1),
    "log": one(torch.log),
    "log1p": one(torch.log1p),
    "sqrt": one(torch.sqrt),
    "rsqrt": one(torch.rsqrt),
    "sin": one(torch.sin),
    "cos": one(torch.cos),
    "erf": one(torch.erf),
    "cast": cast,
    "sigmoid": one(torch.sigmoid),
    "tanh": one(torch.tanh),
    "softplus": softplus,
    "silu": one(F.silu),
    "relu": one(F.relu, "relu"),
    "leaky_relu": leaky_relu,
    "gelu": gelu,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "sum": reduction(lambda rows: rows.sum(-1), "sum"),
    "mean": reduction(lambda rows: rows.mean(-1), "mean"),
    "prod": reduction(lambda rows: rows.prod(-1), "prod"),
    "max": reduction(lambda rows: rows.amax(-1), "max"),
    "min": reduction(lambda rows: rows.amin(-1), "min"),
    "variance": variance,
    "cumsum": cumsum,
    "matmul": both(torch.matmul, "matmul"),
    "linear": linear,
    "cholesky": lambda input, upper=False: torch.linalg.cholesky(
        (input + input.mT) / 2, upper=upper
    ),
    "solve_triangular": solve_triangular,
    "solve": lambda matrix, right: torch.linalg.solve(matrix, right),
    "inverse": lambda input: torch.linalg.inv(input),
    "cofactor": cofactor,
    "det": lambda input: torch.linalg.det(input),
    "scaled_det": scaled_det,
    "slogdet": lambda input: tuple(torch.linalg.slogdet(input)),
    "trace": lambda input: DIFFERENTIABLE["sum"](input.diagonal(dim1=-2, dim2=-1), -1),
    "matrix_power": lambda input, n: torch.linalg.matrix_power(input, n),
    "matrix_exp": lambda input: torch.linalg.matrix_exp(input),
    "pinv": pinv,
    "lstsq": lambda matrix, right, rtol=None: pinv(matrix, rtol) @ right,
    "eigh": eigh,
    "gpr_alpha": lambda label_mu_diff, L, K_term: torch.cholesky_solve(label_mu_diff, L.tril()),
    "gpr_v_outer": lambda K, K_term, L: K.mT @ torch.cholesky_solve(K, L.tril()),
    **torch_windows.TABLE,
    **torch_attention.TABLE,
    "dropout_attention": dropout_attention,
    "conv2d": conv2d,
    "conv2d_dx": conv2d_dx,
    "conv2d_dw": conv2d_dw,
    "max_pool2d": max_pool2d,
    "max_pool2d_grad": max_pool2d_grad,
    "max_pool2d_pick": max_pool2d_pick,
    "avg_pool2d": avg_pool2d,
    "avg_pool2d_grad": avg_pool2d_grad,
    "conv2d_channels_last": channels_last(conv2d),
    "max_pool2d_channels_last": channels_last(max_pool2d),
    "avg_pool2d_channels_last": channels_last(avg_pool2d),
    "layer_norm": layer_norm,
    **dict.fromkeys(("batch_norm1d", "batch_norm2d", "batch_norm3d"), batch_norm),
    "scaled_dot_product_attention": scaled_dot_product_attention,
    "squared_error": reducible(both(lambda x, t: (x - t) ** 2, "squared_error")),
    "absolute_error": reducible(both(lambda x, t: (x - t).abs(), "absolute_error")),
    "transpose": lambda input, axes=None: torch.permute(
        input, tuple(range(input.ndim))[::-1] if axes is None else axes_tuple(axes, input.ndim)
    ),
    "swapaxes": lambda input, axis1, axis2: input.swapaxes(axis1, axis2),
    "reshape": lambda input, shape: input.reshape(tuple(shape)),
    "flatten": flatten,
    "squeeze": squeeze,
    "expand_dims": expand_dims,
    "broadcast_to": lambda input, shape: input.broadcast_to(tuple(shape)),
    "gradient": lambda of, wrt: torch.zeros_like(wrt),
    "known_sizes": lambda input, sizes, wire="": input,
    "broadcast_like": lambda input, like: input.broadcast_to(like.shape),
    "sum_to": sum_to,
    "concat": concat,
    "split": lambda input, split_size, axis=0: list(torch.tensor_split(input, split_size, axis)),
    "pad": pad,
    "to_list": oracle_ops.SIMPLE["to_list"],
    "to_tuple": oracle_ops.SIMPLE["to_tuple"],
    "index": index,
    "index_add": index_add,
    "gather": lambda input, indices: input[indices.to(torch.int64)],
    "embedding_grad": embedding_grad,
    "embedding": lambda input, weight, num_embeddings=None, dim=None: weight[input.to(torch.int64)],
    "buffer": lambda input: input,
    "dropout": dropout,
} | ARRAYS


@cache
def ops_for(float_dtype: str = "float64") -> dict[str, Callable[..., Any]]:
    smallest = oracle_ops.SMALLEST_NORMAL[float_dtype]
    exact = {name: through_numpy(f) for name, f in oracle_ops.ops_for(float_dtype).items()}
    losses = torch_losses.THRESHOLDED
    bound = {name: partial(f, smallest=smallest) for name, f in losses.items()}
    bound["eigvalsh"] = partial(eigvalsh, epsilon=oracle_ops.EPSILON[float_dtype])
    further = torch_functions.functions_for(float_dtype, oracle_ops.SMALLEST_NORMAL)
    tables = DIFFERENTIABLE | FOURIER | torch_losses.DIFFERENTIABLE
    return exact | tables | further | bound


def evaluate(
    text: str, inputs: Mapping[str, Any], *, float_dtype: str = "float64", mode: str = "eval"
) -> oracle.Result:
    """As `oracle.evaluate`, on tensors; inputs that require gradients are differentiable."""

    def hold(value: Any) -> torch.Tensor:
        return value if isinstance(value, torch.Tensor) else held(oracle.held(value))

    return oracle.run(oracle.parse(text), inputs, ops_for(float_dtype), mode, hold)


Arrays = dict[str, np.ndarray]


def _leaves(inputs: Mapping[str, Any], wrt: Iterable[str]) -> dict[str, torch.Tensor]:
    return {n: torch.tensor(np.asarray(inputs[n], np.float64), requires_grad=True) for n in wrt}


def _pull_back(
    results: Mapping[str, Any],
    cotangents: Mapping[str, Any],
    leaves: Mapping[str, torch.Tensor],
    again: bool,
) -> dict[str, torch.Tensor]:
    """Gradients in the leaves; zeros where nothing depends on them."""
    chosen = [name for name in cotangents if results[name].requires_grad]
    if not chosen:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    found = torch.autograd.grad(
        [results[name] for name in chosen],
        list(leaves.values()),
        [torch.tensor(np.asarray(cotangents[name], np.float64)) for name in chosen],
        allow_unused=True,
        materialize_grads=True,
        create_graph=again,
    )
    return dict(zip(leaves, found, strict=True))


def gradients(
    text: str,
    inputs: Mapping[str, Any],
    cotangents: Mapping[str, Any],
    wrt: Iterable[str],
    *,
    float_dtype: str = "float64",
) -> Arrays:
    """Gradients of the outputs, weighted by their cotangents, in the inputs `wrt`."""
    leaves = _leaves(inputs, wrt)
    outputs = evaluate(text, {**inputs, **leaves}, float_dtype=float_dtype).outputs
    found = _pull_back(outputs, cotangents, leaves, again=False)
    return {name: gradient.numpy() for name, gradient in found.items()}


def second_gradients(
    text: str,
    inputs: Mapping[str, Any],
    cotangents: Mapping[str, Any],
    directions: Mapping[str, Any],
) -> tuple[Arrays, Arrays]:
    """The gradients, and the gradients of their product with `directions`, in the same inputs."""
    leaves = _leaves(inputs, directions)
    outputs = evaluate(text, {**inputs, **leaves}).outputs
    first = _pull_back(outputs, cotangents, leaves, again=True)
    second = _pull_back(first, directions, leaves, again=False)
    return tuple({n: g.detach().numpy() for n, g in each.items()} for each in (first, second))


__all__ = ["evaluate", "gradients", "second_gradients"]
