"""The type annotations of the arguments of layers, from the registry and the engine."""

from __future__ import annotations

from typing import Any

from mithril import _core
from mithril.types import MISSING

STUB_IMPORTS = """\
import typing
from types import EllipsisType

from mithril.logical.calls import Call, Calls, ExtendInfo
from mithril.logical.typing import Initial, Output, Padding, Sizes, Value, Wire, Wired
from mithril.models.operator_model import OperatorModel
from mithril.types import Constant, DTypeLike, PaddingType
"""
_KINDS = _core.kinds()
_TENSORS = _KINDS["tensor_bool"] | _KINDS["tensor_int"] | _KINDS["tensor_float"]
_HOST = sum(_KINDS.values()) & ~_TENSORS
# Kind of content -> type.
_OF_KIND = {
    "bool": "bool",
    "int": "int",
    "float": "float",
    "none": "None",
    "str": "str",
    "slice": "slice",
    "ellipsis": "EllipsisType",
    "dtype": "DTypeLike",
    "tuple": "tuple[typing.Any, ...]",
    "list": "list[typing.Any]",
    "padding_type": "PaddingType",
    "constant": "Constant",
    "dict": "dict[typing.Any, typing.Any]",
    "opaque": "typing.Any",
}
# Arguments that the engine looks at when it knows shapes, by what all ops mean by their names.
_OF_NAME = {
    **dict.fromkeys(("axis", "axes", "dim", "reps", "repeats", "shift"), "Sizes"),
    **dict.fromkeys(("kernel_size", "output_size", "stride", "dilation"), "Sizes"),
    **dict.fromkeys(("axis1", "axis2", "start_dim", "end_dim", "num_heads"), "int"),
    **dict.fromkeys(("M", "N"), "int"),
    **dict.fromkeys(("is_causal", "categorical", "robust"), "bool"),
    **dict.fromkeys(("correction", "dropout_p", "nan", "posinf", "neginf", "scale"), "float"),
    **dict.fromkeys(("low", "high", "min_val", "max_val"), "float"),
    **dict.fromkeys(("source", "destination"), "Sizes"),
    "weights": "bool | Value",
    "pos_weight": "Value",
    "threshold": "float | Constant",
    "padding": "Padding | PaddingType | str",
    "dtype": "DTypeLike",
}


def of_parameters(
    op: dict, parameters: list[tuple[str, str | None]], further: list[tuple[str, str]]
) -> dict[str, str]:
    """Returns the type annotation of each argument by name."""
    defaults = dict([*parameters, *further])
    inputs = {i["name"]: i for i in op["inputs"]}
    kinds = _kinds_of_keys(op)
    out = {}
    for name, default in defaults.items():
        if name in op["attr_types"]:
            bits, choices = op["attr_types"][name]
            out[name] = _of_attr(name, bits, choices, default)
        elif name in kinds:
            out[name] = _or_none(f"{_of_key(name, kinds[name], inputs[name])} | Wired", default)
        elif name == "robust":
            out[name] = "bool"
        elif name == "inference":
            out[name] = "bool | None"
        else:
            out[name] = "Value"
    return out


def _of_attr(name: str, bits: int, choices: list[str], default: str | None) -> str:
    if choices:
        kind = f"typing.Literal[{', '.join(map(repr, choices))}]"
        return f"{kind} | None" if default in (None, "None") or _allows_none(bits) else kind
    return _or_none(_of_bits(name, bits, default), default)


def _allows_none(bits: int) -> bool:
    return bool(bits & _KINDS["none"]) and bits & _HOST != _HOST


def _of_key(name: str, bits: int, entry: dict) -> str:
    default = entry["default"]
    return _of_bits(name, bits, None if default is MISSING else repr(default))


def _of_bits(name: str, bits: int, default: str | None) -> str:
    """The union of what kinds of content an argument takes; where that is all of them, what its
    name or its default says."""
    if bits & _HOST == _HOST:
        return _OF_NAME.get(name) or _like(default)
    kinds = [text for kind, text in _OF_KIND.items() if bits & _KINDS[kind]]
    kinds = [kind for kind in kinds if not (kind in ("int", "bool") and "float" in kinds)]
    return " | ".join([*kinds, *(["Value"] if bits & _TENSORS else [])])


def _like(default: str | None) -> str:
    """Returns the type of a default; "typing.Any" where it says too little."""
    if default in ("True", "False"):
        return "bool"
    try:
        value: Any = None if default is None else float(default)
    except ValueError:
        return "typing.Any"
    if value is None:
        return "typing.Any"
    return "float" if "." in str(default) or "e" in str(default) else "Sizes"


def _or_none(kind: str, default: str | None) -> str:
    parts = kind.split(" | ")
    return (
        kind if default != "None" or "None" in parts or "typing.Any" in parts else f"{kind} | None"
    )


def _kinds_of_keys(op: dict) -> dict[str, int]:
    """Returns the kinds of content of each key, as narrow as the engine infers from the op."""
    node = _leaf(op)
    values = [i for i in op["inputs"] if i["is_key"] or not i["kinds"] & _TENSORS]
    return {i["name"]: _kinds(node, i) for i in values if not i["variadic"]}


def _kinds(node: Any, entry: dict) -> int:
    return entry["kinds"] if node is None else node.kinds(entry["name"])


def _leaf(op: dict) -> Any:
    """Returns a node of the op with open keys; None where its arguments have no values to try."""
    attrs = {name: default for name, default in op["attrs"] if default is not MISSING}
    keys = {entry["name"] for entry in op["inputs"]}
    for sample in op["samples"][:1]:
        attrs |= {k: v for k, v in sample["attrs"].items() if k not in keys and k not in attrs}
    if any(name not in attrs for name, _ in op["attrs"]):
        return None
    attrs = {name: value for name, value in attrs.items() if name != "n" or not _counts(op)}
    spec = {
        "name": "",
        "attrs": attrs,
        "keys": {},
        "open": [i["name"] for i in op["inputs"] if i["default"] is not MISSING],
        "absent": [],
        "count": None,
    }
    return None if _counts(op) else _core.ModelNode.leaf(op["name"], spec)


def _counts(op: dict) -> bool:
    return any(i["variadic"] for i in op["inputs"]) and any(n == "n" for n, _ in op["attrs"])
