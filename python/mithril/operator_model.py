"""Models that are one op: what the classes made from the registry derive from."""

from __future__ import annotations

from typing import Any

from mithril import _core
from mithril._arguments import mark_used, model_name
from mithril.connection import TBD, Connection, Tensor, as_value, key_spec
from mithril.errors import ArgumentError, SignatureError
from mithril.model import Model


class OperatorModel(Model):
    """A model that is one op; its subclasses are made from the registry."""

    _op = ""
    _attrs: tuple[str, ...] = ()
    _defaults: dict[str, Any] = {}  # of wires and keys
    _optional: tuple[str, ...] = ()
    _switches: dict[str, str] = {}  # optional wire -> the attribute that makes it
    _counts = False

    def __init__(self, *args, **kwargs):
        raise SignatureError("OperatorModel: make one of its subclasses")

    def _make(self, name: str | None, values: dict[str, Any]) -> None:
        self._arguments = dict(values)  # what makes another one
        count = values.pop("n", None) if self._counts else None
        used: list[Tensor] = []
        spec: dict[str, Any] = {
            "name": model_name(name),
            "attrs": {k: as_value(v) for k, v in values.items() if k in self._attrs},
            "keys": {},
            "open": [],
            "absent": [n for n, switch in self._switches.items() if not values[switch]],
            "count": count,
        }
        missing = [k for k, v in spec["attrs"].items() if v is TBD]
        if missing:
            raise SignatureError(f"{type(self).__name__}: requires {missing[0]!r}")
        for key, value in values.items():
            if key not in self._attrs:
                self._place(spec, key, value, used)
        self._attach(_core.ModelNode.leaf(self._op, spec))
        mark_used(used)

    def _place(self, spec: dict, key: str, value: Any, used: list[Tensor]) -> None:
        if value is TBD:
            if key in self._defaults:
                spec["open"].append(key)
        elif key in self._defaults and value is self._defaults[key]:
            return
        elif value is None and key in self._optional:
            spec["absent"].append(key)
        elif isinstance(value, Connection):
            spec["keys"][key] = value._fields or key_spec()
        else:
            if isinstance(value, Tensor):
                if value._used:
                    raise ArgumentError("tensor: one Tensor object may be used in one place only")
                used.append(value)
            spec["keys"][key] = key_spec(value=value)
