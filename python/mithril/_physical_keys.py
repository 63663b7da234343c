"""What a compiled model tells of its keys: shapes, gradients, names, what was left out."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mithril import _core
from mithril._annotation import type_of
from mithril._checks import mapping, text, truth, whole
from mithril._program import target_of
from mithril._public import public
from mithril._shapes import Shapes, model_names, shapes_by_name
from mithril.backends._trees import leaves
from mithril.connection import Connection, Tensor
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    MithrilError,
    SignatureError,
    UnsupportedError,
    shown,
    suggestion,
)

if TYPE_CHECKING:
    from mithril.model import Model

FINAL_COST = "final_cost"


class PhysicalKeys:
    """The part of `PhysicalModel` that answers questions about keys."""

    backend: Any
    inference: bool
    input_keys: set[str]
    output_keys: list[str]
    _node: Any
    _snapshot: Any
    _options: dict[str, Any]
    _compiled: Any
    _keys: list[Any]
    _by_name: dict[str, Any]
    _lists: Any

    # --- gradients ------------------------------------------------------------------------------
    @public
    def has_grad(self, key: str | Connection) -> bool:
        """Whether gradients flow through a key: a parameter, or what is computed of one.

        Raises
        ------
        KeyNotFound : the model has no such key

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(2)(input="x", output="y")
        >>> pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [1, 2]})
        >>> pm.has_grad("x"), pm.has_grad("weight"), pm.has_grad("y")
        (False, True, True)
        """
        if not isinstance(key, Connection):
            name = text("has_grad: key", key)
            parts = self._lists.inputs.get(name, []) if self._lists else []
            if name in self._by_name or parts:
                return any(self._by_name[part].trainable for part in parts or [name])
            if name in self.output_keys:
                return self._differentiable()[name]
            if name in self.input_keys:
                return False  # a constant
            key = self._keys_of_wires.get(name, name)
        from mithril._fetch import fetching

        try:
            made: Any = fetching(self, [key])  # type: ignore[arg-type]
        except KeyNotFound as error:
            said = error.message.removeprefix("fetch: ")
            raise KeyNotFound(f"has_grad: {said}", hint=error.hint) from None
        flows = made._differentiable()
        added = [name for name in flows if name not in self.output_keys]
        return flows[added[0] if added else key if isinstance(key, str) else key.key]

    def _differentiable(self) -> dict[str, bool]:
        """Output -> whether it has a gradient."""
        flows = self._flows()
        return flows if self._lists is None else self._of_lists(flows)

    def _of_lists(self, flows: dict[str, bool]) -> dict[str, bool]:
        """A list has a gradient where one of its tensors has."""
        return {name: any(leaves(found)) for name, found in self._lists.join(flows).items()}

    @property
    def _is_deferred(self) -> bool:
        """Whether the graph is made once the shapes of a call are known."""
        compiled = self._compiled
        return bool(compiled.unknown_ranks or compiled.unknown_sizes or compiled.unknown_values)

    def _flows(self) -> dict[str, bool]:
        if not self._is_deferred:
            names, flows = self._compiled.outputs, self._compiled.differentiable_outputs
            return dict(zip(names, flows, strict=True))
        keys = {name: key for key, name in self.external_key_mapping.items()}
        return {name: self._reaches(keys[name]) for name in self.output_keys if name in keys} | {
            name: self._reaches(wire) for name, wire in self._options["fetch"]
        }

    def _reaches(self, key: Any) -> bool:
        """Tells whether a wire of floats, or a list, depends on a parameter; ranks are open."""
        trained = {key.key for key in self._keys if key.trainable}
        if trained.isdisjoint(self._node.sources(key)):
            return False
        visible = self._node.find_connection(key)
        if visible is None:  # inside a part
            return "tensor" in self._node.type(key)
        kind = self._informed.type(visible.key_name)
        return kind in ("tensor", "list", "tuple") or "float tensor" in kind

    @property
    @public
    def cotangent_keys(self) -> set[str]:
        """The outputs that `output_gradients` may name: the cost of a training model, else those
        with a gradient; none where the model was compiled for inference."""
        if self.inference:
            return set()
        if FINAL_COST in self.output_keys:
            return {FINAL_COST}
        return {name for name, flows in self._differentiable().items() if flows}

    # --- names ----------------------------------------------------------------------------------
    @property
    @public
    def external_key_mapping(self) -> dict[str, str]:
        """Keys of the model ("x", "$3") -> what they are called here."""
        node = self._node
        out = {key.key: key.list or key.name for key in self._keys if key.key}
        out |= {key: key for key in self._constant_names()}
        outputs = node.output_keys or [wire.key_name for wire in node.couts]
        fetched = {name for name, _ in self._options["fetch"]}
        own = [name for name in self.output_keys if name not in fetched]
        if len(outputs) == len(own):
            return out | dict(zip(outputs, own, strict=True))
        return out | {key: key for key in outputs if key in own}

    def _constant_names(self) -> list[str]:
        return [self._key_of(key) for key, _ in self._options["constants"]]

    def _key_of(self, given: Any) -> str:
        """The key in the compiled model of what an option named."""
        if isinstance(given, str):
            return given
        wire = self._node.find_connection(given)
        return given.key_name if wire is None else wire.key_name

    @functools.cached_property
    def _keys_of_wires(self) -> dict[str, str]:
        """Name here -> key of the model, of every wire of its outermost level."""
        names = self.external_key_mapping
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
    def _discarded(self) -> set[str]:
        node, whole = self._node, self._compiled
        if self._options["discard_keys"]:
            options = {**self._options, "discard_keys": []}
            whole = _core.compile(node, options, target_of(self.backend))
        names = dict(node.compiled_names)
        read = {key["key"]: key["name"] for key in whole.keys}
        inputs = {key for key in node.input_keys if not node.is_valued(key)}
        wanted = {read.get(key, names.get(key, key)) for key in inputs} | set(whole.outputs)
        return wanted - set(self.input_keys) - set(self.output_keys)

    @property
    @public
    def discarded_keys(self) -> set[str]:
        """Keys that are neither asked for nor returned: `discard_keys`, what only these need, and
        what no output depends on."""
        return set(self._discarded)

    # --- shapes ---------------------------------------------------------------------------------
    @property
    @public
    def shapes(self) -> Shapes:
        """Key -> sizes of inputs, outputs and what is between them; None for a size that is not
        known and for what is no tensor, "..." for any number of sizes."""
        return self.get_shapes()

    @public
    def get_shapes(
        self,
        model: Model | None = None,
        uni_keys: dict[str, str] | None = None,
        var_keys: dict[str, str] | None = None,
        symbolic: bool = False,
        verbose: bool = False,
    ) -> Shapes:
        """Key -> shape; None for what is no tensor.

        Parameters
        ----------
        model : the model that was compiled or a part of it, whose own keys are wanted
        uni_keys, var_keys : what to print for "u1" and "V1"; they get the names that they lack
        symbolic : names ("u1", "(V1, ...)") instead of None and "..."
        verbose : all that is known of a shape, as a list, where that is more than one list

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(2)(input="x", output="y")
        >>> pm = ml.compile(model, ml.NumpyBackend(), data_keys={"x"}, shapes={"x": [None, 3]})
        >>> pm.get_shapes()["y"], pm.get_shapes(symbolic=True)["y"]
        ([None, 2], ['u1', 2])
        """
        symbolic = truth("get_shapes: symbolic", symbolic)
        verbose = truth("get_shapes: verbose", verbose)
        if model is None:
            names = {key: name for name, key in self._keys_of_wires.items()}
            node = self._informed
        else:
            node = self._part(model)
            names = model_names(node)
        return shapes_by_name(node, names, symbolic, verbose, uni_keys, var_keys)

    def _sizes(self) -> Shapes:
        """Shapes of inputs and outputs alone, as far as whole numbers; None: the rank is open."""
        found = self._compiled.solve({})
        out: Shapes = {key.name: shape for key, (shape, _) in zip(self._keys, found, strict=True)}
        if not self._is_deferred:
            outputs = self._compiled.solve_outputs({})
            out |= dict(zip(self._compiled.outputs, outputs, strict=True))
        return out

    @functools.cached_property
    def _informed(self) -> Any:
        """A copy of the model that knows what compile was told and found."""
        node = self._node.clone(None)
        tensor = type_of(Tensor)
        types = [(self._key_of(key), type) for key, type in self._options["types"]]
        lone = [key for key in self._keys if key.key and not key.list]
        types += [(key.key, tensor) for key in lone if key.is_tensor]
        mapped = {name: key for key, name in self.external_key_mapping.items()}
        shapes = [(self._key_of(key), shape) for key, shape in self._options["shapes"]]
        sizes = [(mapped[n], s) for n, s in self._sizes().items() if s is not None and n in mapped]
        values = [(self._key_of(key), value) for key, value in self._options["constants"]]
        for state, facts in (
            (node.set_types, [[fact] for fact in types]),
            (node.set_shapes, [shapes, *([fact] for fact in sizes)]),
            (lambda pairs: node.set_values(pairs, False), [[fact] for fact in values]),
        ):
            for fact in facts:
                with contextlib.suppress(MithrilError):  # compile says more than a model may
                    state(fact)
        return node

    def _part(self, model: Any) -> Any:
        """What a part of the compiled model is in the informed copy."""
        node = getattr(model, "_node", None)
        if node is None:
            raise SignatureError(f"get_shapes: model requires a model, got {shown(model)}")
        part = self._snapshot.part(node)
        if part is None:
            raise ArgumentError(f"get_shapes: {model!r} is no part of the model that was compiled")
        way = []
        while part.parent is not None:
            way.append(part.parent.submodels.index(part))
            part = part.parent
        found = self._informed
        for place in reversed(way):
            found = found.submodels[place]
        return found

    # --- parallelism ----------------------------------------------------------------------------
    @public
    def propose_shardings(
        self, given_shards: Mapping[str, tuple | None] | None = None
    ) -> dict[str, tuple | None]:
        """For each input into how many parts each of its axes is cut, so that the backend's mesh of
        devices is used: for each size of the mesh the first axis that it divides and that is whole.

        Parameters
        ----------
        given_shards : what was decided already, by key

        Returns
        -------
        Key -> parts by axis; None where a size of the mesh fits no axis or the rank is open.

        Raises
        ------
        UnsupportedError : the backend has no mesh of devices
        """
        given = mapping("propose_shardings: given_shards", given_shards)
        for name in given:
            if name not in self.input_keys:
                near = suggestion(str(name), self.input_keys)
                raise KeyNotFound(f"propose_shardings: no input named {shown(name)}{near}")
        sizes = _mesh_sizes(self.backend)
        shapes = self.shapes
        return {
            name: given[name] if name in given else proposed(shapes.get(name), sizes)
            for name in sorted(self.input_keys)
        }


def _mesh_sizes(backend: Any) -> list[int]:
    mesh = getattr(backend, "mesh", None) or getattr(backend, "device_mesh", None)
    if mesh is None:
        raise UnsupportedError(
            f"propose_shardings: {backend!r} has no mesh of devices",
            hint="make the backend with device_mesh=",
        )
    sizes = getattr(mesh, "axis_sizes", mesh)
    return [whole("propose_shardings: device_mesh", size, 1) for size in sizes]


def proposed(shape: Iterable | None, mesh: Iterable[int]) -> tuple[int, ...] | None:
    """Parts by axis of a shape on a mesh; None where one of its sizes fits no axis.

    >>> proposed([1, 9, 4, 4], (2, 3))
    (1, 3, 2, 1)
    """
    sizes = None if shape is None else list(shape)
    if sizes is None or "..." in sizes:
        return None
    parts = [1] * len(sizes)
    for count in mesh:
        if count == 1:
            continue
        for axis, size in enumerate(sizes):
            if size is not None and size % count == 0 and parts[axis] == 1:
                parts[axis] = count
                break
        else:
            return None
    return tuple(parts)


__all__ = ["PhysicalKeys", "proposed"]
