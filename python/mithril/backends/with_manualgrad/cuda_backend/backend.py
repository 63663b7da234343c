"""Runs models on a GPU of NVIDIA."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mithril import _core
from mithril.backends.with_manualgrad.cuda_backend.libraries import (
    cublaslt_libraries,
    cudnn_libraries,
    nvrtc_libraries,
)
from mithril.backends.with_manualgrad.device_backend import DeviceBackend
from mithril.backends.with_manualgrad.object_cache import ObjectCache, key_of
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    DeviceNotAvailable,
    SignatureError,
    UnsupportedError,
    shown,
)
from mithril.types import Dtype, DTypeLike

__all__ = ["CudaBackend"]

_MOST_INDEX = 2**31 - 1
_PRECISIONS = ("float32", "tf32")
_FIRST_WITH_TF32 = 80  # architecture


class CudaBackend(DeviceBackend):
    """Plans of the engine as CUDA C on a GPU of NVIDIA, with arrays of NumPy or on the device.

    Parameters
    ----------
    device : "cuda:0" (default), "cuda:1" … as `CudaBackend.get_available_devices()` has them, or
        the number alone; "cuda" is the first.
    dtype : float16, bfloat16, float32 (default) or float64; what floats are stored in. Halves are
        computed in float32.
    memory_limit : bytes, "8GB" or "512MiB": what a call may allocate for intermediate results and
        outputs; None: what the device has. The smaller of this and `compile(memory_limit=)`
        applies. `to_device` places no more than that beside what the process uses of the device.
    seed : of the backend's random numbers.
    compute_precision : the float type of mixed precision (docs/low_precision.md): a half beside
        float32 as `dtype`, or float32 beside a half; None: `dtype` alone.
    precision : "float32" (default: IEEE) or "tf32": factors of products and convolutions in float32
        may be rounded to 10 bits behind the point, which tensor cores multiply; with cuBLASLt, and
        of convolutions with cuDNN, from sm_80 on.

    The driver (``libcuda.so.1``) and NVRTC are opened by the first backend, not by the import.
    Kernels are compiled at the first call with their sizes, and kept on disk for the next process.
    What has no kernel of CUDA runs on the engine's kernels, on copies; ``pm.explain()`` says where.
    Methods such as ``backend.add`` run on NumPy and the engine. `to_device` puts arrays into the
    device's memory (`ml.Array`); where one is an operand, all of that happens there. Products of
    matrices are cuBLASLt's where it is installed, convolutions cuDNN's, except under
    ``deterministic="portable"``.

    Raises
    ------
    ArgumentError : another precision, or "tf32" with float64
    UnsupportedError : precision="tf32" where there is no cuBLASLt, or on an older device
    DeviceNotAvailable : there is no driver, no such device or no NVRTC; a call raises it where the
        driver fails
    OutOfMemoryError : of a call for which memory is too small

    >>> import mithril as ml
    >>> ml.CudaBackend.backend_type
    'cuda'
    """

    backend_type = engine_target = "cuda"
    hardware = ("gpu",)
    _ops_module = "mithril.backends.with_manualgrad.cuda_backend.ops"

    @public
    def __init__(
        self,
        device: str | int = "cuda:0",
        dtype: DTypeLike = Dtype.float32,
        *,
        memory_limit: int | str | None = None,
        seed: int = 0,
        compute_precision: DTypeLike | None = None,
        precision: str = "float32",
    ) -> None:
        super().__init__(dtype, None, seed, compute_precision, memory_limit)
        self._device = _core.CudaDevice(
            _index(device), nvrtc_libraries(), cublaslt_libraries(), cudnn_libraries()
        )
        self._allows_tf32 = self._checked_precision(precision)
        self._objects = ObjectCache.of_user("cuda", ".cubin")

    def _checked_precision(self, precision: Any) -> bool:
        if not isinstance(precision, str) or precision not in _PRECISIONS:
            known = ", ".join(map(repr, _PRECISIONS))
            raise ArgumentError(
                f"CudaBackend: precision requires one of {known}, got {shown(precision)}"
            )
        if precision == "float32":
            return False
        if self.default_dtype == Dtype.float64:
            raise ArgumentError("CudaBackend: precision='tf32' is of float32, got dtype='float64'")
        architecture = self.device_info["architecture"]
        if int(architecture.removeprefix("sm_")) < _FIRST_WITH_TF32:
            raise UnsupportedError(
                f"CudaBackend: precision='tf32' requires sm_{_FIRST_WITH_TF32} or newer, got"
                f" {architecture}",
                hint="leave it out",
            )
        is_there, name_or_reason = self._device.product_library()
        if not is_there:
            raise UnsupportedError(
                f"CudaBackend: precision='tf32' requires cuBLASLt; {name_or_reason}",
                hint="pip install nvidia-cublas-cu12 (CUDA 13: nvidia-cublas)",
            )
        return True

    def _repr_options(self) -> dict[str, str]:
        return {**super()._repr_options(), **({"precision": "tf32"} if self._allows_tf32 else {})}

    @property
    def product_library(self) -> str | None:
        """The library that does products of matrices, "cuBLASLt 12.9"; None: kernels of this
        backend do. It is opened when this is first asked for, or with the first model."""
        is_there, name = self._device.product_library()
        return name if is_there else None

    @property
    def convolution_library(self) -> str | None:
        """The library that does convolutions and their gradients, "cuDNN 9.10"; None: kernels of
        this backend do. It is opened when this is first asked for, or with the first model that
        has a convolution."""
        is_there, name = self._device.convolution_library()
        return name if is_there else None

    @property
    def device_info(self) -> Mapping[str, Any]:
        """The device in its own words: id, name, memory in bytes, architecture ("sm_90"),
        multiprocessors, driver ("CUDA 12.8"), whether its memory comes from a pool, and peak
        (`device_peak`; None before it is measured)."""
        return super().device_info

    @property
    def operation_peaks(self) -> Mapping[Dtype | None, float]:
        """Operations in a second at best (`device_peak`) of steps in a type, None where a step has
        no single one. Types are missing in which tensor cores may do more than was measured."""
        if self._allows_tf32:
            return {}
        halves = (Dtype.float16, Dtype.bfloat16)
        return {of: peak for of, peak in super().operation_peaks.items() if of not in halves}

    @staticmethod
    def get_available_devices() -> list[str]:
        """All devices, in the driver's order."""
        return [info["id"] for info in _core.cuda_devices()]

    def _runs_on_host(self, op: str) -> bool:
        return _core.cpu_has_kernel(op) and not _core.cuda_has_kernel(op)

    def _build(self, text: str) -> bytes:
        """The code of a text, which is compiled once for a device, a compiler and its flags; the
        engine calls it and loads the result."""
        key = key_of(self._device.compiler_identity, text)
        return Path(self._objects.path(key, lambda: self._device.compile(text))).read_bytes()

    def _native_program(
        self, graph: Any, exact_conv: bool, canonical: bool, weights: str, **options: Any
    ) -> Any:
        """No weights are packed."""
        return _core.CudaProgram(
            graph,
            self._device,
            self._build,
            exact_conv=exact_conv,
            canonical=canonical,
            allows_tf32=self._allows_tf32,
            **self._limited(options),
        )


def _index(device: Any) -> int:
    """The number of a device."""
    if isinstance(device, bool) or not isinstance(device, str | int):
        raise SignatureError(
            f"CudaBackend: device requires 'cuda:0' or a number, got {shown(device)}"
        )
    parts = re.fullmatch(r"cuda(?::([0-9]{1,9}))?", device) if isinstance(device, str) else None
    index = device if isinstance(device, int) else int(parts[1] or 0) if parts else -1
    if not 0 <= index <= _MOST_INDEX:
        raise DeviceNotAvailable(
            f"CudaBackend: no device is {shown(device)}; 'cuda:0' is the first"
        )
    return index
