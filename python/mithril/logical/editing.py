"""Editing of models: copies, removal, replacement, extraction, and taking back what was said.

An edit copies the outermost model without what is taken out, and puts the copy in its place when
all is well: its cost is linear in the size of the outermost model, whatever the edit's size. What
was removed is no more: its handles raise `KeyNotFound`. What was said of a wire lives as long as
the wire; what was said of a key of a submodel goes with the submodel.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from mithril.base.checks import checked_bool, checked_list, checked_mapping, checked_str
from mithril.base.public import public
from mithril.errors import ArgumentError, SignatureError, shown
from mithril.logical.arguments import key_of, model_name
from mithril.logical.connection import NOT_GIVEN, TBD, Connection, connection_on
from mithril.logical.handles import adopt, handle, known_handle
from mithril.logical.values import key_spec

if TYPE_CHECKING:
    from mithril.logical.model import Model

_FACETS = {"value": 1, "shape": 2, "type": 4, "differentiability": 8}
_OWN = {"_node", "_children", "_wires", "_share"}


class Editing:
    """The part of `Model` that changes what is there already."""

    _node: Any
    _children: dict[int, Model]
    _wires: dict[str, Connection]
    _share: weakref.ref[Model] | None = None
    _outermost_only: bool

    # --- copies -------------------------------------------------------------------------------
    @public
    def clone(self, name: str | None = None, share: bool = False) -> Self:
        """A model of its own with the structure, names and facts of this one.

        Parameters
        ----------
        name : name of the copy as a submodel; default: that of this model
        share : whether the copy, when it is put into a model, reads the parameters of this one:
            its trainable inputs that are not wired otherwise take the wires of this one's

        It is as frozen as this model is (`unfreeze`). Of a submodel it has what was said of its
        own keys and submodels, not what its surroundings imply. Of a `TrainModel` it has the
        losses, regularization terms, metrics and the combiner, too. Cost: the size of this model,
        and a pass over the facts of the outermost one.

        >>> import mithril as ml
        >>> layer = ml.Linear(4)
        >>> model = ml.Model()
        >>> model |= layer(input="x", output="h")
        >>> model |= layer.clone(share=True)(input="h", output="y")
        >>> model.input_keys
        ['$1', 'x', '$2']
        """
        share = checked_bool("clone: share", share)
        if share and self._outermost_only:
            raise ArgumentError(
                f"clone: {self!r} is no submodel of other models", hint="leave share out"
            )
        copy: Any = type(self).__new__(type(self))
        for key, value in self._own_attributes().items():
            setattr(copy, key, value)
        copy._attach(self._node.clone(None if name is None else model_name(name)))
        copy._take_over(self)
        if share:
            copy._share = weakref.ref(self)
        return copy

    def _own_attributes(self) -> dict[str, Any]:
        """Returns the attributes that the model's class keeps beside wires and submodels."""
        return {
            key: value
            for key, value in vars(self).items()
            if key not in _OWN and not isinstance(value, (Connection, Editing))
        }

    def _take_over(self, original: Any) -> None:
        """Copies what the original's class keeps of its wires and submodels."""

    def __copy__(self) -> Self:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.clone()

    @public
    def unfreeze(self) -> Self:
        """Lets a frozen outermost model be extended and edited again; returns it.

        Outputs that only freezing exposed are canonical outputs as before. Raises
        `FrozenModelError` for submodels and for models that are one op.
        """
        self._node.unfreeze()
        return self

    # --- structure ----------------------------------------------------------------------------
    @public
    def remove(self, *submodels: Model | str) -> None:
        """Takes submodels out, given by handle or by path ("encoder.dropout").

        What read their outputs reads inputs of the model instead, under the same names; wires that
        nothing is connected to any more are gone. To keep the flow through a removed layer,
        `replace` it with `Buffer()`. Cost: linear in the outermost model, however many are given.

        Raises `FrozenModelError` (frozen: see `unfreeze`), `KeyNotFound` (unknown path, a model of
        elsewhere), `ArgumentError` (the model itself). Nothing is changed then.

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(4, name="body")(input="x", output="h")
        >>> model |= ml.Linear(2, name="head")(input="h", output="y")
        >>> model.remove("head")
        >>> list(model.submodels)
        ['body']
        """
        parts = [self._part("remove", submodel) for submodel in submodels]
        above = [(part.parent, part.tag) for part in parts]
        self._node.remove(parts)
        self._forget(above)

    @public
    def replace(
        self, submodel: Model | str, new: Model, keys: Mapping[str, str | None] | None = None
    ) -> Model:
        """Puts `new` in the place of a submodel (handle or path); returns it as it is there.

        Its keys take the wires of the keys of the same name, or of those that `keys` (old key ->
        new key) says; None leaves a wire without this reader or writer. Of what is left, the one
        canonical input takes the wire of the one canonical input, outputs likewise. Wires that
        would be missed (computed, named or read elsewhere) must find a key. `new` takes over the
        place and, unless it has a name, the name. Facts are solved again at once. Cost: linear in
        the outermost model.

        Raises as `remove` does, `KeyNotFound` for a wire that finds no key, and whatever extending
        with `new` would raise. Nothing is changed then.

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(4)(input="x", output="h")
        >>> model |= ml.Relu(name="act")(input="h", output="y")
        >>> model.replace("act", ml.Gelu())
        Gelu('act')
        """
        part = self._part("replace", submodel)
        if not isinstance(new, Editing):
            raise SignatureError(f"replace: requires a model, got {type(new).__name__}")
        new = unused(new)
        pairs = [
            (
                checked_str("replace: keys", old),
                "" if to is None else checked_str("replace: keys", to),
            )
            for old, to in checked_mapping("replace: keys", keys).items()
        ]
        above = [(part.parent, part.tag)]
        self._node.replace(part, new._node, pairs)
        self._forget(above)
        self._adopt_chain(new)
        return new

    @public
    def extract(
        self,
        submodel: Model | str | None = None,
        *,
        inputs: Iterable[str | Connection] | Mapping[str, str | Connection] = (),
        outputs: Iterable[str | Connection] | Mapping[str, str | Connection] = (),
        name: str | None = None,
    ) -> Model:
        """A new model of copies: of one submodel, or of what computes `outputs` from `inputs`.

        This model is not changed. `inputs` and `outputs` are wires of it (keys or connections), or
        a dictionary from the names that they get. What the outputs need besides the inputs comes
        along, with inputs of its own. Unnamed data inputs and outputs of a submodel get the names
        that they are shown with.

        Raises `KeyNotFound` (unknown wire or path), `ArgumentError` (an output that nothing
        computes, an input that no output depends on), `WireNameError` (names that clash).

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(4)(input="x", output="h")
        >>> model |= ml.Relu()(input="h", output="y")
        >>> part = model.extract(inputs={"features": "h"}, outputs=["y"])
        >>> part.input_keys, part.output_keys
        (['features'], ['y'])
        """
        pairs = [
            self._boundary("extract: inputs", inputs),
            self._boundary("extract: outputs", outputs),
        ]
        if submodel is None:
            if not pairs[1]:
                raise ArgumentError("extract: requires a submodel, or at least one output")
            return handle(self._node.extract(*pairs, model_name(name)))
        if any(pairs):
            raise SignatureError("extract: takes a submodel, or inputs and outputs, not both")
        part = handle(self._part("extract", submodel)).clone(name)
        _name_boundary(part)
        return part

    # --- what was said ------------------------------------------------------------------------
    @public
    def clear(
        self,
        *keys: str | Connection,
        value: bool = False,
        shape: bool = False,
        type: bool = False,
        differentiability: bool = False,
    ) -> None:
        """Takes back what was said of wires: by setters, `IOKey`s or constructor arguments.

        Without a keyword all of it goes. Keys may be paths. What ops say of their keys stays, as
        do their attributes. A wire whose value is cleared is an input that wants data. Nothing
        happens where nothing was said. Cost: linear in the outermost model; facts are solved again
        when they are asked for.

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Add()(left=ml.IOKey("x", shape=[2, 3]), right=ml.IOKey("y"), output="z")
        >>> model.clear("x", shape=True)
        >>> model.set_shapes(x=[4])
        """
        chosen = {
            "value": value,
            "shape": shape,
            "type": type,
            "differentiability": differentiability,
        }
        facets = sum(
            bit for what, bit in _FACETS.items() if checked_bool(f"clear: {what}", chosen[what])
        )
        self._node.clear(
            [self._wire_at("clear", key) for key in keys], facets or sum(_FACETS.values())
        )

    @public
    def change(
        self,
        key: str | Connection,
        *,
        value: Any = NOT_GIVEN,
        shape: Any = NOT_GIVEN,
        type: Any = None,
        differentiable: bool | None = None,
        initial: bool = False,
    ) -> None:
        """Says something else of a wire: `clear` of what is given here, and the setter, in one.

        Facts are solved again at once; if the new one clashes with others, its error is raised
        and nothing has changed. Cost: linear in the outermost model.

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Add()(left="x", right=ml.IOKey("c", value=2.0), output="y")
        >>> model.change("c", value=3.0)
        """
        given = TBD if value is NOT_GIVEN else value
        spec = list(
            key_spec(
                None,
                given,
                None if shape is NOT_GIVEN else shape,
                type,
                differentiable,
                what="change: value",
            )
        )
        spec[2] = checked_bool("change: initial", initial)
        self._node.change(self._wire_at("change: key", key), tuple(spec))

    # --- look-up --------------------------------------------------------------------------------
    @property
    @public
    def submodels(self) -> dict[str, Model]:
        """The submodels by name, in the order of insertion."""
        nodes = self._node.submodels
        names = self._node.submodel_names
        return {name: adopt(self, handle(node)) for name, node in zip(names, nodes, strict=True)}

    @public
    def get_submodel(self, path: str) -> Model:
        """The submodel at a dotted path, "encoder.layer_3.attention".

        Unnamed submodels go by their names in `submodels` ("Linear_0"), in lower case, too, as
        errors print them. Raises `KeyNotFound` with a suggestion.
        """
        found = handle(self._node.submodel(checked_str("get_submodel", path)))
        self._adopt_chain(found)
        return found

    # --- inside ---------------------------------------------------------------------------------
    def _part(self, what: str, submodel: Any) -> Any:
        """The node of a submodel given by handle or path."""
        if isinstance(submodel, Editing):
            return submodel._node
        if not isinstance(submodel, str):
            raise SignatureError(f"{what}: requires a submodel or its path, got {shown(submodel)}")
        return self._node.submodel(checked_str(what, submodel))

    def _wire_at(self, what: str, key: Any) -> Any:
        found = key_of(what, key)
        return self._node.connection_at(found) if isinstance(found, str) else found

    def _boundary(self, what: str, side: Any) -> list[tuple[str, Any]]:
        if isinstance(side, Mapping):
            return [
                (checked_str(what, name), self._wire_at(what, key)) for name, key in side.items()
            ]
        keys = [side] if isinstance(side, (str, Connection)) else checked_list(what, side, "wires")
        return [("", self._wire_at(what, key)) for key in keys]

    def _forget(self, removed: list[tuple[Any, int]]) -> None:
        """Lets go of objects that parents kept alive, and of wires that are no more."""
        for parent, tag in removed:
            model = None if parent is None or parent.is_removed else known_handle(parent)
            if model is not None:
                model._children.pop(tag, None)
        wires = self._wires
        for key in [key for key, wire in wires.items() if wire._wire.is_removed]:
            del wires[key]

    def _adopt_chain(self, model: Model) -> None:
        """Keeps objects alive from the submodel up to this model."""
        while model is not self:
            parent = model.parent
            if parent is None:
                return
            adopt(parent, model)
            model = parent


def unused(model: Model, parent: Model | None = None) -> Model:
    """The model, or a copy of it where it is in use already: one model may be used in many places.

    A copy whose name is taken in `parent` gets a number behind it.
    """
    if not model._node.is_submodel:
        return model
    name = model.name
    if parent is not None and name is not None:
        taken = set(parent._node.submodel_names)
        number = 0
        while name in taken:
            number += 1
            name = f"{model.name}_{number}"
    return model.clone(name)


def with_shared(model: Model, connections: dict[str, Any]) -> dict[str, Any]:
    """The connections, and those to the parameters of the model that this one shares."""
    if model._share is None:
        return connections
    original = model._share()
    if original is None:
        raise ArgumentError(f"{model!r}: the model that it shares parameters with is no more")
    node = model._node
    shared = {
        key: connection_on(original._node.connection(key))
        for key in node.input_keys
        if not node.is_valued(key) and node.differentiable(key)
    }
    return {**shared, **connections}


def _name_boundary(model: Model) -> None:
    """Names unnamed data inputs and outputs as they are shown; parameters stay unnamed."""
    node = model._node
    if node.op is not None:
        return
    keys = [
        key
        for key in node.external_keys
        if key.startswith("$") and not node.is_valued(key) and not node.differentiable(key)
    ]
    shown = dict(node.generate_keys(False, False))
    taken = set(node.all_keys)
    for key in keys:
        name = shown[key].removeprefix("$") if key in shown else node.key_origin(key)
        while name in taken:
            name = f"_{name}"
        taken.add(name)
        node.rename_key(key, name)


__all__ = ["Editing", "unused", "with_shared"]
