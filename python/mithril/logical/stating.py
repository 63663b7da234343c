"""Facts that users state of a model's keys: shapes, types, values, constraints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

from mithril.base.checks import checked_bool, checked_list, checked_str
from mithril.base.public import public
from mithril.errors import ArgumentError, SignatureError, shown
from mithril.logical import constraints
from mithril.logical.annotation import type_of
from mithril.logical.arguments import key_of, pairs_of
from mithril.logical.connection import NOT_GIVEN, Connection
from mithril.logical.constraints import Constraint
from mithril.logical.values import Uses, as_value, lacks_value, value_spec
from mithril.types import MISSING, Constant

if TYPE_CHECKING:
    from mithril.logical.typing import ByKey, Initial


_DRAWN = "arrays and functions are given to pm.randomize_params(init=...)"


def _initializer(name: Any, value: Any) -> tuple[str, str | float]:
    """(name, how it starts), as the engine takes it."""
    name = checked_str("init", name)
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            return name, float(value)
        except OverflowError:
            raise ArgumentError(f"init of '{name}': {shown(value)} is beyond all floats") from None
    if not isinstance(value, str):
        raise SignatureError(
            f"init of '{name}': requires the name of an initializer or a number,"
            f" got {shown(value)}",
            hint=_DRAWN,
        )
    return name, checked_str(f"init of '{name}'", value)


class Stating:
    """The part of `Model` that takes facts."""

    _node: Any

    @public
    def set_shapes(self, config: ByKey = None, /, **kwargs: Any) -> None:
        """States shapes: sizes, names (shared within the call), None and one (name, ...)."""
        self._node.set_shapes(pairs_of("set_shapes", config, kwargs))

    @public
    def set_types(self, config: ByKey = None, /, **kwargs: Any) -> None:
        given = pairs_of("set_types", config, kwargs)
        pairs = [(key, type_of(value)) for key, value in given]
        self._node.set_types(pairs)

    @public
    def set_values(self, config: ByKey = None, /, initial: bool = False, **kwargs: Any) -> None:
        """Gives inputs a value; `initial`: only where training starts.

        A `Tensor` without a value says its type, shape and differentiability, and a list or tuple
        of such those of its items: `evaluate` then takes a list of arrays.
        """
        with Uses() as used:
            given = pairs_of("set_values", config, kwargs)
            if any(lacks_value(value) for _, value in given):
                if initial is not False:
                    raise ArgumentError("set_values: initial=True requires values")
                specs = [(key, value_spec(value, used, "set_values")) for key, value in given]
                self._node.set_specs(specs)
                return
            pairs = [(key, as_value(used.take(value), "set_values")) for key, value in given]
            self._node.set_values(pairs, checked_bool("set_values: initial", initial))

    @public
    def set_differentiability(self, config: ByKey = None, /, **kwargs: bool) -> None:
        given = pairs_of("set_differentiability", config, kwargs)
        pairs = [(key, checked_bool("set_differentiability", value)) for key, value in given]
        self._node.set_differentiability(pairs)

    @public
    def set_initializers(self, init: Initial = None, /, **kwargs: str | float) -> None:
        """States how parameters of this model start, which `randomize_params`, `get_parameters` and
        `init` of compiled models then follow: what a layer's argument `init=` says.

        Parameters
        ----------
        init : for all parameters, or by name, where ``*`` stands for any text. A name is that of
            the model's key, or else the path to that of a part, such as "encoder.attn.w_q". One of
            "zeros", "ones", "normal" (0, 1), "uniform_fan_in" (±1/√fan_in), "xavier_uniform",
            "xavier_normal", "kaiming_uniform", "kaiming_normal" (Glorot and Bengio 2010 and He et
            al. 2015, as PyTorch's `torch.nn.init` with the gain of ReLU for He's), or the number
            that all elements have. What was said last counts, and what a model around this one
            says counts before it.

        Raises
        ------
        KeyNotFound : no parameter has such a name
        ArgumentError : there is no such initializer

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(2, init={"weight": "zeros", "bias": 0.5}, name="body")(input="x")
        >>> model += ml.Linear(1, name="head")(output="y")
        >>> model.set_initializers({"head.*": "ones"})
        >>> pm = ml.compile(model, ml.NumpyBackend(), shapes={"x": [None, 3]}, naming="path")
        >>> {name: float(value.max()) for name, value in pm.randomize_params(seed=1).items()}
        {'body.weight': 0.0, 'body.bias': 0.5, 'head.weight': 1.0, 'head.bias': 1.0}
        """
        if isinstance(init, str | Real):
            init = {"*": init}
        if not isinstance(init, Mapping | None):
            raise SignatureError(
                "init: requires the name of an initializer, a number or a dictionary of these,"
                f" got {shown(init)}",
                hint=_DRAWN,
            )
        said = {**(init or {}), **kwargs}
        pairs = [_initializer(key, value) for key, value in said.items()]
        self._node.set_initializers(pairs)

    @public
    def set_cin(self, *keys: str | Connection, safe: bool = True) -> None:
        self._node.set_cin(
            [key_of("set_cin", k) for k in keys], checked_bool("set_cin: safe", safe)
        )

    @public
    def set_cout(self, *keys: str | Connection, safe: bool = True) -> None:
        self._node.set_cout(
            [key_of("set_cout", k) for k in keys], checked_bool("set_cout: safe", safe)
        )

    @public
    def expose_keys(self, *keys: str | Connection, **renamed: str | Connection) -> None:
        """Makes wires outputs (or inputs) of the model; a keyword gives the new name."""
        named = {
            checked_str("expose_keys", n): key_of("expose_keys", k) for n, k in renamed.items()
        }
        self._node.expose_keys([key_of("expose_keys", k) for k in keys], named)

    @public
    def rename_key(self, connection: str | Connection, key: str) -> None:
        self._node.rename_key(key_of("rename_key", connection), checked_str("rename_key: key", key))

    @public
    def merge_connections(self, *connections: str | Connection, name: str | None = None) -> None:
        """Makes several wires one."""
        merged = "" if name is None else checked_str("merge_connections: name", name)
        self._node.merge_connections([key_of("merge_connections", c) for c in connections], merged)

    @public
    def bind_state_keys(
        self, input: str | Connection, output: str | Connection, initial_value: Any = NOT_GIVEN
    ) -> None:
        """The output of one evaluation is the input of the next."""
        initial = MISSING if initial_value is NOT_GIVEN else initial_value
        if isinstance(initial, Constant):
            initial = float(initial is Constant.ONES)
        self._node.bind_state(
            key_of("bind_state_keys: input", input),
            key_of("bind_state_keys: output", output),
            as_value(initial, "bind_state_keys: initial_value"),
        )

    @public
    def add_constraint(
        self,
        fn: Callable[..., Any],
        keys: str | Connection | Iterable[str | Connection],
        type: Any = None,
        dependencies: Iterable[Constraint] | None = None,
    ) -> Constraint:
        """Relates keys by a function, which runs whenever something about one of them is learnt.

        Parameters
        ----------
        fn : takes an `EdgeView` for each key; returns True once it has nothing more to say (or a
            pair that begins with it), False or None to be asked again
        keys : of this model, in the order in which `fn` takes them
        type : of `UpdateType`; accepted for the original's sake, `fn` runs after any change
        dependencies : constraints of this model that must have said True before `fn` runs

        Raises whatever `fn` raises; the call that made it run is then taken back. `fn` must not
        change models.
        """
        if not callable(fn):
            raise SignatureError(f"add_constraint: requires a function, got {shown(fn)}")
        constraints.update_types(type)
        is_one = isinstance(keys, str | Connection)
        given = (
            [keys] if is_one else checked_list("add_constraint: keys", keys, "keys of this model")
        )
        after = checked_list(
            "add_constraint: dependencies", dependencies, "constraints", optional=True
        )
        bad = [d for d in after if not isinstance(d, Constraint) or d._model is not self]
        if bad:
            raise ArgumentError(
                f"add_constraint: a dependency is no constraint of this model, got {shown(bad[0])}"
            )
        gone = [d for d in after if not d.keys]
        if gone:
            raise ArgumentError("add_constraint: a dependency is no more: an edit removed its keys")
        wires = [key_of("add_constraint: keys", key) for key in given]
        return constraints.add(self, fn, wires, after)


__all__ = ["Stating"]
