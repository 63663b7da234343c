"""Cases of the op matrix, made from the registry: every op with its samples as a model, values for
its inputs, and what a backend makes of it. What is right is the oracle's business.

>>> case = cases(_core.find_op("add"))[1]
>>> case.label, sorted(case.inputs), case.inputs["right"].shape
('add[1, float]', ['left', 'right'], (3,))
"""

from __future__ import annotations

import functools
import math
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mithril import _core, models
from mithril.backends.with_manualgrad.numpy_backend import NumpyBackend
from mithril.backends.with_manualgrad.numpy_backend import ops as numpy_ops
from mithril.execution import own_ops
from mithril.logical.handles import node_of
from mithril.logical.model import IOKey, Model, Tensor
from mithril.models.operator_model import OperatorModel
from mithril.physical.compilation import compilation_of
from mithril.physical.compile import compile
from mithril.testing import oracle, oracle_ops
from mithril.testing._support import FALLBACK, OWN
from mithril.types import MISSING, TBD

KINDS = ("float", "int", "bool")
_BITS = {kind: _core.kinds()[f"tensor_{kind}"] for kind in KINDS}
_PYTHON = {"float": float, "int": int, "bool": bool}
PIECES = {"split": "split_size", "chunk": "chunks"}  # ops that give so many
# Largest difference allowed, relative to the largest element of the result (or 1).
VALUE_BOUND = {"float32": 2e-6, "float64": 1e-13}
GRADIENT_BOUND = {"float32": 2e-5, "float64": 1e-11}
MLX_LANES = 8
_CALLED = re.compile(r"\bops\.([A-Za-z_]\w*)")  # in emitted text


class Run(NamedTuple):
    """The results of a compiled model, as NumPy arrays."""

    outputs: dict[str, Any]
    gradients: dict[str, np.ndarray]
    states: dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One sample of an op, with tensors of one kind wherever the op takes that kind."""

    op: dict[str, Any]
    index: int
    kind: str
    sample: Mapping[str, Any]
    dtype: str = ""  # of the tensors of that kind; "": the backend's

    @property
    def label(self) -> str:
        return f"{self.op['name']}[{self.index}, {self.dtype or self.kind}]"

    @property
    def widths(self) -> dict[str, str]:
        """The element types of inputs that have others than the backend's."""
        return {
            label: self.dtype
            for label, declared, _ in self.tensors
            if self.dtype and self.kind_of(declared) == self.kind and declared["name"] != "rng_key"
        }

    @functools.cached_property
    def tensors(self) -> list[tuple[str, dict[str, Any], tuple[int, ...]]]:
        """(label, declaration, shape) of each tensor given; several of one input have numbers."""
        names = [name for name, _ in self.sample["shapes"]]
        declared = {i["name"]: i for i in self.op["inputs"]}
        return [
            (f"{name}_{k}" if names.count(name) > 1 else name, declared[name], tuple(shape))
            for k, (name, shape) in enumerate(self.sample["shapes"])
        ]

    def kind_of(self, declared: Mapping[str, Any]) -> str:
        name = declared["name"]
        wanted = "int" if name in self.sample["integers"] else self.kind
        if f"new_{name}" in self.op["outputs"]:  # state
            wanted = "int" if name == "rng_key" else "float"
        allowed = [k for k in KINDS if declared["kinds"] & _BITS[k]]
        return wanted if wanted in allowed else allowed[0]

    @property
    def floats(self) -> list[str]:
        return [label for label, i, _ in self.tensors if self.kind_of(i) == "float"]

    @property
    def differentiable(self) -> list[str]:
        """The labels of float inputs that are no state."""
        states = {name.removeprefix("new_") for name in self.op["outputs"][1:]}
        return [name for name in self.floats if name not in states]

    @functools.cached_property
    def inputs(self) -> dict[str, np.ndarray]:
        """Values that float32 holds exactly; special points of the op come first."""
        return self.draw(points=True)

    def draw(self, points: bool) -> dict[str, np.ndarray]:
        random = np.random.default_rng(zlib.crc32(self.label.encode()))
        return {
            label: self._array(random, declared, shape, points)
            for label, declared, shape in self.tensors
        }

    def _array(self, random, declared, shape, points) -> np.ndarray:
        kind, low, high = self.kind_of(declared), declared["low"], declared["high"]
        width = self.dtype if kind == self.kind else ""
        if declared["name"] == "rng_key" or self.op["family"] == "random" and kind == "int":
            low, high = -(2**31), 2**31 - 1
            width = "" if declared["name"] == "rng_key" else width
        if kind == "bool":
            return random.integers(0, 2, shape).astype(bool)
        if kind == "int":
            limits = np.iinfo(width or "int64")
            low, high = max(math.ceil(low), limits.min), min(math.floor(high), limits.max)
            return random.integers(low, high + 1, shape).astype(limits.dtype)
        values = random.uniform(low, high, shape)
        if self.op["family"] == "linalg" and len(shape) > 1 and shape[-1] == shape[-2]:
            values = values / 2 + shape[-1] * np.eye(shape[-1])  # positive definite
        values = values.astype(np.float32).astype(np.float64)
        if points and len(self.op["inputs"]) and declared is self.op["inputs"][0]:
            special = self.op["points"][: values.size]
            values.reshape(-1)[: len(special)] = special
        if not width:
            return values
        values = oracle_ops.tensor(values, width)
        # Many numbers of few digits are round ones, where kinks are, too.
        off = np.where(points or values % 0.125, values, values * (1.0 + 2.0**-6))
        return oracle_ops.tensor(off, width)

    @functools.cached_property
    def text(self) -> str:
        """The file of its model: what the oracle reads."""
        return self.model().to_json()

    def model(self, open_sizes: bool = False, constants: Mapping[str, Any] | None = None) -> Model:
        """The op alone, its tensors as inputs of their labels, its results as outputs; what
        `constants` has stands in for the inputs of these labels."""
        child = _leaf(self.op, self.sample, {name for name, _ in self.sample["shapes"]})
        wires: dict[str, Any] = {}
        grouped: dict[str, list[Any]] = {}
        for label, declared, shape in self.tensors:
            if declared["name"] == "rng_key":
                continue  # state, wired by compile
            if constants is not None and label in constants:
                grouped.setdefault(declared["name"], []).append(constants[label])
                continue
            kind = Tensor[_PYTHON[self.kind_of(declared)]]
            grouped.setdefault(declared["name"], []).append(
                IOKey(label, shape=[None] * len(shape) if open_sizes else shape, type=kind)
            )
        for name, keys in grouped.items():
            wires[name] = keys[0] if len(keys) == 1 else keys
        wires |= {name: name for name in self.op["outputs"] if name in node_of(child).output_keys}
        model = Model()
        model |= child.connect(**wires)
        count = PIECES.get(self.op["name"])
        if count is not None:  # a list of tensors is no output
            pieces = model["output"]
            for i in range(self.sample["attrs"][count]):
                model |= models.Buffer().connect(input=pieces[i], output=f"output_{i}")
        return model


def _init_of_leaf(self: Any, values: dict[str, Any]) -> None:
    self._make(None, values)


def _leaf(op: Mapping[str, Any], sample: Mapping[str, Any], given: set[str]) -> OperatorModel:
    attrs = dict(op["attrs"])
    switches = {i["name"]: i["when"] for i in op["inputs"] if i["when"]}
    optional = tuple(i["name"] for i in op["inputs"] if i["optional"] and not i["when"])
    facts = {
        "_op": op["name"],
        "_attrs": tuple(attrs),
        "_optional": optional,
        "_switches": switches,
        "_defaults": {i["name"]: i["default"] for i in op["inputs"] if i["default"] is not MISSING},
        "__init__": _init_of_leaf,
    }
    cls = type(op["python_name"] or op["name"].title(), (OperatorModel,), facts)
    values: dict[str, Any] = {name: None for name in optional if name not in given}
    values |= {switch: attrs[switch] for switch in switches.values()}
    values |= {name: TBD for name in facts["_defaults"] if name in given}
    if "safe_shapes" in attrs:
        values["safe_shapes"] = False  # samples may broadcast
    return cls(values | dict(sample["attrs"]))


def is_told_dtype(op: Mapping[str, Any]) -> bool:
    """Tells whether the op has an argument for the element type of its result."""
    return "dtype" in {*dict(op["attrs"]), *(i["name"] for i in op["inputs"])}


def float_result(op: Mapping[str, Any], dtype: str) -> str:
    """Returns the type of an op's float results of operands of that type: the same, but float32 of
    halves where what reads them rounds."""
    is_wide = any(rule.startswith("wide") for rule in op["results"])
    return "float32" if is_wide and dtype in ("float16", "bfloat16") else dtype


def dtype_of(case: Case, backend: Any, model: Any = None) -> str:
    """The element type that a case is about: that of its tensors, or of the result that was made
    where the op is told one."""
    if model is not None and is_told_dtype(case.op):
        dtype, _ = next(iter(compilation_of(model).program.output_types.values()))
        return str(dtype)
    defaults = {"float": backend.default_dtype, "int": backend.default_int, "bool": "bool"}
    return case.dtype or str(defaults[case.kind])


def cases(op: dict[str, Any]) -> list[Case]:
    """Every sample with floats, and with integers and bools where the op has them."""
    out = []
    for kind in KINDS:
        for index, sample in enumerate(op["samples"]):
            case = Case(op, index, kind, sample)
            free = [i for _, i, _ in case.tensors if i["name"] not in sample["integers"]]
            if kind == "int" and any(math.ceil(i["low"]) > math.floor(i["high"]) for i in free):
                continue  # no integer is in the op's domain
            if any(case.kind_of(i) == kind for i in free) or kind == "float" and not free:
                out.append(case)
    return out


def state_values(model: Any, case: Case) -> dict[str, Any]:
    """Returns the state for a compiled case: random keys and running statistics."""
    random = np.random.default_rng(7)
    return {
        name: case.inputs.get(name, random.integers(-(2**31), 2**31, 2))
        for name in model.state_keys
    }


def compiled(case: Case, backend: Any, *, jit: bool = False, **options: Any) -> Any:
    return compile(case.model(), backend, jit=jit, types=case.widths, **options)


def evaluate(
    model: Any, case: Case, inputs: Mapping[str, Any], cotangents: Mapping[str, Any] | None = None
) -> Run:
    """Runs a compiled case; with cotangents also the gradients of every float input."""
    given = {key: value for key, value in inputs.items() if key in model.input_keys}
    params = {name: given[name] for name in model.param_keys}
    data = {name: value for name, value in given.items() if name in model.data_keys}
    state = state_values(model, case) or None
    if state:
        state = {n: inputs.get(n, value) for n, value in state.items()}
    options: dict[str, Any] = {}
    if cotangents is not None:
        options["output_gradients"] = dict(cotangents)
        wrt = [n for n in case.differentiable if n not in model.trainable_keys]
        options["wrt"] = wrt or None
    result = model.evaluate(params, data, state=state, **options)
    outputs, gradients, states = result, {}, {}
    if isinstance(result, tuple):
        outputs = result.outputs
        gradients = getattr(result, "gradients", {})
        states = getattr(result, "state", {})
    return Run(*({k: plain(model, v) for k, v in d.items()} for d in (outputs, gradients, states)))


def second_derivative(
    model: Any,
    case: Case,
    inputs: Mapping[str, Any],
    cotangents: Mapping[str, Any],
    directions: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """The engine's gradients of the products of its gradients with `directions`."""
    wrt = list(directions)
    once = compilation_of(model).compiled.typed.differentiate(list(cotangents), wrt)
    twice = once.differentiate([f"grad.{name}" for name in wrt], wrt)
    given = {**all_inputs(model, case, inputs)}
    given |= {f"cotangent.{name}": value for name, value in cotangents.items()}
    given |= {f"cotangent.grad.{name}": value for name, value in directions.items()}
    executable = compilation_of(model).program._executable(
        compilation_of(model).compiled.optimize(twice)
    )
    values = [
        model.backend.tensor(np.asarray(given[name]), dtype) for name, _, dtype, _ in twice.inputs
    ]
    last = len(twice.outputs)
    results = executable.run(values)[last - len(wrt) : last]
    return {name: plain(model, value) for name, value in zip(wrt, results, strict=True)}


def plain(model: Any, value: Any) -> Any:
    """A backend's array as NumPy's; host values as they are."""
    is_host = isinstance(value, bool | int | float | str | tuple | list | slice | type(None))
    return value if is_host else np.asarray(model.backend.to_numpy(value))


def expected(model: Any, case: Case, inputs: Mapping[str, Any], float_dtype: str) -> oracle.Result:
    """The oracle's result for the model's file."""
    return oracle.evaluate(case.text, all_inputs(model, case, inputs), float_dtype=float_dtype)


def all_inputs(model: Any, case: Case, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {**state_values(model, case), **inputs}


def value_bound(backend: Any, case: Case) -> float:
    """Returns the error bound for values of a case in the backend's default dtype."""
    dtype = str(backend.default_dtype)
    bound = VALUE_BOUND[dtype]
    if backend.backend_type != "mlx" or dtype != "float32":
        return bound
    # MLX adds float32 numbers one after another in a few lanes: rounding grows with their count.
    most = max((math.prod(shape) for _, _, shape in case.tensors), default=1)
    return max(2 * bound, most / MLX_LANES * 2.0**-24)


def difference(got: Any, want: Any, bound: float) -> str | None:
    """Says how a result is wrong, or None. The bound is relative to the largest finite element."""
    if not isinstance(want, np.ndarray | np.generic):
        is_word = isinstance(got, str) and isinstance(want, str)  # dtypes are words
        return (
            None
            if got == want and (is_word or type(got) is type(want))
            else f"got {got!r}, not {want!r}"
        )
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return f"shape {got.shape}, not {want.shape}"
    if got.dtype.kind != want.dtype.kind:
        return f"dtype {got.dtype}, not {want.dtype}"
    if want.dtype.kind in "iub":
        return None if np.array_equal(got, want) else _first(got, want, got != want)
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    scale = max(1.0, float(np.abs(want[finite]).max())) if finite.any() else 1.0
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= bound * scale
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return None if (near | same).all() else _first(got, want, ~(near | same))


def _first(got: np.ndarray, want: np.ndarray, wrong: np.ndarray) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{int(wrong.sum())} of {want.size} wrong, at {at}: got {got[at]!r}, not {want[at]!r}"


def central_difference(
    function: Callable[[Mapping[str, Any]], float],
    inputs: Mapping[str, np.ndarray],
    direction: Mapping[str, np.ndarray],
    step: float = 1e-4,
) -> float:
    """Computes the slope of a function along a direction by differences of fourth order."""

    def at(t: float) -> float:
        return function(
            {n: x + t * direction[n] if n in direction else x for n, x in inputs.items()}
        )

    return (8.0 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12.0 * step)


def wrong_dtype(model: Any, case: Case, got: Any, wanted: Any) -> str:
    """Returns the message for a wrong element type, with a cure if a user's method made it."""
    brought, _ = own_ops.names(model.backend)
    is_own = case.op["name"] in brought
    cure = "; the op's result has that type: cast what the method returns" if is_own else ""
    return f"dtype {got}, not {wanted}{cure}"


def way(model: Any, op: Mapping[str, Any]) -> str:
    """Says how the backend runs a compiled case: by a method of the user's class, by functions of
    NumPy, or as `support` says. Some backends know only after it was evaluated."""
    brought, _ = own_ops.names(model.backend)
    forward = {name for name, *_ in compilation_of(model).compiled.forward.nodes()}
    if brought.get(op["name"]) in forward:
        return OWN
    # Of the class: an instance looks for an op of that name, and for near ones, at length.
    has_coverage = hasattr(type(model.backend), "coverage")
    if has_coverage and not model.backend.isolate and model.backend.coverage(model)["custom"]:
        return FALLBACK
    if model.backend._runs_on_host(op["name"]) and support(model, op) == "native":
        return FALLBACK
    if not model.backend.runs_plans:
        called = _CALLED.findall(model.source)
        if any(_falls_back(model.backend, function) for function in called):
            return FALLBACK
    return support(model, op)


def _falls_back(backend: Any, name: str) -> bool:
    """Tells whether another backend runs a function of emitted text by NumPy."""
    if isinstance(backend, NumpyBackend):
        return False
    function = getattr(backend.ops, name, None)
    is_function = callable(function) and not isinstance(function, type)  # a type is an argument
    return is_function and function is getattr(numpy_ops, name, None)


def support(model: Any, op: Mapping[str, Any]) -> str:
    """Says how a compiled case runs its op: "native", "inlined", "decomposed" or "folded"."""
    flat, forward = (
        {op for op, *_ in graph.nodes()}
        for graph in (compilation_of(model).compiled.graph, compilation_of(model).compiled.forward)
    )
    if op["name"] not in flat:
        return "inlined"
    if op["name"] in forward:
        return "native"
    return "decomposed" if forward else "folded"
