"""Loops as models: the steps of `Scan` stand between marks, of which compile makes one op.

The marks relate what is outside of the loop to what a step sees, so sizes and kinds are inferred
through the loop both ways. Without the loop they mean nothing, so they have no public classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril import _core, models
from mithril._checks import items, mapping, text, truth, whole
from mithril._public import public
from mithril.connection import Connection
from mithril.errors import ArgumentError, KeyNotFound, OptionError, SignatureError, suggestion
from mithril.models._composite import Composite, require_model
from mithril.operator_model import OperatorModel
from mithril.types import TBD

MOST_AXES = 64  # as many as a tensor may have


class _Mark(OperatorModel):
    """One key at the border of a loop."""

    def __init__(self, op: str, carries: int | None = None, **attrs: Any):
        self._op = op
        self._arguments = {"op": op, "carries": carries, **attrs}
        spec: dict[str, Any] = {"name": "", "attrs": attrs, "keys": {}, "open": [], "absent": []}
        self._attach(_core.ModelNode.leaf(op, spec | {"count": carries}))


class Scan(Composite):
    """A loop over the places of an axis: what a step makes of its state is the next one's.

    As `jax.lax.scan`, with keys for pytrees: one op, however long the sequence is. Gradients of any
    order exist; memory grows by the carries of each step. A step has no random numbers, no running
    statistics and no derivatives inside.

    Parameters
    ----------
    body : the model of one step; it stays free for other uses
    carry : the state, body input -> body output that the next step reads there. Both have one
        shape and one kind.
    xs : body inputs that read one place of a sequence in each step
    ys : body outputs that are kept of each step, as a list, or as a dict body output -> key of this
        model; None: all that are no state
    axis : which axis of sequences and kept outputs the places are on, counted from the front
    reverse : whether steps go from the last place to the first one
    length : the number of steps; without `xs` it must be given

    Keys
    ----
    the body inputs of `carry` : what the first step starts from
    the body outputs of `carry` : what the last step hands on; without steps, what the first one
        would start from
    xs : sequences; they have the shape of the body's input and one axis more, `axis`
    ys : the same of the body's outputs
    the other inputs of the body, parameters for example : the same in all steps

    Raises
    ------
    SignatureError : no model, or arguments of other types; neither `xs` nor `length`.
    KeyNotFound : a name that is no key of the body.
    OptionError : a key that is named twice.
    ArgumentError : `axis` or `length` that are no such numbers.
    ShapeError : a state that changes its shape; sequences of different lengths.

    >>> import mithril as ml
    >>> step = ml.Model()
    >>> step |= ml.Add()(left="total", right="x", output="sum")
    >>> step |= ml.Buffer()(input="sum", output="so_far")
    >>> step.expose_keys("sum", "so_far")
    >>> model = ml.Model()
    >>> model |= ml.Scan(step, carry={"total": "sum"}, xs=["x"])(
    ...     total="start", x="numbers", so_far="sums", sum="last")
    >>> model.expose_keys("sums", "last")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> out = pm.evaluate({}, {"start": pm.backend.array(0.0),
    ...                        "numbers": pm.backend.array([1.0, 2.0, 3.0])})
    >>> out["sums"].tolist(), out["last"].tolist()
    ([1.0, 3.0, 6.0], 6.0)
    """

    @public
    def __init__(
        self,
        body: Any,
        carry: Any = None,
        xs: Any = (),
        ys: Any = None,
        axis: int = 0,
        reverse: bool = False,
        length: Any = None,
        *,
        name: str | None = None,
    ):
        body = require_model("Scan: body", body, "Scan(step, ...)")
        parts = _Parts(body, carry, xs, ys)
        if whole("Scan: axis", axis, least=0) >= MOST_AXES:
            raise ArgumentError(f"Scan: axis requires an integer below {MOST_AXES}, got {axis}")
        if length is not None:
            whole("Scan: length", length, least=0)
        elif not parts.xs:
            raise SignatureError("Scan: requires length where there are no xs")
        arguments = {
            "body": body,
            "carry": parts.carry,
            "xs": parts.xs,
            "ys": parts.ys,
            "axis": axis,
            "reverse": truth("Scan: reverse", reverse),
            "length": length,
        }
        given = dict.fromkeys(parts.inputs, TBD)
        with self._compose(name, arguments, **given) as keys:
            _Loop(self, keys, parts, axis, reverse, length).build(body)
            self.set_cin(*(parts.xs or parts.carry))
            outputs = [*parts.ys.values(), *parts.carry.values()]
            self.set_cout(*outputs[: max(len(parts.ys), 1)])
            self.expose_keys(*outputs)


class _Parts:
    """The keys of the body, by what they are to the loop."""

    def __init__(self, body: Any, carry: Any, xs: Any, ys: Any):
        node = body._node
        self._inputs = list(node.input_keys)
        self._outputs = list(node.output_keys or [wire.key_name for wire in node.couts])
        self.carry = self._pairs("carry", carry)
        self.xs = self._names("xs", xs)
        for key in [*self.carry, *self.xs]:
            self._check("input", key, self._inputs)
        for key in self.carry.values():
            self._check("output", key, self._outputs)
        states = set(self.carry.values())
        if ys is None:
            named = [key for key in self._outputs if not key.startswith("$")]
            ys = [key for key in named if key not in states]
        is_dict = isinstance(ys, Mapping)
        self.ys = self._pairs("ys", ys) if is_dict else {k: k for k in self._names("ys", ys)}
        for key in self.ys:
            self._check("output", key, self._outputs)
        constants = [k for k in self._inputs if not k.startswith("$") and not node.is_valued(k)]
        self.constants = [k for k in constants if k not in {*self.carry, *self.xs}]
        self.inputs = [*self.carry, *self.xs, *self.constants]
        self._refuse_doubles()

    @staticmethod
    def _names(argument: str, given: Any) -> list[str]:
        what = f"Scan: {argument}"
        return [text(what, key) for key in items(what, given, "a list of keys of the body")]

    @staticmethod
    def _pairs(argument: str, given: Any) -> dict[str, str]:
        what = f"Scan: {argument}"
        return {text(what, k): text(what, v) for k, v in mapping(what, given).items()}

    @staticmethod
    def _check(kind: str, key: str, known: list[str]) -> None:
        if key not in known:
            named = ", ".join(repr(k) for k in known if not k.startswith("$")) or "none"
            raise KeyNotFound(
                f"Scan: the body has no {kind} {key!r}{suggestion(key, known)}",
                hint=f"its {kind}s are {named}",
            )

    def _refuse_doubles(self) -> None:
        keys = [*self.inputs, *self.carry.values(), *self.ys.values()]
        for key in keys:
            if keys.count(key) > 1:
                raise OptionError(
                    f"Scan: two keys of the loop are called {key!r}",
                    hint='ys={"h_next": "states"} gives a kept output a name of its own',
                )


class _Loop:
    """The marks and the body of one Scan."""

    def __init__(
        self, model: Scan, keys: dict, parts: _Parts, axis: int, reverse: bool, length: int | None
    ):
        self._model = model
        self._keys = keys
        self._parts = parts
        self._axis = axis
        self._reverse = reverse
        self._length: Any = length

    def build(self, body: Any) -> None:
        parts = self._parts
        sequences = {key: self._moved(self._keys[key], first=True) for key in parts.xs}
        if self._length is None:
            self._length = Connection()
            first = sequences[parts.xs[0]]
            self._model |= models.Length().connect(input=first, output=self._length)
        wires = {key: self._keys[key] for key in parts.constants}
        for i, key in enumerate(parts.carry):
            wires[key] = Connection()
            mark = _Mark("scan_enter", index=i)
            self._model |= mark.connect(input=self._keys[key], output=wires[key])
        for i, key in enumerate(parts.xs):
            wires[key] = Connection()
            mark = _Mark("scan_slice", index=i)
            self._model |= mark.connect(
                input=sequences[key], length=self._length, output=wires[key]
            )
        results = {key: Connection() for key in {**parts.ys, **dict.fromkeys(parts.carry.values())}}
        self._model |= body.clone().connect(**wires, **results)
        self._end(results)

    def _end(self, results: dict[str, Connection]) -> None:
        after = {
            f"carries{i}": results[key] for i, key in enumerate(self._parts.carry.values(), start=1)
        }
        common: dict[str, Any] = {"carries": len(after), "reverse": self._reverse}
        for i, (key, next_) in enumerate(self._parts.carry.items()):
            mark = _Mark("scan_exit", index=i, **common)
            wires = {"input": results[next_], "start": self._keys[key], "length": self._length}
            self._model |= mark.connect(**wires, **after, output=next_)
        for i, (key, kept) in enumerate(self._parts.ys.items()):
            mark = _Mark("scan_stack", index=i, **common)
            wires = {"input": results[key], "length": self._length}
            if self._axis == 0:
                self._model |= mark.connect(**wires, **after, output=kept)
                continue
            stacked = Connection()
            self._model |= mark.connect(**wires, **after, output=stacked)
            self._moved(stacked, first=False, to=kept)

    def _moved(self, wire: Any, first: bool, to: str | None = None) -> Any:
        """The wire with the axis of places in front, or where it was: neighbours exchanged."""
        order = range(self._axis, 0, -1) if first else range(1, self._axis + 1)
        for at in order:
            last = to is not None and at == self._axis
            output: Any = to if last else Connection()
            swap = models.SwapAxes(axis1=at - 1, axis2=at)
            self._model |= swap.connect(input=wire, output=output)
            wire = output
        return wire


__all__ = ["Scan"]
