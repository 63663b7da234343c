"""Runs models on MLX arrays: line by line, or through mx.compile."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mithril.backends.with_autograd.backend import (
    AutogradBackend,
    mesh_of_one,
    one_of,
    require,
    switch,
    warn_of_absent,
)
from mithril.backends.with_manualgrad.numpy_backend.backend import as_numpy
from mithril.base.arrays import mlx_values
from mithril.base.checks import checked_integer
from mithril.base.logging import note_option
from mithril.base.public import public
from mithril.base.trees import filled, leaves, ordered
from mithril.errors import DeviceNotAvailable, UnsupportedError, shown
from mithril.execution.memory import memory_report, parse_size, process_memory
from mithril.types import Dtype, DTypeLike, as_dtype

from . import utils

__all__ = ["MlxBackend"]

# Names of devices beside MLX's own.
_SYNONYMS = {"mps": "gpu", "metal": "gpu", "cuda": "gpu"}


class MlxBackend(AutogradBackend):
    """MLX on the CPU or a GPU.

    Parameters
    ----------
    device : "cpu", "gpu", "gpu:1", `mx.cpu`, an `mx.Device` …; default: the device that MLX picks.
    dtype, default_dtype : float16, bfloat16, float32 (default); float64 on the CPU only.
    use_graph : default of ``ml.compile(jit=)``: whether programs go through `mx.compile`.
    seed, random_seed : of the backend's random numbers.
    memory_limit : "4GB", "512MiB" or bytes, for the whole process; `reset` undoes it.
    auto_free_tensors, eager_free : give freed memory back at once, in the whole process.
    compute_precision : the float type of mixed precision (docs/low_precision.md): a half beside
        float32 as `dtype`, or float32 beside a half; None: `dtype` alone.
    device_mesh : sizes of a mesh of one device, such as 1 or (1, 1).
    enable_mps_optimization : MLX's own Metal kernels run on Apple's GPUs in any case; elsewhere
        True warns that there are none.
    use_ane : True warns that MLX does not compute on the Neural Engine.

    Nothing process-wide is changed but by the options that say so. Operations are lazy, as is
    MLX's way: `evaluate` waits for its results, methods of the backend do not. A lazy array can be
    computed by the thread that made it only.

    Raises
    ------
    UnsupportedError : an option asks for what this version, or the device, does not do
    """

    backend_type = "mlx"
    hardware = ("cpu", "gpu")
    # Its sum along an axis of size 0 may never end (nd_loop in mlx/backend/cpu/reduce.cpp reads
    # past an empty list of sizes): the engine's gradients, with no such sum, are run instead.
    differentiates_empty = False
    jit_option_names: frozenset[str] = frozenset()
    not_compiled = frozenset({"branches", "masks", "values"})
    keeps_order = False
    _ops_module = "mithril.backends.with_autograd.mlx_backend.ops"
    _runs_own_arrays = True

    @public
    def __init__(
        self,
        device: Any = None,
        dtype: DTypeLike | None = None,
        eager_free: bool | None = None,
        device_mesh: Any = None,
        *,
        default_dtype: DTypeLike | None = None,
        use_graph: bool | None = None,
        compute_precision: Any = None,
        memory_limit: int | str | None = None,
        auto_free_tensors: bool | None = None,
        enable_mps_optimization: bool | None = None,
        use_ane: bool | None = None,
        seed: int | None = None,
        random_seed: int | None = None,
    ) -> None:
        self._mx = require("mlx.core", "MLX", "'mlx[cpu]'")
        dtypes = {"dtype": dtype, "default_dtype": default_dtype}
        wanted = one_of(**{n: None if d is None else as_dtype(d) for n, d in dtypes.items()})
        super().__init__(
            dtype=Dtype.float32 if wanted is None else wanted,
            seed=0 if seed is None and random_seed is None else self._one_seed(seed, random_seed),
        )
        self._device = None if device is None else self._find_device(device)
        self._check_device()
        self.jit_default = switch(type(self).__name__, use_graph=use_graph)
        self.device_mesh = mesh_of_one(type(self).__name__, device_mesh)
        self._compute_in("compute_precision", compute_precision)
        self._warn_of_hardware(enable_mps_optimization, use_ane)
        self._undo: dict[str, Callable[[], Any]] = {}
        if memory_limit is not None:
            self._limit_memory(parse_size(memory_limit, "memory_limit"))
        if switch(type(self).__name__, auto_free_tensors=auto_free_tensors, eager_free=eager_free):
            self._set("cache", self._mx.set_cache_limit, 0)

    def _one_seed(self, seed: Any, random_seed: Any) -> Any:
        given = {"seed": seed, "random_seed": random_seed}
        name = type(self).__name__
        return one_of(
            **{n: checked_integer(f"{name}: {n}", x) for n, x in given.items() if x is not None}
        )

    def _warn_of_hardware(self, mps: Any, ane: Any) -> None:
        metal = self._mx.metal.is_available()
        if switch(type(self).__name__, enable_mps_optimization=mps) and not metal:
            warn_of_absent(
                type(self).__name__, "enable_mps_optimization=True", "there is no Metal here"
            )
        if switch(type(self).__name__, use_ane=ane):
            warn_of_absent(
                type(self).__name__, "use_ane=True", "MLX has no path to the Neural Engine"
            )

    @property
    def prng_key(self) -> Any:
        """The key that the next random call uses, as a key of `mx.random`."""
        return self._mx.array(self._stream.key())

    # ------------------------------------------------------------------------------- devices

    def _find_device(self, device: Any) -> Any:
        mx, available = self._mx, self.get_available_devices()
        found = mx.Device(device, 0) if isinstance(device, mx.DeviceType) else device
        if isinstance(device, str):
            kind, _, index = device.partition(":")
            kind = _SYNONYMS.get(kind, kind)
            known = kind in ("cpu", "gpu") and (index or "0").isdigit()
            found = mx.Device(getattr(mx, kind), int(index or 0)) if known else None
        if not isinstance(found, mx.Device) or _name(found) not in available:
            raise DeviceNotAvailable(
                f"{type(self).__name__}: no device {shown(device)};"
                f" available: {', '.join(available)}"
            )
        return found

    def _check_device(self) -> None:
        if self.default_dtype is Dtype.float64 and self.device.type != self._mx.DeviceType.cpu:
            raise UnsupportedError(
                f"{type(self).__name__}: float64 is there on the CPU only, got {self.get_device()}",
                hint="use device='cpu' or dtype='float32'",
            )

    @staticmethod
    def get_available_devices() -> list[str]:
        mx = require("mlx.core", "MLX", "'mlx[cpu]'")
        kinds = ("cpu", "gpu")
        return [f"{k}:{i}" for k in kinds for i in range(mx.device_count(getattr(mx, k)))]

    @property
    def device(self) -> Any:
        return self._device if self._device is not None else self._mx.default_device()

    def get_device(self) -> str:
        return _name(self.device)

    def set_default_device(self, device: Any) -> None:
        """Moves this backend's further arrays and calls to another device."""
        before, self._device = self._device, self._find_device(device)
        try:
            self._check_device()
        except UnsupportedError:
            self._device = before
            raise

    def to_device(self, data: Any, device: Any = None, asynchronous: bool = True) -> Any:
        """`data` itself: MLX's devices share their memory."""
        self._need_device(device)
        self._find_device(device)
        return data

    def block_until_ready(self, data: Any = None) -> Any:
        self._mx.eval(data)
        return data

    def empty_cache(self) -> None:
        self._mx.clear_cache()

    def get_memory_info(self) -> dict[str, float]:
        mx = self._mx
        limit = mx.device_info().get("memory_size") or process_memory()[2]
        return memory_report(mx.get_active_memory(), mx.get_peak_memory(), limit)

    def _limit_memory(self, size: int) -> None:
        self._set("memory", self._mx.set_memory_limit, size)

    def _set(self, name: str, setter: Callable[[int], int], value: int) -> None:
        before = setter(value)
        self._undo.setdefault(name, lambda: setter(before))

    def reset(self) -> None:
        """Undoes what options changed in the process."""
        while self._undo:
            self._undo.popitem()[1]()

    def _scope(self) -> Any:
        if self._device is None:
            return contextlib.nullcontext()
        return self._mx.stream(self._device)

    # ------------------------------------------------------------------------------- creation

    def _native(self, dtype: DTypeLike) -> Any:
        dtype = as_dtype(dtype)
        return self._mx.bool_ if dtype is Dtype.bool else getattr(self._mx, dtype.value)

    def get_backend_array_type(self) -> type:
        return self._mx.array

    def tensor(self, data: Any, dtype: DTypeLike | None = None) -> Any:
        if isinstance(data, self._mx.array):
            return data.astype(self._dtype_for(data, dtype))
        return self._adopt(as_numpy(data, dtype, self.default_dtype, self.default_int))

    def _dtype_for(self, data: Any, dtype: DTypeLike | None) -> Any:
        if dtype is not None:
            return self._native(dtype)
        is_float = self._mx.issubdtype(data.dtype, self._mx.floating)
        return self._native(self.default_dtype) if is_float else data.dtype

    def _adopt(self, values: np.ndarray) -> Any:
        return self._mx.array(values, self._native(values.dtype))

    def _from_host(self, values: np.ndarray, dtype: DTypeLike | None = None) -> Any:
        return self.tensor(values, values.dtype if dtype is None else dtype)

    def zeros(self, shape: Any, dtype: DTypeLike | None = None) -> Any:
        return self._adopt(np.zeros(shape, self._or_default(dtype).numpy()))

    def ones(self, shape: Any, dtype: DTypeLike | None = None) -> Any:
        return self._adopt(np.ones(shape, self._or_default(dtype).numpy()))

    def to_numpy(self, array: Any) -> np.ndarray:
        """The values over the array's own memory, read-only: MLX's arrays do not change."""
        if not isinstance(array, self._mx.array):
            return super().to_numpy(array)
        values = mlx_values(array)
        values.flags.writeable = False
        return values

    def from_mlx(self, array: Any) -> Any:
        return array

    def from_numpy(self, array: np.ndarray) -> Any:
        array = np.asarray(array)
        return self._adopt(np.array(array, array.dtype.newbyteorder("="), order="C"))

    # -------------------------------------------------------------- differentiation and tracing

    def _scoped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def scoped(*arguments: Any) -> Any:
            with self._scope():
                return function(*arguments)

        return scoped

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The gradient of a scalar function with respect to its first argument."""
        return self._scoped(self._mx.grad(function))

    def value_and_grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that gives the value and the gradient for the first argument."""
        return self._scoped(self._mx.value_and_grad(function))

    def _pull_back(self, fn: Callable[..., Any], arguments: tuple[Any, ...], has_aux: bool) -> Any:
        """MLX has no pull-back apart from the forward pass, so that each one runs `fn` again."""
        with self._scope():
            result = fn(*arguments)
        output, aux = result if has_aux else (result, None)

        def pull_back(cotangent: Any) -> Any:
            def outputs(*values: Any) -> list[Any]:
                result = fn(*filled(arguments, iter(values)))
                return leaves(result[0] if has_aux else result)

            with self._scope():
                cotangents = leaves(ordered(cotangent, output))
                gradients = utils.vjp(self._mx, outputs, leaves(arguments), cotangents)
            return filled(arguments, iter(gradients))

        return output, pull_back, aux

    def with_gradient(
        self, function: Callable[..., Any], pull_back: Callable[..., Any]
    ) -> Callable[..., Any]:
        own = self._mx.custom_function(function)

        @own.vjp
        def backward(inputs: Any, gradient: Any, output: Any) -> Any:
            inputs = inputs if isinstance(inputs, tuple | list) else (inputs,)
            found = pull_back(gradient, output, tuple(inputs))
            parts = tuple(
                self._mx.zeros_like(x) if part is None else part
                for x, part in zip(inputs, found, strict=True)
            )
            return parts if len(parts) > 1 else parts[0]

        return own

    def _push_forward(
        self, fn: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        results: list[Any] = []

        def outputs(*values: Any) -> list[Any]:
            results[:] = [fn(*filled(primals, iter(values)))]
            return leaves(results[0])

        with self._scope():
            along = leaves(ordered(tangents, primals))
            values, moved = self._mx.jvp(outputs, leaves(primals), along)
        return filled(results[0], iter(values)), filled(results[0], iter(moved))

    def vmap(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return self._scoped(self._mx.vmap(fn))

    def jacrev(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The Jacobian, a row for each element of the result."""
        mx = self._mx

        def jacobian(x: Any) -> Any:
            out = fn(x)
            basis = mx.eye(out.size, dtype=out.dtype).reshape(out.size, *out.shape)
            rows = [mx.vjp(lambda v: [fn(v)], [x], [row])[1][0] for row in basis]
            return mx.stack(rows).reshape(*out.shape, *x.shape)

        return self._scoped(jacobian)

    def jacfwd(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The Jacobian, a column for each element of the argument."""
        mx = self._mx

        def jacobian(x: Any) -> Any:
            basis = mx.eye(x.size, dtype=x.dtype).reshape(x.size, *x.shape)
            columns = [mx.jvp(lambda v: [fn(v)], [x], [column])[1][0] for column in basis]
            return mx.stack(columns, -1).reshape(*columns[0].shape, *x.shape)

        return self._scoped(jacobian)

    def jit(self, fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return self._scoped(self._mx.compile(fn, **options) if self._compiles() else fn)

    def _compiles(self) -> bool:
        with self._scope():
            reason = utils.missing_compiler()
        if reason is not None:
            note_option(type(self).__name__, "jit=True", f"runs line by line: {reason}")
        return reason is None

    def _has_compiler(self) -> bool:
        with self._scope():
            return utils.missing_compiler() is None

    def _checkpointed(self, text: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._segmented(text, function, self._computed_again)

    def _computed_again(self, segment: Callable[..., Any], *arrays: Any) -> Any:
        mx = self._mx

        def has_gradient(value: Any) -> bool:
            return not isinstance(value, mx.array) or mx.issubdtype(value.dtype, mx.inexact)

        # `checkpoint` differentiates by all arrays, and functions of integers may have no gradient,
        # as those of random bits. For a result that `stop_gradient` made MLX takes no cotangent.
        def differentiated(*given: Any) -> Any:
            results = segment(*(x if has_gradient(x) else mx.stop_gradient(x) for x in given))
            return tuple(
                x if has_gradient(x) else mx.contiguous(mx.stop_gradient(x)) for x in results
            )

        return mx.checkpoint(differentiated)(*arrays)

    def _jit(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        if not self._compiles():
            return function
        return utils.CompiledArrays(self._mx, function, options)

    # ------------------------------------------------------------------------- emitted source

    def _call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
        with self._scope():
            return self._finished(function(*inputs), inputs)

    def _finished(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Computed arrays, each an object of its own: assignments to items change one object."""
        taken = {id(x) for x in inputs}
        result = []
        for output in outputs:
            if isinstance(output, self._mx.array) and id(output) in taken:
                output = output[...]
            taken.add(id(output))
            result.append(output)
        arrays = [x for x in result if isinstance(x, self._mx.array)]
        utils.check_memory(arrays)
        if utils.waits.get():
            utils.evaluated(self._mx, arrays)
        return result

    def without_waiting(self) -> Any:
        return utils.without_waiting()

    def _guard(
        self, function: Callable[..., Any], arrays: Sequence[Any]
    ) -> Callable[..., bool] | None:
        if self._device is not None:  # calls need a scope
            return None
        signature = operator.attrgetter("dtype", "shape")  # nothing else has such dtypes
        expected = tuple(map(signature, arrays))
        return lambda *given: tuple(map(signature, given)) == expected

    def _guarded_call(
        self, function: Any, arrays: Sequence[Any]
    ) -> tuple[Sequence[Any], Callable[..., Sequence[Any]]]:
        """For equal signatures results are inputs, or are not, each time."""
        results = function(*arrays)
        owned = self._finished(results, arrays)
        own = all(
            a is b and isinstance(a, self._mx.array) for a, b in zip(results, owned, strict=True)
        )
        if not own:
            return owned, lambda *given: self._finished(function(*given), given)
        if isinstance(function, utils.CompiledArrays):
            function = function.program(arrays).of_arrays()
        evaluate, waits = self._mx.eval, utils.waits.get

        def run(*given: Any) -> Sequence[Any]:
            results = function(*given)
            if waits():
                evaluate(results)
            return results

        return owned, run

    def _vjp_function(
        self, executable: Any, wrt: tuple[int, ...], has_cotangent: tuple[bool, ...]
    ) -> Callable[..., tuple[Any, Any]]:
        """Inputs and cotangents -> outputs and gradients, for compilers to see."""
        mx, forward = self._mx, executable.primal
        asked = [i for i, has in enumerate(has_cotangent) if has]

        def forward_and_backward(*arguments: Any) -> tuple[Any, Any]:
            count = len(arguments) - len(asked)
            inputs, cotangents = arguments[:count], arguments[count:]
            outputs: list[Any] = []

            def asked_outputs(*leaves: Any) -> list[Any]:
                merged = list(inputs)
                for i, leaf in zip(wrt, leaves):  # noqa: B905 - MLX hands on as many
                    merged[i] = leaf
                outputs[:] = forward(*merged)
                return [outputs[i] for i in asked]

            leaves = [inputs[i] for i in wrt]
            if not cotangents or not leaves:
                asked_outputs(*leaves)
                return outputs, [mx.zeros_like(leaf) for leaf in leaves]
            return outputs, utils.vjp(mx, asked_outputs, leaves, cotangents)

        return forward_and_backward

    def _make_vjp(self, executable: Any, wrt: tuple[int, ...], has_cotangent: tuple[bool, ...]):
        compiled = executable._compiled(self._vjp_function(executable, wrt, has_cotangent))

        def run(inputs: Sequence[Any], cotangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            with self._scope():
                outputs, gradients = compiled(*inputs, *cotangents)
                done = self._finished([*outputs, *gradients], [*inputs, *cotangents])
            return done[: len(outputs)], done[len(outputs) :]

        return run


def _name(device: Any) -> str:
    """ "gpu:1"; the number is told in MLX's text only: Device(gpu, 1)."""
    kind, _, index = str(device).removeprefix("Device(").removesuffix(")").partition(", ")
    return f"{kind}:{index}"
