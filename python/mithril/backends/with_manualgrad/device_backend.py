"""The base class of backends whose plans run on a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mithril.backends.array_namespace import ArrayNamespace
from mithril.backends.with_manualgrad.plan_backend import PlanBackend
from mithril.base.arrays import host_values, is_device_array
from mithril.base.numpy import np
from mithril.base.trees import with_items
from mithril.eager import op_programs
from mithril.errors import ArgumentError, DeviceNotAvailable, OutOfMemoryError, shown
from mithril.execution.memory import memory_report, parse_size
from mithril.types import Dtype, DTypeLike

__all__ = ["DeviceBackend"]

_MOST_NESTED = 64  # as many axes as an array of NumPy may have


class DeviceBackend(PlanBackend):
    """Plans run on a device.

    NumPy's arrays go in and come out, and methods run on NumPy and the engine; where an array in
    the memory of the device is among the operands (`to_device`), the results are there, too.
    """

    _methods_run_on = "cpu"  # operations of other shapes each time are not worth a compiler's time
    compiles_each_program = True
    has_own_memory = True
    _device: Any  # of the engine

    def __init__(
        self,
        dtype: DTypeLike,
        threads: int | None,
        seed: int,
        compute_precision: DTypeLike | None,
        memory_limit: int | str | None,
    ) -> None:
        super().__init__("cpu", dtype, threads, seed, compute_precision)
        option = f"{type(self).__name__}: memory_limit"
        self._memory_limit = None if memory_limit is None else parse_size(memory_limit, option)

    def _limited(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options of a program, with the smaller limit of the backend's and of compile."""
        given = (self._memory_limit, options["memory_limit"])
        limits = [limit for limit in given if limit is not None]
        return {**options, "memory_limit": min(limits, default=None)}

    @property
    def device_info(self) -> Mapping[str, Any]:
        """The device in its own words, and in "peak" what it was measured to do in a second at
        best (`device_peak`); None: nobody has asked."""
        return {**self._device.info, "peak": self._device.known_peak}

    def device_peak(self) -> Mapping[str, float]:
        """Tells what the device does in a second at best, as short kernels measure it when first
        asked: multiplications and additions in "float32" and "float64" (0: the device has none),
        and in "bandwidth" bytes read and written.

        Raises
        ------
        DeviceNotAvailable : the driver fails
        OutOfMemoryError : the device has no memory left
        """
        return self._device.peak()

    @property
    def operation_peaks(self) -> Mapping[Dtype | None, float]:
        """Operations in a second at best (`device_peak`) of steps in a type, None where a step has
        no single one; types whose peak is not known are missing."""
        peak = self.device_peak()
        peaks = {of: peak["float64" if of == Dtype.float64 else "float32"] for of in (*Dtype, None)}
        return {of: most for of, most in peaks.items() if most > 0}

    def to_device(self, data: Any, device: str | None = None, asynchronous: bool = False) -> Any:
        """Arrays in the memory of the device: `ml.Array`.

        Models and methods that take one leave their results there, too, and do not wait for them;
        `to_numpy` and ``np.asarray`` do, and copy the values to the host.

        Parameters
        ----------
        data : anything that `array` takes, or dictionaries, lists and tuples of arrays such as
            parameters; integers and bools keep their dtypes, floats of arrays, too
        device : this backend's, by name (`get_device`), or None; "cpu" copies to NumPy's arrays
        asynchronous : is of no effect: what is copied may be changed afterwards

        Raises
        ------
        ArgumentError : a dictionary, list or tuple contains itself, or is nested too deeply
        DeviceNotAvailable : another device; that is another backend's
        OutOfMemoryError : the device has no memory left, or the backend's ``memory_limit`` is less
            than what the process would use of the device then

        >>> import mithril as ml
        >>> backend = ml.OpenCLBackend(device="cpu")  # doctest: +SKIP
        >>> params = backend.to_device({"w": [1.0, 2.0]})  # doctest: +SKIP
        >>> params["w"] + 1  # doctest: +SKIP
        Array([2., 3.], dtype=float32, device='cpu:0')
        """
        return self._placed(data, device, 0)

    def _placed(self, data: Any, device: str | None, depth: int) -> Any:
        if isinstance(data, dict):
            _refuse_deeper(depth)
            items = [self._placed(item, device, depth + 1) for item in data.values()]
            return with_items(data, items)
        if _is_nest(data, depth):
            return with_items(data, [self._placed(item, device, depth + 1) for item in data])
        if data is None and depth > 0:
            return None
        if device not in (None, self.get_device()):
            if device == "cpu":
                return self.to_numpy(data)
            raise DeviceNotAvailable(
                f"{type(self).__name__}: to_device requires {self.get_device()!r} or 'cpu', got"
                f" {shown(device)}"
            )
        if self._is_here(data):
            return data
        keeps = hasattr(data, "dtype")
        values = host_values(data) if keeps else self.tensor(data)
        wanted = self.dtype(values).numpy()
        array = np.array(values, wanted, order="C", copy=None)
        self._check_limit(array.nbytes)
        return self._device.array(array, self)

    def _check_limit(self, size: int) -> None:
        """Refuses arrays with which the process would use more of the device than the limit."""
        limit = self._memory_limit
        if limit is None or self._device.used_bytes + size <= limit:
            return
        self.empty_cache()
        used = self._device.used_bytes
        if used + size > limit:
            raise OutOfMemoryError(
                f"{type(self).__name__}: to_device of {size} bytes, with {used} of the device in"
                f" use, and memory_limit is {limit} bytes",
                hint="raise memory_limit, or drop arrays that are not needed",
            )

    def from_dlpack(self, source: Any) -> Any:
        """An `ml.Array` over the memory of another library's array, without a copy.

        What that library writes there later is seen, and what a model compiled with
        ``stream_gradients=True`` overwrites it sees. Values on another device, and those that are
        not row-major, are copied.

        Parameters
        ----------
        source : an array with ``__dlpack__`` and ``__dlpack_device__``, as PyTorch, JAX and CuPy
            have it

        Raises
        ------
        BufferError : elements of a type that no dtype is
        ArgumentError : no array with DLPack
        """
        if not hasattr(source, "__dlpack__") or not hasattr(source, "__dlpack_device__"):
            raise ArgumentError(
                f"{type(self).__name__}: from_dlpack requires an array with __dlpack__, got"
                f" {shown(source)}"
            )
        shared = self._shared(source)
        return self.to_device(source) if shared is None else shared

    def _shared(self, source: Any) -> Any:
        """An array over the memory of another one; None where its values have to be copied."""
        return source if self._is_here(source) else self._device.from_dlpack(source, self)

    def _is_here(self, value: Any) -> bool:
        return is_device_array(value) and value.is_on(self._device)

    def _array_namespace(self, api_version: str | None) -> ArrayNamespace:
        return ArrayNamespace(self, api_version)

    def _is_native(self, value: Any) -> bool:
        return self._is_here(value) or super()._is_native(value)

    def block_until_ready(self, data: Any = None) -> Any:
        self._device.finish()
        return data

    def empty_cache(self) -> None:
        """Gives memory of the device that is kept for later calls back to the driver.

        Raises DeviceNotAvailable where the device cannot be waited for; what another library may
        still read is kept then."""
        self._device.release_spare()

    def get_memory_info(self) -> dict[str, float]:
        """That of the process, as NumPy's arrays are there, and in keys that begin with "device_"
        what all arrays and calls of the process use of the device: arrays that lie there,
        constants, memory of the last call."""
        limit = self._memory_limit or self.device_info["memory"]
        of_device = memory_report(self._device.used_bytes, self._device.peak_bytes, limit)
        return super().get_memory_info() | {f"device_{k}": v for k, v in of_device.items()}

    def unique(self, input: Any, *arguments: Any, **options: Any) -> Any:
        return self._beside(input, super().unique(input, *arguments, **options))

    def zeros_like(self, input: Any, *, dtype: DTypeLike | None = None) -> Any:
        return self._beside(input, super().zeros_like(input, dtype=dtype))

    def ones_like(self, input: Any, *, dtype: DTypeLike | None = None) -> Any:
        return self._beside(input, super().ones_like(input, dtype=dtype))

    def _beside(self, input: Any, made: Any) -> Any:
        return self.to_device(made) if self._is_here(input) else made

    def _runs_ops(self, operands: Iterable[Any] = (), is_data_dependent: bool = False) -> Any:
        if any(map(self._is_here, operands)):
            return self
        return super()._runs_ops(operands, is_data_dependent)

    def cast(self, value: Any, dtype: DTypeLike | None = None) -> Any:
        if not self._is_here(value):
            return super().cast(value, dtype)
        return op_programs.cast(self, value, self._or_default(dtype))

    def index(self, input: Any, index: Any) -> Any:
        if not any(self._is_here(x) for x in (input, *_entries(index))):
            return super().index(input, index)
        entries = tuple(x.to_numpy() if is_device_array(x) else x for x in _entries(index))
        found = super().index(self.to_numpy(input), entries)
        return self.to_device(found)

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
        return f"{super().__repr__()}  # {name}{bits}"


def _is_nest(data: Any, depth: int) -> bool:
    """Tells whether arrays are in a list or a tuple, which else is one of numbers."""
    if not isinstance(data, list | tuple):
        return False
    _refuse_deeper(depth)
    return any(
        isinstance(item, dict) or hasattr(item, "shape") or _is_nest(item, depth + 1)
        for item in data
    )


def _refuse_deeper(depth: int) -> None:
    if depth >= _MOST_NESTED:
        raise ArgumentError(
            f"to_device: requires dictionaries, lists and tuples at most {_MOST_NESTED} levels"
            " deep, got deeper ones",
            hint="one that contains itself has no end",
        )


def _entries(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)
