"""Primitives of users: ops with keys that they declare and functions that their backends have."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from mithril import _core, models
from mithril.backends import own_ops
from mithril.base.checks import truth
from mithril.base.public import public
from mithril.errors import KeyNotFound, MithrilError, SignatureError, shown, suggestion
from mithril.logical.annotation import ANY_TENSOR
from mithril.logical.arguments import model_name, text
from mithril.logical.connection import NOT_GIVEN, TBD, Connection, IOKey, Tensor
from mithril.logical.model import ExtendInfo
from mithril.models import _generated
from mithril.models.operator_model import OperatorModel
from mithril.types import MISSING

_OUTPUT = "output"
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USER_OP = re.compile(r"user_[0-9a-f]{16}_(.+?)(?:_vjp(\d+))?")
# (formula key, what is said of its keys, of the output, whether it is opaque) -> op.
_ops: dict[tuple, str] = {}
_opaque_ops: set[str] = set()  # of Lambdas: what they call is an attribute of each node
_WITHOUT_BACKWARD, _WITH_BACKWARD = "opaque", "opaque_with_backward"


class PrimitiveModel(OperatorModel):
    """A model that is one op of the user's: `formula_key` names a function of the backend.

    Each keyword declares a key by an `IOKey` (without a name): its type, its shape, perhaps a
    value. One of them must be `output`; the others are inputs, in their order. Sizes that are
    called alike are equal. The function takes the inputs by position (values that are no tensors
    by name) and returns the output; a backend that does not differentiate by itself also wants
    `backward_<formula_key>(grad_output, inputs, outputs)`.

    >>> import mithril as ml
    >>> class Cube(ml.models.PrimitiveModel):
    ...     def __init__(self, name=None):
    ...         anything = ml.IOKey(shape=[("Any", ...)], type=ml.Tensor[float])
    ...         super().__init__("cube", name=name, input=anything, output=anything)
    >>> backend = ml.NumpyBackend()
    >>> backend.register_function("cube", lambda x: x * x * x)
    >>> model = ml.Model()
    >>> model |= Cube()(input="input", output="output")
    >>> pm = ml.compile(model, backend, shapes={"input": [2]}, data_keys={"input"}, inference=True)
    >>> pm.evaluate({}, {"input": [1.0, 2.0]})["output"].tolist()
    [1.0, 8.0]
    """

    @public
    def __init__(self, formula_key: str, *, name: str | None = None, **keys: Connection):
        self._declare(_formula(formula_key), None, name, keys)

    def _declare(
        self, formula: str, kept: Kept | None, name: str | None, keys: dict[str, Connection]
    ) -> None:
        if _OUTPUT not in keys:
            raise KeyNotFound(f"{type(self).__name__}: a primitive declares the key 'output'")
        bad = [k for k, v in keys.items() if not isinstance(v, Connection) or v._fields is None]
        if bad:
            raise SignatureError(
                f"{type(self).__name__}: key {bad[0]!r} requires an IOKey that is in no model,"
                f" got {shown(keys[bad[0]])}"
            )
        odd = [k for k in keys if not _KEY.fullmatch(k)]
        if odd:
            raise SignatureError(f"{type(self).__name__}: {shown(odd[0])} cannot name a key")
        facts = {key: connection._fields or () for key, connection in keys.items()}
        self._formula_key = formula
        self._op = _declared(formula, facts, kept is not None)
        self._arguments = {"formula_key": formula, **keys}
        stated = {k: _fields(f) for k, f in facts.items() if _says_more(k, f)}
        spec: dict[str, Any] = {
            "name": model_name(name),
            "class_name": type(self).__name__,
            "attrs": {},
            "keys": stated,
            "open": [],
            "absent": [],
            "count": None,
            "kept": kept,
        }
        self._attach(_core.ModelNode.leaf(self._op, spec))

    @property
    def formula_key(self) -> str:
        return self._formula_key or ""

    @public
    def connect(self, /, *args: Any, **connections: Any) -> ExtendInfo:
        """What to wire the keys to; by position in the order of their declaration."""
        order = [*self._node.connect_order, _OUTPUT]
        if len(args) > len(order):
            raise SignatureError(f"{self!r}: takes at most {len(order)} keys, got {len(args)}")
        unknown = [key for key in connections if key not in order]
        if unknown:
            raise SignatureError(f"{self!r}: has no key {unknown[0]!r}, only {', '.join(order)}")
        given = dict(zip(order, args, strict=False))
        twice = given.keys() & connections.keys()
        if twice:
            raise SignatureError(f"{self!r}: {min(twice)!r} is given twice")
        given |= connections
        return ExtendInfo(self, {k: v for k, v in given.items() if v is not NOT_GIVEN})


class CustomPrimitiveModel(PrimitiveModel):
    """A primitive made in one call: `CustomPrimitiveModel("cube", input=…, output=…)`."""


class Activation(PrimitiveModel):
    """A function of each element, by its name: an op, or one that a backend has registered.

    Parameters
    ----------
    formula_key : "relu", "gelu" …, or the name of a function of the backend
    polymorphic_constraint : whether the result of a backend's function has the type of its operand,
        which must then be float; else it is integer or float
    input : a value or an `IOKey` for the key
    **kwargs : values of further keys and arguments of an op; `IOKey`s that declare further keys of
        a backend's function

    Keys
    ----
    input : float or int tensor of any shape
    output : of the same shape

    Raises
    ------
    SignatureError : the op has no `input`, or not that argument.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.models.Activation("leaky_relu", slope=0.5)(input="x", output="y")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> pm.evaluate({}, {"x": [-2.0, 2.0]})["y"].tolist()
    [-1.0, 2.0]
    """

    @public
    def __init__(
        self,
        formula_key: str,
        polymorphic_constraint: bool = False,
        input: Any = TBD,
        *,
        name: str | None = None,
        **kwargs: Any,
    ):
        formula = _formula(formula_key)
        is_same = truth("Activation: polymorphic_constraint", polymorphic_constraint)
        cls = _class_of(formula)
        if cls is not None:
            self._be(cls, formula, name, {"input": input, **kwargs})
            return
        tensor: Any = Tensor
        kinds = tensor[float] if is_same else tensor[int | float]
        elements = IOKey(shape=[("Var", ...)], type=kinds)
        given = elements if input is TBD else input
        if not isinstance(given, Connection):
            try:
                given = IOKey(value=input, shape=[("Var", ...)], type=kinds)
            except MithrilError:
                told = f"Activation: input: requires a tensor or an IOKey, got {shown(input)}"
                raise SignatureError(told) from None
        super().__init__(formula, name=name, input=given, **kwargs, output=elements)

    def _be(self, cls: Any, formula: str, name: str | None, values: dict[str, Any]) -> None:
        """The op that the class makes, under this class's name."""
        known = [*cls._connect_order, *cls._attrs]
        odd = [key for key in values if key not in known]
        if odd:
            raise SignatureError(
                f"Activation: {formula} has no argument {odd[0]!r}{suggestion(odd[0], known)}"
            )
        self._op = self._formula_key = formula
        for fact in ("_attrs", "_defaults", "_optional", "_switches", "_connect_order"):
            setattr(self, fact, getattr(cls, fact, ()))
        missing = {key: default for key, default in _attributes(formula) if key not in values}
        self._make(name, {**missing, **values})


def _class_of(formula: str) -> Any:
    name = _generated.CLASSES.get(formula)
    return None if name is None else getattr(models, name)


def _attributes(op: str) -> list[tuple[str, Any]]:
    return [pair for pair in _core.find_op(op)["attrs"] if pair[1] is not MISSING]


def _formula(key: Any) -> str:
    name = text("primitive: formula_key", key)
    if not _KEY.fullmatch(name) or len(name) > 200:
        raise SignatureError(f"primitive: formula_key must be a Python name, got {shown(key)}")
    return name


def _fields(fields: tuple) -> tuple:
    return ("", *fields[1:3], None, None, *fields[5:])  # shape and kinds are the op's


def _says_more(key: str, fields: tuple) -> bool:
    """Whether a key has a value or a differentiability, which are the model's and not the op's."""
    return fields[1] is not MISSING or fields[5] is not None


def _kinds(fields: tuple) -> int:
    _, value, _, shape, kinds, differentiable, _ = fields
    if kinds is not None:
        return kinds
    if shape is not None or differentiable:
        return ANY_TENSOR
    return ANY_TENSOR if value is MISSING else sum(_core.kinds().values())


def _declared(formula: str, facts: dict[str, tuple], opaque: bool = False) -> str:
    """The op of a formula key with these keys; equal declarations share one.

    Its name follows from the declaration: files name it, and other processes declare it alike.
    """
    rows = [
        (key, _kinds(f), None if f[3] is None else tuple(f[3]))
        for key, f in facts.items()
        if key != _OUTPUT
    ]
    output = facts[_OUTPUT]
    result = (_OUTPUT, _kinds(output), None if output[3] is None else tuple(output[3]))
    signature = (formula, tuple(rows), result, opaque)
    found = _ops.get(signature)
    if found is None:
        said = signature if opaque else signature[:3]
        digest = hashlib.sha256(repr(said).encode()).hexdigest()[:16]
        found = f"user_{digest}_{formula}"
        _core.define_primitive(found, rows, result, opaque)
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
    return _formula(getattr(fn, "__name__", ""))


# --- functions of backends -----------------------------------------------------------------------


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

    def __getattr__(self, name: str) -> Any:
        match = _USER_OP.fullmatch(name)
        if match is None:
            own = own_ops.function(self._backend, name)
            return getattr(self._backend.ops, name) if own is None else own
        formula, place = match.groups()
        if name.removesuffix(f"_vjp{place}") in _opaque_ops:
            return _call_kept if place is None else _vjp_of_kept(int(place))
        if place is None:
            return _function(self._backend, formula)
        return _vjp(_function(self._backend, f"backward_{formula}"), int(place))


def _vjp(backward: Any, place: int) -> Callable[..., Any]:
    def cotangent(grad_output: Any, output: Any, *inputs: Any, **named: Any) -> Any:
        values = (*inputs, *named.values())
        found = backward(grad_output, values, (output,))
        if not hasattr(found, "shape"):
            return found[place]
        # An array alone is the gradient of one operand; its rows are no gradients.
        what = getattr(backward, "__name__", "backward")
        return own_ops.share(what, found, place, len(values))

    return cotangent


def uses_primitives(source: str) -> bool:
    """Whether emitted text calls a user's op."""
    return _ops_called.search(source) is not None


_ops_called = re.compile(r"\bops\.(?:user|own)_")

__all__ = ["Activation", "CustomPrimitiveModel", "PrimitiveModel"]
