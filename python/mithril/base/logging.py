"""Debug output of the engine, to `sys.stderr` and the loggers below `mithril`."""

from __future__ import annotations

import sys
from typing import Any

from mithril import _core

TOPICS = ("passes", "memory", "codegen", "recompile", "kernels")


def write(text: str) -> bool:
    """Writes whole lines of MITHRIL_DEBUG and MITHRIL_PROFILE to `sys.stderr`."""
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()
    return True


def listens(topic: str, level: str) -> bool:
    """Tells whether a record would be logged; never before `logging` is imported."""
    found = _loggers.get((topic, level))
    if found is None:
        _configure()
        logging = sys.modules.get("logging")
        if logging is None:
            return False
        found = logging.getLogger(f"mithril.{topic}"), getattr(logging, level.upper())
        _loggers[topic, level] = found
    logger, number = found
    return logger.isEnabledFor(number)


def log(topic: str, level: str, text: str) -> bool:
    import logging

    logging.getLogger(f"mithril.{topic}").log(getattr(logging, level.upper()), "%s", text)
    return True


def note_option(backend: str, option: str, text: str) -> None:
    """Tells that an option of a backend has less effect here than it may elsewhere."""
    import logging

    logging.getLogger("mithril").info("%s(%s): %s", backend, option, text)


_loggers: dict[tuple[str, str], tuple[Any, int]] = {}  # (topic, level) -> logger, its number
_configured = False


def _configure() -> None:
    """Sets levels as MITHRIL_LOG says, and a handler that shows the records; runs once."""
    global _configured
    if _configured:
        return
    _configured = True
    wanted = [(t, n.upper()) for t, n in _core.log_levels() if t in ("", *TOPICS)]
    wanted = [(t, n) for t, n in wanted if n in ("DEBUG", "INFO", "WARNING", "ERROR")]
    if not wanted:
        return
    import logging

    logger = logging.getLogger("mithril")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s %(levelname)s: %(message)s"))
    logger.addHandler(handler)
    logger.propagate = False
    for topic, level in wanted:
        logging.getLogger(f"mithril.{topic}" if topic else "mithril").setLevel(level)
