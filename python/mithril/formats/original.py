"""Reads the dictionaries (JSON files) in which the original library keeps models.

Types are looked up by name, and nothing is evaluated. What that form leaves out (names of
submodels, state, most arguments of some ops) cannot be read from it.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from mithril import models
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    MithrilError,
    ParseError,
    SignatureError,
    UnsupportedError,
    shown,
    suggestion,
)
from mithril.logical.connection import IOKey, Tensor
from mithril.logical.model import Connection, Model
from mithril.training.training_model import TrainModel
from mithril.types import Constant, Dtype, PaddingType

_MOST_NESTED = 200
_PYTHON_TYPES = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "None": None,
    "NoneType": None,
    "slice": slice,
    "tuple": tuple,
    "list": list,
    "dict": dict,
}
_ENUMS = {"PaddingType": PaddingType}
_MODEL_ARGUMENTS = {"kernel", "cell_type", "base_model"}  # of constructors, beside activations


@public
def dict_to_model(form: Mapping[str, Any] | str) -> Model:
    """Builds the model from a dictionary of the original, or from the name of a class.

    Parameters
    ----------
    form : `name`, `args`, `submodels`, `connections` … as the original's `model_to_dict` writes
        them, or a `TrainModel`'s `model`, `losses`, `regularizations`

    Raises
    ------
    ParseError : not of that form.
    KeyNotFound : a class that does not exist here.
    UnsupportedError : a constraint function, which is no part of such a file.

    >>> form = {
    ...     "name": "Model",
    ...     "submodels": {"m_0": {"name": "Linear", "args": {"dimension": 2}}},
    ...     "connections": {"m_0": {"input": "x", "output": {"key": {"name": "y"}}}},
    ... }
    >>> dict_to_model(form).input_keys
    ['$1', 'x', '$2']
    """
    return _model(form, 0)


def _model(form: Any, depth: int) -> Model:
    if isinstance(form, str):
        form = {"name": form}
    if not isinstance(form, Mapping):
        raise SignatureError(f"dict_to_model: requires a dictionary, got {shown(form)}")
    if depth > _MOST_NESTED:
        raise ParseError(f"dict_to_model: nested more than {_MOST_NESTED} deep", code="MTH604")
    if form.get("is_train_model"):
        return _train_model(form, depth)
    name = form.get("name")
    if not isinstance(name, str):
        raise ParseError("dict_to_model: a model has a name")
    if form.get("submodels") is None and name != "Model":
        model = _instance(name, form, depth)
        _Structure(model, form, depth).state_facts()
        return model
    model = Model(**{k: v for k, v in _section(form, "args", dict).items() if k == "name"})
    _Structure(model, form, depth).build()
    return model


def _section(form: Mapping, name: str, kind: type) -> Any:
    found = form.get(name)
    if found is None:
        return kind()
    if not isinstance(found, kind):
        raise ParseError(f"dict_to_model: '{name}' is a {kind.__name__}, got {shown(found)}")
    return found


def _entries(form: Mapping, name: str) -> list[Mapping]:
    """Returns a section that must be a list of dictionaries."""
    found = _section(form, name, list)
    for entry in found:
        if not isinstance(entry, Mapping):
            raise ParseError(f"dict_to_model: '{name}' holds dictionaries, got {shown(entry)}")
    return found


def _names(form: Mapping, name: str) -> set[str]:
    """Returns a section that must be a list of names."""
    found = _section(form, name, list)
    if not all(isinstance(item, str) for item in found):
        raise ParseError(f"dict_to_model: '{name}' holds names")
    return set(found)


def _called(call: Callable[..., Any], *args: Any, named: Mapping[str, Any]) -> Any:
    """Calls with keyword arguments from the file; raises SignatureError where they do not fit."""
    try:
        return call(*args, **named)
    except MithrilError:
        raise
    except TypeError as error:  # of a call with other arguments
        raise SignatureError(f"dict_to_model: {error}") from None


# --- classes and their arguments -----------------------------------------------------------------


def _class(name: str) -> type[Model]:
    lowered: dict[str, type[Model]] = {}
    for known in dir(models):  # modules are there, too: mlp
        cls = getattr(models, known, None)
        if isinstance(cls, type) and issubclass(cls, Model):
            lowered[known.lower()] = cls
    if name.lower() not in lowered:
        near = suggestion(name, [cls.__name__ for cls in lowered.values()])
        raise KeyNotFound(f"dict_to_model: no model is called {shown(name)}{near}")
    return lowered[name.lower()]


def _instance(name: str, form: Mapping, depth: int) -> Model:
    args = _section(form, "args", dict)
    tuples = _names(form, "tuples")
    enums = _section(form, "enums", dict)
    values = {}
    for key, value in args.items():
        if key in enums:
            values[key] = _enum(enums[key], value)
        else:
            value = _argument(key, value, depth)
            values[key] = _tuples(value) if key in tuples else value
    return _called(_class(name), named=values)


def _enum(name: Any, value: Any) -> Any:
    if not isinstance(name, str):
        raise ParseError(f"dict_to_model: no enumeration: {shown(name)}")
    cls = _ENUMS.get(name)
    try:
        if cls is None:
            return value
        return cls[value] if isinstance(value, str) else cls(value)
    except (KeyError, ValueError):
        raise ParseError(f"dict_to_model: {shown(value)} is no {name}") from None


def _argument(key: str, value: Any, depth: int) -> Any:
    """An argument of a constructor: models are dictionaries, or names where activations stand."""
    if isinstance(value, Mapping):
        if "tensor" in value:
            return Tensor(value["tensor"])
        return _model(value, depth + 1)
    if isinstance(value, list):
        return [_argument(key, item, depth + 1) for item in value]
    if not isinstance(value, str):
        return value
    is_model = "activation" in key or key in _MODEL_ARGUMENTS
    return _model(value, depth + 1) if is_model else _word(value)


def _word(value: str) -> Any:
    """Returns the value of a text: "Constant.EPSILON", "Dtype.float32", "(Ellipsis,)" or itself."""
    if value == "(Ellipsis,)":
        return ...
    kind, _, name = value.partition(".")
    members: dict[str, Any] = {"Constant": Constant, "Dtype": Dtype}
    if kind in members and name:
        try:
            return members[kind][name]
        except KeyError:
            raise ParseError(f"dict_to_model: there is no {shown(value)}") from None
    return value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# --- structure -----------------------------------------------------------------------------------


class _Structure:
    """Fills a model from the sections of its dictionary."""

    def __init__(self, model: Model, form: Mapping, depth: int):
        self.model = model
        self.form = form
        self.depth = depth
        self.children: dict[str, Model] = {}
        self.unnamed = _names(form, "unnamed_keys")
        self.placeholders: dict[str, Connection] = {}

    def build(self) -> None:
        submodels = _section(self.form, "submodels", dict)
        connections = _section(self.form, "connections", dict)
        unknown = set(connections) - set(submodels)
        if unknown:
            raise KeyNotFound(
                f"dict_to_model: connections of {min(unknown)!r}, which is no submodel"
            )
        for name, form in submodels.items():
            child = _model(form, self.depth + 1)
            given = _section(connections, name, dict)
            wires = {key: self._connection(value) for key, value in given.items()}
            _called(self.model.extend, child, named=wires)
            self.children[name] = child
        self._expose()
        self.state_facts()

    def _connection(self, value: Any) -> Any:
        if isinstance(value, str):
            word = _word(value)
            return self._named(value) if word is value else word
        if isinstance(value, Mapping) and "tensor" in value:
            return Tensor(value["tensor"])
        if isinstance(value, Mapping) and "key" in value:
            return self._key(_section(value, "key", dict))
        if isinstance(value, Mapping):
            raise ParseError(f"dict_to_model: no connection: {shown(value)}")
        return value

    def _named(self, name: str) -> Any:
        if name in self.unnamed or name.startswith("$"):
            return self.placeholders.setdefault(name, IOKey())
        return name

    def _key(self, form: Mapping) -> Any:
        joined = [self._wire(ref) for ref in _section(form, "connect", list)]
        facts = {
            "value": _value(form["value"]) if "value" in form else None,
            "shape": _shape(form["shape"]) if form.get("shape") is not None else None,
            "type": _type(form["type"]) if form.get("type") is not None else None,
            "differentiable": form.get("differentiable"),
        }
        given: dict[str, Any] = {
            key: fact for key, fact in facts.items() if fact is not None or key in ("value",)
        }
        if "value" not in form:
            given.pop("value")
        name = form.get("name")
        if not joined:
            return IOKey(name, **given)
        if len(joined) > 1:
            self.model.merge_connections(*joined)
        if name is not None and joined[0].key != name:
            self.model.rename_key(joined[0], name)
        for fact, state in (("shape", self.model.set_shapes), ("type", self.model.set_types),
                            ("value", self.model.set_values)):  # fmt: skip
            if fact in given:
                state({joined[0]: given[fact]})
        return joined[0]

    def _wire(self, ref: Any) -> Connection:
        """The wire of this model that a reference means: a name, or a model and its key."""
        if isinstance(ref, str):
            placeholder = self.placeholders.get(ref)
            return placeholder if placeholder is not None else self.model[ref]
        if not isinstance(ref, list) or len(ref) != 2:
            raise ParseError(f"dict_to_model: no key: {shown(ref)}")
        owner, key = ref
        if not (isinstance(owner, str) and type(key) in (str, int)):
            raise ParseError(f"dict_to_model: no key: {shown(ref)}")
        model = self.model if owner == "self" else self.children.get(owner)
        if model is None:
            raise KeyNotFound(f"dict_to_model: no submodel {shown(owner)}")
        if isinstance(key, int):
            keys = model.external_keys
            if not 0 <= key < len(keys):
                raise KeyNotFound(f"dict_to_model: {shown(owner)} has no key number {key}")
            key = keys[key]
        if model is self.model:
            return model[key]
        wires = self.model.dag[model]
        if key not in wires:
            raise KeyNotFound(f"dict_to_model: {shown(owner)} has no key {shown(key)}")
        return wires[key]

    def _expose(self) -> None:
        for key in _section(self.form, "exposed_keys", list):
            wire = self._wire(key)
            if wire.key not in self.model.external_keys:
                self.model.expose_keys(wire)

    def state_facts(self) -> None:
        form, model = self.form, self.model
        if form.get("assigned_constraints"):
            names = [entry.get("fn") for entry in _entries(form, "assigned_constraints")]
            raise UnsupportedError(
                f"dict_to_model: the constraint {shown(names[0])} is a function of the original",
                hint="add it to the loaded model by add_constraint",
            )
        for group in self._shape_groups():
            model.set_shapes({self._wire(ref): _shape(dims) for ref, dims in group})
        for ref, type_ in self._pairs("assigned_types"):
            model.set_types({self._wire(ref): _type(type_)})
        for ref, flag in self._pairs("assigned_differentiabilities"):
            model.set_differentiability({self._wire(ref): flag})
        for name, state in (("assigned_cins", model.set_cin), ("assigned_couts", model.set_cout)):
            if form.get(name):
                state(*(self._wire(ref) for ref in _section(form, name, list)))

    def _shape_groups(self) -> list[list[Any]]:
        """Returns the stated shapes by call of `set_shapes`: a symbol is one size within a call.
        Without such groups all of them are one call."""
        found = _section(self.form, "assigned_shapes", list)
        if any(isinstance(entry, list) and _is_group(entry) for entry in found):
            return [self._checked_pairs("assigned_shapes", entry) for entry in found]
        pairs = self._pairs("assigned_shapes")
        return [pairs] if pairs else []

    def _pairs(self, name: str) -> list[Any]:
        return self._checked_pairs(name, _section(self.form, name, list))

    def _checked_pairs(self, name: str, found: Any) -> list[Any]:
        is_list = isinstance(found, list)
        if not is_list or not all(isinstance(pair, list) and len(pair) == 2 for pair in found):
            raise ParseError(f"dict_to_model: '{name}' holds pairs")
        return found


def _is_group(entry: list) -> bool:
    """Tells whether an entry is a list of (key, sizes) pairs rather than one such pair."""
    return all(isinstance(p, list) and len(p) == 2 and isinstance(p[1], list) for p in entry)


def _value(value: Any) -> Any:
    return Tensor(value["tensor"]) if isinstance(value, Mapping) and "tensor" in value else value


_VARIADIC = re.compile(r"(.*?)\s*,\s*\.\.\.")


def _shape(dims: Any) -> list[Any]:
    if not isinstance(dims, list):
        raise ParseError(f"dict_to_model: a shape is a list, got {shown(dims)}")
    out: list[Any] = []
    for dim in dims:
        match = _VARIADIC.fullmatch(dim) if isinstance(dim, str) else None
        out.append((match[1], ...) if match else dim)
    return out


def _type(form: Any) -> Any:
    """A type by its name, {"Tensor": […]} or a list, which is a union."""
    if isinstance(form, str):
        if form == "Tensor":
            return Tensor[int | float | bool]
        if form not in _PYTHON_TYPES:
            raise ParseError(f"dict_to_model: no type is called {shown(form)}")
        return _PYTHON_TYPES[form]
    if isinstance(form, Mapping) and len(form) == 1:
        ((kind, members),) = form.items()
        if kind == "Tensor":
            return Tensor[_union(members)]  # type: ignore[misc]
        return _type(kind)  # elements of tuples and lists are no part of a type here
    return _union(form)


def _union(members: Any) -> Any:
    if isinstance(members, str):
        return _type(members)
    if not isinstance(members, list) or not members:
        raise ParseError(f"dict_to_model: no type: {shown(members)}")
    return functools.reduce(operator.or_, map(_type, members))


# --- training ------------------------------------------------------------------------------------


def _train_model(form: Mapping, depth: int) -> Model:
    train = TrainModel(_model(form.get("model"), depth + 1))
    for loss in _entries(form, "losses"):
        steps = [_model(step, depth + 1) for step in _section(loss, "reduce_steps", list)]
        args = {key: _value(value) for key, value in _section(loss, "args", dict).items()}
        _called(train.add_loss, _model(loss.get("model"), depth + 1), steps, named=args)
    for term in _entries(form, "regularizations"):
        args = {key: _pattern(value) for key, value in _section(term, "args", dict).items()}
        if "coef" not in term:
            raise ArgumentError("dict_to_model: a regularization has a coefficient")
        coef = _value(term["coef"])
        args["reg_key"] = term.get("reg_key")
        _called(train.add_regularization, _model(term.get("model"), depth + 1), coef, named=args)
    return train


def _pattern(value: Any) -> Any:
    if not isinstance(value, Mapping) or "pattern" not in value:
        return value
    try:
        return re.compile(value["pattern"])
    except (re.error, TypeError) as error:
        raise ParseError(f"dict_to_model: {shown(value['pattern'])}: {error}") from None


__all__ = ["dict_to_model"]
