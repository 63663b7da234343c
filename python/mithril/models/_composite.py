"""The base of classes that compose a model of others in their constructor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mithril.base.public import public
from mithril.errors import SignatureError, shown
from mithril.logical.annotation import ANY_TENSOR
from mithril.logical.arguments import pairs_of
from mithril.logical.connection import TBD, Connection, connection_of, spec_of
from mithril.logical.handles import node_of
from mithril.logical.model import Model
from mithril.logical.values import Uses, key_spec

if TYPE_CHECKING:
    from mithril.logical.typing import ByKey


class Composite(Model):
    """A model that its constructor composes of others; it is frozen from then on."""

    _connect_order: tuple[str, ...] = ()
    _tensors: tuple[str, ...] = ()  # keys that no op says to be tensors when it is their turn
    _arguments: dict[str, Any] = {}

    def _compose(self, name: str | None, arguments: dict[str, Any], /, **keys: Any) -> _Composing:
        """Starts the model; a `with` block gets the keys by name, each with the value it was given.

        `arguments` are those of the constructor that no key is named after; `init` among them is
        what `set_initializers` takes.
        """
        Model.__init__(self, name)
        given = {key: value for key, value in keys.items() if value is not TBD}
        self._arguments = {**arguments, **given}
        if self._arguments.get("init", TBD) is None:
            del self._arguments["init"]
        return _Composing(self, keys)

    @public
    def set_shapes(self, config: ByKey = None, /, **kwargs: Any) -> None:
        """States shapes. Names of sizes in the constructor are its own: they show as u1, u2 …"""
        pairs = pairs_of("set_shapes", config, kwargs)
        if not self.is_frozen:
            pairs = [(key, [_own_name(item) for item in shape]) for key, shape in pairs]
        self._node.set_shapes(pairs)

    def _set_open_cins(self, *keys: str) -> None:
        """Makes these keys the canonical inputs, but for those that were given a value."""
        self.set_cin(*(key for key in keys if not self._node.is_valued(key)))

    @property
    def factory_args(self) -> dict[str, Any]:
        return dict(self._arguments)

    def _argument_order(self, count: int) -> list[str]:
        inputs = self._node.input_keys
        order = [key for key in self._connect_order if key in inputs]
        order += [key for key in self._node.connect_order if key not in order]
        if count > len(order):
            raise SignatureError(
                f"{self!r}: takes at most {len(order)} positional arguments"
                f" ({', '.join(order)}), got {count}"
            )
        return order[:count]


def _own_name(item: Any) -> Any:
    """An item of a template; names that start with `$` are not given to sizes."""
    if isinstance(item, tuple):
        return (f"${item[0]}", *item[1:])
    return f"${item}" if isinstance(item, str) else item


class _Composing:
    """The `with` block of a constructor: `Tensor`s that it was given are taken if it succeeds."""

    def __init__(self, model: Composite, keys: dict[str, Any]):
        self._model = model
        self._keys = keys
        self._used = Uses()

    def __enter__(self) -> dict[str, Connection]:
        return {key: self._connection(key, value) for key, value in self._keys.items()}

    def _connection(self, key: str, value: Any) -> Connection:
        if isinstance(value, Connection):
            fields = spec_of(value) or key_spec()
        else:
            what = f"{type(self._model).__name__}: {key}"
            fields = key_spec(value=self._used.take(value), what=what)
        kinds = fields[4]
        if kinds is None and key in self._model._tensors:
            kinds = ANY_TENSOR
        return connection_of((key, *fields[1:4], kinds, *fields[5:]), None)

    def __exit__(self, error: Any, *rest: Any) -> None:
        try:
            if error is None:
                self._finish()
        except BaseException as failure:
            self._used.__exit__(type(failure), failure)
            raise
        self._used.__exit__(error, *rest)

    def _finish(self) -> None:
        node_of(self._model).freeze()
        if "init" in self._model._arguments:
            self._model.set_initializers(self._model._arguments["init"])


def require_model(what: str, value: Any, example: str) -> Model:
    """Returns a model, and raises for anything else, such as a class instead of an object of it."""
    if isinstance(value, Model):
        return value
    hint = f"make one: {value.__name__}()" if isinstance(value, type) else f"such as {example}"
    raise SignatureError(f"{what}: requires a model, got {shown(value)}", hint=hint)
