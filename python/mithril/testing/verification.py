"""`verify`: one model on several backends, node by node, against NumPy in float64.

The reference is itself compared with the oracle, which shares nothing with the engine.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mithril._checks import instance, items, mapping, text
from mithril._public import public
from mithril.errors import (
    ArgumentError,
    KeyNotFound,
    MithrilError,
    MithrilWarning,
    ShapeNotKnown,
    SignatureError,
    shown,
    suggestion,
)
from mithril.testing import oracle
from mithril.testing._probes import Node, Place, probed
from mithril.types import Dtype

# Largest difference allowed, relative to the largest element of the result (or 1).
TOLERANCE = {"float16": 2e-2, "bfloat16": 1e-1, "float32": 5e-5, "float64": 1e-10}
_WORDS = {2: np.int16, 4: np.int32, 8: np.int64}
DEFAULT = ("numpy", "cpu")


# --- distances -----------------------------------------------------------------------------------


def ulps(got: Any, want: Any) -> np.ndarray:
    """Steps between floats of `got`'s type from `want`, rounded to it, to `got`; NaN is NaN.

    >>> ulps(np.float32([1.0, 1.0000001, 0.0]), np.float64([1.0, 1.0, -0.0])).tolist()
    [0.0, 1.0, 0.0]
    """
    got = np.asarray(got)
    with np.errstate(all="ignore"):
        want = np.asarray(want).astype(got.dtype)
    if got.dtype.kind in "iub":
        return np.abs(got.astype(np.float64) - want.astype(np.float64))
    steps = np.abs(_ordered(got) - _ordered(want))
    nan = np.isnan(got.astype(np.float64)), np.isnan(want.astype(np.float64))
    return np.where(nan[0] & nan[1], 0.0, np.where(nan[0] ^ nan[1], math.inf, steps))


def _ordered(values: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order and without gaps; exact below 2**53 steps."""
    word = _WORDS[values.dtype.itemsize]
    bits = np.ascontiguousarray(values).view(word).reshape(values.shape)
    magnitude = (bits & np.iinfo(word).max).astype(np.float64 if word is not np.int64 else object)
    return np.where(bits < 0, -magnitude, magnitude)


@dataclass(frozen=True)
class Distance:
    """How far a result is from what it should be."""

    ulps: float  # of the element that is furthest off; inf: no number, or another shape or dtype
    problem: str = ""  # beyond the tolerance: what is wrong


def distance(got: Any, want: Any, tolerance: float) -> Distance:
    """Compares a backend's result with the reference's."""
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return Distance(math.inf, f"shape {got.shape}, not {want.shape}")
    kinds = {"f" if _is_float(array) else array.dtype.kind for array in (got, want)}
    if len(kinds) > 1:
        return Distance(math.inf, f"dtype {got.dtype}, not {want.dtype}")
    if got.size == 0:
        return Distance(0.0)
    steps = ulps(got, want).astype(np.float64)
    g, w = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(w)
    scale = max(1.0, float(np.abs(w[finite]).max())) if finite.any() else 1.0
    with np.errstate(invalid="ignore"):
        allowed = tolerance * scale if kinds == {"f"} else 0.0
        near = (np.abs(g - w) <= allowed) | (g == w) | (np.isnan(g) & np.isnan(w))
    if near.all():
        return Distance(float(steps.max()))
    at = np.unravel_index(np.argmax(np.where(near, -1.0, steps)), got.shape)
    place = tuple(int(i) for i in at)
    return Distance(
        float(steps[at]),
        f"{int((~near).sum())} of {got.size} wrong, at {place}: got {g[at]}, not {w[at]}",
    )


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


# --- the report ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Divergence:
    """The first node, in topological order (backward: against it), that is off."""

    direction: str  # "forward", "backward"
    node: str  # its path: "net.first"
    op: str
    ulps: float
    problem: str
    line: str = ""  # of the emitted program; "" where there is none
    location: str = ""  # of the user's code

    def __str__(self) -> str:
        steps = "" if math.isinf(self.ulps) else f", {self.ulps:.0f} ULPs"
        what = f"{self.node}: " if self.node else ""
        lines = [f"{self.direction} diverges first at {what}{self.op}{steps}: {self.problem}"]
        lines += [f"  at {self.location}"] if self.location else []
        lines += [f"  emitted: {line}" for line in self.line.splitlines()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Verified:
    """One backend's row: true when all agrees."""

    backend: str
    device: str
    nodes: int = 0  # compared, forward
    output_ulps: float = 0.0  # the largest distance of an output
    gradient_ulps: float = 0.0  # and of a gradient
    divergences: tuple[Divergence, ...] = ()
    error: str = ""  # what it raised

    def __bool__(self) -> bool:
        return not (self.divergences or self.error)

    def __str__(self) -> str:
        counts = (
            f"{self.nodes} nodes, outputs within {self.output_ulps:.0f} ULPs,"
            f" gradients within {self.gradient_ulps:.0f}"
        )
        found = [self.error] if self.error else [str(d) for d in self.divergences]
        said = "\n".join(found).replace("\n", "\n    ") or "agrees"
        return f"  {self.backend}: {said}" + ("" if self.error or found else f" ({counts})")


@dataclass(frozen=True)
class Verification:
    """What `verify` returns: true when every backend agrees with the reference."""

    model: str
    seed: int
    rows: list[Verified] = field(default_factory=list)

    @property
    def first(self) -> Divergence | None:
        """The first divergence of the first backend that has one."""
        return next((d for row in self.rows for d in row.divergences), None)

    def __bool__(self) -> bool:
        return all(self.rows)

    def __str__(self) -> str:
        agree = sum(map(bool, self.rows))
        head = f"{self.model}: {agree} of {len(self.rows)} agree (seed {self.seed})"
        return "\n".join([head, *map(str, self.rows)])

    __repr__ = __str__


# --- verify --------------------------------------------------------------------------------------


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
    task = _Task(model, _backends(backends), inputs, shapes, seed, tolerance, options)
    devices = {str(backend.get_device()).partition(":")[0] for backend in task.backends}
    if len(devices) > 1 and not mixed_devices:
        raise ArgumentError(
            f"verify: requires backends on one device, got {', '.join(sorted(devices))}",
            hint="mixed_devices=True compares them all the same",
        )
    rows = [task.reference_row(), *map(task.row, task.backends)]
    return Verification(model.name or type(model).__name__, seed, rows)


def _backends(given: Any) -> list[Any]:
    from mithril.backends.backend import Backend
    from mithril.backends.registry import get_backend

    chosen = items("verify: backends", DEFAULT if given is None else given, "backends or names")
    made = [get_backend(each) if isinstance(each, str) else each for each in chosen]
    for backend in made:
        instance("verify: backends", backend, Backend, "instances of backends, or their names")
    return made


class _Task:
    """A model with the values that every backend gets, and the reference's results."""

    def __init__(
        self, model: Any, backends: list, inputs: Any, shapes: Any, seed: Any, tolerance: Any,
        options: dict[str, Any],
    ):  # fmt: skip
        from mithril.backends.with_manualgrad.numpy_backend import NumpyBackend

        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise SignatureError(f"verify: seed requires an integer from 0 on, got {shown(seed)}")
        is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
        if tolerance is not None and not (is_number and tolerance >= 0):
            raise ArgumentError(f"verify: tolerance requires a number from 0 on, got {tolerance!r}")
        self.model, self.backends, self.tolerance = model, backends, tolerance
        self.given = dict(mapping("verify: inputs", inputs))
        for name in self.given:
            text("verify: inputs", name)
        self.options = dict(options)
        self.options["shapes"] = self._shapes(dict(mapping("verify: shapes", shapes)))
        self.seed = seed
        self._narrow = {str(b.default_dtype) for b in backends} | {"float32"}
        self.reference = self._compiled(NumpyBackend(dtype="float64"), autodiff=None, jit=False)
        self.inputs = self._drawn()
        self.weights: dict[str, np.ndarray] = {}
        self.outputs, _ = self._evaluated(self.reference)
        self.weights = self._weights()
        self.outputs, self.gradients = self._evaluated(self.reference)
        self.run = _Run(self, self.reference)

    def _shapes(self, stated: dict[str, Any]) -> dict[str, Any]:
        keys = set(getattr(self.model, "input_keys", ()))
        found = {k: np.shape(v) for k, v in self.given.items() if hasattr(v, "shape") and k in keys}
        return {**found, **stated}

    def _compiled(self, backend: Any, **changed: Any) -> Any:
        from mithril.compile import compile as compile_model

        return compile_model(self.model, backend, **{**self.options, **changed})

    # --- values -------------------------------------------------------------------------------
    def _drawn(self) -> dict[str, Any]:
        """A value for each input that every backend's floats hold exactly."""
        reference = self.reference
        random = np.random.default_rng(self.seed)
        first = {**reference.randomize_params(self.seed), **reference.initial_state(self.seed)}
        # Data first: what parameters lack follows from them.
        keys = sorted(reference._keys, key=lambda key: key.role != "data")
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
        shape = self.reference.shapes.get(key.name)
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
        if not _is_float(values):
            return values
        for name in sorted(self._narrow):
            values = values.astype(Dtype(name).numpy())
        return values.astype(np.float64)

    def _weights(self) -> dict[str, np.ndarray]:
        """Random cotangents for the float outputs."""
        random = np.random.default_rng((self.seed, 1))
        flags = self.reference._compiled.differentiable_outputs
        pairs = zip(self.reference.output_keys, flags, strict=True)
        names = [name for name, differentiable in pairs if differentiable]
        return {
            name: self._held(random.standard_normal(self.outputs[name].shape))
            for name in names
            if _is_float(np.asarray(self.outputs[name]))
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
            options["wrt"] = [n for n in self._wrt() if n not in pm.trainable_keys] or None
        result = pm.evaluate(arrays, data, state=state, **options)
        if not isinstance(result, tuple):
            return _plain(pm, result), {}
        return _plain(pm, result[0]), _plain(pm, getattr(result, "gradients", {}))

    def _wrt(self) -> list[str]:
        """All float inputs but state."""
        return [
            key.name
            for key in self.reference._keys
            if key.role != "state" and key.is_tensor and key.dtype and key.dtype.is_float
        ]

    # --- rows ---------------------------------------------------------------------------------
    def reference_row(self) -> Verified:
        """NumPy in float64 against the oracle, where the model has a file that it reads."""
        name = f"reference {self.reference.backend!r}"
        row = {"backend": name, "device": "cpu", "nodes": len(self.run.nodes)}
        user_ops = any(op.startswith("user_") for op, *_ in self.reference.graph.nodes())
        if user_ops or self.options.get("constant_keys"):
            return Verified(**row)
        try:
            written = self.model.to_json()
        except MithrilError:  # a model of Python functions has no file
            return Verified(**row)
        # A key that compile makes, of random numbers, is none of the model's.
        values = {key.key or key.name: self.inputs[key.name] for key in self.reference._keys}
        mode = "train" if self.reference._options["train"] else "eval"
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
        run = _Run(self, pm)
        found: Divergence | None = None
        for direction, distances in whole.items():
            # What comes after a wrong value is wrong, too: the first one is enough.
            found = found or next(run.divergences(self.run, direction, tolerance), None)
            found = found or _of_the_whole(direction, distances)
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
        last: _Run | None = None
        while raises - runs > 1:
            count = (runs + raises) // 2
            try:
                last, runs = _Run(self, pm, count), count
            except Exception as earlier:  # found in less of the model, nearer to its cause
                raises, error = count, earlier
        wrong = last and next(last.divergences(self.run, "forward", tolerance), None)
        if wrong:
            return Verified(**known, nodes=runs, divergences=(wrong,))
        nodes = probed(pm._compiled.typed).nodes
        if raises > len(nodes):
            return Verified(**known, nodes=runs, error=f"backward {_raised(error)}")
        node = nodes[raises - 1]
        line = _line(pm, nodes, node, "forward")
        stopped = Divergence(
            "forward", node.path, node.op, math.inf, _raised(error), line, node.location
        )
        return Verified(**known, nodes=runs, divergences=(stopped,))


def _raised(error: Exception) -> str:
    return f"raised {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def pm_dtype(pm: Any, name: str) -> Any:
    return next(key.dtype for key in pm._keys if key.name == name)


def _plain(pm: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    is_array = {n: hasattr(v, "shape") for n, v in values.items()}
    return {n: pm.backend.to_numpy(v) if is_array[n] else v for n, v in values.items()}


def _of_the_whole(direction: str, found: Mapping[str, Distance]) -> Divergence | None:
    """Wrong although each node by itself is right: what a pass made of several."""
    kind = "output" if direction == "forward" else "gradient of"
    for name, d in found.items():
        if d.problem:
            problem = f"{d.problem}; each node by itself agrees"
            return Divergence(direction, "", f"{kind} '{name}'", d.ulps, problem)
    return None


# --- node by node --------------------------------------------------------------------------------


class _Run:
    """The values at every node of a compiled model, and what each sends back to its operands."""

    def __init__(self, task: _Task, pm: Any, count: int | None = None):
        self.pm = pm
        windows = probed(pm._compiled.typed, count)
        self.nodes: list[Node] = windows.nodes
        zeros = {name: np.zeros(shape) for name, shape in windows.shapes.items()}
        given = {**task.inputs, **zeros}
        wrt = list(windows.shapes) if task.weights and count is None else []
        graph = windows.graph
        settings = pm._settings
        if wrt and settings.autodiff == "framework":
            self._from_framework(graph, given, task.weights, wrt)
        else:
            weights = {f"cotangent.{n}": w for n, w in task.weights.items()} if wrt else {}
            graph = graph.differentiate(list(task.weights), wrt) if wrt else graph
            executable = self._executable(graph)
            results = executable.run(self._values(graph, {**given, **weights}))
            self.values = dict(zip(graph.outputs, results, strict=False))
            self.sent = {name: self.values[f"grad.{name}"] for name in wrt}

    def _executable(self, graph: Any) -> Any:
        return self.pm._program._executable(self.pm._compiled.optimize(graph))

    def _values(self, graph: Any, given: Mapping[str, Any]) -> list[Any]:
        tensor = self.pm.backend.tensor
        return [
            given[name] if dtype is None else tensor(given[name], dtype)
            for name, _, dtype, _ in graph.inputs
        ]

    def _from_framework(self, graph: Any, given: Any, weights: Any, wrt: list[str]) -> None:
        executable = self._executable(graph)
        names = [name for name, *_ in graph.inputs]
        count = len(graph.outputs) + len(self.pm._program.state_names)
        cotangents: list[Any] = [None] * count
        for name, weight in weights.items():
            dtype, _ = self.pm._program.output_types[name]
            cotangents[graph.outputs.index(name)] = self.pm.backend.tensor(weight, dtype)
        results, gradients = executable.run_vjp(
            self._values(graph, given), cotangents, [names.index(n) for n in wrt]
        )
        self.values = dict(zip(graph.outputs, results, strict=False))
        self.sent = dict(zip(wrt, gradients, strict=True))

    def _distance(self, got: Any, want: Any, tolerance: float) -> Distance:
        if not hasattr(got, "shape"):
            return Distance(math.inf, f"got {type(got).__name__}, which is no array")
        return distance(self.pm.backend.to_numpy(got), want, tolerance)

    def divergences(
        self, reference: _Run, direction: str, tolerance: float
    ) -> Iterator[Divergence]:
        """The nodes that differ, in the order in which they are computed."""
        wanted: dict[Place, Node] = {node.place: node for node in reference.nodes}
        forward = direction == "forward"
        for node in self.nodes if forward else reversed(self.nodes):
            twin = wanted.get(node.place)
            if twin is None:  # a cast that this backend's dtypes need
                continue
            own, other = (n.values if forward else n.probes for n in (node, twin))
            got, want = (r.values if forward else r.sent for r in (self, reference))
            for index in own.keys() & other.keys() if got else ():
                found = self._distance(got[own[index]], want[other[index]], tolerance)
                if found.problem:
                    which = f"{'result' if forward else 'operand'} {index}: "
                    problem = (which if len(own) > 1 else "") + found.problem
                    line = _line(self.pm, self.nodes, node, direction)
                    yield Divergence(
                        direction, node.path, node.op, found.ulps, problem, line, node.location
                    )
                    break


def _line(pm: Any, nodes: list[Node], node: Node, direction: str) -> str:
    """The emitted lines of a node: those of its path, or the one of its turn among them."""
    forward = _lines(pm._program.forward, node)
    if direction == "backward" and pm._settings.autodiff == "engine":
        gradients = pm._program._gradients.values()
        found = _lines(next(reversed(gradients), None), node)
        return "\n".join(found[len(forward) :])  # which the program computes first
    alike = [other.place for other in nodes if other.path == node.path]
    if len(forward) == len(alike):
        forward = [forward[alike.index(node.place)]]
    return "\n".join(forward)


def _lines(executable: Any, node: Node) -> list[str]:
    lines = getattr(executable, "source", "").splitlines()
    return [line.strip() for line in lines if line.endswith(f"  # {node.path}")]


__all__ = ["Distance", "Divergence", "Verification", "Verified", "distance", "ulps", "verify"]
