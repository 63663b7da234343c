"""Errors of halves beside PyTorch's on the same numbers, in units of the last place of the result.

The exact results are PyTorch's in float64. `print(table())` is the whole table.
"""

import mithril as ml
import numpy as np
import pytest
import torch
from torch.nn import functional

pytestmark = pytest.mark.frameworks
RANDOM = np.random.default_rng(0)
X, Y = RANDOM.standard_normal((4, 64)), RANDOM.standard_normal((4, 64))
DIGITS = {"float16": (2.0**-10, 2.0**-14), "bfloat16": (2.0**-7, 2.0**-126)}

WIDE, IMAGE = RANDOM.standard_normal((4, 64)), RANDOM.standard_normal((2, 4, 5, 5))
HEADS = tuple(RANDOM.standard_normal((1, 2, 16, 32)) for _ in range(3))


def plain(layer):
    return lambda: layer(use_scale=False, use_bias=False)


# name: (our op, arrays, PyTorch's function)
ROWS = {
    "Softmax": (ml.Softmax, (X,), lambda x: torch.softmax(x, -1)),
    "Softmin": (ml.Softmin, (X,), lambda x: functional.softmin(x, -1)),
    "LogSoftmax": (ml.LogSoftmax, (X,), lambda x: torch.log_softmax(x, -1)),
    "LogSumExp": (ml.LogSumExp, (X.ravel(),), lambda x: torch.logsumexp(x, -1)),
    "LayerNorm": (plain(ml.LayerNorm), (200 * X,), lambda x: functional.layer_norm(x, (64,))),
    "RMSNorm": (
        lambda: ml.RMSNorm(use_scale=False),
        (200 * X,),
        lambda x: functional.rms_norm(x, (64,), eps=1e-5),
    ),
    "GroupNorm": (
        lambda: ml.GroupNorm(2, use_scale=False, use_bias=False),
        (200 * IMAGE,),
        lambda x: functional.group_norm(x, 2),
    ),
    "InstanceNorm": (plain(ml.InstanceNorm), (200 * IMAGE,), functional.instance_norm),
    "Variance": (ml.Variance, (100 * X,), lambda x: x.var(correction=0)),
    "CosineSimilarity": (
        lambda: ml.CosineSimilarity(axis=1),
        (200 * X, 200 * WIDE),
        functional.cosine_similarity,
    ),
    "Softplus": (ml.Softplus, (4 * X,), functional.softplus),
    "Softplus(beta=10)": (
        lambda: ml.Softplus(beta=10.0),
        (1000 * X,),
        lambda x: functional.softplus(x, 10.0),
    ),
    "Sinh": (ml.Sinh, (3 * X,), torch.sinh),
    "Cosh": (ml.Cosh, (3 * X,), torch.cosh),
    "Tan": (ml.Tan, (X.clip(-1.5, 1.5),), torch.tan),
    "Asinh": (ml.Asinh, (1e4 * X,), torch.asinh),
    "Acosh": (ml.Acosh, (1 + 1e4 * np.abs(X),), torch.acosh),
    "Atanh": (ml.Atanh, (0.99 * np.tanh(X),), torch.atanh),
    "Gelu": (ml.Gelu, (X,), functional.gelu),
    "SiLU": (ml.SiLU, (3 * X,), functional.silu),
    "Mish": (ml.Mish, (3 * X,), functional.mish),
    "ELU": (ml.ELU, (X,), functional.elu),
    "LogSigmoid": (ml.LogSigmoid, (3 * X,), functional.logsigmoid),
    "Mean": (ml.Mean, (200 * X,), torch.mean),
    "SquaredError": (lambda: ml.SquaredError(reduction="mean"), (X, Y), functional.mse_loss),
    "Prod": (ml.Prod, (1 + X.ravel()[:40] / 10,), torch.prod),
    "CumSum": (lambda: ml.CumSum(axis=1), (np.abs(X),), lambda x: torch.cumsum(x, 1)),
    "CumProd": (lambda: ml.CumProd(axis=1), (1 + np.abs(X) / 20,), lambda x: torch.cumprod(x, 1)),
    "Attention": (ml.Attention, HEADS, functional.scaled_dot_product_attention),
}


def units(found, exact, dtype):
    """The largest distance in units of the last place of the exact result."""
    step, smallest = DIGITS[dtype]
    found, exact = np.asarray(found).astype("float64"), np.asarray(exact)
    size = step * 2.0 ** np.floor(np.log2(np.maximum(np.abs(exact), smallest)))
    return float((np.abs(found - exact) / size).max())


def weights(shape):
    """Cotangents that halves hold, of both signs."""
    return (np.arange(int(np.prod(shape))) % 7 - 2.0).reshape(shape)


def of_torch(function, arrays, dtype):
    given = [x.detach().to(dtype).requires_grad_() for x in arrays]
    value = function(*given)
    value.backward(torch.tensor(weights(value.shape), dtype=dtype))
    return value.detach().double().numpy(), given[0].grad.double().numpy()


def of_ours(op, arrays, backend):
    shapes = {f"x{i}": list(x.shape) for i, x in enumerate(arrays)}
    made = ml.Model.create(y=op()(*map(ml.IOKey, shapes)))
    pm = ml.compile(made, backend, data_keys=set(shapes), shapes=shapes)
    data = {k: backend.array(x.float().numpy()) for k, x in zip(shapes, arrays, strict=True)}
    cotangent = backend.array(weights(pm.shapes["y"]))
    found = pm.evaluate({}, data, output_gradients={"y": cotangent}, wrt=["x0"])
    return backend.to_numpy(found.outputs["y"]), backend.to_numpy(found.gradients["x0"])


def errors(name, dtype, backend):
    """(value, gradient) of ours, and of PyTorch's."""
    op, arrays, function = ROWS[name]
    halves = [torch.tensor(x).to(getattr(torch, dtype)) for x in arrays]
    exact = of_torch(function, halves, torch.float64)
    both = of_ours(op, halves, backend), of_torch(function, halves, getattr(torch, dtype))
    return tuple(
        tuple(units(x, want, dtype) for x, want in zip(found, exact, strict=True)) for found in both
    )


def table(backends=("cpu", "numpy", "torch", "jax", "mlx")):
    lines = []
    for dtype in DIGITS:
        lines += [f"| {dtype}: value, gradient | {' | '.join(backends)} | PyTorch |"]
        lines += ["| --- " * (len(backends) + 2) + "|"]
        for name in ROWS:
            found = [errors(name, dtype, ml.get_backend(b, dtype=dtype)) for b in backends]
            cells = [f"{v:.2f}, {g:.2f}" for v, g in (*(ours for ours, _ in found), found[0][1])]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


@pytest.mark.parametrize("engine", ("cpu", "numpy", "torch", "jax", "mlx"))
@pytest.mark.parametrize("dtype", DIGITS)
@pytest.mark.parametrize("name", ROWS)
def test_halves_lose_no_more_than_with_torch(name, dtype, engine):
    ours, theirs = errors(name, dtype, ml.get_backend(engine, dtype=dtype))
    assert ours[0] <= theirs[0] + 1
    assert ours[1] <= theirs[1] + 1


def test_differences_are_measured():
    assert units(np.float16(1.0 + 2.0**-9), 1.0, "float16") == 2
    assert units(np.zeros(1), np.full(1, 2.0**-24), "float16") == 1
