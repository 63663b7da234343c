"""What `compile(..., verbose=True)` tells: backend, keys, outputs and passes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

_logger = logging.getLogger("mithril.compile")


def tell(physical: Any) -> None:
    """Logs the report at INFO; where no handler would show it, it is printed."""
    text = report(physical)
    if _logger.isEnabledFor(logging.INFO) and _logger.hasHandlers():
        _logger.info(text)
    else:
        print(text)


def report(physical: Any) -> str:
    """A table of the keys, and one of the passes with their times."""
    compiled, shapes = physical._compiled, physical.shapes
    rows = [("key", "role", "dtype", "shape")]
    for key in physical._keys:
        role = "trainable" if key.trainable else key.role
        rows.append((key.name, role, str(key.dtype or key.type), _shape(shapes[key.name])))
    for name in physical.output_keys:
        dtype, _ = compiled.output_types.get(name, (None, None))
        rows.append((name, "output", str(dtype or ""), _shape(shapes.get(name))))
    lines = [f"compiled for {physical.backend!r}", *_table(rows)]
    passes = [
        (name, f"{seconds * 1e3:.2f} ms", "changed" if changed else "")
        for name, seconds, changed in compiled.records
    ]
    return "\n".join([*lines, *_table([("pass", "time", ""), *passes])])


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _shape(shape: list | None) -> str:
    if shape is None:
        return "--"
    return "[" + ", ".join("None" if n is None else str(n) for n in shape) + "]"
