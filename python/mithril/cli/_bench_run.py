"""One model on one backend, in a process of its own: prints a line of JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

# Name -> shape of one image (or text), and its model.
MODELS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "mlp": ((784,), lambda models: models.MLP([models.Relu(), models.Buffer()], [256, 10])),
    **{
        name: ((3, 224, 224), lambda models, name=name: getattr(models, name)(num_classes=1000))
        for name in ("resnet18", "resnet34", "resnet50", "vit_b_16", "vit_b_32")
    },
}


def main(text: str) -> None:
    try:
        found = measured(json.loads(text))
    except Exception as error:  # of a backend or its framework: a line of the report
        first = (str(error).splitlines() or [""])[0]
        found = {"error": f"{type(error).__name__}: {first}"}
    print(json.dumps(found))


def measured(task: dict[str, Any]) -> dict[str, Any]:
    """Images per second, iterations of training per second, and the most memory of the process."""
    import numpy as np

    import mithril as ml

    backend = ml.get_backend(task["backend"])
    size, make = MODELS[task["model"]]
    shape = (task["batch"], *size)
    model = make(ml.models)
    x = backend.array(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    runs = {"inference": _inference(ml, model, backend, x, shape)}
    if task["train"]:
        runs["train"] = _training(ml, model, backend, x, shape)
    out: dict[str, Any] = {"device": backend.get_device()}
    for kind, run in runs.items():
        seconds = _timed(lambda run=run: backend.block_until_ready(run()), task)
        done = task["batch"] if kind == "inference" else 1
        out[kind] = _rates(seconds, done)
    peak = _peak_gigabytes()
    out["memory"] = {"median": peak, "low": peak, "high": peak}
    return out


def _inference(ml: Any, model: Any, backend: Any, x: Any, shape: Any) -> Callable[[], Any]:
    key = model.cin.key if model.cin.key in model.input_keys else "input"
    pm = ml.compile(model, backend, data_keys={key}, shapes={key: shape}, inference=True)
    params, data = pm.get_parameters(), {key: x}
    return lambda: pm.evaluate(params, data)


def _training(ml: Any, model: Any, backend: Any, x: Any, shape: Any) -> Callable[[], Any]:
    """Gradients of the sum of the outputs, and a step of descent, as in the guide's loops."""
    key = model.cin.key if model.cin.key in model.input_keys else "input"
    pm = ml.compile(model, backend, data_keys={key}, shapes={key: shape}, mode="train")
    (output,) = pm.output_keys
    params, data = pm.get_parameters(), {key: x}
    state = pm.initial_state() if pm.state_keys else None
    slope = backend.ones(tuple(pm.shapes[output]))

    def step() -> Any:
        result = pm.evaluate(params, data, state=state, output_gradients={output: slope})
        for name, gradient in result.gradients.items():
            params[name] = params[name] - 1e-6 * gradient
        return params

    return step


def _timed(run: Callable[[], Any], task: dict[str, Any]) -> list[float]:
    for _ in range(task["warm_up"]):
        run()
    seconds = []
    for _ in range(task["repeats"]):
        start = time.perf_counter()
        run()
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
    from mithril.backends.memory import process_memory

    return process_memory()[1] / 1e9


if __name__ == "__main__":
    main(sys.argv[1])
