"""Facts about a compiled model's keys: names, shapes, and through which gradients flow."""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import Any

from mithril import _core
from mithril.base.trees import leaves
from mithril.errors import ArgumentError, MithrilError, SignatureError, shown
from mithril.logical.annotation import type_of
from mithril.logical.connection import Tensor
from mithril.logical.shapes import Shapes
from mithril.physical.compilation import Compilation
from mithril.physical.targets import target_of


class KeyFacts:
    """Finds out what `PhysicalModel` tells of its keys, and keeps what takes a while."""

    def __init__(self, compilation: Compilation) -> None:
        self._compilation = compilation
        self._node, self._options = compilation.node, compilation.options
        self._compiled, self._keys = compilation.compiled, compilation.keys
        self._lists = compilation.lists
        self._constants = compilation.constant_names()
        names = {key.list or key.name for key in compilation.keys}
        self.inputs = names | set(self._constants.values())

    # --- gradients ------------------------------------------------------------------------------
    def differentiable(self) -> dict[str, bool]:
        """Tells for each output whether it has a gradient."""
        flows = self._flows()
        if self._lists is None:
            return flows
        # A list has a gradient where one of its tensors has.
        return {name: any(leaves(found)) for name, found in self._lists.join(flows).items()}

    @property
    def _is_deferred(self) -> bool:
        """Tells whether the graph is made only once the shapes of a call are known."""
        compiled = self._compiled
        return bool(compiled.unknown_ranks or compiled.unknown_sizes or compiled.unknown_values)

    def _flows(self) -> dict[str, bool]:
        if not self._is_deferred:
            names, flows = self._compiled.outputs, self._compiled.differentiable_outputs
            return dict(zip(names, flows, strict=True))
        keys = {name: key for key, name in self.names.items()}
        own = {n: self._reaches(keys[n]) for n in self._compilation.output_keys if n in keys}
        return own | {name: self._reaches(wire) for name, wire in self._options.fetch}

    def _reaches(self, key: Any) -> bool:
        """Tells whether a wire of floats, or a list, depends on a parameter; ranks are open."""
        trained = {key.key for key in self._keys if key.trainable}
        if trained.isdisjoint(self._node.sources(key)):
            return False
        visible = self._node.find_connection(key)
        if visible is None:  # inside a part
            return "tensor" in self._node.type(key)
        kind = self.informed.type(visible.key_name)
        return kind in ("tensor", "list", "tuple") or "float tensor" in kind

    # --- names ----------------------------------------------------------------------------------
    @property
    def names(self) -> dict[str, str]:
        """Keys of the model ("x", "$3") -> what they are called here."""
        node = self._node
        out = {key.key: key.list or key.name for key in self._keys if key.key}
        out |= self._constants
        outputs = node.output_keys or [wire.key_name for wire in node.couts]
        fetched = {name for name, _ in self._options.fetch}
        own = [name for name in self._compilation.output_keys if name not in fetched]
        if len(outputs) == len(own):
            return out | dict(zip(outputs, own, strict=True))
        return out | {key: key for key in outputs if key in own}

    @functools.cached_property
    def of_wires(self) -> dict[str, str]:
        """Name here -> key of the model, of every wire of its outermost level."""
        names = self.names
        out = {name: key for key, name in names.items()}
        left = [key for key in self._node.all_keys if key not in names]
        out |= {key: key for key in left if not key.startswith("$") and key not in out}
        families: dict[str, list[str]] = {}
        for key in left:
            if key.startswith("$"):
                families.setdefault(self._node.key_origin(key), []).append(key)
        for origin, keys in families.items():
            numbered = (f"{origin}_{i}" for i in itertools.count())
            free = (name for name in numbered if name not in out)
            if len(keys) == 1 and origin not in out:
                out[origin] = keys[0]
            else:
                out |= dict(zip(free, keys, strict=False))
        return out

    @functools.cached_property
    def discarded(self) -> set[str]:
        node, whole = self._node, self._compiled
        if self._options.discard_keys:
            options = self._options.for_engine(discard_keys=[])
            whole = _core.compile(node, options, target_of(self._options.backend))
        names = dict(node.compiled_names) | self._constants
        names |= {key["key"]: key["name"] for key in whole.keys}
        inputs = {key for key in node.input_keys if not node.is_valued(key)}
        wanted = {names.get(key, key) for key in inputs} | set(whole.outputs)
        return wanted - set(self.inputs) - set(self._compilation.output_keys)

    # --- shapes ---------------------------------------------------------------------------------
    def sizes(self) -> Shapes:
        """Shapes of inputs and outputs alone, as far as whole numbers; None: the rank is open."""
        found = self._compiled.solve({})
        pairs = zip(self._keys, found, strict=True)
        out: Shapes = {key.name: shape for key, (shape, _) in pairs}
        if not self._is_deferred:
            outputs = self._compiled.solve_outputs({})
            out |= dict(zip(self._compiled.outputs, outputs, strict=True))
        return out

    @functools.cached_property
    def informed(self) -> Any:
        """A copy of the model that knows what compile was told and found."""
        node, key_of = self._node.clone(None), self._compilation.key_of
        tensor = type_of(Tensor)
        types = [(key_of(key), type) for key, type in self._options.types]
        lone = [key for key in self._keys if key.key and not key.list]
        types += [(key.key, tensor) for key in lone if key.is_tensor]
        mapped = {name: key for key, name in self.names.items()}
        shapes = [(key_of(key), shape) for key, shape in self._options.shapes]
        sizes = [(mapped[n], s) for n, s in self.sizes().items() if s is not None and n in mapped]
        values = [(key_of(key), value) for key, value in self._options.constants]
        for state, facts in (
            (node.set_types, [[fact] for fact in types]),
            (node.set_shapes, [shapes, *([fact] for fact in sizes)]),
            (lambda pairs: node.set_values(pairs, False), [[fact] for fact in values]),
        ):
            for fact in facts:
                with contextlib.suppress(MithrilError):  # compile says more than a model may
                    state(fact)
        return node

    def part(self, model: Any) -> Any:
        """Returns the counterpart of a submodel in the informed copy."""
        node = getattr(model, "_node", None)
        if node is None:
            raise SignatureError(f"get_shapes: model requires a model, got {shown(model)}")
        part = self._compilation.snapshot.part(node)
        if part is None:
            raise ArgumentError(f"get_shapes: {model!r} is no part of the model that was compiled")
        way = []
        while part.parent is not None:
            way.append(part.parent.submodels.index(part))
            part = part.parent
        found = self.informed
        for place in reversed(way):
            found = found.submodels[place]
        return found


def key_facts_of(physical: Any) -> KeyFacts:
    """Returns the facts of a `PhysicalModel`, for those who look inside."""
    return physical._key_facts


__all__ = ["KeyFacts", "key_facts_of"]
