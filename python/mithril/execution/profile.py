"""Times the functions that emitted source calls (MITHRIL_PROFILE=1)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mithril import _core


class _ProfiledOps:
    """The table of functions of a backend; each is wrapped when it is first looked up."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._backend.ops, name)
        timed = _timed(self._backend, name, value) if callable(value) else value
        setattr(self, name, timed)
        return timed


def _timed(backend: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    kernel = f"{backend.backend_type}.{name}"

    def timed(*operands: Any, **attributes: Any) -> Any:
        start = time.perf_counter_ns()
        result = function(*operands, **attributes)
        _wait(backend, result)
        moved = sum(_byte_count(x) for x in (*operands, result))
        _core.profile_add(kernel, time.perf_counter_ns() - start, moved)
        return result

    return timed


def _wait(backend: Any, result: Any) -> None:
    try:
        backend.block_until_ready(result)
    except Exception:  # a tracer has nothing to wait for
        return


def _byte_count(value: Any) -> int:
    if isinstance(value, tuple | list):
        return sum(_byte_count(item) for item in value)
    count: Any = getattr(value, "nbytes", 0)
    return count if isinstance(count, int) else 0


def profiled(backend: Any) -> Any:
    """`backend.ops`, counted."""
    return _ProfiledOps(backend)


__all__ = ["profiled"]
