"""Rows: the CPU engine beside its peers on whole models, and on single ops over rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks import apart, nets
from benchmarks.generated import by_hand, generated
from benchmarks.harness import (
    OURS,
    Contender,
    Factory,
    Settings,
    compare,
    print_comparison,
    print_ratio_targets,
    print_target,
)

TORCH, JAX, ORT, OPENVINO = "PyTorch eager", "JAX jit", "ONNX Runtime", "OpenVINO"
FREEZING = "torch.compile, freezing"
TUNED = "PyTorch, malloc tuned"
ALONE = "PyTorch, its own process"
LARGE = {TUNED: 1.0, ALONE: 3.0}  # beyond all caches
UNBOUND = "mithril, weights given"
STREAMING = "mithril, streaming"


# --- inference ------------------------------------------------------------------------------------


def inference(net: nets.Net, target: float, settings: Settings, **more: Factory) -> None:
    """`target`: of ONNX Runtime's time to ours; `more` by names of contenders."""
    comparison = compare(
        {
            TORCH: net.torch,
            ORT: net.ort,
            OPENVINO: net.openvino,
            **more,
            OURS: net.ours,
            UNBOUND: partial(net.ours, bind=False),
        },
        settings,
        tolerance=1e-4,
    )
    print_comparison(f"{net.title}: inference", comparison)
    nets.print_shares(comparison, net.torch, settings)
    print_ratio_targets(comparison, {ORT: target, OPENVINO: 1.0})


def resnet(depth: int, settings: Settings) -> None:
    net = nets.Resnet(depth)
    target = 1.4 if depth == 18 else 1.15
    inference(net, target, settings, **{JAX: partial(by_hand, net.job, "jax", True, False)})


def vit(settings: Settings) -> None:
    inference(nets.Vit(), 1.15, settings)


def gpt2(settings: Settings) -> None:
    net = nets.Gpt2()
    inference(net, 1.1, settings, **{FREEZING: partial(net.torch, compiled=True)})


def gpt2_decoding(settings: Settings) -> None:
    net = nets.Gpt2Decoding()
    comparison = compare(
        {TORCH: net.torch, OURS: net.ours, UNBOUND: partial(net.ours, bind=False)},
        settings,
        tolerance=1e-3,
    )
    print_comparison(f"{net.title}, float32", comparison)
    nets.print_tokens(comparison)
    print_ratio_targets(comparison, {TORCH: 1.0})


# --- training steps -------------------------------------------------------------------------------


def resnet18_step(batch: int, settings: Settings) -> None:
    if batch > 8:
        settings.check_time()
    job = nets.Resnet(18, batch).job
    by_torch = partial(by_hand, job, "torch", False, True)
    with apart.pytorch("resnet18", batch) as by_tuned:
        comparison = compare(
            {
                TORCH: by_torch,
                TUNED: by_tuned,
                JAX: partial(jax_step, job),
                OURS: partial(generated, job, "cpu", False, True),
            },
            settings,
            tolerance=1e-3,
        )
    print_comparison(f"{job.title}: gradients and update", comparison)
    nets.print_shares(comparison, by_torch, settings)
    print_ratio_targets(comparison, {TUNED: 1.5})


def jax_step(job: Any, settings: Settings) -> Contender:
    settings.check_time()  # seconds a step
    return by_hand(job, "jax", True, True, settings)


def gpt2_step(settings: Settings) -> None:
    settings.check_time()
    net = nets.Gpt2()
    with apart.pytorch("gpt2") as by_tuned:
        comparison = compare(
            {
                TORCH: net.torch_step,
                TUNED: by_tuned,
                JAX: net.jax_step,
                OURS: net.our_step,
                STREAMING: partial(net.our_step, stream_gradients=True),
            },
            settings,
            tolerance=1e-3,
        )
    print_comparison(f"GPT-2 124M, [1, {nets.TOKENS}]: a step of AdamW", comparison)
    nets.print_shares(comparison, net.torch_step, settings)
    print_target("against PyTorch, fused, malloc tuned", comparison.ratio(TUNED), 1.2, False, "x")


# --- ops over rows --------------------------------------------------------------------------------


def rows_of(
    title: str, shape: tuple[int, int], kind: str, targets: dict[str, float], settings: Settings
) -> None:
    x = random_rows(shape)
    task = ("rows", kind, *shape)
    with apart.pytorch(*task) as by_tuned, apart.pytorch(*task, malloc={}) as alone:
        comparison = compare(
            {
                TORCH: partial(torch_rows, kind, x),
                **({ALONE: alone} if ALONE in targets else {}),
                TUNED: by_tuned,
                JAX: partial(jax_rows, kind, x),
                OURS: partial(our_rows, kind, x),
            },
            settings,
            tolerance=1e-5,
        )
    print_comparison(f"{title} over {list(shape)}", comparison)
    rate = comparison.of(OURS)
    if rate is not None:
        print(f"  {OURS} reads and writes {2e-9 * x.nbytes / rate.median:.1f} GB/s")
    print_ratio_targets(comparison, targets)


def random_rows(shape: tuple[int, int]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def our_rows(kind: str, x: np.ndarray, settings: Settings) -> Contender:
    import mithril as ml

    ops: dict[str, Callable[[], Any]] = {
        "softmax": lambda: ml.Softmax(axis=-1),
        "layer_norm": lambda: ml.LayerNorm(use_scale=False, use_bias=False, eps=1e-5),
        "gelu": lambda: ml.Gelu(),
        "gelu_tanh": lambda: ml.Gelu(approximate=True),
    }
    model = ml.Model()
    model |= ops[kind]()(input="x", output="y")
    model.expose_keys("y")
    backend = ml.CpuBackend(threads=settings.threads)
    pm = ml.compile(model, backend, data_keys={"x"}, shapes={"x": list(x.shape)}, inference=True)
    evaluate, data = pm.evaluate, {"x": x}
    return Contender(lambda: evaluate({}, data), lambda: evaluate({}, data))


def torch_rows(kind: str, x: np.ndarray, settings: Settings) -> Contender:
    import torch

    torch.set_num_threads(settings.threads)
    functions = {
        "softmax": lambda x: torch.softmax(x, -1),
        "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
        "gelu": torch.nn.functional.gelu,
        "gelu_tanh": partial(torch.nn.functional.gelu, approximate="tanh"),
    }
    array, function = torch.from_numpy(x), functions[kind]

    def run() -> Any:
        with torch.inference_mode():
            return function(array)

    return Contender(run, lambda: {"y": run().numpy()})


def jax_rows(kind: str, x: np.ndarray, settings: Settings) -> Contender:
    import jax

    def norm(x: Any) -> Any:
        return jax.nn.standardize(x, axis=-1, epsilon=1e-5)

    functions = {
        "softmax": jax.nn.softmax,
        "layer_norm": norm,
        "gelu": partial(jax.nn.gelu, approximate=False),
        "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    }
    array, function = jax.device_put(x), jax.jit(functions[kind])
    return Contender(
        lambda: function(array).block_until_ready(), lambda: {"y": np.asarray(function(array))}
    )


ROWS: dict[str, Callable[[Settings], None]] = {
    "engine-resnet18": partial(resnet, 18),
    "engine-resnet50": partial(resnet, 50),
    "engine-vit": vit,
    "engine-gpt2": gpt2,
    "engine-resnet18-step": partial(resnet18_step, 8),
    "engine-resnet18-step-b32": partial(resnet18_step, 32),
    "engine-gpt2-step": gpt2_step,
    "engine-gpt2-decode": gpt2_decoding,
    "engine-softmax": partial(rows_of, "softmax", (1536, 128), "softmax", {TORCH: 1.2}),
    "engine-layer-norm": partial(rows_of, "layer norm", (128, 768), "layer_norm", {TORCH: 1.2}),
    "engine-gelu": partial(rows_of, "GELU", (1024, 3072), "gelu", {TORCH: 1.2}),
    "engine-gelu-tanh": partial(rows_of, "GELU by tanh", (1024, 3072), "gelu_tanh", {JAX: 1.2}),
    "engine-softmax-large": partial(rows_of, "softmax", (16384, 768), "softmax", LARGE),
    "engine-layer-norm-large": partial(rows_of, "layer norm", (16384, 768), "layer_norm", LARGE),
}
