"""Runs models on JAX arrays: compiled by XLA, or op by op."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mithril.backends.with_autograd.backend import (
    AutogradBackend,
    mesh_of_one,
    mesh_sizes,
    one_of,
    require,
    switch,
    unsupported,
)
from mithril.backends.with_manualgrad.numpy_backend.backend import as_numpy
from mithril.base.logging import note_option
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    DataOverflowError,
    DeviceNotAvailable,
    MithrilWarning,
    shown,
    warn,
)
from mithril.execution.memory import memory_report
from mithril.types import Dtype, DTypeLike, as_dtype

from .utils import ArrayJit

__all__ = ["JaxBackend"]

# What XLA's products are to be like; between halves they are sums in float32 anyway.
_PRECISIONS = dict.fromkeys(("float32", "bfloat16", "float16"), "highest") | {
    "tf32": "tensorfloat32"
}

_LARGE = 2**30  # bytes
_PASSES_OFF = "xla_disable_hlo_passes"  # of XLA's, by comma

# Platforms on which XLA's products have such a precision.
_DEVICES_OF = {"tf32": ("gpu", "cuda", "rocm")}


class _Unfolded(tuple[Any, ...]):
    """Constants of a program; XLA does not compute at once what narrow integers among them, which
    are weights in few bits, become."""

    def __getitem__(self, index: Any) -> Any:
        value = super().__getitem__(index)
        if str(getattr(value, "dtype", "")) not in ("int8", "int16"):
            return value
        from jax.lax import optimization_barrier

        return optimization_barrier(value)


class JaxBackend(AutogradBackend):
    """JAX on any of its platforms.

    Parameters
    ----------
    device, platform : "cpu", "gpu", "tpu", "cuda:1" …; default: the device that JAX picks.
    dtype : float16, bfloat16, float32 (default) or float64. With float64 the backend's own calls
        run under ``jax.enable_x64``; your own arithmetic on 64-bit arrays needs `enable_x64()`.
    precision : "float32" (default); "tf32" for products on GPUs; "bfloat16" and "float16" for mixed
        precision (docs/low_precision.md).
    jit_compile : default of ``ml.compile(jit=)``; None: True. A program is compiled for each set of
        shapes (and of values of Python) that it is called with.
    pre_allocate : whether XLA takes most of the device's memory when it starts.
    device_mesh : sizes of a mesh of one device, such as 1 or (1, 1), kept as `mesh`.

    Nothing process-wide is changed, except that `pre_allocate` sets XLA's variable when given.

    Raises
    ------
    UnsupportedError : an option asks for what this version, or the device, does not do
    """

    backend_type = "jax"
    hardware = ("cpu", "gpu", "tpu")
    compiles_each_program = True
    jit_option_names = frozenset({"compiler_options", "inline", "keep_unused"})
    not_compiled = frozenset({"masks", "values"})
    _ops_module = "mithril.backends.with_autograd.jax_backend.ops"
    _runs_own_arrays = True

    @public
    def __init__(
        self,
        device: Any = None,
        dtype: DTypeLike = Dtype.float32,
        pre_allocate: bool | None = None,
        device_mesh: Any = None,
        *,
        platform: str | None = None,
        precision: Any = None,
        jit_compile: bool | None = None,
        seed: int = 0,
    ) -> None:
        self._jax = require("jax", "JAX", "jax")
        super().__init__(dtype=dtype, seed=seed)
        if switch(type(self).__name__, pre_allocate=pre_allocate) is not None:
            _set_pre_allocation(bool(pre_allocate))
        device = one_of(device=device, platform=platform)
        self._device = None if device is None else self._find_device(device)
        self.compute_precision = _checked_precision(precision)
        self._check_precision(self.device)
        if self.compute_precision != "tf32":
            self._compute_in("precision", precision)
        self.jit_default = switch(type(self).__name__, jit_compile=jit_compile) is not False
        self.mesh = None if device_mesh is None else self._make_mesh(device_mesh)
        if self._is_wide:
            note_option(
                type(self).__name__, "dtype=float64", "arithmetic outside the backend: enable_x64()"
            )

    def _repr_options(self) -> dict[str, str]:
        kind = "tf32" if self.compute_precision == "tf32" else self.compute_dtype
        return {} if kind is None else {"precision": str(kind)}

    @property
    def _is_wide(self) -> bool:
        return self.default_dtype is Dtype.float64

    @property
    def prng_key(self) -> Any:
        """The key that the next random call uses, as a key of `jax.random`."""
        return self._jax.numpy.asarray(self._stream.key())

    @property
    def default_int(self) -> Dtype:
        return Dtype.int64 if self._is_wide else Dtype.int32

    @property
    def _widest_int(self) -> Dtype:  # type: ignore[override]
        return Dtype.int64 if self._is_wide or self._jax.config.jax_enable_x64 else Dtype.int32

    # ------------------------------------------------------------------------------- devices

    def _find_device(self, device: Any) -> Any:
        if not isinstance(device, str):
            return device
        platform, _, index = device.partition(":")
        try:
            return self._jax.devices(platform)[int(index or 0)]
        except (RuntimeError, IndexError, ValueError) as error:
            available = ", ".join(self.get_available_devices())
            raise DeviceNotAvailable(
                f"{type(self).__name__}: no device {device!r}; available: {available}"
            ) from error

    def _check_precision(self, device: Any) -> None:
        """XLA computes products as asked on these devices, and in float32 on others."""
        wanted = _DEVICES_OF.get(self.compute_precision)
        if wanted is not None and device.platform not in wanted:
            raise unsupported(
                type(self).__name__,
                f"precision={self.compute_precision!r}",
                f"requires one of the platforms {', '.join(wanted)}, got {device.platform}",
                "leave it out, or give dtype=",
            )

    def _make_mesh(self, sizes: Any) -> Any:
        sizes = mesh_sizes(type(self).__name__, sizes)
        wanted, present = int(np.prod(sizes)), self._jax.device_count()
        if wanted > present:
            raise DeviceNotAvailable(
                f"device_mesh {sizes} needs {wanted} devices, JAX has {present}",
                hint=f"on CPU: XLA_FLAGS=--xla_force_host_platform_device_count={wanted}",
            )
        mesh_of_one(type(self).__name__, sizes)
        return self._jax.make_mesh(sizes, tuple(f"axis_{i}" for i in range(len(sizes))))

    def get_raw_device_mesh(self) -> Any:
        return super().get_raw_device_mesh() if self.mesh is None else self.mesh

    @staticmethod
    def get_available_devices() -> list[str]:
        jax = require("jax", "JAX", "jax")
        return [f"{d.platform}:{d.id}" for d in jax.devices()]

    @property
    def device(self) -> Any:
        return self._device if self._device is not None else self._jax.devices()[0]

    def get_device(self) -> str:
        return f"{self.device.platform}:{self.device.id}"

    def set_platform(self, platform: str) -> None:
        """Moves this backend's further arrays and calls to another platform."""
        device = self._find_device(platform)
        self._check_precision(device)
        self._device = device

    def enable_x64(self, enabled: bool = True) -> None:
        """Switches 64-bit types on in the whole process; `reset` undoes it."""
        if not hasattr(self, "_was_wide"):
            self._was_wide = self._jax.config.jax_enable_x64
        self._jax.config.update("jax_enable_x64", enabled)

    def reset(self) -> None:
        """Undoes what setters changed in the process."""
        if hasattr(self, "_was_wide"):
            self._jax.config.update("jax_enable_x64", self._was_wide)
            del self._was_wide

    def to_device(self, data: Any, device: Any = None, asynchronous: bool = True) -> Any:
        self._need_device(device)
        return self._jax.device_put(data, self._find_device(device))

    def block_until_ready(self, data: Any = None) -> Any:
        return self._jax.block_until_ready(data)

    def get_memory_info(self) -> dict[str, float]:
        statistics = self.device.memory_stats()
        if not statistics:
            return super().get_memory_info()
        used = statistics["bytes_in_use"]
        peak, limit = statistics.get("peak_bytes_in_use", used), statistics.get("bytes_limit", 0)
        return memory_report(used, peak, limit)

    def _scope(self, wide: bool = False) -> Any:
        stack = contextlib.ExitStack()
        if wide or self._is_wide:
            stack.enter_context(self._jax.enable_x64(True))
        if self._device is not None:
            stack.enter_context(self._jax.default_device(self._device))
        stack.enter_context(self._jax.default_matmul_precision(_PRECISIONS[self.compute_precision]))
        return stack

    def _scope_of_dtypes(self, dtypes: Iterable[Dtype]) -> Any:
        return self._scope(any(dtype.itemsize == 8 for dtype in dtypes))

    def _tracing_scope(self) -> Any:
        """Returns a context for the precision of products; the trace has its types and devices."""
        return self._jax.default_matmul_precision(_PRECISIONS[self.compute_precision])

    # ------------------------------------------------------------------------------- creation

    def get_backend_array_type(self) -> type:
        return self._jax.Array

    def tensor(self, data: Any, dtype: DTypeLike | None = None) -> Any:
        if isinstance(data, self._jax.Array):
            return self._converted(data, dtype)
        return self._adopt(
            as_numpy(data, self._narrowed(data, dtype), self.default_dtype, self.default_int)
        )

    def _converted(self, data: Any, dtype: DTypeLike | None) -> Any:
        if dtype is None:
            floating = as_dtype(data.dtype).is_float
            dtype = self.default_dtype if floating else data.dtype
        with self._scope(as_dtype(dtype).itemsize == 8):
            return self._jax.numpy.array(data, as_dtype(dtype).numpy())

    def _narrowed(self, data: Any, dtype: DTypeLike | None) -> DTypeLike | None:
        """64-bit integers that nobody asked for become the backend's, if they fit."""
        if dtype is not None or getattr(data, "dtype", None) != np.int64 or self._is_wide:
            return dtype
        values, bounds = np.asarray(data), np.iinfo(np.int32)
        if values.size and (values.min() < bounds.min or values.max() > bounds.max):
            raise DataOverflowError("array: values do not fit int32; give dtype='int64'")
        return self.default_int

    def _adopt(self, values: np.ndarray) -> Any:
        with self._scope(values.dtype.itemsize == 8):
            return self._jax.device_put(values, self._device)

    def _from_host(self, values: np.ndarray, dtype: DTypeLike | None = None) -> Any:
        return self.tensor(values, values.dtype if dtype is None else dtype)

    def _constant(self, value: Any) -> Any:
        """Converts a constant for JAX: without `enable_x64` a 64-bit float becomes a 32-bit one."""
        knows_wide = self._is_wide or self._jax.config.jax_enable_x64
        if not isinstance(value, str) and value.dtype == np.float64 and not knows_wide:
            value = value.astype(np.float32)
        return super()._constant(value)

    def zeros(self, shape: Any, dtype: DTypeLike | None = None) -> Any:
        return self._adopt(np.zeros(shape, self._or_default(dtype).numpy()))

    def ones(self, shape: Any, dtype: DTypeLike | None = None) -> Any:
        return self._adopt(np.ones(shape, self._or_default(dtype).numpy()))

    def to_numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def _imported(self, array: Any) -> Any:
        """Over another framework's memory by DLPack; a copy where that does not work."""
        array = array.detach() if hasattr(array, "detach") else array
        try:
            with self._scope(getattr(array.dtype, "itemsize", 8) == 8):
                return self._jax.device_put(self._jax.numpy.from_dlpack(array), self._device)
        except Exception:  # of either framework: a dtype, device or layout that it does not take
            return super()._imported(array)

    def from_jax(self, array: Any) -> Any:
        return array

    def from_numpy(self, array: np.ndarray) -> Any:
        array = np.asarray(array)
        return self._adopt(array.astype(array.dtype.newbyteorder("="), copy=False))

    # -------------------------------------------------------------- differentiation and tracing

    def _scoped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def scoped(*arguments: Any) -> Any:
            with self._scope():
                return function(*arguments)

        return scoped

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The gradient of a scalar function with respect to its first argument."""
        return self._scoped(self._jax.grad(function))

    def value_and_grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that gives the value and the gradient for the first argument."""
        return self._scoped(self._jax.value_and_grad(function))

    def _pull_back(self, fn: Callable[..., Any], arguments: tuple[Any, ...], has_aux: bool) -> Any:
        with self._scope():
            result = self._jax.vjp(fn, *arguments, has_aux=has_aux)
        return result if has_aux else (*result, None)

    def with_gradient(
        self, function: Callable[..., Any], pull_back: Callable[..., Any]
    ) -> Callable[..., Any]:
        def forward(*inputs: Any) -> tuple[Any, Any]:
            output = function(*inputs)
            return output, (output, inputs)

        def backward(kept: tuple[Any, Any], gradient: Any) -> tuple[Any, ...]:
            return tuple(pull_back(gradient, *kept))

        own = self._jax.custom_vjp(function)
        own.defvjp(forward, backward)
        return own

    def _push_forward(
        self, fn: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        with self._scope():
            return self._jax.jvp(fn, primals, tangents)

    def vmap(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return self._scoped(self._jax.vmap(fn))

    def jacrev(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return self._scoped(self._jax.jacrev(fn))

    def jacfwd(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return self._scoped(self._jax.jacfwd(fn))

    def jit(self, fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return self._scoped(self._jax.jit(fn, **options))

    # ------------------------------------------------------------------------- emitted source

    def _argument(self, values: np.ndarray) -> Any:
        return values  # JAX puts it on the device ten times faster by itself

    def _keeping_copies(self, jit_options: dict[str, Any]) -> dict[str, Any]:
        """On CPUs XLA takes `optimization_barrier` away before it merges equal values."""
        if self.device.platform != "cpu":
            return jit_options
        options = dict(jit_options.get("compiler_options") or {})
        off = [options.get(_PASSES_OFF), "cse_barrier_expander"]
        options[_PASSES_OFF] = ",".join(filter(None, off))
        return {**jit_options, "compiler_options": options}

    def _jit(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return ArrayJit(self._jax, function, options, self._tracing_scope)

    def _scope_of(self, function: Callable[..., Any]) -> Any:
        """Returns the context that calls of a function need: 64-bit types and the device."""
        if not isinstance(function, ArrayJit):
            return self._scope()
        stack = contextlib.ExitStack()
        if self._is_wide:
            stack.enter_context(self._jax.enable_x64(True))
        if self._device is not None:
            stack.enter_context(self._jax.default_device(self._device))
        return stack

    def _constants(self, values: tuple[Any, ...]) -> Any:
        return _Unfolded(values)

    def _call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
        with self._scope_of(function):
            results = list(function(*inputs))
        _wait_for_large(results)
        return results

    def _guard(
        self, function: Callable[..., Any], arrays: Sequence[Any]
    ) -> Callable[..., bool] | None:
        needs_scope = self._is_wide or self._device is not None
        if needs_scope or not isinstance(function, ArrayJit):
            return None
        return function.takes_quickly if function.takes_quickly(*arrays) else None

    def _guarded_call(
        self, function: Any, arrays: Sequence[Any]
    ) -> tuple[Sequence[Any], Callable[..., Sequence[Any]]]:
        return function.quick(*arrays), function.quick

    def _vjp_function(
        self, executable: Any, wrt: tuple[int, ...], has_cotangent: tuple[bool, ...]
    ) -> Callable[..., tuple[Any, Any]]:
        """Inputs and cotangents -> outputs and gradients, for compilers to see."""
        jax, forward = self._jax, executable.function

        def forward_and_backward(*arguments: Any) -> tuple[Any, Any]:
            count = len(arguments) - sum(has_cotangent)
            inputs, cotangents = list(arguments[:count]), arguments[count:]

            def asked_outputs(*leaves: Any) -> tuple[list[Any], Any]:
                merged = list(inputs)
                for i, leaf in zip(wrt, leaves, strict=True):
                    merged[i] = leaf
                outputs = forward(*merged)
                return [o for o, has in zip(outputs, has_cotangent, strict=True) if has], outputs

            leaves = [inputs[i] for i in wrt]
            _, pull_back, outputs = jax.vjp(asked_outputs, *leaves, has_aux=True)
            return outputs, pull_back(list(cotangents))

        return forward_and_backward

    def _make_vjp(self, executable: Any, wrt: tuple[int, ...], has_cotangent: tuple[bool, ...]):
        compiled = executable._compiled(self._vjp_function(executable, wrt, has_cotangent))

        def run(inputs: Sequence[Any], cotangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            with self._scope_of(compiled):
                outputs, gradients = compiled(*inputs, *cotangents)
            _wait_for_large([*outputs, *gradients])
            return list(outputs), list(gradients)

        return run


def _wait_for_large(results: Sequence[Any]) -> None:
    """JAX hands out arrays before there is memory for them, and who reads one for which there is
    none ends the process: those that may be too large are waited for, which raises instead."""
    import jax

    arrays = [x for x in results if isinstance(x, jax.Array)]
    large = [x for x in arrays if not isinstance(x, jax.core.Tracer) and x.nbytes > _LARGE]
    if large:
        jax.block_until_ready(large)


def _checked_precision(precision: Any) -> str:
    name = "float32" if precision is None else str(precision)
    if name not in _PRECISIONS:
        raise ArgumentError(
            f"precision: requires one of {', '.join(_PRECISIONS)}, got {shown(precision)}"
        )
    return name


def _set_pre_allocation(enabled: bool) -> None:
    from jax._src import xla_bridge

    if xla_bridge.backends_are_initialized():
        warn("JaxBackend: pre_allocate has no effect: JAX has started already", MithrilWarning)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true" if enabled else "false"
