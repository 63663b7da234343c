"""MLX's optimizers in the form of ours: parameters in, new parameters out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    SignatureError,
    UnknownNameError,
    shown,
    suggestion,
)
from mithril.optim.optimizers import check_gradients


class AdoptedOptimizer:
    """An optimizer of MLX whose `update` returns the new parameters; made by `adopt`.

    Attributes
    ----------
    optimizer : MLX's own, with its rate and its schedules
    """

    @public
    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self._names: frozenset[str] = frozenset()  # of the parameters that it keeps state of

    @public
    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("optimizer", "_names"):
            raise UnknownNameError(
                f"adopt: has no attribute {name!r}",
                hint="numbers are those of MLX's own: adopted.optimizer.learning_rate = 0.01",
            )
        object.__setattr__(self, name, value)

    @property
    def state(self) -> dict[str, Any]:
        """MLX's own dictionary: the step, the rate, and what is kept of each parameter."""
        return self.optimizer.state

    @public
    def update(self, params: Mapping[str, Any], gradients: Mapping[str, Any]) -> dict[str, Any]:
        """The new parameters; what is given stays as it is, and parameters without a gradient are
        returned as they are. The state is kept here, and moves on with each call.

        Parameters
        ----------
        params : arrays of MLX by name
        gradients : arrays of the same shapes, of all or some of these names

        Raises
        ------
        KeyNotFound : a gradient of a parameter that there is not
        ShapeError : a gradient whose shape is not its parameter's
        DTypeError : a parameter with a gradient, or the gradient, is not of floats
        """
        arrays, slopes = _arrays("params", params), _arrays("gradients", gradients)
        self._check(arrays, slopes)
        if not arrays.keys() <= self._names:
            self.optimizer.init(arrays)  # keeps what is there
            self._names |= arrays.keys()
        return {**arrays, **self.optimizer.apply_gradients(slopes, arrays)}

    def _check(self, params: dict[str, Any], gradients: dict[str, Any]) -> None:
        for name in gradients:
            if name not in params:
                near = suggestion(name, params)
                raise KeyNotFound(f"update: no parameter named {shown(name)}{near}")
        check_gradients(params, gradients)
        own = [n for n in params if not isinstance(self.state.get(n, {}), dict)]
        if own:
            raise ArgumentError(
                f"update: {shown(own[0])} is a name in the state of MLX's optimizers",
                hint="give the parameter another name",
            )

    def __repr__(self) -> str:
        return f"adopt({type(self.optimizer).__name__})"


@public
def adopt(optimizer: Any) -> AdoptedOptimizer:
    """An optimizer of `mlx.optimizers` whose `update` returns the new parameters, where MLX's own
    returns None and changes the dictionary that it is given::

        optimizer = ml.optim.adopt(mlx.optimizers.Adam(learning_rate=1e-3))
        params = optimizer.update(params, gradients)

    Raises
    ------
    SignatureError : it is no optimizer of MLX
    """
    module = sys.modules.get("mlx.optimizers")  # without it there is none of its optimizers
    if module is None or not isinstance(optimizer, module.Optimizer):
        raise SignatureError(
            f"adopt: requires an optimizer of mlx.optimizers, got {shown(optimizer)}",
            hint="those of ml.optim return the new parameters by themselves",
        )
    return AdoptedOptimizer(optimizer)


def _arrays(what: str, given: Any) -> dict[str, Any]:
    import mlx.core as mx

    if not isinstance(given, Mapping):
        raise SignatureError(f"update: {what} requires a dictionary, got {shown(given)}")
    for name, value in given.items():
        if not isinstance(value, mx.array):
            raise SignatureError(
                f"update: {what}: {shown(name)} requires an array of MLX, got {shown(value)}",
                hint="backend.to_mlx(array) makes one",
            )
    return dict(given)


__all__ = ["AdoptedOptimizer", "adopt"]
