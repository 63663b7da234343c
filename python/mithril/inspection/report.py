"""The report of `compile(..., verbose=True)`: backend, keys, outputs and passes."""

from __future__ import annotations

import logging
from typing import Any

from mithril.inspection.summary import columns, key_rows
from mithril.physical.compilation import compilation_of

_logger = logging.getLogger("mithril.compile")


def log_report(physical: Any) -> None:
    """Logs the report at INFO; where no handler would show it, it is printed."""
    text = report(physical)
    if _logger.isEnabledFor(logging.INFO) and _logger.hasHandlers():
        _logger.info(text)
    else:
        print(text)


def report(physical: Any) -> str:
    """Returns a table of the keys, and one of the passes with their times."""
    compiled = compilation_of(physical).compiled
    rows = [row[:-1] for row in key_rows(physical, shapes=True, types=False)]
    lines = [f"compiled for {physical.backend!r}", *columns(rows)]
    passes = [
        (name, f"{seconds * 1e3:.2f} ms", "changed" if changed else "")
        for name, seconds, changed in compiled.records
    ]
    return "\n".join([*lines, *columns([("pass", "time", ""), *passes])])
