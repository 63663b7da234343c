"""Requirements of loading: the main interpreter of the process, and signals that wait."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import importlib
from collections.abc import Iterator


def refuse_subinterpreters() -> None:
    """Raises ImportError in a subinterpreter, where the engine and NumPy would hang."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError(
                "mithril runs in the main interpreter of a process only, not in subinterpreters;"
                " use threads or processes"
            )
        return


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Delays the handler of Ctrl-C until the end of the block.

    If its import is interrupted, NumPy raises an ImportError and cannot be imported again.
    """
    handler = _signal.getsignal(_signal.SIGINT)
    came: list[tuple] = []
    try:
        if callable(handler):
            _signal.signal(_signal.SIGINT, lambda *given: came.append(given))
    except ValueError:  # on another thread, which signals do not interrupt
        handler = None
    try:
        yield
    finally:
        if callable(handler):
            _signal.signal(_signal.SIGINT, handler)
            if came:
                handler(*came[0])
