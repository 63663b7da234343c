"""The options of `compile`, one by one: each function takes what the user gave, and raises where it
is nothing that this model and backend can have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from mithril import _core, errors
from mithril.base.checks import checked_list, checked_mapping, checked_str
from mithril.errors import (
    ArgumentError,
    SignatureError,
    UnsupportedError,
    shown,
)
from mithril.execution.interface import CompileTarget
from mithril.execution.memory import parse_size
from mithril.logical.connection import Connection, Tensor
from mithril.logical.handles import node_of, wire_of
from mithril.logical.tensor import array_literal, narrowed
from mithril.logical.values import as_value
from mithril.optim.optimizers import refuse_foreign
from mithril.physical.conversion import as_numpy
from mithril.physical.options import CompileOptions
from mithril.physical.weights import check_weights
from mithril.types import Constant, Dtype

if TYPE_CHECKING:
    from mithril.logical.model import Model
    from mithril.logical.typing import ByKey

Keys: TypeAlias = Iterable[str | Connection] | None


def is_portable_of(deterministic: Any, backend: Any) -> bool:
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


def refuse_unsupported(backend: Any, *, exact_conv: bool) -> None:
    if exact_conv and not backend.runs_plans:
        raise UnsupportedError(
            f"exact_conv: {type(backend).__name__} sums convolutions in an order of its own",
            hint="use ml.CpuBackend(), or leave it out",
        )


def quantizing(quantize: Any, backend: Any, optimizer: Any) -> Any:
    """The backend; ggml's with the option as its own."""
    if quantize is None:
        return backend
    if optimizer is not None:
        raise ArgumentError(
            "compile: with quantize= there are no gradients that optimizer= could take",
            hint="train without quantize=, and compile once more with it",
        )
    checked_str("compile: quantize", quantize)
    if backend.quantizes_itself:
        return backend._quantizing(quantize)
    check_weights("compile: quantize", quantize, backend)
    return backend


def check_optimizer(optimizer: Any, inference: bool) -> None:
    if optimizer is None:
        return
    refuse_foreign("optimizer", optimizer)
    if inference:
        raise ArgumentError(
            "compile: with inference=True there are no gradients that optimizer= could take",
            hint="leave one of them out",
        )


def jit_options_of(given: Any, jit: bool, backend: Any) -> dict[str, Any]:
    options = dict(pairs("jit_options", given))
    if options and not backend.capabilities.jit:
        raise UnsupportedError(
            f"jit_options: {type(backend).__name__} has no compiler to take them",
            hint="leave them out",
        )
    known = backend.jit_option_names
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


def passes_off_of(passes: Any) -> tuple[str, ...]:
    off = []
    for entry in checked_list("passes", passes, "a list such as ['-fuse']"):
        if not isinstance(entry, str):
            raise SignatureError(f"passes: requires names, got {shown(entry)}")
        known = _core.optimizing_passes()
        if entry.removeprefix("-") not in known or not entry.startswith("-"):
            near = errors.suggestion(entry, [f"-{name}" for name in known])
            raise ArgumentError(f"passes: cannot switch {entry!r}{near}")
        off.append(entry[1:])
    return tuple(off)


def is_width(annotation: Any) -> bool:
    """Tells whether a type is an element type with its width: of `ml`, by name, or of a library."""
    if isinstance(annotation, str) or type(annotation).__module__.partition(".")[0] == "numpy":
        return True
    is_class = isinstance(annotation, type) and annotation.__module__ == "numpy"
    return is_class or type(annotation).__module__.partition(".")[0] in ("torch", "ml_dtypes")


def checked_backend(backend: Any) -> Any:
    if not isinstance(backend, CompileTarget):
        what = backend.__name__ + " itself" if isinstance(backend, type) else shown(backend)
        raise SignatureError(f"compile: requires an instance of a backend, got {what}")
    return backend


def autodiff_of(autodiff: str | None, backend: Any) -> str:
    if not _is_one_of(autodiff, "engine", "framework"):
        raise ArgumentError(f'autodiff: requires "engine" or "framework", got {shown(autodiff)}')
    if autodiff == "framework" and backend.is_manualgrad:
        raise UnsupportedError(
            f"autodiff: {type(backend).__name__} has no differentiation of its own",
            hint='leave autodiff out, or use autodiff="engine"',
        )
    return autodiff or ("engine" if backend.is_manualgrad else "framework")


def jit_of(jit: Any, backend: Any, checkpoints: bool) -> bool:
    """Left to itself nothing is compiled that has to run line by line: programs whose functions are
    timed, and those that compute again what a compiler would merge."""
    if isinstance(jit, str) and jit == "auto":
        line_by_line = _core.is_profiling() or (checkpoints and backend.merges_copies)
        return bool(backend.jit_default) and not line_by_line
    return flag("jit", jit)


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SignatureError(f"{name}: requires True or False, got {shown(value)}")
    return value


def check_nan_of(value: Any) -> str:
    if isinstance(value, str) and value in ("nan", "inf"):
        return value
    if not isinstance(value, bool):
        raise SignatureError(f'check_nan: requires True, False, "nan" or "inf", got {shown(value)}')
    return "nan" if value else ""


def stream_gradients_of(value: Any, backend: Any, optimizer: Any, check_nan: Any) -> bool:
    if not flag("stream_gradients", value):
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


def memory_limit_of(value: Any, backend: Any) -> int | None:
    if value is None:
        return None
    limit = parse_size(value, "memory_limit")
    if not backend.runs_plans:
        raise UnsupportedError(
            f"memory_limit: {type(backend).__name__} does not run the engine's plans",
            hint="use ml.CpuBackend(), or leave it out",
        )
    return limit


def gradient_checkpointing_of(value: Any, backend: Any, autodiff: Any, jit: Any) -> bool:
    if not flag("gradient_checkpointing", value):
        return False
    merges = backend._checkpoints_itself(jit is True)
    if autodiff == ("engine" if merges else "framework"):
        raise ArgumentError(
            f"gradient_checkpointing: only the gradients of {type(backend).__name__}'s framework"
            " compute again" + (" under its compiler" if backend.keeps_order else "")
            if merges
            else "gradient_checkpointing: only the engine's gradient programs compute again",
            hint="leave autodiff out",
        )
    return True


def is_by_path(naming: Any, use_short_namings: bool) -> bool:
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


def mode_of(mode: str | None, model: Model) -> str:
    if not _is_one_of(mode, "eval", "train"):
        raise ArgumentError(f'mode: requires "eval" or "train", got {shown(mode)}')
    default: str = getattr(type(model), "_default_mode", "eval")
    return mode or default


def _key(name: str, key: Any) -> Any:
    if isinstance(key, Connection):
        return wire_of(key)
    if not isinstance(key, str):
        raise SignatureError(f"{name}: requires names or connections, got {shown(key)}")
    return checked_str(name, key)


def keys(name: str, named: Keys) -> list[Any]:
    """Names and wires of an option, in an order that does not depend on hashes."""
    if named is None:
        return []
    given = named if not isinstance(named, (str, Connection)) else [named]
    found = [_key(name, key) for key in checked_list(name, given, "names or connections")]
    # The order of a set is nobody's intention.
    return sorted(found, key=str) if isinstance(named, (set, frozenset)) else found


def pairs(name: str, given: Any) -> list[tuple[Any, Any]]:
    return [(_key(name, key), value) for key, value in checked_mapping(name, given).items()]


def constants_of(
    given: ByKey, dtypes: list[tuple[Any, Dtype]], default: Dtype, model: Model
) -> list:
    """Arrays of floats are cast as data are: to the type that `types=` has of the key, else to that
    of the backend."""
    named = {_name(key, model): dtype for key, dtype in dtypes}
    return [
        (key, _constant(value, named.get(_name(key, model), default)))
        for key, value in pairs("constant_keys", given)
    ]


def _name(key: Any, model: Model) -> str:
    """The key in the model; that of a wire elsewhere, which is refused later, in its own."""
    if isinstance(key, str):
        return key
    wire = node_of(model).find_connection(key)
    return key.key_name if wire is None else wire.key_name


def _constant(value: Any, dtype: Dtype) -> Any:
    # MLX has arrays without __array__.
    is_array = hasattr(value, "__array__") or hasattr(value, "__dlpack__")
    if isinstance(value, (Tensor, Constant)) or not is_array:
        return as_value(value)
    return array_literal(narrowed(as_numpy(value, "constant_keys"), dtype, "constant_keys"))


def check_disjoint(options: CompileOptions) -> None:
    """Raises where a key is said to be two things."""
    given: dict[str, str] = {}
    for option in ("data_keys", "trainable_keys", "discard_keys", "constants"):
        for entry in getattr(options, option):
            key = entry[0] if option == "constants" else entry
            other = given.setdefault(str(key), option)
            if other != option:
                raise ArgumentError(f"compile: key {key!r} is in {other} and in {option}")
