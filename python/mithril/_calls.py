"""Requests to extend: a child with what its keys shall be wired to, and what a call returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril._arguments import mark_used
from mithril.connection import NOT_GIVEN, Connection, Tensor, as_argument
from mithril.errors import ArgumentError, SignatureError

if TYPE_CHECKING:
    from mithril.model import Model


class ExtendInfo:
    """A model with what its keys shall be wired to; `model |= child.connect(...)` takes it."""

    def __init__(self, model: Model, connections: dict[str, Any]):
        from mithril.model import Model

        if not isinstance(model, Model):
            raise SignatureError(f"extend: requires a model, got {type(model).__name__}")
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
        self.interval = None
        self._fields = None

    @property
    def _wire(self):  # type: ignore[override]
        return self._request.wires()[0]

    def __repr__(self) -> str:
        return f"<Call of {self._request.child!r}>"


class Calls:
    """The results of a child with several outputs: unpack it, or give it to `|=`."""

    def __init__(self, child: Model, connections: dict[str, Any]):
        self._request = _Request(child, connections)

    def _connections(self) -> list[Connection]:
        return [Connection._of(wire) for wire in self._request.wires()]

    def __iter__(self):
        return iter(self._connections())

    def __len__(self) -> int:
        return len(self._request.child._node.output_keys)

    def __getitem__(self, index):
        return self._connections()[index]

    def _as_argument(self, used):
        return list(self._request.wires())


class _Request:
    """One pending use of a child; becomes an extend or a functional call."""

    def __init__(self, child: Model, connections: dict[str, Any]):
        info = ExtendInfo(child, connections)
        self.child = child
        self.connections = info.connections
        self._wires: list | None = None

    def wires(self) -> list:
        if self._wires is None:
            used: list[Tensor] = []
            arguments = {k: as_argument(v, used) for k, v in self.connections.items()}
            self._wires = _core.ModelNode.call(self.child._node, arguments)
            mark_used(used)
        return self._wires

    def as_extension(self) -> tuple[Model, dict[str, Any]]:
        if self._wires is not None:
            raise ArgumentError(
                "this call has been used as a connection already",
                hint="extend with what is made of it, or use .connect(...)",
            )
        return self.child, self.connections

    def extended(self) -> None:
        node = self.child._node
        self._wires = [node.connection(key) for key in node.output_keys]
