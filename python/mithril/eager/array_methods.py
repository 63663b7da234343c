"""Methods on arrays that are no op by themselves, written once for every backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mithril import models
from mithril.base.numpy import np
from mithril.errors import ArgumentError, ShapeError, SignatureError, shown
from mithril.types import Dtype, DTypeLike

from . import methods, op_programs
from .recording import is_symbolic, rank_of, record

__all__ = ["ArrayMethods"]


class ArrayMethods:
    """The part of `Backend` with these methods, which call its other methods and its `ops`."""

    tensor: Any
    shape: Any
    dtype: Any
    default_int: Any
    to_numpy: Any
    ops: Any
    _from_host: Any
    _is_native: Any
    _as_array: Any
    _scope_of_dtypes: Any
    _error_of_table: Any

    def to_tensor(self, input: Any, dtype: DTypeLike | None = None) -> Any:
        """An array from a number or nested lists and tuples of numbers, as `array` makes it."""
        if is_symbolic(input):
            return record("to_tensor", (input,), {} if dtype is None else {"dtype": dtype})
        return self.tensor(input, dtype)

    def pad(self, input: Any, pad_width: Any) -> Any:
        """Zeros around an array: a width for all sides, (before, after) for all axes, or a pair
        for each axis.

        >>> import mithril as ml
        >>> backend = ml.NumpyBackend()
        >>> backend.pad(backend.ones(2), (1, 0))
        array([0., 1., 1.], dtype=float32)
        """
        if is_symbolic((input, pad_width)):
            if _is_count(pad_width):
                pad_width = _pairs(pad_width, rank_of("pad: pad_width as one number", input))
            return record("pad", (input, pad_width), {})
        array = self._given(input)
        pairs = _pairs(pad_width, len(self.shape(array)))
        return self._method("pad")(array, pairs)

    def split(self, input: Any, split_size: int, axis: int = 0) -> Any:
        """A list of `split_size` equal parts along an axis.

        Raises
        ------
        ShapeError : the size of the axis is no multiple of `split_size`
        """
        if is_symbolic(input):
            return record("split", (input,), {"split_size": split_size, "axis": axis})
        count = _count("split: split_size", split_size)
        array, size, place = self._axis("split", input, axis)
        if size % count:
            raise ShapeError(
                f"split: axis {axis} requires a multiple of {count} elements, got {size}"
            )
        return self._pieces(array, place, size, size // count, count)

    def chunk(self, input: Any, chunks: int, axis: int = 0) -> Any:
        """A list of at most `chunks` parts along an axis: each has size / chunks elements, rounded
        up, the last one what is left."""
        if is_symbolic(input):
            return record("chunk", (input,), {"chunks": chunks, "axis": axis})
        count = _count("chunk: chunks", chunks)
        array, size, place = self._axis("chunk", input, axis)
        each = -(-size // count)
        return self._pieces(array, place, size, each, -(-size // each) if each else count)

    def _axis(self, op: str, input: Any, axis: int) -> tuple[Any, int, int]:
        array = self._given(input)
        shape = self.shape(array)
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise SignatureError(f"{op}: axis requires an integer, got {shown(axis)}")
        if not -len(shape) <= axis < len(shape):
            raise ArgumentError(
                f"{op}: axis {axis} is out of range for rank {len(shape)}", code="MTH302"
            )
        place = axis % len(shape)
        return array, shape[place], place

    def _pieces(self, array: Any, place: int, size: int, each: int, count: int) -> list[Any]:
        before = (slice(None),) * place
        bounds = [(i * each, min((i + 1) * each, size)) for i in range(count)]
        return [self.index(array, (*before, slice(low, high))) for low, high in bounds]

    def atleast_1d(self, inputs: Any) -> Any:
        """An array of rank 1 at least; of a tuple or list of arrays, a list of such."""
        return self._of_each(inputs, self._at_least_1d)

    def atleast_2d(self, inputs: Any) -> Any:
        """An array of rank 2 at least, [n] as [1, n]; of a tuple or list of arrays, a list of
        such."""
        return self._of_each(inputs, self._at_least_2d)

    def _of_each(self, inputs: Any, function: Any) -> Any:
        many = isinstance(inputs, tuple) or (
            isinstance(inputs, list) and any(hasattr(x, "shape") for x in inputs)
        )
        return [function(x) for x in inputs] if many else function(inputs)

    def _at_least_1d(self, input: Any) -> Any:
        if is_symbolic(input):
            return record("atleast_1d", (input,), {})
        array = self._given(input)
        return array if self.shape(array) else self._method("reshape")(array, (1,))

    def _at_least_2d(self, input: Any) -> Any:
        if is_symbolic(input):
            missing = 2 - rank_of("atleast_2d", input)
            return input[(None,) * missing] if missing > 0 else input
        array = self._given(input)
        shape = self.shape(array)
        return array if len(shape) > 1 else self._method("reshape")(array, (1, *(shape or (1,))))

    def index(self, input: Any, index: Any) -> Any:
        """``input[index]`` with NumPy's meaning on every backend: integers, slices, None, `...`,
        lists and arrays of integers or bools."""
        if is_symbolic(input):
            return input[index]
        if is_symbolic(index):
            return record("index", (input, index), {})
        array = self._given(input)
        entries = tuple(map(self._entry, index)) if isinstance(index, tuple) else self._entry(index)
        with self._scope_of_dtypes([self.dtype(array)]):
            try:
                return self._as_array(self.ops.index(array, index=entries))
            except IndexError as error:
                raise methods.typed("index", error, [array]) from None

    indexer = index

    def _entry(self, entry: Any) -> Any:
        return self.tensor(entry) if isinstance(entry, np.ndarray) else entry

    def unique(
        self,
        input: Any,
        return_index: bool = False,
        return_inverse: bool = False,
        return_counts: bool = False,
        axis: int | None = None,
        dim: int | None = None,
    ) -> Any:
        """The distinct elements in rising order, as `numpy.unique`; NaN is one, the largest.

        With flags also where each is first, where they are in the input, and how often. How many
        there are depends on the data, so compilers of frameworks cannot follow it.

        >>> import mithril as ml
        >>> backend = ml.NumpyBackend()
        >>> values, counts = backend.unique(backend.array([3, 1, 3]), return_counts=True)
        >>> values.tolist(), counts.tolist()
        ([1, 3], [1, 2])
        """
        if is_symbolic(input):
            return models.Unique()(input=input)
        array = self._given(input)
        dtype = self.dtype(array)
        values: Any = self.to_numpy(array)
        if dtype is Dtype.bfloat16:
            values = values.astype(np.float32)  # NumPy's sort knows no NaN of it
        flags: Any = (bool(return_index), bool(return_inverse), bool(return_counts))
        unique: Any = np.unique
        found = unique(values, *flags, axis=axis if dim is None else dim)
        if not any(flags):
            return self._from_host(found, dtype)
        places = (self._from_host(x, self.default_int) for x in found[1:])
        return (self._from_host(found[0], dtype), *places)

    def einsum(self, equation: str, *operands: Any) -> Any:
        """The sum of products that an equation names: "ij,jk->ik", or "b i d, b j d -> b i j".

        Without "->" the result has the letters that stand once, in order.

        >>> import mithril as ml
        >>> backend = ml.NumpyBackend()
        >>> backend.einsum("ij,j->i", backend.ones(2, 3), backend.ones(3))
        array([3., 3.], dtype=float32)

        Raises
        ------
        ArgumentError : an equation that is none
        """

        many = len(operands) == 1 and isinstance(operands[0], tuple)
        operands = operands[0] if many else operands
        model = models.Einsum(equation)
        keys = list(model.input_keys)
        if len(operands) != len(keys):
            raise SignatureError(
                f"einsum: {equation!r} requires {len(keys)} operands, got {len(operands)}"
            )
        if any(map(is_symbolic, operands)):
            return model(**dict(zip(keys, operands, strict=True)))
        arrays = {key: self._given(x) for key, x in zip(keys, operands, strict=True)}
        return op_programs.run(self, ("einsum", equation), lambda: model, arrays)

    def primitive_accuracy(self, input1: Any, input2: Any) -> Any:
        """The share of rows whose largest element, along axis 1, is at the place in `input2`."""
        found = self._method("equal")(self._method("argmax")(input1, axis=1), input2)
        return self._method("mean")(found)

    # Values of Python, as models have them.

    def union(self, *values: Any) -> tuple[Any, ...]:
        """Joins numbers and tuples of numbers to one tuple."""
        return sum((tuple(v) if isinstance(v, tuple | list) else (v,) for v in values), ())

    def to_tuple(self, *values: Any) -> tuple[Any, ...]:
        return values

    def to_list(self, *values: Any) -> list[Any]:
        return list(values)

    def _beside(self, input: Any, made: Any) -> Any:
        """Moves a result that the host computed from an array to the device of that array."""
        return made

    def _given(self, value: Any) -> Any:
        return value if self._is_native(value) else self.tensor(value)

    def _method(self, name: str) -> Any:
        return methods.find(self, name)


def _count(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SignatureError(f"{what} requires a positive integer, got {shown(value)}")
    return value


def _pairs(width: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """Returns `width` as a pair for each axis."""
    pairs: Any = width
    if _is_count(width):
        pairs = ((width, width),) * rank
    elif isinstance(width, Sequence) and len(width) == 2 and all(map(_is_count, width)):
        pairs = (tuple(width),) * rank
    good = isinstance(pairs, Sequence) and len(pairs) == rank and all(map(_is_pair, pairs))
    if not good:
        raise ArgumentError(
            "pad: pad_width requires a count, a pair of counts or a pair for each of"
            f" {rank} axes, got {shown(width)}"
        )
    return tuple((low, high) for low, high in pairs)


def _is_pair(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(map(_is_count, value))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
