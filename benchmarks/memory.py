"""Row: memory that training steps take beside parameters and data, in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.harness import OURS, Settings, print_target

BATCH = 1024
STEPS = 5
CONTENDERS = {
    OURS: "mithril_step",
    "PyTorch eager": "torch_step",
    "JAX jit": "jax_step",
    "NumPy by hand": "numpy_step",
}


def status(field: str) -> float:
    """Megabytes of this process, as Linux counts them."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise OSError(f"no {field} in /proc/self/status")


def child(builder: str, threads: int) -> None:
    """Prints, in MB: resident before the first step, peak of the first, peak of later steps."""
    from benchmarks.models import digits

    task = digits.Task(BATCH)
    contender = getattr(digits, builder)(task, Settings(threads=threads))
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    contender.run()
    first = status("VmHWM")
    Path("/proc/self/clear_refs").write_text("5")
    for _ in range(STEPS):
        contender.run()
    print(json.dumps([before, first, status("VmHWM")]))


def measure(builder: str, threads: int) -> list[float] | str:
    command = [sys.executable, "-m", "benchmarks.memory", builder, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1]
    return json.loads(done.stdout.splitlines()[-1])


def run(settings: Settings) -> None:
    print(f"\nPeak memory of the digits training step, batch {BATCH}: resident MB, own process")
    print(f"  {'':<24}{'before':>10}{'first step':>12}{'later steps':>13}{'growth':>10}")
    growth: dict[str, float] = {}
    samples: dict[str, list[list[float]]] = {}
    for i in range(1 if settings.quick else 3):
        for name in CONTENDERS if i % 2 == 0 else reversed(CONTENDERS):
            found = measure(CONTENDERS[name], settings.threads)
            if isinstance(found, str):
                print(f"  {name:<24}not measured: {found}")
                continue
            samples.setdefault(name, []).append(found)
    for name, rows in samples.items():
        before, first, later = (statistics.median(column) for column in zip(*rows, strict=True))
        growth[name] = later - before
        print(f"  {name:<24}{before:>10.0f}{first:>12.0f}{later:>13.0f}{growth[name]:>10.0f}")
    ours, torch = growth.get(OURS), growth.get("PyTorch eager")
    ratio = ours / torch if ours is not None and torch else None
    print_target("growth against PyTorch's", ratio, 1, True, "x")


ROWS = {"memory": run}

if __name__ == "__main__":
    child(sys.argv[1], int(sys.argv[2]))
