"""Polynomials over sizes, found by exact interpolation."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

MOST_DEGREE = 3
# Samples lie this far apart: what strides and windows divide leaves the same remainder in all.
STEP = 64


class Polynomial:
    """Coefficients by the powers of each size."""

    def __init__(self, names: Sequence[str], terms: Mapping[tuple[int, ...], Fraction]):
        self.names = tuple(names)
        self.terms = {powers: c for powers, c in terms.items() if c}

    def __call__(self, sizes: Mapping[str, int]) -> Fraction:
        values = [sizes[name] for name in self.names]
        total = Fraction(0)
        for powers, coefficient in self.terms.items():
            for value, power in zip(values, powers, strict=True):
                coefficient *= value**power
            total += coefficient
        return total

    def __add__(self, other: Polynomial) -> Polynomial:
        terms = dict(self.terms)
        for powers, coefficient in other.terms.items():
            terms[powers] = terms.get(powers, Fraction(0)) + coefficient
        return Polynomial(self.names, terms)

    def __str__(self) -> str:
        """Python source: "4096*batch + 1024", "seq**2/2"; the highest powers first."""
        order = sorted(self.terms, key=lambda powers: (-sum(powers), [-p for p in powers]))
        text = ""
        for powers in order:
            coefficient = self.terms[powers]
            sign = "-" if coefficient < 0 else "+"
            text += f" {sign} " if text else ("-" if sign == "-" else "")
            text += self._term(powers, abs(coefficient))
        return text or "0"

    def _term(self, powers: tuple[int, ...], coefficient: Fraction) -> str:
        factors = [
            name if power == 1 else f"{name}**{power}"
            for name, power in zip(self.names, powers, strict=True)
            if power
        ]
        if coefficient.numerator != 1 or not factors:
            factors.insert(0, str(coefficient.numerator))
        divisor = f"/{coefficient.denominator}" if coefficient.denominator != 1 else ""
        return "*".join(factors) + divisor


Measure = Callable[[dict[str, int]], Sequence[int] | None]


def fit(measure: Measure, base: Mapping[str, int]) -> list[Polynomial] | None:
    """The polynomials that `measure` gives around `base`; None where it has none, or says None.

    The degree in each size is found first, along a line; then a grid of that many samples gives
    every coefficient.
    """
    known: dict[tuple[int, ...], Sequence[int] | None] = {}

    def at(steps: tuple[int, ...]) -> Sequence[int] | None:
        if steps not in known:
            moved = zip(base.items(), steps, strict=True)
            known[steps] = measure({name: size + STEP * step for (name, size), step in moved})
        return known[steps]

    degrees = []
    for i in range(len(base)):
        line = [at(_along(i, step, len(base))) for step in range(MOST_DEGREE + 2)]
        degree = _degree(line)
        if degree is None:
            return None
        degrees.append(degree)
    grid = list(itertools.product(*(range(degree + 1) for degree in degrees)))
    samples = [at(steps) for steps in grid]
    if any(sample is None for sample in samples):
        return None
    return [
        _interpolated(list(base), [Fraction(s) for s in base.values()], degrees, column)
        for column in zip(*samples, strict=True)
    ]


def _along(axis: int, step: int, count: int) -> tuple[int, ...]:
    return tuple(step if i == axis else 0 for i in range(count))


def _degree(line: Sequence[Sequence[int] | None]) -> int | None:
    """The highest power in any of the measures along a line; None beyond MOST_DEGREE."""
    if any(sample is None for sample in line):
        return None
    most = 0
    for column in zip(*line, strict=True):
        row, degree = list(column), -1
        while any(row):
            row = [b - a for a, b in itertools.pairwise(row)]
            degree += 1
        if degree > MOST_DEGREE:
            return None
        most = max(most, degree)
    return most


def _interpolated(
    names: list[str], start: list[Fraction], degrees: list[int], values: Sequence[int]
) -> Polynomial:
    """Through the samples of a grid in row-major order: along one axis after the other."""
    if not names:
        return Polynomial([], {(): Fraction(values[0])})
    slab = len(values) // (degrees[0] + 1)
    rest = [
        _interpolated(names[1:], start[1:], degrees[1:], values[i * slab : (i + 1) * slab])
        for i in range(degrees[0] + 1)
    ]
    terms: dict[tuple[int, ...], Fraction] = {}
    for powers in {powers for part in rest for powers in part.terms}:
        column = [part.terms.get(powers, Fraction(0)) for part in rest]
        for power, coefficient in enumerate(_line(start[0], column)):
            terms[(power, *powers)] = coefficient
    return Polynomial(names, terms)


def _line(start: Fraction, values: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the polynomial through the samples at start, start + STEP …, by Newton."""
    differences, row = [], list(values)
    while row:
        differences.append(row[0])
        row = [b - a for a, b in itertools.pairwise(row)]
    out, basis = [Fraction(0)] * len(values), [Fraction(1)]  # basis: (x - x0) (x - x1) …
    scale = Fraction(1)
    for k, difference in enumerate(differences):
        for power, coefficient in enumerate(basis):
            out[power] += coefficient * difference / scale
        node = start + STEP * k
        shifted = [Fraction(0), *basis]
        for power, coefficient in enumerate(basis):
            shifted[power] -= node * coefficient
        basis = shifted
        scale *= STEP * (k + 1)
    return out


__all__ = ["Polynomial", "fit"]
