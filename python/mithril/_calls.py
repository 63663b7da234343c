"""Requests to extend: a child with what its keys shall be wired to, and what a call returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril._editing import unused, with_shared
from mithril._values import Uses, key_spec
from mithril.connection import NOT_GIVEN, Connection, as_argument
from mithril.errors import ArgumentError, FrozenModelError, NotAModelError

if TYPE_CHECKING:
    from mithril.model import Model


def refuse_as_child(model: Any) -> None:
    """A TrainModel is compiled as it is and cannot be part of another model."""
    if model._outermost_only:
        raise FrozenModelError(f"{model!r} cannot be a submodel", hint="extend with its model")


class ExtendInfo:
    """A model with what its keys shall be wired to; `model |= child.connect(...)` takes it."""

    def __init__(self, model: Model, connections: dict[str, Any]):
        from mithril.model import Model

        if not isinstance(model, Model):
            raise NotAModelError(f"extend: requires a model, got {type(model).__name__}")
        refuse_as_child(model)
        given = {k: v for k, v in connections.items() if v is not NOT_GIVEN}
        _core.ModelNode.check_connections(model._node, dict.fromkeys(given, NOT_GIVEN))
        self.model = model
        self.connections = given


class Call(Connection):
    """The result of `child(...)`: what `|=` takes, and the connection that the child will make.

    The child goes into a model when this is given to `|=` or `+=`, or when the connection is
    used, whichever is first.
    """

    def __init__(self, child: Model, connections: dict[str, Any]):
        self._request = _Request(child, connections)
        self._free = _core.Wire.key(key_spec())
        self.interval = None
        self._fields = None

    @property
    def _wire(self):  # type: ignore[override]
        made = self._request.made_wires
        return self._free if made is None else made[0]

    def __repr__(self) -> str:
        return f"<Call of {self._request.child!r}>"


class Calls:
    """The results of a child with several outputs: unpack it, or give it to `|=`."""

    def __init__(self, child: Model, connections: dict[str, Any]):
        self._request = _Request(child, connections)

    def _connections(self) -> list[Connection]:
        with Uses() as used:
            return [Connection._of(wire) for wire in used.convert(self._request)]

    def __iter__(self):
        return iter(self._connections())

    def __len__(self) -> int:
        node = self._request.child._node
        return len(node.output_keys or node.couts)

    def __getitem__(self, index):
        return self._connections()[index]

    def _as_argument(self, used: Uses) -> list:
        return list(used.convert(self._request))


class _Request:
    """One pending use of a child; becomes an extend or a functional call."""

    def __init__(self, child: Model, connections: dict[str, Any]):
        info = ExtendInfo(child, connections)
        self.child = child
        self.connections = info.connections
        self.made_wires: list | None = None

    def make_wires(self, used: Uses) -> None:
        """Takes the child for functional use."""
        self.child = unused(self.child)
        connections = self._all_connections()
        arguments = {key: as_argument(value, used) for key, value in connections.items()}
        self.made_wires = _core.ModelNode.call(self.child._node, arguments)

    def withdraw(self) -> None:
        """The child is free again, as the call that used its results has failed."""
        made, self.made_wires = self.made_wires, None
        _core.ModelNode.withdraw(made or [])

    def as_extension(self) -> tuple[Model, dict[str, Any]]:
        if self.made_wires is not None:
            raise ArgumentError(
                "this call has been used as a connection already",
                hint="extend with what is made of it, or use .connect(...)",
            )
        return self.child, self._all_connections()

    def _all_connections(self) -> dict[str, Any]:
        return with_shared(self.child, self.connections)

    def extended(self, child: Model) -> None:
        self.child = child  # a copy, where the one that was called is in use elsewhere
        node = self.child._node
        self.made_wires = [node.connection(key) for key in node.output_keys]
