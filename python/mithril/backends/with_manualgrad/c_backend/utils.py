"""The system's C compiler: which one, with what flags, and what it says when it fails."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mithril.backends.with_manualgrad.c_backend import probe
from mithril.backends.with_manualgrad.c_backend.flags import FIXED_FLAGS, checked_flags
from mithril.backends.with_manualgrad.object_cache import key_of
from mithril.base.files import path_of
from mithril.errors import (
    CompilerError,
    CompilerWarning,
    DeviceNotAvailable,
    shown,
    warn,
)

__all__ = ["FIXED_FLAGS", "Compiler"]

_OPTIMIZING = ("-O3", "-march=native")
_PORTABLE = ("-O3",)
_KNOWN = ("cc", "gcc", "clang")
_INSTALL = "apt-get install gcc libc6-dev (macOS: xcode-select --install)"
_LONGEST = 4000  # characters of what a compiler prints
_logger = logging.getLogger("mithril.codegen")


@dataclass(frozen=True)
class Compiler:
    """A C compiler with its flags; `identity` differs where its objects might."""

    path: str
    flags: tuple[str, ...]
    identity: str

    @staticmethod
    def found(compiler: Any, flags: Any, threads: int) -> Compiler:
        """Returns the compiler that a backend asks for, tried on a small program."""
        path = _path_of(compiler)
        modified = os.stat(path).st_mtime_ns
        own = checked_flags(flags)
        parallel = ("-fopenmp",) if threads > 1 else ()
        if own is not None:
            return _tried(path, modified, (*own, *parallel))
        try:
            return _tried(path, modified, (*_OPTIMIZING, *parallel))
        except CompilerError:  # not every one knows the processor
            return _tried(path, modified, (*_PORTABLE, *parallel))

    def key_of(self, source: str) -> str:
        """Returns the cache key of a text's object: 64 hexadecimal digits."""
        return key_of(self.path, *self.flags, self.identity, source)

    def shared_object(self, source: str, name: str) -> bytes:
        """The bytes of a shared object of a C text."""
        start = time.perf_counter()
        try:
            made, said = self._compiled(source)
        except OSError as error:  # of the system's folder for temporary files
            raise CompilerError(f"no file can be written for {self.path}: {error}") from None
        if said:
            warn(f"{self.path} warned of the C text of a model:\n{said}", CompilerWarning)
        _logger.info("%s: %s compiled in %.2f s", self.path, name, time.perf_counter() - start)
        return made

    def _compiled(self, source: str) -> tuple[bytes, str]:
        """Compiles a text to a shared object; returns its bytes and the compiler's output."""
        with tempfile.TemporaryDirectory(prefix="mithril-") as folder:
            of, to = os.path.join(folder, "model.c"), os.path.join(folder, "model.so")
            with open(of, "w", encoding="utf-8") as file:
                file.write(source)
            said = _run([self.path, *self.flags, "-fPIC", "-shared", of, "-o", to, "-lm"])
            if not os.path.exists(to):
                raise CompilerError(f"{self.path} wrote no object, and said:\n{said}")
            with open(to, "rb") as file:
                return file.read(), said


def _path_of(compiler: Any) -> str:
    if compiler is None:
        paths = filter(None, map(shutil.which, _KNOWN))
        found = next(paths, None)
        if found is None:
            raise DeviceNotAvailable(
                f"CBackend: there is no C compiler: none of {', '.join(_KNOWN)} is on the PATH",
                hint=_INSTALL,
            )
        return os.path.abspath(found)
    named = path_of("CBackend: compiler", compiler)
    found = shutil.which(named)
    if found is None:
        raise DeviceNotAvailable(f"CBackend: there is no C compiler {shown(named)}", hint=_INSTALL)
    return os.path.abspath(found)


@functools.lru_cache(maxsize=64)
def _tried(path: str, modified: int, flags: tuple[str, ...]) -> Compiler:
    """The compiler, if it compiles; `modified` tells it from an older one of this path."""
    flags = (*FIXED_FLAGS, *flags)
    # All that the compiler defines: its version, and the instructions that the flags allow.
    defined = _run([path, *flags, "-dM", "-E", "-x", "c", os.devnull])
    made = Compiler(path, flags, hashlib.sha256(defined.encode()).hexdigest())
    probe.check(made.shared_object(probe.TEXT, "a small program"), path)
    return made


def _run(command: Sequence[str]) -> str:
    """Runs a command and returns its output; raises CompilerError with it if the command fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        raise CompilerError(f"{command[0]} cannot be run: {error.strerror}") from None
    said = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode == 0:
        return said
    if done.returncode < 0:
        ended, hint = f"was killed by {_signal_name(-done.returncode)}", "is memory short?"
    else:
        ended, hint = f"failed with exit status {done.returncode}", ""
    if len(said) > _LONGEST:
        said = f"{said[:_LONGEST]}\n..."
    flags = " ".join(flag for flag in command[1:] if flag.startswith("-"))
    raise CompilerError(f"{command[0]} {flags} {ended}" + (f":\n{said}" if said else ""), hint=hint)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
