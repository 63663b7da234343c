"""What a `TrainModel` knows besides its tree: the part `training` of a model file."""

from __future__ import annotations

import json
import sys
from typing import Any

from mithril import _core
from mithril.errors import ParseError, UnsupportedError
from mithril.model import Connection, Model, Tensor, handle


def text_of(model: Model) -> str:
    """JSON text, "" for what is no `TrainModel`."""
    module = sys.modules.get("mithril.train_model")
    if module is None or not isinstance(model, module.TrainModel):
        return ""
    parts = {child.tag: number for number, child in enumerate(model._node.submodels)}
    state = {
        "final": model._is_final,
        "losses": [
            {
                "text": loss.text,
                "result": _key(model, loss.result),
                "steps": [[_key(model, read), parts[s._node.tag]] for read, s in loss.steps],
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
        "outputs": model._outputs,
    }
    if model._combiner is not None and not model._is_final:
        state["combiner"] = json.loads(model._combiner.to_json())
    return json.dumps(state)


def _key(model: Model, wire: Connection) -> str:
    found = model._node.find_connection(wire._wire)
    return found.key_name


def _coefficient(coef: Any) -> Any:
    if isinstance(coef, Connection):
        raise UnsupportedError("model file: a coefficient that is a connection cannot be written")
    if not isinstance(coef, Tensor):
        return float(coef)
    literal: Any = coef._literal
    import numpy as np

    name = str(literal.dtype)
    array = np.frombuffer(literal.bytes, {"float": "float64", "int": "int64"}.get(name, name))
    return {"tensor": {"dtype": name, "shape": list(literal.shape), "data": array.tolist()}}


def model_of(node: Any, text: str) -> Model:
    """The `TrainModel` of a tree that was read, and of the text beside it."""
    from mithril._cost import Loss, Penalty
    from mithril.train_model import TrainModel, _Metric

    try:
        state = json.loads(text)
        parts = node.submodels
        model = TrainModel.__new__(TrainModel)
        model._attach(node)
        steps = [
            [(_wire(node, key), model._adopt(handle(parts[part]))) for key, part in loss["steps"]]
            for loss in state["losses"]
        ]
        model._inner = model._adopt(handle(parts[0]))
        model._losses = [
            Loss(_text(loss["text"]), _wire(node, loss["result"]), read)
            for loss, read in zip(state["losses"], steps, strict=True)
        ]
        model._penalties = [
            Penalty(
                _text(term["text"]),
                _read_coefficient(term["coef"]),
                _wire(node, term["result"]),
                _text(term["target"]),
            )
            for term in state["penalties"]
        ]
        model._metrics = [_Metric(_text(m["text"]), _text(m["key"])) for m in state["metrics"]]
        model._outputs = [_text(key) for key in state["outputs"]]
        model._is_final = bool(state["final"])
        combiner = state.get("combiner")
        model._combiner = None if combiner is None else Model.from_json(json.dumps(combiner))
    except (KeyError, TypeError, IndexError, ValueError, AttributeError, RecursionError) as error:
        raise ParseError(f"model file: malformed 'training': {error}") from None
    return model


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("requires a string")
    return value


def _wire(node: Any, key: str) -> Connection:
    return Connection._of(node.connection(_text(key)))


def _read_coefficient(value: Any) -> Any:
    if not isinstance(value, dict):
        return float(value)
    import numpy as np

    tensor = value["tensor"]
    name = _text(tensor["dtype"])
    array = np.array(tensor["data"], {"float": "float64", "int": "int64"}.get(name, name))
    shape = [int(size) for size in tensor["shape"]]
    return Tensor(_core.TensorLiteral.from_bytes(name, shape, array.tobytes()))


__all__ = ["model_of", "text_of"]
