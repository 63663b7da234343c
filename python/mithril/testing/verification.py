"""`verify`: one model on several backends, node by node, against NumPy in float64.

The reference is itself compared with the oracle, which shares nothing with the engine.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mithril.backends.backend import Backend
from mithril.backends.registry import get_backend
from mithril.backends.with_manualgrad.numpy_backend import NumpyBackend
from mithril.base.checks import checked_instance, checked_list, checked_mapping, checked_str
from mithril.base.public import public
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    MithrilError,
    MithrilWarning,
    ShapeNotKnown,
    SignatureError,
    UnsupportedError,
    shown,
    suggestion,
)
from mithril.execution.primitives import formula_of, is_opaque
from mithril.logical.handles import node_of
from mithril.logical.model import Model
from mithril.physical.compilation import compilation_of
from mithril.physical.compile import compile as compile_model
from mithril.physical.key_facts import key_facts_of
from mithril.testing import oracle
from mithril.testing._node_run import NodeRun, emitted_line
from mithril.testing._probes import probed
from mithril.testing._registered import lend
from mithril.testing._verified import Divergence, Verification, Verified, of_the_whole
from mithril.testing.distances import TOLERANCE, distance, is_float
from mithril.types import Dtype

DEFAULT = ("numpy", "cpu")


@public
def verify(
    model: Any,
    backends: Iterable[Any] | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    mixed_devices: bool = False,
    **options: Any,
) -> Verification:
    """Runs a model forward and backward on each backend and names the first node that diverges.

    What backends have registered (`register_function`) runs on the reference, too, and its
    gradients are central differences there.

    Parameters
    ----------
    backends : instances, or names; None: NumPy and the CPU engine
    inputs : data and parameters by key; what is left out is drawn from `seed`
    shapes : of data that are not given
    tolerance : largest difference relative to a result's largest element (or 1); None: by dtype
    mixed_devices : whether the backends may compute on different devices
    options : for `compile`: `data_keys`, `mode`, `jit`, `autodiff`, `constant_keys` …

    Raises
    ------
    ShapeNotKnown : an input that is not given has open sizes

    >>> import mithril as ml
    >>> model = ml.Model(name="net")
    >>> model |= ml.Linear(4, name="first")(input="x", output="h")
    >>> model |= ml.Tanh(name="act")(input="h", output="y")
    >>> report = ml.verify(model, ["numpy", "cpu"], shapes={"x": [2, 3]})
    >>> bool(report), [row.nodes for row in report.rows]
    (True, [2, 2, 2])
    """
    task = prepared(
        model, backends, inputs=inputs, shapes=shapes, seed=seed, tolerance=tolerance, **options
    )
    devices = {str(backend.get_device()).partition(":")[0] for backend in task.backends}
    if len(devices) > 1 and not mixed_devices:
        raise ArgumentError(
            f"verify: requires backends on one device, got {', '.join(sorted(devices))}",
            hint="mixed_devices=True compares them all the same",
        )
    rows = [task.reference_row(), *map(task.row, task.backends)]
    return Verification(model.name or type(model).__name__, seed, rows)


def prepared(
    model: Any,
    backends: Iterable[Any] | None,
    *,
    inputs: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    **options: Any,
) -> Task:
    """A model with values for its inputs, and its results on the reference."""
    return Task(model, _backends(backends), inputs, shapes, seed, tolerance, options)


def _backends(given: Any) -> list[Any]:
    chosen = checked_list(
        "verify: backends", DEFAULT if given is None else given, "backends or names"
    )
    made = [get_backend(each) if type(each) is str else each for each in chosen]
    for backend in made:
        checked_instance(
            "verify: backends", backend, Backend, "instances of backends, or their names"
        )
    return made


def _refuse_derivatives(model: Any) -> None:
    """The reference computes what a file says, and has no derivatives (testing/oracle.py)."""
    rest = [node_of(model)] if isinstance(model, Model) else []
    while rest:
        node = rest.pop()
        if node.op == "gradient":
            raise UnsupportedError(
                "verify: the model has a Gradient, and the reference does not differentiate",
                hint="verify the model that it is of: its gradients are compared, too",
            )
        rest += node.submodels


def _refuse_nameless(reference: Any) -> None:
    for op, path, *_ in compilation_of(reference).compiled.typed.nodes(inner=True):
        if is_opaque(op):
            raise UnsupportedError(
                f"verify: {path or 'the model'} calls a function that has no name, so that nothing"
                " can be compared with it",
                hint='give it one: backend.register_function("name", function) and'
                ' ml.Lambda("name", …)',
            )


class Task:
    """A model with the values that every backend gets, and the reference's results."""

    def __init__(
        self, model: Any, backends: list, inputs: Any, shapes: Any, seed: Any, tolerance: Any,
        options: dict[str, Any],
    ):  # fmt: skip
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise SignatureError(f"verify: seed requires an integer from 0 on, got {shown(seed)}")
        is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
        if tolerance is not None and not (is_number and tolerance >= 0):
            raise ArgumentError(f"verify: tolerance requires a number from 0 on, got {tolerance!r}")
        _refuse_derivatives(model)
        self.model, self.backends, self.tolerance = model, backends, tolerance
        self.given = dict(checked_mapping("verify: inputs", inputs))
        for name in self.given:
            checked_str("verify: inputs", name)
        self.options = dict(options)
        self.options["shapes"] = self._shapes(dict(checked_mapping("verify: shapes", shapes)))
        self.seed = seed
        self._narrow = {str(b.default_dtype) for b in backends} | {"float32"}
        double = NumpyBackend(dtype="float64")
        lend(double, backends)
        self.reference = self._compiled(double, autodiff=None, jit=False)
        self.inputs = self._drawn()
        self.weights: dict[str, np.ndarray] = {}
        self.outputs, _ = self._evaluated(self.reference)
        self.weights = self._weights()
        self.outputs, self.gradients = self._evaluated(self.reference)
        _refuse_nameless(self.reference)
        self.run = NodeRun(self, self.reference)

    def _shapes(self, stated: dict[str, Any]) -> dict[str, Any]:
        for key, shape in stated.items():
            checked_list(f"verify: shapes: {shown(key)}", shape, "a list of sizes")
        keys = set(self.model.input_keys) if isinstance(self.model, Model) else set()
        found = {k: np.shape(v) for k, v in self.given.items() if hasattr(v, "shape") and k in keys}
        return {**found, **stated}

    def _compiled(self, backend: Any, **changed: Any) -> Any:
        return compile_model(self.model, backend, **{**self.options, **changed})

    # --- values -------------------------------------------------------------------------------
    def _drawn(self) -> dict[str, Any]:
        """A value for each input that every backend's floats hold exactly."""
        reference = self.reference
        random = np.random.default_rng(self.seed)
        first = {**reference.randomize_params(self.seed), **reference.initial_state(self.seed)}
        # Data first: what parameters lack follows from them.
        keys = sorted(compilation_of(reference).keys, key=lambda key: key.role != "data")
        unknown = self.given.keys() - {key.name for key in keys}
        if unknown:
            name = min(unknown)
            near = suggestion(name, [key.name for key in keys])
            raise KeyNotFound(f"verify: inputs: the model has no input {name!r}{near}")
        return {key.name: self._value(key, first, random) for key in keys}

    def _value(self, key: Any, first: dict[str, Any], random: np.random.Generator) -> Any:
        if key.name in self.given:
            value = self.given[key.name]
            return self._held(np.asarray(value)) if key.is_tensor else value
        shape = key_facts_of(self.reference).sizes().get(key.name)
        if not key.is_tensor or shape is None or None in shape:
            raise ShapeNotKnown(
                f"verify: requires a value for '{key.name}', its shape is {shape}",
                hint=f"give shapes={{'{key.name}': …}} or inputs={{'{key.name}': …}}",
            )
        if key.role == "state":
            return np.asarray(first[key.name])
        if key.dtype is None or not key.dtype.is_float:
            return random.integers(0, 2, shape).astype(key.dtype.numpy() if key.dtype else int)
        drawn = random.standard_normal(shape)
        if key.name in first:  # near where training starts, but at no special point like 0
            drawn = np.asarray(first[key.name]) + 0.1 * drawn
        return self._held(drawn)

    def _held(self, values: np.ndarray) -> np.ndarray:
        if not is_float(values):
            return values
        for name in sorted(self._narrow):
            values = values.astype(Dtype(name).numpy())
        return values.astype(np.float64)

    def _weights(self) -> dict[str, np.ndarray]:
        """Random cotangents for the float outputs."""
        random = np.random.default_rng((self.seed, 1))
        return {
            name: self._held(random.standard_normal(np.shape(value)))
            for name, value in self.outputs.items()
            if is_float(np.asarray(value))
        }

    # --- running ------------------------------------------------------------------------------
    def _evaluated(self, pm: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Outputs and gradients as a user gets them."""
        params = {n: self.inputs[n] for n in pm.param_keys}
        data = {n: self.inputs[n] for n in pm.data_keys}
        state = {n: self.inputs[n] for n in pm.state_keys} or None
        arrays = {n: pm.backend.tensor(v, pm_dtype(pm, n)) for n, v in params.items()}
        options: dict[str, Any] = {}
        if self.weights:
            options["output_gradients"] = self.weights
            options["wrt"] = [n for n in self.differentiable if n not in pm.trainable_keys] or None
        result = pm.evaluate(arrays, data, state=state, **options)
        if not isinstance(result, tuple):
            return _plain(pm, result), {}
        return _plain(pm, result[0]), _plain(pm, getattr(result, "gradients", {}))

    def evaluated(self, backend: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Outputs and gradients of the same inputs on a backend, as NumPy arrays."""
        return self._evaluated(self._compiled(backend))

    def reference_outputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The reference's outputs for other inputs."""
        pm = self.reference
        params, data, state = (
            {n: inputs[n] for n in names} for names in (pm.param_keys, pm.data_keys, pm.state_keys)
        )
        result = pm.evaluate(params, data, state=state or None)
        return _plain(pm, result[0] if isinstance(result, tuple) else result)

    @property
    def differentiable(self) -> list[str]:
        """All float inputs but state."""
        return [
            key.name
            for key in compilation_of(self.reference).keys
            if key.role != "state" and key.is_tensor and key.dtype and key.dtype.is_float
        ]

    # --- rows ---------------------------------------------------------------------------------
    def reference_row(self) -> Verified:
        """NumPy in float64 against the oracle, where the model has a file that it reads."""
        name = f"reference {self.reference.backend!r}"
        row = {"backend": name, "device": "cpu", "nodes": len(self.run.nodes)}
        user_ops = any(op.startswith("user_") for op, *_ in self.reference.graph.nodes(inner=True))
        if user_ops or self.options.get("constant_keys"):
            return Verified(**row)
        try:
            written = self.model.to_json()
        except MithrilError:  # a model of Python functions has no file
            return Verified(**row)
        # A key that compile makes, of random numbers, is none of the model's.
        compilation = compilation_of(self.reference)
        values = {key.key or key.name: self.inputs[key.name] for key in compilation.keys}
        mode = "train" if compilation.options.train else "eval"
        wanted = oracle.evaluate(written, values, mode=mode).outputs
        found = {
            name: distance(self.outputs[name], value, TOLERANCE["float64"])
            for name, value in wanted.items()
            if name in self.outputs
        }
        wrong = [
            Divergence("forward", "", f"output '{n}'", d.ulps, f"{d.problem} by the oracle")
            for n, d in found.items()
            if d.problem
        ]
        most = max((d.ulps for d in found.values()), default=0.0)
        return Verified(**row, output_ulps=most, divergences=tuple(wrong))

    def row(self, backend: Any) -> Verified:
        """One backend; whatever it raises is said in its row."""
        with warnings.catch_warnings():  # what there is to say was said of the reference
            warnings.simplefilter("ignore", MithrilWarning)
            return self._row(backend)

    def _row(self, backend: Any) -> Verified:
        known = {"backend": repr(backend), "device": str(backend.get_device())}
        try:
            pm = self._compiled(backend)
        except Exception as error:
            return Verified(**known, error=f"compile {_raised(error)}")
        tolerance = self.tolerance
        if tolerance is None:
            tolerance = TOLERANCE[str(backend.default_dtype)]
        try:
            return self._compared(pm, known, tolerance)
        except Exception as error:
            return self._broken_off(pm, known, tolerance, error)

    def _compared(self, pm: Any, known: dict[str, str], tolerance: float) -> Verified:
        outputs, gradients = self._evaluated(pm)
        whole = {
            "forward": {n: distance(outputs[n], v, tolerance) for n, v in self.outputs.items()},
            "backward": {
                n: distance(gradients[n], v, tolerance) for n, v in self.gradients.items()
            },
        }
        run = NodeRun(self, pm)
        found: Divergence | None = None
        for direction, distances in whole.items():
            # What comes after a wrong value is wrong, too: the first one is enough.
            found = found or next(run.divergences(self.run, direction, tolerance), None)
            found = found or of_the_whole(direction, distances)
        most = {d: max((x.ulps for x in whole[d].values()), default=0.0) for d in whole}
        return Verified(
            **known,
            nodes=len(run.nodes),
            output_ulps=most["forward"],
            gradient_ulps=most["backward"],
            divergences=(found,) if found else (),
        )

    def _broken_off(
        self, pm: Any, known: dict[str, str], tolerance: float, error: Exception
    ) -> Verified:
        """The first node that is wrong or raises: what a wrong shape does shows further on."""
        runs, raises = 0, len(self.run.nodes) + 1  # that many nodes run; that many raise
        last: NodeRun | None = None
        while raises - runs > 1:
            count = (runs + raises) // 2
            try:
                last, runs = NodeRun(self, pm, count), count
            except Exception as earlier:  # found in less of the model, nearer to its cause
                raises, error = count, earlier
        wrong = last and next(last.divergences(self.run, "forward", tolerance), None)
        if wrong:
            return Verified(**known, nodes=runs, divergences=(wrong,))
        nodes = probed(compilation_of(pm).compiled.typed).nodes
        if raises > len(nodes):
            return Verified(**known, nodes=runs, error=f"backward {_raised(error)}")
        node = nodes[raises - 1]
        line = emitted_line(pm, nodes, node, "forward")
        stopped = Divergence(
            "forward", node.path, formula_of(node.op), math.inf, _raised(error), line, node.location
        )
        return Verified(**known, nodes=runs, divergences=(stopped,))


def _raised(error: Exception) -> str:
    return f"raised {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def pm_dtype(pm: Any, name: str) -> Any:
    return next(key.dtype for key in compilation_of(pm).keys if key.name == name)


def _plain(pm: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    is_array = {n: hasattr(v, "shape") for n, v in values.items()}
    return {n: pm.backend.to_numpy(v) if is_array[n] else v for n, v in values.items()}


__all__ = ["Divergence", "Task", "Verification", "Verified", "prepared", "verify"]
