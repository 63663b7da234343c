"""Row: what a call costs when there is nothing to compute."""

from __future__ import annotations

import numpy as np

from benchmarks.harness import OURS, Contender, Settings, compare, print_comparison, print_target

X = np.array([1.0, -2.0, 3.0, -4.0], np.float32)


def ours(settings: Settings) -> Contender:
    import mithril as ml

    model = ml.Model()
    model |= ml.Relu()(input="x", output="y")
    model.expose_keys("y")
    backend = ml.CpuBackend(threads=settings.threads)
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": [4]})
    evaluate, params, data = pm.evaluate, {}, {"x": X}
    return Contender(lambda: evaluate(params, data), lambda: evaluate(params, data))


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
        {"NumPy": by_numpy, OURS: ours, "PyTorch eager": by_torch, "JAX jit": by_jax}, settings
    )
    print_comparison("evaluate of relu on 4 numbers: the overhead of a call", comparison)
    mithril = comparison.of(OURS)
    print_target("overhead", mithril.median * 1e6 if mithril else None, 2, True, " us")


ROWS = {"overhead": run}
