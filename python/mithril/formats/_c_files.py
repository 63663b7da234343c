"""The files beside the C of an exported folder: example, build files, README, binary weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mithril.backends.with_manualgrad.c_backend.utils import FIXED_FLAGS
from mithril.base.numpy import np
from mithril.formats._c_api import c_type, commented, described
from mithril.formats._c_layout import ALIGNMENT, Array, Export, end_of


def block(arrays: Sequence[Array], values: Sequence[np.ndarray], alignment: int) -> Iterator[bytes]:
    """Returns the bytes of a file with arrays, each at its offset."""
    for _array, value in zip(arrays, values, strict=True):
        data = np.ascontiguousarray(value).tobytes()
        yield data
        yield bytes(-len(data) % alignment)


# --- main.c ---------------------------------------------------------------------------------------

_MAIN = """/* Runs @ on the arrays in a folder: @_example [FOLDER [CALLS]].

   Reads FOLDER/input_0.bin … (zeros where a file is missing; a longer file has the inputs of
   several calls one after another), calls the model CALLS times and writes FOLDER/output_0.bin …
   with the results of the last call. {states}A call that fails ends the program, and nothing is
   written. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "@_api.h"

static void failed(const char *what, const char *which) {
  fprintf(stderr, "%s %s\\n", what, which);
  exit(1);
}

/* Memory at a multiple of the alignment, until the program ends. */
static void *allocated(size_t bytes) {
  unsigned char *at = malloc(bytes + ^_ALIGNMENT);
  if (at == NULL) failed("no memory for", "an array");
  memset(at, 0, bytes + ^_ALIGNMENT);
  return at + (^_ALIGNMENT - (uintptr_t)at % ^_ALIGNMENT);
}

static FILE *opened(const char *folder, const char *name, const char *mode) {
  char path[4096];
  const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  if (length < 0 || (size_t)length >= sizeof path) failed("too long:", folder);
  return fopen(path, mode);
}

/* The next array of a file, from its beginning again after the last one. */
static void read_next(FILE *file, void *to, size_t bytes, const char *name) {
  if (file == NULL || bytes == 0 || fread(to, 1, bytes, file) == bytes) return;
  rewind(file);
  if (fread(to, 1, bytes, file) != bytes) failed("too short:", name);
}

static void write_all(const char *folder, const char *name, const void *from, size_t bytes) {
  FILE *const file = opened(folder, name, "wb");
  if (file == NULL || fwrite(from, 1, bytes, file) != bytes || fclose(file) != 0) {
    failed("cannot write", name);
  }
}
"""

_MAIN_STATES = """The first call reads FOLDER/state_0.bin …,
   each further one the states that the one before it wrote, and the last ones are written to
   FOLDER/next_state_0.bin … """

_EXPLAIN = """
/* Says why a call has no results, and ends the program. */
static void explain(long call, int status, const @_context *why) {
  fprintf(stderr, "call %ld: status %d", call + 1, status);
  if (status != 1) {
    fprintf(stderr, ": stopped\\n");
  } else if (why->what == 0) {
    fprintf(stderr, " in step %d: index %lld (element %lld) is out of range: there are %lld\\n",
            why->step, (long long)why->value, (long long)why->position, (long long)why->bound);
  } else {
    fprintf(stderr, " in step %d: matrix %lld is %s\\n", why->step, (long long)why->position,
            why->what == 1 ? "singular" : "not positive definite");
  }
  exit(1);
}
"""

_READ_WHOLE = """
static void *read_whole(const char *folder, const char *name, size_t bytes) {
  FILE *const file = opened(folder, name, "rb");
  void *const to = allocated(bytes);
  if (file == NULL || fread(to, 1, bytes, file) != bytes) failed("cannot read", name);
  fclose(file);
  return to;
}
"""


def main(export: Export) -> str:
    """Returns the C of an example that runs the model on files."""
    name = export.name
    reads = export.weights == "binary" and (export.training or export.constants)
    head = _MAIN.replace("{states}", _MAIN_STATES if export.states else "")
    text = head + _EXPLAIN + (_READ_WHOLE if reads else "")
    body = [
        "int main(int argc, char **argv) {",
        '  const char *const folder = argc > 1 ? argv[1] : ".";',
        "  const long calls = argc > 2 ? strtol(argv[2], NULL, 10) : 1;",
        f"  {name}_model model;",
        f"  {name}_inputs inputs;",
        f"  {name}_outputs outputs;",
        *(f"  FILE *const {one.field} = opened(folder, \"{one.field}.bin\", \"rb\");"
          for one in export.inputs),
        "  long call;",
        '  if (calls < 1) failed("requires a number of calls above 0, got", argv[2]);',
        *_made_ready(export),
        *_fields("inputs", export.inputs),
        *_fields("outputs", export.outputs),
    ]  # fmt: skip
    first = [one for one in export.inputs if one.kind == "state"]
    each = [one for one in export.inputs if one.kind != "state"]
    verb = "step" if export.training else "evaluate"
    body += [
        *(f"  {_read_next(one)}" for one in first),
        "  for (call = 0; call < calls; ++call) {",
        "    int status;",
        *(f"    {_read_next(one)}" for one in each),
        f"    status = {name}_{verb}(&model, &inputs, &outputs);",
        "    if (status != 0) explain(call, status, &model.context);",
        *(
            f"    memcpy((void *)inputs.{at.field}, outputs.{written.field}, {at.bytes});"
            for written, at in export.states
        ),
        "  }",
    ]
    for one in export.outputs:
        body += _shown(one)
        body.append(f'  write_all(folder, "{one.field}.bin", outputs.{one.field}, {one.bytes});')
    if export.training:
        body.append('  write_all(folder, "state.bin", model.state, ^_STATE_BYTES);')
    body += ["  return 0;", "}"]
    return _named(text + "\n" + "\n".join(body) + "\n", name)


def _read_next(one: Array) -> str:
    return f'read_next({one.field}, (void *)inputs.{one.field}, {one.bytes}, "{one.field}.bin");'


def _named(text: str, name: str) -> str:
    """Replaces @ by the export's name, and ^ by that name in capitals."""
    return text.replace("@", name).replace("^", name.upper())


def _made_ready(export: Export) -> Iterator[str]:
    name = export.name
    arena = "allocated(^_ARENA_BYTES)"
    if export.weights == "array":
        state = ", allocated(^_STATE_BYTES)" if export.training else ""
        yield f"  {name}_init(&model, {arena}{state});"
        if export.training:
            yield f"  {name}_reset(model.state);"
        return
    weights = "NULL"
    if export.constants:
        weights = f'read_whole(".", "{name}_weights.bin", ^_WEIGHT_BYTES)'
    state = f', read_whole(".", "{name}_state.bin", ^_STATE_BYTES)' if export.training else ""
    yield f"  {name}_init(&model, {weights}, {arena}{state});"


def _fields(struct: str, arrays: Sequence[Array]) -> Iterator[str]:
    for one in arrays:
        yield f"  {struct}.{one.field} = allocated({one.bytes}); /* {described(one)} */"
    if not arrays:
        yield f"  {struct}.unused = 0;"


def _shown(one: Array) -> Iterator[str]:
    """Returns C that prints the first number of an output."""
    if one.bytes and not one.dtype.endswith("float16"):
        yield f'  printf("{one.field}[0] = %g\\n", (double)outputs.{one.field}[0]);'


# --- build files ----------------------------------------------------------------------------------

_MAKEFILE = """# make: the library lib@.a and the program @_example, for this processor
# make CFLAGS=-O2: for others
CFLAGS ?= -O3 -march=native{threads}
STRICT = {flags} -Wall -Wextra -pedantic
LIBS = {libs}
OBJECTS = {objects}

all: lib@.a @_example

lib@.a: $(OBJECTS)
	$(AR) rcs $@ $(OBJECTS)

@_example: main.o lib@.a
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ main.o lib@.a $(LIBS)

%.o: %.c @.h @_api.h
	$(CC) $(CFLAGS) $(STRICT) {more}-c -o $@ $<

main.o: main.c @.h @_api.h
	$(CC) $(CFLAGS) $(STRICT) -c -o $@ main.c

clean:
	rm -f lib@.a @_example *.o

.PHONY: all clean
"""

_CMAKE = """cmake_minimum_required(VERSION 3.10)
project(@_in_c C)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_EXTENSIONS OFF)

add_library(@_library STATIC {sources})
set_target_properties(@_library PROPERTIES OUTPUT_NAME @)
target_include_directories(@_library PUBLIC ${{CMAKE_CURRENT_SOURCE_DIR}})
target_compile_options(@_library PRIVATE {flags})
target_link_libraries(@_library PUBLIC {libs})
{threads}
add_executable(@_example main.c)
target_link_libraries(@_example @_library)
"""

_CMAKE_THREADS = """find_package(OpenMP COMPONENTS C)
if(OpenMP_C_FOUND)
  target_link_libraries(@_library PUBLIC OpenMP::OpenMP_C)
endif()
"""


def _sources(export: Export) -> list[str]:
    more = [f"{export.name}_weights"] if export.weights == "array" else []
    return [export.name, f"{export.name}_api", *more]


def _libs(export: Export) -> str:
    return "m" if export.source["needs_libm"] else ""


def makefile(export: Export) -> str:
    """Returns the makefile that builds library and example."""
    text = _MAKEFILE.format(
        flags=" ".join(FIXED_FLAGS),
        libs="-lm" if _libs(export) else "",
        objects=" ".join(f"{stem}.o" for stem in _sources(export)),
        more="-ffreestanding " if export.freestanding else "",
        threads=" -fopenmp" if export.threads > 1 else "",
    )
    return text.replace("$@", "\0").replace("@", export.name).replace("\0", "$@")


def cmake(export: Export) -> str:
    """Returns the CMakeLists.txt that builds library and example."""
    options = [flag for flag in FIXED_FLAGS if not flag.startswith("-std=")]
    more = ["-ffreestanding"] if export.freestanding else []
    return _CMAKE.format(
        sources=" ".join(f"{stem}.c" for stem in _sources(export)),
        flags=" ".join(options + more),
        libs=_libs(export),
        threads=_CMAKE_THREADS if export.threads > 1 else "",
    ).replace("@", export.name)


# --- README.md ------------------------------------------------------------------------------------

_README = """# @

{what} as C99, without Python. `make` builds `lib@.a` and an example, `main.c`; so does CMake.

| file | has |
| --- | --- |
| `@.c`, `@.h` | the program: `@_run` |
| `@_api.c`, `@_api.h` | calls with typed arrays: `@_init`, {calls} |
{rows}| `@.json` | the tables below, for programs |

The library allocates nothing, does no input or output, and has no state of its own: a thread that
calls it brings a `@_model` with an arena of its own, and shares the weights with the others.
{links}

| memory | bytes |
| --- | --- |
| arena, for each thread | {arena} |
| weights | {weights} |
{state}
Arrays are contiguous, the last axis runs fastest. float16 and bfloat16 are `uint16_t` with their
bits, bool is `uint8_t` with 0 or 1. Arena{blocks} begin at multiples of {alignment} bytes, inputs
and outputs at multiples of the size of their elements. Results have the same bits on every
processor as long as the flags of the `Makefile` (`STRICT`) are kept; without
`-fno-strict-aliasing` they may be wrong.

## Inputs and outputs

| field | name | elements | shape | bytes |
| --- | --- | --- | --- | --- |
{arrays}
{state_section}
## What a call returns

| result | means |
| --- | --- |
| 0 | outputs are written |
| 1 | bad data: outputs mean nothing{kept}, and `model.context` says what it is |
| 2 | stopped, because `model.context.stops` returned another number than 0 |

| `context` | after bad data |
| --- | --- |
| `what` | 0: an index is out of range; 1: a matrix is singular; 2: it is not positive definite |
| `position` | of the first such element, or matrix |
| `value`, `bound` | the index, and how many there are |
| `step` | where it was found: the number in the comments of `@.c` |
{training}"""

_STATE = """
## State

The model has state: what a call writes, the next call reads. Copy it, or exchange the pointers of
the two arrays: a call must not write where it reads. The first call reads {first}.

| a call writes | the next one reads |
| --- | --- |
{rows}

`./@_example FOLDER CALLS` does so. With `next_state_0.bin` … as `state_0.bin` …, it goes on later.
"""

_TRAINING = """
## What training updates

`@_step` computes gradients and updates parameters and the optimizer's state where they are: the
block `state`. Write it to a file to go on later. `@_rate` is where the rate is.

| offset | what | name | elements | shape |
| --- | --- | --- | --- | --- |
{rows}
"""


def readme(export: Export) -> str:
    """Returns the README: what the files are, and how arrays lie in memory."""
    is_binary = export.weights == "binary"
    weights = "weights in their order, 64 bytes aligned" if is_binary else "the weights as arrays"
    end = "bin" if is_binary else "c"
    rows = f"| `@_weights.{end}` | {weights} |\n" if export.constants or not is_binary else ""
    if is_binary and export.training:
        rows += "| `@_state.bin` | parameters and the optimizer's state at first |\n"
    kept = [
        f"| {one.offset} | {one.kind} | {_name(one)} | `{c_type(one)}`,"
        f" {one.dtype} | {list(one.shape)} |"
        for one in export.kept
    ]
    needs = "It needs libm." if export.source["needs_libm"] else "It needs no libm."
    if export.freestanding:
        needs += (
            " Of libc it needs `memcpy`, `memmove` and `memset`, as compilers do by themselves."
        )
    text = _README.format(
        what="A step of training" if export.training else "A model",
        calls="`@_step`, `@_rate`" if export.training else "`@_evaluate`",
        rows=rows,
        links=needs,
        arena=export.arena_bytes,
        weights=end_of(export.constants),
        state=f"| state of training | {end_of(export.kept)} |\n" if export.training else "",
        blocks=", weights and state" if export.training else " and weights",
        alignment=ALIGNMENT,
        state_section=_state_section(export),
        kept=", the state may be updated in part" if export.training else "",
        arrays="\n".join(map(_row, (*export.inputs, *export.outputs))),
        training=_TRAINING.format(rows="\n".join(kept)) if export.training else "",
    )
    return text.replace("@", export.name)


def _state_section(export: Export) -> str:
    if not export.states:
        return ""
    files = ", ".join(f"`{one.field}.bin`" for one in export.first_states)
    first = f"{files}, which the example wants in FOLDER, and else zeros" if files else "zeros"
    rows = [f"| `{written.field}` | `{at.field}` |" for written, at in export.states]
    return _STATE.format(first=first, rows="\n".join(rows))


def _name(one: Array) -> str:
    return f"`{commented(one.name)}`" if one.name else ""


def _row(one: Array) -> str:
    kind = f"`{c_type(one)}`, {one.dtype}"
    return f"| `{one.field}` | {_name(one)} | {kind} | {list(one.shape)} | {one.bytes} |"


__all__ = ["block", "cmake", "main", "makefile", "readme"]
