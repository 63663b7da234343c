"""`model.conns`: the keys and wires of a model by kind."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mithril.base.checks import checked_str
from mithril.base.public import public
from mithril.errors import SignatureError, shown
from mithril.logical.arguments import key_of
from mithril.logical.connection import Connection, Edge, connection_on

if TYPE_CHECKING:
    from mithril.logical.model import Model


class KeyType(enum.IntEnum):
    """The role of a wire in a model, in the engine's order."""

    INPUT = 0
    LATENT_INPUT = 1
    OUTPUT = 2
    LATENT_OUTPUT = 3
    INTERNAL = 4


class Connections:
    """`model.conns`: keys and wires by kind."""

    def __init__(self, model: Model):
        self._model = model
        self._node = model._node

    def _wires(self, keys: Iterable[str]) -> list[Connection]:
        return [connection_on(self._node.connection(key)) for key in keys]

    @property
    def input_keys(self) -> list[str]:
        return self._node.input_keys

    @property
    def output_keys(self) -> list[str]:
        return self._node.output_keys

    @property
    def internal_keys(self) -> list[str]:
        return self._node.internal_keys

    @property
    def latent_input_keys(self) -> list[str]:
        return self._node.latent_input_keys

    @property
    def latent_output_keys(self) -> list[str]:
        return self._node.latent_output_keys

    @property
    def input_connections(self) -> list[Connection]:
        return self._wires(self._node.input_keys)

    @property
    def output_connections(self) -> list[Connection]:
        return self._wires(self._node.output_keys)

    @property
    def internal_connections(self) -> list[Connection]:
        return self._wires(self._node.internal_keys)

    @property
    def latent_input_connections(self) -> list[Connection]:
        return self._wires(self._node.latent_input_keys)

    @property
    def latent_output_connections(self) -> list[Connection]:
        return self._wires(self._node.latent_output_keys)

    @property
    def io_keys(self) -> list[str]:
        return self._node.external_keys

    @property
    def all(self) -> dict[str, Connection]:
        keys = self._node.all_keys
        return dict(zip(keys, self._wires(keys), strict=True))

    @property
    def cins(self) -> list[Connection]:
        return [connection_on(wire) for wire in self._node.cins]

    @property
    def couts(self) -> list[Connection]:
        return [connection_on(wire) for wire in self._node.couts]

    @public
    def get_connection(self, key: str) -> Connection | None:
        wire = self._node.find_connection(checked_str("get_connection: key", key))
        return None if wire is None else connection_on(wire)

    @public
    def get_metadata(self, key: str | Connection) -> Edge:
        """Returns the wire of a key, through all levels of nesting."""
        found = key_of("get_metadata: key", key)
        wire = self._node.connection(found) if isinstance(found, str) else found
        return connection_on(wire).metadata

    get_data = get_metadata  # an edge carries value, type and differentiability

    @public
    def get_con_by_metadata(self, edge: Edge) -> Connection | None:
        """Returns the connection of this model that an edge is visible as, or None."""
        if not isinstance(edge, Edge):
            raise SignatureError(f"get_con_by_metadata: requires an edge, got {shown(edge)}")
        wire = self._node.find_connection(edge._connection._wire)
        return None if wire is None else connection_on(wire)

    @public
    def get_non_diff_keys(self) -> set[str]:
        """Keys that are known not to be differentiable."""
        return {key for key in self._node.all_keys if self._node.differentiable(key) is False}

    @public
    def get_key_origin(self, key: str) -> str:
        return self._node.key_origin(checked_str("get_key_origin: key", key))

    @public
    def get_key_type(self, key: str | Connection) -> KeyType:
        """Returns the role of a key in the model, such as `KeyType.INPUT`."""
        return KeyType(self._node.kind(key_of("get_key_type: key", key)))

    @public
    def get_type(self, key: str | Connection) -> str:
        return self._node.type(key_of("get_type: key", key))
