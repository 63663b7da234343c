"""Types of keys, arguments and data, for type checkers; the stubs of layers are made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol

from mithril.logical.model import Model

P = ParamSpec("P")


class Array(Protocol):
    """An array that NumPy can convert: of NumPy, PyTorch, JAX or MLX."""

    @property
    def shape(self) -> Any: ...
    @property
    def dtype(self) -> Any: ...


if TYPE_CHECKING:
    from types import EllipsisType
    from typing import TypeAlias

    from mithril.logical.calls import Call, Calls, ExtendInfo
    from mithril.logical.connection import Connection, Tensor
    from mithril.types import Constant, Dtype, NullConnection, ToBeDetermined

    _Numbers: TypeAlias = Array | complex | tuple[Any, ...] | list[Any] | range | Constant | None
    # A value for a key, where it is constructed.
    Value: TypeAlias = Connection | Tensor[Any] | Calls | _Numbers | ToBeDetermined
    # What a key is wired to: a name, a connection or a value.
    _Others: TypeAlias = slice | Dtype | type | EllipsisType | NullConnection
    Wire: TypeAlias = str | Connection | Tensor[Any] | Calls | _Numbers | _Others
    # The same of a key that the model makes.
    Output: TypeAlias = str | Connection | NullConnection
    # What stands for an argument whose value comes by a wire.
    Wired: TypeAlias = Connection | Tensor[Any] | ToBeDetermined
    # What a model is extended with.
    Extension: TypeAlias = Model | ExtendInfo | Call | Calls
    # One size for all axes, or a size for each.
    Sizes: TypeAlias = int | tuple[int, ...] | list[int]
    Padding: TypeAlias = int | tuple[Any, ...] | list[Any]
    # Facts by key. The first type of a mapping is invariant, so each is named.
    ByKey: TypeAlias = (
        Mapping[str, Any] | Mapping[Connection, Any] | Mapping[str | Connection, Any] | None
    )
    # How parameters start: all of them, or by name.
    Initial: TypeAlias = str | float | Mapping[str, str | float] | None
    Arrays: TypeAlias = Mapping[str, Any]
    Gradients: TypeAlias = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]
else:
    Initial = Output = Wire = Any


def as_connected(
    connect: Callable[Concatenate[Any, P], ExtendInfo],
) -> Callable[[Callable[..., Any]], Callable[Concatenate[Any, P], Call]]:
    """Makes a `__call__` that is `Model.__call__`, typed with the keys that `connect` names."""
    call: Any = Model.__call__
    return lambda _: call
