"""The part `training` of a model file: the data of a `TrainModel` besides its tree."""

from __future__ import annotations

import base64
import json
from typing import Any

from mithril import _core
from mithril.errors import MithrilError, ParseError, UnsupportedError, shown
from mithril.logical.connection import connection_on
from mithril.logical.handles import adopt, handle, node_of, wire_of
from mithril.logical.model import TBD, Connection, Model, Tensor, note_trained, object_of
from mithril.training.cost import Loss, Penalty
from mithril.training.training_model import MetricKey, TrainModel
from mithril.types import as_dtype

_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "an integer",
}
_ABSTRACT = {"float": "float64", "int": "int64"}


def text_of(model: Model) -> str:
    """Returns the JSON text of a `TrainModel`, "" for other models."""
    if not isinstance(model, TrainModel):
        return ""
    parts = {child.tag: number for number, child in enumerate(node_of(model).submodels)}
    state = {
        "final": model._is_final,
        "losses": [
            {
                "text": loss.text,
                "result": _key(model, loss.result),
                "steps": [[_key(model, read), parts[node_of(s).tag]] for read, s in loss.steps],
            }
            for loss in model._losses
        ],
        "penalties": [
            {
                "text": term.text,
                "coef": _coefficient(term.coef),
                "result": _key(model, term.result),
                "target": term.target,
            }
            for term in model._penalties
        ],
        "metrics": [metric._asdict() for metric in model._metrics],
        "outputs": model._predicted,
    }
    if model._combiner is not None and not model._is_final:
        state["combiner"] = json.loads(model._combiner.to_json())
    return json.dumps(state)


def _key(model: Model, wire: Connection) -> str:
    found = node_of(model).find_connection(wire_of(wire))
    return found.key_name


def _coefficient(coef: Any) -> Any:
    if isinstance(coef, int | float):
        return coef if isinstance(coef, float) or abs(coef) < 1 << 63 else float(coef)
    literal: Any = coef.value if isinstance(coef, Tensor) else TBD
    if literal is TBD:
        raise UnsupportedError(
            "model file: a coefficient that is a connection, or has no value, cannot be written"
        )
    form = {"dtype": str(literal.dtype), "shape": list(literal.shape)}
    return {"tensor": {**form, "bytes": base64.b64encode(literal.bytes).decode()}}


def model_of(node: Any, text: str) -> Model:
    """The `TrainModel` of a tree that was read, and of the text beside it."""
    try:
        return _filled(object_of(TrainModel, node), node, json.loads(text))
    except MithrilError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ParseError(f"model file: malformed 'training': {error}") from None


def _filled(model: Any, node: Any, state: Any) -> Model:
    state = _is(dict, state)
    parts = node.submodels
    model._inner = adopt(model, handle(_item(parts, 0)))
    note_trained(model._inner)
    model._losses = [
        Loss(
            _is(str, loss["text"]),
            _wire(node, loss["result"]),
            [_step(model, node, parts, step) for step in _is(list, loss["steps"])],
        )
        for loss in _forms(state["losses"])
    ]
    model._penalties = [
        Penalty(
            _is(str, term["text"]),
            _read_coefficient(term["coef"]),
            _wire(node, term["result"]),
            _is(str, term["target"]),
        )
        for term in _forms(state["penalties"])
    ]
    model._metrics = [
        MetricKey(_is(str, metric["text"]), _is(str, metric["key"]))
        for metric in _forms(state["metrics"])
    ]
    model._predicted = [_is(str, key) for key in _is(list, state["outputs"])]
    model._is_final = _is(bool, state["final"])
    model._combiner = None
    if "combiner" in state:
        model._combiner = Model.from_json(json.dumps(_is(dict, state["combiner"])))
    return model


def _is(kind: type, value: Any) -> Any:
    """Checks that a value from JSON is of a type, and returns it."""
    if isinstance(value, str):
        value.encode()  # half a surrogate pair is no text
    if type(value) is not kind:
        raise TypeError(f"requires {_KINDS[kind]}, got {shown(value)}")
    return value


def _forms(value: Any) -> list[dict[str, Any]]:
    return [_is(dict, item) for item in _is(list, value)]


def _item(items: list, number: Any) -> Any:
    if not 0 <= _is(int, number) < len(items):
        raise ValueError(f"there is no part {number}")
    return items[number]


def _wire(node: Any, key: Any) -> Connection:
    return connection_on(node.connection(_is(str, key)))


def _step(model: Any, node: Any, parts: list, step: Any) -> tuple[Connection, Model]:
    if len(_is(list, step)) != 2:
        raise ValueError("a reduce step is what it reads and a part")
    return _wire(node, step[0]), adopt(model, handle(_item(parts, step[1])))


def _read_coefficient(value: Any) -> Any:
    if type(value) in (int, float):
        return value
    if list(_is(dict, value)) != ["tensor"]:
        raise ValueError("a coefficient is a number or a tensor")
    form = _is(dict, value["tensor"])
    name = _is(str, form["dtype"])
    shape = [_is(int, size) for size in _is(list, form["shape"])]
    if not all(0 <= size < 1 << 63 for size in shape):
        raise ValueError("a size is out of range")
    if "data" in form:  # as files were written once
        raw = _elements(name, _is(list, form["data"]))
    else:
        raw = base64.b64decode(_is(str, form["bytes"]), validate=True)
    return Tensor(_core.TensorLiteral.from_bytes(name, shape, raw))


def _elements(name: str, data: list) -> bytes:
    from mithril.base.numpy import np

    wanted = as_dtype(_ABSTRACT.get(name, name)).numpy()
    if not all(type(x) in (int, float, bool) for x in data):
        raise TypeError("the elements of a tensor are numbers or bools")
    return np.array(data, wanted).tobytes()


__all__ = ["model_of", "text_of"]
