"""Rows: two threads beside a process that keeps one of the two cores busy, against a quiet machine.

Threads that wait for each other at the end of every op lose the most: one of them shares its core.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from benchmarks import nets
from benchmarks.harness import (
    OURS,
    Comparison,
    LeftOut,
    Settings,
    agreement,
    compare,
    duration,
    print_target,
)

TORCH = "PyTorch eager"
THREADS = 2


@contextlib.contextmanager
def neighbour() -> Iterator[None]:
    """A process that computes without end on the last of the cores that this one may use."""
    core = max(os.sched_getaffinity(0))
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield
        finally:
            process.kill()


def beside(net_of: Callable[[], nets.Net], settings: Settings) -> None:
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < THREADS:
        raise LeftOut("it needs two cores, and Linux to keep the neighbour on one")
    net, settings = net_of(), replace(settings, threads=THREADS)
    factories = {TORCH: net.torch, OURS: net.ours}
    quiet = compare(factories, settings)
    with neighbour():
        busy = compare(factories, settings)
    print(f"\n{net.title}: {THREADS} threads, quiet and beside a busy process on one core")
    print(f"  {'contender':<24}{'quiet':>12}{'busy':>12}{'busy / quiet':>14}   (medians)")
    ratios = {name: print_both(name, quiet, busy) for name in (TORCH, OURS)}
    print_target("times as long beside it", ratios[OURS], 2, True, "x")
    print_target("against PyTorch beside it", busy.ratio(TORCH), 1, False, "x")


def print_both(name: str, quiet: Comparison, busy: Comparison) -> float | None:
    alone, disturbed = quiet.of(name), busy.of(name)
    if alone is None or disturbed is None:
        print(f"  {name:<24}{quiet.missing.get(name, '')}")
        return None
    ratio = disturbed.median / alone.median
    times = f"{duration(alone.median):>12}{duration(disturbed.median):>12}{ratio:>13.2f}x"
    print(f"  {name:<24}{times}   {agreement(alone, quiet.tolerance)}")
    return ratio


ROWS = {
    "neighbour-resnet18": partial(beside, partial(nets.Resnet, 18)),
    "neighbour-gpt2": partial(beside, nets.Gpt2),
}
