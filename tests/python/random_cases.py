"""Variants of the registry's samples: other sizes, other axes, axes of size 1 that broadcast.

A variant is kept where the op takes it (composition says so); an op whose sample leaves no freedom
is checked at its own sizes with other numbers.
"""

import dataclasses
import zlib

import numpy as np
from mithril.errors import MithrilError
from mithril.testing.op_matrix import Case

TRIES = 12
SIZES = (1, 2, 3, 4, 5, 7)


def variants(case, count, seed):
    """`count` cases like `case`, each the same for the same seed in every run."""
    for number in range(count):
        random = np.random.default_rng([seed, number, zlib.crc32(case.label.encode())])
        yield next(filter(_is_taken, (_changed(case, random) for _ in range(TRIES))), case)


def draws(case, count, seed):
    """Inputs of random numbers, away from the op's special points."""
    for number in range(count):
        other = dataclasses.replace(case, index=1000 * seed + 100 * case.index + number)
        yield other.draw(points=False)


def _is_taken(case):
    try:
        case.model()
    except MithrilError:
        return False
    return True


def _changed(case, random):
    """Equal sizes stay equal; then, at times, one axis of one of several tensors becomes 1.

    Axes that integers index only grow: the numbers drawn fit the sample's own sizes.
    """
    shapes = [(name, shape) for name, shape in case.sample["shapes"] if name != "rng_key"]
    known = sorted({size for _, shape in shapes for size in shape if size > 0})
    indexed = any(case.kind_of(declared) == "int" for _, declared, _ in case.tensors)
    if indexed:
        sizes = {size: size + int(random.integers(4)) for size in known}
    else:
        sizes = {size: int(random.choice(SIZES)) for size in known}
    sizes[0] = 0 if indexed else 1
    shapes = [(name, [sizes[size] for size in shape]) for name, shape in shapes]
    if len(shapes) > 1 and not indexed and random.integers(2):
        _, shape = shapes[random.integers(len(shapes))]
        if shape:
            shape[random.integers(len(shape))] = 1
    attrs = dict(case.sample["attrs"])
    rank = max((len(shape) for _, shape in shapes), default=0)
    if type(attrs.get("axis")) is int and rank and not indexed:
        attrs["axis"] = int(random.integers(-rank, rank))
    shapes += [item for item in case.sample["shapes"] if item[0] == "rng_key"]
    sample = {**case.sample, "shapes": [(n, tuple(s)) for n, s in shapes], "attrs": attrs}
    return Case(case.op, case.index, case.kind, sample)
