"""How far results and gradients in float16 and bfloat16 are from the exact ones, beside PyTorch's:
`python -m benchmarks.half_errors` prints the table of docs/low_precision.md.

Exact is PyTorch in float64 on the same rounded inputs. An error is the largest one of a tensor, in
units in the last place of its largest exact element: half a unit is what rounding once costs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import mithril as ml
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

HALVES = ("float16", "bfloat16")
DIGITS = {"float16": 10, "bfloat16": 7}  # behind the first
LEAST = {"float16": -14, "bfloat16": -126}  # exponent of the least normal number
LONG, WIDE = (2, 70_000), (64, 256)  # more elements than float16 counts; a usual layer


class Row(NamedTuple):
    """A layer, PyTorch's function, and shapes of their operands."""

    layer: Callable[[], Any]
    function: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    scale: float = 1.0  # of the normal numbers
    positive: bool = False  # all operands
    shares: bool = False  # operands are probabilities


def _rms(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=1e-6)


def rows() -> dict[str, Row]:
    plain = {"use_scale": False, "use_bias": False}
    heads = ((1, 4, 64, 64),) * 3
    image = (2, 8, 64, 128)
    return {
        "Sum": Row(lambda: ml.Sum(axis=-1), lambda x: x.sum(-1), (LONG,)),
        "Mean": Row(lambda: ml.Mean(axis=-1), lambda x: x.mean(-1), (LONG,)),
        "Variance": Row(
            lambda: ml.Variance(axis=-1), lambda x: x.var(-1, correction=0), (LONG,), 4.0
        ),
        "Prod": Row(lambda: ml.Prod(axis=-1), lambda x: x.prod(-1), ((64, 16),)),
        "CumSum": Row(lambda: ml.CumSum(axis=-1), lambda x: x.cumsum(-1), ((2, 4096),)),
        "LogSumExp": Row(lambda: ml.LogSumExp(axis=-1), lambda x: x.logsumexp(-1), (LONG,)),
        "Softmax": Row(lambda: ml.Softmax(), lambda x: x.softmax(-1), (LONG,)),
        "Softmin": Row(lambda: ml.Softmin(), lambda x: F.softmin(x, -1), (WIDE,)),
        "LogSoftmax": Row(lambda: ml.LogSoftmax(), lambda x: x.log_softmax(-1), (LONG,)),
        "LayerNorm": Row(
            lambda: ml.LayerNorm(**plain, eps=1e-5),
            lambda x: F.layer_norm(x, x.shape[-1:]),
            (LONG,),
        ),
        "LayerNorm of 300": Row(
            lambda: ml.LayerNorm(**plain, eps=1e-5),
            lambda x: F.layer_norm(x, x.shape[-1:]),
            (WIDE,),
            300.0,
        ),
        "RMSNorm": Row(lambda: ml.RMSNorm(use_scale=False, eps=1e-6), _rms, (LONG,)),
        "GroupNorm": Row(
            lambda: ml.GroupNorm(4, **plain, eps=1e-5), lambda x: F.group_norm(x, 4), (image,)
        ),
        "InstanceNorm": Row(
            lambda: ml.InstanceNorm(**plain, eps=1e-5), lambda x: F.instance_norm(x), (image,)
        ),
        "AvgPool2D": Row(lambda: ml.AvgPool2D(32), lambda x: F.avg_pool2d(x, 32), (image,)),
        "MatMul": Row(lambda: ml.MatMul(), torch.matmul, ((32, 512), (512, 32))),
        "Attention": Row(lambda: ml.Attention(), F.scaled_dot_product_attention, heads),
        "Attention, causal": Row(
            lambda: ml.Attention(is_causal=True),
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            heads,
        ),
        "CosineSimilarity": Row(
            lambda: ml.CosineSimilarity(axis=-1),
            lambda a, b: F.cosine_similarity(a, b, -1),
            (WIDE, WIDE),
            100.0,
        ),
        "SquaredError, mean": Row(
            lambda: ml.SquaredError(reduction="mean"), F.mse_loss, (LONG, LONG)
        ),
        "AbsoluteError, mean": Row(
            lambda: ml.AbsoluteError(reduction="mean"), F.l1_loss, (LONG, LONG)
        ),
        "HuberLoss, mean": Row(lambda: ml.HuberLoss(reduction="mean"), F.huber_loss, (LONG, LONG)),
        "SmoothL1Loss, mean": Row(
            lambda: ml.SmoothL1Loss(reduction="mean"), F.smooth_l1_loss, (LONG, LONG)
        ),
        "BinaryCrossEntropy": Row(
            lambda: ml.BinaryCrossEntropy(input_type="probs"),
            lambda x, t: F.binary_cross_entropy(x, t, None, None, None, "none"),
            (WIDE, WIDE),
            shares=True,
        ),
        "PoissonNLLLoss, mean": Row(
            lambda: ml.PoissonNLLLoss(reduction="mean"),
            lambda x, t: F.poisson_nll_loss(x, t, reduction="mean"),
            (LONG, LONG),
        ),
        "GaussianNLLLoss, mean": Row(
            lambda: ml.GaussianNLLLoss(reduction="mean"),
            lambda x, t, v: F.gaussian_nll_loss(x, t, v, reduction="mean"),
            (LONG, LONG, LONG),
            positive=True,
        ),
        "Gelu": Row(lambda: ml.Gelu(), F.gelu, (WIDE,), 3.0),
        "Gelu, tanh": Row(
            lambda: ml.Gelu(approximate=True), lambda x: F.gelu(x, approximate="tanh"), (WIDE,), 3.0
        ),
        "SiLU": Row(lambda: ml.SiLU(), F.silu, (WIDE,), 3.0),
        "Mish": Row(lambda: ml.Mish(), F.mish, (WIDE,), 3.0),
        "Softplus": Row(lambda: ml.Softplus(), F.softplus, (WIDE,), 3.0),
        "LogSigmoid": Row(lambda: ml.LogSigmoid(), F.logsigmoid, (WIDE,), 3.0),
        "Sigmoid": Row(lambda: ml.Sigmoid(), torch.sigmoid, (WIDE,), 3.0),
        "Tanh": Row(lambda: ml.Tanh(), torch.tanh, (WIDE,), 3.0),
        "Elu": Row(lambda: ml.Elu(), F.elu, (WIDE,), 3.0),
        "Selu": Row(lambda: ml.Selu(), F.selu, (WIDE,), 3.0),
        "Celu": Row(lambda: ml.Celu(), F.celu, (WIDE,), 3.0),
        "Sinh": Row(lambda: ml.Sinh(), torch.sinh, (WIDE,), 2.0),
        "Asinh": Row(lambda: ml.Asinh(), torch.asinh, (WIDE,), 1000.0),
        "Expm1": Row(lambda: ml.Expm1(), torch.expm1, (WIDE,), 2.0),
    }


def drawn(row: Row, dtype: str) -> list[torch.Tensor]:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape) * row.scale for shape in row.shapes]
    if row.shares:
        arrays = [1.0 / (1.0 + np.exp(-a)) for a in arrays]
    if row.positive:
        arrays = [np.abs(a) + 0.1 for a in arrays]
    return [torch.tensor(a).to(getattr(torch, dtype)) for a in arrays]


def of_torch(row: Row, given: list[torch.Tensor], cotangent: Any = None) -> list[np.ndarray]:
    """The result and the gradients of operands."""
    given = [x.detach().clone().requires_grad_() for x in given]
    y = row.function(*given)
    y.backward(torch.ones_like(y) if cotangent is None else cotangent.to(y.dtype))
    return [y.detach().double().numpy()] + [x.grad.double().numpy() for x in given]


def of_backend(
    name: str, row: Row, given: list[torch.Tensor], cotangent: torch.Tensor
) -> list[np.ndarray]:
    backend = ml.get_backend(name, dtype=str(given[0].dtype).removeprefix("torch."))
    names = [f"x{i}" for i in range(len(given))]
    keys = [ml.IOKey(n, shape=list(x.shape)) for n, x in zip(names, given, strict=True)]
    pm = ml.compile(ml.Model.create(y=row.layer()(*keys)), backend, data_keys=set(names))
    data = {n: x.float().numpy() for n, x in zip(names, given, strict=True)}
    ones = {"y": cotangent.float().numpy()}
    data, ones = ({k: backend.array(v) for k, v in d.items()} for d in (data, ones))
    found = pm.evaluate({}, data, output_gradients=ones, wrt=names)
    arrays = [found.outputs["y"], *(found.gradients[name] for name in names)]
    return [np.asarray(backend.to_numpy(a)).astype(np.float64) for a in arrays]


def units(got: np.ndarray, exact: np.ndarray, dtype: str) -> float:
    """The largest error, in units in the last place of the largest exact element."""
    largest = np.abs(exact).max()
    exponent = max(np.floor(np.log2(largest)), LEAST[dtype])
    off = np.abs(got - exact).max() / 2.0 ** (exponent - DIGITS[dtype])
    return float("inf") if np.isnan(off) else float(off)


def errors(row: Row, dtype: str, backend: str = "cpu") -> tuple[float, float, float, float]:
    """Ours, on a backend, and PyTorch's of the result, ours and PyTorch's of the worst gradient."""
    given = drawn(row, dtype)
    shape = row.function(*given).shape
    cotangent = torch.tensor(np.random.default_rng(1).standard_normal(shape))
    cotangent = cotangent.to(given[0].dtype)
    exact = of_torch(row, [x.double() for x in given], cotangent.double())
    found = [of_backend(backend, row, given, cotangent), of_torch(row, given, cotangent)]
    ours, theirs = ([units(g, e, dtype) for g, e in zip(f, exact, strict=True)] for f in found)
    return ours[0], theirs[0], max(ours[1:]), max(theirs[1:])


def table() -> list[str]:
    """The rows of the table, as Markdown."""
    head = "".join(f" | {d}: ours | PyTorch | gradients: ours | PyTorch" for d in HALVES)
    out = [f"| composite{head} |", "| ---" + " | ---" * 8 + " |"]
    for name, row in rows().items():
        cells = [f"{e:.2g}" for dtype in HALVES for e in errors(row, dtype)]
        out.append(f"| {name} | {' | '.join(cells)} |")
    return out


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print("\n".join(table()))
