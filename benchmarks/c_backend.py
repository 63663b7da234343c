"""Rows: models as C beside the engine, and what compiling the C takes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import nets
from benchmarks.harness import (
    OURS,
    Factory,
    Settings,
    compare,
    duration,
    print_comparison,
    print_ratio_targets,
    print_target,
)
from benchmarks.models import digits, mlp

ENGINE, TORCH = "mithril, engine", "PyTorch eager"
SIZES, BATCH = (64, 128, 128, 10), 32
COLD_SECONDS, CACHED_SECONDS = 10.0, 0.02


def beside_the_engine(title: str, ours: Callable, target: float, settings: Settings) -> None:
    """`ours`: the model as a contender on a backend; `target`: of the engine's time to that of
    C."""
    factories: dict[str, Factory] = {ENGINE: ours, OURS: partial(ours, backend_name="c")}
    comparison = compare(factories, settings, tolerance=1e-4)
    print_comparison(f"{title}: on CBackend", comparison)
    print_ratio_targets(comparison, {ENGINE: target})


def of_mlp(settings: Settings) -> None:
    title = f"MLP {'-'.join(map(str, SIZES))}, batch {BATCH}"
    forward = partial(mlp.mithril_forward, mlp.Mlp(SIZES, BATCH))
    beside_the_engine(title, forward, 0.7, settings)


def of_net(make: Callable[[], nets.Net], target: float, settings: Settings) -> None:
    net = make()
    beside_the_engine(f"{net.title}: inference", net.ours, target, settings)


def digits_step(settings: Settings) -> None:
    task = digits.Task(64)
    step = partial(digits.mithril_step, task)
    factories = {
        ENGINE: step,
        OURS: partial(step, backend_name="c"),
        TORCH: partial(digits.torch_step, task),
    }
    comparison = compare(factories, settings, tolerance=1e-3)
    print_comparison("Digits network, batch 64: training step, Adam, on CBackend", comparison)
    print_ratio_targets(comparison, {TORCH: 1})


def compiling(settings: Settings) -> None:
    net = nets.Resnet(18)
    with tempfile.TemporaryDirectory() as folder:
        cold, cached = (object_seconds(net, Path(folder) / "c") for _ in range(2))
    print(f"\nResNet-18 from text to object: {duration(cold)}, from the cache {duration(cached)}")
    print_target("without the cache", cold, COLD_SECONDS, True, "s")
    print_target("from the cache", cached, CACHED_SECONDS, True, "s")


def object_seconds(net: nets.Net, folder: Path) -> float:
    """How long the first call waits for the object of its text."""
    import mithril as ml
    from mithril.backends.with_manualgrad.object_cache import ObjectCache

    backend, spent = ml.CBackend(), []
    backend._objects, build = ObjectCache(folder), backend._build

    def timed(text: str, name: str) -> str:
        start = time.perf_counter()
        path = build(text, name)
        spent.append(time.perf_counter() - start)
        return path

    backend._build = timed
    keys = set(net.data)
    pm = ml.compile(net.model(), backend, data_keys=keys, shapes=net.shapes, inference=True)
    pm.bind(net.params).evaluate({}, net.data)
    return sum(spent)


ROWS = {
    "c-mlp": of_mlp,
    "c-resnet18": partial(of_net, partial(nets.Resnet, 18), 0.5),
    "c-gpt2": partial(of_net, nets.Gpt2, 0.6),
    "c-digits-step": digits_step,
    "c-compiling": compiling,
}
