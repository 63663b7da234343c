"""`ml.compile`: from a model and a backend to something that runs."""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from mithril import _core, errors
from mithril._annotation import type_of
from mithril._checks import items, mapping, text
from mithril._conversion import as_numpy
from mithril._explanations import report
from mithril._files import path_of
from mithril._loss_scale import loss_scale_of
from mithril._predicting import frozen_names, frozen_patterns
from mithril._program import target_of
from mithril._public import public
from mithril._tensor import array_literal, narrowed
from mithril._values import as_value
from mithril._weights import check_weights
from mithril.backends.memory import parse_size
from mithril.connection import Connection, Tensor
from mithril.errors import (
    ArgumentError,
    FrozenModelError,
    NearMissWarning,
    SignatureError,
    UnsupportedError,
    shown,
    warn,
)
from mithril.model import Model
from mithril.optim import Optimizer
from mithril.physical import PhysicalModel, Settings
from mithril.types import Constant, Dtype, as_dtype

if TYPE_CHECKING:
    import os

    from mithril._typing import ByKey
    from mithril.backends.backend import Backend

Keys = Iterable[str | Connection] | None


@public
def compile(  # noqa: A001
    model: Model,
    backend: Backend,
    *,
    shapes: ByKey = None,
    data_keys: Keys = None,
    constant_keys: ByKey = None,
    trainable_keys: Keys = None,
    frozen_keys: Iterable[str] | str | None = None,
    discard_keys: Keys = None,
    types: ByKey = None,
    inference: bool = False,
    quantize: Literal["int8", "int4", "int16", "bfloat16"] | None = None,
    mode: Literal["train", "eval"] | None = None,
    jit: bool | Literal["auto"] = "auto",
    autodiff: Literal["engine", "framework"] | None = None,
    optimizer: Optimizer | None = None,
    loss_scale: float | None = None,
    file_path: str | os.PathLike[str] | None = None,
    jit_options: Mapping[str, Any] | None = None,
    strict: bool = False,
    strict_dtypes: bool = False,
    safe_names: bool = True,
    use_short_namings: bool = True,
    naming: Literal["path"] | None = None,
    safe_shapes: bool = True,
    auto_scalar_promotion: bool = True,
    static_shapes: bool = False,
    static_inference: bool = False,
    exact_conv: bool = False,
    deterministic: Literal["portable"] | None = None,
    gradient_checkpointing: bool = False,
    memory_limit: int | str | None = None,
    stream_gradients: bool = False,
    check_nan: bool | Literal["nan", "inf"] = False,
    passes: Iterable[str] = (),
    verbose: bool = False,
) -> PhysicalModel:
    """Compiles a model for a backend. The model is not changed and may be compiled again; what is
    done to it afterwards changes nothing of what was compiled.

    Parameters
    ----------
    shapes : sizes (or None, or names) of any keys
    data_keys : inputs given at each call that are not trained
    constant_keys : inputs with their values, which are folded where possible; arrays of floats
        are cast as data are
    trainable_keys : inputs that are trained although the model does not say so
    frozen_keys : parameters that training leaves as they are, by name or pattern with ``*``: of
        the name that `params` has, or of the path that ``naming="path"`` gives ("body.*"). They
        stay in `params`, without gradients; ``optimizer.init({k: params[k] for k in
        pm.trainable_keys})`` keeps nothing for them.
    discard_keys : outputs (or inputs) that are not wanted
    types : element types of keys, such as ``{"tokens": Tensor[int]}``, or of inputs with their
        width, such as ``{"tokens": ml.int32}``, which else is the backend's default
    inference : no gradients will be asked for
    quantize : "int8", "int4", "int16" or "bfloat16": the weights of products count as what so few
        bits stand for, the same on every backend (GGML has its own blocks, and no "int16" and
        "bfloat16"). They are rounded at each call; `bind` keeps them in few bits, and
        `quantization_report` says what that costs (docs/low_precision.md). There are no gradients
        then.
    mode : "eval" or "train"; what batch norm and dropout do. "train" for a TrainModel, else "eval"
    jit : compile the emitted program by the framework, which takes a while for each set of shapes;
        "auto" is the backend's own default: True on JAX, where programs that call functions of
        Python run line by line still. The engine's plans and NumPy have no such compiler, and run
        as ever.
    autodiff : "engine" or "framework"; who makes the gradient program
    optimizer : of `mithril.optim` (or a class derived from `Optimizer`); gives the physical model
        `step`
    loss_scale : what `step` multiplies the cost by, and divides gradients by again, so that small
        ones stay above what float16 holds; None: where programs compute in float16, 2^16 at first,
        doubled after 2000 good steps in a row, and halved where a gradient is not finite (PyTorch's
        `GradScaler`). Such a step changes no parameter. The scale is kept in `opt_state`.
    file_path : where the emitted source is written, a name that ends in ``.py``; not for the
        engine's plans, which have none
    jit_options : handed to the framework's compiler, where it compiles
    strict : unknown keys, and calls without parameters of a model that has some, are errors
        instead of warnings
    strict_dtypes : data of another dtype are errors instead of cast
    safe_names : data keys that the user did not name are errors
    use_short_namings : ``weight_0``; else unnamed keys have their path, ``linear_0_weight``
    naming : "path": an unnamed key is called after the named parts that it lies in and the nearest
        name that one of them has for it, ``encoder.attn.w_q``. Unnamed parts are counted among all
        of their class, so that names stay when a sibling gets a name or follows; initial values
        depend on seed, name and shape. Of two that are the same, the later one has "_" in front.
    safe_shapes : losses take input and target of one shape; False: they may broadcast
    auto_scalar_promotion : operands of several dtypes are cast to one; False: they are errors
    static_shapes : shapes that are not known here are those of the first call from then on
    static_inference : what depends on constants only is computed once; native backends always do
        so, and JAX where it compiles
    exact_conv : True: every convolution is summed in the order of the reference, to the bit;
        False: float32 ones of 3x3 windows may run by tiles (Winograd), which is quicker and within
        2^-20 of the largest sum of magnitudes (docs/numerics.md). Only on backends
        that run the engine's plans: `ml.CpuBackend`, `ml.CBackend`, `ml.OpenCLBackend` and
        `ml.CudaBackend`.
    deterministic : "portable": results have the same bits on every machine. Convolutions are those
        of ``exact_conv=True``, and linear algebra, which is LAPACK's where matrices are large, is
        the engine's own. Without it bits are the same from run to run and for any number of
        threads, but not from one kind of CPU to another. Only on backends that run the engine's
        plans.
    gradient_checkpointing : True: gradients take less memory and more time. What lies idle while
        most memory is in use is computed again where it is read, as long as that takes less than a
        third of the program's FLOPs, about what the forward part takes. Gradients are the engine's,
        to the same bits where each line runs by itself. On `ml.CpuBackend` and, for sizes that are
        known here, on NumPy, JAX and PyTorch. Under ``jit=True`` PyTorch computes segments of the
        program again (`torch.utils.checkpoint`), and gradients are its own.
    memory_limit : bytes, "8GB" or "512MiB": what a call may allocate for intermediate results and
        outputs, beside the inputs, parameters and states that the caller holds (`memory_plan` tells
        both). Of programs that take more, values are computed again, those first that free the most
        bytes for a FLOP; the bits stay the same. Only on `ml.CpuBackend`.
    stream_gradients : True: `step` updates each parameter as soon as its gradient exists, in the
        arrays that it is given, so that neither all gradients nor a second copy of the parameters
        and of the optimizer's state take memory. A step that has begun is finished before Ctrl-C
        is raised. Only with the engine's optimizers on `ml.CpuBackend`.
    check_nan : True: the first op that makes a NaN, forward or in a gradient, is an error that
        names it with its path in the model and its line; "inf": one that makes Inf, too. The
        program counts them as it runs; without the option it does nothing for it.
    passes : optimising passes that do not run, such as ``["-fuse"]``
    verbose : logs (or prints, where nobody listens to the log) keys, shapes and passes

    Raises
    ------
    UnsupportedError : the backend cannot do what an option asks for
    NotFiniteError : by calls of the result, with check_nan
    OutOfMemoryError : by calls of the result that do not fit the memory_limit however much is
        computed again, before anything is allocated

    >>> import mithril as ml, numpy as np
    >>> model = ml.Model()
    >>> model |= ml.Linear(2)(input="input", output="output")
    >>> pm = ml.compile(model, ml.CpuBackend(), data_keys={"input"}, shapes={"input": [None, 3]})
    >>> pm.evaluate(pm.get_parameters(), {"input": np.ones((4, 3))})["output"].shape
    (4, 2)

    Values that are computed again save a third of the memory here:

    >>> deep = ml.Model()
    >>> for _ in range(8):
    ...     deep += ml.Linear(64)
    ...     deep += ml.Sine()
    >>> deep += ml.Sum()
    >>> def peak(**options):
    ...     pm = ml.compile(deep, ml.CpuBackend(), shapes={"input": [256, 64]}, **options)
    ...     return pm.memory_plan().programs["gradient"].peak
    >>> peak(gradient_checkpointing=True) < 2 / 3 * peak()
    True
    """
    backend = _checked_backend(backend)
    checkpoints = _gradient_checkpointing(gradient_checkpointing, backend, autodiff, jit)
    compiles = _jit(jit, backend, checkpoints)
    by_text = checkpoints and not (compiles and backend._merges_copies)
    _refuse_unsupported(
        backend,
        jit=compiles,
        static_inference=_flag("static_inference", static_inference),
        exact_conv=_flag("exact_conv", exact_conv),
    )
    is_portable = _is_portable(deterministic, backend)
    backend = _quantizing(quantize, backend, optimizer)
    inference = _flag("inference", inference) or quantize is not None
    _check_optimizer(optimizer, inference)
    model = _finalized(model)
    settings = Settings(
        backend=backend,
        autodiff=_autodiff("engine" if by_text else autodiff, backend),
        jit=compiles,
        jit_is_asked=jit is True,
        jit_options=_jit_options(jit_options, compiles, backend),
        file_path=None if file_path is None else path_of("compile: file_path", file_path),
        inference=inference,
        quantize="" if quantize is None or backend.quantizes_itself else quantize,
        strict=_flag("strict", strict),
        strict_dtypes=_flag("strict_dtypes", strict_dtypes),
        optimizer=optimizer,
        loss_scale=loss_scale_of(loss_scale, backend, optimizer, stream_gradients),
        passes_off=_passes_off(passes),
        static_shapes=_flag("static_shapes", static_shapes),
        exact_conv=exact_conv or is_portable,
        exact_linalg=is_portable,
        check_nan=_check_nan(check_nan),
        memory_limit=_memory_limit(memory_limit, backend),
        gradient_checkpointing=checkpoints,
        stream_gradients=_stream_gradients(stream_gradients, backend, optimizer, check_nan),
    )
    widths = [(k, as_dtype(v)) for k, v in _mapping("types", types) if _is_width(v)]
    options = {
        "data_keys": _keys("data_keys", data_keys),
        "trainable_keys": _keys("trainable_keys", trainable_keys),
        "discard_keys": _keys("discard_keys", discard_keys),
        "shapes": _mapping("shapes", shapes),
        "types": [(k, type_of(v)) for k, v in _mapping("types", types) if not _is_width(v)],
        "dtypes": widths,
        "train": _mode(mode, model) == "train",
        "inference": inference,
        "strict": strict,
        "safe_names": _flag("safe_names", safe_names),
        "short_names": _flag("use_short_namings", use_short_namings),
        "path_names": _by_path(naming, use_short_namings),
        "names_of_part": model._outermost_only,
        "drops_discarded": False,
        "safe_shapes": _flag("safe_shapes", safe_shapes),
        "promote_mixed": _flag("auto_scalar_promotion", auto_scalar_promotion),
        "passes_off": list(settings.passes_off),
        "report": _flag("verbose", verbose),
        "item_shapes": [],
        "element_kinds": [],
        "values": [],
        "await_values": False,
        "fetch": [],
    }
    default = as_dtype(backend.default_dtype)
    options["constants"] = _constants(constant_keys, widths, default)
    _check_disjoint(options)
    snapshot = _core.Snapshot(model._node)
    options = _of_snapshot(options, snapshot)
    settings.frozen = _frozen(frozen_keys, snapshot, options, backend)
    settings.predicted = getattr(model, "_outputs", None) if model._outermost_only else None
    with _once(model._node):
        physical = PhysicalModel(snapshot, settings, options)
    for category, said in physical._compiled.warnings:
        warn(said, getattr(errors, category, errors.MithrilWarning))
    for said in report(physical._node, physical.data_keys, _stated(options)):
        warn(said, NearMissWarning)
    if verbose:
        from mithril import _report

        _report.tell(physical)
    return physical


class _UnderWay(threading.local):
    tags: frozenset[int] = frozenset()  # of the models that this thread compiles


_under_way = _UnderWay()


@contextlib.contextmanager
def _once(node: Any) -> Iterator[None]:
    """Refuses to compile a model while the same thread compiles it: a constraint that does so would
    be called again by each compile that it begins."""
    before = _under_way.tags
    if node.tag in before:
        raise FrozenModelError(
            "the model is busy: a call that changes or compiles it has not returned yet",
            hint="a constraint states facts about the keys that it is given, and compiles no model"
            " that it belongs to",
        )
    _under_way.tags = before | {node.tag}
    try:
        yield
    finally:
        _under_way.tags = before


def _of_snapshot(options: dict[str, Any], snapshot: Any) -> dict[str, Any]:
    """The options with the connections of the snapshot, and with shapes of our own."""

    def key(given: Any) -> Any:
        return given if isinstance(given, str) else snapshot.wire(given)

    out = dict(options)
    for name in ("data_keys", "trainable_keys", "discard_keys"):
        out[name] = [key(given) for given in options[name]]
    for name in ("constants", "types", "dtypes"):
        out[name] = [(key(given), value) for given, value in options[name]]
    shapes = options["shapes"]
    out["shapes"] = [(key(k), list(v) if isinstance(v, list) else v) for k, v in shapes]
    return out


def _frozen(patterns: Any, snapshot: Any, options: dict, backend: Any) -> tuple[str, ...]:
    """Names of the parameters that patterns of names or paths fit."""
    wanted = frozen_patterns(patterns)
    if not wanted:
        return ()
    by_name, by_path = (
        _core.compile(snapshot.model, found, target_of(backend)).keys
        for found in (options, {**options, "short_names": True, "path_names": True})
    )
    pairs = zip(by_name, by_path, strict=True)
    paths = {key["name"]: path["name"] for key, path in pairs if key["trainable"]}
    return frozen_names(wanted, paths, paths)


def _is_portable(deterministic: Any, backend: Any) -> bool:
    if deterministic is None:
        return False
    if not _is_one_of(deterministic, "portable"):
        raise ArgumentError(
            f'deterministic: requires "portable" or None, got {shown(deterministic)}'
        )
    if not backend.runs_plans:
        raise UnsupportedError(
            f"deterministic: {type(backend).__name__} computes in orders of its own",
            hint="use ml.CpuBackend(), or leave it out",
        )
    return True


def _refuse_unsupported(
    backend: Any, *, jit: bool, static_inference: bool, exact_conv: bool
) -> None:
    if exact_conv and not backend.runs_plans:
        raise UnsupportedError(
            f"exact_conv: {type(backend).__name__} sums convolutions in an order of its own",
            hint="use ml.CpuBackend(), or leave it out",
        )
    compiles = backend.backend_type == "jax" and jit
    if static_inference and not (backend.runs_plans or backend._folds_constants or compiles):
        raise UnsupportedError(
            f"static_inference: constants are not folded in programs for {type(backend).__name__}",
            hint="use ml.CpuBackend(), or ml.JaxBackend() with jit=True",
        )


def _quantizing(quantize: Any, backend: Any, optimizer: Any) -> Any:
    """The backend; ggml's with the option as its own."""
    if quantize is None:
        return backend
    if optimizer is not None:
        raise ArgumentError(
            "compile: with quantize= there are no gradients that optimizer= could take",
            hint="train without quantize=, and compile once more with it",
        )
    text("compile: quantize", quantize)
    if backend.quantizes_itself:
        return backend._quantizing(quantize)
    check_weights("compile: quantize", quantize, backend)
    return backend


def _check_optimizer(optimizer: Any, inference: bool) -> None:
    if optimizer is None:
        return
    if not isinstance(optimizer, Optimizer):
        kind = type(optimizer)
        own = f"{kind.__module__}.{kind.__qualname__}"
        if not callable(getattr(optimizer, "update", getattr(optimizer, "step", None))):
            raise SignatureError(f"optimizer: requires one of ml.optim, got {shown(optimizer)}")
        raise UnsupportedError(
            f"optimizer: steps are those of ml.optim, got {own}",
            hint="use ml.optim.Adam() or its like, or give the gradients of evaluate to yours",
        )
    if inference:
        raise ArgumentError(
            "compile: with inference=True there are no gradients that optimizer= could take",
            hint="leave one of them out",
        )


def _jit_options(given: Any, jit: bool, backend: Any) -> dict[str, Any]:
    options = dict(_mapping("jit_options", given))
    if options and not backend.capabilities.jit:
        raise UnsupportedError(
            f"jit_options: {type(backend).__name__} has no compiler to take them",
            hint="leave them out",
        )
    known = backend._jit_options
    unknown = [] if known is None else [name for name in options if name not in known]
    if unknown:
        near = errors.suggestion(unknown[0], known)
        raise UnsupportedError(
            f"jit_options: the compiler of {type(backend).__name__} takes"
            f" {', '.join(sorted(known)) or 'none'}, got {shown(unknown[0])}{near}"
        )
    if options and not jit:
        raise ArgumentError(
            "jit_options: nothing is compiled that could take them", hint="compile with jit=True"
        )
    return options


def _passes_off(passes: Any) -> tuple[str, ...]:
    known = _core.optimizing_passes()
    off = []
    for entry in items("passes", passes, "a list such as ['-fuse']"):
        if not isinstance(entry, str):
            raise SignatureError(f"passes: requires names, got {shown(entry)}")
        if entry.removeprefix("-") not in known or not entry.startswith("-"):
            near = errors.suggestion(entry, [f"-{name}" for name in known])
            raise ArgumentError(f"passes: cannot switch {entry!r}{near}")
        off.append(entry[1:])
    return tuple(off)


def _stated(options: dict) -> set[str]:
    """Inputs that the caller named: those are meant."""
    pairs = (*options["shapes"], *options["types"], *options["dtypes"])
    keys = [*options["data_keys"], *(key for key, _ in pairs)]
    return {key if isinstance(key, str) else key.key_name for key in keys}


def _is_width(annotation: Any) -> bool:
    """Whether a type is an element type with its width: of `ml`, by name, or of a library."""
    if isinstance(annotation, str) or type(annotation).__module__.partition(".")[0] == "numpy":
        return True
    is_class = isinstance(annotation, type) and annotation.__module__ == "numpy"
    return is_class or type(annotation).__module__.partition(".")[0] in ("torch", "ml_dtypes")


def _finalized(model: Any) -> Model:
    if not isinstance(model, Model):
        raise SignatureError(f"compile: requires a model, got {type(model).__name__}")
    if model._node.is_submodel and model._is_trained:
        return model.clone()
    if model._node.is_submodel:
        raise ArgumentError(
            f"compile: {model!r} is part of another model", hint="compile the outermost model"
        )
    finalize = getattr(type(model), "finalize", None)  # a wire may have that name
    if finalize is not None:
        finalize(model)
    return model


def _checked_backend(backend: Any) -> Any:
    from mithril.backends.backend import Backend

    if not isinstance(backend, Backend):
        what = backend.__name__ + " itself" if isinstance(backend, type) else shown(backend)
        raise SignatureError(f"compile: requires an instance of a backend, got {what}")
    return backend


def _autodiff(autodiff: str | None, backend: Any) -> str:
    if not _is_one_of(autodiff, "engine", "framework"):
        raise ArgumentError(f'autodiff: requires "engine" or "framework", got {shown(autodiff)}')
    if autodiff == "framework" and backend.is_manualgrad:
        raise UnsupportedError(
            f"autodiff: {type(backend).__name__} has no differentiation of its own",
            hint='leave autodiff out, or use autodiff="engine"',
        )
    return autodiff or ("engine" if backend.is_manualgrad else "framework")


def _jit(jit: Any, backend: Any, checkpoints: bool) -> bool:
    """Left to itself nothing is compiled that has to run line by line: programs whose functions are
    timed, and those that compute again what a compiler would merge."""
    if isinstance(jit, str) and jit == "auto":
        line_by_line = _core.is_profiling() or (checkpoints and backend._merges_copies)
        return bool(backend.jit_default) and not line_by_line
    return _flag("jit", jit)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SignatureError(f"{name}: requires True or False, got {shown(value)}")
    return value


def _check_nan(value: Any) -> str:
    if isinstance(value, str) and value in ("nan", "inf"):
        return value
    if not isinstance(value, bool):
        raise SignatureError(f'check_nan: requires True, False, "nan" or "inf", got {shown(value)}')
    return "nan" if value else ""


def _stream_gradients(value: Any, backend: Any, optimizer: Any, check_nan: Any) -> bool:
    if not _flag("stream_gradients", value):
        return False
    if optimizer is None:
        raise ArgumentError(
            "stream_gradients: there is no optimizer to take gradients",
            hint="compile with optimizer=, such as ml.optim.Adam()",
        )
    if not backend.runs_plans or not optimizer.op:
        what = optimizer if backend.runs_plans else backend
        raise UnsupportedError(
            f"stream_gradients: {type(what).__name__} does not update in the engine's plans",
            hint="use ml.CpuBackend() with an optimizer of ml.optim, or leave it out",
        )
    if check_nan:
        raise ArgumentError(
            "stream_gradients: check_nan looks for NaN before anything is updated",
            hint="leave one of them out",
        )
    return True


def _memory_limit(value: Any, backend: Any) -> int | None:
    if value is None:
        return None
    limit = parse_size(value, "memory_limit")
    if not backend.runs_plans:
        raise UnsupportedError(
            f"memory_limit: {type(backend).__name__} does not run the engine's plans",
            hint="use ml.CpuBackend(), or leave it out",
        )
    return limit


def _gradient_checkpointing(value: Any, backend: Any, autodiff: Any, jit: Any) -> bool:
    if not _flag("gradient_checkpointing", value):
        return False
    merges = jit is True and backend._merges_copies
    if autodiff == ("engine" if merges else "framework"):
        raise ArgumentError(
            "gradient_checkpointing: under its compiler only the gradients of"
            f" {type(backend).__name__} compute again"
            if merges
            else "gradient_checkpointing: only the engine's gradient programs compute again",
            hint="leave autodiff out",
        )
    if not backend._keeps_order:
        raise UnsupportedError(
            f"gradient_checkpointing: {type(backend).__name__} computes in an order of its own, in"
            " which values that are computed again take no less memory",
            hint="leave it out",
        )
    return True


def _by_path(naming: Any, use_short_namings: bool) -> bool:
    if not _is_one_of(naming, "path"):
        raise ArgumentError(f'naming: requires "path" or None, got {shown(naming)}')
    if naming is not None and not use_short_namings:
        raise ArgumentError(
            "compile: naming and use_short_namings both say how keys are called",
            hint="leave use_short_namings out",
        )
    return naming is not None


def _is_one_of(value: Any, *options: str) -> bool:
    return value is None or isinstance(value, str) and value in options


def _mode(mode: str | None, model: Model) -> str:
    if not _is_one_of(mode, "eval", "train"):
        raise ArgumentError(f'mode: requires "eval" or "train", got {shown(mode)}')
    default: str = getattr(type(model), "_default_mode", "eval")
    return mode or default


def _key(name: str, key: Any) -> Any:
    if isinstance(key, Connection):
        return key._wire
    if not isinstance(key, str):
        raise SignatureError(f"{name}: requires names or connections, got {shown(key)}")
    return text(name, key)


def _keys(name: str, keys: Keys) -> list:
    if keys is None:
        return []
    given = keys if not isinstance(keys, (str, Connection)) else [keys]
    found = [_key(name, key) for key in items(name, given, "names or connections")]
    # The order of a set is nobody's intention.
    return sorted(found, key=str) if isinstance(keys, (set, frozenset)) else found


def _mapping(name: str, given: Any) -> list[tuple[Any, Any]]:
    return [(_key(name, key), value) for key, value in mapping(name, given).items()]


def _constants(given: ByKey, dtypes: list[tuple[Any, Dtype]], default: Dtype) -> list:
    """Arrays of floats are cast as data are: to the type that `types=` has of the key, else to that
    of the backend."""
    named = {_name(key): dtype for key, dtype in dtypes}
    return [
        (key, _constant(value, named.get(_name(key), default)))
        for key, value in _mapping("constant_keys", given)
    ]


def _name(key: Any) -> str:
    return key if isinstance(key, str) else key.key_name


def _constant(value: Any, dtype: Dtype) -> Any:
    # MLX has arrays without __array__.
    is_array = hasattr(value, "__array__") or hasattr(value, "__dlpack__")
    if isinstance(value, (Tensor, Constant)) or not is_array:
        return as_value(value)
    return array_literal(narrowed(as_numpy(value, "constant_keys"), dtype, "constant_keys"))


def _check_disjoint(options: dict) -> None:
    given: dict[str, str] = {}
    for option in ("data_keys", "trainable_keys", "discard_keys", "constants"):
        for entry in options[option]:
            key = entry[0] if option == "constants" else entry
            other = given.setdefault(str(key), option)
            if other != option:
                raise ArgumentError(f"compile: key {key!r} is in {other} and in {option}")


class _Module(types.ModuleType):
    """`import mithril.compile` must not turn `ml.compile` into something that cannot be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> PhysicalModel:
        return compile(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(compile)


sys.modules[__name__].__class__ = _Module
