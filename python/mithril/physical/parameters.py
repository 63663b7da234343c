"""Parameters and states: drawn from seeds, in the shapes that the model or data tell."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from mithril import _core
from mithril.base.checks import checked_instance, checked_integer, checked_mapping
from mithril.base.public import public
from mithril.errors import InitialParamsWarning
from mithril.execution.interface import CompileTarget
from mithril.physical.compilation import Call, Compilation
from mithril.physical.conversion import as_numpy
from mithril.physical.face import Face
from mithril.physical.initial import Uninitialized, draw, initializers, left_out_names
from mithril.physical.open_kinds import called_for_kinds, model_for_kinds
from mithril.physical.open_ranks import shape_of
from mithril.physical.parting import part
from mithril.physical.program_keys import Key, keys_of
from mithril.physical.results import Params


class Parameters(Face):
    """The part of `PhysicalModel` that makes parameters and states."""

    @public
    def get_parameters(self) -> Params:
        """The initial parameters (seed 0), by name, in the order of the model's inputs."""
        return _with_lists(self._compilation, drawn(self._compilation, 0, {}))

    @public
    def randomize_params(
        self,
        seed: int | None = None,
        *,
        init: Mapping[Any, Any] | None = None,
        excluded_keys: Iterable[str] | None = None,
    ) -> Params:
        """Fresh initial parameters; equal seeds give equal numbers on every backend. Shapes that
        are open are those of the first call, once there was one.

        Parameters
        ----------
        seed : an integer; None: another one each time
        init : name, pattern with ``*`` or compiled regular expression -> initializer: "zeros",
            "ones", "normal", "uniform_fan_in", "xavier_uniform", "xavier_normal",
            "kaiming_uniform", "kaiming_normal" (see `Model.set_initializers`), a number, an array,
            or a function from the shape to an array. The first entry that fits a name counts,
            before what the model and its layers say.
        excluded_keys : names of parameters that are left out

        >>> import mithril as ml
        >>> pm = ml.compile(ml.Linear(2), ml.NumpyBackend(), shapes={"input": [None, 3]})
        >>> pm.randomize_params(0, init={"b*": "ones"})["bias"]
        array([1., 1.], dtype=float32)
        """
        if seed is None:
            seed = int.from_bytes(os.urandom(8), "little") >> 1
        seed = _seed("randomize_params", seed)
        by_name = initializers(init, self.param_keys)
        left_out = left_out_names(excluded_keys, self.param_keys)
        params = drawn(self._compilation, seed, {}, init=by_name)
        called = called_for_kinds(self)._compilation
        if called.first_inputs and any(isinstance(v, Uninitialized) for v in params.values()):
            params = drawn(called, seed, called.first_inputs, init=by_name)
        params = {name: value for name, value in params.items() if name not in left_out}
        return _with_lists(self._compilation, params)

    @public
    def init(self, sample: Mapping[str, Any] | None = None, seed: int = 0) -> Params:
        """Initial parameters with shapes as `sample` (data of one call) implies them."""
        sample = checked_mapping("init: sample", sample)
        made_for = model_for_kinds(self, sample)._compilation
        params = drawn(made_for, _seed("init", seed), sample)
        return _with_lists(self._compilation, _initialized(params))

    @public
    def initial_state(self, seed: int = 0, sample: Mapping[str, Any] | None = None) -> dict:
        """The first state: what `state=` of the first call is."""
        seed, data = _seed("initial_state", seed), checked_mapping("initial_state: sample", sample)
        return drawn(model_for_kinds(self, data)._compilation, seed, data, role="state")

    @public
    def split_state(self, arrays: Mapping[str, Any]) -> tuple[Params, dict[str, Any]]:
        """(params, state) of one dictionary with both, such as a file of ``{**params, **state}``.

        Arrays stay as they are. The key of random numbers may be missing, and is then that of
        ``initial_state(seed=0)``; of a model that draws none it is left out.

        Raises
        ------
        KeyNotFound : a parameter or state is missing, or the model has no such name

        >>> import mithril as ml, numpy as np
        >>> model = ml.Model()
        >>> model |= ml.BatchNorm1D(name="bn")(input="x", output="y")
        >>> pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [None, 2]},
        ...                 mode="train", naming="path")
        >>> arrays = {name: np.ones(2) for name in ("bn.weight", "bn.bias")}
        >>> arrays |= {"bn.running_mean": np.zeros(2), "bn.running_var": np.ones(2)}
        >>> params, state = pm.split_state(arrays)
        >>> list(params), list(state)
        (['bn.weight', 'bn.bias'], ['bn.running_mean', 'bn.running_var'])
        """
        given = checked_mapping("split_state: arrays", arrays)
        params, state = part(self._compilation, given)
        is_whole = all(name in state for name in self.state_keys)
        return params, state if is_whole else {**self.initial_state(), **state}

    @property
    @public
    def initial_state_dict(self) -> dict[str, Any]:
        return self.initial_state(0)


def drawn(
    compilation: Compilation,
    seed: int,
    data: Mapping[str, Any],
    role: str = "param",
    init: Mapping[str, Any] | None = None,
) -> Params:
    """Initial values of keys with a role; stand-ins where these data do not tell the shape."""
    compiled = compilation.compiled
    if compilation.open_ranks is not None and data:
        compiled = compilation.program_for(Call(data, data, data)).compiled
    sizes = compiled.solve(_given_shapes(compilation, data))
    is_own = compiled is compilation.compiled
    keys = compilation.keys if is_own else keys_of(compiled, compilation.options)
    return {
        key.name: _initial(compilation, key, shape, fan_in, seed, (init or {}).get(key.name))
        for key, (shape, fan_in) in zip(keys, sizes, strict=True)
        if key.role == role
    }


def _initial(
    compilation: Compilation,
    key: Key,
    shape: list | None,
    fan_in: int | None,
    seed: int,
    init: Any = None,
) -> Any:
    if key.dtype is None and key.role == "param" and not isinstance((*key.initial, 0.0)[0], int):
        key = replace(key, dtype=compilation.backend.default_dtype)  # where ranks are open
    is_literal = bool(key.initial) and isinstance(key.initial[0], _core.TensorLiteral)
    is_open = shape is None or None in shape
    if init is not None:
        is_literal, key = False, replace(key, init=init, initial=())
    wants_fan_in = isinstance(key.init, str) and key.init == "uniform_fan_in"
    is_open = is_open or (wants_fan_in and fan_in is None and not key.initial)
    if is_open and not is_literal:
        return Uninitialized(key.name, shape, _what_is_missing(compilation), seed, init)
    return compilation.backend.tensor(draw(key, shape or [], fan_in, seed), key.dtype)


def _what_is_missing(compilation: Compilation) -> str:
    solved = zip(compilation.keys, compilation.compiled.solve({}), strict=True)
    open_keys = [
        key.name
        for key, (shape, _) in solved
        if key.role == "data" and key.is_tensor and (shape is None or None in shape)
    ]
    if not open_keys:
        return ""
    names = ", ".join(f"'{name}'" for name in open_keys)
    return f"its shape follows from {names}: give shapes= to compile, or call init(sample)"


def _given_shapes(compilation: Compilation, given: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {
        key.name: shape_of(given[key.name], key.name)
        for key in compilation.keys
        if key.name in given and key.is_tensor and not isinstance(given[key.name], Uninitialized)
    }


def initial_parameters(compilation: Compilation, data: Mapping[str, Any]) -> Params:
    """The parameters of a call that brings none."""
    compilation.warn(
        "no params were given: the model runs on its initial parameters", InitialParamsWarning
    )
    return _initialized(drawn(compilation, 0, data))


def _initialized(params: Params) -> Params:
    """The parameters; raises where one has no value."""
    for value in params.values():
        if isinstance(value, Uninitialized):
            value._fail()
    return params


def placed(compilation: Compilation, key: Key, value: Uninitialized, call: Call) -> Any:
    """The value that data give a parameter or state; it replaces the stand-in in the caller's
    dictionary."""
    init = {} if value.init is None else {key.name: value.init}
    found = drawn(compilation, value.seed, {**call.params, **call.data}, key.role, init)
    own = found.get(key.name, value)
    if isinstance(own, Uninitialized) and key.role == "state" and own.sizes is not None:
        # Broadcasting leaves open what an axis of size 1 becomes.
        sizes = [size or 1 for size in own.sizes]
        own = _initial(compilation, key, sizes, None, value.seed)
    if isinstance(own, Uninitialized):
        own._fail()
    source = call.of(key.role)
    if isinstance(source, dict):
        source[key.name] = own
    return own


def _with_lists(compilation: Compilation, params: Params) -> Params:
    return params if compilation.lists is None else compilation.lists.join(params)


def _seed(what: str, seed: Any) -> int:
    """A seed is any integer; the engine takes its last 64 bits."""
    return checked_integer(f"{what}: seed", seed) % 2**64


@public
def transfer(params: Mapping[str, Any], to: Any) -> Params:
    """The same parameters as arrays of another backend, dtypes kept."""
    checked_instance("transfer: to", to, CompileTarget, "a backend")
    out = {}
    for name, value in checked_mapping("transfer: params", params).items():
        if isinstance(value, Uninitialized):
            out[name] = value
            continue
        array = as_numpy(value, name)
        out[name] = to.tensor(array, array.dtype)
    return out


__all__ = ["Parameters", "drawn", "initial_parameters", "placed", "transfer"]
