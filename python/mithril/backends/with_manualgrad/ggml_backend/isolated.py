"""ggml in a process of its own: should it end that process, this one goes on with an error, and the
next call starts another one.

The two talk over pipes in pickles, which nobody else can write to.
"""

from __future__ import annotations

import linecache
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any

from mithril.errors import InternalError

_LENGTH = 8  # bytes before each message


class IsolatedGGML:
    """Runs programs by a backend with these options in another process; threads take turns."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def call(
        self, program: Callable[..., Any], inputs: Sequence[Any], parameters: Iterable[int]
    ) -> list[Any]:
        """The outputs of a loaded program (emitted.py).

        Raises
        ------
        InternalError : ggml has ended its process
        """
        with self._lock:
            try:
                number = self._number_of(program, parameters)
                is_done, result = self._asked("call", number, list(inputs))
            except (EOFError, OSError):
                raise InternalError(f"ggml ended its process: {self._stop()}") from None
            except BaseException:
                self._stop()
                raise
        if not is_done:
            raise result
        return result

    def _number_of(self, program: Callable[..., Any], parameters: Iterable[int]) -> int:
        """Returns the number of a program in the other process; sends the program if it is new."""
        if self._process is None or self._owner != os.getpid():
            self._start()
        if program not in self._numbers:
            text = "".join(linecache.getlines(program.__code__.co_filename))
            constants = program.__globals__["C"]
            is_done, number = self._asked("program", text, constants, sorted(parameters))
            if not is_done:
                raise number
            self._numbers[program] = number
        return self._numbers[program]

    def _asked(self, *message: Any) -> Any:
        assert self._process is not None and self._process.stdin and self._process.stdout
        write(self._process.stdin, message)
        return read(self._process.stdout)

    def _start(self) -> None:
        worker = f"{__package__}.worker"
        code = f"import sys; sys.path[:] = {sys.path!r}; from {worker} import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process
        )
        self._owner = os.getpid()
        self._numbers.clear()
        weakref.finalize(self, _end, self._process, self._owner)
        is_done, error = self._asked("options", self._options)
        if not is_done:
            raise error

    def _stop(self) -> str:
        """Ends the process; returns as text how it had ended, if it had."""
        process, self._process = self._process, None
        if process is None:
            return "it did not start"
        try:
            status = process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            status = None
        _end(process, self._owner)
        return "it is stopped" if status is None else f"exit status {status}"


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if owner != os.getpid():  # of the process that this one was forked from
        return
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def write(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.write(len(data).to_bytes(_LENGTH, "little") + data)
    pipe.flush()


def read(pipe: IO[bytes]) -> Any:
    length = pipe.read(_LENGTH)
    data = pipe.read(int.from_bytes(length, "little"))
    if len(length) < _LENGTH or not data:
        raise EOFError
    return pickle.loads(data)
