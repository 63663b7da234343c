"""Rows: what a fresh process pays before its first result."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.harness import OURS, Settings, duration, print_target

# Framework -> (an import, what else leads to the first result of a linear layer).
STARTS = {
    OURS: (
        "import mithril as ml",
        """
model = ml.Model()
model |= ml.Linear(4)(input="x", output="y")
pm = ml.compile(model, ml.CpuBackend(), data_keys={"x"}, shapes={"x": [2, 3]})
pm.evaluate(pm.get_parameters(), {"x": [[1.0, 2.0, 3.0]] * 2})
""",
    ),
    "NumPy": ("import numpy as np", "np.ones((2, 3)) @ np.ones((3, 4)) + np.ones(4)"),
    "PyTorch": ("import torch", "torch.nn.Linear(3, 4)(torch.ones(2, 3))"),
    "JAX": (
        "import jax",
        "jax.jit(lambda x, w, b: x @ w + b)(*map(jax.numpy.ones, ((2, 3), (3, 4), 4)))"
        ".block_until_ready()",
    ),
}
TEMPLATE = """
import time
start = time.perf_counter()
{first}
first = time.perf_counter()
{then}
print(first - start, time.perf_counter() - start)
"""


def seconds(framework: str) -> tuple[float, float] | None:
    """(import, import and first result) in a fresh process; None where it is not installed."""
    first, then = STARTS[framework]
    code = TEMPLATE.format(first=first, then=then)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    if done.returncode:
        error = done.stderr.strip().splitlines()[-1]
        if framework != OURS and error.startswith(("ImportError", "ModuleNotFoundError")):
            return None
        raise RuntimeError(done.stderr)
    imported, result = done.stdout.split()
    return float(imported), float(result)


def run(settings: Settings) -> None:
    print("\nImport, and import up to the first result of a linear layer, in fresh processes")
    rounds = 3 if settings.quick else 7
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in STARTS}
    for i in range(rounds + 1):
        for name in STARTS if i % 2 == 0 else reversed(STARTS):
            sample = seconds(name)
            if sample is not None and i:  # the first round fills the file cache
                samples[name].append(sample)
    ours = statistics.median(imported for imported, _ in samples[OURS])
    print(f"  {'':<24}{'import':>12}{'minimum':>12}{'/ ours':>10}{'first result':>16}")
    for name, pairs in samples.items():
        if not pairs:
            print(f"  {name:<24}not installed")
            continue
        imported = [first for first, _ in pairs]
        result = statistics.median(last for _, last in pairs)
        median = statistics.median(imported)
        print(
            f"  {name:<24}{duration(median):>12}{duration(min(imported)):>12}"
            f"{median / ours:>9.1f}x{duration(result):>16}"
        )
    print_target("import mithril", ours * 1e3, 60, True, " ms")


ROWS = {"import": run}
