"""A model compiled by its options: its keys and programs, which all parts of `PhysicalModel` share.

Where the graph depends on what calls bring, it is compiled again for what they brought.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from mithril import _core
from mithril.base.recently_used import RecentlyUsed
from mithril.errors import (
    InitialParamsWarning,
    KeyNotFound,
    MithrilError,
    ShapeNotKnown,
    UnsupportedError,
    UnusedKeyWarning,
    UnusedParamsWarning,
    warn,
)
from mithril.execution import own_ops
from mithril.physical.conversion import Converter
from mithril.physical.fetch import MOST_FETCHES
from mithril.physical.lists import Lists
from mithril.physical.open_kinds import OpenKinds
from mithril.physical.open_ranks import OpenRanks, Shaped
from mithril.physical.options import CompileOptions
from mithril.physical.program import Program
from mithril.physical.program_keys import Key, keys_of
from mithril.physical.static_shapes import StaticShapes
from mithril.physical.targets import runs_natively, target_of

_REFUSED_IF_STRICT = (UnusedKeyWarning, UnusedParamsWarning, InitialParamsWarning)
_logger = logging.getLogger("mithril")


class Call(NamedTuple):
    """The values that a call brings."""

    params: Mapping[str, Any] = {}
    data: Mapping[str, Any] = {}
    state: Mapping[str, Any] = {}

    def of(self, role: str) -> Mapping[str, Any]:
        """The values of keys with a role: "param", "data" or "state"."""
        return self.params if role == "param" else self.data if role == "data" else self.state


class Compilation:
    """A compiled model: its options, keys and programs. Many threads may use it at once."""

    def __init__(self, snapshot: Any, options: CompileOptions) -> None:
        self.backend = options.backend
        self.options = options
        self.snapshot = snapshot  # the model itself may be edited
        self.node = snapshot.model
        self.place = _core.user_location()
        self.convert = Converter(options, self.node)
        self.by_name: dict[str, Key] = {}
        self.compiled, self.program = self.make({}, {})
        self._refuse_file_path()
        self.keys = self.program.keys if self.program else keys_of(self.compiled, options)
        _refuse_unknown_types(self.keys)
        self.by_name = {key.name: key for key in self.keys}
        self.lists = Lists.of(self.keys, self.compiled.output_lists)
        self.trainable_keys = tuple(k.name for k in self.keys if k.trainable)
        self.param_keys = self._names("param")
        self.data_keys = self._names("data")
        self.state_keys = self._names("state")
        outputs = list(self.compiled.outputs)
        self.output_keys: list[str] = self.lists.names(outputs) if self.lists else outputs
        self.static = StaticShapes(self) if options.static_shapes else None
        self.open_ranks = None if self.program else OpenRanks(self)
        self.open_kinds = None if options.element_kinds else OpenKinds.of(self.keys)
        self.first_inputs: dict[str, Shaped] = {}  # of the first call
        # Further outputs -> the model that has them, too.
        self.fetches: RecentlyUsed[Any] = RecentlyUsed(MOST_FETCHES)
        self.predictor: Any = None  # the same model for inference, once it was asked for
        self.told: set[str] = set()
        self.is_mode_checked = False
        self.lock = threading.Lock()

    def _names(self, role: str) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys if key.role == role)

    def _refuse_file_path(self) -> None:
        if self.options.file_path is not None and self.runs_plans(self.compiled):
            raise UnsupportedError(
                f"file_path: {type(self.backend).__name__} runs plans, not source",
                hint="print(pm.graph), or use ml.NumpyBackend(); leave it out",
            )

    # --- making programs ------------------------------------------------------------------------
    def make(
        self, shapes: Mapping[str, list], values: Mapping[str, Any]
    ) -> tuple[Any, Program | None]:
        """Compiles the model, and makes its program if that needs nothing else of calls."""
        compiled = self.compile(shapes, values)
        if compiled.unknown_ranks or compiled.unknown_sizes or compiled.unknown_values:
            return compiled, None
        try:
            return compiled, Program(compiled, self.options)
        except (ShapeNotKnown, UnsupportedError):
            awaiting = self.compile(shapes, values, await_values=True)
            if not awaiting.unknown_values:
                raise
            return awaiting, None

    def compile(
        self, shapes: Mapping[str, list], values: Mapping[str, Any], await_values: bool = False
    ) -> Any:
        """Compiles with these shapes, too; of inputs that have one already, only complete ones."""
        find, by_name = self.node.find_connection, self.by_name
        wires = {by_name[name].key: s for name, s in shapes.items() if not by_name[name].list}
        own = [(self.key_of(key), key, shape) for key, shape in self.options.shapes]
        for name, _, _ in own:
            if None in wires.get(name, ()):
                del wires[name]
        kept = [(key, shape) for name, key, shape in own if name not in wires]
        return self._compile_for_backend(
            self.options.for_engine(
                shapes=[*kept, *((find(key), shape) for key, shape in wires.items())],
                item_shapes=self._item_shapes(shapes),
                values=[(find(by_name[name].key), value) for name, value in values.items()],
                await_values=await_values,
            )
        )

    def _item_shapes(self, shapes: Mapping[str, list]) -> list[tuple[Any, int, list]]:
        """Returns the shapes of tensors in lists: the list, the place in it, the shape."""
        if not shapes or self.lists is None:
            return []
        keys = [(self.by_name[name], shape) for name, shape in shapes.items()]
        return [
            (self.node.find_connection(k.key), self.lists.inputs[k.list].index(k.name), shape)
            for k, shape in keys
            if k.list
        ]

    def _compile_for_backend(self, said: dict[str, Any]) -> Any:
        # Whether a backend's own function is called shows when composites are taken apart.
        tried = not own_ops.are_brought(self.backend)
        compiled = _core.compile(self.node, said, target_of(self.backend, tried))
        if not self.backend.runs_plans:
            return compiled
        native = self.runs_plans(compiled)
        if not native:
            _logger.info(
                "%r: the model has ops that are Python functions, so NumPy runs all of it",
                self.backend,
            )
        if native is tried:
            return compiled
        return _core.compile(self.node, said, target_of(self.backend, native))

    def runs_plans(self, compiled: Any) -> bool:
        """Tells whether the engine runs it, and not a framework, or NumPy for its Python
        functions."""
        return self.backend.runs_plans and runs_natively(compiled, self.backend)

    def program_for(self, call: Call) -> Program:
        """Returns the program; where ranks depend on the arrays, the one of these ranks."""
        if self.open_ranks is None:
            assert self.program is not None
            found = self.program
        else:
            found = self.open_ranks.program(call)
        return found if self.static is None else self.static.program(found)

    def programs(self) -> list[Program]:
        """Lists the programs that there are so far."""
        if self.program is not None:
            return [self.program]
        return self.open_ranks.programs() if self.open_ranks else []

    # --- what it tells --------------------------------------------------------------------------
    def constant_names(self) -> dict[str, str]:
        """Maps keys of the constants in the model ("w", "$3") to what they are called here."""
        given = {self.key_of(key): key for key, _ in self.options.constants}
        out = {key: name if isinstance(name, str) else key for key, name in given.items()}
        unnamed = [key for key, name in out.items() if name.startswith("$")]
        if unnamed:
            names = self._names_as_inputs()
            out |= {key: names.get(key, key) for key in unnamed}
        return out

    def _names_as_inputs(self) -> dict[str, str]:
        """Returns the names that unnamed inputs would have if none was a constant."""
        names = dict(self.node.compiled_names)
        if self.options.short_names and not self.options.path_names:
            return names
        said = self.options.for_engine(constants=[], safe_names=False)
        with contextlib.suppress(MithrilError):  # what needs a constant has but the short name
            keys = _core.compile(self.node, said, target_of(self.backend)).keys
            names |= {key["key"]: key["list"] or key["name"] for key in keys}
        return names

    def key_of(self, given: Any) -> str:
        """Returns the key in the compiled model ("x", "$3") of what an option named."""
        if not isinstance(given, str):
            wire = self.node.find_connection(given)
            return given.key_name if wire is None else wire.key_name
        if self.node.find_connection(given) is not None:
            return given
        if given in self.by_name:
            return self.by_name[given].key
        return next((key for key, name in self.node.compiled_names if name == given), given)

    def is_statistic(self, key: Key) -> bool:
        is_frozen = key.name in self.options.frozen
        return key.role == "param" and not key.trainable and not is_frozen

    def warn(self, text: str, category: type[Warning]) -> None:
        """Warns once; `strict` makes an error of what would be wrong with the call."""
        if text in self.told:
            return
        if self.options.strict and category in _REFUSED_IF_STRICT:
            raise KeyNotFound(f"evaluate: {text}", hint="the model is compiled with strict=True")
        self.told.add(text)
        warn(text, category)


def compilation_of(physical: Any) -> Compilation:
    """Returns the compilation of a `PhysicalModel`, for those who look inside."""
    return physical._compilation


def _refuse_unknown_types(keys: Iterable[Key]) -> None:
    """Raises for data that are element types: these are fixed at compile."""
    for key in keys:
        if key.role == "data" and key.type in ("dtype", "none or dtype"):
            raise UnsupportedError(
                f"compile: '{key.name}' is an element type, which must be known here",
                hint=f"give it in constant_keys: {{'{key.name}': ml.float32}}",
            )


__all__ = ["Call", "Compilation", "compilation_of"]
