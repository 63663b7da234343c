"""Ops as methods of a backend.

Arguments are taken by place or by name, and operands are brought to the dtypes that the op's block
says; so a method gives what a model of the op gives. The function of the backend's `ops` runs it,
as it is called by emitted text; an op without one runs as a model of one op.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from mithril import _core, models
from mithril.base.arrays import is_device_array
from mithril.base.numpy import np
from mithril.base.trees import leaves
from mithril.errors import (
    ArgumentError,
    DataIndexError,
    DataOverflowError,
    DTypeError,
    MithrilError,
    ShapeError,
    SignatureError,
    shown,
    suggestion,
)
from mithril.execution.own_ops import SYNONYMS
from mithril.types import MISSING, TBD, Dtype

from . import op_programs
from .dtypes import compute_type
from .op_programs import MOST_PROGRAMS
from .recording import is_symbolic, op_of, record

__all__ = [
    "LAYERS",
    "MODELS",
    "MOST_PROGRAMS",
    "OF_ARGUMENTS",
    "find",
    "is_plain",
    "names",
    "typed",
]

_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation")
_ENTROPY = ("input", "target", "weights", "threshold")

# Methods that are ops under another name: those whose arguments are those of a layer (ints, pairs,
# "same"), and keys of kernels, with what these fix and their order of arguments where it differs.
LAYERS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "conv1d": ("convolution1d", {}, ()),
    "conv1d_bias": ("convolution1d", {}, _CONVOLUTION),
    "conv2d": ("convolution2d", {}, ()),
    "conv2d_bias": ("convolution2d", {}, (*_CONVOLUTION, "groups")),
    "max_pool1d": ("max_pooling1d", {}, ()),
    "max_pool2d": ("max_pooling2d", {}, ()),
    "avg_pool2d": ("avg_pooling2d", {}, ()),
    "batch_norm": ("batch_norm2d", {}, ()),
    "cross_entropy": ("cross_entropy", {"input_type": "probs"}, _ENTROPY),
    "cross_entropy_with_logits": ("cross_entropy", {"input_type": "logits"}, _ENTROPY),
    "cross_entropy_with_log_probs": ("cross_entropy", {"input_type": "log_probs"}, _ENTROPY[:3]),
    "binary_cross_entropy": (
        "binary_cross_entropy", {"input_type": "probs"}, ("input", "target", "threshold")
    ),
    "binary_cross_entropy_with_logits": (
        "binary_cross_entropy", {"input_type": "logits"}, ("input", "target", "threshold")
    ),
    "flatten": ("flatten", {"start_dim": 0}, ()),
    "linear_bias": ("linear", {}, ()),
    "primitive_slice": ("slice", {}, ()),
    "scaled_dot_product_attention": (
        "scaled_dot_product_attention", {"is_causal": False}, ("query", "key", "value", "attn_mask")
    ),
}  # fmt: skip

# Methods that are models of several ops: their keys in order.
MODELS = {
    "auc_core": ("AUCCore", ("input", "label")),
    "tsne_p_joint": ("TsnePJoint", ("squared_distances", "target_perplexity", "threshold")),
}

# Functions of tables that are called otherwise than the ops.
_FUNCTIONS = {"mod": "remainder", "logical_and": "bitwise_and", "logical_or": "bitwise_or",
              "logical_xor": "bitwise_xor", "logical_not": "bitwise_not"}  # fmt: skip

# Functions that are the op where all operands are bools.
_OF_BOOLS = {"subtract": "bitwise_xor"}

MOST_QUICK = 1024  # ways of calling that one backend remembers

_FIRST_RESULT_ONLY = ("topk",)  # the values, as the method is called in the reference


def find(backend: Any, name: str) -> Callable[..., Any] | None:
    """Returns the method of that name, or None where there is no such op."""
    if name in MODELS:
        return functools.partial(_call_model, backend, name)
    method = _method(name)
    if name == "conv2d" and method is not None:
        return functools.partial(_convolved, backend, method)
    return None if method is None else functools.partial(method.call, backend)


@functools.cache
def names() -> frozenset[str]:
    """Returns every name that `find` knows."""
    listed = {n for op in _core.ops() if op["python_name"] for n in (op["name"], *op["aliases"])}
    return frozenset({*listed, *LAYERS, *MODELS})


@functools.cache
def _method(name: str) -> _Method | None:
    op, fixed, order = LAYERS.get(name, (op_of(name), {}, ()))
    entry = next((e for e in _core.ops() if op in (e["name"], *e["aliases"])), None)
    if entry is None or not entry["python_name"]:
        return None
    return _Method(entry, fixed, order)


class _Method:
    """One op: what its arguments are, and in which dtypes they meet."""

    def __init__(self, entry: dict[str, Any], fixed: dict[str, Any], order: Sequence[str]):
        self.op = entry["name"]
        self._class = entry["python_name"]
        self._inputs = {i["name"]: i for i in entry["inputs"]}
        self._defaults = {
            **dict(entry["attrs"]),
            **{i["name"]: i["default"] for i in entry["inputs"]},
        }
        self._fixed = fixed
        connected = [name for name in entry["connect_order"] if name in self._inputs]
        usual = [*connected, *(name for name, _ in entry["attrs"])]
        self._order = order or usual
        self._compute, self._results = entry["compute"], entry["results"]
        self._promoted = [name for name, i in self._inputs.items() if i["is_promoted"]]
        self._switches = {i["when"] for i in entry["inputs"] if i["when"]}
        self._function = _FUNCTIONS.get(self.op, self.op)

    def call(self, backend: Any, *operands: Any, **named: Any) -> Any:
        known = backend.__dict__.setdefault("_quick_methods", {})
        is_on_device = backend.has_own_memory and any(
            map(is_device_array, leaves([*operands, *named.values()]))
        )
        key = None if is_on_device else self._key(backend, operands, named)
        if key is not None and key in known:
            function, names, dtypes = known[key]
            given = dict(zip(self._order, operands, strict=False))
            with backend._scope_of_dtypes(dtypes):
                arrays = {name: given[name] for name in names}
                return backend._as_array(self._called(backend, function, arrays))
        values = self._bind(operands, named)
        if any(map(is_symbolic, values.values())):
            return self._record(values)
        arrays, attributes = self._sorted(backend, values)
        given = {name: _dtype_of(backend, value) for name, value in arrays.items()}
        as_given = dict(arrays)
        compute = self._promote(backend, arrays, given)
        function = (
            None if is_on_device else self._table_function(backend, arrays, attributes, compute)
        )
        result = self._run(backend, arrays, attributes, given, function)
        settled = self._cast_result(backend, result, given, compute)
        same = settled is result and all(arrays[n] is x for n, x in as_given.items())
        if key is not None and function is not None and same:
            if len(known) >= MOST_QUICK:
                known.clear()
            known[key] = (function, tuple(arrays), tuple(d for d in given.values() if d))
        return settled

    def _key(self, backend: Any, operands: Sequence[Any], named: dict[str, Any]) -> Any:
        """Equal for calls that run the same function in the same way; None where that is not quick
        to see."""
        parts: list[Any] = [self, len(operands)]
        for name, value in zip(self._order, operands, strict=False):
            if backend._is_native(value):
                parts.append(value.dtype)
            elif name in self._promoted and type(value) in (int, float):
                parts.append(type(value))
            elif _is_plain(value):
                parts += (type(value), value)
            else:
                return None
        for name, value in named.items():
            if not _is_plain(value):
                return None
            parts += (name, type(value), value)
        return tuple(parts)

    # --- arguments --------------------------------------------------------------------------------

    def _bind(self, operands: Sequence[Any], named: dict[str, Any]) -> dict[str, Any]:
        if len(operands) > len(self._order):
            told = ", ".join(self._order)
            raise SignatureError(
                f"{self.op} takes {len(self._order)} operands ({told}), got {len(operands)}"
            )
        values = {**self._fixed, **dict(zip(self._order, operands, strict=False))}
        for name, value in named.items():
            key = name if name in self._defaults else SYNONYMS.get(name, name)
            if key not in self._defaults:
                near = suggestion(name, list(self._defaults))
                raise SignatureError(f"{self.op}: has no argument {name!r}{near}")
            if key in values and key not in self._fixed:
                raise SignatureError(f"{self.op}: {key!r} is given twice")
            values[key] = value
        keepdim = values.get("keepdim", False)  # libraries take numbers, or say so in their words
        if not (isinstance(keepdim, bool | np.bool_) or is_symbolic(keepdim)):
            raise DTypeError(
                f"{self.op}: keepdim requires a bool, got {shown(keepdim)}", code="MTH202"
            )
        for name, declared in self._inputs.items():
            required = declared["default"] is MISSING and not declared["optional"]
            if required and name not in values and name != "rng_key":
                raise SignatureError(f"{self.op}: requires {name!r}")
        return values

    def _record(self, values: dict[str, Any]) -> Any:
        """Operands go by place as far as they are given, so that optional ones are made."""
        order = [name for name in self._order if name in self._inputs]
        count = next((i for i, name in enumerate(order) if name not in values), len(order))
        operands = tuple(values[name] for name in order[:count])
        rest = {name: value for name, value in values.items() if name not in order[:count]}
        return record(self.op, operands, rest)

    def _sorted(
        self, backend: Any, values: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Operands that are data, and all else; numbers beside arrays stay numbers for now."""
        arrays: dict[str, Any] = {}
        attributes = dict(values)
        numbers = {}
        for name, declared in self._inputs.items():
            value: Any = attributes.get(name)
            is_tensor = "tensor" in declared["type"] and not declared["is_key"]
            if not declared["kinds"] & _any_tensor() and _is_array(backend, value):
                attributes[name] = value = value.tolist()  # a threshold, an axis, a shape
            if declared["when"]:
                attributes.setdefault(declared["when"], value is not None)
            if value is None and declared["optional"]:
                attributes.pop(name, None)
            elif declared["variadic"] and is_tensor and isinstance(value, list | tuple):
                arrays[name] = [_array(backend, item) for item in attributes.pop(name)]
            elif _is_array(backend, value) or (is_tensor and isinstance(value, list)):
                arrays[name] = _array(backend, attributes.pop(name))
            elif is_tensor and declared["default"] is MISSING and name in attributes:
                numbers[name] = attributes.pop(name)
        for name, value in numbers.items():
            weak = name in self._promoted and arrays and isinstance(value, int | float)
            arrays[name] = value if weak else _array(backend, value)
        return {name: arrays[name] for name in self._inputs if name in arrays}, attributes

    # --- dtypes -----------------------------------------------------------------------------------

    def _promote(self, backend: Any, arrays: dict[str, Any], given: dict[str, Any]) -> Dtype | None:
        """Casts the operands that the computation promotes, in place; gives their dtype."""
        promoted = [name for name in self._promoted if name in arrays]
        dtypes = [d for name in promoted for d in _listed(given[name]) if d is not None]
        numbers = [arrays[name] for name in promoted if given[name] is None]
        compute = compute_type(backend, self._compute, dtypes, numbers) if dtypes else None
        for name, dtype in given.items():
            self._check_kind(name, compute if compute and name in promoted else dtype)
        if compute is not None:
            arrays |= {name: _met(backend, arrays[name], compute) for name in promoted}
        return compute

    def _check_kind(self, name: str, dtypes: Any) -> None:
        for dtype in _listed(dtypes):
            if dtype is not None and not self._inputs[name]["kinds"] & _kinds()[_kind(dtype)]:
                raise DTypeError(
                    f"{self.op}: {name} requires {self._inputs[name]['type']}, got {dtype}",
                    code="MTH202",
                )

    def _cast_result(
        self, backend: Any, result: Any, given: dict[str, Any], compute: Dtype | None
    ) -> Any:
        if isinstance(result, tuple):
            if self.op in _FIRST_RESULT_ONLY:
                return self._cast_result(backend, result[0], given, compute)
            return tuple(
                _in_dtype(backend, x, self._dtype_of_result(backend, i, given, compute))
                for i, x in enumerate(result)
            )
        return _in_dtype(backend, result, self._dtype_of_result(backend, 0, given, compute))

    def _dtype_of_result(
        self, backend: Any, at: int, given: dict[str, Any], compute: Dtype | None
    ) -> Dtype | None:
        rule, _, name = (self._results[at] if at < len(self._results) else "").partition(" ")
        if rule == "input":
            return given.get(name)
        known = {"compute": compute, "bool": Dtype.bool, "default_int": backend.default_int}
        return known.get(rule, backend.default_dtype if rule == "default_float" else None)

    # --- running ----------------------------------------------------------------------------------

    def _run(
        self,
        backend: Any,
        arrays: dict[str, Any],
        attributes: dict[str, Any],
        given: dict[str, Any],
        function: Callable[..., Any] | None,
    ) -> Any:
        if function is not None:
            dtypes = [d for x in given.values() for d in _listed(x) if d is not None]
            with backend._scope_of_dtypes(dtypes):
                return backend._as_array(self._called(backend, function, arrays))
        numbers = {name: value for name, value in arrays.items() if given[name] is None}
        if numbers:
            dtype = next(backend.dtype(arrays[n]) for n in self._promoted if given.get(n))
            arrays |= {name: _number(backend, value, dtype) for name, value in numbers.items()}
        opened = [name for name in arrays if self._inputs[name]["default"] is not MISSING]

        def make() -> Any:

            # Given as arrays: no default holds.
            return getattr(models, self._class)(**attributes, **dict.fromkeys(opened, TBD))

        key = (self.op, repr(sorted(attributes.items())))
        return op_programs.run(backend, key, make, arrays)

    def _table_function(
        self,
        backend: Any,
        arrays: dict[str, Any],
        attributes: dict[str, Any],
        compute: Dtype | None,
    ) -> Callable[..., Any] | None:
        """The function of the backend for this op, with its attributes; None where it has none."""
        name = _OF_BOOLS.get(self.op) if compute is Dtype.bool else None
        name = name or self._function
        wired = any(self._inputs[operand]["is_key"] for operand in arrays)
        if wired or name not in backend.op_names:
            return None
        function = getattr(backend.ops, name)
        taken = _parameters(function)
        options = {}
        for key, value in attributes.items():
            if key in taken:
                options[key] = value
            elif key not in self._switches and not _equal(value, self._defaults[key]):
                return None
        return functools.partial(function, **options) if options else function

    def _called(self, backend: Any, function: Callable[..., Any], arrays: dict[str, Any]) -> Any:
        """By place, as emitted text does; behind an operand that is not there, by name."""
        wires = [name for name, declared in self._inputs.items() if not declared["is_key"]]
        gap = next((i for i, name in enumerate(wires) if name not in arrays), len(wires))
        named = {name: value for name, value in arrays.items() if name not in wires[:gap]}
        try:
            return function(*(arrays[name] for name in wires[:gap]), **named)
        except OF_ARGUMENTS as error:
            raise backend._error_of_table(self.op, error, list(arrays.values())) from None


def _call_model(backend: Any, name: str, *operands: Any, **named: Any) -> Any:

    class_name, keys = MODELS[name]
    if len(operands) > len(keys) or named.keys() - set(keys[len(operands) :]):
        raise SignatureError(
            f"{name} takes {', '.join(keys)}, got {len(operands)} operands"
            + "".join(f" and {key}" for key in named)
        )
    values = {**dict(zip(keys, operands, strict=False)), **named}
    if any(map(is_symbolic, values.values())):
        return getattr(models, class_name)()(**values)
    arrays = {key: _array(backend, value) for key, value in values.items()}
    return op_programs.run(
        backend, (name,), getattr(models, class_name), arrays, is_data_dependent=name == "auc_core"
    )


_CONV2D = ("input", "weight", "kernel_size", "stride", "padding")


def _convolved(backend: Any, method: _Method, *operands: Any, **named: Any) -> Any:
    """As the documents call it, ``conv2d(x, filters, kernel_size, strides=(1, 1),
    padding="SAME")``; without `kernel_size` the filters have it, and the layer's defaults hold."""
    if len(operands) > len(_CONV2D):
        raise SignatureError(
            f"conv2d takes {len(_CONV2D)} operands ({', '.join(_CONV2D)}), got {len(operands)}"
        )
    values = dict(zip(_CONV2D, operands, strict=False))
    for name, value in named.items():
        key = "input" if name == "x" else SYNONYMS.get(name, name)
        if key in values:
            raise SignatureError(f"conv2d: {key!r} is given twice")
        values[key] = value
    size = values.pop("kernel_size", None)
    if size is not None:
        _check_kernel_size(size, values.get("weight"))
        values.setdefault("padding", "same")
    return method.call(backend, **values)


def _check_kernel_size(size: Any, filters: Any) -> None:
    wanted = (size, size) if isinstance(size, int) else tuple(size)
    shape = getattr(filters, "shape", None)
    if isinstance(shape, tuple | list) and tuple(shape[2:]) != wanted:
        raise ShapeError(
            f"conv2d: kernel_size requires the size of the filters, got {list(wanted)}"
            f" and filters {list(shape)}"
        )


@functools.cache
def _parameters(function: Any) -> frozenset[str]:
    """Names that a function of a table takes; those of C tell none, and take no attributes."""
    try:
        return frozenset(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        return frozenset()


@functools.cache
def _kinds() -> dict[str, int]:

    return {kind: _core.kinds()[f"tensor_{kind}"] for kind in ("bool", "int", "float")}


def _any_tensor() -> int:
    return sum(_kinds().values())


def _kind(dtype: Dtype) -> str:
    return "bool" if dtype is Dtype.bool else "float" if dtype.is_float else "int"


def _is_plain(value: Any) -> bool:
    if type(value) is tuple:
        return all(type(item) is int for item in value)
    return value is None or type(value) in (int, float, bool, str)


def _equal(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_array(backend: Any, value: Any) -> bool:
    """Tells whether a value is an array, of this backend or of another library."""
    return backend._is_native(value) or (
        isinstance(value, np.ndarray | np.generic) or hasattr(value, "__dlpack__")
    )


def _array(backend: Any, value: Any) -> Any:
    return value if backend._is_native(value) else backend.tensor(value)


def _dtype_of(backend: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [backend.dtype(item) for item in value]
    return backend.dtype(value) if _is_array(backend, value) else None


def _met(backend: Any, value: Any, dtype: Dtype) -> Any:
    if isinstance(value, list):
        return [_met(backend, item, dtype) for item in value]
    if backend._is_native(value):
        return op_programs.cast(backend, value, dtype)
    # Numbers beside narrow types could widen them, or not fit.
    return _number(backend, value, dtype) if dtype.itemsize < 4 else value


def _number(backend: Any, value: Any, dtype: Dtype) -> Any:
    return backend._from_host(np.asarray(value).astype(dtype.numpy()))


def _in_dtype(backend: Any, result: Any, dtype: Dtype | None) -> Any:
    if dtype is None or not backend._is_native(result):
        return result
    return op_programs.cast(backend, result, dtype)


# What libraries raise of arguments that a function cannot take.
OF_ARGUMENTS = (ValueError, TypeError, IndexError, OverflowError, RuntimeError)
_OF_AXES = re.compile(r"\b(axis|axes|dim|dimension)\b.* out of (range|bounds)|invalid axis", re.I)
_OF_SHAPES = re.compile(r"shape|size|dimension|broadcast|rank|-?\bD\b")
_NOT_OF_ARGUMENTS = re.compile(
    r"memory|alloc|RESOURCE|device|grad|not implemented|INTERNAL|\btrac(er|ing)", re.I
)
_OF_SIGNATURES = "incompatible function arguments"  # of MLX, with all that functions take
_LONGEST_SAID = 300


def is_plain(error: Exception) -> bool:
    """Tells whether a framework's exception is of arguments: a class of Python's, and neither of
    memory, nor of a device, nor of what the framework does with functions."""
    if type(error) is OverflowError or _OF_SIGNATURES in str(error):
        return True
    return type(error) in OF_ARGUMENTS and not _NOT_OF_ARGUMENTS.search(str(error))


def _said(error: Exception) -> str:
    """Returns the first line of an error, without the function name in front (MLX)."""
    line = re.sub(r"^\[\w+\]\s*", "", (str(error).splitlines() or [""])[0])
    line = line.partition(" [original->remapped]")[0]  # which shows them as tuples
    return line[:_LONGEST_SAID].strip().rstrip(".,:") or type(error).__name__


def typed(op: str, error: Exception, operands: Sequence[Any]) -> MithrilError:
    """Converts a library's exception to ours, with the op, its requirement and the given shapes."""
    shapes = [list(x.shape) for x in leaves(list(operands)) if hasattr(x, "shape")]
    got = " and ".join(map(str, shapes)) or shown(operands)
    text = f"{op}: {_said(error)}, got {got}"
    if isinstance(error, np.exceptions.AxisError) or _OF_AXES.search(str(error)):
        return ArgumentError(text, code="MTH302")
    if isinstance(error, TypeError | RuntimeError) and shapes and _OF_SHAPES.search(str(error)):
        return ShapeError(text)
    if isinstance(error, IndexError):
        return DataIndexError(text)
    if isinstance(error, OverflowError):
        return DataOverflowError(text)
    if isinstance(error, TypeError):
        return DTypeError(text, code="MTH202")
    return ShapeError(text) if shapes else ArgumentError(text)
