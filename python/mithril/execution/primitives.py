"""Ops of the user's: their declarations, and the functions of backends that emitted text calls."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from mithril import _core
from mithril.base.checks import checked_str
from mithril.errors import SignatureError, UnsupportedError, shown
from mithril.execution import own_ops

__all__ = [
    "NAME",
    "Kept",
    "OpTable",
    "checked_kernel",
    "define_op",
    "formula_key_of",
    "formula_of",
    "has_primitives",
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
_opaque_ops: set[str] = set()  # of Lambdas: what they call is an attribute of each node
_WITHOUT_BACKWARD, _WITH_BACKWARD = "opaque", "opaque_with_backward"


def formula_key_of(key: Any) -> str:
    name = checked_str("primitive: formula_key", key)
    if not NAME.fullmatch(name) or len(name) > 200:
        raise SignatureError(f"primitive: formula_key must be a Python name, got {shown(key)}")
    return name


def define_op(formula: str, rows: tuple, result: tuple, opaque: bool) -> str:
    """The op of a formula key whose keys are declared like that; equal declarations share one.

    Its name follows from the declaration: files name it, and other processes declare it alike.
    """
    signature = (formula, rows, result, opaque)
    found = _ops.get(signature)
    if found is None:
        said = signature if opaque else signature[:3]
        digest = hashlib.sha256(repr(said).encode()).hexdigest()[:16]
        found = f"user_{digest}_{formula}"
        _core.define_primitive(found, list(rows), result, opaque)
        _ops[signature] = found
        if opaque:
            _opaque_ops.add(found)
    return found


def checked_kernel(fn: Any, fn_grad: Any) -> str:
    """The formula key that a kernel is registered under: its name."""
    for what, function in (("fn", fn), ("fn_grad", fn_grad)):
        if not callable(function) and not (what == "fn_grad" and function is None):
            raise SignatureError(
                f"register_primitive: {what} requires a function, got {shown(function)}"
            )
    return formula_key_of(getattr(fn, "__name__", ""))


class Kept:
    """What an opaque Lambda calls. Nodes have it as an attribute, and keep it."""

    def __init__(self, function: Callable[..., Any], backward: Callable[..., Any] | None):
        self.function = function
        self.backward: Any = backward

    @property
    def formula(self) -> str:
        return _WITHOUT_BACKWARD if self.backward is None else _WITH_BACKWARD


def _call_kept(*inputs: Any, __function__: Kept, **named: Any) -> Any:
    return __function__.function(*inputs, **named)


def _vjp_of_kept(place: int) -> Callable[..., Any]:
    def cotangent(*given: Any, __function__: Kept, **named: Any) -> Any:
        return _vjp(__function__.backward, place)(*given, **named)

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
    """The user's ops that a backend has functions for."""
    out = []
    for (formula, rows, _, opaque), op in _ops.items():
        if not opaque and _function(backend, formula) is None:
            continue
        out.append(op)
        if opaque:
            has_backward = formula == _WITH_BACKWARD
        else:
            has_backward = _function(backend, f"backward_{formula}") is not None
        if has_backward:
            out += [f"{op}_vjp{i}" for i in range(len(rows))]
    return out


def has_primitives() -> bool:
    """Whether this process has declared any."""
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
            return _call_kept if place is None else _vjp_of_kept(int(place))
        if place is None:
            return _function(self._backend, formula)
        return _vjp(_function(self._backend, f"backward_{formula}"), int(place))


def _vjp(backward: Any, place: int) -> Callable[..., Any]:
    what = getattr(backward, "__name__", "backward")

    def cotangent(grad_output: Any, output: Any, *inputs: Any, **named: Any) -> Any:
        values = (*inputs, *named.values())
        try:
            found = backward(grad_output, values, (output,))
        except TypeError:
            own_ops.checked_backward(backward, what)  # says what is wrong with its signature
            raise
        if not hasattr(found, "shape"):
            return found[place]
        # An array alone is the gradient of one operand; its rows are no gradients.
        return own_ops.share(what, found, place, len(values))

    return cotangent


def named(error: UnsupportedError) -> UnsupportedError:
    """An error of emission that names a user's op, with the name that it is registered by."""
    match = _NO_FUNCTION.match(error.message)
    if match is None:
        return error
    formula, place, backend, rest = match.groups()
    if place is None:
        text = f"{formula}: the {backend} backend has no function of that name{rest}"
        hint = f"register one: backend.register_function({formula!r}, function)"
    else:
        text = f"{formula}: the {backend} backend has no gradient of it{rest}"
        hint = (
            f'register "backward_{formula}": a function (grad_output, inputs, outputs)'
            " that gives the gradients of the inputs"
        )
    return UnsupportedError(text, code=error.code, hint=hint, place=error.place)


def formula_of(op: str) -> str:
    """The name that a user's op is registered by; of other ops their own."""
    match = _USER_OP.fullmatch(op)
    return op if match is None else match[1]


def uses_primitives(source: str) -> bool:
    """Whether emitted text calls a user's op."""
    return _ops_called.search(source) is not None
