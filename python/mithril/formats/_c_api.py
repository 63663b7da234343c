"""The C of an exported folder that calls its program: structs of typed pointers, and weights."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mithril.base.numpy import np
from mithril.formats._c_layout import ALIGNMENT, Array, Export, end_of

_C_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "bool": "uint8_t",
    "uint8": "uint8_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
}
_NOT_PLAIN = re.compile(r"(?!^\$)[^A-Za-z0-9_.]")  # "$" begins names of ours, as "$state.…"
_LONGEST = 120  # characters of a name in a comment


def c_type(array: Array) -> str:
    """Returns the C type of the elements; halves are `uint16_t` bits, bool is `uint8_t` 0 or 1."""
    return _C_TYPES[array.dtype]


def commented(name: str) -> str:
    """A name of the model as it may stand in a comment: escaped, and not too long."""
    plain = _NOT_PLAIN.sub(lambda found: "".join(f"%{b:02X}" for b in _bytes(found[0])), name)
    return plain[:_LONGEST]


def _bytes(character: str) -> bytes:
    return character.encode("utf-8", "surrogatepass")


def described(array: Array) -> str:
    """Name, element type and shape: "x: float32[32, 64]"."""
    shape = f"{array.dtype}{list(array.shape)}"
    return f"{commented(array.name)}: {shape}" if array.name else shape


# --- header ---------------------------------------------------------------------------------------


def header(export: Export) -> str:
    """Returns the text of the header that users include."""
    name, guard = export.name, f"{export.name.upper()}_API_H"
    sizes = [("ALIGNMENT", ALIGNMENT), ("WEIGHT_BYTES", end_of(export.constants))]
    sizes += [("STATE_BYTES", end_of(export.kept))] if export.training else []
    parts = [
        f"/* Calls of the program in {name}.c with typed arrays; README.md explains them. */",
        f"#ifndef {guard}\n#define {guard}\n",
        f'#include <stddef.h>\n#include <stdint.h>\n\n#include "{name}.h"\n',
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        "\n".join(f"#define {name.upper()}_{what} {value}" for what, value in sizes) + "\n",
        *_structs(export),
        *_calls(export),
        "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
    ]
    return "\n".join(parts)


def _structs(export: Export) -> Iterator[str]:
    name = export.name
    yield "/* What a call reads. */\n" + _struct(f"{name}_inputs", export.inputs, "const ")
    yield "/* Where a call writes. */\n" + _struct(f"{name}_outputs", export.outputs, "")
    members = [
        f"  const void *weights[{max(1, len(export.constants))}]; /* shared by all threads */",
        f"  void *arena; /* {name.upper()}_ARENA_BYTES of working memory */",
        *(["  void *state; /* what training updates */"] if export.training else []),
        f"  {name}_context context; /* what went wrong in the last call */",
    ]
    about = "/* A thread's own: threads share nothing but weights. */"
    yield f"{about}\ntypedef struct {{\n" + "\n".join(members) + f"\n}} {name}_model;\n"


def _struct(name: str, arrays: Sequence[Array], const: str) -> str:
    rows = [f"  {const}{c_type(one)} *{one.field}; /* {described(one)} */" for one in arrays]
    rows = rows or ["  char unused; /* C has no empty struct */"]
    return "typedef struct {\n" + "\n".join(rows) + f"\n}} {name};\n"


def _calls(export: Export) -> Iterator[str]:
    name = export.name
    bound = "" if export.weights == "array" else "const void *weights, "
    state = ", void *state" if export.training else ""
    about = ["Makes a model ready; the blocks stay the caller's, at multiples of LARGE_ALIGNMENT."]
    if export.weights == "binary":
        about.append("`weights`: the bytes of NAME_weights.bin, which are only read.")
    if export.training:
        block = "LARGE_STATE_BYTES" if export.weights == "array" else "the bytes of NAME_state.bin"
        about.append(f"`state`: {block}, which steps update.")
    yield _comment(about, name)
    yield f"void {name}_init({name}_model *model, {bound}void *arena{state});\n"
    if not export.training:
        about = [
            "Runs the model: 0, or a status of NAME.h, with which outputs mean nothing.",
            "What it writes must not overlap what it reads.",
        ]
        yield _comment(about, name)
        yield _prototype(export, "evaluate") + ";\n"
        return
    if export.weights == "array":
        yield _comment(["Writes parameters and the optimizer's state as they are at first."], name)
        yield f"void {name}_reset(void *state);\n"
    yield _comment(
        [
            "Runs a step of training, which updates the state: 0, or a status of NAME.h.",
            "Where it is not 0, the state may be updated in part: keep a copy to go back to.",
        ],
        name,
    )
    yield _prototype(export, "step") + ";\n"
    rate = next(one for one in export.kept if one.kind == "rate")
    yield _comment(["The rate of the next steps, which may be changed at any time."], name)
    yield f"{c_type(rate)} *{name}_rate({name}_model *model);\n"


def _comment(lines: Iterable[str], name: str) -> str:
    text = "\n   ".join(lines)
    return "/* " + text.replace("LARGE", name.upper()).replace("NAME", name) + " */"


def _prototype(export: Export, verb: str) -> str:
    name = export.name
    arguments = f"{name}_model *model, const {name}_inputs *inputs, const {name}_outputs *outputs"
    return f"int {name}_{verb}({arguments})"


# --- source ---------------------------------------------------------------------------------------


def source(export: Export) -> str:
    """Returns the text that defines what the header declares."""
    name = export.name
    parts = [f"/* Calls of the program in {name}.c with typed arrays. */"]
    parts.append(f'#include "{name}_api.h"\n')
    if export.weights == "array" and export.constants:
        parts.append(f"extern const void *const {name}_weights[{len(export.constants)}];\n")
    elif export.constants:
        offsets = ", ".join(str(one.offset) for one in export.constants)
        parts.append(f"static const size_t weight_offsets[] = {{{offsets}}};\n")
    parts += [_init(export), _run(export)]
    if export.training:
        parts.append(_rate(export))
    return "\n".join(parts)


def _init(export: Export) -> str:
    name = export.name
    bound = "" if export.weights == "array" else "const void *weights, "
    state = ", void *state" if export.training else ""
    at = f"{name}_weights[i]"
    if export.weights == "binary":
        at = "(const unsigned char *)weights + weight_offsets[i]"
    count = len(export.constants)
    fill = [f"  for (i = 0; i < {count}; ++i) model->weights[i] = {at};"]
    if not count:
        fill = ["  model->weights[0] = NULL;"]
        fill += ["  (void)weights;"] if bound else []
    lines = [
        f"void {name}_init({name}_model *model, {bound}void *arena{state}) {{",
        *(["  size_t i;"] if count else []),
        *fill,
        "  model->arena = arena;",
        *(["  model->state = state;"] if export.training else []),
        "  model->context.stops = NULL;",
        "  model->context.stops_data = NULL;",
        "}\n",
    ]
    return "\n".join(lines)


def _run(export: Export) -> str:
    name = export.name
    inputs = {one.place: f"inputs->{one.field}" for one in export.inputs}
    kept = {one.place: f"state + {one.offset}" for one in export.kept}
    outputs = {one.place: f"outputs->{one.field}" for one in export.outputs}
    outputs |= {place: kept[source] for place, source in export.aliases.items()}
    notes = {one.place: described(one) for one in export.inputs}
    notes |= {one.place: f"{one.kind} {described(one)}" for one in export.kept}
    counts = [len(export.source[what]) for what in ("inputs", "outputs")]
    body = [f"  const void *in[{max(1, counts[0])}];", f"  void *out[{max(1, counts[1])}];"]
    if export.training:
        body += ["  unsigned char *const state = model->state;"]
    body += ["  (void)inputs;"] if not inputs else []
    body += ["  (void)outputs;"] if not export.outputs else []
    every = inputs | kept
    for place in range(max(1, counts[0])):
        note = f" /* {notes[place]} */" if place in notes else ""
        body.append(f"  in[{place}] = {every.get(place, 'NULL')};{note}")
    for place in range(max(1, counts[1])):
        body.append(f"  out[{place}] = {outputs.get(place, 'NULL')};")
    call = f"{name}_run(in, out, model->weights, model->arena, &model->context)"
    verb = "step" if export.training else "evaluate"
    return "\n".join([_prototype(export, verb) + " {", *body, f"  return {call};", "}\n"])


def _rate(export: Export) -> str:
    rate = next(one for one in export.kept if one.kind == "rate")
    name, kind = export.name, c_type(rate)
    at = f"(void *)((unsigned char *)model->state + {rate.offset})"
    return f"{kind} *{name}_rate({name}_model *model) {{\n  return {at};\n}}\n"


# --- weights as arrays ----------------------------------------------------------------------------


def arrays(export: Export) -> Iterator[bytes]:
    """Returns the C text of the weights and of the initial state of training."""
    name = export.name
    yield f'#include <math.h>\n#include <string.h>\n\n#include "{name}_api.h"\n\n'.encode()
    rows = list(zip(export.constants, export.constant_arrays, strict=True))
    for i, (array, values) in enumerate(rows):
        yield from _definition(f"weight_{i}", array, values)
    if rows:
        table = ", ".join(f"weight_{i}" for i in range(len(rows)))
        yield f"extern const void *const {name}_weights[{len(rows)}];\n".encode()
        yield f"const void *const {name}_weights[{len(rows)}] = {{{table}}};\n\n".encode()
    if not export.training:
        return
    kept = list(zip(export.kept, export.kept_arrays, strict=True))
    for i, (array, values) in enumerate(kept):
        yield from _definition(f"first_{i}", array, values)
    yield f"void {name}_reset(void *state) {{\n  unsigned char *const to = state;\n".encode()
    for i, (array, _) in enumerate(kept):
        yield f"  memcpy(to + {array.offset}, first_{i}, {array.bytes});\n".encode()
    yield b"}\n"


def _definition(label: str, array: Array, values: np.ndarray) -> Iterator[bytes]:
    yield f"/* {described(array)} */\n".encode()
    count = max(1, values.size)
    yield f"static const {c_type(array)} {label}[{count}] = {{".encode()
    flat = values.reshape(-1)
    for start in range(0, flat.size, 4096):
        texts = [_literal(value, array.dtype) for value in _numbers(flat[start : start + 4096])]
        for row in range(0, len(texts), 8):
            yield ("\n  " + ", ".join(texts[row : row + 8]) + ",").encode()
    yield b"\n};\n\n" if flat.size else b"0};\n\n"


def _numbers(values: np.ndarray) -> list[Any]:
    is_half = values.dtype.itemsize == 2 and values.dtype.kind not in "iu"
    return (values.view(np.uint16) if is_half else values).tolist()


def _literal(value: Any, dtype: str) -> str:
    """A number that C reads to the bit: floats in hexadecimal."""
    if dtype in ("float32", "float64"):
        if math.isnan(value):
            return "NAN"
        if math.isinf(value):
            return "INFINITY" if value > 0 else "-INFINITY"
        return float(value).hex() + ("f" if dtype == "float32" else "")
    if dtype == "int64":
        return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"
    if dtype == "int32":
        return "INT32_MIN" if value == -(2**31) else str(value)
    return str(int(value))


__all__ = ["arrays", "c_type", "commented", "described", "header", "source"]
