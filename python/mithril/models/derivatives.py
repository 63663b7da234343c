"""`grad` and `hvp`: models of the derivatives of a model."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from typing import Any, cast

from mithril import models
from mithril.base.checks import checked_bool, checked_instance, checked_list, checked_str
from mithril.base.public import public
from mithril.errors import ArgumentError, KeyNotFound, SignatureError, shown
from mithril.logical.calls import refuse_as_child
from mithril.logical.connection import Connection, IOKey, Tensor, connection_on
from mithril.logical.handles import node_of, wire_of
from mithril.logical.model import Model

Wrt = str | Connection | Iterable[str | Connection]


@public
def grad(
    model: Model,
    wrt: Wrt,
    output: str | Connection | None = None,
    *,
    keep_outputs: bool = False,
    name: str | None = None,
) -> Model:
    """A model of the gradient of a model: the same inputs, the derivatives as outputs.

    Parameters
    ----------
    wrt : one wire or several, by name, path or connection: inputs, parameters, or wires between
    output : what is differentiated; needed where the model has several outputs. Of a tensor it is
        the sum of its elements
    keep_outputs : whether the outputs of the model are outputs of the result, too
    name : of the result as a submodel

    Returns
    -------
    An ordinary model: it composes, compiles on every backend, is saved, and may be differentiated
    again. Its outputs are called ``grad_<wire>`` and have the shapes of these wires. `model` is not
    changed; the result has a copy of it, whose parameters are its own.

    Raises
    ------
    KeyNotFound : the model has no such wire
    ArgumentError : `output` is needed

    >>> import mithril as ml
    >>> x = ml.IOKey("x")
    >>> model = ml.Model.create(y=x**3)
    >>> second = ml.grad(ml.grad(model, "x"), "x")
    >>> pm = ml.compile(second, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [2]})
    >>> pm.evaluate({}, {"x": [1.0, 2.0]})
    {'grad_x': array([ 6., 12.], dtype=float32)}
    """
    parts = _Parts("grad", model, wrt, output, name)
    made = [parts.derivative(parts.of, wire) for _, wire in parts.wrt]
    return parts.finished("grad", made, checked_bool("grad: keep_outputs", keep_outputs))


@public
def hvp(
    model: Model,
    wrt: Wrt,
    output: str | Connection | None = None,
    *,
    keep_outputs: bool = False,
    name: str | None = None,
) -> Model:
    """A model of the product of a model's Hessian with a vector.

    The arguments are those of `grad`. The result has an input ``vector_<wire>`` for each wire of
    `wrt`, of its shape, and the outputs ``hvp_<wire>``: the rows of the Hessian over all of `wrt`
    times the vectors. No Hessian is made: the cost is that of a few gradients.

    >>> import mithril as ml
    >>> x = ml.IOKey("x")
    >>> product = ml.hvp(ml.Model.create(y=x**3), "x")
    >>> pm = ml.compile(product, ml.NumpyBackend(), data_keys={"x", "vector_x"}, shapes={"x": [2]})
    >>> pm.evaluate({}, {"x": [1.0, 2.0], "vector_x": [1.0, 10.0]})
    {'hvp_x': array([  6., 120.], dtype=float32)}
    """
    parts = _Parts("hvp", model, wrt, output, name)
    products: list[Any] = [
        (parts.derivative(parts.of, wire) * parts.vector(label, wire)).sum()
        for label, wire in parts.wrt
    ]
    slope = functools.reduce(operator.add, products)
    made = [parts.derivative(slope, wire) for _, wire in parts.wrt]
    return parts.finished("hvp", made, checked_bool("hvp: keep_outputs", keep_outputs))


class _Parts:
    """A model under construction around a copy of the one that is differentiated."""

    def __init__(self, what: str, model: Any, wrt: Any, output: Any, name: str | None):
        checked_instance(what, model, Model, "a model")
        refuse_as_child(model)
        self._what = what
        self._original = model
        self._inner = model.clone()
        self._kept = list(node_of(self._inner).output_keys)
        self.made = Model(name)
        of = self._output_key(output)
        labels = self._wrt_keys(wrt)
        node = node_of(self._inner)
        keys = [k for k in node.input_keys if not k.startswith("$") and not node.is_valued(k)]
        self.made |= self._inner.connect(**{key: key for key in keys})
        self.of = self._wire(of)
        self.wrt = [(label, self._wire(key)) for label, key in labels]

    def _wire(self, key: str) -> Connection:
        """Returns the wire of a key of the copy in the model that is made."""
        wire = node_of(self._inner).connection(key)
        return connection_on(node_of(self.made).find_connection(wire) or wire)

    # --- what is asked for: keys of the copy -----------------------------------------------------

    def _output_key(self, output: Any) -> str:
        if output is not None:
            return self._key(output, "output")[1]
        node = node_of(self._inner)
        keys = self._kept or [wire.key_name for wire in node.couts]
        if len(keys) != 1:
            names = ", ".join(f"'{key}'" for key in keys) or "none"
            raise ArgumentError(
                f"{self._what}: requires a model with one output, this one has {names}",
                hint="say by output= which one is meant",
            )
        return keys[0]

    def _wrt_keys(self, wrt: Any) -> list[tuple[str, str]]:
        is_one = isinstance(wrt, str | Connection)
        given = [wrt] if is_one else checked_list(f"{self._what}: wrt", wrt, "names or connections")
        if not given:
            raise ArgumentError(f"{self._what}: wrt requires one wire at least")
        return [self._key(key, "wrt") for key in given]

    def _key(self, given: Any, argument: str) -> tuple[str, str]:
        """Returns the name for results and the key, for a key, path or connection."""
        what = f"{self._what}: {argument}"
        if isinstance(given, Connection):
            wire = wire_of(given)
            known = node_of(self._original).find_connection(wire) if wire.attached else None
            if known is None:
                raise KeyNotFound(f"{what}: {given!r} is no wire of {self._original!r}")
            given = known.key_name
        if not isinstance(given, str):
            raise SignatureError(f"{what}: requires names or connections, got {shown(given)}")
        node = node_of(self._inner)
        named = {name.removeprefix("$"): key for key, name in node.generate_keys(False, False)}
        named |= {name: key for key, name in node.compiled_names}
        path = checked_str(what, given)
        try:
            wire = node.find_connection(node.connection_at(named.get(path, path)))
        except KeyNotFound as error:
            raise KeyNotFound(f"{what}: {error.message}", hint=error.hint) from None
        if wire is None:
            raise ArgumentError(
                f"{what}: '{path}' is a wire inside a part of the model", hint="expose it there"
            )
        shown_as = {key: name for name, key in named.items()}
        label = shown_as.get(path, path).lstrip("$").replace(".", "_")
        return label, self._external(wire, label)

    def _external(self, wire: Any, label: str) -> str:
        """Returns the key of a wire, after making it an output of the copy where it is inside."""
        key: str = wire.key_name
        node = node_of(self._inner)
        if key in node.external_keys:
            return key
        if self._inner.is_frozen:
            self._inner.unfreeze()
        if key.startswith("$"):
            self._inner.expose_keys(**{self._free(node, label): connection_on(wire)})
        else:
            self._inner.expose_keys(key)
        return node.find_connection(wire).key_name

    # --- what is made ----------------------------------------------------------------------------

    @staticmethod
    def _free(node: Any, name: str) -> str:
        """Returns the name, or one like it that no wire has."""
        while node.find_connection(name) is not None:
            name = f"_{name}"
        return name

    def derivative(self, of: Connection, wrt: Connection) -> Any:
        part: Any = models.Gradient()
        self.made |= part.connect(of=of, wrt=wrt)
        return connection_on(node_of(part).connection("output"))

    def vector(self, label: str, like: Connection) -> Connection:
        """A new input with the shape of a wire."""
        key = IOKey(
            self._free(node_of(self.made), f"vector_{label}"),
            type=cast(Any, Tensor)[float],
            differentiable=False,
        )
        part: Any = models.Buffer()
        self.made |= part.connect(input=key)
        self.made.set_shapes({key: [("Shape", ...)], like: [("Shape", ...)]})
        return connection_on(node_of(part).connection("output"))

    def finished(self, kind: str, made: list[Any], keep_outputs: bool) -> Model:
        node = node_of(self.made)
        outputs = {key: self._wire(key) for key in self._kept} if keep_outputs else {}
        for (label, _), wire in zip(self.wrt, made, strict=True):
            name = f"{kind}_{label}"
            while name in outputs or node.find_connection(name) is not None:
                name = f"_{name}"
            outputs[name] = connection_on(node.find_connection(wire_of(wire)))
        self.made.expose_keys(**outputs)
        self.made.set_cout(*list(outputs)[-len(made) :])
        return self.made


__all__ = ["grad", "hvp"]
