"""Rows: float32 matrix products, as the share of the measured fused multiply-add peak."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.harness import OURS, Contender, Settings, Timing, compare, duration
from benchmarks.machine import peak_rate

TORCH, NUMPY, PACKED = "PyTorch", "NumPy", "packed once"
SHARE = 0.25  # of a row's seconds that one size gets
SQUARES = tuple((n, n, n) for n in (8, 16, 32, 64, 128, 256, 512, 1024, 2048))
# Rows, columns and depth: layers of transformers, then convolutions seen as products.
LAYERS = (
    (128, 2304, 768),
    (128, 3072, 768),
    (128, 768, 3072),
    (197, 3072, 768),
    (3136, 64, 64),
    (784, 512, 128),
    (49, 2048, 512),
)
TOLERANCE = 1e-5

Size = tuple[int, int, int]


def operands(size: Size) -> tuple[np.ndarray, np.ndarray]:
    m, n, k = size
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    return left.astype(np.float32), right.astype(np.float32)


def mithril_product(size: Size, settings: Settings, bind: bool = False) -> Contender:
    """`bind`: the right operand is a constant, as a weight that was bound."""
    import mithril as ml

    left, right = operands(size)
    model = ml.Model()
    model |= ml.MatrixMultiply()(left="left", right="right", output="output")
    model.expose_keys("output")
    data = {"left": left} if bind else {"left": left, "right": right}
    constants = {"right": right} if bind else {}
    shapes = {name: list(array.shape) for name, array in data.items()}
    backend = ml.CpuBackend(threads=settings.threads)
    pm = ml.compile(model, backend, data_keys=set(data), constant_keys=constants, shapes=shapes)
    evaluate = pm.evaluate
    return Contender(lambda: evaluate({}, data), lambda: {"y": evaluate({}, data)["output"]})


def numpy_product(size: Size, settings: Settings) -> Contender:
    left, right = operands(size)
    return Contender(lambda: left @ right, lambda: {"y": left @ right})


def torch_product(size: Size, settings: Settings) -> Contender:
    import torch

    torch.set_num_threads(settings.threads)
    left, right = map(torch.from_numpy, operands(size))
    return Contender(lambda: torch.mm(left, right), lambda: {"y": torch.mm(left, right).numpy()})


def products(title: str, sizes: tuple[Size, ...], settings: Settings) -> None:
    peak = peak_rate()
    total = f"{peak * settings.threads:.0f} Gflop/s" if peak else "the peak, which is not known"
    print(
        f"\n{title}: Gflop/s, median (best); % of {total}; ours packs both operands in every call"
    )
    heads = "".join(f"{name:>18}{'%':>4}" for name in BUILDERS)
    print(f"  {'rows, columns, depth':<22}{heads}{'time of ours':>14}")
    for size in sizes:
        print_product(size, replace(settings, seconds=settings.seconds * SHARE), peak)


def print_product(size: Size, settings: Settings, peak: float | None) -> None:
    factories = {name: partial(build, size) for name, build in BUILDERS.items()}
    comparison = compare(factories, settings, TOLERANCE)
    work = 2e-9 * size[0] * size[1] * size[2]
    cells = "".join(
        cell(comparison.of(name), work, peak and peak * settings.threads) for name in BUILDERS
    )
    ours = comparison.of(OURS)
    time = duration(ours.median) if ours else ""
    print(f"  {', '.join(map(str, size)):<22}{cells}{time:>14}")


def cell(timing: Timing | None, work: float, peak: float | None) -> str:
    if timing is None:
        return f"{'missing':>18}{'':>4}"
    if timing.difference is not None and timing.difference > TOLERANCE:
        return f"{'*** differs':>18}{'':>4}"
    rates = f"{work / timing.median:.1f} ({work / timing.minimum:.1f})"
    return f"{rates:>18}{f'{100 * work / timing.median / peak:.0f}' if peak else '':>4}"


# The first one is what the others are compared with.
BUILDERS: dict[str, Callable[[Size, Settings], Contender]] = {
    NUMPY: numpy_product,
    OURS: mithril_product,
    PACKED: partial(mithril_product, bind=True),
    TORCH: torch_product,
}
ROWS = {
    "gemm-squares": partial(products, "square products", SQUARES),
    "gemm-layers": partial(products, "products of layers", LAYERS),
}
