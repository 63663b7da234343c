"""What pickles and deep copies are made of: a model's own JSON, what `compile` was told, and the
arguments that a backend was made with. Compiled programs are made again."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mithril.backends.backend import Backend
    from mithril.connection import Connection
    from mithril.model import Model


# --- connections ---------------------------------------------------------------------------------
def connection_parts(connection: Connection) -> tuple[Any, ...]:
    """Of a key that no model has taken in yet."""
    from mithril.errors import UnsupportedError

    if connection._fields is None or connection._wire.attached or connection._request is not None:
        raise UnsupportedError(
            f"pickle: {connection!r} is a wire of a model, and none without it",
            hint="pickle the model; model[name] is the wire again",
        )
    return _connection, (connection._fields, connection.interval)


def _connection(spec: tuple[Any, ...], interval: Any) -> Connection:
    from mithril.connection import Connection

    connection = Connection(interval=interval)
    connection._fields = spec
    connection._wire.set_spec(spec)
    return connection


# --- models -------------------------------------------------------------------------------------
def model_parts(model: Model, own: dict[str, Any]) -> tuple[Any, ...]:
    """`own` are the attributes that the model's class gave it."""
    whole = model.clone() if model._node.is_submodel else model
    return _model, (type(model), whole.to_json(history=True), {} if model._outermost_only else own)


def _model(cls: type[Model], text: str, own: dict[str, Any]) -> Model:
    from mithril.model import Model

    model = Model.from_json(text)
    if type(model) is not cls:
        node = model._node
        model = cls.__new__(cls)
        model._attach(node)
    for name, value in own.items():
        setattr(model, name, value)
    return model


# --- compiled models ----------------------------------------------------------------------------
def _physical(cls: Any, text: str, settings: dict[str, Any], options: dict[str, Any]) -> Any:
    """Of pickles that version 0.1 wrote, which had two records of options."""
    from mithril.physical.pickling import physical_of

    own = {name: value for name, value in options.items() if name not in _OF_CALLS}
    return physical_of(cls, text, {**own, **settings})


_OF_CALLS = ("item_shapes", "values", "await_values")


# --- backends -----------------------------------------------------------------------------------
def backend_parts(backend: Backend) -> tuple[Any, ...]:
    args, options = backend._made_with
    kept = {name: copy(value) for name, value in vars(backend).items() if _is_kept(name, value)}
    return _backend, (type(backend), args, options, kept, backend.get_device())


# Of what a backend has for itself: where its random numbers are, and functions by name.
_KEPT = ("_random_stream", "_custom_functions")
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def _is_kept(name: str, value: Any) -> bool:
    """Whether it may have changed since, and is no handle of a library: those are made anew."""
    return name in _KEPT or (not name.startswith("_") and isinstance(value, _PLAIN))


def _backend(
    cls: type[Backend], args: tuple[Any, ...], options: dict[str, Any], kept: Any, device: str
) -> Backend:
    backend = cls(*args, **options)
    if backend.get_device() != device:
        backend.set_device(device)
    vars(backend).update(kept)
    return backend
