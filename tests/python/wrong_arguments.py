"""Calls everything that users call with every wrong argument; `test_wrong_arguments.py` runs it.

    python wrong_arguments.py GROUP FILE

prints each finding as a line, and writes to FILE, before each call, what is called: the last text
there names the call that did not come back.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import io
import itertools
import operator
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mithril as ml
import numpy as np
from mithril.errors import InternalError, MithrilError
from mithril.models._composite import Composite

# Seconds of one call: ten times what the contract says, a hundred times under a sanitizer.
LONGEST = 100.0 if "libasan" in os.environ.get("LD_PRELOAD", "") else 10.0
MOST_TEXT = 10_000

# --- wrong arguments ----------------------------------------------------------------------------


def foreign() -> ml.Connection:
    model = ml.Model()
    model |= ml.Relu()(input="a", output="z")
    KEPT.append(model)
    return model["z"]


KEPT: list[Any] = []  # foreign models live as long as their wires are used
VALUES: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "an object": object,
    "no text": lambda: "",
    "long text": lambda: "x" * 100_000,
    "a surrogate": lambda: "\ud800",
    "NUL": lambda: "a\0b",
    "NaN": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "a fraction": lambda: 0.5,
    "-1": lambda: -1,
    "0": lambda: 0,
    "2**70": lambda: 2**70,
    "True": lambda: True,
    "a complex number": lambda: 1j,
    "no items": list,
    "no items in a tuple": tuple,
    "a ragged nest": lambda: [[1, 2], [3]],
    "a list of None": lambda: [None],
    "a class": lambda: ml.Relu,
    "bytes": lambda: b"x",
    "keys that are no text": lambda: {1: 2, None: 3},
    "text that names nothing": lambda: {"nothing": 1},
    "a long range": lambda: range(10**9),
    "an endless generator": itertools.count,
    "a generator": lambda: (i for i in range(3)),
    "an array of objects": lambda: np.array([object(), None]),
    "an array of text": lambda: np.array(["a", "b"]),
    "an array of integers": lambda: np.arange(6).reshape(2, 3),
    "a foreign connection": foreign,
    "a new connection": lambda: ml.IOKey("q"),
    "a model": lambda: ml.Relu(),
    "a symbolic tensor": lambda: ml.Tensor([1.0]),
    "a function": lambda: lambda *args, **kwargs: None,
    "TBD": lambda: ml.TBD,
}

# --- what is called -----------------------------------------------------------------------------


def small() -> ml.Model:
    model = ml.Model()
    model |= ml.Linear(4, name="body")(input="x", weight="w", bias="b", output="h")
    model |= ml.Relu(name="act")(input="h", output="y")
    model.set_shapes(w=[4, 3])
    model |= ml.Add(name="other")(left="p", right="q", output="s")
    model.expose_keys("y", "s")
    return model


def train() -> ml.TrainModel:
    model = ml.TrainModel(small())
    model.add_loss(ml.SquaredError(), input="y", target="t")
    return model


@functools.cache
def physical(backend: type[ml.Backend] = ml.NumpyBackend) -> Any:
    return ml.compile(
        train(),
        backend(),
        shapes={"x": [2, 3], "p": [], "q": []},
        data_keys={"x"},
        optimizer=ml.optim.SGD(),
    )


@functools.cache
def words() -> Any:
    """A language model of one token for another."""
    model = ml.Model()
    model |= ml.Embedding(6, 6)(input="input", weight=np.eye(6), output="output")
    return ml.compile(model, ml.NumpyBackend(), data_keys={"input"}, inference=True)


def closed() -> ml.Model:
    """All sizes are known."""
    model = ml.Model()
    model |= ml.Relu()(input=ml.IOKey("x", shape=[2, 3]), output="y")
    return model


def data() -> dict[str, Any]:
    return {"x": np.ones((2, 3), "float32"), "t": np.ones((2, 4), "float32"), "p": 1.0, "q": 2.0}


# Arguments with which a call succeeds, by "callable.parameter", or by the name of the parameter.
GOOD: dict[str, Callable[[], Any]] = {
    # of constructors
    "n": lambda: 2,
    "kernel_size": lambda: 2,
    "output_size": lambda: 2,
    "pad_width": lambda: (0, 0),
    "Interpolate.size": lambda: 2,
    "MoveAxis.source": lambda: 0,
    "MoveAxis.destination": lambda: 0,
    "stride": lambda: 1,
    "split_size": lambda: 2,
    "chunks": lambda: 2,
    "hidden_dim": lambda: 4,
    "num_heads": lambda: 2,
    "hidden_size": lambda: 4,
    "k": lambda: 1,
    "formula_key": lambda: "cube",
    "Lambda.function": lambda: lambda x: x + 1,
    "ExtendInfo.connections": lambda: {"x": "x"},
    "Edge.connection": lambda: ml.IOKey("q"),
    "Constraint.number": lambda: 0,
    "EdgeView.edge": object,
    "lr": lambda: 0.1,
    "activation": lambda: ml.Relu(),
    "activations": lambda: [ml.Relu()],
    "dimensions": lambda: [2],
    "equation": lambda: "ij,jk->ik",
    "pattern": lambda: "a b -> b a",
    "Reduce.pattern": lambda: "a b -> a",
    "reduction": lambda: "sum",
    "grad.model": lambda: closed(),
    "hvp.model": lambda: closed(),
    "wrt": lambda: "x",
    "verify.model": lambda: closed(),
    "verify.shapes": dict,
    "KernelizedSVM.kernel": lambda: ml.models.RBFKernel(),
    "DistanceEncoder.base_model": lambda: ml.models.MDSCore(),
    "degree": lambda: 2,
    "prediction_dim": lambda: 2,
    "n_classes": lambda: 2,
    "cell_type": lambda: ml.models.RNNCell(),
    "Scan.body": lambda: ml.Relu(),
    "While.body": lambda: ml.Relu(),
    "While.condition": lambda: ml.IsNan(),
    "While.carry": lambda: {"input": "output"},
    "Cond.taken": lambda: ml.Relu(),
    "Cond.other": lambda: ml.Tanh(),
    "Cond.shared": lambda: ["input"],
    "Scan.xs": lambda: ["input"],
    "max_sequence_length": lambda: 2,
    "max_input_sequence_length": lambda: 2,
    "max_target_sequence_length": lambda: 2,
    # of models
    "model": small,
    "key": lambda: "x",
    "keys": lambda: ["x"],
    "path": lambda: "body",
    "submodel": lambda: "act",
    "new": lambda: ml.Gelu(),
    "fn": lambda: lambda *edges: False,
    "connection": lambda: "x",
    "input": lambda: "p",
    "output": lambda: "s",
    "Model.merge_connections.name": lambda: "p",
    "Model.extract.submodel": lambda: "act",
    "TrainModel.replace.submodel": lambda: "Model.act",
    "Model.rename_key.key": lambda: "new",
    "Model.from_json.text": lambda: small().to_json(),
    "Model.save.path": lambda: "net.mithril",
    "Model.change.shape": lambda: [None, 3],
    "loss_model": lambda: ml.SquaredError(),
    "loss_combiner": lambda: ml.Sum(),
    "coef": lambda: 0.1,
    "TrainModel.add_regularization.model": lambda: ml.Sum(),
    "TrainModel.add_metric.model": lambda: ml.Relu(),
    # of connections
    "other": lambda: ml.IOKey("other"),
    "name": lambda: "name",
    "operand": lambda: 0,
    "matmul.operand": lambda: ml.IOKey("other"),
    "value": lambda: 1.0,
    "type": lambda: ml.Tensor[float],
    "shape": lambda: [2, 3],
    "edge": lambda: small()["x"].metadata,
    "index": lambda: 0,
    # of physical models
    "params": lambda: physical().get_parameters(),
    "opt_state": lambda: ml.optim.SGD().init(physical().get_parameters()),
    "PhysicalModel.evaluate.data": data,
    "PhysicalModel.step.data": data,
    "data": data,
    "PhysicalModel.split_state.arrays": lambda: physical().get_parameters(),
    "PhysicalModel.export_c.folder": lambda: "as_c",
    "to": ml.NumpyBackend,
    # of modules
    "backend": ml.NumpyBackend,
    "backend_class": lambda: ml.NumpyBackend,
    "get_backend.name": lambda: "numpy",
    "function": lambda: lambda x: x,
    "what": small,
    "physical": lambda: physical(),
    "explain.name": lambda: "act",
    "text": lambda: str(physical().graph),
    "models": lambda: [small()],
    "form": lambda: "Relu",
    "x": lambda: "float32",
    "load.path": lambda: saved("net.mithril"),
    "read_safetensors.path": lambda: saved("net.safetensors"),
    "write_safetensors.path": lambda: "out.safetensors",
    "save.path": lambda: "out.mithril",
    "create_gpt.bias": lambda: True,
    **dict.fromkeys(("block_size", "dims", "ffn_dim", "vocab_size"), lambda: 4),
    **dict.fromkeys(("num_layers", "num_kv_heads", "max_new_tokens"), lambda: 1),
    **dict.fromkeys(("embed_dim", "context_length", "transformer_width"), lambda: 4),
    **dict.fromkeys(("vision_layers", "transformer_heads", "transformer_layers"), lambda: 1),
    "image_resolution": lambda: 8,
    "image_size": lambda: 64,
    "input_dim": lambda: 4,
    "vision_width": lambda: 64,
    "vision_patch_size": lambda: 4,
    "config": lambda: {"d_model": 4, "d_ff": 4, "num_layers": 1, "num_heads": 1, "num_labels": 2},
    "pm": lambda: words(),
    "tokens": lambda: [[1]],
    "state_dict": lambda: words().get_parameters(),
    "gradients": lambda: {"w": np.ones(2, "float32")},
    "AdoptedOptimizer.optimizer": lambda: ml.optim.Adam(),
    "Adam.init.params": lambda: {"w": np.ones(2, "float32")},
    "Adam.update.params": lambda: {"w": np.ones(2, "float32")},
    "Adam.update.state": lambda: ml.optim.Adam().init({"w": np.ones(2, "float32")}),
    "arrays": lambda: {"w": np.ones(2)},
}

# What a callable with any number of arguments is given by position, and by keyword.
SOME = {"Model.merge_connections": ("p", "q")}
NAMED: dict[str, dict[str, Any]] = {
    "TrainModel.add_loss": {"input": "y", "target": "t"},
    "TrainModel.add_metric": {"input": "y"},
    "TrainModel.add_regularization": {"input": "w"},
    "Model.extend": {"x": "x"},
    "Model.connect": {"x": "x"},
    "Model.create": {"out": ml.IOKey("x") + 1},
    "Model.expose_keys": {"new": "h"},
    "Model.set_shapes": {"x": [2, 3]},
    "Model.set_types": {"x": ml.Tensor[float]},
    "Model.set_values": {"p": 1.0},
    "Model.set_differentiability": {"x": True},
    "PrimitiveModel": {"input": ml.IOKey(), "output": ml.IOKey()},
    "CustomPrimitiveModel": {"input": ml.IOKey(), "output": ml.IOKey()},
    "PhysicalModel.__call__": data(),
}


def saved(name: str) -> str:
    if not os.path.exists(name):
        if name.endswith(".mithril"):
            small().save(name)
        else:
            ml.formats.write_safetensors(name, {"w": np.ones(2)})
    return name


@dataclass
class Call:
    """What is called, and which models must be as before when it fails."""

    function: Callable[..., Any]
    watched: tuple[ml.Model, ...] = ()


@dataclass
class Subject:
    """Something that users call. `make` gives one that was not called yet."""

    title: str
    parameters: list[inspect.Parameter]
    make: Callable[[], Call]
    by_syntax: bool = False  # Python counts the operands

    @property
    def takes_path(self) -> bool:
        return any(w in p.name for p in self.parameters for w in ("path", "folder"))

    def good(self) -> dict[str, Any]:
        out = {}
        for parameter in self.parameters:
            name = parameter.name
            found = GOOD.get(f"{self.title}.{name}")
            if found is None and parameter.default is parameter.empty:
                found = GOOD.get(name)
            if found is not None and parameter.kind not in VARIADIC:
                out[name] = found()
        return out


# Further names of the op that a call makes; Python calls `less` where it can swap the operands.
ALSO = {
    "ne": "not_equal",
    "var": "variance",
    "eq": "equal",
    "len": "length",
    "greater": "less",
    "less": "greater",
    "add": "extend",
    "logical_or": "extend",
    "greater_equal": "less_equal",
    "less_equal": "greater_equal",
    "ExtendInfo": "key",
    "Lambda": "formula_key",
    "as_dtype": "dtype",
    "compile": "shape type",
    "read_safetensors": "safetensors",
    # What a function of the user's raises: here a class.
    "add_constraint": "constraint EdgeView",
    "evaluate": "Relu",
    "PaddingConverter1D": "padding_converter_1d",
    "PaddingConverter2D": "padding_converter_2d",
}
# What this release refuses whatever it is given.
REFUSED = {
    "Connection.dtype",
    "Connection.atleast_1d",
    "PhysicalModel.as_function",
    "PhysicalModel.memory_plan",
    "PhysicalModel.predict",  # data
    "PhysicalModel.propose_shardings",
    "PhysicalModel.quantization_report",  # of other backends
    "tune",  # other backends
}
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
MISUSES = ("an unknown keyword", "too many arguments", "none of the arguments")


def parameters_of(function: Any) -> list[inspect.Parameter]:
    found = list(inspect.signature(function).parameters.values())
    return found[1:] if found and found[0].name == "self" else found


def arguments(subject: Subject) -> Iterator[tuple[str, Callable[[], tuple[list, dict]]]]:
    """(what is wrong, a function that makes positional arguments and keywords)."""
    placed = [p for p in subject.parameters if p.kind is p.POSITIONAL_ONLY]
    some = SOME.get(subject.title, ())

    def call(changed: dict[str, Any], *more: Any) -> tuple[list, dict]:
        named = {**NAMED.get(subject.title, {}), **subject.good(), **changed}
        return [*(named.pop(p.name) for p in placed if p.name in named), *some, *more], named

    yield "nothing", lambda: call({})
    for parameter in subject.parameters:
        for label, make in VALUES.items():
            what = f"{parameter.name}: {label}"
            if parameter.kind is parameter.VAR_POSITIONAL:
                yield what, lambda make=make: call({}, make())
            elif parameter.kind is parameter.VAR_KEYWORD:
                for key in (*NAMED.get(subject.title, {}), "nothing"):
                    yield f"{what} as {key}", lambda make=make, key=key: call({key: make()})
            else:
                yield what, lambda make=make, key=parameter.name: call({key: make()})
    if subject.by_syntax:
        return
    kinds = {p.kind for p in subject.parameters}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        yield MISUSES[0], lambda: call({"no_such_argument": 1})
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        yield MISUSES[1], lambda: ([1] * (len(subject.parameters) + 1), {})
    if any(p.default is p.empty and p.kind not in VARIADIC for p in subject.parameters):
        yield MISUSES[2], lambda: ([], {})


# --- what may come of it ------------------------------------------------------------------------


def problem(subject: Subject, what: str, make: Callable[[], tuple[list, dict]]) -> str | None:
    """What is wrong with the outcome of one call."""
    call = subject.make()
    before = [model.to_json() for model in call.watched]
    args, kwargs = make()
    started = time.perf_counter()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call.function(*args, **kwargs)
    except InternalError as error:
        return f"is a bug of ours: {error}"
    except MithrilError as error:
        found = untold(subject, what, error, args, kwargs)
        if found:
            return found
        if [model.to_json() for model in call.watched] != before:
            return f"has changed the model and raised {type(error).__name__}: {error}"
    except OSError as error:
        return None if subject.takes_path else f"raises {type(error).__name__}: {error}"
    except BaseException as error:
        at = error.__traceback__
        while at.tb_next is not None:
            at = at.tb_next
        place = f"{os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}"
        return f"raises {type(error).__name__} at {place}: {str(error)[:200]}"
    else:
        if what in MISUSES:
            return "is taken"
    seconds = time.perf_counter() - started
    return f"took {seconds:.1f} s" if seconds > LONGEST else None


def untold(
    subject: Subject, what: str, error: MithrilError, args: list, kwargs: dict
) -> str | None:
    """What the text of an error lacks: it names the call, the argument, or what that is."""
    text = str(error)
    if what == "nothing":
        return None if subject.title in REFUSED else f"is refused: {text}"
    if len(text) > MOST_TEXT:
        return f"raises a text of {len(text)} characters"
    if what in MISUSES and not isinstance(error, TypeError):
        return f"raises {type(error).__name__}, which is no TypeError: {text}"
    call = subject.title.split(".")
    names = {*call, call[-1].removeprefix("set_").rstrip("s"), what.split(":")[0]}
    names |= {*ALSO.get(call[-1], "").split(), "two models"}
    names |= {f"'{name}'" for name in (*kwargs, *names_in([*args, *kwargs.values()]))}
    if not any(name.lower() in text.lower() for name in names):
        return f"names neither call nor argument: {text.splitlines()[0][:200]}"
    return None


def names_in(values: list) -> Iterator[str]:
    for value in values:
        if isinstance(value, str) and len(value) < 100:
            yield value
        elif isinstance(value, ml.Connection):
            yield repr(value).partition("'")[2].partition("'")[0] or "a connection"


def sweep(subjects: Iterator[Subject], progress: int) -> tuple[int, list[str]]:
    """Number of calls, and the findings."""
    count, findings = 0, []
    for subject in subjects:
        for what, make in arguments(subject):
            label = f"{subject.title} with {what}"
            os.pwrite(progress, label.encode()[:200].ljust(200), 0)
            found = problem(subject, what, make)
            count += 1
            if found is not None:
                findings.append(f"{label} {found}")
    return count, findings


# --- everything that users call -----------------------------------------------------------------


def public_members(cls: type) -> list[str]:
    return [
        name
        for name in dir(cls)
        if not name.startswith("_")
        and callable(inspect.getattr_static(cls, name, None))
        or isinstance(inspect.getattr_static(cls, name, None), (classmethod, staticmethod))
        and not name.startswith("_")
    ]


def methods(cls: type, make: Callable[[], Any], watched: Callable[[Any], tuple] = lambda o: ()):
    """The public methods of a class; `make` gives a fresh object."""
    for name in public_members(cls):
        sample = make()

        def call(name: str = name) -> Call:
            owner = make()
            return Call(getattr(owner, name), watched(owner))

        title = f"{cls.__name__}.{name}"
        yield Subject(title, parameters_of(getattr(sample, name)), call)


def operators(make: Callable[[], Any], watched: Callable[[Any], tuple]) -> Iterator[Subject]:
    """What Python calls by syntax, with one operand."""
    parameter = inspect.Parameter("operand", inspect.Parameter.POSITIONAL_ONLY)
    for symbol, op in OPERATORS.items():
        function = getattr(operator, symbol)
        for side in ("left", "right")[: 1 if symbol == "getitem" else 2]:

            def call(function: Any = function, side: str = side) -> Call:
                owner = make()

                def apply(operand: Any) -> Any:
                    pair = (owner, operand) if side == "left" else (operand, owner)
                    return function(*pair)

                return Call(apply, watched(owner))

            yield Subject(op, [parameter], call, True)


# Symbol -> the op that it stands for.
OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "pow": "power",
    "matmul": "matmul",
    "mod": "mod",
    "and_": "logical_and",
    "or_": "logical_or",
    "xor": "logical_xor",
    "lshift": "shift_left",
    "rshift": "shift_right",
    "gt": "greater",
    "ge": "greater_equal",
    "lt": "less",
    "le": "less_equal",
    "getitem": "index",
}


def classes(*modules: Any) -> Iterator[Subject]:
    seen = set()
    for module in modules:
        for name in public_names(module):
            cls = getattr(module, name, None)
            if not isinstance(cls, type) or cls in seen or not is_ours(cls) or is_plain(cls):
                continue
            seen.add(cls)
            yield Subject(cls.__name__, parameters_of(cls), lambda cls=cls: Call(cls))


def functions(*modules: Any) -> Iterator[Subject]:
    seen = set()
    for module in modules:
        for name in public_names(module):
            function = getattr(module, name, None)
            is_class = isinstance(function, type)
            if is_class or not callable(function) or not is_ours(function) or function in seen:
                continue
            seen.add(function)
            yield Subject(name, parameters_of(function), lambda f=function: Call(f))


def public_names(module: Any) -> list[str]:
    names = getattr(module, "__all__", None) or dir(module)
    return [name for name in names if not name.startswith("_") and name not in FOLDERS]


FOLDERS = {"compat", "contrib", "training"}  # which are not written yet


def is_ours(thing: Any) -> bool:
    return (getattr(thing, "__module__", "") or "").startswith("mithril")


def is_plain(cls: type) -> bool:
    """Errors, enumerations, and tuples of results: nobody makes them."""
    return issubclass(cls, (BaseException, enum.Enum, tuple)) or cls.__name__ in NOT_MADE


# Abstract ones, and what only mithril itself makes.
NOT_MADE = {"Backend", "AutogradBackend", "PhysicalModel", "EdgeView", "Constraint", "Edge"}
NOT_MADE |= {"Array", "Tuning", "OperatorModel", "Uninitialized", "Cell", "RNN", "Pool1D", "Pool2D"}


def is_backend(cls: Any) -> bool:
    return isinstance(cls, type) and issubclass(cls, ml.Backend)


def constructors() -> Iterator[Subject]:
    """Of models, keys, tensors and optimizers."""
    for subject in classes(ml, ml.models, ml.optim, ml.constraints, ml.utils):
        if not is_backend(subject.make().function):
            yield subject


def wiring() -> Iterator[Subject]:
    """`connect` of each model that is one op or composed by hand, taken into a model."""
    for subject in classes(ml.models):
        cls = subject.make().function
        if not (isinstance(cls, type) and issubclass(cls, (ml.models.OperatorModel, Composite))):
            continue
        if issubclass(cls, ml.models.PrimitiveModel):
            continue
        good = subject.good()
        yield Subject(
            f"{cls.__name__}.connect",
            parameters_of(cls(**good).connect),
            lambda cls=cls, good=good: extension(cls(**good)),
        )


def extension(child: ml.Model) -> Call:
    parent = small()

    def extend(*args: Any, **kwargs: Any) -> None:
        parent.__ior__(child.connect(*args, **kwargs))

    return Call(extend, (parent, child))


def of_models() -> Iterator[Subject]:
    yield from methods(ml.Model, small, lambda model: (model,))
    inherited = set(public_members(ml.Model))
    for subject in methods(ml.TrainModel, train, lambda model: (model,)):
        name = subject.title.partition(".")[2]
        if name not in inherited or name in vars(ml.TrainModel):
            yield subject
    yield from methods(type(small().conns), lambda: small().conns)


def of_connections() -> Iterator[Subject]:
    def make() -> Any:
        model = small()
        KEPT[:] = [model]
        return model["p"]

    def watched(wire: Any) -> tuple:
        return (KEPT[0],)

    yield from methods(ml.Connection, make, watched)
    yield from operators(make, watched)
    yield from methods(ml.Connection, lambda: ml.IOKey("free"))


def of_compiling() -> Iterator[Subject]:
    yield Subject("compile", parameters_of(ml.compile), lambda: Call(ml.compile))


def of_running() -> Iterator[Subject]:
    yield from methods(ml.PhysicalModel, physical)
    yield from methods(ml.PhysicalModel, lambda: physical(ml.CpuBackend))
    yield from methods(ml.optim.Adam, ml.optim.Adam)


def of_modules() -> Iterator[Subject]:
    modules = (ml, ml.models, ml.inspect, ml.constraints, ml.formats, ml.types, ml.common)
    for subject in functions(*modules, ml.backends, ml.utils):
        if subject.title != "compile":
            yield subject


def of_backends() -> Iterator[Subject]:
    for subject in classes(ml.backends):
        if subject.title in ("NumpyBackend", "CpuBackend"):
            yield subject


GROUPS = {
    "constructors": constructors,
    "wiring": wiring,
    "models": of_models,
    "connections": of_connections,
    "modules": of_modules,
    "compile": of_compiling,
    "running": of_running,
    "backends": of_backends,
}


def main(group: str, progress: str) -> None:
    warnings.simplefilter("ignore")
    started = time.perf_counter()
    with open(progress, "wb") as file:
        count, findings = sweep(GROUPS[group](), file.fileno())
    print(
        f"{group}: {count} calls, {len(findings)} findings in {time.perf_counter() - started:.1f} s"
    )
    print(*findings, sep="\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
