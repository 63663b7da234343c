"""Runs the rows: `python -m benchmarks [--only ROW] [--quick] [--threads N]`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings

TWICE = ("gemm-squares", "gemm-layers", "engine-resnet18", "engine-gpt2")  # also with two threads
LIMIT_SECONDS = 40 * 60
SLOW_UNTIL_SECONDS = 25 * 60  # after that, contenders that take long to prepare are left out


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only", metavar="ROW", action="append", help="that row, or the rows that start with this"
    )
    parser.add_argument("--quick", action="store_true", help="fewer samples, no torch.compile")
    parser.add_argument("--threads", type=int, default=1, help="of every contender (default 1)")
    parser.add_argument("--list", action="store_true", help="the rows' names")
    return parser.parse_args()


def limit_threads(count: int) -> None:
    """For libraries that read the environment when they are loaded."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(count)
    if count == 1:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def rows() -> dict:
    from benchmarks import (
        c_backend,
        compiling,
        composing,
        devices,
        digits,
        engine,
        exported,
        gemm,
        generated,
        ggml_graphs,
        gpu,
        linalg,
        low_precision,
        memory,
        mlp,
        neighbour,
        overhead,
        startup,
    )

    groups = (
        startup,
        compiling,
        mlp,
        gemm,
        linalg,
        engine,
        low_precision,
        neighbour,
        memory,
        composing,
        overhead,
        digits,
        generated,
        ggml_graphs,
        c_backend,
        devices,
        gpu,
        exported,
    )
    return {name: row for group in groups for name, row in group.ROWS.items()}


def main() -> int:
    options = arguments()
    limit_threads(options.threads)
    start = time.monotonic()
    known = rows()
    if options.list:
        print("\n".join(known))
        return 0
    wanted = [name for only in options.only or [""] for name in named(only, known)]
    chosen = {name: row for name, row in known.items() if name in wanted}
    if not chosen:
        print(f"no such row; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    status = run(chosen, options, start)
    if not options.only and options.threads == 1 and (os.cpu_count() or 1) > 1:
        status = status or run_with_two_threads(options.quick)
    return status


def named(only: str, known: dict) -> list[str]:
    return [only] if only in known else [name for name in known if name.startswith(only)]


def run_with_two_threads(quick: bool) -> int:
    """In a process of its own: libraries read how many when they are loaded."""
    print("\nwith two threads, in a process of its own\n", flush=True)
    command = [sys.executable, "-m", "benchmarks", "--threads", "2", *["--quick"] * quick]
    for name in TWICE:
        command += ["--only", name]
    return subprocess.run(command).returncode


def run(chosen: dict, options: argparse.Namespace, start: float) -> int:
    from benchmarks import machine
    from benchmarks.harness import LeftOut, Settings, print_head

    warnings.filterwarnings("ignore")
    machine.describe(options.threads)
    settings = Settings(
        seconds=0.3 if options.quick else 1.0,
        threads=options.threads,
        quick=options.quick,
        until=start + SLOW_UNTIL_SECONDS,
    )
    print_head()
    for name, row in chosen.items():
        if time.monotonic() - start > LIMIT_SECONDS:
            print(f"\n{name}: left out, the run has taken {LIMIT_SECONDS // 60} minutes")
            continue
        sys.stdout.flush()
        try:
            row(settings)
        except LeftOut as error:
            print(f"\n{name}: left out, {error}")
    print(f"\ntotal: {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
