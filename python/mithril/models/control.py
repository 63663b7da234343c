"""Loops and branches as models: what is inside stands between marks, and becomes one op.

The marks relate what is outside to what is inside, so sizes and kinds are inferred through it both
ways. By themselves they mean nothing, so they have no public classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril import _core, models
from mithril.base.checks import (
    checked_flag,
    checked_list,
    checked_mapping,
    checked_size,
    checked_str,
)
from mithril.base.public import public
from mithril.errors import ArgumentError, KeyNotFound, OptionError, SignatureError, suggestion
from mithril.logical.connection import Connection
from mithril.logical.handles import node_of
from mithril.models._composite import Composite, require_model
from mithril.models.operator_model import OperatorModel
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
    """A loop over the places of an axis: each step passes its state on to the next one.

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
        parts = _Parts("Scan", body, carry, xs, ys)
        if checked_size("Scan: axis", axis, least=0) >= MOST_AXES:
            raise ArgumentError(f"Scan: axis requires an integer below {MOST_AXES}, got {axis}")
        if length is not None:
            checked_size("Scan: length", length, least=0)
        elif not parts.xs:
            raise SignatureError("Scan: requires length where there are no xs")
        arguments = {
            "body": body,
            "carry": parts.carry,
            "xs": parts.xs,
            "ys": parts.ys,
            "axis": axis,
            "reverse": checked_flag("Scan: reverse", reverse),
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

    def __init__(self, what: str, body: Any, carry: Any, xs: Any = (), ys: Any = None):
        self._what = what
        self._inputs, self._outputs = list(node_of(body).input_keys), outputs_of(body)
        self.carry = self._pairs("carry", carry)
        self.xs = self._names("xs", xs)
        for key in [*self.carry, *self.xs]:
            self._check("input", key, self._inputs)
        for key in self.carry.values():
            self._check("output", key, self._outputs)
        states = set(self.carry.values())
        if ys is None:
            ys = [k for k in self._outputs if not k.startswith("$") and k not in states]
        is_dict = isinstance(ys, Mapping)
        self.ys = self._pairs("ys", ys) if is_dict else {k: k for k in self._names("ys", ys)}
        for key in self.ys:
            self._check("output", key, self._outputs)
        self.constants = [k for k in open_inputs(body) if k not in {*self.carry, *self.xs}]
        self.inputs = [*self.carry, *self.xs, *self.constants]
        self._refuse_doubles()

    def _names(self, argument: str, given: Any) -> list[str]:
        what = f"{self._what}: {argument}"
        return [
            checked_str(what, key)
            for key in checked_list(what, given, "a list of keys of the body")
        ]

    def _pairs(self, argument: str, given: Any) -> dict[str, str]:
        what = f"{self._what}: {argument}"
        return {
            checked_str(what, k): checked_str(what, v)
            for k, v in checked_mapping(what, given).items()
        }

    def _check(self, kind: str, key: str, known: list[str]) -> None:
        if key not in known:
            raise KeyNotFound(
                f"{self._what}: the body has no {kind} {key!r}{suggestion(key, known)}",
                hint=f"its {kind}s are {named(known)}",
            )

    def _refuse_doubles(self) -> None:
        keys = [*self.inputs, *self.carry.values(), *self.ys.values()]
        hint = "rename one of them"
        if self._what == "Scan":
            hint = 'ys={"h_next": "states"} gives a kept output a name of its own'
        refuse_doubles(self._what, "loop", keys, hint)


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
        """Moves the axis of places to the front, or back to its place, by swapping neighbours."""
        order = range(self._axis, 0, -1) if first else range(1, self._axis + 1)
        for at in order:
            last = to is not None and at == self._axis
            output: Any = to if last else Connection()
            swap = models.SwapAxes(axis1=at - 1, axis2=at)
            self._model |= swap.connect(input=wire, output=output)
            wire = output
        return wire


class While(Composite):
    """A loop as long as a condition holds: each step passes its state on to the next one.

    As `jax.lax.while_loop`, with keys for pytrees: one op, and the number of steps follows from the
    data. A loop whose condition does not hold at first hands on what it started from. There is no
    gradient through it (`Scan`, whose number of steps is known, has one); a loop that never ends
    can be interrupted on all backends but JAX. A step has no random numbers, no running statistics
    and no derivatives inside.

    Parameters
    ----------
    condition : a model of one output, a bool of shape []; its inputs that are in `carry` read the
        state
    body : the model of one step; both models stay free for other uses
    carry : the state, body input -> body output that the next step and the condition read there.
        Both have one shape and one kind.

    Keys
    ----
    the body inputs of `carry` : what the first step starts from
    the body outputs of `carry` : the first state for which the condition does not hold
    the other inputs of both models : the same in all steps; a key that both have is one key

    Raises
    ------
    SignatureError : no models, or arguments of other types.
    KeyNotFound : a name that is no key of the body.
    OptionError : a key that is named twice; no state; a condition of several outputs.
    ShapeError : a state that changes its shape; a condition that is no single number.
    UnsupportedError : from compile, where a gradient is asked through the loop.

    >>> import mithril as ml
    >>> halved = ml.Model.create(half=ml.IOKey("x") / 2.0)
    >>> is_large = ml.Model.create(large=ml.IOKey("x") > ml.IOKey("limit"))
    >>> model = ml.Model()
    >>> model |= ml.While(is_large, halved, carry={"x": "half"})(x="x", limit="limit", half="y")
    >>> model.expose_keys("y")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> array = pm.backend.array
    >>> pm.evaluate({}, {"x": array(40.0), "limit": array(3.0)})["y"].item()
    2.5
    """

    @public
    def __init__(self, condition: Any, body: Any, carry: Any, *, name: str | None = None):
        condition = require_model("While: condition", condition, "While(condition, step, ...)")
        body = require_model("While: body", body, "While(condition, step, ...)")
        parts = _Parts("While", body, carry, ys=())
        if not parts.carry:
            raise OptionError("While: requires a state", hint='such as carry={"x": "next_x"}')
        asked = outputs_of(condition)
        if len(asked) != 1:
            raise OptionError(f"While: the condition has {len(asked)} outputs: {named(asked)}")
        known = {*parts.inputs, *parts.carry.values()}
        more = [key for key in open_inputs(condition) if key not in known]
        given = dict.fromkeys([*parts.inputs, *more], TBD)
        arguments = {"condition": condition, "body": body, "carry": parts.carry}
        with self._compose(name, arguments, **given) as keys:
            self._build(condition, asked[0], body, parts, keys)
            self.set_cin(*parts.carry)
            self.set_cout(next(iter(parts.carry.values())))
            self.expose_keys(*parts.carry.values())

    def _build(self, condition: Any, asked: str, body: Any, parts: _Parts, keys: dict) -> None:
        wires: dict[str, Any] = {key: keys[key] for key in keys if key not in parts.carry}
        for i, key in enumerate(parts.carry):
            wires[key] = Connection()
            mark = _Mark("scan_enter", index=i)
            self |= mark.connect(input=keys[key], output=wires[key])
        go = Connection()
        results = {key: Connection() for key in parts.carry.values()}
        self |= condition.clone().connect(**_of(condition, wires), **{asked: go})
        self |= body.clone().connect(**_of(body, wires), **results)
        after = {f"carries{i}": wire for i, wire in enumerate(results.values(), start=1)}
        for i, (key, next_) in enumerate(parts.carry.items()):
            mark = _Mark("while_exit", index=i, carries=len(after))
            ends = {"input": results[next_], "start": keys[key], "condition": go}
            self |= mark.connect(**ends, **after, output=next_)


class Cond(Composite):
    """The outputs of one of two models, which a bool chooses; the other one is not run.

    As `jax.lax.cond`, with keys for operands: one op. Gradients of any order exist; those of the
    inputs that only the other branch reads are zero. What is taken is done again for its gradient.
    Branches have no random numbers, no running statistics and no derivatives inside.

    Parameters
    ----------
    taken : the model whose outputs count where `predicate` is true
    other : the one for false; its outputs have the same names, shapes and kinds. Both models stay
        free for other uses.
    shared : trainable inputs that both have under one name, and that are one parameter; those that
        are not named here stay two, with names of their own

    Keys
    ----
    predicate : bool of shape []
    the inputs of both models : data that both read under one name is one key
    their outputs : of the branch that was chosen

    Raises
    ------
    SignatureError : no models.
    KeyNotFound : `shared` names what is not an input of both.
    OptionError : outputs of different names; a key that is named twice.
    ShapeError, KindError : outputs that differ in shape or kind.

    >>> import mithril as ml
    >>> root = ml.Model.create(y=ml.IOKey("x").sqrt())
    >>> minus = ml.Model.create(y=-ml.IOKey("x"))
    >>> model = ml.Model()
    >>> model |= ml.Cond(root, minus)(predicate="is_positive", x="x", y="y")
    >>> model.expose_keys("y")
    >>> pm = ml.compile(model, ml.NumpyBackend(), inference=True)
    >>> array = pm.backend.array
    >>> pm.evaluate({}, {"is_positive": array(False), "x": array(-4.0)})["y"].item()
    4.0
    """

    _connect_order = ("predicate",)

    @public
    def __init__(self, taken: Any, other: Any, shared: Any = (), *, name: str | None = None):
        models_ = [
            require_model("Cond: taken", taken, "Cond(ml.Relu(), ml.Tanh())"),
            require_model("Cond: other", other, "Cond(ml.Relu(), ml.Tanh())"),
        ]
        what = "Cond: shared"
        shared = [
            checked_str(what, key)
            for key in checked_list(what, shared, "a list of keys of the branches")
        ]
        inputs = [open_inputs(model) for model in models_]
        both = [key for key in inputs[0] if key in inputs[1]]
        for key in shared:
            if key not in both:
                raise KeyNotFound(
                    f"Cond: {key!r} is not an input of both branches{suggestion(key, both)}",
                    hint=f"they have in common {named(both)}",
                )
        outputs = self._outputs(models_)
        own = [k for k in both if node_of(taken).differentiable(k) and k not in shared]
        keys_ = [k for k in dict.fromkeys([*inputs[0], *inputs[1]]) if k not in own]
        refuse_doubles("Cond", "branches", ["predicate", *keys_, *outputs], "rename one of them")
        given = dict.fromkeys(["predicate", *keys_], TBD)
        arguments = {"taken": taken, "other": other, "shared": shared}
        with self._compose(name, arguments, **given) as keys:
            made = []
            for model in models_:
                made.append({key: Connection() for key in outputs})
                self |= model.clone().connect(**_of(model, keys), **made[-1])
            for i, key in enumerate(outputs):
                mark = _Mark("cond_join", index=i)
                wires = {"input": made[0][key], "other": made[1][key]}
                self |= mark.connect(**wires, predicate=keys["predicate"], output=key)
            self.set_cin(*[key for key in both if key not in shared and key not in own])
            self.set_cout(outputs[0])
            self.expose_keys(*outputs)

    @staticmethod
    def _outputs(branches: list[Any]) -> list[str]:
        first, second = (outputs_of(model) for model in branches)
        if set(first) != set(second):
            raise OptionError(
                f"Cond: the branches have other outputs: {named(first)} and {named(second)}",
                hint="give them the same names",
            )
        return first


def outputs_of(model: Any) -> list[str]:
    """Lists the outputs that a model exposes, else its canonical outputs."""
    node = node_of(model)
    return list(node.output_keys or [wire.key_name for wire in node.couts])


def open_inputs(model: Any) -> list[str]:
    """Lists the inputs that have a name and no value."""
    node = node_of(model)
    return [k for k in node.input_keys if not k.startswith("$") and not node.is_valued(k)]


def named(keys: list[str]) -> str:
    return ", ".join(repr(key) for key in keys if not key.startswith("$")) or "none"


def refuse_doubles(what: str, where: str, keys: list[str], hint: str) -> None:
    for key in keys:
        if keys.count(key) > 1:
            raise OptionError(f"{what}: two keys of the {where} are called {key!r}", hint=hint)


def _of(model: Any, wires: dict[str, Any]) -> dict[str, Any]:
    """Returns the wires that are inputs of the model."""
    return {key: wires[key] for key in open_inputs(model) if key in wires}


__all__ = ["Cond", "Scan", "While"]
