"""Methods of a compiled model about its keys: shapes, gradients, names, what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mithril.base.checks import checked_bool, checked_mapping, checked_size, checked_str
from mithril.base.public import public
from mithril.errors import KeyNotFound, UnsupportedError, shown, suggestion
from mithril.logical.connection import Connection
from mithril.logical.shapes import Shapes, model_names, shapes_by_name
from mithril.physical.face import Face
from mithril.physical.fetch import fetching, with_wire
from mithril.physical.gradients import FINAL_COST
from mithril.physical.key_facts import key_facts_of

if TYPE_CHECKING:
    from mithril.logical.model import Model


class Keys(Face):
    """The part of `PhysicalModel` that answers questions about keys."""

    # --- gradients ------------------------------------------------------------------------------
    @public
    def has_grad(self, key: str | Connection) -> bool:
        """Tells whether gradients flow through a key: a parameter, or what is computed of one.

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
            name = checked_str("has_grad: key", key)
            by_name, lists = self._compilation.by_name, self._compilation.lists
            parts = lists.inputs.get(name, []) if lists else []
            if name in by_name or parts:
                return any(by_name[part].trainable for part in parts or [name])
            if name in self.output_keys:
                return self._key_facts.differentiable()[name]
            if name in self.input_keys:
                return False  # a constant
            key = self._key_facts.of_wires.get(name, name)
        try:
            made, added = self._with_wire(key)
        except KeyNotFound as error:
            said = error.message.removeprefix("fetch: ")
            raise KeyNotFound(f"has_grad: {said}", hint=error.hint) from None
        return key_facts_of(made).differentiable()[added]

    def _with_wire(self, key: str | Connection) -> tuple[Any, str]:
        """Returns the model with one more output, and the name of that."""
        if isinstance(key, Connection):
            return with_wire(self, key)
        return fetching(self, [key]), key

    @property
    @public
    def cotangent_keys(self) -> set[str]:
        """The outputs that `output_gradients` may name: the cost of a training model, else those
        with a gradient; none where the model was compiled for inference."""
        if self.inference:
            return set()
        if FINAL_COST in self.output_keys:
            return {FINAL_COST}
        return {name for name, flows in self._key_facts.differentiable().items() if flows}

    # --- names ----------------------------------------------------------------------------------
    @property
    @public
    def external_key_mapping(self) -> dict[str, str]:
        """Keys of the model ("x", "$3") -> what they are called here."""
        return self._key_facts.names

    @property
    @public
    def discarded_keys(self) -> set[str]:
        """Keys that are neither asked for nor returned: `discard_keys`, what only these need, and
        what no output depends on."""
        return set(self._key_facts.discarded)

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
        symbolic = checked_bool("get_shapes: symbolic", symbolic)
        verbose = checked_bool("get_shapes: verbose", verbose)
        if model is None:
            names = {key: name for name, key in self._key_facts.of_wires.items()}
            node = self._key_facts.informed
        else:
            node = self._key_facts.part(model)
            names = model_names(node)
        return shapes_by_name(node, names, symbolic, verbose, uni_keys, var_keys)

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
        given = checked_mapping("propose_shardings: given_shards", given_shards)
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
    return [checked_size("propose_shardings: device_mesh", size, 1) for size in sizes]


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


__all__ = ["Keys", "proposed"]
