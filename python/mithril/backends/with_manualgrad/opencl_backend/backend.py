"""Runs models on a device of OpenCL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril import _core
from mithril.backends.with_manualgrad.device_backend import DeviceBackend
from mithril.backends.with_manualgrad.opencl_backend.tiles import use_kept_tile
from mithril.base.public import public
from mithril.errors import SignatureError, UnsupportedError, shown
from mithril.types import Dtype, DTypeLike

__all__ = ["OpenCLBackend"]


class OpenCLBackend(DeviceBackend):
    """Plans of the engine as OpenCL C on a GPU or a CPU, with arrays of NumPy or on the device.

    Parameters
    ----------
    device : None (the first GPU, else the first device), "gpu", "cpu", "gpu:1" as
        `OpenCLBackend.get_available_devices()` has it, a number in that list, or "platform:device"
        by numbers or parts of names.
    dtype : float16, bfloat16, float32 (default) or float64; what floats are stored in. Halves are
        computed in float32.
    threads : how many compute units of a CPU kernels use, and threads what runs on the host; None:
        all of them.
    memory_limit : bytes, "8GB" or "512MiB": what a call may allocate for intermediate results and
        outputs; None: what the device has. The smaller of this and `compile(memory_limit=)`
        applies. `to_device` places no more than that beside what the process uses of the device.
    seed : of the backend's random numbers.
    compute_precision : the float type of mixed precision (docs/low_precision.md): a half beside
        float32 as `dtype`, or float32 beside a half; None: `dtype` alone.

    The loader (``libOpenCL.so.1``) is opened by the first backend, not by the import. Programs are
    compiled at the first call with their sizes. What has no kernel of OpenCL runs on the engine's
    kernels, on memory of the device that is mapped; ``pm.explain()`` says where. Methods such as
    ``backend.add`` run on NumPy and the engine. `to_device` puts arrays into the device's memory
    (`ml.Array`); where one is an operand, all of that happens there. `ml.tune` measures how
    products are computed best.

    Raises
    ------
    DeviceNotAvailable : there is no loader, no platform or no such device; a call raises it where
        the driver fails
    UnsupportedError : the device has no float64; threads= for a device that is no CPU
    ArgumentError : more threads than the device has compute units
    OutOfMemoryError : of a call for which memory is too small

    >>> import mithril as ml
    >>> ml.OpenCLBackend.backend_type
    'opencl'
    """

    backend_type = engine_target = "opencl"
    hardware = ("gpu", "cpu")
    _ops_module = "mithril.backends.with_manualgrad.opencl_backend.ops"

    @public
    def __init__(
        self,
        device: str | int | None = None,
        dtype: DTypeLike = Dtype.float32,
        *,
        threads: int | None = None,
        memory_limit: int | str | None = None,
        seed: int = 0,
        compute_precision: DTypeLike | None = None,
    ) -> None:
        super().__init__(dtype, threads, seed, compute_precision, memory_limit)
        self._device = _core.OpenClDevice(_wanted(device), threads=threads or 0)
        if self.default_dtype == Dtype.float64 and not self._device.info["has_float64"]:
            raise UnsupportedError(
                f"OpenCLBackend: {self._device.info['name']} has no float64 (cl_khr_fp64)",
                hint="dtype='float32', or CpuBackend(dtype='float64')",
            )
        use_kept_tile(self)
        self._pool = None if threads is None else _core.ThreadPool(threads)

    @property
    def device_info(self) -> Mapping[str, Any]:
        """The properties of the device: platform, name, vendor, version, driver, kind ("cpu",
        "gpu", "accelerator"), compute_units, memory, largest_allocation and parameter_bytes (of a
        kernel) in bytes, has_float64, and peak (`device_peak`; None before it is measured)."""
        return super().device_info

    @property
    def product_tile(self) -> tuple[int, int, int]:
        """The register tile of matrix products: rows, vectors in a row, bytes of a vector; on a
        GPU rows and columns of each item of a work group, and how many items it has. It belongs to
        the device, applies to models compiled from then on, and changes no bit of a result;
        `ml.tune` finds the fastest.

        Raises
        ------
        SignatureError : of the setter: no three integers
        ArgumentError : of the setter: not 1 to 16 rows of 1, 2 or 4 vectors of 16, 32 or 64 bytes,
            128 together; on a GPU not 1 to 8 rows and columns for 64 or 256 items, or more than a
            work group of the device has room for
        """
        return self._device.tile

    @product_tile.setter
    def product_tile(self, tile: tuple[int, int, int]) -> None:
        numbers = list(tile) if isinstance(tile, tuple | list) else []
        if len(numbers) != 3 or any(type(number) is not int for number in numbers):
            raise SignatureError(f"product_tile: requires three integers, got {shown(tile)}")
        rows, vectors, size = (max(-1, min(number, 1 << 31)) for number in numbers)
        self._device.tile = rows, vectors, size

    @property
    def multiplies_in_groups(self) -> bool:
        """Tells whether work groups do products, as on a GPU: `product_tile` is theirs."""
        return bool(self._device.does_tiles_in_groups)

    @staticmethod
    def get_available_devices() -> list[str]:
        """All devices by kind and number, in the loader's order."""
        return [info["id"] for info in _core.opencl_devices()]

    def _runs_on_host(self, op: str) -> bool:
        return _core.cpu_has_kernel(op) and not _core.opencl_has_kernel(op)

    def _native_program(
        self, graph: Any, exact_conv: bool, canonical: bool, weights: str, **options: Any
    ) -> Any:
        """Compiles a graph for the device; `weights` is ignored, because none are packed."""
        return _core.OpenClProgram(
            graph,
            self._device,
            self._pool,
            exact_conv=exact_conv,
            canonical=canonical,
            **self._limited(options),
        )


def _wanted(device: Any) -> str:
    """A device as the engine reads it."""
    if device is None:
        return ""
    if isinstance(device, bool) or not isinstance(device, str | int):
        raise SignatureError(
            "OpenCLBackend: device requires None, a number, or a text such as 'gpu', 'cpu' or "
            f"'0:0', got {shown(device)}"
        )
    return str(device)
