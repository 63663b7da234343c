"""Data as a compiled model wants them: arrays of the backend, in the dtype of each key.

Floats are cast to the key's dtype, integers if all values fit; floats for an integer key are an
error. `Converter` keeps what was told once.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mithril.base.arrays import is_device_array, is_mlx, laid_out, mlx_values
from mithril.base.explanations import kind_hint
from mithril.base.numpy import np
from mithril.errors import ArgumentError, DataOverflowError, DTypeError, DTypeWarning, warn
from mithril.types import Dtype, as_dtype

if TYPE_CHECKING:
    from mithril.physical.options import CompileOptions
    from mithril.physical.program_keys import Key

_logger = logging.getLogger("mithril")


def as_numpy(value: Any, what: str) -> Any:
    """A NumPy array of numbers, lists, or an array of anybody; typed errors name `what`."""
    try:
        if hasattr(value, "detach"):  # torch: a leaf with requires_grad has no __array__
            value = value.detach()
            if hasattr(value, "resolve_neg"):  # nor has a view that negates
                value = value.resolve_conj().resolve_neg()
            if str(value.dtype) == "torch.bfloat16":  # nor has bfloat16
                return value.float().numpy().astype(Dtype.bfloat16.numpy())
        if is_mlx(value):
            return mlx_values(value)
        array = np.asarray(value)
    except Exception as error:  # of anybody's __array__
        raise ArgumentError(f"'{what}': cannot be read as an array: {error}") from error
    if array.dtype.kind not in "biufV" or array.dtype.names is not None:
        raise DTypeError(
            f"'{what}': requires numbers, got elements of type {array.dtype}", code="MTH203"
        )
    return array


def _without_subclass(key: Key, value: Any) -> Any:
    """Subclasses of `numpy.ndarray` mean other things by `*`, or hide elements."""
    if type(value) is np.ndarray or not isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentError(
            f"'{key.name}': a masked array has elements without a value",
            hint="use .filled(...), and give the mask as data of its own",
        )
    return value.view(np.ndarray)


def _is_known(dtype: Any) -> bool:
    try:
        as_dtype(dtype)
    except DTypeError:
        return False
    return True


def _is_readable(value: Any) -> bool:
    """Tells whether a framework's array can be read: not sparse, deleted or on the meta device."""
    if any(getattr(value, what, False) for what in ("is_meta", "is_sparse", "is_sparse_csr")):
        return False
    is_deleted = getattr(value, "is_deleted", None)
    return is_deleted is None or not is_deleted()


def _numbers_in(value: Any) -> Any:
    """Returns Python's numbers in the place of an array of them."""
    is_array = hasattr(value, "tolist") and hasattr(value, "shape")
    return value.tolist() if is_array else value


class Converter:
    """Converts the values of one compiled model."""

    def __init__(self, options: CompileOptions, node: Any):
        self._node = node  # the model, whose layers errors name
        self._backend = options.backend
        self._strict = options.strict_dtypes
        self._is_plan = options.backend.runs_plans
        self._widest_int = options.backend._widest_int
        self._told: set[str] = set()
        self._fitting: dict[Any, dict[tuple[type, Any], Any]] = {}

    def _is_cut(self, key: Key) -> bool:
        """Tells whether the backend computes in fewer bits than the key's integers have."""
        return key.dtype is Dtype.int64 and self._widest_int is not Dtype.int64

    def is_fitting(self, key: Key, value: Any) -> bool:
        """Tells whether the array goes in as it is: its class and dtype went in before, and plans
        find it laid out as they read memory."""
        dtype = getattr(value, "dtype", None)
        met = self._fitting.get(key.dtype, {})
        if not self._is_plan:
            return (value.__class__, dtype) in met and _is_readable(value)
        if is_device_array(value):
            return (value.__class__, dtype) in met and self._backend._is_native(value)
        # The engine knows a dtype by its object: equal ones are viewed as that one.
        same = dtype is not None and met.get((value.__class__, dtype)) is dtype
        return same and value.flags.c_contiguous and value.flags.aligned

    def __call__(self, key: Key, value: Any) -> Any:
        if not key.is_tensor:
            return _numbers_in(value)
        if self.is_fitting(key, value):
            return value
        if self._is_cut(key):
            array = as_numpy(value, key.name)
            if array.dtype.kind in "iu":
                self._check_range(key, self._widest_int, array)
        backend = self._backend
        value = _without_subclass(key, value)
        if backend._is_native(value) and hasattr(value, "shape") and _is_known(value.dtype):
            if not _is_readable(value):
                raise ArgumentError(
                    f"'{key.name}': requires a dense array with elements, got one that is deleted,"
                    " sparse or on the meta device"
                )
            source = backend.dtype(value)
            if source is key.dtype:
                laid_out = self._laid_out(key, value)
                if laid_out is value and not self._is_cut(key):
                    met = self._fitting.setdefault(key.dtype, {})
                    met[type(value), value.dtype] = value.dtype
                return laid_out
            self._check(key, source, lambda: as_numpy(value, key.name))
            self._tell(key, source)
            return self._laid_out(key, backend.cast(value, key.dtype))
        array = as_numpy(value, key.name)
        source = self._dtype(key, array)
        assert key.dtype is not None
        if array.dtype.kind == "u" and key.dtype.is_integer:
            self._check_range(key, key.dtype, array)
        if source is not key.dtype:
            weak = not hasattr(value, "dtype")  # Python's numbers and lists take any float type
            if not (weak and source.is_float and key.dtype.is_float):
                self._check(key, source, lambda: array)
            if not weak:
                self._tell(key, source)
        return self._laid_out(key, backend.tensor(array, key.dtype))

    def _laid_out(self, key: Key, value: Any) -> Any:
        """Contiguous, aligned and of the machine's byte order, where plans read memory."""
        if not self._is_plan or is_device_array(value):
            return value
        assert key.dtype is not None
        return laid_out(value, key.dtype)

    def _dtype(self, key: Key, array: Any) -> Dtype:
        try:
            return as_dtype(array.dtype)
        except DTypeError:
            pass
        if array.dtype.kind == "u":  # uint16 … uint64 count as int64 if they fit
            return Dtype.int64
        raise self._not_numbers(key, array)

    def _not_numbers(self, key: Key, value: Any) -> DTypeError:
        return DTypeError(
            f"'{key.name}': requires {key.dtype}, got elements of type {value.dtype}", code="MTH203"
        )

    def _check(self, key: Key, source: Dtype, values: Any) -> None:
        target = key.dtype
        assert target is not None
        if self._strict:
            raise DTypeError(f"'{key.name}': requires {target}, got {source}", code="MTH203")
        if target.is_float or source is Dtype.bool:
            return
        if target is Dtype.bool or source.is_float:
            kind = "integers" if target.is_integer else "bool"
            raise DTypeError(
                f"'{key.name}': requires {kind}, got {source}",
                code="MTH203",
                hint=kind_hint(self._node, key.key, values().ndim),
            )
        self._check_range(key, target, values())

    def _check_range(self, key: Key, target: Dtype, array: Any) -> None:
        if array.size == 0:
            return
        info = np.iinfo(target.numpy())
        for extreme in (int(array.min()), int(array.max())):
            if not info.min <= extreme <= info.max:
                raise DataOverflowError(f"'{key.name}': {extreme} does not fit {target}")

    def _tell(self, key: Key, source: Dtype) -> None:
        if key.name in self._told:
            return
        self._told.add(key.name)
        if key.role == "param" and source.is_float:
            warn(
                f"parameter '{key.name}' was {source} and is cast back to {key.dtype}", DTypeWarning
            )
        else:
            _logger.info("'%s' is cast from %s to %s", key.name, source, key.dtype)
