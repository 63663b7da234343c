"""The machine and the libraries that the numbers are from."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PACKAGES = ("mithril", "numpy", "torch", "jax", "jaxlib")

TIMED = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef __AVX512F__
#define WIDTH 16
#else
#define WIDTH 8
#endif
typedef float vec __attribute__((vector_size(4 * WIDTH)));
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
"""
# Independent chains of fused multiply-adds on as wide vectors as the compiler's -march has. A run
# takes half a millisecond, less than a time slice; the upper quartile is neither slowed down by
# other processes nor a moment's clock rate.
PEAK_SOURCE = r"""
enum { CHAINS = 16, REPEATS = 200000, RUNS = 200 };
int main(int argc, char** argv) {
  vec acc[CHAINS], scale = (vec){0} + 0.999f + 1e-9f * argc, shift = (vec){0} + 0.001f;
  for (int c = 0; c < CHAINS; ++c) acc[c] = (vec){0} + (float)(c + argc);
  for (int run = 0; run < RUNS; ++run) {
    double start = now();
    for (int i = 0; i < REPEATS; ++i)
      for (int c = 0; c < CHAINS; ++c) acc[c] = acc[c] * scale + shift;
    printf("%.3f ", 2.0 * WIDTH * CHAINS * REPEATS / (now() - start) / 1e9);
  }
  float sum = 0;
  for (int c = 0; c < CHAINS; ++c) sum += acc[c][0];
  printf("%d %g\n", WIDTH, sum);
  return 0;
}
"""
# Sums of eight vectors at a time over 512 MB, with lines asked for a page ahead.
READ_SOURCE = r"""
enum { SUMS = 8, COUNT = (512 << 20) / sizeof(vec), AHEAD = 4096 / sizeof(vec) };
int main(void) {
  vec* x = aligned_alloc(2 << 20, COUNT * sizeof(vec));
  for (long i = 0; i < COUNT; ++i) x[i] = (vec){0} + (float)i;
  vec acc[SUMS];
  for (int j = 0; j < SUMS; ++j) acc[j] = (vec){0};
  double best = 1e9;
  for (int run = 0; run < 8; ++run) {
    double start = now();
    for (long i = 0; i < COUNT; i += SUMS)
      for (int j = 0; j < SUMS; ++j) {
        __builtin_prefetch(x + i + j + AHEAD);
        acc[j] += x[i + j];
      }
    double seconds = now() - start;
    if (seconds < best) best = seconds;
  }
  float sum = 0;
  for (int j = 0; j < SUMS; ++j) sum += acc[j][0];
  printf("%.3f %g\n", COUNT * sizeof(vec) / best / 1e9, sum);
  return 0;
}
"""


def describe(threads: int) -> None:
    """Prints processor, load, threads, versions and the measured peak."""
    cores = os.cpu_count() or 1
    load = os.getloadavg()[0]
    print(f"machine: {processor()}, {cores} cores, {platform.system()} {platform.machine()}")
    busy = "  *** the cores are busy: do not trust the times ***" if load > cores / 2 else ""
    print(f"load before the run: {load:.1f}{busy}")
    print(f"threads of every contender: {threads} (device: CPU)")
    print(
        "versions: Python "
        + platform.python_version()
        + "".join(f", {name} {version(name)}" for name in PACKAGES)
    )
    print(f"instruction set of the engine: {isa()}")
    print(f"measured FMA peak, one thread: {fma_peak()}")
    rate = gemm_rate()
    print(f"measured NumPy product 1024 x 1024, {threads} threads: {rate:.0f} Gflop/s in float32")


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"


def version(package: str) -> str:
    if package == "mithril":
        import mithril

        return mithril.__version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def isa() -> str:
    import mithril as ml

    return ml.CpuBackend().isa


def fma_peak() -> str:
    """The NumPy product below stands in where there is no compiler."""
    try:
        width, rate = measure_peak()
    except (subprocess.SubprocessError, OSError) as error:
        return f"not measured ({error}); see the product below"
    return f"{rate:.0f} Gflop/s in float32 (C, {width} lanes, 16 chains)"


def peak_rate() -> float | None:
    """Gflop/s of one thread in float32; None where there is no C compiler."""
    try:
        return measure_peak()[1]
    except (subprocess.SubprocessError, OSError):
        return None


@functools.cache
def measure_peak() -> tuple[int, float]:
    """Lanes of a vector, and Gflop/s of one thread, by a small C program."""
    *rates, width, _ = output_of_c(PEAK_SOURCE)
    return int(width), sorted(map(float, rates))[3 * len(rates) // 4]


def memory_rate() -> float | None:
    """Bytes a second that one thread reads of an array larger than caches."""
    try:
        return 1e9 * float(output_of_c(READ_SOURCE)[0])
    except (subprocess.SubprocessError, OSError):
        return None


def output_of_c(code: str) -> list[str]:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "rate.c"), Path(folder, "rate")
        source.write_text(TIMED + code)
        flags = ["-O3", "-march=native", "-ffp-contract=fast", "-funroll-loops"]
        subprocess.run([compiler, *flags, source, "-o", program], check=True, timeout=60)
        run = subprocess.run([program], check=True, timeout=60, capture_output=True, text=True)
    return run.stdout.split()


def gemm_rate(size: int = 1024) -> float:
    import numpy as np

    a = np.ones((size, size), np.float32)
    best = float("inf")
    for _ in range(6):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best / 1e9
