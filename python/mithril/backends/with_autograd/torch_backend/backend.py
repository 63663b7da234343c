"""Runs models on PyTorch tensors: eagerly, or through torch.compile."""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mithril.backends.with_autograd.backend import (
    AutogradBackend,
    mesh_of_one,
    require,
    switch,
    unsupported,
)
from mithril.backends.with_manualgrad.numpy_backend.backend import as_numpy
from mithril.base.public import public
from mithril.errors import ArgumentError, DeviceNotAvailable, SignatureError, shown
from mithril.execution.memory import memory_report
from mithril.types import Dtype, DTypeLike, as_dtype

__all__ = ["TorchBackend"]

_STRATEGIES = ("data_parallel", "model_parallel", "pipeline_parallel", "mixed")


class TorchBackend(AutogradBackend):
    """PyTorch on any of its devices.

    Parameters
    ----------
    device : "cpu" (default), "cuda", "cuda:1", "mps" …
    dtype : float16, bfloat16, float32 (default) or float64.
    compile, jit_compile : default of ``ml.compile(jit=)``.
    cudnn_benchmark : let cuDNN time its algorithms, for this backend's calls only.
        Only with a CUDA device.
    precision : "float32" (default: IEEE, no TF32); "tf32" to allow it, only with a CUDA device; or
        "bfloat16" and "float16" for mixed precision (docs/low_precision.md).
    devices : a list with the one device to compute on.
    device_mesh : sizes of a mesh of one device, such as 1 or (1, 1).
    enable_amp, use_amp : mixed precision in bfloat16, as `torch.autocast` has it on the CPU; in
        another type by `precision`.
    parallel_strategy : None: this version computes on one device.

    Nothing process-wide is changed: not the default device, not the random generators.

    Raises
    ------
    UnsupportedError : an option asks for what this version, or the device, does not do
    """

    backend_type = "torch"
    hardware = ("cpu", "cuda", "mps")
    jit_option_names = frozenset({"backend", "dynamic", "fullgraph", "mode", "options"})
    not_compiled = frozenset({"branches"})
    merges_copies = True
    compiles_steps = False
    _ops_module = "mithril.backends.with_autograd.torch_backend.ops"
    _runs_own_arrays = True

    @public
    def __init__(
        self,
        device: Any = None,
        dtype: DTypeLike = Dtype.float32,
        device_mesh: Any = None,
        *,
        compile: bool | None = None,
        jit_compile: bool | None = None,
        cudnn_benchmark: bool | None = None,
        precision: str | None = None,
        enable_amp: bool | None = None,
        use_amp: bool | None = None,
        parallel_strategy: str | None = None,
        devices: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        self._torch = require("torch", "PyTorch", "torch")
        super().__init__(dtype=dtype, seed=seed)
        self._refuse_parallel(parallel_strategy)
        self._device = self._checked_device(self._one_device(device, devices))
        self.jit_default = switch(type(self).__name__, compile=compile, jit_compile=jit_compile)
        self.cudnn_benchmark = switch(type(self).__name__, cudnn_benchmark=cudnn_benchmark)
        self.allows_tf32 = _checked_precision(precision) == "tf32"
        is_mixed = switch(type(self).__name__, enable_amp=enable_amp, use_amp=use_amp)
        if precision in _HALVES:
            self._compute_in("precision", precision)
        elif is_mixed:
            self._compute_in("enable_amp" if enable_amp else "use_amp", Dtype.bfloat16)
        self.device_mesh = mesh_of_one(type(self).__name__, device_mesh)
        self._check_options_of_cuda(self._device)

    def _repr_options(self) -> dict[str, str]:
        kind = "tf32" if self.allows_tf32 else self.compute_dtype
        return {} if kind is None else {"precision": str(kind)}

    def _one_device(self, device: Any, devices: Any) -> Any:
        if devices is None:
            return "cpu" if device is None else device
        if isinstance(devices, str) or not isinstance(devices, Sequence) or not devices:
            raise ArgumentError(f"devices: requires a list of devices, got {shown(devices)}")
        found = [self._checked_device(d) for d in devices]
        if len(found) > 1:
            raise unsupported(
                type(self).__name__,
                f"devices={[str(d) for d in found]}",
                "this version computes on one device",
                "give one, and make a backend for each device",
            )
        if device is not None and self._checked_device(device) != found[0]:
            raise SignatureError(f"device={str(device)!r} is not in devices={list(devices)}")
        return found[0]

    def _check_options_of_cuda(self, device: Any) -> None:
        """Options for CUDA have no effect on another device."""
        asked = {"cudnn_benchmark=True": self.cudnn_benchmark, "precision='tf32'": self.allows_tf32}
        for option, is_asked in asked.items():
            if is_asked and device.type != "cuda":
                reason = f"requires a CUDA device, got {device}"
                raise unsupported(type(self).__name__, option, reason, "leave it out")

    def _checked_device(self, device: Any) -> Any:
        try:
            found = self._torch.device(device)
        except (RuntimeError, TypeError) as error:
            raise self._no_device(device) from error
        known = {name.partition(":")[0] for name in self.get_available_devices()}
        full = str(found) if found.index is not None else found.type
        if full not in self.get_available_devices() and full not in known:
            raise self._no_device(device)
        return found

    def _no_device(self, device: Any) -> DeviceNotAvailable:
        available = ", ".join(self.get_available_devices())
        return DeviceNotAvailable(
            f"{type(self).__name__}: no device {str(device)!r}; available: {available}"
        )

    def _refuse_parallel(self, strategy: Any) -> None:
        if strategy is None:
            return
        if not isinstance(strategy, str) or strategy not in _STRATEGIES:
            known = ", ".join(_STRATEGIES)
            raise ArgumentError(f"parallel_strategy: requires one of {known}, got {strategy!r}")
        raise unsupported(
            type(self).__name__,
            f"parallel_strategy={strategy!r}",
            "this version computes on one device",
            "leave it out, and make a backend for each device",
        )

    # ------------------------------------------------------------------------------- devices

    @staticmethod
    def get_available_devices() -> list[str]:
        torch = require("torch", "PyTorch", "torch")
        names = ["cpu", "cpu:0"]
        names += [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        return names + (["mps", "mps:0"] if torch.backends.mps.is_available() else [])

    def get_device(self) -> str:
        return str(self._device)

    @property
    def device(self) -> Any:
        return self._device

    def set_device(self, device: Any) -> None:
        """Moves this backend's further arrays and calls to another device."""
        found = self._checked_device(device)
        self._check_options_of_cuda(found)
        self._device = found

    def to_device(self, data: Any, device: Any = None, asynchronous: bool = True) -> Any:
        self._need_device(device)
        return data.to(self._checked_device(device), non_blocking=asynchronous)

    def block_until_ready(self, data: Any = None) -> Any:
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)
        elif self._device.type == "mps":
            self._torch.mps.synchronize()
        return data

    def empty_cache(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.empty_cache()

    def get_memory_info(self) -> dict[str, float]:
        if self._device.type != "cuda":
            return super().get_memory_info()
        cuda = self._torch.cuda
        limit = cuda.get_device_properties(self._device).total_memory
        used, peak = cuda.memory_allocated(self._device), cuda.max_memory_allocated(self._device)
        return memory_report(used, peak, limit)

    def enable_deterministic(self, enabled: bool = True) -> None:
        """Makes PyTorch use deterministic algorithms, in the whole process; `reset` undoes it."""
        if not hasattr(self, "_was_deterministic"):
            self._was_deterministic = self._torch.are_deterministic_algorithms_enabled()
        self._torch.use_deterministic_algorithms(enabled)

    def reset(self) -> None:
        """Undoes what setters changed in the process."""
        if hasattr(self, "_was_deterministic"):
            self._torch.use_deterministic_algorithms(self._was_deterministic)
            del self._was_deterministic

    # A tensor may be sparse, or without elements.
    _signature = operator.attrgetter("__class__", "dtype", "shape", "layout", "device")

    def _scope(self) -> Any:
        if self._device.type == "cpu":
            return contextlib.nullcontext()
        stack = contextlib.ExitStack()
        stack.enter_context(self._device)  # for the arrays that ops make
        if self._device.type == "cuda":
            flags = self._torch.backends.cudnn.flags
            benchmark = bool(self.cudnn_benchmark)
            stack.enter_context(
                flags(enabled=True, benchmark=benchmark, allow_tf32=self.allows_tf32)
            )
        return stack

    # ------------------------------------------------------------------------------- creation

    def _native(self, dtype: DTypeLike) -> Any:
        return getattr(self._torch, as_dtype(dtype).value)

    def get_backend_array_type(self) -> type:
        return self._torch.Tensor

    def tensor(self, data: Any, dtype: DTypeLike | None = None) -> Any:
        if isinstance(data, self._torch.Tensor):
            return data.detach().to(self._device, self._dtype_for(data, dtype), copy=True)
        return self._adopt(as_numpy(data, dtype, self.default_dtype, self.default_int))

    def _dtype_for(self, data: Any, dtype: DTypeLike | None) -> Any:
        if dtype is not None:
            return self._native(dtype)
        return self._native(self.default_dtype) if data.is_floating_point() else data.dtype

    def _adopt(self, values: np.ndarray) -> Any:
        """A tensor on the device over (or with a copy of) a NumPy array's memory."""
        if values.dtype.name == "bfloat16":
            bits = self._torch.from_numpy(values.view(np.int16))
            return bits.view(self._torch.bfloat16).to(self._device)
        return self._torch.from_numpy(values).to(self._device)

    def _from_host(self, values: np.ndarray, dtype: DTypeLike | None = None) -> Any:
        return self.tensor(values, values.dtype if dtype is None else dtype)

    def zeros(self, shape: Any, dtype: DTypeLike | None = None) -> Any:
        dtype = self._native(self._or_default(dtype))
        return self._torch.zeros(shape, dtype=dtype, device=self._device)

    def ones(self, shape: Any, dtype: DTypeLike | None = None) -> Any:
        dtype = self._native(self._or_default(dtype))
        return self._torch.ones(shape, dtype=dtype, device=self._device)

    def empty(self, shape: Any, dtype: DTypeLike | None = None) -> Any:
        dtype = self._native(self._or_default(dtype))
        return self._torch.empty(shape, dtype=dtype, device=self._device)

    def to_numpy(self, array: Any) -> np.ndarray:
        if not isinstance(array, self._torch.Tensor):
            return super().to_numpy(array)
        array = array.detach().cpu().resolve_conj().resolve_neg()
        if array.dtype == self._torch.bfloat16:
            return array.view(self._torch.int16).numpy().view(Dtype.bfloat16.numpy())
        return array.numpy()

    def _imported(self, array: Any) -> Any:
        """Over another framework's memory by DLPack; a copy where that does not work."""
        try:
            return self._torch.from_dlpack(array).to(self._device)
        except Exception:  # of either framework: a dtype, device or layout that it does not take
            return super()._imported(array)

    def from_torch(self, tensor: Any) -> Any:
        return tensor.detach().to(self._device)

    def from_numpy(self, array: np.ndarray) -> Any:
        array = np.asarray(array)
        usable = array.flags.writeable and array.dtype.isnative
        if not usable or min(array.strides, default=0) < 0:
            array = np.array(array, array.dtype.newbyteorder("="), order="C")
        return self._adopt(array)

    # -------------------------------------------------------------- differentiation and tracing

    def value_and_grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that gives the value and the gradient for the first argument."""
        both = self._torch.func.grad_and_value(function)

        def value_and_gradient(*arguments: Any) -> tuple[Any, Any]:
            gradient, value = both(*arguments)
            return value, gradient

        return value_and_gradient

    def _pull_back(self, fn: Callable[..., Any], arguments: tuple[Any, ...], has_aux: bool) -> Any:
        result = self._torch.func.vjp(fn, *arguments, has_aux=has_aux)
        return result if has_aux else (*result, None)

    def with_gradient(
        self, function: Callable[..., Any], pull_back: Callable[..., Any]
    ) -> Callable[..., Any]:
        base: Any = self._torch.autograd.Function

        class Own(base):
            generate_vmap_rule = True

            @staticmethod
            def forward(*inputs: Any) -> Any:
                return function(*inputs)

            @staticmethod
            def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
                ctx.save_for_backward(output, *inputs)

            @staticmethod
            def backward(ctx: Any, gradient: Any) -> Any:
                output, *inputs = ctx.saved_tensors
                return tuple(pull_back(gradient, output, tuple(inputs)))

        return Own.apply

    def _push_forward(
        self, fn: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...]
    ) -> tuple[Any, Any]:
        return self._torch.func.jvp(fn, primals, tangents)

    def vmap(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return self._torch.func.vmap(fn)

    def jacrev(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return self._torch.func.jacrev(fn)

    def jacfwd(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        return self._torch.func.jacfwd(fn)

    def jit(self, fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return self._torch.compile(fn, **options)

    def _checkpointed(self, text: str, function: Callable[..., Any]) -> Callable[..., Any]:
        checkpoint = functools.partial(
            importlib.import_module("torch.utils.checkpoint").checkpoint,
            use_reentrant=False,
            preserve_rng_state=False,
        )
        return self._segmented(text, function, checkpoint)

    def _jit(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        if options.get("backend") != "torchscript":
            return self.jit(function, **options)
        from .torchscript import Traced

        others = sorted(options.keys() - {"backend"})
        if others:
            raise ArgumentError(
                f"jit_options: TorchScript takes no {' and '.join(others)}",
                hint='leave them out, or take another backend than "torchscript"',
            )
        return Traced(function)

    # ------------------------------------------------------------------------- emitted source

    def _call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> list[Any]:
        if [x for x in inputs if getattr(x, "requires_grad", False)] or self._device.type != "cpu":
            with self._scope(), self._torch.no_grad():
                outputs = function(*inputs)
        else:
            outputs = function(*inputs)  # entering the contexts costs as much as a layer
        return self._own_memory(outputs, inputs)

    def _own_memory(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Plain tensors that share no memory with inputs or with one another."""
        tensor = self._torch.Tensor
        given = [x for x in inputs if isinstance(x, tensor)]
        # What is detached from a view is none.
        if [x for x in outputs if isinstance(x, tensor) and (x._is_view() or x.storage_offset())]:
            return self._disentangled(outputs, given)
        # Tensors that are no views share memory only with themselves.
        taken = {x.data_ptr() for x in given}
        result = []
        for output in outputs:
            if isinstance(output, tensor):
                if output.requires_grad:
                    output = output.detach()
                if output.data_ptr() in taken:
                    output = output.clone()
                taken.add(output.data_ptr())
            result.append(output)
        return result

    def _disentangled(self, outputs: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        torch = self._torch
        taken = {x.untyped_storage().data_ptr() for x in given}
        result = []
        for output in outputs:
            if isinstance(output, torch.Tensor):
                output = output.detach()
                pointer = output.untyped_storage().data_ptr()
                if pointer in taken or (output.numel() > 1 and 0 in output.stride()):
                    output = output.clone(memory_format=torch.contiguous_format)
                taken.add(pointer)
            result.append(output)
        return result

    def _guard(
        self, function: Callable[..., Any], arrays: Sequence[Any]
    ) -> Callable[..., bool] | None:
        """PyTorch's own check of what its compiler has specialised for; it is no public one."""
        if self._device.type != "cpu" or [x for x in arrays if x.requires_grad]:
            return None
        try:
            from torch._C._dynamo.guards import TensorGuards

            sizes: list[Any] = [list(x.shape) for x in arrays]
            strides: list[Any] = [list(x.stride()) for x in arrays]
            check = TensorGuards(
                *arrays, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
            ).check
            return check if check(*arrays) is True else None
        except Exception:  # another version, or tensors that it does not take
            return None

    def _guarded_call(
        self, function: Callable[..., Any], arrays: Sequence[Any]
    ) -> tuple[Sequence[Any], Callable[..., Sequence[Any]]]:
        """For equal shapes and strides results share memory, or do not, each time."""
        results = function(*arrays)
        owned = self._own_memory(results, arrays)
        pairs = list(zip(results, owned, strict=True))
        if all(a is b for a, b in pairs):
            return owned, function
        if all(a is b or a.data_ptr() == b.data_ptr() for a, b in pairs):
            places = [i for i, (a, b) in enumerate(pairs) if a is not b]

            def detached(*same: Any) -> list[Any]:
                results = list(function(*same))
                for i in places:
                    results[i] = results[i].detach()
                return results

            return owned, detached
        return owned, lambda *same: self._own_memory(function(*same), same)

    def _vjp_function(
        self, executable: Any, wrt: tuple[int, ...], has_cotangent: tuple[bool, ...]
    ) -> Callable[..., tuple[Any, Any]]:
        """Inputs and cotangents -> outputs, which hang on the graph still, and gradients."""
        from .attention import wanted

        torch = self._torch
        forward = executable.differentiated
        asked = [i for i, has in enumerate(has_cotangent) if has]

        def differentiated(arguments: Sequence[Any]) -> tuple[Any, Any]:
            count = len(arguments) - len(asked)
            leaves = list(arguments[:count])
            for i in wrt:
                leaves[i] = leaves[i].detach().requires_grad_(True)
            # What is not detached may be differentiated again by whoever gave it.
            wanted.one = not [x for x in arguments if getattr(x, "requires_grad", False)]
            try:
                outputs = forward(*leaves)
            finally:
                wanted.one = False
            cotangents = zip(asked, arguments[count:], strict=True)
            pairs = [(outputs[i], c) for i, c in cotangents if outputs[i].requires_grad]
            return outputs, self._gradients(pairs, [leaves[i] for i in wrt])

        def forward_and_backward(*arguments: Any) -> tuple[Any, Any]:
            if torch.is_grad_enabled():  # entering the context costs as much as a layer
                return differentiated(arguments)
            with torch.enable_grad():
                return differentiated(arguments)

        return forward_and_backward

    def _make_vjp(self, executable: Any, wrt: tuple[int, ...], has_cotangent: tuple[bool, ...]):
        both = self._vjp_function(executable, wrt, has_cotangent)

        def run(inputs: Sequence[Any], cotangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
            with self._scope():
                outputs, gradients = both(*inputs, *cotangents)
            owned = self._own_memory([*outputs, *gradients], [*inputs, *cotangents])
            return owned[: len(outputs)], owned[len(outputs) :]

        return run

    def _gradients(self, pairs: Sequence[tuple[Any, Any]], leaves: Sequence[Any]) -> Sequence[Any]:
        torch = self._torch
        if not pairs:
            return [torch.zeros_like(leaf) for leaf in leaves]
        outputs, cotangents = zip(*pairs, strict=True)
        found = torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)
        # PyTorch can do this itself, and takes longer.
        each = zip(found, leaves, strict=True)
        return [torch.zeros_like(leaf) if g is None else g for g, leaf in each]


_HALVES = ("float16", "bfloat16")


def _checked_precision(precision: Any) -> str:
    name = "float32" if precision is None else str(precision)
    known = ("float32", "tf32", *_HALVES)
    if name not in known:
        told = ", ".join(known)
        raise ArgumentError(f"precision: requires one of {told}, got {shown(precision)}")
    return name
