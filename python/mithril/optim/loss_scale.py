"""Losses that are scaled in training, so that small gradients stay above what float16 holds.

The scale is that of PyTorch's `GradScaler`: 2^16 at first, doubled after 2000 good steps in a row,
and halved where a gradient is not finite, whose step is left out (Micikevicius et al.,
arXiv:1710.03740). It is kept with the optimizer's state, under "loss_scale".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mithril.base.numpy import np
from mithril.errors import ArgumentError, UnsupportedError, shown
from mithril.types import Dtype

KEY = "loss_scale"
FIRST, INTERVAL, LARGEST = 2.0**16, 2000, 2.0**127
_NONE_WAITS = "with stream_gradients no gradient waits until all are known to be finite"


@dataclass(frozen=True)
class LossScale:
    """Scales losses; `fixed`: by a number that stays."""

    fixed: float | None = None

    def state_of(self, opt_state: Mapping[str, Any]) -> dict[str, Any]:
        """The scale, and how many good steps there were since it changed."""
        first = FIRST if self.fixed is None else self.fixed
        kept = opt_state.get(KEY, {})
        return {"scale": float(kept.get("scale", first)), "good": int(kept.get("good", 0))}

    def after(self, state: Mapping[str, Any], is_finite: bool) -> dict[str, Any]:
        """The state behind a step whose gradients were finite, or were not."""
        if self.fixed is not None:
            return {"scale": self.fixed, "good": state["good"] + is_finite}
        if not is_finite:
            return {"scale": state["scale"] / 2, "good": 0}
        if state["good"] + 1 < INTERVAL:
            return {**state, "good": state["good"] + 1}
        return {"scale": min(2 * state["scale"], LARGEST), "good": 0}

    def update(
        self,
        optimizer: Any,
        params: Any,
        gradients: Mapping[str, Any],
        opt_state: Any,
        backend: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """`optimizer.update` by gradients of a loss that was scaled as `state_of` says; nothing
        moves where some are not finite."""
        state = self.state_of(opt_state)
        is_finite = are_finite(gradients.values(), backend)
        if is_finite:
            own = {name: gradient * (1 / state["scale"]) for name, gradient in gradients.items()}
            params, opt_state = optimizer.update(params, own, opt_state)
        return params, {**opt_state, KEY: self.after(state, is_finite)}


def are_finite(arrays: Iterable[Any], backend: Any) -> bool:
    """Tells whether all elements are; read once for all arrays."""
    with np.errstate(invalid="ignore"):
        sums = [(array * 0).sum() for array in arrays]  # 0, or NaN
    return not sums or float(backend.to_numpy(sum(sums[1:], sums[0]))) == 0.0


def default_scale(backend: Any) -> LossScale | None:
    """The scale where nobody says one; None but for programs that compute in float16."""
    return LossScale() if backend.compute_dtype is Dtype.float16 else None


def loss_scale_of(option: Any, backend: Any, optimizer: Any, streams: bool) -> LossScale | None:
    """Reads compile's `loss_scale`; None: losses are not scaled."""
    if option is None:
        found = None if optimizer is None else default_scale(backend)
        if streams and found is not None:
            raise UnsupportedError(
                f"stream_gradients: losses are scaled in float16, and {_NONE_WAITS}",
                hint='give compute_precision="bfloat16" to the backend, or loss_scale=1 for none',
            )
        return found
    is_number = isinstance(option, int | float) and not isinstance(option, bool)
    if not is_number or not 0 < option <= LARGEST:
        raise ArgumentError(f"loss_scale: requires a number above 0, got {shown(option)}")
    if optimizer is None:
        raise ArgumentError(
            "loss_scale: there is no optimizer whose steps it would change",
            hint="compile with optimizer=, such as ml.optim.Adam()",
        )
    if streams and option == 1:
        return None
    if streams:
        raise UnsupportedError(
            f"loss_scale: {_NONE_WAITS}", hint="leave one of them out, or give 1"
        )
    return LossScale(float(option))


__all__ = ["KEY", "LossScale", "are_finite", "default_scale", "loss_scale_of"]
