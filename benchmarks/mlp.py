"""Rows: a small and a middling multilayer perceptron, forward and training steps."""

from __future__ import annotations

from functools import partial

from benchmarks.harness import OURS, Settings, compare, print_comparison, print_ratio_targets
from benchmarks.models import mlp as models

BATCH = 32
TORCH, JAX, ORT = "PyTorch eager", "JAX jit", "ONNX Runtime, bound"


def forward(sizes: tuple[int, ...], settings: Settings) -> None:
    mlp = models.Mlp(sizes, BATCH)
    comparison = compare(
        {
            "NumPy by hand": partial(models.numpy_forward, mlp),
            OURS: partial(models.mithril_forward, mlp),
            TORCH: partial(models.torch_forward, mlp),
            "torch.compile": partial(models.torch_forward, mlp, compiled=True),
            JAX: partial(models.jax_forward, mlp),
            ORT: partial(models.ort_forward, mlp),
        },
        settings,
        tolerance=1e-5,
    )
    print_comparison(f"MLP {'-'.join(map(str, sizes))}, batch {BATCH}: forward", comparison)
    if sizes == SMALL:
        print_ratio_targets(comparison, {ORT: 2, TORCH: 10})


def step(sizes: tuple[int, ...], optimizer: str, settings: Settings) -> None:
    mlp = models.Mlp(sizes, BATCH)
    fused = {}
    if optimizer == "adam":
        fused["PyTorch, fused Adam"] = partial(models.torch_step, mlp, optimizer, fused=True)
    comparison = compare(
        {
            "NumPy by hand": partial(models.numpy_step, mlp, optimizer),
            OURS: partial(models.mithril_step, mlp, optimizer),
            TORCH: partial(models.torch_step, mlp, optimizer),
            **fused,
            "torch.compile": partial(models.torch_step, mlp, optimizer, compiled=True),
            JAX: partial(models.jax_step, mlp, optimizer),
        },
        settings,
        tolerance=1e-4,
    )
    shape = "-".join(map(str, sizes))
    name = {"sgd": "SGD", "adam": "Adam"}[optimizer]
    print_comparison(
        f"MLP {shape}, batch {BATCH}: training step, {name}"
        f" (compared: parameters after {models.STEPS_COMPARED} steps)",
        comparison,
    )
    print_ratio_targets(comparison, STEP_TARGETS.get((sizes, optimizer), {}))


SMALL, MIDDLING = (10, 32, 32, 1), (64, 128, 128, 10)
STEP_TARGETS = {
    (SMALL, "sgd"): {TORCH: 8},
    (SMALL, "adam"): {JAX: 4, TORCH: 25},
    (MIDDLING, "adam"): {JAX: 1.8, TORCH: 6},
}
ROWS = {
    "mlp-small-forward": partial(forward, SMALL),
    "mlp-small-sgd": partial(step, SMALL, "sgd"),
    "mlp-small-adam": partial(step, SMALL, "adam"),
    "mlp-middling-forward": partial(forward, MIDDLING),
    "mlp-middling-sgd": partial(step, MIDDLING, "sgd"),
    "mlp-middling-adam": partial(step, MIDDLING, "adam"),
}
