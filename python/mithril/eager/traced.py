"""Derivatives of Python functions for backends whose arrays have none: the function is recorded
once as a model, and the engine differentiates that."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

from mithril.base.numpy import np
from mithril.base.trees import filled, leaves, ordered
from mithril.errors import ArgumentError, MithrilError, SignatureError, TraceError, shown
from mithril.logical.connection import Connection, IOKey, Tensor
from mithril.logical.model import Model
from mithril.models import Buffer, Gradient
from mithril.physical.compile import compile as compile_model
from mithril.types import Dtype

_HINT = "write it with operators and methods of arrays, or with methods of the backend"


class Recording:
    """A function, recorded for arguments of the shapes and types that are given.

    Arrays and floats of nests are inputs; everything else (ints, strings, flags) is handed to the
    function as it is.
    """

    def __init__(self, backend: Any, fn: Callable[..., Any], arguments: Sequence[Any], aux: bool):

        self._backend = backend
        self.arrays: list[Any] = []  # the leaves that are inputs
        self._of: list[int] = []  # which argument each of them belongs to
        self._arguments = list(arguments)
        traced = [self._with_keys(n, argument) for n, argument in enumerate(arguments)]
        result = self._called(fn, traced)
        self.aux: Any = None
        if aux:
            if not isinstance(result, tuple) or len(result) != 2:
                raise SignatureError("has_aux: the function must return a pair (output, aux)")
            result, self._aux_tree = result
        self._tree = result
        self._aux_leaves = leaves(self._aux_tree) if aux else []
        self.results = leaves(result)
        wires = [x for x in (*self.results, *self._aux_leaves) if isinstance(x, Connection)]
        self._computed = {id(wire): f"y{i}" for i, wire in enumerate(wires)}
        self.model = self._model(wires)

    # --- recording --------------------------------------------------------------------------------

    def _with_keys(self, number: int, argument: Any) -> Any:
        return filled(argument, iter([self._key(number, leaf) for leaf in leaves(argument)]))

    def _key(self, number: int, leaf: Any) -> Any:

        backend = self._backend
        if not self._is_input(leaf):
            return leaf
        array = leaf if backend._is_native(leaf) else backend.tensor(leaf)
        array = backend._as_array(array)
        dtype = backend.dtype(array)
        kind: Any = bool if dtype is Dtype.bool else float if dtype.is_float else int
        name = f"x{len(self.arrays)}"
        self.arrays.append(array)
        self._of.append(number)
        return IOKey(name, shape=list(backend.shape(array)), type=cast(Any, Tensor)[kind])

    def _is_input(self, leaf: Any) -> bool:
        return self._backend._is_native(leaf) or isinstance(leaf, np.ndarray | np.generic | float)

    def _called(self, fn: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        try:
            return fn(*arguments)
        except MithrilError as error:
            raise TraceError(
                f"{_name(fn)}: cannot be recorded: {error.message}", hint=_HINT
            ) from error
        except (TypeError, ValueError, AttributeError) as error:
            raise TraceError(f"{_name(fn)}: cannot be recorded: {error}", hint=_HINT) from error

    def _model(self, wires: Sequence[Any]) -> Any:

        if not wires:
            return None
        named: dict[str, Any] = {self._computed[id(wire)]: Buffer()(wire) for wire in wires}
        return Model.create(**named)

    # --- running ----------------------------------------------------------------------------------

    def names_of(self, argument: int) -> list[str]:
        return [f"x{i}" for i, of in enumerate(self._of) if of == argument]

    def compiled(self, model: Any) -> Any:

        known = [f"x{i}" for i in range(len(self.arrays))]
        present = [name for name in known if name in model.input_keys]
        types: dict[Any, Any] = {
            name: self._backend.dtype(self.arrays[int(name[1:])]) for name in present
        }
        data = [key for key in model.input_keys if not key.startswith("$")]
        return compile_model(
            model, self._backend._runs_ops(self.arrays), data_keys=data, types=types, jit=False
        )

    def by_name(self, values: Sequence[Any]) -> dict[str, Any]:
        """Picks from values for all leaves of the arguments those of float inputs that are read."""
        known = set() if self.model is None else set(self.model.input_keys)
        given = [v for v, leaf in zip(values, leaves(self._arguments), strict=True)
                 if self._is_input(leaf)]  # fmt: skip
        named = {f"x{i}": value for i, value in enumerate(given)}
        return {
            name: value
            for name, value in named.items()
            if name in known and self._backend.dtype(self.arrays[int(name[1:])]).is_float
        }

    def data(self) -> dict[str, Any]:
        return {f"x{i}": array for i, array in enumerate(self.arrays)}

    def run(self) -> dict[str, Any]:
        if self.model is None:
            return {}
        physical = self._physical()
        return physical.evaluate({}, self._present(physical))

    def run_gradient(self, cotangents: dict[str, Any], wrt: Sequence[str]) -> tuple[dict, dict]:
        """Returns outputs, and gradients of `wrt`: zeros for inputs that no output depends on."""
        zeros = {name: self._backend.zeros_like(self.arrays[int(name[1:])]) for name in wrt}
        if self.model is None:
            return {}, zeros
        physical = self._physical()
        present = [name for name in wrt if name in physical.data_keys]
        if not cotangents or not present:
            return self.run(), zeros
        result = physical.evaluate(
            {}, self._present(physical), output_gradients=cotangents, wrt=present
        )
        return result.outputs, {**zeros, **result.gradients}

    def _physical(self) -> Any:
        if "_compiled" not in self.__dict__:
            self._compiled = self.compiled(self.model)
        return self._compiled

    def _present(self, physical: Any) -> dict[str, Any]:
        return {name: value for name, value in self.data().items() if name in physical.data_keys}

    def output(self, outputs: dict[str, Any]) -> Any:
        return self._values(self._tree, outputs)

    def auxiliary(self, outputs: dict[str, Any]) -> Any:
        return self._values(self._aux_tree, outputs)

    def movement(self, moved: dict[str, Any]) -> Any:
        """Returns the tangents in the form of the result; those of values not computed are 0."""
        backend = self._backend

        def change(leaf: Any) -> Any:
            name = self._computed.get(id(leaf))
            if name is not None:
                return moved[name]
            return backend.zeros_like(leaf) if backend._is_native(leaf) else 0.0

        return filled(self._tree, iter([change(leaf) for leaf in self.results]))

    def _values(self, tree: Any, outputs: dict[str, Any]) -> Any:
        return filled(tree, iter([self._value(leaf, outputs) for leaf in leaves(tree)]))

    def _value(self, leaf: Any, outputs: dict[str, Any]) -> Any:
        name = self._computed.get(id(leaf))
        return leaf if name is None else outputs[name]

    def cotangents(self, given: Any) -> dict[str, Any]:
        """Returns cotangents by output name, from a nest of the form of the result."""
        values = _matching(given, self._tree, "vjp: requires a cotangent for each result")
        pairs = zip(self.results, values, strict=True)
        return {self._computed[id(r)]: v for r, v in pairs if id(r) in self._computed}

    def argument(self, number: int, by_name: dict[str, Any]) -> Any:
        """Returns a nest of the form of an argument with the values of its inputs."""
        names = iter(self.names_of(number))

        def value(leaf: Any) -> Any:
            return by_name[next(names)] if self._is_input(leaf) else None

        tree = self._arguments[number]
        return filled(tree, iter([value(leaf) for leaf in leaves(tree)]))

    def slope_name(self, fn: Callable[..., Any]) -> str:
        """Returns the name of the result, which must be one scalar."""
        if len(self.results) == 1 and id(self.results[0]) in self._computed:
            name = self._computed[id(self.results[0])]
            if self.model.shapes[name] == []:
                return name
        got = [self.model.shapes[self._computed[id(r)]] for r in self.results
               if id(r) in self._computed]  # fmt: skip
        raise ArgumentError(
            f"grad: {_name(fn)} must return one scalar that depends on its argument, got shapes"
            f" {got or shown(self._tree)}"
        )


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", "the function")


def value_and_grad(backend: Any, fn: Callable[..., Any], arguments: Sequence[Any]) -> tuple:
    recording = Recording(backend, fn, arguments, aux=False)
    name = recording.slope_name(fn)
    one = backend.ones((), dtype=_float_of(backend, recording))
    outputs, gradients = recording.run_gradient({name: one}, recording.names_of(0))
    return recording.output(outputs), recording.argument(0, gradients)


def _float_of(backend: Any, recording: Recording) -> Dtype:
    dtypes = [backend.dtype(array) for array in recording.arrays]
    return next((dtype for dtype in dtypes if dtype.is_float), backend.default_dtype)


def pull_back(
    backend: Any, fn: Callable[..., Any], arguments: Sequence[Any], has_aux: bool
) -> tuple[Any, Callable[[Any], tuple], Any]:
    """(output, function from cotangents to gradients of the arguments, auxiliary output)."""
    recording = Recording(backend, fn, arguments, has_aux)
    outputs = recording.run()
    every = [f"x{i}" for i in range(len(recording.arrays))]

    def pull(cotangent: Any) -> tuple:
        gradients = recording.run_gradient(recording.cotangents(cotangent), every)[1]
        return tuple(recording.argument(n, gradients) for n in range(len(arguments)))

    aux = recording.auxiliary(outputs) if has_aux else None
    return recording.output(outputs), pull, aux


def push_forward(
    backend: Any, fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    """Output, and its derivative along tangents.

    The gradient of the outputs weighed by w is linear in w; so is its product with the tangents,
    whose derivative by w is what is wanted.
    """
    recording = Recording(backend, fn, primals, aux=False)
    outputs = recording.run()
    moving = {n: y for n, y in outputs.items() if backend.dtype(y).is_float}
    along = _matching(list(tangents), list(primals), "jvp: requires a tangent for each primal")
    tangent_of = recording.by_name(along)
    moved = {name: backend.zeros_like(y) for name, y in outputs.items()}
    if moving and tangent_of:
        physical = recording.compiled(_slope_model(backend, recording, moving, tangent_of))
        zeros = {f"w_{name}": backend.zeros_like(y) for name, y in moving.items()}
        data = {**recording.data(), **{f"t_{n}": t for n, t in tangent_of.items()}, **zeros}
        got = physical.evaluate({}, {k: v for k, v in data.items() if k in physical.data_keys})
        moved |= {name: got[f"d_{name}"] for name in moving}
    return recording.output(outputs), recording.movement(moved)


def _matching(given: Any, like: Any, requirement: str) -> list[Any]:
    """Returns the leaves of a nest, which must have the form of `like`."""
    try:
        found = leaves(ordered(given, like))
    except (KeyError, TypeError, ValueError):
        found = []
    wanted = len(leaves(like))
    if len(found) != wanted:
        got = len(leaves(given))
        raise ArgumentError(f"{requirement}: {wanted}, in a nest of the same form; got {got}")
    return found


def _slope_model(
    backend: Any, recording: Recording, moving: dict[str, Any], tangent_of: dict[str, Any]
) -> Any:

    def key(name: str, like: Any) -> IOKey:
        return IOKey(name, shape=list(backend.shape(like)), type=cast(Any, Tensor)[float])

    model = Model()
    inner = recording.model
    model |= inner.connect(**{k: k for k in (*inner.input_keys, *moving)})
    weights: dict[str, Any] = {name: key(f"w_{name}", y) for name, y in moving.items()}
    weighed = functools.reduce(operator.add, [(model[n] * w).sum() for n, w in weights.items()])
    slope = functools.reduce(
        operator.add,
        [
            (Gradient()(weighed, model[name]) * key(f"t_{name}", t)).sum()
            for name, t in tangent_of.items()
        ],
    )
    for name in moving:
        model |= Gradient().connect(of=slope, wrt=weights[name], output=f"d_{name}")
    model.expose_keys(*(f"d_{name}" for name in moving))
    return model


def vmap(backend: Any, fn: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Applies a function to each row of its arguments' arrays; returns the stacked results."""
    arrays = [x for x in leaves(list(arguments)) if backend._is_native(x)]
    sizes = {int(x.shape[0]) for x in arrays if x.ndim}
    if len(sizes) != 1:
        raise ArgumentError(
            f"vmap: requires arrays of one size in their first axis, got {sorted(sizes) or 'none'}"
        )

    def row(x: Any, i: int) -> Any:
        return backend._as_array(x[i]) if backend._is_native(x) else x

    rows = []
    for i in range(sizes.pop()):
        at = filled(list(arguments), iter([row(x, i) for x in leaves(list(arguments))]))
        rows.append(fn(*at))
    if not rows:
        raise ArgumentError("vmap: arrays without rows tell nothing of the result")
    columns = zip(*(leaves(result) for result in rows), strict=True)
    return filled(rows[0], iter([_stacked(backend, column) for column in columns]))


def _stacked(backend: Any, arrays: Sequence[Any]) -> Any:
    return backend._beside(arrays[0], backend._from_host(np.stack(arrays)))


def jacobian(backend: Any, fn: Callable[..., Any], x: Any) -> Any:
    """Computes the Jacobian, with a row for each element of the result."""
    output, pull, _ = pull_back(backend, fn, (x,), False)
    size = int(np.size(output))
    basis = np.eye(size, dtype=np.asarray(output).dtype).reshape(size, *np.shape(output))
    rows = [np.asarray(pull(backend._from_host(row))[0]) for row in basis]
    shape = (*np.shape(output), *np.shape(x))
    return backend._beside(x, backend._from_host(np.reshape(rows, shape).astype(basis.dtype)))
