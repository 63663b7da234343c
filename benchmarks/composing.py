"""Rows: composing and inferring models of growing size, and a deep nest of two streams."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import Settings, duration, print_target

PAIRS = (25, 100, 200, 2_000, 20_000)
ORIGINAL = {25: 0.5, 100: 4.6, 200: 10.8}  # seconds; the original library, on another machine
WIDTH = 64
FEWEST_SAMPLES = 3


def stack(pairs: int):
    """Linear and Relu in turns; every extend infers at once."""
    import mithril as ml

    model = ml.Model()
    for _ in range(pairs):
        model += ml.Linear(WIDTH)
        model += ml.Relu()
    return model


def seconds(pairs: int, quick: bool) -> float:
    """The best of some samples: the work is the same every time."""
    found = []
    end = time.perf_counter() + (0.2 if quick else 1.0)
    while len(found) < FEWEST_SAMPLES or time.perf_counter() < end:
        gc.collect()
        start = time.perf_counter()
        model = stack(pairs)
        found.append(time.perf_counter() - start)
        check(model, pairs)
    return min(found)


def check(model, pairs: int) -> None:
    """A shape stated at one end arrives at the other."""
    model.set_shapes({model.cin: [8, 3]})
    last = list(model.shapes.values())[-1]
    if last != [8, WIDTH] or len(model.dag) != 2 * pairs:
        raise AssertionError("the model of pairs is not what it should be")


def child(pairs: int) -> None:
    """Prints the bytes for each pair that a model adds to a process."""
    from benchmarks.memory import status

    stack(10)
    before = status("VmRSS")
    model = stack(pairs)
    print(json.dumps((status("VmRSS") - before) * 1024 * 1024 / pairs))
    del model


def bytes_per_pair(pairs: int) -> float:
    command = [sys.executable, "-m", "benchmarks.composing", str(pairs)]
    root = Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return json.loads(done.stdout)


def run_pairs(settings: Settings) -> None:
    print("\nComposing pairs of Linear and Relu, inference after every step")
    print(
        f"  {'pairs':>8}{'time':>12}{'per pair':>12}{'memory/pair':>14}{'the original':>14}{'':>9}"
    )
    times = {}
    for pairs in PAIRS:
        times[pairs] = seconds(pairs, settings.quick)
        memory = f"{bytes_per_pair(pairs) / 1024:.1f} KiB" if pairs >= 200 else "-"
        original = ORIGINAL.get(pairs)
        shown = f"{duration(original):>14}{original / times[pairs]:>8.0f}x" if original else ""
        each = duration(times[pairs] / pairs)
        print(f"  {pairs:>8}{duration(times[pairs]):>12}{each:>12}{memory:>14}{shown}")
    print_target("200 pairs", times[200] * 1e3, 15, True, " ms")
    growth = (times[20_000] / 20_000) / (times[200] / 200)
    print_target("time per pair at 20,000 over that at 200", growth, 1.5, True, "x")


def run_nest(settings: Settings) -> None:
    from benchmarks.models import flux

    print(f"\nA nest like FLUX.1: {flux.BLOCKS} blocks of two streams")
    built, inferred = [], []
    for _ in range(3 if settings.quick else 7):
        gc.collect()
        start = time.perf_counter()
        model = flux.flux()
        built.append(time.perf_counter() - start)
        start = time.perf_counter()
        tokens = {key: ["b", key[0], flux.WIDTH] for key in ("img_0", "txt_0")}
        model.set_shapes(tokens | {"vector": ["b", flux.WIDTH]})
        inferred.append(time.perf_counter() - start)
    out = model.shapes[f"img_{flux.BLOCKS}"]
    print(f"  {'build':<24}{duration(min(built)):>12}")
    print(f"  {'shapes of its inputs':<24}{duration(min(inferred)):>12}   image tokens: {out}")
    print_target("build", min(built), 1, True, " s")


ROWS = {"pairs": run_pairs, "nest": run_nest}

if __name__ == "__main__":
    child(int(sys.argv[1]))
