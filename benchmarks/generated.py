"""Rows: what mithril generates for a framework against the same model written by hand in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import OURS, Contender, LeftOut, Settings, compare, print_comparison
from benchmarks.models import generated as models

HAND = "by hand"


def row(kind: str, framework: str, compiled: bool, step: bool, settings: Settings) -> None:
    """One model on one framework: forward or a step of gradient descent, eager or compiled."""
    job = models.MODELS[kind]()
    factories: dict[str, Callable[[Settings], Contender]] = {
        HAND: partial(by_hand, job, framework, compiled, step),
        OURS: partial(generated, job, framework, compiled, step),
    }
    comparison = compare(factories, settings, tolerance=1e-4)
    how = {True: "compiled", False: "eager"}[compiled]
    what = {True: "gradients and update", False: "forward"}[step]
    print_comparison(f"{job.title}, {framework} {how}: {what}", comparison)


def _check(framework: str, compiled: bool, settings: Settings) -> None:
    if framework == "torch":
        import torch

        torch.set_num_threads(settings.threads)
        if compiled:
            settings.check_time()
    if framework == "mlx":
        try:
            import mlx.core  # noqa: F401
        except ImportError as error:
            raise LeftOut(str(error)) from None


def by_hand(job: Any, framework: str, compiled: bool, step: bool, settings: Settings) -> Contender:
    _check(framework, compiled, settings)
    library = models.LIBRARIES[framework]()
    constants = {name: library.array(value) for name, value in job.constants.items()}

    def function(weights: Any, x: Any) -> Any:
        return job.by_hand(library, {**weights, **constants}, x)

    run = library.step(function) if step else library.forward(function)
    return _contender(library, job, library.compiled(run) if compiled else run, step)


def generated(
    job: Any, framework: str, compiled: bool, step: bool, settings: Settings
) -> Contender:
    import mithril as ml

    _check(framework, compiled, settings)
    library = models.LIBRARIES[framework]()
    threads = {"threads": settings.threads} if framework == "cpu" else {}
    backend = ml.get_backend(framework, **threads)
    keys = {job.data_key} if not step else {job.data_key, "target"}
    model = job.training_model() if step else job.model()
    shapes = {job.data_key: list(job.data.shape)}
    optimizer = ml.optim.SGD(lr=models.RATE)
    pm = ml.compile(
        model, backend, data_keys=keys, shapes=shapes, jit=compiled, optimizer=optimizer,
        mode="eval",
    )  # fmt: skip
    constants = {name: library.array(value) for name, value in job.constants.items()}
    data = {job.data_key: library.array(job.data)}

    def merged(weights: Any) -> Any:
        return {**weights, **constants} if constants else weights

    if not step:

        def run(weights: Any, _data: Any, _target: Any) -> Any:
            return pm.evaluate(merged(weights), data)[job.output]

        return _contender(library, job, run, step)
    data["target"] = library.array(job.target)

    state = optimizer.init(data)

    def train(weights: Any, _data: Any, _target: Any) -> Any:
        taken = pm.step(merged(weights), state, data)
        return taken.params, (taken.outputs["final_cost"], taken.outputs[job.output])

    return _contender(library, job, train, step)


def _contender(library: Any, job: Any, run: Callable[..., Any], step: bool) -> Contender:
    weights = {name: library.array(value) for name, value in job.weights.items()}
    data, target = library.array(job.data), library.array(job.target)

    def result() -> dict[str, np.ndarray]:
        found = library.wait(run(weights, data, target))
        if not step:
            return {"y": library.numpy(found)}
        updated, (cost, y) = found
        new = {name: library.numpy(value) for name, value in updated.items() if name in weights}
        return {**new, "cost": library.numpy(cost), "y": library.numpy(y)}

    return Contender(lambda: library.wait(run(weights, data, target)), result)


def _rows() -> dict[str, Callable[[Settings], None]]:
    out: dict[str, Callable[[Settings], None]] = {}
    for kind in models.MODELS:
        for framework in models.MODELS[kind].frameworks:
            for how, compiled in (("eager", False), ("jit", True)):
                if not compiled and framework in models.MODELS[kind].only_compiled:
                    continue
                for what, step in (("forward", False), ("step", True)):
                    name = f"generated-{kind}-{framework}-{how}-{what}"
                    out[name] = partial(row, kind, framework, compiled, step)
    return out


ROWS = _rows()
