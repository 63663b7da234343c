"""Ops and gradients of ops that a backend's class implements itself.

A method of a class that is not of this package and has the name of an op *is* that op on the
backend: compiled models call it, and so do programs of gradients. ``backward_<op>`` is the op's
gradient. In graphs other ops stand for these (csrc/passes/own_ops.h): ``own_f_tanh`` with a
function of its own, ``own_g_tanh`` with a gradient of its own, ``own_fg_tanh`` with both.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import re
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from mithril import _core
from mithril.base.numpy import np
from mithril.errors import (
    KeyNotFound,
    MithrilWarning,
    ShapeError,
    SignatureError,
    UnsupportedError,
    warn,
)
from mithril.types import MISSING

__all__ = [
    "Functions",
    "are_brought",
    "checked_backward",
    "emitted_names",
    "idle_gradients",
    "is_gradient",
    "is_of_user",
    "is_own",
    "makes_arrays",
    "misspelt",
    "runs_graphs",
    "share",
    "names",
    "offer_to_super",
]

_BACKWARD = "backward_"
_LISTS = ("split", "chunk", "tensor_to_list")  # ops whose one result is a list

# Other names of arguments of methods, where the op has none of that name.
SYNONYMS = {
    "filters": "weight", "strides": "stride", "dim": "axis", "keepdims": "keepdim",
    "min": "min_val", "max": "max_val", "inputs": "input",
}  # fmt: skip

_paused = threading.local()


@contextlib.contextmanager
def paused(op: str) -> Iterator[None]:
    """Ignores the backend class's own version of the op within the block, so that this version may
    call the built-in op."""
    before = paused_ops()
    _paused.ops = before | {op}
    try:
        yield
    finally:
        _paused.ops = before


def paused_ops() -> frozenset[str]:
    return getattr(_paused, "ops", frozenset())


_OWN = re.compile(r"own_(f?)(g?)_(.+?)(?:_vjp(\d+))?")


def names(backend: Any) -> tuple[dict[str, str], dict[str, str]]:
    """Returns the ops with functions of the backend's class, and those with gradients alone, each
    mapped to the op that stands for it."""
    cls: Any = type(backend)
    return _names(cls, paused_ops())


def are_brought(backend: Any) -> bool:
    """Tells whether the backend's class implements any op or gradient."""
    functions, gradients = names(backend)
    return bool(functions or gradients)


def is_of_user(backend: Any) -> bool:
    """Tells whether the backend's class is not of this package."""
    return not _is_ours(type(backend))


def makes_arrays(backend: Any) -> bool:
    """Tells whether the backend's class has a `tensor` that is not of this package."""
    cls: Any = type(backend)
    return _is_brought(cls, "tensor")


def runs_graphs(backend: Any) -> bool:
    """Tells whether the backend's class has an `execute` that is not of this package."""
    cls: Any = type(backend)
    return _is_brought(cls, "execute")


@functools.cache
def _is_brought(cls: type, name: str) -> bool:
    owner = next(owner for owner in cls.__mro__ if name in vars(owner))
    return not _is_ours(owner)


@functools.cache
def _names(cls: type, paused: frozenset[str]) -> tuple[dict[str, str], dict[str, str]]:
    if not paused:  # once for each class
        for text in misspelt(cls).values():
            warn(f"{cls.__name__}: {text}", MithrilWarning)
    brought = _brought(cls)
    functions: dict[str, str] = {}
    gradients: dict[str, str] = {}
    for op in {name.removeprefix(_BACKWARD) for name in brought} - paused:
        has_function, has_gradient = op in brought, _BACKWARD + op in brought
        own = _core.define_own_op(op, has_function, has_gradient)
        (functions if has_function else gradients)[op] = own
    return functions, gradients


def emitted_names(backend: Any) -> list[str]:
    """Lists ops of graphs that emitted text calls by name, as the class implements them."""
    functions, gradients = names(backend)
    out = list(functions.values())
    for op, own in (functions | gradients).items():
        if is_gradient(own):
            out += [f"{own}_vjp{i}" for i in range(len(_core.find_op(op)["inputs"]))]
    return out


def is_own(op: str) -> bool:
    """Tells whether an op of a graph stands for one that a backend's class implements."""
    return op.startswith("own_") and _OWN.fullmatch(op) is not None


def is_gradient(op: str) -> bool:
    """Tells whether an op stands for one whose gradient a backend's class implements."""
    match = _OWN.fullmatch(op) if op.startswith("own_") else None
    return match is not None and match[2] == "g"


def offer_to_super(base: type, cls: type) -> None:
    """Makes ops of `cls` attributes of `base`, so that ``super().tanh(x)`` finds them."""
    for name in _ops_among(cls):
        if not name.startswith(_BACKWARD) and not hasattr(base, name):
            setattr(base, name, _Inherited(name))


class _Inherited:
    """The built-in op as a method, which ``super()`` finds."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else instance._op(self._name)


def _brought_by(backend: Any) -> dict[str, str]:
    cls: Any = type(backend)
    return _brought(cls)


@functools.cache
def _brought(cls: type) -> dict[str, str]:
    """Maps ``op`` and ``backward_op`` to names of methods of classes outside this package."""
    found: dict[str, str] = {}
    for owner in reversed(cls.__mro__):
        if not _is_ours(owner):
            found |= {op: name for name, op in _ops_among(owner).items()}
    return found


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "mithril"


def _ops_among(cls: type) -> dict[str, str]:
    """Maps names of a class's functions that are ops or gradients of ops to ``(backward_)op``.
    Those that backends of this package have anyhow (`shape`, `eye`, `randn`) are no ops."""
    above = next((owner for owner in cls.__mro__ if _is_ours(owner)), object)
    out = {}
    for name, value in vars(cls).items():
        if not inspect.isfunction(value) or name.startswith("_"):
            continue
        inherited = inspect.getattr_static(above, name, None)
        plain = name.removeprefix(_BACKWARD)
        op = _op(plain)
        if op is not None and (inherited is None or isinstance(inherited, _Inherited)):
            out[name] = op if plain == name else _BACKWARD + op
    return out


@functools.cache
def misspelt(cls: type) -> dict[str, str]:
    """Maps methods of a user's class that are almost called like an op to a message about it."""
    known = [op["name"] for op in _core.ops() if not op["name"].startswith(("own_", "user_"))]
    out = {}
    for name in _strangers(cls):
        near = _near(name.removeprefix(_BACKWARD), known)
        if near:
            prefix = _BACKWARD if name.startswith(_BACKWARD) else ""
            out[name] = f"{name}: no op has this name; did you mean {prefix}{near}?"
    return out


def idle_gradients(backend: Any) -> dict[str, str]:
    """Maps methods ``backward_<name>`` without an op or function of that name to a message."""
    names = (name for name in _strangers(type(backend)) if name.startswith(_BACKWARD))
    idle = [name for name in names if backend._kernel(name.removeprefix(_BACKWARD)) is None]
    return {name: f"{name}: no op or registered function is called like that" for name in idle}


def _strangers(cls: type) -> list[str]:
    """Lists a user's methods that are neither ops nor methods of this package's classes."""
    above = next((owner for owner in cls.__mro__ if _is_ours(owner)), object)
    return [
        name
        for owner in cls.__mro__
        if not _is_ours(owner)
        for name, value in vars(owner).items()
        if inspect.isfunction(value) and not name.startswith("_") and not hasattr(above, name)
        if _op(name.removeprefix(_BACKWARD)) is None
    ]


def _near(name: str, known: list[str]) -> str:
    """Returns an op with the same letters in another order, else a very similar one, else ""."""
    from difflib import get_close_matches

    letters = sorted(name)
    swapped = [op for op in known if sorted(op) == letters and op != name]
    near = get_close_matches(name, swapped or known, 1, 0.0 if swapped else 0.85)
    return near[0] if near else ""


@functools.cache
def _op(name: str) -> str | None:
    try:
        known = _core.find_op(name)
    except KeyNotFound:
        return None
    return None if known["name"].startswith(("own_", "user_")) else known["name"]


# --- calls ----------------------------------------------------------------------------------------


class Functions:
    """The functions of a backend's class that emitted text calls as ``ops.<name>``."""

    def __init__(self, backend: Any) -> None:
        self._backend, self._brought = backend, _brought_by(backend)
        # How a method is called is found out once, for the method that it was then.
        self._made: dict[str, tuple[Any, Callable[..., Any]]] = {}

    def find(self, name: str) -> Callable[..., Any] | None:
        """Returns the function; None where the class implements none for the name."""
        match = _OWN.fullmatch(name)
        if match is None:
            # An instruction inside of another op's body, such as the tanh of gelu.
            is_brought = name in self._brought and name not in paused_ops()
            return self._function(name, name, None) if is_brought else None
        return self._function(name, match[3], match[4])

    def _function(self, name: str, op: str, place: str | None) -> Callable[..., Any]:
        method = self._brought[op if place is None else _BACKWARD + op]
        own = getattr(self._backend, method)
        made = self._made.get(name)
        if made is None or made[0] != own:
            if place is None:
                run = _forward(self._backend, op, own, method)
            else:
                run = _vjp(self._backend, op, own, method, int(place))
            self._made[name] = made = (own, run)
        return made[1]


def _forward(backend: Any, op: str, own: Any, method: str) -> Callable[..., Any]:
    call = _Call(op, own, f"{type(backend).__name__}.{method}")
    is_one = len(_core.find_op(op)["outputs"]) == 1 and op not in _LISTS

    def run(*operands: Any, **attributes: Any) -> Any:
        given, named = call.arguments([_given(backend, x) for x in operands], attributes)
        with paused(op):
            result = own(*given, **named)
        if is_one and isinstance(result, tuple | list):
            raise SignatureError(
                f"{call.what}: requires an array as its result, got {type(result).__name__}"
            )
        return _taken(backend, call.what, result)

    return run


def _vjp(backend: Any, op: str, own: Any, method: str, place: int) -> Callable[..., Any]:
    what = f"{type(backend).__name__}.{method}"
    keys = [i["name"] for i in _core.find_op(op)["inputs"]]
    attributes = [name for name, _ in _core.find_op(op)["attrs"]]
    taken = checked_backward(own, what, {*keys, *attributes})

    def run(cotangent: Any, result: Any, *operands: Any, **named: Any) -> Any:
        values = dict(zip(keys, operands, strict=False))
        values |= {key.removeprefix("of_"): value for key, value in named.items()}
        tensors = {key: values.pop(key) for key in keys if hasattr(values.get(key), "shape")}
        inputs = tuple(_given(backend, x) for x in tensors.values())
        if not taken.takes_names:
            values = {key: value for key, value in values.items() if key in taken.names}
        found = own(_given(backend, cotangent), inputs, (_given(backend, result),), **values)
        at = list(tensors).index(keys[place])
        part = share(what, found, at, len(inputs))
        out = _taken(backend, what, backend.zeros_like(inputs[at]) if part is None else part)
        return checked_gradient(backend, what, out, at, tensors[keys[place]])

    return run


def checked_gradient(backend: Any, what: str, gradient: Any, at: int, operand: Any) -> Any:
    """Returns the gradient that a user's function gave for an operand, zeros for None.

    Raises
    ------
    ShapeError : it has another shape than the operand
    """
    if gradient is None:
        return backend.zeros_like(operand)
    got, wanted = list(getattr(gradient, "shape", ())), list(operand.shape)
    if got != wanted:
        raise ShapeError(
            f"{what}: the gradient of operand {at} requires its shape {wanted}, got {got}"
        )
    return gradient


def share(what: str, found: Any, at: int, count: int) -> Any:
    """Returns operand `at`'s gradient from a method's result: a tuple of `count`, or an array."""
    if not isinstance(found, tuple | list):
        if at == 0:
            return found
        raise SignatureError(
            f"{what}: requires a tuple with a gradient for each operand, got one array"
        )
    if not at < len(found) <= count:
        raise SignatureError(
            f"{what}: requires a gradient for each of {count} operands, got {len(found)}"
        )
    return found[at]


def _given(backend: Any, value: Any) -> Any:
    """Converts an operand to an array of the backend."""
    if isinstance(value, list):
        return [_given(backend, item) for item in value]
    if not hasattr(value, "shape") or backend._runs_own_arrays:
        return value
    return backend._from_host(value)


def _taken(backend: Any, what: str, result: Any) -> Any:
    """Converts a method's result to what functions of `ops` return."""
    if isinstance(result, tuple | list):
        return tuple(_taken(backend, what, item) for item in result)
    if type(result) in (float, int, bool):  # NumPy's float64 is a float, and has a type
        return backend.to_numpy(backend.tensor(result))
    if not hasattr(result, "shape"):
        raise SignatureError(
            f"{what}: requires an array as its result, got {type(result).__name__}"
        )
    _check_kind(backend, what, result)
    return result if backend._runs_own_arrays else backend.to_numpy(result)


def _check_kind(backend: Any, what: str, result: Any) -> None:
    """Raises for arrays of other libraries, which would run along unseen or fail far from here."""
    known = _KINDS.get(type(backend)) or _kinds_of(backend)
    if not isinstance(result, known):
        own = " or ".join(sorted({_full_name(kind) for kind in known[:1]}))
        raise SignatureError(
            f"{what}: requires an array of the backend as its result ({own}),"
            f" got {_full_name(type(result))}",
            hint="convert it, such as by self.tensor(result)",
        )


_KINDS: weakref.WeakKeyDictionary[type, tuple[type, ...]] = weakref.WeakKeyDictionary()


def _kinds_of(backend: Any) -> tuple[type, ...]:
    """Returns the types of arrays that a backend makes; where NumPy runs what it lacks, NumPy's."""
    kinds: tuple[type, ...]
    if backend._runs_own_arrays:
        kinds = (backend.get_backend_array_type(),)
        is_numpy = kinds[0] is np.ndarray
    else:
        kinds, is_numpy = (type(backend.tensor(0.0)), type(backend.zeros((1,)))), True
    found = (*kinds, np.ndarray, np.generic) if is_numpy else kinds
    return _KINDS.setdefault(type(backend), found)


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class _Taken(NamedTuple):
    """The parameters of a function: those by position and those by name."""

    names: list[str]
    required: list[str]  # of these without a default
    by_place_only: list[str]
    most_places: float
    takes_places: bool
    takes_names: bool
    text: str  # "(x, alpha)"


def _parameters(function: Any, what: str) -> _Taken:
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        raise UnsupportedError(f"{what}: its arguments cannot be told") from None
    parameters = signature.parameters.values()
    kinds = [p.kind for p in parameters]
    one = inspect.Parameter
    named = [p for p in parameters if p.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    takes_places = one.VAR_POSITIONAL in kinds
    return _Taken(
        names=[p.name for p in named],
        required=[p.name for p in named if p.default is p.empty],
        by_place_only=[p.name for p in named if p.kind == one.POSITIONAL_ONLY],
        most_places=math.inf if takes_places else len(named) - kinds.count(one.KEYWORD_ONLY),
        takes_places=takes_places,
        takes_names=one.VAR_KEYWORD in kinds,
        text=str(signature.replace(return_annotation=signature.empty)),
    )


def checked_backward(function: Any, what: str, options: Collection[str] = ()) -> _Taken:
    """Returns the parameters of a gradient rule (grad_output, inputs, outputs), checked.

    Raises
    ------
    SignatureError : it cannot be called with these three
    """
    taken = _parameters(function, what)
    rest = [name for name in taken.required if name in taken.names[3:] and name not in options]
    if taken.most_places >= 3 and not rest:
        return taken
    name = what.rpartition(".")[2]
    raise SignatureError(
        f"{what}: requires the signature {name}(grad_output, inputs, outputs), got"
        f" {name}{taken.text}",
        hint="it is called by place with the gradient of the output, a tuple of the operands and"
        " a tuple of the results",
    )


class _Call:
    """Matches the arguments of an op of a graph to the parameters of a user's method."""

    def __init__(self, op: str, own: Callable[..., Any], what: str) -> None:
        entry = _core.find_op(op)
        self.what, self._op = what, op
        self._inputs = [i["name"] for i in entry["inputs"] if not i["is_key"]]
        self._defaults = {
            **dict(entry["attrs"]),
            **{i["name"]: i["default"] for i in entry["inputs"]},
        }
        self._taken = _parameters(own, what)
        self._attributes = [key for key in self._defaults if key not in self._inputs]
        known = {*self._defaults, *self._inputs}
        # Parameter of the method -> key of the op.
        self._key_of = {
            name: name if name in known else SYNONYMS.get(name, name) for name in self._taken.names
        }

    def arguments(
        self, operands: list[Any], attributes: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Returns arguments by position and by name: an operand goes to the parameter of its name,
        else to the next one; attributes go by name."""
        values = dict(zip(self._inputs, operands, strict=False))
        values |= attributes
        if "kernel_size" in self._taken.names and "kernel_size" not in values:
            values["kernel_size"] = tuple(values["weight"].shape[2:])
        named, unnamed = {}, []
        for parameter, key in self._key_of.items():
            if key in values:
                named[parameter] = values.pop(key)
            else:
                unnamed.append(parameter)
        left = [key for key in self._inputs if key in values]
        for parameter, key in zip(unnamed, left, strict=False):
            named[parameter] = values.pop(key)
        missing = [name for name in self._taken.required if name not in named]
        if missing:
            raise self._refused(f"nothing is given for {missing[0]!r}")
        by_place = self._taken.by_place_only
        if self._taken.takes_places:
            by_place = self._taken.names
        given = [named.pop(name) for name in by_place if name in named]
        if self._taken.takes_places:
            given += [values.pop(key) for key in self._inputs if key in values]
        if self._taken.takes_names:
            return given, named | values
        return given, self._checked(named, values)

    def _checked(self, named: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
        for key, value in values.items():
            if value is None:
                continue
            if hasattr(value, "shape") or isinstance(value, list):
                raise self._refused(f"it has no parameter for {key!r}")
            if self._defaults.get(key, MISSING) == value:
                continue
            raise UnsupportedError(
                f"{self.what}: takes no '{key}', which the model gives {self._op}",
                hint=f"add a parameter '{key}' (or **attributes)",
            )
        return named

    def _refused(self, why: str) -> SignatureError:
        method = self.what.rpartition(".")[2]
        wanted = ", ".join([*self._inputs, *self._attributes])
        hint = "operands go by the op's names, or by place under other names"
        if self._attributes:
            hint += f"; leave out what it does not use of {', '.join(self._attributes)}"
        return SignatureError(
            f"{self.what}: requires the signature {method}({wanted}), got"
            f" {method}{self._taken.text}: {why}",
            hint=hint,
        )
