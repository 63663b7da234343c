"""One model on one backend, in a process of its own: prints a line of JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from mithril import models
from mithril.backends.registry import get_backend
from mithril.errors import DeviceNotAvailable
from mithril.execution.memory import process_memory
from mithril.physical.compile import compile

_IMAGE_NETS = ("resnet18", "resnet34", "resnet50", "vit_b_16", "vit_b_32")
# Name -> shape of one input.
MODELS: dict[str, tuple[int, ...]] = {"mlp": (784,), **dict.fromkeys(_IMAGE_NETS, (3, 224, 224))}


def made(name: str) -> Any:
    """The model of that name."""
    if name == "mlp":
        return models.MLP([models.Relu(), models.Buffer()], [256, 10])
    return getattr(models, name)(num_classes=1000)


def main(text: str) -> None:
    task = json.loads(text)
    try:
        found = measured(task) if "model" in task else _made_backend(task["backend"])
    except Exception as error:  # of a backend or its framework: a line of the report
        first = (str(error).splitlines() or [""])[0]
        found = {"error": f"{type(error).__name__}: {first}"}
    print(json.dumps(found))


def _made_backend(name: str) -> dict[str, Any]:
    """The device that a backend computes on, or why it is not here."""
    try:
        return {"device": get_backend(name).get_device()}
    except (ImportError, DeviceNotAvailable) as error:
        return {"error": (str(error).splitlines() or [""])[0], "absent": True}


def measured(task: dict[str, Any]) -> dict[str, Any]:
    """Images per second, iterations of training per second, and the most memory of the process."""
    import numpy as np

    backend = get_backend(task["backend"])
    shape = (task["batch"], *MODELS[task["model"]])
    model = made(task["model"])
    x = backend.array(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    runs = {"inference": _inference(model, backend, x, shape)}
    if task["train"]:
        runs["train"] = _training(model, backend, x, shape)
    out: dict[str, Any] = {"device": backend.get_device()}
    for kind, run in runs.items():
        seconds = _timed(run, backend, task)
        done = task["batch"] if kind == "inference" else 1
        out[kind] = _rates(seconds, done)
    peak = _peak_gigabytes()
    out["memory"] = {"median": peak, "low": peak, "high": peak}
    return out


def _inference(model: Any, backend: Any, x: Any, shape: Any) -> Callable[[], Any]:
    key = model.cin.key if model.cin.key in model.input_keys else "input"
    pm = compile(model, backend, data_keys={key}, shapes={key: shape}, inference=True)
    params, data = pm.get_parameters(), {key: x}
    return lambda: pm.evaluate(params, data)


def _training(model: Any, backend: Any, x: Any, shape: Any) -> Callable[[], Any]:
    """Gradients of the sum of the outputs, and a step of descent, as in the guide's loops."""
    key = model.cin.key if model.cin.key in model.input_keys else "input"
    pm = compile(model, backend, data_keys={key}, shapes={key: shape}, mode="train")
    (output,) = pm.output_keys
    params, data = pm.get_parameters(), {key: x}
    state = pm.initial_state() if pm.state_keys else None
    slope = backend.ones(tuple(pm.shapes[output] or ()))

    def step() -> Any:
        result = pm.evaluate(params, data, state=state, output_gradients={output: slope})
        for name, gradient in result.gradients.items():
            params[name] = params[name] - 1e-6 * gradient
        return params

    return step


def _timed(run: Callable[[], Any], backend: Any, task: dict[str, Any]) -> list[float]:
    """Seconds of each call, with what the framework computes later; fewer calls than were asked for
    where their time is over, one at least."""
    end = time.perf_counter() + task["seconds"]
    for _ in range(task["warm_up"]):
        backend.block_until_ready(run())
        if time.perf_counter() > end:
            break
    seconds: list[float] = []
    while len(seconds) < task["repeats"] and not (seconds and time.perf_counter() > end):
        start = time.perf_counter()
        backend.block_until_ready(run())
        seconds.append(time.perf_counter() - start)
    return seconds


def _rates(seconds: list[float], done: int) -> dict[str, float]:
    """Median, slowest and quickest, in `done` things per second."""
    return {
        "median": done / statistics.median(seconds),
        "low": done / max(seconds),
        "high": done / min(seconds),
        "repeats": len(seconds),
    }


def _peak_gigabytes() -> float:
    return process_memory()[1] / 1e9


if __name__ == "__main__":
    main(sys.argv[1])
