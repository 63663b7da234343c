"""Records a program as a ggml graph: `Node` stands for an array, `Trace` makes tensors.

A tensor holds its array in row-major order, so ggml's sizes are the shape backwards; of more than
four axes the first ones are joined. Nothing is computed here.
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from . import library
from .library import DIMENSIONS, Library, Tensor

TYPES = {
    np.dtype(np.float32): library.F32,
    np.dtype(np.float64): library.F64,
    np.dtype(np.float16): library.F16,
    np.dtype(ml_dtypes.bfloat16): library.BF16,
    np.dtype(np.int8): library.I8,
    np.dtype(np.uint8): library.I8,
    np.dtype(bool): library.I8,
    np.dtype(np.int16): library.I16,
    np.dtype(np.int32): library.I32,
    np.dtype(np.int64): library.I64,
}
FLOAT = np.dtype(np.float32)
_POOL = 1 << 17  # bytes of one context: structs of tensors
_ROOM = 64  # tensors that one op may make


class Untraceable(Exception):  # noqa: N818 - it is no error of a user's
    """Raised where a program depends on data and so cannot be recorded as a graph."""


class Node:
    """An array of a recorded program: shape and dtype without values.

    `swapped` is the node whose last two axes are the other way round, where this one has not been
    made yet: products read it as it is.
    """

    __slots__ = ("trace", "shape", "dtype", "swapped", "source", "_tensor")
    __array_ufunc__ = None

    def __init__(
        self, trace: Trace, tensor: int | None, shape: Sequence[int], dtype: Any = FLOAT
    ) -> None:
        self.trace = trace
        self.shape = tuple(int(n) for n in shape)
        self.dtype = np.dtype(dtype)
        self.swapped: Node | None = None
        self.source: int | None = None  # which input it is
        self._tensor = tensor

    @property
    def tensor(self) -> int:
        if self._tensor is None:
            assert self.swapped is not None
            self._tensor = self.trace.permuted(self.swapped, (1, 0, 2, 3))
        return self._tensor

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def _needs_values(self, *_: Any, **__: Any) -> Any:
        raise Untraceable

    __array__ = __bool__ = __index__ = __int__ = __float__ = item = tolist = _needs_values


def sizes(shape: Sequence[int]) -> tuple[int, ...]:
    """ggml's four sizes of an array."""
    backwards = [int(n) for n in shape[::-1]]
    if len(backwards) > DIMENSIONS:
        first = backwards[: DIMENSIONS - 1]
        return (*first, math.prod(backwards[DIMENSIONS - 1 :]))
    return (*backwards, *[1] * (DIMENSIONS - len(backwards)))


class Step:
    """A call of one of our functions as a custom node of the graph."""

    def __init__(self, name: str, function: Callable[..., Any], arguments: Any) -> None:
        self.name = name
        self.function = function
        self.arguments = arguments  # (args, kwargs) with nodes in them
        self.nodes = list(nodes_of(arguments))
        self.results: list[tuple[int, Node]] = []  # place in what the function returns, node


class Trace:
    """A graph under construction. The library's memory is freed by `close`."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib
        self.ways: list[tuple[str, str]] = []  # (op, "native" or "custom"), as they were called
        self.steps: dict[int, tuple[Step, int]] = {}  # tensor -> step, number of its result
        self.order: list[int] = []  # tensors that compute, as they must run
        self.constants: dict[int, tuple[Any, np.ndarray]] = {}  # tensor -> (owner, values)
        self.derived: list[Any] = []  # weights in another form (quantize.py)
        self.quantize: int | None = None  # the type of blocks that weights get
        self.parameters: frozenset[int] = frozenset()  # inputs that are weights
        self._lifted: dict[int, tuple[Any, Node]] = {}
        self._contexts: list[int] = []
        self._overhead = lib.tensor_overhead()

    # --- tensors ------------------------------------------------------------------------------

    @property
    def context(self) -> int:
        """Returns a ggml context with room for the tensors of another op."""
        room = _ROOM * self._overhead
        if not self._contexts or self.lib.used_mem(self._contexts[-1]) > _POOL - room:
            self.new_context(_POOL)
        return self._contexts[-1]

    def new_context(self, size: int) -> int:
        """Memory for structs, freed by `close`."""
        found = self.lib.init(library.InitParams(size, None, True))
        if not found:
            raise MemoryError("ggml has no memory for another graph")
        self._contexts.append(found)
        return found

    def finish(self) -> None:
        """Forgets the nodes; what is left is the library's memory, and the arrays of constants."""
        self.steps, self._lifted = {}, {}

    def close(self) -> None:
        while self._contexts:
            self.lib.free(self._contexts.pop())

    def leaf(self, shape: Sequence[int], dtype: Any) -> Node:
        """A tensor whose memory is set later."""
        kind = TYPES[np.dtype(dtype)]
        tensor = self.lib.new_tensor_4d(self.context, kind, *sizes(shape))
        return Node(self, tensor, shape, dtype)

    def lift(self, value: Any, dtype: Any = None) -> Node:
        """A node for an operand that may be an array or a number; equal objects share one."""
        if isinstance(value, Node):
            return value
        known = self._lifted.get(id(value))
        if known is not None and dtype is None:
            return known[1]
        array = np.ascontiguousarray(value, dtype)
        node = self.leaf(np.shape(value), array.dtype)
        self.constants[node.tensor] = (value, array)
        if dtype is None:
            self._lifted[id(value)] = (value, node)
        return node

    def made(self, tensor: int, shape: Sequence[int], dtype: Any = FLOAT) -> Node:
        """A node for a tensor that ggml computes."""
        if not tensor:
            raise MemoryError("ggml has no memory for another tensor")
        self.order.append(tensor)
        return Node(self, tensor, shape, dtype)

    def reshaped(self, node: Node, ne: Sequence[int]) -> int:
        """The same memory with other sizes (ggml's order)."""
        if sizes(node.shape) == tuple(ne):
            return node.tensor
        return self.lib.reshape_4d(self.context, node.tensor, *ne)

    def permuted(self, node: Node, order: Sequence[int], ne: Sequence[int] | None = None) -> int:
        """A copy in which ggml's axis i is axis order[i] of the node."""
        tensor = node.tensor if ne is None else self.reshaped(node, ne)
        to = [list(order).index(axis) for axis in range(DIMENSIONS)]
        view = self.lib.permute(self.context, tensor, *to)
        copy = self.lib.cont(self.context, view)
        self.order.append(copy)
        return copy

    # --- custom nodes -------------------------------------------------------------------------

    def custom(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Any, results: Any = None
    ) -> Any:
        """One of our functions as a node; `results` are arrays like its own, where they are known
        without a call."""
        step = Step(name, function, (args, kwargs))
        if results is None:
            results = _probed(name, function, args, kwargs)
        if isinstance(results, tuple | list):
            made: Any = tuple(self._result(step, i, like) for i, like in enumerate(results))
        else:
            made = self._result(step, None, results)
        if step.results:
            self.ways.append((name, "custom"))
        return made

    def _result(self, step: Step, place: int | None, like: Any) -> Any:
        if not isinstance(like, np.ndarray | np.generic):
            return like
        if like.size == 0:
            return np.asarray(like)
        sources = [node.tensor for node in step.nodes]
        if step.results:  # computed there; this one takes it over
            sources = [step.results[0][1].tensor]
        for tensor in sources[library.MOST_SOURCES - 1 :]:
            self.lib.set_output(tensor)  # nothing of the graph says that it is read
        own = sources[: library.MOST_SOURCES - 1]
        array = (ctypes.c_void_p * max(1, len(own)))(*own)
        kind = TYPES[like.dtype]
        tensor = self.lib.custom_4d(
            self.context, kind, *sizes(like.shape), array, len(own), NOTHING, 1, None
        )
        node = self.made(tensor, like.shape, like.dtype)
        self.steps[tensor] = (step, len(step.results))
        step.results.append((-1 if place is None else place, node))
        return node

    def counts(self) -> Counter[str]:
        return Counter(way for _, way in self.ways)


NOTHING = library.CALLBACK(lambda *_: None)  # in place of the graph's own until it is built


def struct(tensor: int) -> Tensor:
    return Tensor.from_address(tensor)


def set_custom(tensor: int, function: int | None, tasks: int, data: int) -> None:
    """Gives a custom node the address of what it calls, and what that gets."""
    words = (ctypes.c_void_p * 3)(function, tasks & 0xFFFFFFFF, data)
    ctypes.memmove(struct(tensor).op_params, words, ctypes.sizeof(words))


def nodes_of(value: Any) -> Iterator[Node]:
    """The nodes in a nest of lists, tuples and dictionaries."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from nodes_of(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from nodes_of(item)


def mapped(function: Callable[[Node], Any], value: Any) -> Any:
    """Returns the same nest with each node replaced by `function(node)`."""
    if isinstance(value, Node):
        return function(value)
    if type(value) in (tuple, list):
        return type(value)([mapped(function, item) for item in value])
    if isinstance(value, dict):
        return {key: mapped(function, item) for key, item in value.items()}
    return value


# Functions of matrices: of zeros some have no result.
_OF_MATRICES = frozenset(
    ["cholesky", "solve_triangular", "solve", "det", "scaled_det", "cofactor", "eigh", "qr", "svd"]
)


def _stand_in(node: Node, name: str) -> np.ndarray:
    """Returns an array that any function accepts: zeros, or identity matrices, broadcast."""
    if name in _OF_MATRICES and node.ndim > 1:
        return np.broadcast_to(np.eye(*node.shape[-2:], dtype=node.dtype), node.shape)
    return np.broadcast_to(np.zeros((), node.dtype), node.shape)


# Functions of the elements at one place: a single one of each operand says what comes out.
_POINTWISE_NAMES = (
    "add subtract multiply divide floor_divide remainder negate abs sqrt floor ceil round trunc"
    " isnan equal not_equal less less_equal greater greater_equal bitwise_and bitwise_or"
    " bitwise_xor bitwise_not shift_left shift_right shift_right_logical where exp expm1 exp2 log"
    " log1p log2 sin cos tanh power integer_power sign minimum maximum at_least at_most fma fms"
    " fnma scale astype bitcast threefry sigmoid erf erfc gelu gelu_tanh silu softplus rsqrt asin"
    " acos atan atan2 relu"
)
_POINTWISE = frozenset(_POINTWISE_NAMES.split())


def _probed(name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Returns the function's result for stand-ins: it has the shapes and dtypes of any result."""
    shapes = [node.shape for node in nodes_of((args, kwargs))]
    args, kwargs = mapped(lambda node: _stand_in(node, name), (args, kwargs))
    with np.errstate(all="ignore"):
        if name not in _POINTWISE:
            return function(*args, **kwargs)
        shapes += [x.shape for x in args if isinstance(x, np.ndarray)]
        single = (x[(slice(1),) * x.ndim] if isinstance(x, np.ndarray) else x for x in args)
        found = np.asarray(function(*single, **kwargs))
    return np.broadcast_to(np.zeros((), found.dtype), np.broadcast_shapes(*shapes))
