"""State dicts of other libraries as parameters of a compiled model: `load_state_dict`."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

from mithril.base.checks import (
    checked_bool,
    checked_instance,
    checked_list,
    checked_mapping,
    checked_str,
)
from mithril.base.public import public
from mithril.errors import KeyNotFound, ShapeError, UnusedParamsWarning, suggestion, warn
from mithril.physical import PhysicalModel
from mithril.physical.compilation import compilation_of
from mithril.physical.conversion import as_numpy
from mithril.physical.missing import other_naming
from mithril.physical.parting import kept_states

if TYPE_CHECKING:
    from mithril.physical import PhysicalModel

Arrays = dict[str, Any]
_JOINED = ("in_proj_weight", "in_proj_bias")  # of PyTorch's attention
COUNTER = "num_batches_tracked"  # PyTorch's batch norm has it; nothing of ours reads one


@overload
def load_state_dict(
    pm: PhysicalModel,
    state_dict: Mapping[str, Any],
    *,
    strict: bool = True,
    transposed: Iterable[str] = (),
    with_state: Literal[False] = False,
) -> Arrays: ...
@overload
def load_state_dict(
    pm: PhysicalModel,
    state_dict: Mapping[str, Any],
    *,
    strict: bool = True,
    transposed: Iterable[str] = (),
    with_state: Literal[True],
) -> tuple[Arrays, Arrays]: ...


@public
def load_state_dict(
    pm: PhysicalModel,
    state_dict: Mapping[str, Any],
    *,
    strict: bool = True,
    transposed: Iterable[str] = (),
    with_state: bool = False,
) -> Arrays | tuple[Arrays, Arrays]:
    """Parameters of a compiled model out of a state dict, by name; of a model in training its
    state, too, if asked for.

    Arrays may differ in axes of size 1 from what the model takes ([c] for [1, c, 1, 1]); they are
    cast to the backend's dtype.

    Parameters
    ----------
    pm : a model compiled with ``naming="path"``, so that names are those of modules
    state_dict : name -> array of any library
    strict : whether a name that the model does not have is an error
    transposed : patterns with ``*`` of names whose matrices have their axes the other way around,
        such as ``["*.c_attn.weight"]`` of GPT-2
    with_state : True: the model's state as well, such as running statistics of batch norm, which
        are state of a model that is compiled for training, and parameters in ``mode="eval"``; the
        key of random numbers is that of ``pm.initial_state(seed=0)``

    Returns
    -------
    Name -> array of the model's backend, for each of `pm.param_keys`; with `with_state` a pair of
    that and the same for each of `pm.state_keys`

    Raises
    ------
    KeyNotFound : a parameter, or a state with `with_state`, is not in the state dict; or a name is
        not in the model, or a pattern fits none
    ShapeError : an array does not have the shape of its parameter

    >>> import mithril as ml, numpy as np
    >>> model = ml.Model()
    >>> model |= ml.Linear(2, name="fc")(input="x", output="y")
    >>> pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [1, 3]},
    ...                 naming="path")
    >>> state_dict = {"fc.weight": np.ones((2, 3)), "fc.bias": np.zeros(2)}
    >>> params = ml.formats.load_state_dict(pm, state_dict)
    >>> pm.evaluate(params, {"x": np.ones((1, 3))})["y"]
    array([[3., 3.]], dtype=float32)

    >>> model |= ml.BatchNorm1D(name="bn")(input="y", output="z")
    >>> pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [None, 3]},
    ...                 naming="path", mode="train")
    >>> for name, value in {"weight": 1, "bias": 0, "running_mean": 2, "running_var": 3}.items():
    ...     state_dict[f"bn.{name}"] = np.full(2, value)
    >>> params, state = ml.formats.load_state_dict(pm, state_dict, with_state=True)
    >>> state["bn.running_mean"]
    array([2., 2.], dtype=float32)
    """
    checked_instance("load_state_dict: pm", pm, PhysicalModel, "a compiled model")
    arrays = checked_mapping("load_state_dict: state_dict", state_dict)
    turned = _fitting(checked_list("load_state_dict: transposed", transposed, "patterns"), arrays)
    states = kept_states(compilation_of(pm))
    loads_state = checked_bool("load_state_dict: with_state", with_state)
    _refuse_missing(pm, [*pm.param_keys, *(states if loads_state else ())], arrays)
    if checked_bool("load_state_dict: strict", strict):
        _refuse_unknown(pm, arrays)
    shapes = pm.shapes

    def placed(names: Iterable[str]) -> Arrays:
        return {
            name: _placed(pm, name, as_numpy(arrays[name], name), shapes.get(name), name in turned)
            for name in names
        }

    if not loads_state:
        _warn_of_state([name for name in states if name in arrays])
        return placed(pm.param_keys)
    state = placed(name for name in pm.state_keys if name in arrays)
    return placed(pm.param_keys), {**pm.initial_state(), **state}


def _warn_of_state(names: list[str]) -> None:
    if names:
        warn(
            f"load_state_dict: {_few(names)} are state of this model, which is compiled for"
            " training, and are left out: params, state = load_state_dict(..., with_state=True)"
            " loads them",
            UnusedParamsWarning,
        )


def _fitting(patterns: list[Any], names: Mapping[str, Any]) -> set[str]:
    out: set[str] = set()
    for pattern in patterns:
        fits = fnmatch.filter(names, checked_str("load_state_dict: transposed", pattern))
        if not fits:
            near = suggestion(pattern, names)
            raise KeyNotFound(f"load_state_dict: transposed: no name fits '{pattern}'{near}")
        out.update(fits)
    return out


def _refuse_missing(pm: PhysicalModel, names: Iterable[str], arrays: Mapping[str, Any]) -> None:
    missing = [name for name in names if name not in arrays]
    if not missing:
        return
    unknown = _unknown(pm, arrays)
    told = f"load_state_dict: {_counted(missing)} not in the state dict: {_few(missing)}"
    near = suggestion(missing[0], arrays) if len(missing) == 1 else ""
    if near or not unknown:
        told += near
    else:
        told += f"; it has {_few(unknown)}, which the model has not"
    raise KeyNotFound(told, hint=_hint(pm, missing, unknown))


def _refuse_unknown(pm: PhysicalModel, arrays: Mapping[str, Any]) -> None:
    unknown = _unknown(pm, arrays)
    if unknown:
        near = suggestion(unknown[0], {*pm.param_keys, *pm.state_keys}) if len(unknown) == 1 else ""
        raise KeyNotFound(
            f"load_state_dict: the model does not have {_counted(unknown)}: {_few(unknown)}{near}",
            hint="give strict=False where the model is a part of what was saved",
        )


def _unknown(pm: PhysicalModel, arrays: Mapping[str, Any]) -> list[str]:
    own = {*pm.param_keys, *pm.state_keys}
    return [str(name) for name in arrays if name not in own and not str(name).endswith(COUNTER)]


def _hint(pm: PhysicalModel, missing: list[str], unknown: list[str]) -> str:
    """A hint by which the names become those of the state dict, or its arrays the model's."""
    if any(name.endswith(_JOINED) for name in unknown):
        return (
            "PyTorch's attention joins three matrices: w_q, w_k, w_v = in_proj_weight.chunk(3) and"
            " b_q, b_k, b_v = in_proj_bias.chunk(3); out_proj.weight is w_o, out_proj.bias b_o"
        )
    compilation = compilation_of(pm)
    if naming := other_naming(compilation, missing, unknown):
        return naming
    if not compilation.options.path_names:
        return 'compile with naming="path" for the names of modules'
    return 'names are made of name= of the parts: call them as the modules are, name="fc"'


def _few(names: list[str]) -> str:
    return ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")


def _counted(names: list[str]) -> str:
    return "1 parameter" if len(names) == 1 else f"{len(names)} parameters"


def _placed(pm: PhysicalModel, name: str, array: Any, shape: Any, is_turned: bool) -> Any:
    """Puts an array in the shape that the model takes, on its backend."""
    if is_turned:
        if array.ndim != 2:
            raise ShapeError(f"'{name}' must be a matrix to be transposed, got {_sizes(array)}")
        array = array.T
    if shape is not None and None not in shape and "..." not in shape:
        if not _is_alike(shape, array.shape):
            raise ShapeError(f"'{name}' must have shape {list(shape)}, got {_sizes(array)}")
        array = array.reshape(shape)
    wanted = compilation_of(pm).by_name[name].dtype
    if wanted is None or not wanted.is_float:
        wanted = pm.backend.default_dtype if array.dtype.kind == "f" else None
    return pm.backend.tensor(array, wanted)


def _sizes(array: Any) -> list[int]:
    return list(array.shape)


def _is_alike(shape: Iterable[Any], given: Iterable[int]) -> bool:
    """Tells whether two shapes are equal but for axes of size 1."""
    return [n for n in shape if n != 1] == [n for n in given if n != 1]


__all__ = ["load_state_dict"]
