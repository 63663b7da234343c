"""NumPy's indexing in steps, and shapes of empty arrays, for libraries whose rules differ."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from mithril.base.numpy import np


class IndexPlan(NamedTuple):
    """An index in two steps: `basic` first, then integer arrays along some axes of its result."""

    basic: tuple[Any, ...]  # ints, slices and None
    arrays: list[Any]  # ints, lists of ints, arrays
    axes: list[int]  # which the arrays index
    place: int  # where their axes go among those that stay

    def arrays_first(self, ndim: int) -> list[int]:
        """The axes of what `basic` gives, those that the arrays index in front."""
        return [*self.axes, *(i for i in range(ndim) if i not in self.axes)]

    def into_place(self, rank: int, ndim: int) -> list[int]:
        """The axes of a result whose first `rank` ones are those of the arrays, in its order."""
        behind = rank + self.place
        return [*range(rank, behind), *range(rank), *range(behind, ndim)]


def counted_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes of an array of `rank` dimensions, counted from its front; ValueError for what is none.

    >>> counted_axes((0, -1), 3)
    (0, 2)
    """
    axes = tuple(axes)
    for axis in axes:
        if not -rank <= axis < rank:
            raise ValueError(f"axis {axis} is out of bounds for array of dimension {rank}")
    return tuple(axis % rank for axis in axes)


def reduced_axes(x: Any, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    """Returns the axes that a reduction runs over, counted from the front; None means all."""
    if axis is None:
        return tuple(range(x.ndim))
    if isinstance(axis, int):
        return counted_axes((axis,), x.ndim)
    counted = counted_axes(axis, x.ndim) if len(axis) else ()
    if len(set(counted)) < len(counted):
        raise ValueError(f"axis {tuple(axis)} names an axis twice")
    return counted


def is_mask(entry: Any) -> bool:
    """Tells whether an entry of an index is a bool, or bools in lists or in a NumPy array.

    >>> is_mask([[True], [False]]), is_mask([0, 1])
    (True, False)
    """
    while isinstance(entry, list) and entry:
        entry = entry[0]
    return isinstance(entry, bool) or (isinstance(entry, np.ndarray) and entry.dtype == bool)


def plan_index(entries: Sequence[Any], ndim: int) -> IndexPlan:
    """Takes an index of an array of `ndim` axes apart; masks in it are bools and lists of them.

    >>> plan = plan_index((slice(1, 2), [0, 1], None, 0), 3)
    >>> plan.arrays, plan.axes, plan.place
    ([[0, 1], 0], [1, 3], 0)
    """
    items = list(_items(entries))
    named = sum(not is_new and e is not None and e is not Ellipsis for e, is_new in items)
    if not any(e is Ellipsis for e, _ in items):
        items.append((Ellipsis, False))
    beside_arrays = any(_is_array(e) for e, _ in items)
    plan = IndexPlan((), [], [], 0)
    basic: list[Any] = []
    axis, place, is_behind, is_apart = 0, 0, False, False
    for entry, is_new in items:
        if not _is_array(entry) and not (beside_arrays and isinstance(entry, int)):
            is_behind = bool(plan.arrays)
            whole = [slice(None)] * (ndim - named)
            basic += whole if entry is Ellipsis else [entry]
            axis += len(whole) if entry is Ellipsis else not isinstance(entry, int)
            continue
        place = place if plan.arrays else axis
        is_apart |= is_behind
        plan.arrays.append(entry)
        plan.axes.append(axis)
        basic.append(None if is_new else slice(None))
        axis += 1
    return plan._replace(basic=tuple(basic), place=0 if is_apart else place)


def _is_array(entry: Any) -> bool:
    return isinstance(entry, list) or hasattr(entry, "shape")


def _items(entries: Sequence[Any]) -> Iterator[tuple[Any, bool]]:
    """The entries, masks as the places where they are true; a bool is one of a new axis."""
    for entry in entries:
        if isinstance(entry, bool):
            yield [0] if entry else [], True
        elif is_mask(entry):
            yield from ((places.tolist(), False) for places in np.nonzero(np.array(entry)))
        else:
            yield entry, False


def whole_shape(shape: Sequence[int], of: Sequence[int]) -> Sequence[int]:
    """A shape without its -1, which libraries refuse to find where there are no elements: what is
    left of the sizes that are reshaped when those that both have are taken away.

    >>> whole_shape((0, -1), (0, 3, 4))
    (0, 12)
    """
    if 0 not in of or -1 not in shape:
        return shape
    rest, left = [n for n in shape if n != -1], []
    for size in of:
        if size in rest:
            rest.remove(size)
        else:
            left.append(size)
    count = math.prod(rest)
    if count == 0 or math.prod(left) % count:
        return shape
    return tuple(math.prod(left) // count if n == -1 else n for n in shape)
