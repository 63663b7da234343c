"""Models that are one op: what the classes made from the registry derive from."""

from __future__ import annotations

from typing import Any

from mithril import _core, models
from mithril.base.checks import checked_flag
from mithril.base.peer_names import misplaced_here
from mithril.errors import MithrilError, NearMissWarning, SignatureError, warn
from mithril.logical.arguments import model_name
from mithril.logical.connection import TBD, Connection, spec_of
from mithril.logical.model import Model
from mithril.logical.values import Uses, as_value, key_spec
from mithril.types import dtype_of


class OperatorModel(Model):
    """A model that is one op; its subclasses are made from the registry."""

    _op = ""
    _attrs: tuple[str, ...] = ()
    _defaults: dict[str, Any] = {}  # of wires and keys
    _optional: tuple[str, ...] = ()
    _switches: dict[str, str] = {}  # optional wire -> the attribute that makes it
    _counts = False
    _arguments: dict[str, Any] = {}

    def __init__(self, *args, **kwargs):
        raise SignatureError("OperatorModel: make one of its subclasses")

    def _make(self, name: str | None, values: dict[str, Any], init: Any = None) -> None:
        if isinstance(values.get("dtype"), str):
            values["dtype"] = dtype_of(self._what("dtype"), values["dtype"])
        self._arguments = dict(values)  # what makes another one
        if init is not None:
            self._arguments["init"] = init
        count = values.pop("n", None) if self._counts else None
        for key, default in self._defaults.items():  # a key may be wired as well, but is no size
            if isinstance(default, bool) and isinstance(values.get(key), int | float):
                checked_flag(self._what(key), values[key])
        missing = [k for k, v in values.items() if k in self._attrs and v is TBD]
        if missing:
            raise SignatureError(f"{type(self).__name__}: requires {missing[0]!r}")
        attrs = {k: as_value(v, self._what(k)) for k, v in values.items() if k in self._attrs}
        spec: dict[str, Any] = {
            "name": model_name(name),
            "attrs": attrs,
            "keys": {},
            "open": [],
            "absent": [n for n, switch in self._switches.items() if not attrs[switch]],
            "count": count,
        }
        try:
            with Uses() as used:
                for key, value in values.items():
                    if key not in self._attrs:
                        self._place(spec, key, value, used)
                self._attach(_core.ModelNode.leaf(self._op, spec))
                if init is not None:
                    self.set_initializers(init)
        except MithrilError as error:
            error.hint = error.hint or misplaced_here(type(self).__name__, values)
            raise

    def _make_either(
        self,
        robust: Any,
        form: str,
        name: str | None,
        values: dict[str, Any],
        further: dict[str, Any],
    ) -> None:
        """As the op, or as its robust form: a class derived from this one, with further keys."""
        cls = getattr(models, form)
        if checked_flag(f"{type(self).__name__}: robust", robust):
            self.__class__ = cls
            values |= further
        for key, value in further.items():
            if not robust and value is not cls._defaults[key]:
                raise SignatureError(f"{self._what(key)}: requires robust=True")
        self._make(name, values)

    def _make_drawn(self, form: str, name: str | None, values: dict[str, Any]) -> None:
        """As the op that moves its key from call to call; with `key` as the one that takes it."""
        if values["key"] is TBD:
            values.pop("key")
        else:
            self.__class__ = getattr(models, form)
        self._make(name, values)

    def _mode(self, mode: Any, inference: Any) -> Any:
        """`mode`, which `inference` says by True ("eval") and False ("train")."""
        if inference is None:
            return mode
        said = "eval" if checked_flag(self._what("inference"), inference) else "train"
        if mode not in (None, said):
            raise SignatureError(
                f"{type(self).__name__}: inference={inference} is mode={said!r}, got mode={mode!r}"
            )
        return said

    @property
    def _class_defaults(self) -> dict[str, Any]:
        """Keys whose value nobody gave."""
        given = self._arguments
        return {k: v for k, v in self._defaults.items() if k in given and given[k] is v}

    @property
    def formula_key(self) -> str:
        return self._op

    @property
    def factory_args(self) -> dict[str, Any]:
        return {key: value for key, value in self._arguments.items() if value is not TBD}

    @property
    def safe_shapes(self) -> dict[str, list]:
        if not self._arguments.get("safe_shapes"):
            return {}
        return {key: ["N", ("V", ...)] for key in ("input", "target")}

    @property
    def submodel(self) -> OperatorModel:
        """The op itself: here, the model is the op."""
        return self

    def _place(self, spec: dict, key: str, value: Any, used: Uses) -> None:
        if value is TBD:
            if key in self._defaults:
                spec["open"].append(key)
        elif key in self._defaults and value is self._defaults[key]:
            return
        elif value is None and key in self._optional:
            spec["absent"].append(key)
        elif isinstance(value, Connection):
            spec["keys"][key] = spec_of(value) or key_spec()
        else:
            spec["keys"][key] = key_spec(value=used.take(value), what=self._what(key))

    def _what(self, argument: str) -> str:
        return f"{type(self).__name__}: {argument}"


class KernelFirst(OperatorModel):
    """Convolutions, whose first argument is the kernel's size: other libraries begin with channels,
    so numbers by position that look like theirs are told."""

    def __new__(cls, *args: Any, **kwargs: Any):
        if len(args) > 1 and all(type(size) is int for size in args[:3]):
            _warn_of_order(cls.__name__, args)
        return super().__new__(cls)


_LARGE_KERNEL = 8


def _warn_of_order(layer: str, sizes: tuple) -> None:
    kernel, channels, *more = sizes[:3]
    if not more and not (kernel >= _LARGE_KERNEL and channels < kernel):
        return
    given = ", ".join(map(repr, sizes[:3]))
    taken = f"kernel_size={kernel}, out_channels={channels}"
    taken += f", stride={more[0]}" if more else ""
    filters, size = (channels, more[0]) if more else (kernel, channels)
    whose = "PyTorch's order (in_channels, out_channels, kernel_size)" if more else "Keras' order"
    warn(
        f"{layer}({given}): taken for {taken}; if it is in {whose}, write"
        f" {layer}(kernel_size={size}, out_channels={filters}), else name the arguments",
        NearMissWarning,
    )
