"""The oracle before any pass: what a model file means, computed by plain NumPy in float64.

It reads the JSON that `model.to_json()` writes and shares nothing with the engine: neither its
flatten nor its inference. What each op is stands in `oracle_ops.py`.

>>> import mithril as ml
>>> model = ml.Model()
>>> model |= ml.Exponential()(input="x", output="y")
>>> evaluate(model.to_json(), {"x": [0.0, 1.0]}).outputs["y"].round(4).tolist()
[1.0, 2.7183]
"""

from __future__ import annotations

import base64
import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from mithril.testing.oracle import DTYPES, DType, OracleError, Result

Wire = tuple[str, str]  # id of a model ("": the outermost one), name
# Ops whose functions return the next state after the result.
STATEFUL = ("batch_norm2d", "dropout", "draw_rand", "draw_randn")


class Op(NamedTuple):
    name: str
    attrs: dict[str, Any]
    wires: dict[str, Wire]  # its keys, inputs and outputs
    items: int  # operands of a variadic op that are keys of their own; -1: none


@dataclass
class Program:
    """A model without its nesting: wires that are one have one name."""

    ops: list[Op] = field(default_factory=list)
    values: dict[Wire, Any] = field(default_factory=dict)
    shapes: list[tuple[Wire, list[Any], Any]] = field(default_factory=list)  # with a scope
    states: list[tuple[Wire, Wire, Any]] = field(default_factory=list)  # input, next, first
    outputs: list[str] = field(default_factory=list)


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
        for id_ in self._ids():
            self._model(id_)
        for number, statement in enumerate(document.get("facts", [])):
            for said in statement["says"]:
                self._fact(said, self.top((said.get("model", ""), said["wire"])), number)
        top = self._models[""]
        self.program.outputs = top.get("outputs") or top.get("couts", [])

    def _ids(self) -> list[str]:
        """Parents before their parts."""
        out, rest = [], [""]
        while rest:
            id_ = rest.pop()
            out.append(id_)
            rest += [
                part["model"] for part in self._models[id_].get("parts", []) if "model" in part
            ]
        return out

    def top(self, wire: Wire) -> Wire:
        """The outermost wire that this one is."""
        while wire in self._outer:
            wire = self._outer[wire]
        return wire

    def _model(self, id_: str) -> None:
        model = self._models[id_]
        if "op" in model:
            self._op(id_, model, {key: key for key in model["wires"]})
        for part in model.get("parts", []):
            if "model" in part:
                for key, wire in part["wires"].items():
                    self._outer[part["model"], key] = self.top((id_, wire))
            else:
                self._op(id_, part, part["wires"])
        for wire, value in model.get("initial", {}).items():
            self.program.values[self.top((id_, wire))] = read_value(value)
        for state in model.get("states", []):
            pair = [self.top((id_, state[end])) for end in ("input", "output")]
            self.program.states.append((pair[0], pair[1], read_value(state.get("initial"))))

    def _op(self, id_: str, part: dict[str, Any], keys: dict[str, str | None]) -> None:
        number = len(self.program.ops)
        own = f"{id_}#{number}"  # wires that only the op has
        wires = {k: (own, k) if w is None else self.top((id_, w)) for k, w in keys.items()}
        attrs = {name: read_value(value) for name, value in part.get("attrs", {}).items()}
        self.program.ops.append(Op(part["op"], attrs, wires, part.get("items", -1)))
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
    if tag == "dtype":
        return DType(content)
    if tag == "ellipsis":
        return ...
    return _literal(content)


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


def held(value: Any) -> Any:
    """Arrays as the oracle holds them: floats in float64, integers and bools as they are."""
    array = np.asarray(value)
    return array.astype(np.float64) if array.dtype.kind not in "iub" else array


# --- running -------------------------------------------------------------------------------------


def evaluate(text: str, inputs: Mapping[str, Any], *, float_dtype: str = "float64") -> Result:
    """Outputs and next states of a model file.

    `inputs` has a value for every input of the outermost model that has none, and the key of
    random numbers (`rng_key`); `float_dtype` decides what these and thresholds are. Layers that
    know a mode are in the mode "eval".
    """
    from mithril.testing.oracle_ops import ops_for

    program = parse(text)
    values = dict(program.values)
    for input_, _, first in program.states:
        values[input_] = first
    given = {("", name): value for name, value in inputs.items()}
    values.update((w, v if _is_host(v) else held(v)) for w, v in given.items())
    with np.errstate(all="ignore"):
        state = {"rng_key": inputs["rng_key"]} if "rng_key" in inputs else {}
        _run(program, values, ops_for(float_dtype), state)
    _check_shapes(program, values)
    return Result(
        {name: values["", name] for name in program.outputs},
        {input_[1]: values[output] for input_, output, _ in program.states},
    )


def _is_host(value: Any) -> bool:
    return isinstance(value, tuple | slice | str | bool | int | float | type(None))


def _run(
    program: Program, values: dict[Wire, Any], ops: Mapping[str, Callable], state: dict
) -> None:
    """Each op as soon as what it reads is there."""
    written = {op.wires[key] for op in program.ops for key in results_of(op)}
    readers: dict[Wire, list[int]] = {}
    waits = []
    for number, op in enumerate(program.ops):
        outputs = results_of(op)
        needed = {wire for key, wire in op.wires.items() if key not in outputs} & written
        waits.append(len(needed))
        for wire in needed:
            readers.setdefault(wire, []).append(number)
    ready = [number for number, count in enumerate(waits) if count == 0]
    while ready:
        op = program.ops[ready.pop()]
        for wire, value in zip(*_apply(op, values, ops, state), strict=True):
            values[wire] = value
            for reader in readers.get(wire, []):
                waits[reader] -= 1
                if waits[reader] == 0:
                    ready.append(reader)
    if any(waits):
        raise OracleError("the model has a cycle, or lacks an input")


def results_of(op: Op) -> list[str]:
    return [key for key in op.wires if key == "output" or key.startswith(("output_", "new_"))]


def _apply(op: Op, values: Mapping[Wire, Any], ops: Mapping[str, Callable], state: dict) -> tuple:
    """What an op writes, and where."""
    outputs = results_of(op)
    missing = [k for k, w in op.wires.items() if k not in outputs and w not in values]
    if missing:
        raise OracleError(f"{op.name}: no value for {missing[0]!r}")
    given = {k: values[w] for k, w in op.wires.items() if k not in outputs}
    results = _result(op, given, ops, state)
    many = op.name in STATEFUL or len(outputs) > 1
    results = results[: len(outputs)] if many and isinstance(results, tuple) else (results,)
    return [op.wires[key] for key in outputs], list(results)


def _result(op: Op, given: dict, ops: Mapping[str, Callable], state: dict) -> Any:
    if op.name == "index":  # of tensors, tuples and lists alike
        return given["input"][given["index"]]
    if op.name == "split":
        named = {**op.attrs, **given}
        return np.split(given["input"], named["split_size"], named["axis"])
    if op.name not in ops:
        raise OracleError(f"the oracle has no op {op.name!r}")
    named = {**op.attrs, **given}
    if op.items >= 0:
        items = [named.pop(key) for key in given]
        return ops[op.name](*items, **named)
    parameters = inspect.signature(ops[op.name]).parameters
    if "rng_key" in parameters:
        named.update(state)
    if "mode" in named and named["mode"] is None:
        named["mode"] = "eval"
    spread = [n for n, p in parameters.items() if p.kind is p.VAR_POSITIONAL and n in named]
    if not spread:
        return ops[op.name](**named)
    before = list(parameters)[: list(parameters).index(spread[0])]
    items = [*(named.pop(n) for n in before), *named.pop(spread[0])]
    return ops[op.name](*items, **named)


def _check_shapes(program: Program, values: Mapping[Wire, Any]) -> None:
    """What was said of shapes holds; equal names have equal sizes."""
    names: dict[Any, int] = {}
    for wire, stated, scope in program.shapes:
        shape = np.shape(values[wire]) if wire in values else None
        if shape is None:
            continue
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
            raise OracleError(f"{wire[1]}: stated {stated}, found {shape}")


__all__ = ["Program", "evaluate", "parse"]
