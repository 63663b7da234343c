"""Rows: networks on a GPU of NVIDIA, beside PyTorch on the same one; float32, no TF32.

They need the driver and NVRTC; PyTorch is left out where it has no CUDA. `--quick` runs them on
networks that are small enough for the emulator of the tests.
"""

from __future__ import annotations

import copy
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import nets
from benchmarks.devices import backend, placed, ready
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
from benchmarks.models import gpt2
from benchmarks.models import mlp as mlps

EAGER, COMPILED = "PyTorch eager", "torch.compile"
TOLERANCE = 1e-3  # of float32 in networks of a hundred layers, in other orders of summation
MOST_COLD, MOST_CACHED = 0.5, 20.0  # seconds; milliseconds
SMALL_GPT2 = (1, 32, 4, 50, nets.TOKENS)  # layers, width, heads, vocabulary, places


class Gpt2(nets.Gpt2):
    """GPT-2, or one of other sizes."""

    def __init__(self, sizes: tuple[int, ...] | None = None) -> None:
        if sizes is None:
            super().__init__()
            return
        self.sizes = sizes
        self.title = f"GPT-2 of {sizes[0]} layer, width {sizes[1]}, [1, {nets.TOKENS}]"
        tokens = np.random.default_rng(1).integers(0, sizes[3], (1, nets.TOKENS))
        self.data = {"tokens": tokens, "places": np.arange(nets.TOKENS)[None]}
        self.target = np.roll(tokens[0], -1)
        self.draw_params()


def gpt2_of(settings: Settings) -> Gpt2:
    return Gpt2(SMALL_GPT2 if settings.quick else None)


def resnet_of(batch: int, settings: Settings) -> nets.Resnet:
    return nets.Resnet(18, min(batch, 2), 32) if settings.quick else nets.Resnet(50, batch)


def mlp_of(settings: Settings) -> mlps.Mlp:
    return mlps.Mlp((64, 128, 128, 10), 32)


# --- PyTorch --------------------------------------------------------------------------------------


def torch_device() -> str:
    """Where PyTorch runs, in float32 as it is."""
    import torch

    if not torch.cuda.is_available():
        raise LeftOut(f"PyTorch {torch.__version__} has no CUDA here")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return "cuda"


def waited_for(result: Any) -> Any:
    import torch

    if result.is_cuda:
        torch.cuda.synchronize()
    return result


def torch_forward(net: nets.Net, compiled: bool, settings: Settings) -> Contender:
    device = torch_device()
    if compiled:
        settings.check_time()
    import torch

    module = copy.deepcopy(net.module).to(device)
    module = torch.compile(module) if compiled else module
    array = torch.from_numpy(net.input).to(device)

    def run() -> Any:
        with torch.no_grad():
            return waited_for(module(array))

    return Contender(run, lambda: {"y": run().cpu().numpy()})


def torch_step(
    module: Callable[[], Any],
    cost_of: Callable[[Any, Any, Any], Any],
    data: tuple[np.ndarray, np.ndarray],
    adam: dict[str, Any],
    compiled: bool,
    settings: Settings,
) -> Contender:
    """A step of AdamW, or of Adam where nothing decays; gives the costs of two of them."""
    device = torch_device()
    if compiled:
        settings.check_time()
    import torch

    trained = module().to(device)
    optimizer = torch.optim.AdamW(trained.parameters(), fused=True, **adam)
    x, target = (torch.from_numpy(array).to(device) for array in data)
    loss = partial(cost_of, trained)
    loss = torch.compile(loss) if compiled else loss

    def run() -> Any:
        optimizer.zero_grad()
        cost = loss(x, target)
        cost.backward()
        optimizer.step()
        return waited_for(cost.detach())

    return Contender(run, lambda: {"costs": np.array([float(run()), float(run())])})


# --- ours -----------------------------------------------------------------------------------------


def our_forward(net: nets.Net, settings: Settings) -> Contender:
    import mithril as ml

    shapes = net.shapes
    pm = ml.compile(
        net.model(),
        backend("cuda", settings),
        data_keys=set(shapes),
        shapes=shapes,
        inference=True,
    )
    params, data = placed(pm, net.params), placed(pm, net.data)
    return Contender(
        lambda: ready(pm, pm.evaluate(params, data)),
        lambda: {"y": pm.evaluate(params, data)[net.output]},
    )


def our_step(
    model: Callable[[], Any],
    weights: Callable[[Any], dict[str, np.ndarray]],
    arrays: dict[str, np.ndarray],
    optimizer: Callable[[], Any],
    settings: Settings,
) -> Contender:
    """`weights`: by names of parameters; gives the costs of two steps."""
    import mithril as ml

    chosen = optimizer()
    shapes = {name: list(value.shape) for name, value in arrays.items()}
    pm = ml.compile(
        model(),
        backend("cuda", settings),
        data_keys=set(shapes),
        shapes=shapes,
        optimizer=chosen,
    )
    data, params = placed(pm, arrays), placed(pm, weights(pm.param_keys))
    now = [params, chosen.init(params)]

    def run() -> Any:
        now[0], now[1], _, outputs = pm.step(now[0], now[1], data)
        return ready(pm, outputs)["final_cost"]

    return Contender(run, lambda: {"costs": np.array([float(run()), float(run())])})


# --- rows -----------------------------------------------------------------------------------------


def forward(make: Callable[[Settings], nets.Net], target: float, settings: Settings) -> None:
    device = backend("cuda", settings)
    net = make(settings)
    comparison = compare(
        {
            EAGER: partial(torch_forward, net, False),
            COMPILED: partial(torch_forward, net, True),
            OURS: partial(our_forward, net),
        },
        settings,
        TOLERANCE,
    )
    print_comparison(f"{net.title}: forward on {device!r}", comparison)
    print_ratio_targets(comparison, dict.fromkeys((EAGER, COMPILED), target))


def gpt2_step(settings: Settings) -> None:
    import mithril as ml

    device, net = backend("cuda", settings), gpt2_of(settings)

    def cost_of(module: Any, tokens: Any, target: Any) -> Any:
        import torch

        return torch.nn.functional.cross_entropy(module(tokens)[0], target)

    by_torch = partial(
        torch_step,
        lambda: copy.deepcopy(net.module).train(),
        cost_of,
        (net.input, net.target),
        nets.ADAMW,
    )
    comparison = compare(
        {
            EAGER: partial(by_torch, False),
            COMPILED: partial(by_torch, True),
            OURS: partial(
                our_step,
                lambda: gpt2.training(nets.TOKENS, *net.sizes),
                lambda keys: dict(zip(keys, net.params.values(), strict=True)),
                {**net.data, "target": net.target},
                lambda: ml.optim.AdamW(**nets.ADAMW),
            ),
        },
        settings,
        TOLERANCE,
    )
    print_comparison(f"{net.title}: a step of AdamW on {device!r}", comparison)
    print_ratio_targets(comparison, dict.fromkeys((EAGER, COMPILED), 0.8))


def mlp_step(settings: Settings) -> None:
    import mithril as ml

    device, mlp = backend("cuda", settings), mlp_of(settings)
    rate = mlps.LEARNING_RATE["adam"]

    def trained() -> Any:
        train = ml.TrainModel(mlps.model(mlp))
        train.add_loss(ml.SquaredError(), [ml.Mean()], input="output", target="target")
        return train

    def cost_of(module: Any, x: Any, target: Any) -> Any:
        import torch

        return torch.nn.functional.mse_loss(module(x), target)

    adam = {"lr": rate, "weight_decay": 0.0}
    by_torch = partial(
        torch_step, lambda: mlps.torch_module(mlp, settings), cost_of, (mlp.x, mlp.target), adam
    )
    comparison = compare(
        {
            EAGER: partial(by_torch, False),
            COMPILED: partial(by_torch, True),
            OURS: partial(
                our_step,
                trained,
                lambda keys: {key: mlp.weights[key] for key in keys},
                {"x": mlp.x, "target": mlp.target},
                lambda: ml.optim.Adam(lr=rate),
            ),
        },
        settings,
        TOLERANCE,
    )
    shape = "-".join(map(str, mlp.sizes))
    print_comparison(f"MLP {shape}, batch {mlp.batch}: a step of Adam on {device!r}", comparison)
    print_ratio_targets(comparison, dict.fromkeys((EAGER, COMPILED), 4.0))


# --- the compiler ---------------------------------------------------------------------------------


@contextmanager
def timed_builds(device: Any, folder: Path) -> Iterator[list[float]]:
    """Lets a backend keep what it compiles in a folder; seconds of each text that it is asked
    for."""
    from mithril.backends.with_manualgrad.object_cache import ObjectCache

    build, seconds = device._build, []

    def timed(text: str) -> bytes:
        start = time.perf_counter()
        try:
            return build(text)
        finally:
            seconds.append(time.perf_counter() - start)

    device._build, device._objects = timed, ObjectCache(folder, ".cubin")
    yield seconds
    del device._build


def seconds_to_compile(net: nets.Net, folder: Path, settings: Settings) -> float:
    """What NVRTC, or the cache on disk, takes of the first call of a model."""
    import mithril as ml

    device, shapes = backend("cuda", settings), net.shapes
    with timed_builds(device, folder) as seconds:
        pm = ml.compile(net.model(), device, data_keys=set(shapes), shapes=shapes, inference=True)
        pm.evaluate(net.params, net.data)
    return sum(seconds)


def compiler(settings: Settings) -> None:
    device = backend("cuda", settings)
    print(f"\nNVRTC, the texts of one model, on {device!r}")
    print(f"  products: {device.product_library}; convolutions: {device.convolution_library}")
    for net in (gpt2_of(settings), resnet_of(1, settings)):
        with tempfile.TemporaryDirectory() as folder:
            cold = seconds_to_compile(net, Path(folder) / "cuda", settings)
            again = [seconds_to_compile(net, Path(folder) / "cuda", settings) for _ in range(3)]
        print(f"  {net.title}")
        print_target("compiled", cold, MOST_COLD, True, " s")
        print_target("from the cache", 1e3 * statistics.median(again), MOST_CACHED, True, " ms")


ROWS: dict[str, Callable[[Settings], None]] = {
    "gpu-gpt2": partial(forward, gpt2_of, 1.0),
    "gpu-resnet50": partial(forward, partial(resnet_of, 1), 0.8),
    "gpu-resnet50-b32": partial(forward, partial(resnet_of, 32), 0.8),
    "gpu-mlp-step": mlp_step,
    "gpu-gpt2-step": gpt2_step,
    "gpu-nvrtc": compiler,
}
