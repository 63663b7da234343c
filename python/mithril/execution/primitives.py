"""User-defined ops: their declarations, and the backends' functions that emitted text calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from mithril import _core
from mithril.base.checks import checked_str
from mithril.errors import ShapeError, SignatureError, UnsupportedError, shown
from mithril.execution import own_ops

__all__ = [
    "NAME",
    "Kept",
    "OpTable",
    "checked_kernel",
    "define_op",
    "formula_key_of",
    "formula_of",
    "has_gradient",
    "has_primitives",
    "is_opaque",
    "is_primitive",
    "named",
    "op_names",
    "uses_primitives",
]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USER_OP = re.compile(r"user_[0-9a-f]{16}_(.+?)(?:_vjp(\d+))?")
_NO_FUNCTION = re.compile(
    r"user_[0-9a-f]{16}_(.+?)(?:_vjp(\d+))?: the (\w+) backend cannot run it: it has no function of"
    r" that name(.*)",
    re.DOTALL,
)
_ops_called = re.compile(r"\bops\.(?:user|own)_")
# (formula key, what is said of its keys, of the output, whether it is opaque) -> op.
_ops: dict[tuple, str] = {}
_declared: dict[str, tuple[tuple, tuple]] = {}  # op -> what is said of its keys, of the output
_opaque_ops: set[str] = set()  # of Lambdas: what they call is an attribute of each node
_WITHOUT_BACKWARD, _WITH_BACKWARD = "opaque", "opaque_with_backward"


def formula_key_of(key: Any) -> str:
    name = checked_str("primitive: formula_key", key)
    if not NAME.fullmatch(name) or len(name) > 200:
        raise SignatureError(f"primitive: formula_key must be a Python name, got {shown(key)}")
    return name


def define_op(formula: str, rows: tuple, result: tuple, opaque: bool) -> str:
    """Returns the op of a formula key with keys declared like that; equal declarations share one.

    Its name follows from the declaration: files name it, and other processes declare it alike.
    """
    signature = (formula, rows, result, opaque)
    found = _ops.get(signature)
    if found is None:
        from hashlib import sha256  # loads OpenSSL: 2 ms that most processes need not wait for

        said = signature if opaque else signature[:3]
        digest = sha256(repr(said).encode()).hexdigest()[:16]
        found = f"user_{digest}_{formula}"
        _core.define_primitive(found, list(rows), result, opaque)
        _ops[signature] = found
        _declared[found] = (rows, result)
        if opaque:
            _opaque_ops.add(found)
    return found


def checked_kernel(fn: Any, fn_grad: Any) -> str:
    """Checks a kernel and its gradient; returns the kernel's name, which is its formula key."""
    for what, function in (("fn", fn), ("fn_grad", fn_grad)):
        if not callable(function) and not (what == "fn_grad" and function is None):
            raise SignatureError(
                f"register_primitive: {what} requires a function, got {shown(function)}"
            )
    return formula_key_of(getattr(fn, "__name__", ""))


class Kept:
    """The function that an opaque `Lambda` calls, and its gradient; an attribute of nodes."""

    def __init__(self, function: Callable[..., Any], backward: Callable[..., Any] | None):
        self.function = function
        self.backward: Any = backward

    @property
    def formula(self) -> str:
        return _WITHOUT_BACKWARD if self.backward is None else _WITH_BACKWARD


def _run_of_kept(backend: Any, op: str) -> Callable[..., Any]:
    def run(*inputs: Any, __function__: Kept, **named: Any) -> Any:
        return _called(backend, op, __function__.function, __function__.backward, inputs, named)

    return run


def _vjp_of_kept(backend: Any, place: int) -> Callable[..., Any]:
    def cotangent(*given: Any, __function__: Kept, **named: Any) -> Any:
        if __function__.backward is None:
            return _vjp_of_framework(backend, __function__.function, place)(*given, **named)
        return _vjp(backend, __function__.backward, place)(*given, **named)

    return cotangent


def _called(
    backend: Any,
    op: str,
    function: Callable[..., Any],
    backward: Callable[..., Any] | None,
    inputs: tuple[Any, ...],
    named: dict[str, Any],
) -> Any:
    """Calls the function; if there is a `backward`, the framework differentiates by it."""

    def run(*values: Any) -> Any:
        return _checked(op, function, values, named)

    def pull_back(grad_output: Any, output: Any, values: tuple[Any, ...]) -> list[Any]:
        part = _gradients(backend, backward, grad_output, output, values, named)
        return [part(i) if backend.dtype(x).is_float else None for i, x in enumerate(values)]

    if backward is None or backend.is_manualgrad:
        return run(*inputs)
    return backend.with_gradient(run, pull_back)(*inputs)


def _run_of(
    backend: Any, op: str, function: Callable[..., Any], backward: Callable[..., Any] | None
) -> Callable[..., Any]:
    def run(*inputs: Any, **named: Any) -> Any:
        return _called(backend, op, function, backward, inputs, named)

    return run


def _checked(
    op: str, function: Callable[..., Any], inputs: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """Calls the function and checks that its result has the shape that its keys declare.

    Raises
    ------
    ShapeError : the result has another shape
    """
    found = function(*inputs, **named)
    rows, (_, _, pattern) = _declared[op]
    got = getattr(found, "shape", None)
    if pattern is None or got is None:
        return found
    sizes: dict[str, Any] = {}
    shapes = [row[2] for row in rows if row[0] not in named]
    for declared, value in zip(shapes, inputs, strict=False):
        if declared is not None and hasattr(value, "shape"):
            _learn_sizes(declared, tuple(value.shape), sizes)
    wanted = _sizes_of(pattern, sizes)
    if wanted is not None and not _fits(tuple(got), wanted):
        name = getattr(function, "__qualname__", formula_of(op))
        raise ShapeError(
            f"{name}: requires a result of the shape {list(wanted)}, as its keys declare,"
            f" got {list(got)}"
        )
    return found


def _variadic(pattern: tuple) -> int | None:
    """Returns the place of the entry for any number of axes, such as `("Batch", ...)`, or None."""
    return next((i for i, entry in enumerate(pattern) if isinstance(entry, tuple)), None)


def _learn_sizes(pattern: tuple, shape: tuple[int, ...], sizes: dict[str, Any]) -> None:
    """Adds the sizes that an operand has for the names in a declared shape to `sizes`."""
    at = _variadic(pattern)
    if at is not None:
        count = len(shape) - len(pattern) + 1
        sizes.setdefault(pattern[at][0], shape[at : at + count])
        pattern = (*pattern[:at], *(None,) * count, *pattern[at + 1 :])
    for entry, size in zip(pattern, shape, strict=False):
        if isinstance(entry, str):
            sizes.setdefault(entry, size)


def _sizes_of(pattern: tuple, sizes: dict[str, Any]) -> tuple | None:
    """Returns a declared shape in numbers, None for unknown sizes; None where its rank is open."""
    out: list[Any] = []
    for entry in pattern:
        if isinstance(entry, tuple):
            if entry[0] not in sizes:
                return None
            out += sizes[entry[0]]
        else:
            out.append(entry if isinstance(entry, int) else sizes.get(entry))
    return tuple(out)


def _fits(shape: tuple, wanted: tuple) -> bool:
    return len(shape) == len(wanted) and all(
        size is None or size == own for own, size in zip(shape, wanted, strict=True)
    )


def _vjp_of_framework(backend: Any, function: Any, place: int) -> Callable[..., Any]:
    """Returns a gradient by the framework of a function that came without one."""

    def cotangent(grad_output: Any, _output: Any, *inputs: Any, **named: Any) -> Any:
        def of_one(value: Any) -> Any:
            return function(*inputs[:place], value, *inputs[place + 1 :], **named)

        return backend.vjp(of_one, [inputs[place]], cotangents=grad_output)[1][0]

    return cotangent


def _function(backend: Any, key: str) -> Callable[..., Any] | None:
    found = backend._kernel(key)
    if found is None and key.startswith("backward_"):
        found = getattr(type(backend), key, None)
        return None if found is None else getattr(backend, key)
    if found is None and key in backend.op_names:
        return getattr(backend.ops, key)
    return found


def op_names(backend: Any) -> list[str]:
    """Lists the user's ops, and gradients of them, that a backend can run."""
    out = []
    for (formula, rows, _, opaque), op in _ops.items():
        if not opaque and _function(backend, formula) is None:
            continue
        out.append(op)
        if has_gradient(backend, op) or not backend.is_manualgrad:
            out += [f"{op}_vjp{i}" for i in range(len(rows))]
    return out


def has_gradient(backend: Any, op: str) -> bool:
    """Tells whether a user's op came with its gradient, or the backend has one of its name."""
    match = _USER_OP.fullmatch(op)
    formula = match[1] if match else op
    if op in _opaque_ops:
        return formula == _WITH_BACKWARD
    return _function(backend, f"backward_{formula}") is not None


def has_primitives() -> bool:
    """Tells whether this process has declared any op of the user's."""
    return bool(_ops)


def is_primitive(op: str) -> bool:
    return op.startswith("user_") and _USER_OP.fullmatch(op) is not None


class OpTable:
    """The functions that emitted text calls: the backend's own, and those of the user's ops."""

    def __init__(self, backend: Any):
        self._backend = backend
        self._own_functions = own_ops.Functions(backend)

    def __getattr__(self, name: str) -> Any:
        match = _USER_OP.fullmatch(name)
        if match is None:
            own = self._own_functions.find(name)
            return getattr(self._backend.ops, name) if own is None else own
        formula, place = match.groups()
        if name.removesuffix(f"_vjp{place}") in _opaque_ops:
            if place is None:
                return _run_of_kept(self._backend, name)
            return _vjp_of_kept(self._backend, int(place))
        function: Any = _function(self._backend, formula)
        backward = _function(self._backend, f"backward_{formula}")
        if place is None:
            return _run_of(self._backend, name, function, backward)
        if backward is None:
            return _vjp_of_framework(self._backend, function, int(place))
        return _vjp(self._backend, backward, int(place))


def _vjp(backend: Any, backward: Any, place: int) -> Callable[..., Any]:
    def cotangent(grad_output: Any, output: Any, *inputs: Any, **named: Any) -> Any:
        return _gradients(backend, backward, grad_output, output, inputs, named)(place)

    return cotangent


def _gradients(
    backend: Any,
    backward: Any,
    grad_output: Any,
    output: Any,
    inputs: tuple[Any, ...],
    named: dict[str, Any],
) -> Callable[[int], Any]:
    """Returns a function that gives the gradient of the operand at a place, by the user's one."""
    what = getattr(backward, "__name__", "backward")
    values = (*inputs, *named.values())
    try:
        found = backward(grad_output, values, (output,))
    except TypeError:
        own_ops.checked_backward(backward, what)  # says what is wrong with its signature
        raise

    def part_at(place: int) -> Any:
        if isinstance(found, tuple | list):
            # Values that are no tensors may have gradients, which nobody reads.
            count = len(values) if len(found) == len(values) else len(inputs)
            part = own_ops.share(what, found, place, count)
        elif hasattr(found, "shape"):
            part = own_ops.share(what, found, place, len(values))
        else:
            part = found[place]  # made for each operand apart (`register_primitive`)
        return own_ops.checked_gradient(backend, what, part, place, inputs[place])

    return part_at


def is_opaque(op: str) -> bool:
    """Tells whether an op calls the function of an opaque `Lambda`, which has no name."""
    return op in _opaque_ops


def named(error: UnsupportedError) -> UnsupportedError:
    """Returns an error of emission with a user's op under the name that it is registered by."""
    match = _NO_FUNCTION.match(error.message)
    if match is None:
        return error
    formula, place, backend, rest = match.groups()
    if place is None:
        text = f"{formula}: the {backend} backend has no function of that name{rest}"
        hint = f"register one: backend.register_function({formula!r}, function)"
    else:
        text = f"{formula}: the {backend} backend has no gradient of it{rest}"
        if formula == _WITHOUT_BACKWARD:
            text = f"Lambda: the {backend} backend has no gradient of its function{rest}"
            hint = (
                "give it to ml.Lambda as backward=: a function (grad_output, inputs, outputs) that"
                " gives the gradients of the inputs"
            )
            return UnsupportedError(text, code=error.code, hint=hint, place=error.place)
        hint = (
            f'register "backward_{formula}": a function (grad_output, inputs, outputs)'
            " that gives the gradients of the inputs"
        )
    return UnsupportedError(text, code=error.code, hint=hint, place=error.place)


def formula_of(op: str) -> str:
    """Returns the name that a user's op is registered by; other ops keep their own."""
    match = _USER_OP.fullmatch(op)
    return op if match is None else match[1]


def uses_primitives(source: str) -> bool:
    """Tells whether emitted text calls an op that a user or a backend's class implements."""
    return _ops_called.search(source) is not None
