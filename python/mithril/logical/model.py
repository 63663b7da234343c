"""Models: nested, named, composed by `|=` and `+=`, and checked at every step by the engine."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mithril import _core
from mithril.base.checks import (
    checked_bool,
    checked_instance,
    checked_list,
    checked_size,
    checked_str,
)
from mithril.base.peer_names import model_member_here
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    MithrilWarning,
    NotAModelError,
    SignatureError,
    UnexpectedKeyError,
    UnknownNameError,
    shown,
    suggestion,
    warn,
)
from mithril.logical.arguments import key_of, model_name
from mithril.logical.calls import Call, Calls, ExtendInfo, refuse_as_child
from mithril.logical.connection import (
    NOT_GIVEN,
    TBD,
    Connection,
    ConnectionType,
    IOKey,
    Tensor,
    as_argument,
    as_arguments,
    connection_on,
)
from mithril.logical.conns import Connections
from mithril.logical.editing import Editing, unused, with_shared
from mithril.logical.handles import adopt, handle, keep, makes_handles
from mithril.logical.shapes import model_names, shapes_by_name
from mithril.logical.shortcuts import Shortcuts, class_of_op
from mithril.logical.stating import Stating
from mithril.logical.values import Uses

if TYPE_CHECKING:
    from mithril.logical.typing import Extension, Wire

# Ops whose result is Python data made of a tensor's content.
_NEEDS_VALUES = ("item", "tensor_to_list")


def create_node(outputs: Iterable, named: dict, name: str | None, class_name: str = "Model"):
    """The engine's node of a model made from expressions."""
    bad = [o for o in (*outputs, *named.values()) if not isinstance(o, Connection)]
    if bad:
        raise SignatureError(f"create: requires connections, got {type(bad[0]).__name__}")
    with Uses() as used:
        wires = {
            checked_str("create", key): as_argument(output, used) for key, output in named.items()
        }
        given = [as_argument(output, used) for output in outputs]
        return _core.ModelNode.create(given, wires, model_name(name), class_name)


@public
def define_unique_names(models: Iterable[Model]) -> dict[Model, str]:
    """Names models that stand side by side: as given, else after their classes."""
    models = checked_list("define_unique_names", models, "models")
    for model in models:
        checked_instance("define_unique_names", model, Model, "models")
    taken = {model.name for model in models}
    classes = [model.default_name for model in models if model.name is None]
    count = {cls: itertools.count() for cls in classes}
    names: dict[Model, str] = {}
    for model in models:
        cls = model.default_name
        if model.name is not None:
            names[model] = model.name
        elif classes.count(cls) == 1 and cls not in taken:
            names[model] = cls
        else:
            numbered = (f"{cls}_{i}" for i in count[cls])
            names[model] = next(name for name in numbered if name not in taken)
    return names


AnyModel = TypeVar("AnyModel", bound="Model")


class Model(Editing, Stating, Shortcuts):
    """A model. It grows by `|=` (wired by name) and `+=` (chained to the last output); `|` and `+`
    make a new model, and leave this one as it is.

    >>> import mithril as ml
    >>> model = ml.Model()
    >>> model |= ml.Linear(8)(input="input", output="hidden")
    >>> model += ml.Relu()(output="output")
    >>> sorted(model.input_keys)
    ['$1', '$2', 'input']
    """

    _node: Any = None
    _formula_key: str | None = None
    _outermost_only = False  # TrainModel: no submodel of others
    _is_trained = False  # the model of a TrainModel
    _predicted: Any = None  # of a TrainModel: the outputs of the model that it trains
    _request = None  # what calls of models have

    @public
    def __init__(self, name: str | None = None, formula_key: str | None = None) -> None:
        self._formula_key = (
            None if formula_key is None else checked_str("model: formula_key", formula_key)
        )
        self._attach(_core.ModelNode(model_name(name), type(self).__name__))

    def _attach(self, node) -> None:
        self._node = node
        self._children: dict[int, Model] = {}
        self._wires: dict[str, Connection] = {}
        keep(self, node)

    @property
    def _class_defaults(self) -> dict[str, Any]:
        """The values of keys that count until another one is given."""
        return {}

    # --- composing ----------------------------------------------------------------------------
    @public
    def __ior__(self, other: Extension) -> Self:
        return self._extend(other, canonical=False)

    @public
    def __or__(self, other: Extension) -> Self:
        return self._extended_copy(other, canonical=False)

    @public
    def __iadd__(self, other: Extension) -> Self:
        return self._extend(other, canonical=True)

    @public
    def __add__(self, other: Extension) -> Self:
        return self._extended_copy(other, canonical=True)

    @public
    def extend(self, model: Model, /, **connections: Wire) -> Self:
        """`self |= model.connect(**connections)`; returns self."""
        return self._extend(ExtendInfo(model, connections), canonical=False)

    def _extended_copy(self, other: Any, canonical: bool) -> Self:
        """Returns an extended copy, the result of `model + other`; this model is left as it is."""
        copy = self.clone()
        request = getattr(other, "_request", None)
        if request is None:
            if isinstance(other, ExtendInfo):
                other = ExtendInfo(other.model, copy._own_wires(other.connections, self))
            return copy._extend(other, canonical)
        given = request.connections
        request.connections = copy._own_wires(given, self)
        try:
            return copy._extend(other, canonical)
        except BaseException:
            request.connections = given  # the call can still be used elsewhere
            raise

    def _own_wires(self, connections: dict[str, Any], original: Model) -> dict[str, Any]:
        """The connections, with wires of this copy instead of the original's."""
        own = dict(connections)
        for key, value in connections.items():
            is_wire = isinstance(value, Connection) and value._request is None
            if is_wire and value.model is original:
                own[key] = self[value.key]
        return own

    def _extend(self, other: Any, canonical: bool) -> Self:
        request = getattr(other, "_request", None)
        if request is not None:
            child, connections = request.as_extension()
        elif isinstance(other, ExtendInfo):
            child, connections = other.model, other.connections
        elif isinstance(other, Model):
            refuse_as_child(other)
            child, connections = other, {}
        else:
            raise NotAModelError(
                f"extend: requires a model, or a model with connections, got {type(other).__name__}"
            )
        if request is None:
            connections = with_shared(child, connections)
        child = unused(child, self)
        with Uses() as used:
            arguments = as_arguments(child, connections, used)
            self._node.extend(child._node, arguments, canonical)
        adopt(self, child)
        if request is not None:
            request.extended(child)
        self._warn_of_hidden(connections.values())
        return self

    def _warn_of_hidden(self, values: Iterable[Any]) -> None:
        for value in values:
            if type(value) is str and hasattr(type(self), value):
                warn(
                    f"a wire named {value!r} is reached by model[{value!r}] only: models have a"
                    " member of that name",
                    MithrilWarning,
                )

    @public
    def connect(self, /, **connections: Wire) -> ExtendInfo:
        """Returns the model with wires for its keys, as `|=` and `+=` take it."""
        return ExtendInfo(self, connections)

    @public
    def __call__(self, /, *args: Wire, **kwargs: Wire) -> Call:
        """Functional use; positional arguments in `connect` order. `|=` takes the result, too."""
        connections = dict(zip(self._argument_order(len(args)), args, strict=True))
        twice = connections.keys() & kwargs.keys()
        if twice:
            raise SignatureError(f"{self!r}: {sorted(twice)[0]!r} is given twice")
        connections |= kwargs
        if connections and (hint := self._never_composed()):
            raise UnexpectedKeyError(
                f"{type(self).__name__} has no key {min(connections)!r}", hint=hint
            )
        many = len(self._node.output_keys or self._node.couts) > 1
        return (Calls if many else Call)(self, connections)  # type: ignore[return-value]

    def _argument_order(self, count: int) -> list[str]:
        order = self._node.connect_order
        if count > len(order):
            raise SignatureError(
                f"{self!r}: takes at most {len(order)} positional arguments"
                f" ({', '.join(order)}), got {count}",
                hint=self._never_composed(),
            )
        return order[:count]

    def _never_composed(self) -> str:
        """A hint for a class that has PyTorch's `forward` or Keras' `call`, which nobody
        calls, and no wires."""
        own = vars(type(self))
        runs = next((name for name in ("forward", "call") if callable(own.get(name))), None)
        if runs is None or self._node.all_keys:
            return ""
        return (
            f'{runs} is not called: write `self |= layer(input="x", output="y")` in __init__, or'
            " make a function of connections with @ml.functional"
        )

    @classmethod
    @public
    def create(cls, /, *outputs: Connection, name: str | None = None, **named: Connection) -> Model:
        """A frozen model of the expressions that the connections stand for.

        >>> import mithril as ml
        >>> x = ml.IOKey("x")
        >>> ml.Model.create(out=2 * x + 1).output_keys
        ['out']
        """
        return handle(create_node(outputs, named, name))

    def _freeze(self) -> None:
        self._node.freeze()

    # --- wires ----------------------------------------------------------------------------------
    @public
    def __getitem__(self, key: str) -> Connection:
        """The wire of that name ("h", "$3"), or at that path ("encoder.linear_1.weight")."""
        if not isinstance(key, str):
            raise SignatureError(f"model[...]: requires the name of a wire, got {shown(key)}")
        return self._wire_object(key, self._node.connection_at(checked_str("model[...]", key)))

    def _wire_object(self, key: str, wire: Any) -> Connection:
        """The object that earlier look-ups of the wire returned."""
        known = self._wires.get(key)
        if known is None or not known._wire.same_wire(wire):
            known = self._wires[key] = connection_on(wire)
        return known

    def __getattr__(self, name: str) -> Connection:
        if name.startswith(("_", "$")) or self._node is None:
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        wire = self._node.find_connection(name)
        if wire is None:
            title = f"{type(self).__name__} has no wire or member {name!r}"
            known = [*self._node.all_keys, *dir(type(self))]
            ours = [key for key in known if not key.startswith(("_", "$"))]
            raise UnknownNameError(title + (model_member_here(name) or suggestion(name, ours)))
        return self._wire_object(name, wire)

    @property
    def input_keys(self) -> list[str]:
        return self._node.input_keys

    @property
    def output_keys(self) -> list[str]:
        return self._node.output_keys

    @property
    def external_keys(self) -> list[str]:
        return self._node.external_keys

    @property
    def conns(self) -> Connections:
        return Connections(self)

    @property
    @public
    def cin(self) -> Connection:
        """The canonical input; an error unless there is exactly one."""
        return connection_on(self._node.cin)

    @property
    @public
    def cout(self) -> Connection:
        return connection_on(self._node.cout)

    # --- what is known --------------------------------------------------------------------------
    @property
    @public
    def shapes(self) -> dict[str, list[Any] | Any]:
        return self.get_shapes()

    @public
    def get_shapes(
        self,
        uni_keys: dict[str, str] | None = None,
        var_keys: dict[str, str] | None = None,
        symbolic: bool = True,
        verbose: bool = False,
    ) -> dict[str, list[Any] | Any]:
        """Key -> sizes, names ("u1") and "(V1, ...)"; None for what is no tensor.

        Unnamed keys have their generated names, as `generate_keys` tells them.

        Parameters
        ----------
        uni_keys, var_keys : what to print for "u1" and "V1"; they get the names that they lack
        symbolic : False: None and "..." instead of names
        verbose : all that is known of a shape, as a list, where that is more than one list

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Linear(8)(input="x", output="y")
        >>> model.get_shapes()
        {'$weight': [8, 'u1'], 'x': ['(V1, ...)', 'u1'], '$bias': [8], 'y': ['(V1, ...)', 8]}
        """
        symbolic = checked_bool("get_shapes: symbolic", symbolic)
        verbose = checked_bool("get_shapes: verbose", verbose)
        names = model_names(self._node)
        return shapes_by_name(self._node, names, symbolic, verbose, uni_keys, var_keys)

    @public
    def solve(
        self, *keys: str | Connection, at_most: int = 64, steps: int = 100_000
    ) -> dict[str, list[int]]:
        """Finds the sizes that the open symbols of the shapes may have.

        Parameters
        ----------
        keys : wires whose symbols are wanted; none means all wires of the model
        at_most : sizes 1 ... at_most are tried
        steps : the search stops after that many steps of inference

        Returns
        -------
        For each symbol the legal sizes: those with which every other symbol has one, too.

        Raises
        ------
        UnsupportedError : if the search is not finished after its last step (MTH803)

        >>> import mithril as ml
        >>> model = ml.Model()
        >>> model |= ml.Reshape((2, -1))(input="x", output="y")
        >>> model.set_shapes(x=["N", 3])
        >>> model.solve("x", at_most=6)
        {'N': [2, 4, 6]}
        """
        bounds = [checked_size("solve: at_most", at_most), checked_size("solve: steps", steps)]
        return dict(self._node.legal_sizes([key_of("solve", key) for key in keys], *bounds))

    # --- the tree -------------------------------------------------------------------------------
    @property
    def name(self) -> str | None:
        return self._node.name or None

    @property
    def default_name(self) -> str:
        """The name that unnamed submodels of this class are called after."""
        return self._node.class_name

    @property
    def formula_key(self) -> str | None:
        """The name of the function that a backend may have for the model as a whole."""
        return self._formula_key

    @property
    def grad_formula(self) -> str:
        if self.formula_key is None:
            raise AttributeError(f"{self!r} has no formula key, and so no gradient formula")
        return f"{self.formula_key}_grad"

    @property
    def factory_args(self) -> dict[str, Any]:
        """The arguments that the constructor was called with."""
        return {}

    @property
    def safe_shapes(self) -> dict[str, list[Any]]:
        """Shapes that compile states for the keys of losses unless `safe_shapes=False`."""
        return {}

    @property
    def jittable(self) -> bool:
        """Tells whether nothing in the model turns a tensor's content into Python values."""
        stack = [self._node]
        while stack:
            node = stack.pop()
            if node.op in _NEEDS_VALUES:
                return False
            stack += node.submodels
        return True

    @property
    def is_frozen(self) -> bool:
        return self._node.is_frozen

    @property
    def parent(self) -> Model | None:
        node = self._node.parent
        return None if node is None else handle(node)

    @property
    def dag(self) -> dict[Model, dict[str, Connection]]:
        """Submodel -> its keys and the wires of this model that they are connected to."""
        return {
            adopt(self, handle(child)): {
                key: connection_on(wire) for key, wire in self._node.wiring(child)
            }
            for child in self._node.submodels
        }

    @public
    def get_models_in_topological_order(self, start: Model | None = None) -> list[Model]:
        """Submodels, producers before their readers; from `start` on if it is given."""
        models = [adopt(self, handle(node)) for node in self._node.topological_submodels]
        if start is None:
            return models
        if not any(start is model for model in models):
            raise ArgumentError(f"get_models_in_topological_order: {shown(start)} is no submodel")
        return models[models.index(start) :]

    @public
    def get_unique_submodel_names(self) -> dict[Model, str]:
        nodes = self._node.submodels
        return dict(
            zip((adopt(self, handle(n)) for n in nodes), self._node.submodel_names, strict=True)
        )

    @public
    def get_outermost_parent(self) -> Model:
        return handle(self._node.outermost)

    @public
    def generate_keys(
        self, symbolic: bool = True, include_internals: bool = True, include_outputs: bool = False
    ) -> dict[str, str]:
        """Unnamed keys -> the names that they are shown with."""
        symbolic = checked_bool("generate_keys: symbolic", symbolic)
        pairs = self._node.generate_keys(
            checked_bool("generate_keys: include_internals", include_internals),
            checked_bool("generate_keys: include_outputs", include_outputs),
        )
        return {key: name if symbolic else name.removeprefix("$") for key, name in pairs}

    @property
    def state_connections(self) -> list[tuple[str, str]]:
        return self._node.states

    def __repr__(self) -> str:
        known = self._node is not None and not self._node.is_removed
        name = self._node.name if known else ""
        return f"{type(self).__name__}({name!r})" if name else f"{type(self).__name__}()"

    def __dir__(self) -> list[str]:
        keys = [k for k in self._node.all_keys if not k.startswith("$")]
        return [*super().__dir__(), *keys]


def object_of(cls: type[AnyModel], node: Any) -> AnyModel:
    """Makes an object of a class for a node that exists."""
    model = cls.__new__(cls)
    model._attach(node)
    return model


def _made(node: Any) -> Model:
    """Makes an object of a node, of the class of its op."""
    return object_of(Model if node.op is None else class_of_op(node.op), node)


makes_handles(_made)


def stands_alone(model: Model) -> bool:
    """Tells whether a model can be no part of another: one with a cost."""
    return model._outermost_only


def note_trained(model: Model) -> None:
    """Notes that a model is what a `TrainModel` trains: it may be compiled by itself."""
    model._is_trained = True


def is_trained(model: Model) -> bool:
    """Tells whether a model is what a `TrainModel` trains."""
    return model._is_trained


def predicted_by(model: Model) -> tuple[str, ...] | None:
    """The outputs of the model that a `TrainModel` trains; None for other models."""
    return None if model._predicted is None else tuple(model._predicted)


__all__ = [
    "TBD",
    "NOT_GIVEN",
    "Call",
    "Connection",
    "ConnectionType",
    "ExtendInfo",
    "IOKey",
    "Model",
    "Tensor",
]
