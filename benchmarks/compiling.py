"""Row: from nothing to a compiled model of the size of GPT-2 (124 million parameters), or to its
training step."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.harness import Settings, difference, duration, print_target
from benchmarks.models import gpt2 as models

FULL = (models.LAYERS, models.WIDTH, models.HEADS, models.VOCABULARY, models.PLACES)
NARROW = (models.LAYERS, 48, models.HEADS, 101, 32)
SMALL = (2, 32, 4, 101, 16)  # outputs are compared on this
TOKENS = 16
Times = dict[str, list[float]]


def timed(times: Times, what: str, run: Callable):
    start = time.perf_counter()
    out = run()
    times.setdefault(what, []).append(time.perf_counter() - start)
    return out


def compile_mithril(model, shape: list):
    import mithril as ml

    return ml.compile(
        model,
        ml.CpuBackend(),
        data_keys={"tokens", "places"},
        shapes={"tokens": shape, "places": shape},
        inference=True,
    )


def once_mithril(times: Times) -> None:
    model = timed(times, "build and infer", lambda: models.gpt2(*FULL))
    timed(times, "compile", lambda: compile_mithril(model, [None, None]))
    timed(times, "training step: build, infer and compile", compile_step)


def compile_step() -> None:
    import mithril as ml

    keys = ("tokens", "places", "target")
    train, optimizer = models.training(TOKENS, *FULL), ml.optim.AdamW()
    ml.compile(
        train,
        ml.CpuBackend(),
        data_keys=set(keys),
        shapes={key: [TOKENS] if key == "target" else [1, TOKENS] for key in keys},
        optimizer=optimizer,
    )


def plan(times: Times) -> None:
    """Phase 2 (fusion, kernels, memory for one batch shape): the first call less a warm one.

    The model is narrow, so that the arithmetic is small; its graph has as many nodes.
    """
    pm = compile_mithril(models.gpt2(*NARROW), [None, None])
    params = dict(zip(pm.param_keys, models.weights(pm.param_keys, pm.shapes), strict=True))
    data = {"tokens": np.zeros((1, TOKENS), int), "places": np.arange(TOKENS)[None]}
    calls: Times = {}
    for _ in range(3):
        timed(calls, "call", lambda: pm.evaluate(params, data))
    first, *warm = calls["call"]
    times.setdefault("plan for a batch shape (first call, narrow)", []).append(first - min(warm))


def once_torch(times: Times) -> None:
    import torch

    def build():
        with torch.device("meta"):  # no memory, no random numbers
            return models.torch_model(*FULL)

    timed(times, "PyTorch: modules (on the meta device)", build)


def export_torch(times: Times) -> None:
    import torch

    with torch.device("meta"):
        module, tokens = models.torch_model(*FULL), torch.zeros(1, TOKENS, dtype=torch.int64)
    export = partial(torch.export.export, module, (tokens,))
    timed(times, "PyTorch: torch.export (graph only)", export)


def once_jax(times: Times, compile_it: bool) -> None:
    import jax

    layers, width, heads, vocabulary, places = FULL
    rows = [(width,), (width,), (3 * width, width), (3 * width,), (width, width), (width,)]
    rows += [(width,), (width,), (4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    shapes = [(vocabulary, width), (places, width), *rows * layers, (width,), (width,)]
    params = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    tokens = jax.ShapeDtypeStruct((1, TOKENS), np.int32)
    forward = models.jax_forward(layers, heads)
    lowered = timed(times, "JAX: trace and lower", lambda: jax.jit(forward).lower(params, tokens))
    if compile_it:
        timed(times, "JAX: compile (XLA)", lowered.compile)


def check() -> None:
    """Compares logits on a small model of the same shape with equal weights."""
    pm = compile_mithril(models.gpt2(*SMALL), [None, None])
    values = models.weights(pm.param_keys, pm.shapes)
    tokens = np.random.default_rng(1).integers(0, SMALL[3], (2, 7))
    data = {"tokens": tokens, "places": np.arange(7)[None]}
    ours = pm.evaluate(dict(zip(pm.param_keys, values, strict=True)), data)
    for name, other in (("PyTorch", by_torch), ("JAX", by_jax)):
        try:
            far = difference(ours, {"logits": other(values, tokens)})
        except ImportError as error:
            print(f"  {name}: not installed: {error}")
            continue
        verdict = "agrees" if far <= 1e-4 else "*** OUTPUTS DIFFER ***"
        print(f"  logits of a small model of this shape against {name}: {verdict} ({far:.0e})")


def by_torch(values: list[np.ndarray], tokens: np.ndarray) -> np.ndarray:
    import torch

    module = models.torch_model(*SMALL)
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), values, strict=True):
            parameter.copy_(torch.from_numpy(value))
        return module(torch.from_numpy(tokens)).numpy()


def by_jax(values: list[np.ndarray], tokens: np.ndarray) -> np.ndarray:
    return np.asarray(models.jax_forward(SMALL[0], SMALL[2])(values, tokens))


def run(settings: Settings) -> None:
    print(
        f"\nA model of the size of GPT-2 ({models.LAYERS} layers, {models.WIDTH} wide, vocabulary"
        f" {models.VOCABULARY}): from nothing to a program"
    )
    check()
    times: Times = {}
    for i in range(3 if settings.quick else 9):
        once_mithril(times)
        plan(times)
        attempt(once_torch, times)
        if i == 0:
            attempt(export_torch, times)
        if i < 2:
            attempt(lambda times: once_jax(times, compile_it=not settings.quick), times)
    for what, seconds in times.items():
        if not seconds:
            print(f"  {what}")
            continue
        print(
            f"  {what:<44}{duration(float(np.median(seconds))):>12}{duration(min(seconds)):>12}"
            f"   of {len(seconds)}"
        )
    ours = [b + c for b, c in zip(times["build and infer"], times["compile"], strict=True)]
    steps = times["training step: build, infer and compile"]
    print_target("build + inference + compile", float(np.median(ours)) * 1e3, 40, True, " ms")
    print_target("of a training step", float(np.median(steps)) * 1e3, 80, True, " ms")


def attempt(once: Callable[[Times], None], times: Times) -> None:
    try:
        once(times)
    except ImportError as error:
        times.setdefault(f"not installed: {error}", [])


ROWS = {"gpt2-compile": run}
