"""Rows: a device of OpenCL, and one of CUDA, beside the engine.

A CPU that runs OpenCL (PoCL) has as many compute units as the engine has threads.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import launches, nets
from benchmarks.harness import (
    OURS,
    Contender,
    LeftOut,
    Settings,
    compare,
    print_comparison,
    print_ratio_targets,
    print_target,
)

ENGINE, BY_HAND = "mithril, engine", "launched by hand"
MOST_BEYOND = 10.0  # microseconds of a call beside what the driver takes
ELEMENTS, ROWS_AND_COLUMNS = 16 << 20, (12_800, 1024)  # 64 MB; 50 MB
SIXTEEN = np.linspace(-1, 1, 16, dtype=np.float32)


def backend(name: str, settings: Settings) -> Any:
    """A backend that has `settings.threads` of the CPU, where it runs there."""
    import mithril as ml

    try:
        if name != "cuda" and _is_cpu(name):
            return ml.get_backend(name, threads=settings.threads)
        return ml.get_backend(name)
    except (ml.errors.DeviceNotAvailable, ml.errors.ArgumentError) as error:
        raise LeftOut(str(error).splitlines()[0]) from None


def _is_cpu(name: str) -> bool:
    import mithril as ml

    return name == "cpu" or ml.get_backend(name).device_info["kind"] == "cpu"


def placed(pm: Any, arrays: dict) -> dict:
    """The arrays where the model runs: a device's own memory."""
    import mithril as ml

    return arrays if isinstance(pm.backend, ml.CpuBackend) else pm.backend.to_device(arrays)


def ready(pm: Any, arrays: dict) -> dict:
    return pm.backend.block_until_ready(arrays)


def forward(make: Callable[[], Any], shapes: dict, name: str, settings: Settings) -> Contender:
    import mithril as ml

    pm = ml.compile(make(), backend(name, settings), data_keys=set(shapes), shapes=shapes)
    random, params = np.random.default_rng(0), pm.get_parameters()
    data = {k: random.standard_normal(shape, dtype=np.float32) for k, shape in shapes.items()}
    return Contender(lambda: pm.evaluate(params, data), lambda: pm.evaluate(params, data))


def digits_step(name: str, settings: Settings) -> Contender:
    """A step of AdamW of a network for images of 8 by 8, batch 64."""
    import mithril as ml

    model = ml.Model()
    model |= ml.Linear(128)(input="x", output="h")
    model |= ml.Relu()(input="h", output="a")
    model |= ml.Linear(10)(input="a", output="y")
    model.expose_keys("y")
    train = ml.TrainModel(model)
    train.add_loss(ml.CrossEntropy(), input="y", target="target")
    optimizer = ml.optim.AdamW(lr=1e-3)
    pm = ml.compile(
        train, backend(name, settings), data_keys={"x", "target"}, shapes={"x": [64, 64]},
        optimizer=optimizer,
    )  # fmt: skip
    random = np.random.default_rng(0)
    data = {
        "x": random.standard_normal((64, 64), dtype=np.float32),
        "target": random.integers(0, 10, 64),
    }
    data, given = placed(pm, data), placed(pm, pm.get_parameters())
    kept = {"params": given, "state": optimizer.init(given)}

    def step() -> Any:
        kept["params"], kept["state"], _, outputs = pm.step(kept["params"], kept["state"], data)
        return ready(pm, outputs)

    return Contender(step, step)


def kernel_call(name: str, settings: Settings) -> Contender:
    """A call with one kernel, on an array that is where it runs."""
    import mithril as ml

    chosen = backend(name, settings)
    pm = ml.compile(ml.Relu(), chosen, data_keys={"input"}, shapes={"input": [16]})
    data = placed(pm, {"input": SIXTEEN})
    return Contender(lambda: ready(pm, pm.evaluate({}, data)), lambda: pm.evaluate({}, data))


def launch_by_hand(name: str, settings: Settings) -> Contender:
    return launches.relu(backend(name, settings), SIXTEEN)


def net(make: Callable[[], Any], name: str, settings: Settings) -> Contender:
    """A whole network on its parameters; both stay where it runs."""
    import mithril as ml

    of = make()
    shapes = of.shapes
    pm = ml.compile(
        of.model(),
        backend(name, settings),
        data_keys=set(shapes),
        shapes=shapes,
        inference=True,
    )
    params, data = placed(pm, of.params), placed(pm, of.data)
    return Contender(
        lambda: ready(pm, pm.evaluate(params, data)), lambda: pm.evaluate(params, data)
    )


def product() -> Any:
    import mithril as ml

    model = ml.Model()
    model |= ml.MatrixMultiply()(left="a", right="b", output="y")
    model.expose_keys("y")
    return model


def elementwise() -> Any:
    import mithril as ml

    model = ml.Model()
    model |= ml.Gelu()(input="x", output="h")
    model |= ml.Multiply()(left="h", right="x", output="y")
    model.expose_keys("y")
    return model


def alone(op: str) -> Any:
    import mithril as ml

    model = ml.Model()
    model |= getattr(ml, op)()(input="x", output="y")
    model.expose_keys("y")
    return model


def row(
    title: str, contender: Callable, target: float | None, device: str, settings: Settings
) -> None:
    """`contender`: by name of a backend; `target`: of the engine's time to that of the device."""
    factories = {ENGINE: partial(contender, "cpu"), OURS: partial(contender, device)}
    comparison = compare(factories, settings, tolerance=1e-4)
    print_comparison(f"{title}: on {backend(device, settings)!r}", comparison)
    if target is not None:
        print_ratio_targets(comparison, {ENGINE: target})


def call(device: str, settings: Settings) -> None:
    """What a call takes beside the driver's own functions for the same kernel."""
    comparison = compare(
        {
            ENGINE: partial(kernel_call, "cpu"),
            BY_HAND: partial(launch_by_hand, device),
            OURS: partial(kernel_call, device),
        },
        settings,
    )
    title = "A call with one kernel, 16 elements, and the wait for it"
    print_comparison(f"{title}: on {backend(device, settings)!r}", comparison)
    ours, by_hand = comparison.of(OURS), comparison.of(BY_HAND)
    beyond = 1e6 * (ours.median - by_hand.median) if ours and by_hand else None
    print_target(f"beyond {BY_HAND}", beyond, MOST_BEYOND, True, " us")


def of_model(make: Callable[[], Any], shapes: dict) -> Callable:
    return partial(forward, make, shapes)


# Title, contender, and the target on PoCL, which runs on the engine's own processor.
_WORK: dict[str, tuple[str, Callable, float | None]] = {
    "gemm": (
        "Product 1024 x 1024 x 1024",
        of_model(product, {"a": [1024, 1024], "b": [1024, 1024]}),
        0.6,
    ),
    "elementwise": ("gelu(x) * x, 16 M elements", of_model(elementwise, {"x": [ELEMENTS]}), 0.8),
    "softmax": (
        "Softmax, 50 MB",
        of_model(partial(alone, "Softmax"), {"x": [*ROWS_AND_COLUMNS]}),
        0.8,
    ),
    "layer-norm": (
        "Layer norm, 50 MB",
        of_model(partial(alone, "LayerNorm"), {"x": [*ROWS_AND_COLUMNS]}),
        0.8,
    ),
    "digits-step": ("Step of a digits network, AdamW", digits_step, 0.4),
    "resnet18": ("ResNet-18, [1, 3, 224, 224]", partial(net, partial(nets.Resnet, 18)), 0.4),
    "gpt2": (nets.Gpt2.title, partial(net, nets.Gpt2), 0.4),
}
ROWS = {
    f"{device}-{name}": partial(
        row, title, contender, target if device == "opencl" else None, device
    )
    for device in ("opencl", "cuda")
    for name, (title, contender, target) in _WORK.items()
} | {f"{device}-call": partial(call, device) for device in ("opencl", "cuda")}
