"""Rows: the most memory that training steps take, each contender in a process of its own.

What counts is resident memory above that of the interpreter with the library imported: parameters,
state of the optimizer, data, and what steps take beside them.
"""

from __future__ import annotations

import gc
import importlib
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.harness import OURS, Contender, Settings, print_target

STEPS = 3
TORCH, JAX, NUMPY = "PyTorch eager", "JAX jit", "NumPy by hand"
LIBRARIES = {OURS: "mithril", TORCH: "torch", JAX: "jax", NUMPY: "numpy"}


# --- what is done in the processes ----------------------------------------------------------------


def digits(name: str, settings: Settings) -> Contender:
    from benchmarks.models import digits as models

    builders = {
        OURS: models.mithril_step,
        TORCH: models.torch_step,
        JAX: models.jax_step,
        NUMPY: models.numpy_step,
    }
    return builders[name](models.Task(1024), settings)


def resnet18(name: str, settings: Settings) -> Contender:
    from benchmarks.generated import by_hand, generated
    from benchmarks.models.generated import Resnet

    job = Resnet(18, (32, 3, 224, 224))
    builders = {
        OURS: partial(generated, job, "cpu", False, True),
        TORCH: partial(by_hand, job, "torch", False, True),
        JAX: partial(by_hand, job, "jax", True, True),
    }
    return builders[name](settings)


def gpt2(name: str, settings: Settings) -> Contender:
    from benchmarks.nets import Gpt2

    net = Gpt2()
    builders = {
        OURS: partial(net.our_step, stream_gradients=True),
        TORCH: net.torch_step,
        JAX: net.jax_step,
    }
    return builders[name](settings)


@dataclass
class Task:
    """Steps whose memory is measured, and by whom."""

    title: str
    build: Callable[[str, Settings], Contender]
    names: tuple[str, ...]
    target: float = 1
    slow: bool = False


TASKS = {
    "digits": Task("digits network, batch 1024", digits, (OURS, TORCH, JAX, NUMPY)),
    "resnet18": Task("ResNet-18, batch 32", resnet18, (OURS, TORCH, JAX), 0.6, slow=True),
    "gpt2": Task(
        "GPT-2 124M, AdamW, streaming gradients", gpt2, (OURS, TORCH, JAX), 0.75, slow=True
    ),
}


def status(field: str) -> float:
    """Megabytes of this process, as Linux counts them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise OSError(f"no {field} in /proc/self/status")


def child(task: str, name: str, threads: int) -> None:
    """Prints, in MB: resident with the library, before the first step, peak of the first, peak of
    later ones."""
    importlib.import_module(LIBRARIES[name])
    imported = status("VmRSS")
    contender = TASKS[task].build(name, Settings(threads=threads))
    gc.collect()  # what only building needed
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    contender.run()
    first = status("VmHWM")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(STEPS):
        contender.run()
    print(json.dumps([imported, before, first, status("VmHWM")]))


# --- the rows -------------------------------------------------------------------------------------


def measure(task: str, name: str, threads: int) -> list[float] | str:
    command = [sys.executable, "-m", "benchmarks.memory", task, name, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"ended by {done.returncode}"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


def run(task: str, settings: Settings) -> None:
    told = TASKS[task]
    if told.slow:
        settings.check_time()
    print(f"\nPeak memory of a training step, {told.title}: resident MB, own process")
    columns = ("imported", "before", "first step", "later steps", "above import")
    print(f"  {'':<24}{''.join(f'{column:>14}' for column in columns)}")
    samples: dict[str, list[list[float]]] = {}
    for i in range(1 if settings.quick or told.slow else 3):
        for name in told.names if i % 2 == 0 else reversed(told.names):
            found = measure(task, name, settings.threads)
            if isinstance(found, str):
                print(f"  {name:<24}not measured: {found}")
                continue
            samples.setdefault(name, []).append(found)
    above: dict[str, float] = {}
    for name, rows in samples.items():
        cells = [statistics.median(column) for column in zip(*rows, strict=True)]
        above[name] = max(cells[2:]) - cells[0]
        print(f"  {name:<24}{''.join(f'{cell:>14.0f}' for cell in (*cells, above[name]))}")
    others = [value for name, value in above.items() if name in (TORCH, JAX)]
    ratio = above[OURS] / min(others) if OURS in above and others else None
    print_target(
        "above import, against the better of PyTorch and JAX", ratio, told.target, True, "x"
    )


ROWS = {f"memory-{task}": partial(run, task) for task in TASKS}

if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
