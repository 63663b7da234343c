"""Contenders side by side: outputs compared first, then timed in turns (A B C C B A ...)."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

OURS = "mithril"
SAMPLE_SECONDS = 0.003  # a sample repeats short work until it takes about this long
FEWEST_ROUNDS = 5
WARM_UP_SECONDS = 0.2


@dataclass
class Settings:
    """How long to measure, and with what."""

    seconds: float = 1.0  # for each contender of a row
    threads: int = 1
    quick: bool = False
    until: float = float("inf")  # time.monotonic() after which slow contenders are left out

    def check_time(self) -> None:
        """For what takes long to prepare: leaves it out when time is short."""
        if self.quick:
            raise LeftOut("only in the full run")
        if time.monotonic() > self.until:
            raise LeftOut("no time left")


class LeftOut(Exception):
    """A contender that this run does without; the text says why."""


@dataclass
class Contender:
    """One way to do a row's work. `run` does a unit of it and returns when it is finished."""

    run: Callable[[], Any]
    result: Callable[[], Mapping[str, Any]] | None = None  # arrays to compare; called first
    note: str = ""


Factory = Callable[[Settings], Contender]


@dataclass
class Timing:
    """Seconds per unit of work, one entry a sample."""

    name: str
    seconds: list[float] = field(default_factory=list)
    difference: float | None = None  # from the reference, relative to its largest value
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def minimum(self) -> float:
        return min(self.seconds)


@dataclass
class Comparison:
    """The measured contenders of one row, and the ones that are missing with the reason."""

    timings: list[Timing]
    missing: dict[str, str]
    tolerance: float

    def of(self, name: str) -> Timing | None:
        return next((timing for timing in self.timings if timing.name == name), None)

    def ratio(self, name: str) -> float | None:
        """How many times as long as ours (medians)."""
        ours, other = self.of(OURS), self.of(name)
        return other.median / ours.median if ours and other else None


def compare(
    factories: Mapping[str, Factory], settings: Settings, tolerance: float = 1e-4
) -> Comparison:
    """Prepares, compares and times the contenders; the first one present is the reference."""
    contenders, missing = _prepare(factories, settings)
    differences = _differences(contenders)
    timings = [Timing(n, [], differences.get(n), c.note) for n, c in contenders.items()]
    _measure([c.run for c in contenders.values()], timings, settings.seconds)
    return Comparison(timings, missing, tolerance)


def _prepare(
    factories: Mapping[str, Factory], settings: Settings
) -> tuple[dict[str, Contender], dict[str, str]]:
    contenders, missing = {}, {}
    for name, factory in factories.items():
        try:
            contenders[name] = factory(settings)
        except ImportError as error:
            missing[name] = f"not installed: {error}"
        except LeftOut as error:
            missing[name] = f"left out: {error}"
    return contenders, missing


def _differences(contenders: Mapping[str, Contender]) -> dict[str, float]:
    results = {n: c.result() for n, c in contenders.items() if c.result is not None}
    if not results:
        return {}
    reference = next(iter(results.values()))
    return {name: difference(result, reference) for name, result in results.items()}


def difference(result: Mapping[str, Any], reference: Mapping[str, Any]) -> float:
    """The largest difference of any array, relative to that array's largest value (at least 1)."""
    import numpy as np

    if result.keys() != reference.keys():
        return float("inf")
    worst = 0.0
    for key, wanted in reference.items():
        wanted, got = np.asarray(wanted, np.float64), np.asarray(result[key], np.float64)
        if wanted.shape != got.shape or not np.isfinite(got).all():
            return float("inf")
        far = np.abs(wanted - got).max(initial=0.0) / max(1.0, np.abs(wanted).max(initial=0.0))
        worst = max(worst, float(far))
    return worst


def _measure(runs: Sequence[Callable[[], Any]], timings: Sequence[Timing], seconds: float) -> None:
    pairs = [(run, timing, _repeats(run)) for run, timing in zip(runs, timings, strict=True)]
    end = time.perf_counter() + seconds * len(pairs)
    rounds = 0
    while rounds < FEWEST_ROUNDS or time.perf_counter() < end:
        for run, timing, repeats in pairs if rounds % 2 == 0 else reversed(pairs):
            timing.seconds.append(_sample(run, repeats))
        rounds += 1


def _repeats(run: Callable[[], Any]) -> int:
    """Warms up; returns how often a sample repeats the work."""
    start, count = time.perf_counter(), 0
    while count < 3 or (time.perf_counter() - start < WARM_UP_SECONDS and count < 10_000):
        run()
        count += 1
    return max(1, round(SAMPLE_SECONDS * count / (time.perf_counter() - start)))


def _sample(run: Callable[[], Any], repeats: int) -> float:
    gc.collect(0)
    gc.disable()
    try:
        start = time.perf_counter()
        for _ in range(repeats):
            run()
        return (time.perf_counter() - start) / repeats
    finally:
        gc.enable()


# --- printing -----------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def print_comparison(title: str, comparison: Comparison) -> None:
    """The table of one row: ratios are others / ours, so above 1 means that ours is faster."""
    print(f"\n{title}")
    ours = comparison.of(OURS)
    for timing in comparison.timings:
        ratios = (
            f"{timing.median / ours.median:8.2f}x {timing.minimum / ours.minimum:8.2f}x"
            if (ours and timing is not ours)
            else f"{'':9} {'':9}"
        )
        print(
            f"  {timing.name:<24}{duration(timing.median):>12}{duration(timing.minimum):>12}"
            f" {ratios}  {agreement(timing, comparison.tolerance)}{timing.note}".rstrip()
        )
    for name, reason in comparison.missing.items():
        print(f"  {name:<24}{reason:>12}")


def print_head() -> None:
    print(f"\n  {'contender':<24}{'median':>12}{'minimum':>12} {'median':>9} {'minimum':>9}")
    print(f"  {'':<24}{'':>12}{'':>12} {'/ ours':>9} {'/ ours':>9}")


def agreement(timing: Timing, tolerance: float) -> str:
    if timing.difference is None:
        return ""
    if timing.difference <= tolerance:
        return f"agrees ({timing.difference:.0e}) "
    return f"*** OUTPUTS DIFFER by {timing.difference:.1e} (allowed {tolerance:.0e}) *** "


def print_target(what: str, value: float | None, limit: float, at_most: bool, unit: str) -> None:
    """What was aimed at, what was measured. Printed, never asserted."""
    sign = "<=" if at_most else ">="
    if value is None:
        print(f"  target: {what} {sign} {limit:g}{unit}: not measured")
        return
    verdict = "met" if (value <= limit if at_most else value >= limit) else "NOT MET"
    print(f"  target: {what} {sign} {limit:g}{unit}: {value:.3g}{unit}, {verdict}")


def print_ratio_targets(comparison: Comparison, targets: Mapping[str, float]) -> None:
    """By contenders: how many times as long as ours theirs was to be."""
    for name, least in targets.items():
        print_target(f"against {name}", comparison.ratio(name), least, False, "x")
