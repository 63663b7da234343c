"""`model.conns`: the keys and wires of a model by kind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from mithril._arguments import key_of
from mithril.connection import Connection

if TYPE_CHECKING:
    from mithril.model import Model


class Connections:
    """`model.conns`: keys and wires by kind."""

    def __init__(self, model: Model):
        self._model = model
        self._node = model._node

    def _wires(self, keys: Iterable[str]) -> list[Connection]:
        return [Connection._of(self._node.connection(key)) for key in keys]

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
        return [Connection._of(wire) for wire in self._node.cins]

    @property
    def couts(self) -> list[Connection]:
        return [Connection._of(wire) for wire in self._node.couts]

    def get_connection(self, key: str) -> Connection | None:
        wire = self._node.find_connection(key)
        return None if wire is None else Connection._of(wire)

    def get_key_origin(self, key: str) -> str:
        return self._node.key_origin(key)

    def get_type(self, key: str | Connection) -> str:
        return self._node.type(key_of(key))
