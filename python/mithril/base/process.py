"""What loading asks of the process: its main interpreter, and that signals wait."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import contextlib
import importlib
from collections.abc import Iterator


def refuse_subinterpreters() -> None:
    """The engine and NumPy know one interpreter of a process; in another one they would hang."""
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
    """Lets the handler of Ctrl-C run when the block is done.

    NumPy that is interrupted while it loads raises an ImportError, and cannot be loaded again.
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
