"""The oracle: what a model file means, computed by plain NumPy in float64.

It reads the JSON that `model.to_json()` writes, which no pass has touched (flatten neither), and
shares nothing with the engine: no reader, no inference, no order. What each op is stands in
`oracle_ops.py`; `torch_oracle.py` has gradients.

>>> import mithril as ml
>>> model = ml.Model()
>>> model |= ml.Exponential()(input="x", output="y")
>>> evaluate(model.to_json(), {"x": [0.0, 1.0]}).outputs["y"].round(4).tolist()
[1.0, 2.7183]
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mithril.testing import oracle_loops
from mithril.testing.oracle_loops import Folding, Loop, OracleError
from mithril.testing.oracle_ops import DTYPES, ops_for

Wire = tuple[str, str]  # id of a model ("": the outermost one), name
Ops = Mapping[str, Callable[..., Any]]
RESULTS = {  # of ops with several
    "eigh": ("values", "vectors"),
    "scaled_det": ("fraction", "exponent"),
    "slogdet": ("sign", "logabsdet"),
    "topk": ("values", "indices"),
    "qr": ("q", "r"),
    "svd": ("u", "values", "vt"),
    **dict.fromkeys(
        ("dft", "rdft", "fft", "ifft", "rfft", "fft2", "ifft2", "rfft2"),
        ("output_real", "output_imag"),
    ),
    "attention_with_logsumexp": ("output", "logsumexp"),
    "attention_grad": ("query_gradient", "key_gradient", "value_gradient"),
    "attention_grad_with_scores": (
        "query_gradient",
        "key_gradient",
        "value_gradient",
        "scores_gradient",
    ),
}
# What an op's function returns after its result: the next values of these inputs.
NEXT = {
    **dict.fromkeys(
        ("batch_norm1d", "batch_norm2d", "batch_norm3d"), ("running_mean", "running_var")
    ),
    "dropout": ("rng_key",),
    "dropout_attention": ("rng_key",),
    "draw_rand": ("rng_key",),
    "draw_randn": ("rng_key",),
    "draw_randint": ("rng_key",),
}
NO_STATE_KEY = (0, 42)  # of draws that start anew at every call
KEY = ("", "rng_key")  # the model's random key, which all draws move in turn


class Op(NamedTuple):
    name: str
    attrs: dict[str, Any]
    wires: dict[str, Wire]  # its keys, inputs and outputs
    items: int  # operands of a variadic op that are keys of their own; -1: none
    model: str  # id of the model that it is a part of


Unit = Op | Loop


@dataclass
class Program:
    """A model without its nesting: wires that are connected have one name."""

    ops: list[Op] = field(default_factory=list)  # in the order of the tree
    values: dict[Wire, Any] = field(default_factory=dict)
    shapes: list[tuple[Wire, list[Any], Any]] = field(default_factory=list)  # with a scope
    states: list[tuple[Wire, Wire, Any]] = field(default_factory=list)  # input, next, first
    outputs: list[str] = field(default_factory=list)


class Result(NamedTuple):
    outputs: dict[str, Any]
    states: dict[str, Any]  # the next ones


# --- reading -------------------------------------------------------------------------------------


def parse(text: str) -> Program:
    """The program that a model file stands for."""
    return _Flattener(json.loads(text)).program


class _Flattener:
    def __init__(self, document: dict[str, Any]):
        if document.get("format") != "mithril-model":
            raise OracleError("no model file")
        self._models = {"": document["model"], **document.get("submodels", {})}
        self._outer: dict[Wire, Wire] = {}
        self.program = Program()
        self._tree()
        for number, statement in enumerate(document.get("facts", [])):
            for said in statement["says"]:
                self._fact(said, self._top((said.get("model", ""), said["wire"])), number)
        top = self._models[""]
        self.program.outputs = top.get("outputs") or top.get("couts", [])

    def _tree(self) -> None:
        """Reads every part in order, with the parts of a model in its place."""
        rest = self._parts("")
        while rest:
            id_, part = rest.pop()
            if "model" in part:
                for key, wire in part["wires"].items():
                    self._outer[part["model"], key] = self._top((id_, wire))
                rest += self._parts(part["model"])
            else:
                self._op(id_, part, part["wires"])

    def _top(self, wire: Wire) -> Wire:
        """Returns the outermost wire that is the same as this one."""
        return self._outer.get(wire, wire)

    def _parts(self, id_: str) -> list[tuple[str, dict[str, Any]]]:
        """Returns a model's parts in reverse; adds its values and states to the program."""
        model = self._models[id_]
        if "op" in model:
            self._op(id_, model, {key: key for key in model["wires"]})
        for wire, value in model.get("initial", {}).items():
            self.program.values[self._top((id_, wire))] = read_value(value)
        for state in model.get("states", []):
            pair = [self._top((id_, state[end])) for end in ("input", "output")]
            self.program.states.append((pair[0], pair[1], read_value(state.get("initial"))))
        return [(id_, part) for part in reversed(model.get("parts", []))]

    def _op(self, id_: str, part: dict[str, Any], keys: dict[str, str | None]) -> None:
        number = len(self.program.ops)
        own = f"{id_}#{number}"  # wires that only the op has
        wires = {k: (own, k) if w is None else self._top((id_, w)) for k, w in keys.items()}
        attrs = {name: read_value(value) for name, value in part.get("attrs", {}).items()}
        self.program.ops.append(Op(part["op"], attrs, wires, part.get("items", -1), id_))
        for key, value in part.get("values", {}).items():
            self.program.values[wires[key]] = read_value(value)
        for said in part.get("facts", []):
            self._fact(said, wires[said["wire"]], (own, said["wire"]))

    def _fact(self, said: dict[str, Any], wire: Wire, scope: Any) -> None:
        if "value" in said:
            self.program.values[wire] = read_value(said["value"])
        if "shape" in said:
            self.program.shapes.append((wire, said["shape"], ("scope", said.get("scope", scope))))


def read_value(value: Any) -> Any:
    """A value of a model file; tensors as the oracle holds them."""
    if isinstance(value, list):
        return [read_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "tuple":
        return tuple(read_value(item) for item in content)
    if tag == "slice":
        return slice(*content)
    if tag == "float":
        return float(content)
    if tag == "ellipsis":
        return ...
    return content if tag == "dtype" else _literal(content)


def _literal(tensor: dict[str, Any]) -> np.ndarray:
    name = DTYPES.get(tensor["dtype"], tensor["dtype"])
    if "data" in tensor:
        data = [float(x) if isinstance(x, str) else x for x in tensor["data"]]
        return held(np.array(data, name.replace("bfloat16", "float32")).reshape(tensor["shape"]))
    raw = base64.b64decode(tensor["bytes"])
    if name == "bfloat16":  # the upper half of a float32
        words = np.frombuffer(raw, "<u2").astype("<u4") << 16
        return held(words.view("<f4").reshape(tensor["shape"]))
    return held(np.frombuffer(raw, name).reshape(tensor["shape"]))


def held(array: Any) -> Any:
    """Converts floats to float64, as the oracle holds them; keeps integers and bools."""
    array = np.asarray(array)
    return array.astype(np.float64) if array.dtype.kind not in "iub" else array


# --- running -------------------------------------------------------------------------------------


def evaluate(
    text: str, inputs: Mapping[str, Any], *, float_dtype: str = "float64", mode: str = "eval"
) -> Result:
    """Outputs and next states of a model file.

    `inputs` has a value for every input of the outermost model that has none, and the key of
    random numbers (`rng_key`); `float_dtype` decides what these and thresholds are, `mode` what
    layers do that are not told.
    """
    with np.errstate(all="ignore"):
        return run(parse(text), inputs, ops_for(float_dtype), mode, held)


def run(
    program: Program, inputs: Mapping[str, Any], ops: Ops, mode: str, hold: Callable[[Any], Any]
) -> Result:
    """Interprets a program with a table of op functions; `hold` makes an array what they take."""
    values = {wire: _tensors(value, hold) for wire, value in program.values.items()}
    values |= {input_: _tensors(first, hold) for input_, _, first in program.states}
    values |= {("", name): v if _is_host(v) else hold(v) for name, v in inputs.items()}
    moved: dict[Wire, Any] = {}  # by wire: what ops make of their state
    free = {KEY: hold(np.array(NO_STATE_KEY))}  # the key of draws that carry no state
    units = _needed(program)
    _refuse_derivatives(units)

    def step(unit: Unit, values: dict[Wire, Any]) -> None:
        if isinstance(unit, Loop):
            oracle_loops.run(unit, values, step, ops["stack"])
        else:
            _step(unit, values, ops, mode, moved, free)

    for unit in units:
        step(unit, values)
    _check_shapes(program, values)
    return Result(
        {name: _found(values, ("", name)) for name in program.outputs},
        {wire[1]: value for wire, value in moved.items()}
        | {wire[1]: values[output] for wire, output, _ in program.states if output in values},
    )


def _tensors(value: Any, hold: Callable[[Any], Any]) -> Any:
    """A value of the file with what `hold` makes of its tensors."""
    if isinstance(value, tuple | list):
        return type(value)(_tensors(item, hold) for item in value)
    return hold(value) if isinstance(value, np.ndarray) else value


def _is_host(value: Any) -> bool:
    return isinstance(value, tuple | slice | str | bool | int | float | type(None))


def results_of(op: Op) -> list[str]:
    named = RESULTS.get(op.name, ("output",))
    return [key for key in op.wires if key in named or key.startswith(("output_", "new_"))]


def _inputs_of(op: Op) -> list[str]:
    outputs = results_of(op)
    return [key for key in op.wires if key not in outputs]


def _reads(unit: Unit) -> list[Wire]:
    return unit.reads if isinstance(unit, Loop) else [unit.wires[k] for k in _inputs_of(unit)]


def _writes(unit: Unit) -> list[Wire]:
    return unit.writes if isinstance(unit, Loop) else [unit.wires[k] for k in results_of(unit)]


def _needed(program: Program) -> list[Unit]:
    """Returns the ops and loops that outputs and states depend on, in an order to run them."""
    wanted = [("", name) for name in program.outputs] + [state[1] for state in program.states]
    return _ordered(Folding(_reads, _writes, _ordered).folded(program.ops), wanted)


def _ordered(units: list[Unit], wanted: list[Wire]) -> list[Unit]:
    """Returns the units that wires depend on, in tree order, each after the units it reads."""
    writer = {wire: n for n, unit in enumerate(units) for wire in _writes(unit)}
    reads = [[writer[wire] for wire in _reads(unit) if wire in writer] for unit in units]
    needed = _closure([writer[wire] for wire in wanted if wire in writer], reads)
    order: dict[int, None] = {}
    for start in sorted(needed):
        path = [start]
        while path:
            rest = [n for n in reads[path[-1]] if n not in order]
            if not rest:
                order[path.pop()] = None
            elif rest[0] in path:
                name = getattr(units[start], "name", "scan")
                raise OracleError(f"{name}: it reads what it writes")
            else:
                path.append(rest[0])
    return [units[n] for n in order]


def _refuse_derivatives(units: list[Unit]) -> None:
    """Raises OracleError for derivatives other than 0, which the oracle does not compute."""
    for derivative in (u for u in units if isinstance(u, Op) and u.name == "gradient"):
        reached = {derivative.wires["wrt"]}
        for unit in units:
            if not reached.isdisjoint(_reads(unit)):
                reached.update(_writes(unit))
        if derivative.wires["of"] in reached:
            raise OracleError("the oracle does not differentiate")


def _closure(start: Iterable[int], reads: list[list[int]]) -> set[int]:
    found, rest = set(start), list(start)
    while rest:
        more = set(reads[rest.pop()]) - found
        found |= more
        rest += more
    return found


def _found(values: Mapping[Wire, Any], wire: Wire) -> Any:
    if wire not in values:
        raise OracleError(f"no value for {wire[1]!r}")
    return values[wire]


def _step(
    op: Op, values: dict[Wire, Any], ops: Ops, mode: str, moved: dict[Wire, Any], free: dict
) -> None:
    """Runs an op; what it reads, writes and moves is in `values`, `moved` and `free`."""
    if op.name not in ops:
        raise OracleError(f"the oracle has no op {op.name!r}")
    named = dict(op.attrs)
    mode = named.get("mode") or mode
    if "mode" in named:
        named["mode"] = mode
    carried = mode == "train"
    given = {key: op.wires[key] for key in _inputs_of(op)}
    states = [given.get(key, KEY) for key in NEXT.get(op.name, ())]
    if KEY in states:
        named["rng_key"] = _found(values if carried else free, KEY)
    for key, wire in given.items():
        named[key] = _found(values, wire)
    results = _call(ops[op.name], op, list(given), named)
    outputs = [op.wires[key] for key in results_of(op)]
    several = len(outputs) > 1 or states
    results = results if several and isinstance(results, tuple) else (results,)
    values.update(zip(outputs, results, strict=False))
    for wire, value in zip(states, results[1:], strict=False):
        if carried:  # two layers that share a state move it one after the other
            values[wire] = moved[wire] = value
        elif op.name not in ("dropout", "dropout_attention"):
            free[wire] = value


def _call(function: Callable[..., Any], op: Op, keys: list[str], named: dict[str, Any]) -> Any:
    """Calls by name; passes operands of a variadic op by position, after the positional ones."""
    before, spread = _positional(function)
    if spread is None:
        return function(**named)
    items = [named.pop(key) for key in keys] if op.items >= 0 else named.pop(spread)
    return function(*(named.pop(name) for name in before), *items, **named)


@functools.cache
def _positional(function: Callable[..., Any]) -> tuple[list[str], str | None]:
    """Parameters that stand before `*items`, and the name of that."""
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            return names, name
        names.append(name)
    return names, None


def _check_shapes(program: Program, values: Mapping[Wire, Any]) -> None:
    """Checks the stated shapes; equal names must have equal sizes."""
    names: dict[Any, int] = {}
    for wire, stated, scope in program.shapes:
        if wire not in values:
            continue
        shape = np.shape(values[wire])
        many = [i for i, item in enumerate(stated) if isinstance(item, dict)]
        if many:
            front, back = stated[: many[0]], stated[many[0] + 1 :]
            pairs = list(zip(front, shape, strict=False))
            pairs += list(zip(back[::-1], shape[::-1], strict=False))
            fits = len(shape) >= len(front) + len(back)
        else:
            pairs, fits = list(zip(stated, shape, strict=False)), len(shape) == len(stated)
        for item, size in pairs:
            known = names.setdefault((scope, item), size) if isinstance(item, str) else item
            fits = fits and known in (None, size)
        if not fits:
            raise OracleError(f"{wire[1]}: stated {stated}, found {tuple(shape)}")


__all__ = ["OracleError", "Program", "Result", "evaluate", "parse", "run"]
