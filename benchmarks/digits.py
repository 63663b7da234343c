"""Row: a training step of the example on handwritten digits."""

from __future__ import annotations

from functools import partial

from benchmarks.harness import OURS, Settings, compare, print_comparison, print_target
from benchmarks.models import digits as models

BATCH = 64
TORCH = "PyTorch eager"


def run(settings: Settings) -> None:
    task = models.Task(BATCH)
    comparison = compare(
        {
            "NumPy by hand": partial(models.numpy_step, task),
            OURS: partial(models.mithril_step, task),
            TORCH: partial(models.torch_step, task),
            "torch.compile": partial(models.torch_step, task, compiled=True),
            "JAX jit": partial(models.jax_step, task),
        },
        settings,
        tolerance=1e-3,  # Adam divides gradients that are rounding noise by themselves
    )
    print_comparison(
        f"Digits network (2 convolutions, batch norm), batch {BATCH}: training step, Adam"
        f" (compared: logits of step {models.STEPS_COMPARED})",
        comparison,
    )
    print_target("step against PyTorch eager, same threads", comparison.ratio(TORCH), 1, False, "x")


ROWS = {"digits-step": run}
