"""Row: what a call costs when there is nothing to compute."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import OURS, Contender, Settings, compare, print_comparison, print_target

X = np.array([1.0, -2.0, 3.0, -4.0], np.float32)
BOUND = "mithril, all bound"


def compiled(settings: Settings, bind: bool) -> Any:
    import mithril as ml

    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.expose_keys("y")
    kind = {"constant_keys": {"x": X}} if bind else {"data_keys": {"x"}, "shapes": {"x": [4]}}
    return ml.compile(model, ml.CpuBackend(threads=settings.threads), inference=True, **kind)


def ours(settings: Settings) -> Contender:
    evaluate, params, data = compiled(settings, False).evaluate, {}, {"x": X}
    return Contender(lambda: evaluate(params, data), lambda: evaluate(params, data))


def bound(settings: Settings) -> Contender:
    """An empty program: its result was computed when it was compiled."""
    evaluate = compiled(settings, True).evaluate
    return Contender(lambda: evaluate(), lambda: evaluate())


def by_numpy(settings: Settings) -> Contender:
    return Contender(lambda: np.maximum(X, 0), lambda: {"y": np.maximum(X, 0)})


def by_torch(settings: Settings) -> Contender:
    import torch

    torch.set_num_threads(settings.threads)
    module, x = torch.nn.ReLU(), torch.from_numpy(X)

    def run():
        with torch.no_grad():
            return module(x)

    return Contender(run, lambda: {"y": run().numpy()})


def by_jax(settings: Settings) -> Contender:
    import jax

    relu, x = jax.jit(lambda x: jax.numpy.maximum(x, 0)), jax.device_put(X)
    return Contender(lambda: relu(x).block_until_ready(), lambda: {"y": np.asarray(relu(x))})


def run(settings: Settings) -> None:
    comparison = compare(
        {
            "NumPy": by_numpy,
            OURS: ours,
            BOUND: bound,
            "PyTorch eager": by_torch,
            "JAX jit": by_jax,
        },
        settings,
    )
    print_comparison("evaluate of relu on 4 numbers: the overhead of a call", comparison)
    for name, most in {OURS: 0.6, BOUND: 0.3}.items():
        timing = comparison.of(name)
        print_target(name, timing.median * 1e6 if timing else None, most, True, " us")


ROWS = {"overhead": run}
