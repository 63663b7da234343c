"""The base class of backends whose plans run on a device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril.backends.with_manualgrad.plan_backend import PlanBackend

__all__ = ["DeviceBackend"]


class DeviceBackend(PlanBackend):
    """Plans run on a device, with NumPy arrays in and out; methods run on NumPy and the engine."""

    _methods_run_on = "cpu"  # operations of other shapes each time are not worth a compiler's time
    _compiles_each_program = True
    _device: Any  # of the engine

    @property
    def device_info(self) -> Mapping[str, Any]:
        """The device in its own words."""
        return self._device.info

    @property
    def has_exact_bits(self) -> bool:
        """Tells whether loops have the bits of `CpuBackend`: subnormals, fma, correctly rounded
        division and square root, as the device was found to compute them."""
        return self._device.has_exact_bits

    def get_device(self) -> str:
        """The device by its kind and its number among those of that kind: "gpu:0", "cuda:0"."""
        return self.device_info["id"]

    def __repr__(self) -> str:
        bits = "" if self.has_exact_bits else ", bits of its own"
        name = self.device_info["name"]
        return (
            f"{type(self).__name__}(device={self.get_device()!r},"
            f" dtype={str(self.default_dtype)!r})  # {name}{bits}"
        )
