"""A small program that shows, in a process of its own, whether what a compiler makes can be called
here and does what the text says: a compiler may have flags of its own, or make instructions that
the processor lacks."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from mithril.errors import CompilerError

__all__ = ["TEXT", "check"]

_TYPES = {
    "char": 1, "short": 2, "int": 4, "int8_t": 1, "uint8_t": 1, "int16_t": 2, "int32_t": 4,
    "uint32_t": 4, "int64_t": 8, "uint64_t": 8, "float": 4, "double": 8,
    "size_t": ctypes.sizeof(ctypes.c_size_t), "void *": ctypes.sizeof(ctypes.c_void_p),
}  # fmt: skip
# Names and terms of float32 numbers that flags of fast mathematics, fused products and extended
# precision round in other ways; with what they are for the numbers below.
_X = (1.0 + 2.0**-12, -(1.0 + 2.0**-11), 1e30, 2.0**-140, 3.0)
_TERMS = {
    "products are fused with sums": ("x[0] * x[0] + x[1]", 0.0),
    "sums are in another order": ("x[0] + x[2] - x[2]", 0.0),
    "numbers have more digits than float32": ("x[2] * x[2] / x[2]", float("inf")),
    "denormal numbers are 0": ("x[3] / 2.0f", 2.0**-141),
    "NaN is left out": ("x[2] * x[2] - x[2] * x[2] == 0.0f || isnan(x[4])", 0.0),
}
_COUNT = 256  # of numbers: enough for vectors of any width
TEXT = f"""#include <math.h>
#include <stddef.h>
#include <stdint.h>
int64_t mithril_probe(const float *restrict x, float *restrict y, int32_t *restrict sizes) {{
  {" ".join(f"sizes[{i}] = sizeof({name});" for i, name in enumerate(_TYPES))}
  {" ".join(f"y[{i}] = {term};" for i, (term, _) in enumerate(_TERMS.values()))}
  for (int i = {len(_TERMS)}; i < {_COUNT}; i++) y[i] = fmaf(x[i], x[i], 1.0f);
  return y[{_COUNT - 1}] == 1.0f ? INT64_MIN : 0;
}}
"""
_CALL = f"""
import ctypes, sys
probe = ctypes.CDLL(sys.argv[1]).mithril_probe
probe.restype = ctypes.c_int64
x, y = (ctypes.c_float * {_COUNT})(*{_X}), (ctypes.c_float * {2 * _COUNT})()
sizes = (ctypes.c_int32 * {2 * len(_TYPES)})()
result = probe(x, y, sizes)
print(result, *sizes[:{len(_TYPES)}], bytes(y)[:{4 * len(_TERMS)}].hex())
"""


def check(made: bytes, of: str) -> None:
    """Loads an object of TEXT and calls it.

    Raises
    ------
    CompilerError : sizes, functions or results are not those that the text states
    """
    try:
        done = _called(made)
    except OSError as error:
        raise CompilerError(f"no object of {of} can be tried: {error}") from None
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        ended = said[-1] if said else f"a call ends with signal {-done.returncode}"
        raise CompilerError(f"{of} makes objects that cannot be used here: {ended}")
    wrong = _wrong(*done.stdout.split())
    if wrong:
        raise CompilerError(f"{of} makes other programs than the text says: {', '.join(wrong)}")


def _called(made: bytes) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory(prefix="mithril-") as folder:
        path = Path(folder, "probe.so")
        path.write_bytes(made)
        command = [sys.executable, "-I", "-S", "-c", _CALL, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def _wrong(result: str, *found: str) -> list[str]:
    """Lists the results of the test program that are not as expected."""
    *sizes, numbers = found
    out = [
        f"{name} has {got} bytes"
        for (name, want), got in zip(_TYPES.items(), sizes, strict=True)
        if int(got) != want
    ]
    if int(result) != -(2**63):
        out.append("functions return other numbers")
    terms = struct.iter_unpack("f", bytes.fromhex(numbers))
    return out + [
        why for (why, (_, want)), (got,) in zip(_TERMS.items(), terms, strict=True) if got != want
    ]
