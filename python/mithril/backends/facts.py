"""The facts that a backend states: its dtypes, its functions and its capabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from mithril.eager import methods
from mithril.eager.array_methods import ArrayMethods
from mithril.errors import KeyNotFound, UnsupportedError, suggestion
from mithril.physical.weights import WEIGHT_FORMATS
from mithril.types import Dtype

__all__ = ["BackendFacts", "Capabilities"]


@dataclass(frozen=True)
class Capabilities:
    """The capabilities of a backend, as it is set up.

    Attributes
    ----------
    autodiff : who differentiates: "framework", or "engine" for gradient programs of ours; either
        way derivatives of any order
    jit : whether a compiler runs programs with ``compile(jit=True)``
    open_sizes : whether data may say how many elements there are (`Unique`, masks)
    dtypes : that floats may be computed in
    devices : that this machine has for it
    hardware : kinds of devices that it takes, here or elsewhere
    halves : floats that products may compute in beside float32 (mixed precision)
    weights : formats in few bits that bound models may keep weights of products in
    parallel : whether one model runs on several devices
    """

    autodiff: str
    jit: bool
    open_sizes: bool
    dtypes: tuple[Dtype, ...]
    devices: tuple[str, ...]
    hardware: tuple[str, ...] = ("cpu",)
    halves: tuple[Dtype, ...] = ()
    weights: tuple[str, ...] = ()
    parallel: bool = False


class _OfClass:
    """A read-only property of both the class and its instances."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, instance: Any, owner: type) -> Any:
        return self._function(owner)


class BackendFacts:
    """The part of `Backend` that states its dtypes, functions and capabilities."""

    # That floats may be computed in.
    supported_dtypes: tuple[Dtype, ...] = tuple(dtype for dtype in Dtype if dtype.is_float)

    hardware: tuple[str, ...] = ("cpu",)
    weight_formats: tuple[str, ...] = WEIGHT_FORMATS
    _mixes_precision = True

    backend_type: str
    is_manualgrad: bool
    runs_plans: bool
    op_names: Any
    get_backend_array_type: Any
    get_available_devices: Any
    not_compiled: frozenset[str]

    @property
    def DataType(self) -> type:  # noqa: N802 - as the documents have it
        """The type of this backend's arrays."""
        return self.get_backend_array_type()

    @property
    def dtype_map(self) -> Mapping[Dtype, Any]:
        """The framework's own dtypes by name: ``backend.dtype_map["float32"]``.

        >>> import mithril as ml
        >>> ml.NumpyBackend().dtype_map["int16"]
        dtype('int16')
        """
        return MappingProxyType({dtype: self._native(dtype) for dtype in Dtype})

    def _native(self, dtype: Dtype) -> Any:
        return dtype.numpy()

    @_OfClass
    def registered_primitives(cls: Any) -> Mapping[str, Callable[..., Any]]:  # noqa: N805
        """The kernels of `register_primitive`, by formula key: of this class and those above."""
        tables = [vars(c).get("_primitives", {}) for c in reversed(cls.__mro__)]
        found = {key: fn for table in tables for key, fn in table.items()}
        return MappingProxyType(
            {key: fn for key, fn in found.items() if not key.startswith("backward_")}
        )

    @property
    def op_function_dict(self) -> Mapping[str, Callable[..., Any]]:
        """Every op as a function, by formula key: the methods, and registered kernels."""
        own = {name for name, value in vars(ArrayMethods).items() if callable(value)}
        names = methods.names() | self.op_names | {n for n in own if not n.startswith("_")}
        ops = {name: getattr(self, name) for name in sorted(names)}
        return MappingProxyType({**ops, **self.registered_primitives})

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of this backend, as it is set up.

        >>> import mithril as ml
        >>> ml.CpuBackend().capabilities.autodiff
        'engine'
        """
        devices = tuple(self.get_available_devices())
        return replace(self._capabilities_of_class(), jit=self._has_compiler(), devices=devices)

    @classmethod
    def _capabilities_of_class(cls) -> Capabilities:
        """Tells what is the same on every machine: its framework need not be here."""
        halves = (Dtype.float16, Dtype.bfloat16) if cls._mixes_precision else ()
        return Capabilities(
            autodiff="engine" if cls.is_manualgrad else "framework",
            jit=not cls.is_manualgrad,
            open_sizes=True,
            dtypes=cls.supported_dtypes,
            devices=(),
            hardware=cls.hardware,
            halves=halves,
            weights=cls.weight_formats,
        )

    def _has_compiler(self) -> bool:
        return not self.is_manualgrad

    def check_op_jittable(self, op_key: str, *args: tuple[bool, Any]) -> bool:
        """Tells whether this backend's compiler can trace an op.

        `args` has a pair (is a tensor, its Python types) for each argument, which matters where
        the op is a slice. Without a compiler nothing stands in the way.

        Raises
        ------
        KeyNotFound : no such op
        """
        if op_key not in self.op_function_dict:
            near = suggestion(op_key, list(self.op_function_dict))
            raise KeyNotFound(f"check_op_jittable: no op named {op_key!r}{near}")
        if not self._has_compiler():
            return True
        if op_key in ("item", "tensor_to_list"):  # values leave the program
            return False
        if op_key in ("unique", "auc_core"):
            return "masks" not in self.not_compiled
        if op_key in ("cond", "while_loop"):
            return "branches" not in self.not_compiled
        is_static = "masks" in self.not_compiled  # arguments of Python are part of what is traced
        bools = (not is_tensor and _is_bool(types) for is_tensor, types in args)
        return not (is_static and op_key in ("slice", "primitive_slice") and any(bools))

    # One device computes: what belongs to several of them says so.

    def place_model(self, model: Any, placement: Mapping[str, int]) -> Any:
        """Not supported: no submodel can be placed on a device of its own."""
        raise self._no_parallelism("place_model", "compile the model as it is")

    def get_parallel_manager(self) -> Any:
        """Not supported: work is not distributed over devices."""
        raise self._no_parallelism("get_parallel_manager")

    def get_raw_device_mesh(self) -> Any:
        """The framework's mesh of devices, where the backend keeps one (JAX)."""
        raise self._no_parallelism("get_raw_device_mesh")

    def register_callable(self, fn: Callable[..., Any], jit: bool = False) -> Any:
        """Not supported: no other process runs functions for this one."""
        hint = "call the function; register_function and register_primitive name kernels"
        raise self._no_parallelism("register_callable", hint)

    def get_struct_cls(self) -> type:
        """Not supported: arrays are not ctypes structs."""
        own = self.get_backend_array_type()
        raise UnsupportedError(
            f"{type(self).__name__}: get_struct_cls: arrays are no structs but {own.__name__}",
            hint="get_backend_array_type() gives their type",
        )

    def _no_parallelism(self, what: str, hint: str | None = None) -> UnsupportedError:
        hint = hint or "one backend for each device computes on several"
        return UnsupportedError(
            f"{type(self).__name__}: {what}: this version computes on one device", hint=hint
        )


def _is_bool(types: Any) -> bool:
    return types is bool or (isinstance(types, tuple | list | set) and bool in types)
