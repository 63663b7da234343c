"""Axes by name: `Rearrange`, `Reduce` and `Repeat` after einops, and `Einsum`.

Patterns are those of A. Rogozhnikov, "Einops: Clear and Reliable Tensor Manipulations with
Einstein-like Notation" (ICLR 2022): names of axes, groups in parentheses, 1 for an axis of size 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from mithril import models
from mithril.base.checks import checked_size, checked_str
from mithril.base.public import public
from mithril.errors import ArgumentError, SignatureError, suggestion
from mithril.logical.connection import Connection
from mithril.logical.model import ExtendInfo, Model
from mithril.logical.typing import Output, Wire, as_connected
from mithril.models._composite import Composite
from mithril.types import NOT_GIVEN, TBD

_TOKEN = re.compile(r"\s*(?:([A-Za-z_]\w*)|(1)|([()]))")
_REST = "..."  # axes without names
_MOST_AXES = 64  # that an array of NumPy or PyTorch may have
_NAMES, _LETTERS = re.compile(r"\.{3}|[^\s.]+|\."), re.compile(r"\.{3}|.")
_REDUCTIONS = {"sum": "Sum", "mean": "Mean", "max": "Max", "min": "Min", "prod": "Prod"}

Side = list[list[str]]  # the names in each axis


class _Pattern(Composite):
    """One tensor whose axes have names."""

    _connect_order = ("input", "output")

    def _build(self, pattern: str, sizes: dict[str, Any], input: Any, name: str | None) -> None:
        what = type(self).__name__
        left, right = _sides(what, checked_str(f"{what}: pattern", pattern))
        self._check(left, right)
        known = {axis: checked_size(f"{what}: {axis}", size, 1) for axis, size in sizes.items()}
        _check_sizes(what, left, right, known)
        with self._compose(
            name, {"pattern": pattern, **self._options(), **sizes}, input=input
        ) as keys:
            axes = _Axes(keys["input"], left, known)
            self._arrange(axes, [axis for group in right for axis in group])
            out = axes.grouped(right)
            self |= models.Buffer().connect(input=out, output="output")
            # The letters are the user's names.
            Model.set_shapes(self, input=_template(left, known), output=_template(right, known))
            self.set_cin("input")
            self.set_cout("output")
            self.expose_keys("output")

    def _options(self) -> dict[str, Any]:
        return {}

    def _check(self, left: Side, right: Side) -> None:
        """Raises unless the sides fit each other."""

    def _arrange(self, axes: _Axes, order: list[str]) -> None:
        """Makes the axes those of the result, in their order."""
        axes.transpose(order)

    @public
    def connect(self, input: Wire = NOT_GIVEN, output: Output = NOT_GIVEN) -> ExtendInfo:
        return ExtendInfo(self, {"input": input, "output": output})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class Rearrange(_Pattern):
    """The elements of a tensor under other axes: transposes, splits and merges axes by name.

    Parameters
    ----------
    pattern : such as "b (h d) n -> b h n d"; both sides have the same names
    input : value or `IOKey` for this key
    sizes : of axes by name; in each group one size may follow from the others

    Keys
    ----
    input : the axes of the left side
    output : the axes of the right side, of the type of input

    Raises
    ------
    ArgumentError : a pattern that is none, or leaves a size open.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Rearrange("b n (h d) -> b h n d", h=8)(input="x", output="y")
    >>> model.set_shapes(x=["batch", 10, 64])
    >>> model.shapes["y"]
    ['batch', 8, 10, 8]
    """

    @public
    def __init__(self, pattern: str, input: Any = TBD, *, name: str | None = None, **sizes: int):
        self._build(pattern, sizes, input, name)

    def _check(self, left: Side, right: Side) -> None:
        _refuse("Rearrange: only one side has", _names(left) ^ _names(right))


class Reduce(_Pattern):
    """Reduces the axes that only the left side of a pattern has.

    Parameters
    ----------
    pattern : such as "b c (h i) (w j) -> b c h w", which pools windows of i by j
    reduction : "sum", "mean", "max", "min" or "prod"
    input : value or `IOKey` for this key
    sizes : of axes by name; in each group one size may follow from the others

    Keys
    ----
    input : the axes of the left side
    output : the axes of the right side

    Raises
    ------
    ArgumentError : a pattern that is none, an axis of the right side that the left one has not, a
        reduction that does not exist.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Reduce("b (h s) c -> b h c", "max", s=2)(input="x", output="y")
    >>> model.set_shapes(x=["batch", 10, 3])
    >>> model.shapes["y"]
    ['batch', 5, 3]
    """

    @public
    def __init__(
        self,
        pattern: str,
        reduction: str,
        input: Any = TBD,
        *,
        name: str | None = None,
        **sizes: int,
    ):
        if checked_str("Reduce: reduction", reduction) not in _REDUCTIONS:
            raise ArgumentError(
                f"Reduce: has no reduction {reduction!r}{suggestion(reduction, list(_REDUCTIONS))}"
            )
        self._reduction = reduction
        self._build(pattern, sizes, input, name)

    def _options(self) -> dict[str, Any]:
        return {"reduction": self._reduction}

    def _check(self, left: Side, right: Side) -> None:
        _refuse("Reduce: only the right side has", _names(right) - _names(left))

    def _arrange(self, axes: _Axes, order: list[str]) -> None:
        axes.reduce(_REDUCTIONS[self._reduction], order)
        axes.transpose(order)


class Repeat(_Pattern):
    """Repeats a tensor along the axes that only the right side of a pattern has.

    Parameters
    ----------
    pattern : such as "b d -> b n d"
    input : value or `IOKey` for this key
    sizes : of axes by name; those of new axes are required

    Keys
    ----
    input : the axes of the left side
    output : the axes of the right side, of the type of input

    Raises
    ------
    ArgumentError : a pattern that is none, an axis of the left side that the right one has not, a
        new axis without a size.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Repeat("b d -> b n d", n=4)(input="x", output="y")
    >>> model.set_shapes(x=["batch", 3])
    >>> model.shapes["y"]
    ['batch', 4, 3]
    """

    @public
    def __init__(self, pattern: str, input: Any = TBD, *, name: str | None = None, **sizes: int):
        self._build(pattern, sizes, input, name)

    def _check(self, left: Side, right: Side) -> None:
        _refuse("Repeat: only the left side has", _names(left) - _names(right))

    def _arrange(self, axes: _Axes, order: list[str]) -> None:
        axes.transpose([axis for axis in order if axis in axes.order])
        axes.repeat(order)


class Einsum(Composite):
    """Sums of products after Einstein: axes of one name are multiplied, those that the right side
    has not are summed.

    An axis that stands twice in an operand is its diagonal ("ii->i"; "ii->" is the trace). "..."
    are all axes without a name, which broadcast from the right among the operands. Without "->" the
    result has "...", then the axes that stand once, by their names (as `numpy.einsum`).

    Parameters
    ----------
    equation : "b i d, b j d -> b i j", or with axes of one letter "bid,bjd->bij"

    Keys
    ----
    input0, input1 … : one for each operand; numbers, axes of one name are of one size
    output : the axes of the right side

    Raises
    ------
    ArgumentError : an equation that is none, an axis of the right side that no operand has, or that
        stands there twice, "..." of the operands alone.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Einsum("b i d, b j d -> b i j")(input0="q", input1="k", output="scores")
    >>> model.set_shapes(q=[None, 5, 8], k=[None, 7, None])
    >>> model.shapes["scores"]
    ['b', 5, 7]
    >>> traces = ml.Model()
    >>> traces |= ml.Einsum("...ii->...")(input0="x", output="y")
    >>> traces.set_shapes(x=[2, 3, 4, 4])
    >>> traces.shapes["y"]
    [2, 3]
    """

    @public
    def __init__(self, equation: str, *, name: str | None = None, **inputs: Any):
        operands, result = _operands(checked_str("Einsum: equation", equation))
        names = [f"input{i}" for i in range(len(operands))]
        unknown = [key for key in inputs if key not in names]
        if unknown:
            raise SignatureError(
                f"Einsum: has no key {unknown[0]!r}{suggestion(unknown[0], names)}"
            )
        keys = {**dict.fromkeys(names, TBD), **inputs}
        self._connect_order = (*names, "output")
        with self._compose(name, {"equation": equation}, **keys) as wires:
            inner = [Connection() for _ in names]  # so that keys have the order of the operands
            for key, wire in zip(names, inner, strict=True):
                self |= models.Buffer().connect(input=wires[key], output=wire)
            factors = [_operand(wire, axes) for wire, axes in zip(inner, operands, strict=True)]
            product = factors.pop(0)
            for at, factor in enumerate(factors):
                later = {axis for rest in factors[at + 1 :] for axis in rest.order}
                product.multiply(factor, later | set(result))
            named = [axis for axis in result if axis != _REST]
            product.reduce("Sum", named)
            product.transpose(named)
            out = product.wire
            at = result.index(_REST) if _REST in result else 0
            if at:
                places = tuple(range(-len(named), at - len(named)))
                out = models.MoveAxis(places, tuple(range(at)))(out)
            self |= models.Buffer().connect(input=out, output="output")
            # A product alone would let sizes of 1 meet others.
            Model.set_shapes(self, _stated(names, operands, result))
            self.set_cin(*names)
            self.set_cout("output")
            self.expose_keys("output")

    @public
    def connect(self, *inputs: Any, output: Any = NOT_GIVEN, **keys: Any) -> ExtendInfo:
        order = self._argument_order(len(inputs))
        return ExtendInfo(self, {**dict(zip(order, inputs, strict=True)), "output": output, **keys})

    @as_connected(connect)
    def __call__(self, /, *args: Any, **keys: Any) -> Any: ...


class _Axes:
    """A wire whose axes have names, and what is known of their sizes.

    `is_open`: axes without names stand in front of the others, nobody knows how many.
    """

    def __init__(
        self, wire: Connection, groups: Side, known: dict[str, int], is_open: bool = False
    ):
        self.is_open = is_open
        self.order = [axis for group in groups for axis in group]
        self.sizes: dict[str, Any] = dict(known)
        shape: Any = wire.shape
        for place, group in enumerate(groups, -len(groups) if is_open else 0):
            for axis in group:
                if axis not in known:
                    rest = math.prod(known[other] for other in group if other != axis)
                    self.sizes[axis] = shape[place] if rest == 1 else shape[place] // rest
        is_plain = all(len(group) == 1 for group in groups)
        self.wire = wire if is_plain else self._reshaped(wire, len(groups), self._sizes(self.order))

    def _reshaped(self, wire: Any, count: int, sizes: tuple[Any, ...]) -> Any:
        """Reshapes the last `count` axes, those that have names, to these sizes."""
        if not self.is_open:
            return wire.reshape(sizes)
        rest = wire.shape[:-count] if count else wire.shape
        inputs = {f"input{i}": size for i, size in enumerate((rest, *sizes), 1)}
        return wire.reshape(models.PrimitiveUnion(len(inputs))(**inputs))

    def _places(self, axes: Sequence[str]) -> tuple[int, ...]:
        first = -len(self.order) if self.is_open else 0
        return tuple(first + self.order.index(axis) for axis in axes)

    def _sizes(self, axes: Sequence[str]) -> tuple[Any, ...]:
        return tuple(self.sizes[axis] for axis in axes)

    def transpose(self, order: list[str]) -> None:
        if order == self.order:
            return
        if self.is_open:
            last = tuple(range(-len(order), 0))
            self.wire = models.MoveAxis(self._places(order), last)(self.wire)
        else:
            self.wire = self.wire.transpose(self._places(order))
        self.order = order

    def reduce(self, reduction: str, kept: Sequence[str]) -> None:
        gone = self._places([axis for axis in self.order if axis not in kept])
        if gone:
            self.wire = getattr(models, reduction)(axis=gone)(self.wire)
            self.order = [axis for axis in self.order if axis in kept]

    def repeat(self, order: list[str]) -> None:
        if order == self.order:
            return
        ones = tuple(self.sizes[axis] if axis in self.order else 1 for axis in order)
        self.wire = models.BroadcastTo()(self.wire.reshape(ones), self._sizes(order))
        self.order = order

    def grouped(self, groups: Side) -> Connection:
        if all(len(group) == 1 for group in groups):
            return self.wire
        sizes = tuple(self._product(group) for group in groups)
        return self._reshaped(self.wire, len(self.order), sizes)

    def _product(self, axes: Sequence[str]) -> Any:
        out: Any = 1
        for axis in axes:
            out = self.sizes[axis] if isinstance(out, int) and out == 1 else out * self.sizes[axis]
        return out

    def multiply(self, other: _Axes, kept: set[str]) -> None:
        """The product with another factor, summed over axes that are not kept, by one matmul."""
        self.reduce("Sum", [axis for axis in self.order if axis in kept or axis in other.order])
        other.reduce("Sum", [axis for axis in other.order if axis in kept or axis in self.order])
        shared = [axis for axis in self.order if axis in other.order]
        batch = [axis for axis in shared if axis in kept]
        inner = [axis for axis in shared if axis not in kept]
        rows = [axis for axis in self.order if axis not in shared]
        columns = [axis for axis in other.order if axis not in shared]
        self.transpose(batch + rows + inner)
        other.transpose(batch + inner + columns)
        each = [[axis] for axis in batch]
        left: Any = self.grouped([*each, rows, inner])
        self.sizes = {**other.sizes, **self.sizes}
        self.wire = left @ other.grouped([*each, inner, columns])
        self.is_open |= other.is_open
        self.order = batch + rows + columns
        if len(rows) != 1 or len(columns) != 1:
            self.wire = self._reshaped(self.wire, len(batch) + 2, self._sizes(self.order))


def _operand(wire: Any, axes: list[str]) -> _Axes:
    """An operand of `Einsum`: axes without names in front, diagonals taken."""
    is_open = _REST in axes
    order = [axis for axis in axes if axis != _REST]
    before = axes.index(_REST) if is_open else 0
    if before:
        places = tuple(range(-len(order), before - len(order)))
        wire = models.MoveAxis(tuple(range(before)), places)(wire)
    for axis in dict.fromkeys(order):
        places = tuple(i - len(order) for i, other in enumerate(order) if other == axis)
        if len(places) > 1:
            order = [*(other for other in order if other != axis), axis]
            wire = models.MoveAxis(places, tuple(range(-len(places), 0)))(wire)
            index = models.Arange()(stop=wire.shape[-1])
            wire = wire[(..., *(index,) * len(places))]
    return _Axes(wire, [[axis] for axis in order], {}, is_open)


# --- patterns ------------------------------------------------------------------------------------


def _names(side: Side) -> set[str]:
    return {axis for group in side for axis in group}


def _refuse(why: str, names: set[str]) -> None:
    if names:
        raise ArgumentError(f"{why} {', '.join(repr(name) for name in sorted(names))}")


def _sides(what: str, pattern: str) -> tuple[Side, Side]:
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ArgumentError(
            f"{what}: a pattern has two sides, got {pattern!r}", hint='such as "b (h d) -> b h d"'
        )
    left, right = (_side(what, side) for side in sides)
    return left, right


def _side(what: str, side: str) -> Side:
    out: Side = []
    inner: list[str] | None = None
    at, side = 0, side.rstrip()
    while at < len(side):
        found = _TOKEN.match(side, at)
        if found is None:
            raise ArgumentError(
                f"{what}: {side.strip()!r} has {side[at:].split()[0]!r} where an axis is expected",
                hint="axes are names, 1, or names in parentheses",
            )
        at = found.end()
        axis, one, bracket = found.groups()
        if bracket and (bracket == "(") == (inner is not None):
            raise ArgumentError(f"{what}: {side.strip()!r} has a group that does not fit another")
        if bracket == "(":
            inner = []
        elif bracket:
            out.append(inner or [])
            inner = None
        elif inner is not None:
            inner += [] if one else [axis]
        else:
            out.append([] if one else [axis])
    if inner is not None:
        raise ArgumentError(f"{what}: {side.strip()!r} has a group without an end")
    _refuse_twice(what, [axis for group in out for axis in group])
    return out


def _refuse_twice(what: str, axes: Sequence[str]) -> None:
    _refuse(f"{what}: one side has twice", {axis for axis in axes if axes.count(axis) > 1})


def _check_sizes(what: str, left: Side, right: Side, known: dict[str, int]) -> None:
    names = sorted(_names(left) | _names(right))
    unknown = [axis for axis in known if axis not in names]
    if unknown:
        raise SignatureError(
            f"{what}: the pattern has no axis {unknown[0]!r}{suggestion(unknown[0], names)}"
        )
    for group in left:
        open_axes = [axis for axis in group if axis not in known]
        if len(open_axes) > 1:
            raise ArgumentError(
                f"{what}: the sizes of {', '.join(map(repr, open_axes))} are open",
                hint=f"give all but one, such as {open_axes[0]}=2",
            )
    missing = [axis for axis in sorted(_names(right) - _names(left)) if axis not in known]
    if missing:
        raise ArgumentError(
            f"{what}: the size of the new axis {missing[0]!r} is open", hint=f"{missing[0]}=2"
        )


def _template(side: Side, known: dict[str, int]) -> list[Any]:
    """Returns what is known of the shape of a side: its rank, and sizes or None."""
    return [
        math.prod(known[axis] for axis in group) if all(axis in known for axis in group) else None
        for group in side
    ]


def _operands(equation: str) -> tuple[list[list[str]], list[str]]:
    """The axes of each operand and of the result; letters where no operand has a blank in it."""
    sides = equation.split("->")
    if len(sides) > 2:
        raise ArgumentError(
            f"Einsum: an equation has two sides, got {equation!r}", hint='such as "ij,jk->ik"'
        )
    parts = [part.strip() for part in [*sides[0].split(","), *sides[1:]]]
    named = any(re.search(r"\s", part) for part in parts)
    axes = [(_NAMES if named else _LETTERS).findall(part) for part in parts]
    for of_part in axes:
        bad = [axis for axis in of_part if axis != _REST and not axis.isidentifier()]
        if bad:
            raise ArgumentError(f"Einsum: {bad[0]!r} in {equation!r} is no name of an axis")
        if len(of_part) > _MOST_AXES:
            raise ArgumentError(
                f"Einsum: an operand requires at most {_MOST_AXES} axes, got {len(of_part)}"
            )
        if of_part.count(_REST) > 1:
            raise ArgumentError(f"Einsum: {equation!r} has '...' twice in one place")
    operands = axes if len(sides) == 1 else axes[:-1]
    every = [axis for part in operands for axis in part]
    if len(sides) == 1:
        once = sorted(axis for axis in every if axis != _REST and every.count(axis) == 1)
        return operands, ([_REST] if _REST in every else []) + once
    result = axes[-1]
    _refuse_twice("Einsum", result)
    _refuse("Einsum: no operand has", set(result) - set(every))
    if _REST in every and _REST not in result:
        raise ArgumentError(
            f"Einsum: the result of {equation!r} lacks '...'", hint="axes without names stay"
        )
    return operands, result


def _stated(names: list[str], operands: list[list[str]], result: list[str]) -> dict[str, list[Any]]:
    """Returns the shapes that an equation states: one "..." stays, several broadcast."""
    several = sum(_REST in axes for axes in operands) > 1
    out = {}
    for key, axes in zip([*names, "output"], [*operands, result], strict=True):
        rest = (f"rest_of_{key}" if several else "rest", ...)
        out[key] = [rest if axis == _REST else axis for axis in axes]
    return out


__all__ = ["Einsum", "Rearrange", "Reduce", "Repeat"]
