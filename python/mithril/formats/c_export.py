"""Models as folders of C99: the text of a program, its weights, and what builds and shows it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mithril import _core
from mithril.backends.with_manualgrad.c_backend.backend import TextOnly
from mithril.base.checks import checked_bool, checked_mapping, checked_size, checked_str
from mithril.base.files import path_of, replacing
from mithril.base.numpy import np
from mithril.errors import ArgumentError, KeyNotFound, UnsupportedError, shown, suggestion
from mithril.formats import _c_api, _c_files
from mithril.formats._c_layout import ALIGNMENT, Array, Export, Wanted, placed_arrays
from mithril.optim.optimizers import attributes_of, clips
from mithril.physical.compilation import Call, compilation_of
from mithril.physical.gradients import check_gradients_allowed, cost_of
from mithril.physical.initial import Uninitialized
from mithril.physical.open_ranks import Shaped
from mithril.physical.parameters import drawn, placed
from mithril.physical.sizes import checked_shapes, input_shapes, program_for
from mithril.physical.step_layout import COUNT, RATE, new_key, slot_key, state_key
from mithril.physical.targets import python_ops, runs_natively
from mithril.types import Dtype

__all__ = ["ALIGNMENT", "Array", "Export", "export_c"]

MOST_THREADS = 1024
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_TAKEN = ("main", "makefile", "m")  # by the example, by what builds it, by the text's own names
_WEIGHTS = ("binary", "array")
_TARGETS = ("hosted", "freestanding")
Entries = list[tuple[int, Any]]  # arrays of `_core.CProgram.source` by place


def export_c(
    physical: Any,
    folder: Any,
    *,
    params: Any = None,
    training: Any = False,
    weights: Any = "binary",
    name: Any = "model",
    target: Any = "hosted",
    shapes: Any = None,
    threads: Any = 1,
) -> dict[str, Any]:
    """See `PhysicalModel.export_c`."""
    to = path_of("export_c: folder", folder)
    wanted = Wanted(
        name=_checked_name(name),
        training=checked_bool("export_c: training", training),
        weights=_one_of("weights", weights, _WEIGHTS),
        freestanding=_one_of("target", target, _TARGETS) == "freestanding",
        threads=_checked_threads(threads),
    )
    given = checked_shapes("export_c", physical, shapes)
    params = _checked_params(physical, params)
    for_c = _recompiled(physical)
    make = _step if wanted.training else _evaluation
    export = make(for_c, wanted, given, params)
    _write(to, export)
    return export.layout()


# --- arguments ------------------------------------------------------------------------------------


def _checked_name(name: Any) -> str:
    found = checked_str("export_c: name", name)
    if found.lower() in _TAKEN:
        raise ArgumentError(
            f"export_c: name: the folder has a use for {shown(found)} itself",
            hint=f"any name but {', '.join(sorted(_TAKEN))}",
        )
    if not _NAME.fullmatch(found):
        raise ArgumentError(
            f"export_c: name requires a name of C, got {shown(found)}",
            hint="letters, digits and _, a letter first, at most 63 of them",
        )
    return found


def _one_of(option: str, value: Any, known: Sequence[str]) -> str:
    if checked_str(f"export_c: {option}", value) not in known:
        choices = " or ".join(f"'{one}'" for one in known)
        near = suggestion(value, known)
        raise ArgumentError(f"export_c: {option} requires {choices}, got {shown(value)}{near}")
    return str(value)


def _checked_threads(threads: Any) -> int:
    found = checked_size("export_c: threads", threads)
    if found > MOST_THREADS:
        raise ArgumentError(f"export_c: threads must be at most {MOST_THREADS}, got {found}")
    return found


def _checked_params(physical: Any, params: Any) -> Mapping[str, Any]:
    found = checked_mapping("export_c: params", params)
    unknown = [name for name in found if name not in physical.param_keys]
    if unknown:
        near = suggestion(unknown[0], physical.param_keys)
        raise KeyNotFound(
            f"export_c: params: no parameter named {shown(unknown[0])}{near}",
            hint="params, state = pm.split_state(arrays) parts what was saved with the state",
        )
    return found


def _recompiled(physical: Any) -> Any:
    """Compiles the model of any backend again, for C."""
    compilation = compilation_of(physical)
    options = replace(
        compilation.options,
        backend=TextOnly(dtype=physical.backend.default_dtype),
        autodiff="engine",
        jit=False,
        jit_is_asked=False,
        jit_options={},
        file_path=None,
        check_nan="",
        weights="",
        recorder=_core.Recorder(),
    )
    made = type(physical)(compilation.snapshot, options)
    if not runs_natively(compilation_of(made).compiled, made.backend):
        nodes = python_ops(compilation_of(made).compiled)
        names = [f"{path!r} ({os.path.basename(file)}:{line})" for _, path, file, line in nodes]
        raise UnsupportedError(
            "export_c: the model has ops that are Python functions, which C cannot call: "
            + ", ".join(names)
        )
    return made


# --- programs -------------------------------------------------------------------------------------


def _evaluation(physical: Any, wanted: Wanted, given: Any, params: Any) -> Export:
    """The forward pass, its parameters among the constants."""
    values = _parameters(physical, given, params)
    bound = physical.bind(values) if physical.param_keys else physical
    given = {name: shape for name, shape in given.items() if name in compilation_of(bound).by_name}
    program = program_for("export_c", bound, given)
    source = _source(program, program.forward, given, wanted)
    kinds = {key.name: _KINDS[key.role] for key in program.inputs}
    results = {state_key(name): "next_state" for name in program.state_names}
    names = [key.name for key in program.inputs]
    inputs = _numbered(_read(source, names, program), "input", kinds)
    outputs = _numbered(_written(source, program), "output", results)
    states = [one for one in inputs if one.kind == "state"]
    first = _states(bound, given) if states else {}
    return replace(
        _export(wanted, source, inputs, outputs),
        values={one.place: _as_stored(first[one.name], one) for one in states},
    )


def _step(physical: Any, wanted: Wanted, given: Any, params: Any) -> Export:
    """A step of training: gradients and the optimizer's update, in the arrays that are there."""
    compilation = compilation_of(physical)
    optimizer = compilation.options.optimizer
    _check_trainable(physical, optimizer)
    program = program_for("export_c", physical, given)
    values = _parameters(physical, given, params)
    trained = [key.name for key in program.inputs if key.trainable]
    graph = program.compiled.step(
        [], trained, [cost_of(compilation, program)], optimizer.op, attributes_of(optimizer)
    )
    roles = _roles(program, optimizer, trained)
    updates = _updates(graph, program, roles)
    executable = physical.backend._program(
        graph,
        program.compiled.trace,
        compilation.options.passes_off,
        overwrites=list(updates.items()),
    )
    source = _source(program, executable, given, wanted)
    arrays = _read(source, [name for name, *_ in graph.inputs], program)
    places = {one["name"]: place for place, one in arrays}
    kept = placed_arrays(
        Array(place, *roles[one["name"]], **_facts(one))
        for place, one in arrays
        if one["name"] in roles
    )
    data = [(place, one) for place, one in arrays if one["name"] not in roles]
    results = _written(source, program)
    own = [(place, one) for place, one in results if one["name"] not in updates]
    first = {**values, **_states(physical, given), **_beginning(optimizer, roles, values)}
    graph_names = {place: name for name, place in places.items()}
    return replace(
        _export(wanted, source, _numbered(data, "input"), _numbered(own, "output")),
        kept=kept,
        values={one.place: _as_stored(first[graph_names[one.place]], one) for one in kept},
        aliases={
            place: places[updates[one["name"]]]
            for place, one in results
            if updates.get(one["name"]) in places
        },
    )


def _roles(program: Any, optimizer: Any, trained: Sequence[str]) -> dict[str, tuple[str, str, str]]:
    """Returns what a step updates: name of an input in the graph -> (kind, "", name)."""
    found = {k.name: (_KINDS[k.role], "", k.name) for k in program.inputs if k.role != "data"}
    for slot in optimizer.slots:
        found |= {slot_key(slot, name): (f"optimizer.{slot}", "", name) for name in trained}
    return found | {COUNT: ("step", "", ""), RATE: ("rate", "", "")}


def _updates(graph: Any, program: Any, roles: Iterable[str]) -> dict[str, str]:
    """Returns the results of a step, each with the input whose array it overwrites."""
    found = {new_key(name): name for name in roles if new_key(name) in graph.outputs}
    return found | {state_key(name): name for name in program.state_names}


_KINDS = {"data": "input", "param": "parameter", "state": "state"}


def _check_trainable(physical: Any, optimizer: Any) -> None:
    if optimizer is None:
        raise ArgumentError(
            "export_c: training=True: the model has no optimizer",
            hint="compile with optimizer=, such as ml.optim.Adam()",
        )
    if not optimizer.op or clips(optimizer):
        what = "clips gradients" if clips(optimizer) else "is no op of the engine"
        raise UnsupportedError(
            f"export_c: training=True: {type(optimizer).__name__} {what}: no single program",
            hint="leave clip_norm and clip_value out, or take ml.optim.SGD, Adam or AdamW",
        )
    check_gradients_allowed(compilation_of(physical))


def _open_sizes(program: Any, shapes: Sequence[Any]) -> UnsupportedError:
    """Names the data with open sizes, and a call that says them."""
    pairs = zip(program.inputs, shapes, strict=True)
    found = [(key, shape) for key, shape in pairs if None in shape and key.role == "data"]
    sizes = ", ".join(f"'{key.name}' is {key.shape_text}" for key, _ in found)
    example = {key.name: [1 if n is None else n for n in shape] for key, shape in found}
    return UnsupportedError(
        f"export_c: C has no open sizes, but {sizes}",
        hint=f"say them, for example: pm.export_c(folder, shapes={shown(example)})",
    )


def _source(program: Any, executable: Any, given: Any, wanted: Wanted) -> Mapping[str, Any]:
    """The text of a program for the sizes that are known, which must be all."""
    if not hasattr(executable, "source"):
        raise UnsupportedError(
            "export_c: sizes follow from data, as those of x[mask] do, but C has no open sizes",
            hint="put ml.where in the place of a mask",
        )
    shapes = input_shapes(program, given)
    symbols = program.forward.symbols(shapes)
    if None in symbols.values():
        raise _open_sizes(program, shapes)
    sizes = shapes if executable is program.forward else executable.sizes(symbols)
    return executable.source(sizes, wanted.name, wanted.threads, wanted.freestanding)


def _read(source: Mapping[str, Any], names: Sequence[str], program: Any) -> Entries:
    """The inputs that the program reads, by place; what is no array cannot be one."""
    pairs = list(zip(names, source["inputs"], strict=True))
    for name, entry in pairs:
        if entry is None and name in program.by_name and not program.by_name[name].is_tensor:
            raise UnsupportedError(
                f"export_c: input '{name}' is no array", hint="give it in constant_keys"
            )
    return [(place, entry) for place, (_, entry) in enumerate(pairs) if entry is not None]


def _written(source: Mapping[str, Any], program: Any) -> Entries:
    """Returns the outputs by place, which must all be arrays."""
    entries = source["outputs"]
    for name, entry in zip(program.outputs, entries, strict=False):
        if entry is None:
            raise UnsupportedError(
                f"export_c: output '{name}' is no array", hint="discard_keys leaves it out"
            )
    return [(place, entry) for place, entry in enumerate(entries) if entry is not None]


def _facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"dtype": entry["dtype"], "shape": tuple(entry["shape"])}


def _numbered(entries: Entries, kind: str, kinds: Mapping[str, str] | None = None) -> list[Array]:
    """Arrays that are fields of a struct, each kind (by name, else `kind`) counted from 0."""
    counts: dict[str, int] = {}
    out = []
    for place, one in entries:
        of = (kinds or {}).get(one["name"], kind)
        number = counts[of] = counts.get(of, -1) + 1
        out.append(Array(place, of, f"{of}_{number}", one["name"], **_facts(one)))
    return out


def _export(wanted: Wanted, source: Any, inputs: list[Array], outputs: list[Array]) -> Export:
    constants = placed_arrays(
        Array(place, "weight", "", "", **_facts(one))
        for place, one in enumerate(source["constants"])
    )
    return Export(wanted, source, inputs, outputs, constants)


# --- values ---------------------------------------------------------------------------------------


def _parameters(physical: Any, given: Mapping[str, tuple], params: Any) -> dict[str, Any]:
    """Returns the parameters of the program in the types of the model."""
    data = {name: Shaped(shape) for name, shape in given.items()}
    if not params:
        params = drawn(compilation_of(physical), 0, data)
    values = {}
    program = program_for("export_c", physical, given)
    for key in program.inputs:
        if key.role != "param":
            continue
        if key.name not in params:
            raise KeyNotFound(f"export_c: params must have '{key.name}'", code="MTH402")
        value = params[key.name]
        if isinstance(value, Uninitialized):
            value = placed(compilation_of(physical), key, value, Call(dict(params), data))
        values[key.name] = np.asarray(compilation_of(physical).convert(key, value))
    return values


def _states(physical: Any, given: Mapping[str, tuple]) -> dict[str, Any]:
    data = {name: Shaped(shape) for name, shape in given.items()}
    return drawn(compilation_of(physical), 0, data, role="state")


def _beginning(optimizer: Any, roles: Mapping, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the initial values of the optimizer's state, by their names in the graph."""
    first = optimizer.init(dict(values))
    found = {COUNT: first["step"], RATE: optimizer.lr}
    for graph_name, (kind, _, name) in roles.items():
        if kind.startswith("optimizer."):
            found[graph_name] = first[kind.removeprefix("optimizer.")][name]
    return found


def _as_stored(value: Any, array: Array) -> np.ndarray:
    stored = np.asarray(value).astype(Dtype(array.dtype).numpy())
    return np.array(np.broadcast_to(stored, array.shape), order="C")


# --- files ----------------------------------------------------------------------------------------


def _write(folder: str, export: Export) -> None:
    """Writes the files; each replaces an older one as a whole."""
    files = dict(_files(export))
    os.makedirs(folder, exist_ok=True)
    for name, data in files.items():
        with replacing("export_c: folder", Path(folder) / name) as file:
            for part in data:
                file.write(part)


def _files(export: Export) -> Iterable[tuple[str, Iterable[bytes]]]:
    name = export.name
    texts = {
        f"{name}.h": export.source["header"],
        f"{name}.c": export.source["text"],
        f"{name}_api.h": _c_api.header(export),
        f"{name}_api.c": _c_api.source(export),
        f"{name}.json": json.dumps(export.layout(), indent=1) + "\n",
        "main.c": _c_files.main(export),
        "Makefile": _c_files.makefile(export),
        "CMakeLists.txt": _c_files.cmake(export),
        "README.md": _c_files.readme(export),
    }
    yield from ((file, [content.encode()]) for file, content in texts.items())
    for one in export.first_states:
        yield f"{one.field}.bin", [export.values[one.place].tobytes()]
    if export.weights == "array":
        yield f"{name}_weights.c", _c_api.arrays(export)
        return
    blocks = {
        "weights": (export.constants, export.constant_arrays),
        "state": (export.kept, export.kept_arrays),
    }
    for block, (arrays, values) in blocks.items():
        if arrays:
            yield f"{name}_{block}.bin", _c_files.block(arrays, values, ALIGNMENT)
