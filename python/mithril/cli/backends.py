"""`mithril backends`: which backends run here; `mithril backends NAME --ops`: how one runs each op.

An op is native where a function or kernel of its own runs it, emulated where it runs by NumPy's
functions or is made of other ops, and missing where the backend refuses it.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from mithril.backends.registry import available_backends, backend_class
from mithril.errors import MithrilError

HEADINGS = {
    "own": "by methods of the class itself",
    "native": "native",
    "fallback": "emulated by functions of NumPy or the engine",
    "decomposed": "emulated, made of other ops",
    "inlined": "emulated, part of what reads it",
    "folded": "computed when the model is compiled",
    "missing": "missing",
}


def run(arguments: Sequence[str]) -> int:
    """Prints the table; 1 where the named backend cannot be made here."""
    parser = argparse.ArgumentParser(
        "mithril backends", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", nargs="?", help="such as numpy; without it: all backends")
    parser.add_argument("--ops", action="store_true", help="how the backend runs each op")
    options = parser.parse_args(list(arguments))
    if options.name is None:
        for name in available_backends():
            print(f"{name:<8} {_state(name)}")
        return 0
    try:
        backend = backend_class(options.name)()
    except MithrilError as error:
        print(f"mithril backends: {error}", file=sys.stderr)
        return 1
    print("\n".join(_facts(backend)))
    if options.ops:
        print("\n" + _ops(backend))
    return 0


def _state(name: str) -> str:
    """The backend as it is made without arguments, or why there is none."""
    try:
        return repr(backend_class(name)())
    except MithrilError as error:
        return "not here: " + str(error).splitlines()[0]
    except ImportError as error:
        return f"not here: {error}"


def _facts(backend: Any) -> list[str]:
    facts = backend.capabilities
    return [
        repr(backend),
        f"gradients: by the {facts.autodiff}; compiled: {'yes' if facts.jit else 'no'}",
        f"element types: {', '.join(str(dtype) for dtype in facts.dtypes)}",
        f"devices: {', '.join(facts.devices)}",
    ]


def _ops(backend: Any) -> str:
    from mithril import _core
    from mithril.testing import op_matrix

    found: dict[str, list[str]] = {kind: [] for kind in HEADINGS}
    for op in _core.ops():
        if op["samples"]:
            case = next(iter(op_matrix.cases(op)))
            found[_kind(case, backend, op)].append(op["name"])
    parts = []
    for kind, names in found.items():
        if names:
            text = textwrap.fill(", ".join(sorted(names)), 100, initial_indent="  ",
                                 subsequent_indent="  ")  # fmt: skip
            parts.append(f"{HEADINGS[kind]} ({len(names)})\n{text}")
    return "\n".join(parts)


def _kind(case: Any, backend: Any, op: Mapping[str, Any]) -> str:
    """Tells how the op's first sample runs."""
    from mithril.testing import op_matrix

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = op_matrix.compiled(case, backend)
            if hasattr(backend, "coverage"):  # of a graph that the first call makes
                op_matrix.evaluate(model, case, case.inputs)
            return op_matrix.way(model, op)
    except MithrilError:
        return "missing"


__all__ = ["run"]
