"""Tables of pages that compare backends, from the `capabilities` of their classes.

A page has a table between two comments, and `mithril docs` writes what stands between them::

    <!-- table NAME: generated from `capabilities` by `mithril docs` -->
    <!-- end of table -->
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from mithril.backends.registry import backend_class, built_in_backends
from mithril.types import Dtype

_TABLE = re.compile(
    r"(<!-- table (\w+): generated from `capabilities` by `mithril docs` -->\n)"
    r".*?(<!-- end of table -->)",
    re.DOTALL,
)
_HARDWARE = {"cpu": "CPU", "gpu": "GPU", "cuda": "GPU (CUDA)", "mps": "GPU (Apple)", "tpu": "TPU"}


def filled(text: str, supports: Callable[[], dict[str, Callable[[dict[str, Any]], str]]]) -> str:
    """The page with its tables as they are now; `supports`: how backends run an op."""
    makers = {
        "abilities": _abilities,
        "precision": _precision,
        "ops": lambda: _ops(supports()),
    }
    return _TABLE.sub(lambda found: f"{found[1]}{makers[found[2]]()}\n{found[3]}", text)


def built_in_ops() -> list[dict[str, Any]]:
    """The ops of the registry but for those that a program declared, and those that only plans
    have: they stand for others."""
    from mithril import _core

    every = _core.ops()
    bounded = {op["bounded"] for op in every}
    declared = ("user", "opaque", "own")
    return [op for op in every if op["family"] not in declared and op["name"] not in bounded]


def has_tables(text: str) -> bool:
    return _TABLE.search(text) is not None


def _classes() -> list[tuple[str, Any]]:
    return [(name, backend_class(name)) for name in built_in_backends()]


def _abilities() -> str:
    rows = [("backend", "name", "it is", "gradients", "compiler", "sizes from data", "devices",
             "several at once")]  # fmt: skip
    for name, cls in _classes():
        can = cls._capabilities_of_class()
        what = (cls.__doc__ or "").strip().split("\n\n")[0].split(". ")[0].rstrip(".:")
        rows.append((f"`{cls.__name__}`", f'"{name}"', " ".join(what.split()),
                     f"by the {can.autodiff}", _mark(can.jit), _mark(can.open_sizes),
                     ", ".join(_HARDWARE[kind] for kind in can.hardware),
                     _mark(can.parallel)))  # fmt: skip
    return _text(rows)


def _precision() -> str:
    floats = [dtype for dtype in Dtype if dtype.is_float]
    rows = [("backend", *map(str, floats), "mixed precision", "weights in few bits")]
    for _, cls in _classes():
        can = cls._capabilities_of_class()
        marks = [_mark(dtype in can.dtypes) for dtype in floats]
        rows.append((f"`{cls.__name__}`", *marks, ", ".join(map(str, can.halves)) or "no",
                     ", ".join(can.weights) or "no"))  # fmt: skip
    return _text(rows)


def _ops(supports: dict[str, Callable[[dict[str, Any]], str]]) -> str:
    """Counts how many of the registry's ops a backend runs in each way."""
    counts = {name: Counter(how(op) for op in built_in_ops()) for name, how in supports.items()}
    ways = sorted({way for count in counts.values() for way in count})
    rows = [("backend", *ways)]
    rows += [(name, *(str(count[way]) for way in ways)) for name, count in counts.items()]
    return _text(rows)


def _mark(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _text(rows: Iterable[tuple[str, ...]]) -> str:
    head, *others = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([head, "| " + " | ".join(["---"] * (head.count(" | ") + 1)) + " |", *others])
