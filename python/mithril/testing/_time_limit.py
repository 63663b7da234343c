"""A limit on the time of a call, for checks of functions that may never return."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class OutOfTime(BaseException):
    """Ends a call that ran too long. It is no `Exception`, which what is called might catch."""


_AGAIN = 0.25  # seconds


class _Clock:
    """Raises `OutOfTime` in the thread that made it, once `seconds` are over, while it is armed.

    It rings again until it is stopped: what is raised in a callback of the garbage collector, a
    `__del__` or the like is printed and lost.
    """

    def __init__(self, seconds: float) -> None:
        self.is_armed = False
        self._thread = ctypes.c_ulong(threading.get_ident())
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._has_rung = False
        threading.Thread(target=self._run, args=(seconds,), daemon=True).start()

    def _run(self, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            with self._lock:
                if self.is_armed:
                    self._has_rung = True
                    _raise_in(self._thread, OutOfTime)
            seconds = _AGAIN

    def stop(self) -> None:
        """Ends it; what it has raised and the thread has not seen yet is taken back."""
        with self._lock:
            self._stopped.set()
            if self._has_rung:
                _raise_in(self._thread, None)


def _raise_in(thread: ctypes.c_ulong, error: type[BaseException] | None) -> None:
    """Has a thread raise an error at its next line of Python; None: no error any more."""
    raised = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, raised)


def within(seconds: float | None, call: Callable[[], T]) -> T:
    """Returns the result of a call; raises `OutOfTime` where its Python code runs longer than
    `seconds` (None: no limit). Code of a library is not stopped before it returns to Python.

    >>> within(10.0, lambda: 6 * 7)
    42
    """
    if seconds is None:
        return call()
    clock = _Clock(seconds)
    try:
        clock.is_armed = True
        return call()
    finally:
        # Python raises nothing before this is done: it calls no function. One ring may be on its
        # way from then on, and no more.
        clock.is_armed = False
        try:
            clock.stop()
        except OutOfTime:
            clock.stop()


__all__ = ["OutOfTime", "within"]
