"""Two additions to MLX that pages about it take for granted: `mx.devices`, and optimizers whose
`update` returns what it has updated. MLX stays as it is until `install` is called.

::

    with mithril.compat.mlx.install():
        backend = ml.MlxBackend(device=mx.devices.cpu)
        params = optimizer.update(params, gradients)

Without them: `mx.cpu` and `mx.gpu`, and `ml.optim.adopt(optimizer)`.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
from typing import Any

from mithril.backends.with_autograd.backend import require
from mithril.base.checks import checked_bool
from mithril.base.public import public

_DEVICES, _UPDATE = "devices", "optimizer_update"
_lock = threading.RLock()
_before: dict[str, Any] = {}  # addition -> what was there before it


class Installed:
    """The result of `install`; as a context manager it removes what that call has added."""

    def __init__(self, added: tuple[str, ...]) -> None:
        self.added = added

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *exception: Any) -> None:
        _take_away(self.added)

    def __repr__(self) -> str:
        return f"Installed(added={self.added})"


@public
def install(devices: bool = True, optimizer_update: bool = True) -> Installed:
    """Adds to MLX, in the whole process, what is asked for and not there. Twice is once.

    Parameters
    ----------
    devices : `mlx.core.devices` with `cpu` and `gpu`, which are `mx.cpu` and `mx.gpu`
    optimizer_update : `mlx.optimizers.Optimizer.update` returns the model, or the dictionary of
        parameters, that it has updated in place; MLX's own returns None

    Returns
    -------
    What ``with`` takes; `added` names what this call has added.

    Raises
    ------
    DeviceNotAvailable : MLX is not installed
    """
    wanted = {
        _DEVICES: checked_bool("install: devices", devices),
        _UPDATE: checked_bool("install: optimizer_update", optimizer_update),
    }
    require("mlx.core", "MLX", "'mlx[cpu]'")
    with _lock:
        return Installed(tuple(n for n, asked in wanted.items() if asked and _ADDITIONS[n][0]()))


@public
def uninstall() -> None:
    """Takes away all that `install` has added; nothing where it has added nothing."""
    _take_away(tuple(_ADDITIONS))


def _take_away(names: tuple[str, ...]) -> None:
    with _lock:
        for name in names:
            if name in _before:
                _ADDITIONS[name][1](_before.pop(name))


# --- mx.devices ----------------------------------------------------------------------------------

_NAME = "mlx.core.devices"


def _add_devices() -> bool:
    import mlx.core as mx

    if hasattr(mx, "devices"):
        return False
    module = types.ModuleType(_NAME, "The devices of MLX, by mithril.compat.mlx.")
    vars(module).update(cpu=mx.cpu, gpu=mx.gpu)
    sys.modules[_NAME] = _before[_DEVICES] = mx.devices = module
    return True


def _remove_devices(ours: Any) -> None:
    import mlx.core as mx

    if getattr(mx, "devices", None) is ours:
        del mx.devices
    if sys.modules.get(_NAME) is ours:
        del sys.modules[_NAME]


# --- Optimizer.update ----------------------------------------------------------------------------


def _add_update() -> bool:
    from mlx.optimizers import Optimizer

    if _UPDATE in _before:
        return False
    original = Optimizer.update

    @functools.wraps(original)
    def update(self: Any, model: Any, gradients: Any) -> Any:
        result = original(self, model, gradients)
        return model if result is None else result

    Optimizer.update = update
    _before[_UPDATE] = original, update
    return True


def _restore_update(pair: Any) -> None:
    from mlx.optimizers import Optimizer

    original, ours = pair
    if Optimizer.update is ours:  # else somebody has wrapped it since, and calls it still
        Optimizer.update = original


_ADDITIONS = {
    _DEVICES: (_add_devices, _remove_devices),
    _UPDATE: (_add_update, _restore_update),
}

__all__ = ["Installed", "install", "uninstall"]
