"""Primitives of users: ops with keys that they declare and functions that their backends have."""

from __future__ import annotations

from typing import Any

from mithril import _core, models
from mithril.base.checks import checked_flag
from mithril.base.public import public
from mithril.errors import KeyNotFound, MithrilError, SignatureError, shown, suggestion
from mithril.execution.primitives import NAME, Kept, define_op, formula_key_of
from mithril.logical.annotation import ANY_TENSOR
from mithril.logical.arguments import model_name
from mithril.logical.connection import NOT_GIVEN, TBD, Connection, IOKey, Tensor, spec_of
from mithril.logical.model import ExtendInfo
from mithril.models import _generated
from mithril.models.operator_model import OperatorModel
from mithril.types import MISSING

_OUTPUT = "output"


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
        self._declare(formula_key_of(formula_key), None, name, keys)

    def _declare(
        self, formula: str, kept: Kept | None, name: str | None, keys: dict[str, Connection]
    ) -> None:
        if _OUTPUT not in keys:
            what = "Lambda" if kept is not None else type(self).__name__
            raise KeyNotFound(
                f"{what}: its keys must be declared, 'output' among them",
                hint='key = ml.IOKey(shape=[("Any", ...)], type=ml.Tensor[float]) and'
                " input=key, output=key declare one operand and a result of its shape",
            )
        bad = [k for k, v in keys.items() if not isinstance(v, Connection) or spec_of(v) is None]
        if bad:
            raise SignatureError(
                f"{type(self).__name__}: key {bad[0]!r} requires an IOKey that is in no model,"
                f" got {shown(keys[bad[0]])}"
            )
        odd = [k for k in keys if not NAME.fullmatch(k)]
        if odd:
            raise SignatureError(f"{type(self).__name__}: {shown(odd[0])} cannot name a key")
        facts = {key: spec_of(connection) or () for key, connection in keys.items()}
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
        """Returns the model with wires for its keys; positional ones in the order of
        declaration."""
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
        formula = formula_key_of(formula_key)
        is_same = checked_flag("Activation: polymorphic_constraint", polymorphic_constraint)
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
        """Makes this model the op of that class, under its own class's name."""
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


def _fields(fields: tuple) -> tuple:
    return ("", *fields[1:3], None, None, *fields[5:])  # shape and kinds are the op's


def _says_more(key: str, fields: tuple) -> bool:
    """Tells whether a key has a value or a differentiability: the model's facts, not the op's."""
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
    return define_op(formula, tuple(rows), result, opaque)


__all__ = ["Activation", "CustomPrimitiveModel", "PrimitiveModel"]
