"""Rows: factors, solutions and values of float32 matrices against SciPy's LAPACK."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.harness import OURS, Contender, Settings, compare, duration

SCIPY = "SciPy"
SIZES = (64, 512, 2048)
SHARE = 0.3  # of a row's seconds that one operation of one size gets
TOLERANCE = 2e-3  # of values; vectors and factors are compared by the tests
TARGET = 1 / 1.2

Arrays = Sequence[np.ndarray]


def general(n: int) -> Arrays:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, n)).astype(np.float32)]


def definite(n: int) -> Arrays:
    (a,) = general(n)
    return [a @ a.T / n + np.eye(n, dtype=np.float32)]


def two(n: int) -> Arrays:
    return [general(n)[0] + 2 * np.sqrt(n) * np.eye(n, dtype=np.float32), general(n)[0]]


def triangular(n: int) -> Arrays:
    return [np.tril(definite(n)[0]), general(n)[0]]


# Operation -> mithril's layer, arrays, SciPy's function, which of its results is compared.
OPERATIONS: dict[str, tuple[str, Callable[[int], Arrays], str, dict, int]] = {
    "Cholesky": ("Cholesky", definite, "cholesky", {"lower": True}, 0),
    "triangular solve": ("SolveTriangular", triangular, "solve_triangular", {"lower": True}, 0),
    "solve": ("Solve", two, "solve", {}, 0),
    "QR": ("QR", general, "qr", {"mode": "economic"}, 1),
    "eigenvalues": ("Eigh", definite, "eigh", {"driver": "evd"}, 0),
    "SVD": ("SVD", general, "svd", {"full_matrices": False}, 1),
}


def compared(operation: str, results: tuple) -> dict[str, np.ndarray]:
    """The result whose bits have no sign of choice: R of a QR by magnitudes."""
    result = results[OPERATIONS[operation][4]]
    return {"y": np.abs(result) if operation == "QR" else result}


def mithril_operation(operation: str, n: int, settings: Settings) -> Contender:
    import mithril as ml

    layer_name, make, *_ = OPERATIONS[operation]
    layer = getattr(ml, layer_name)()
    data = dict(zip(layer.input_keys, make(n), strict=True))
    model = ml.Model()
    keys = (*layer.input_keys, *layer.output_keys)
    model |= layer.connect(**{key: key for key in keys})
    backend = ml.CpuBackend(threads=settings.threads)
    pm = ml.compile(model, backend, data_keys=set(data), inference=True)
    return Contender(
        lambda: pm.evaluate({}, data),
        lambda: compared(operation, tuple(pm.evaluate({}, data).values())),
    )


def scipy_operation(operation: str, n: int, settings: Settings) -> Contender:
    import scipy.linalg

    _, make, name, options, _ = OPERATIONS[operation]
    run = partial(getattr(scipy.linalg, name), *make(n), check_finite=False, **options)

    def results() -> tuple:
        made = run()
        return made if isinstance(made, tuple) else (made,)

    return Contender(run, lambda: compared(operation, results()))


BUILDERS = {OURS: mithril_operation, SCIPY: scipy_operation}


def linalg(settings: Settings) -> None:
    print("\nlinear algebra, float32, n x n: medians; speed is SciPy's time over ours")
    print(f"  {'operation':<18}{'n':>6}{'ours':>12}{'SciPy':>12}{'speed':>8}  target {TARGET:.2f}")
    for operation in OPERATIONS:
        for n in SIZES[:2] if settings.quick else SIZES:
            factories = {name: partial(build, operation, n) for name, build in BUILDERS.items()}
            shared = replace(settings, seconds=settings.seconds * SHARE)
            comparison = compare(factories, shared, TOLERANCE)
            ours, theirs = comparison.of(OURS), comparison.of(SCIPY)
            if ours is None or theirs is None:
                continue
            speed = theirs.median / ours.median
            met = "" if speed >= TARGET else "  NOT MET"
            if max(ours.difference or 0, theirs.difference or 0) > TOLERANCE:
                met = "  *** differs"
            print(
                f"  {operation:<18}{n:>6}{duration(ours.median):>12}"
                f"{duration(theirs.median):>12}{speed:>7.2f}x{met}"
            )


ROWS = {"linalg": linalg}
