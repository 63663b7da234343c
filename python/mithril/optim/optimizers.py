"""Optimizers over plain dictionaries of arrays, on any backend.

>>> import numpy as np, mithril as ml
>>> opt = ml.optim.SGD(lr=0.5)
>>> params = {"w": np.array([1.0, 2.0])}
>>> params, state = opt.update(params, {"w": np.array([2.0, 2.0])}, opt.init(params))
>>> params["w"]
array([0., 1.])

Nothing is changed in place. Only the keys of the gradients are updated; arrays keep their dtype
(float64 on JAX, too). Steps of float16 and bfloat16 are computed in float32, and what is kept of
them is float32.
The formulas are PyTorch's; Adam: Kingma and Ba 2015, AdamW: Loshchilov and Hutter 2019.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from mithril.base.checks import checked_bool, checked_mapping
from mithril.base.peer_names import argument_here, optimizer_member_here
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    DTypeError,
    KeyNotFound,
    ShapeError,
    SignatureError,
    UnknownNameError,
    UnsupportedError,
    shown,
    suggestion,
)

Arrays = dict[str, Any]


def _like(value: Any, array: Any) -> Any:
    """`value` in the dtype of `array`, which a wider learning rate may have left."""
    dtype = getattr(array, "dtype", None)
    if getattr(value, "dtype", None) == dtype:
        return value
    if hasattr(value, "astype"):
        return value.astype(dtype)
    return value.to(dtype) if hasattr(value, "to") else value


def _is_wide_jax(array: Any) -> bool:
    return type(array).__module__.startswith("jax") and str(array.dtype)[-2:] == "64"


def _at_full_width(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a method of dictionaries of arrays so that JAX, too, computes in 64 bits where one of
    them has as many: else it would give 32."""

    @functools.wraps(method)
    def call(self: Any, *dictionaries: Any, **named: Any) -> Any:
        given = [d for d in (*dictionaries, *named.values()) if isinstance(d, Mapping)]
        if not any(_is_wide_jax(x) for d in given for x in d.values() if hasattr(x, "dtype")):
            return method(self, *dictionaries, **named)
        with sys.modules["jax"].enable_x64(True):
            return method(self, *dictionaries, **named)

    return call


def _count(steps: Any) -> Any:
    """Converts a number of steps from NumPy's, which would make NumPy arrays of other arrays."""
    return int(steps) if type(steps).__module__ == "numpy" else steps


@functools.cache
def _wider(dtype: Any) -> Any:
    """Returns the library's float32 for its float16 or bfloat16; else None."""
    if not str(dtype).endswith("float16"):
        return None
    return getattr(sys.modules.get(type(dtype).__module__), "float32", "float32")


def _in_float32(array: Any) -> Any:
    """Casts float16 and bfloat16 to float32; returns other arrays as they are."""
    wider = _wider(array.dtype)
    if wider is None:
        return array
    return array.astype(wider) if hasattr(array, "astype") else array.to(wider)


@functools.cache
def _scales(kind: type) -> bool:
    """Tells whether arrays of a class have PyTorch's `sub`, which takes a factor."""
    return hasattr(kind, "addcmul")


def _clamped(x: Any, low: Any, high: Any) -> Any:
    clamp = getattr(x, "clamp", None) or getattr(x, "clip", None)
    if clamp is not None:
        return clamp(low, high)
    return sys.modules[type(x).__module__].clip(x, low, high)  # MLX's is no method


def _norm(arrays: Iterable[Any]) -> Any:
    """Computes the Euclidean norm of all elements; in float32 for float16 and bfloat16."""
    wide = [_in_float32(x) for x in arrays]
    return sum((x * x).sum() for x in wide) ** 0.5


def _minus(p: Any, rate: Any, direction: Any) -> Any:
    """Computes p − rate · direction, by PyTorch's one function of them where it can."""
    if isinstance(rate, (int, float)) and _scales(p.__class__):
        return p.sub(direction, alpha=rate)
    return p - rate * direction


def _is_numeric(array: Any) -> bool:
    """Tells whether it is one number of an array library, known or only traced."""
    kind = str(getattr(array, "dtype", ""))
    return getattr(array, "shape", None) == () and ("float" in kind or "int" in kind)


def _number(name: str, value: Any) -> float | None:
    """The number, or None while it is traced, by `jax.jit` for example."""
    if not isinstance(value, str | bytes):
        try:
            return float(value)
        except Exception:  # of somebody's __float__
            if _is_numeric(value):
                return None
    raise ArgumentError(f"{name}: requires a number, got {shown(value)}")


def _check_range(name: str, value: Any, wanted: str, fits: Callable[[float], bool]) -> Any:
    number = _number(name, value)
    if number is not None and not fits(number):
        raise ArgumentError(f"{name}: requires a number {wanted}, got {shown(value)}")
    return value


def _positive(name: str, value: Any) -> Any:
    return _check_range(name, value, "above 0", lambda x: x > 0)


def _positive_or_none(name: str, value: Any) -> Any:
    return None if value is None else _positive(name, value)


def _rate(name: str, value: Any) -> Any:
    is_list = isinstance(value, Mapping | list | tuple) or inspect.isgenerator(value)
    if is_list:
        raise ArgumentError(
            f"{name}: requires a number, got {shown(value)}",
            hint="parameters go into the calls: opt_state = optimizer.init(params), then"
            " pm.step(params, opt_state, data)",
        )
    return _not_negative(name, value)


def _not_negative(name: str, value: Any) -> Any:
    return _check_range(name, value, "of at least 0", lambda x: x >= 0)


def _fraction(name: str, value: Any) -> Any:
    return _check_range(name, value, "in [0, 1)", lambda x: 0 <= x < 1)


class Optimizer:
    """The base of all optimizers; `slots` names the arrays that they keep for each parameter.

    Each number is an attribute that may be set between steps; it is checked as the constructor
    does, and an error leaves the old one.

    Parameters
    ----------
    lr : the rate, at least 0; a number or an array of one
    weight_decay : at least 0
    clip_value : gradients are cut off to [-clip_value, clip_value] first, as by
        ``torch.nn.utils.clip_grad_value_``; None: they are not
    clip_norm : then all of them are scaled by clip_norm / (norm + 1e-6) where that is below 1, as
        by ``torch.nn.utils.clip_grad_norm_``; norm is that of all gradients together (Pascanu et
        al. 2013); None: they are not

    >>> import numpy as np, mithril as ml
    >>> opt = ml.optim.SGD(lr=1.0, clip_norm=1.0)
    >>> params, gradients = {"w": np.zeros(2)}, {"w": np.array([30.0, -40.0])}
    >>> opt.update(params, gradients, opt.init(params))[0]["w"].round(4)
    array([-0.6,  0.8])
    >>> opt.lr = 0.5
    >>> opt.update(params, gradients, opt.init(params))[0]["w"].round(4)
    array([-0.3,  0.4])
    """

    slots: tuple[str, ...] = ()
    op = ""  # the engine's op that computes the same
    _checks: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        "lr": _rate,
        "weight_decay": _not_negative,
        "clip_norm": _positive_or_none,
        "clip_value": _positive_or_none,
    }

    @public
    def __init__(
        self,
        lr: Any,
        weight_decay: float = 0.0,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
    ):
        self.lr = lr
        self.weight_decay = weight_decay
        self.clip_norm = clip_norm
        self.clip_value = clip_value

    @public
    def __setattr__(self, name: str, value: Any) -> None:
        check = self._checks.get(name)
        if check is not None:
            value = check(name, value)
        elif type(self).__module__ == __name__:  # a class of a user has what it likes
            near = argument_here(name, self._checks) or suggestion(name, self._checks)
            raise UnknownNameError(f"{type(self).__name__}: has no attribute {name!r}{near}")
        object.__setattr__(self, name, value)

    if not TYPE_CHECKING:  # a type checker knows the members

        def __getattr__(self, name: str):
            title = f"{type(self).__name__}: has no attribute {name!r}"
            if name.startswith("_"):
                raise AttributeError(title)
            if hasattr(type(self), name):  # a property that raised AttributeError: say so
                return object.__getattribute__(self, name)
            members = [member for member in (*dir(self), *self._checks) if member[0] != "_"]
            near = optimizer_member_here(name) or argument_here(name, self._checks)
            raise UnknownNameError(title + (near or suggestion(name, members)))

    @_at_full_width
    @public
    def init(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the first state: counters, and zeros shaped like the parameters and in their
        dtype; in float32 for float16 and bfloat16."""
        arrays = {n: _in_float32(p) for n, p in _arrays("init: params", params).items()}
        state: dict[str, Any] = {"step": 0}
        return state | {slot: {n: p * 0 for n, p in arrays.items()} for slot in self.slots}

    @_at_full_width
    @public
    def update(
        self, params: Mapping[str, Any], gradients: Mapping[str, Any], state: Mapping[str, Any]
    ) -> tuple[Arrays, dict[str, Any]]:
        """Returns (new parameters, new state); parameters without a gradient stay as they are.

        Raises
        ------
        ShapeError : a gradient, or what the state keeps, has another shape than its parameter
        DTypeError : a parameter with a gradient, or the gradient, is not of floats
        KeyNotFound : a gradient of a parameter that there is not, or too few entries in the state
        """
        params = _arrays("update: params", params)
        gradients = _arrays("update: gradients", gradients)
        unknown = [name for name in gradients if name not in params]
        if unknown:
            near = suggestion(unknown[0], params)
            raise KeyNotFound(f"update: no parameter named '{unknown[0]}'{near}")
        check_gradients(params, gradients)
        check_state("update: state", state, self, gradients)
        check_slots("update: state", state, self, {name: params[name] for name in gradients})
        step = _count(state["step"]) + 1
        new_params = dict(params)
        new_slots = {slot: dict(state[slot]) for slot in self.slots}
        moderate = clipped(self, gradients.values())
        for name, gradient in zip(gradients, moderate, strict=True):
            kept: Any = tuple(new_slots[slot][name] for slot in self.slots)
            factors = self._factors(step)
            new_params[name], kept = stepped(self, params[name], gradient, kept, factors)
            for slot, value in zip(self.slots, kept, strict=True):
                new_slots[slot][name] = value
        return new_params, {"step": step, **new_slots}

    def _factors(self, step: Any) -> tuple:
        """Returns the factors of a step that depend on its number alone, as Adam's."""
        return ()

    def _apply(self, p: Any, g: Any, kept: tuple, factors: tuple) -> tuple[Any, tuple]:
        raise NotImplementedError

    def _decayed(self, p: Any, g: Any) -> Any:
        return g + self.weight_decay * p if self.weight_decay else g

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"


class SGD(Optimizer):
    """p ← p − lr · (g + weight_decay · p)."""

    op = "sgd"

    @public
    def __init__(
        self,
        lr: Any = 1e-2,
        weight_decay: float = 0.0,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
    ):
        super().__init__(lr, weight_decay, clip_norm=clip_norm, clip_value=clip_value)

    def _apply(self, p: Any, g: Any, kept: tuple, factors: tuple) -> tuple[Any, tuple]:
        return _minus(p, self.lr, self._decayed(p, g)), ()


class Momentum(Optimizer):
    """v ← momentum · v + g;  p ← p − lr · v  (nesterov: p ← p − lr · (g + momentum · v))."""

    slots = ("v",)
    op = "momentum"
    _checks: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        **Optimizer._checks,
        "momentum": _fraction,
        "nesterov": checked_bool,
    }

    @public
    def __init__(
        self,
        lr: Any = 1e-2,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
    ):
        super().__init__(lr, weight_decay, clip_norm=clip_norm, clip_value=clip_value)
        self.momentum = momentum
        self.nesterov = nesterov

    def _apply(self, p: Any, g: Any, kept: tuple, factors: tuple) -> tuple[Any, tuple]:
        g = self._decayed(p, g)
        velocity = self.momentum * kept[0] + g
        direction = g + self.momentum * velocity if self.nesterov else velocity
        return _minus(p, self.lr, direction), (velocity,)


class Adam(Optimizer):
    """m ← β₁m + (1−β₁)g;  v ← β₂v + (1−β₂)g²;  p ← p − lr · m̂ / (√v̂ + eps)."""

    slots = ("m", "v")
    op = "adam"
    _checks: ClassVar[dict[str, Callable[[str, Any], Any]]] = {
        **Optimizer._checks,
        "beta1": _fraction,
        "beta2": _fraction,
        "eps": _not_negative,
    }

    @public
    def __init__(
        self,
        lr: Any = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
    ):
        super().__init__(lr, weight_decay, clip_norm=clip_norm, clip_value=clip_value)
        self.beta1 = beta1
        self.beta2 = beta2
        self.eps = eps

    def _apply(self, p: Any, g: Any, kept: tuple, factors: tuple) -> tuple[Any, tuple]:
        return self._moved(p, self._decayed(p, g), kept, factors)

    def _factors(self, step: Any) -> tuple:
        return 1 - self.beta1**step, (1 - self.beta2**step) ** 0.5

    def _moved(self, p: Any, g: Any, kept: tuple, factors: tuple) -> tuple[Any, tuple]:
        m = self.beta1 * kept[0] + (1 - self.beta1) * g
        v = self.beta2 * kept[1] + (1 - self.beta2) * (g * g)
        of_m, root_of_v = factors
        return _minus(p, self.lr / of_m, m / (v**0.5 / root_of_v + self.eps)), (m, v)


class AdamW(Adam):
    """Adam with decoupled decay: p ← p · (1 − lr · weight_decay), then as Adam."""

    op = "adamw"

    @public
    def __init__(
        self,
        lr: Any = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        clip_norm: float | None = None,
        clip_value: float | None = None,
    ):
        super().__init__(
            lr, beta1, beta2, eps, weight_decay, clip_norm=clip_norm, clip_value=clip_value
        )

    def _apply(self, p: Any, g: Any, kept: tuple, factors: tuple) -> tuple[Any, tuple]:
        return self._moved(p * (1 - self.lr * self.weight_decay), g, kept, factors)


# --- parts of an update, which compiled steps put together themselves -----------------------------


def numbers_of(optimizer: Optimizer) -> dict[str, Any]:
    """Returns all numbers but the rate, which may change from step to step."""
    return {name: value for name, value in vars(optimizer).items() if name != "lr"}


def attributes_of(optimizer: Optimizer) -> dict[str, Any]:
    """Returns the attributes of `op`, which does not clip."""
    numbers = numbers_of(optimizer)
    return {n: value for n, value in numbers.items() if n not in ("clip_norm", "clip_value")}


def clips(optimizer: Optimizer) -> bool:
    """Tells whether gradients are cut off or scaled before they are used."""
    numbers = vars(optimizer)
    return numbers.get("clip_norm") is not None or numbers.get("clip_value") is not None


def clipped(optimizer: Optimizer, gradients: Iterable[Any]) -> list[Any]:
    """Returns the gradients of one step, cut off and scaled as the optimizer was told."""
    out = list(gradients)
    if not clips(optimizer) or not out:
        return out
    if optimizer.clip_value is not None:
        out = [_clamped(g, -optimizer.clip_value, optimizer.clip_value) for g in out]
    if optimizer.clip_norm is None:
        return out
    scale = _clamped(optimizer.clip_norm / (_norm(out) + 1e-6), None, 1.0)
    wide = [_in_float32(g) for g in out]
    return [_like(g * scale, g) for g in wide]


def factors_of(optimizer: Optimizer, step: Any) -> tuple:
    """Returns the factors of a step that depend on its number alone, as Adam's."""
    return optimizer._factors(step)


def stepped(
    optimizer: Optimizer, p: Any, g: Any, kept: Iterable[Any], factors: tuple
) -> tuple[Any, list]:
    """Returns the new parameter in its dtype and new slots; 16-bit floats via float32."""
    wide = _in_float32(p)
    if wide is not p:
        g, kept = _in_float32(g), [_in_float32(x) for x in kept]
    updated, now = optimizer._apply(wide, g, tuple(kept), factors)
    return _like(updated, p), [_like(x, wide) for x in now]


def _arrays(what: str, arrays: Any) -> Mapping[str, Any]:
    """A dictionary of arrays of any library."""
    given = checked_mapping(what, arrays)
    for name, value in given.items():
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            raise SignatureError(f"{what}: {shown(name)} requires an array, got {shown(value)}")
    return given


def _counts(step: Any) -> bool:
    """Tells whether it is an integer of at least 0; of arrays that may be traced or far only the
    shape is looked at."""
    if isinstance(step, int):
        return not isinstance(step, bool) and 0 <= step < 2**63
    if getattr(step, "shape", None) != ():
        return False
    return type(step).__module__ != "numpy" or (step >= 0 and step == int(step))


@functools.cache
def _is_float(dtype: Any) -> bool:
    return getattr(dtype, "kind", "") == "f" or "float" in str(dtype)


def _check_shape(what: str, array: Any, wanted: Any, hint: str = "") -> None:
    if array.shape != wanted:
        raise ShapeError(
            f"{what} requires the shape {list(wanted)}, got {list(array.shape)}", hint=hint
        )


def _check_floats(what: str, array: Any, hint: str = "") -> None:
    if not _is_float(array.dtype):
        kind = str(array.dtype).rpartition(".")[2]
        raise DTypeError(f"{what} requires a float dtype, got {kind}", hint=hint)


def check_gradients(params: Mapping[str, Any], gradients: Mapping[str, Any]) -> None:
    """Refuses gradients that are not shaped like their parameters, and arrays that are not of
    floats, which broadcasting would let grow and rounding would spoil."""
    for name, gradient in gradients.items():
        what, parameter = shown(name), params[name]
        _check_floats(
            f"update: params: {what}",
            parameter,
            "give it as floats; parameters without a gradient stay as they are",
        )
        _check_floats(f"update: gradients: {what}", gradient)
        _check_shape(f"update: the gradient of {what}", gradient, parameter.shape)


def check_slots(what: str, state: Any, optimizer: Optimizer, params: Mapping[str, Any]) -> None:
    """Refuses a state whose arrays are not shaped like the parameters, as `init` makes them."""
    if type(optimizer).init is not Optimizer.init:  # of a user, who keeps what they like
        return
    for slot in optimizer.slots:
        for name, parameter in params.items():
            title, kept = f"{what}: {slot!r} of {shown(name)}", state[slot][name]
            if not hasattr(kept, "shape"):
                raise SignatureError(f"{title} requires an array, got {shown(kept)}")
            _check_shape(title, kept, parameter.shape, "optimizer.init(params) is the first one")


def refuse_foreign(what: str, optimizer: Any) -> None:
    """Raises unless it is an optimizer of this module, or of a class derived from its own."""
    if isinstance(optimizer, Optimizer):
        return
    kind = type(optimizer)
    if not callable(getattr(optimizer, "update", getattr(optimizer, "step", None))):
        raise SignatureError(f"{what}: requires one of ml.optim, got {shown(optimizer)}")
    raise UnsupportedError(
        f"{what}: steps are those of ml.optim, got {kind.__module__}.{kind.__qualname__}",
        hint="use ml.optim.Adam() or its like, or give the gradients of evaluate to yours",
    )


def check_state(what: str, state: Any, optimizer: Optimizer, names: Iterable[str]) -> None:
    """Refuses what is no state of the optimizer for these parameters."""
    step = state.get("step") if isinstance(state, Mapping) else None
    if not isinstance(step, int) and not hasattr(step, "dtype"):
        raise ArgumentError(f"{what} must be what optimizer.init(params) returns")
    if not _counts(step):
        raise ArgumentError(f"{what}: 'step' requires a number of steps, got {shown(step)}")
    for slot in optimizer.slots:
        kept = state.get(slot)
        missing = [n for n in names if not isinstance(kept, Mapping) or n not in kept]
        if missing:
            raise KeyNotFound(
                f"{what} has no '{slot}' of {shown(missing[0])}",
                code="MTH402",
                hint="optimizer.init(params) is the first one",
            )


__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Momentum",
    "Optimizer",
    "attributes_of",
    "check_gradients",
    "check_slots",
    "check_state",
    "clipped",
    "clips",
    "factors_of",
    "numbers_of",
    "refuse_foreign",
    "stepped",
]
