"""Reading a file, and writing one so that at any moment there is the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from typing import IO, Any

from mithril.errors import ArgumentError, SignatureError, shown

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_TOKEN = 6  # random bytes of a temporary file's name
_YOUNG = 60.0  # seconds: a file that another process has just made is not locked yet


def path_of(what: str, path: Any) -> str:
    try:
        found = os.fsdecode(path)
        os.fsencode(found)
    except Exception:  # of somebody's __fspath__, too
        raise SignatureError(f"{what}: requires a path, got {shown(path)}") from None
    if "\0" in found or not found:
        raise ArgumentError(f"{what}: no file can be called {shown(found)}")
    return found


def opened(what: str, path: Any) -> IO[bytes]:
    """A file to read: a pipe would wait for somebody to write, and a folder has no bytes."""
    name = path_of(what, path)
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    if os.path.exists(name) and not os.path.isfile(name):
        kind = "a folder" if os.path.isdir(name) else "a pipe or a device"
        raise ArgumentError(
            f"{what}: requires the path of a file, got {kind}: {shown(name)}", hint=_inside(name)
        )
    return open(name, "rb", opener=lambda path, _: os.open(path, flags))


def _inside(name: str) -> str:
    """A file of a folder, which may be the one that was meant."""
    if not os.path.isdir(name):
        return ""
    files = sorted(entry.name for entry in os.scandir(name) if entry.is_file())
    return f"it holds {shown(os.path.join(name, files[0]))}" if files else "it holds no files"


@contextlib.contextmanager
def replacing(what: str, path: Any) -> Iterator[IO[bytes]]:
    """A file to write; it takes the place of `path` when the block ends without an error."""
    target = os.path.realpath(path_of(what, path))
    mode = None
    if os.path.exists(target):
        found = os.stat(target).st_mode
        if not stat.S_ISREG(found):
            raise ArgumentError(f"{what}: requires the path of a file, got {shown(path)}")
        mode = stat.S_IMODE(found)
    folder, name = os.path.split(target)
    prefix = f".{name[:100]}."
    _remove_left(folder, prefix)
    temporary = os.path.join(folder, f"{prefix}{os.urandom(_TOKEN).hex()}.tmp")
    try:  # an interrupt may come at any place: also between the system's call and the assignment
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "w+b") as file:
            _is_locked(file.fileno())
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _is_locked(descriptor: int) -> bool:
    """Locks a temporary file while it is written; False where somebody else does that."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _remove_left(folder: str, prefix: str) -> None:
    """Removes temporary files of saves that were killed: older ones that nobody has locked."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        left = re.compile(rf"{re.escape(prefix)}[0-9a-f]{{{2 * _TOKEN}}}\.tmp")
        for entry in entries:
            if not left.fullmatch(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            if time.time() - entry.stat(follow_symlinks=False).st_mtime < _YOUNG:
                continue
            descriptor = os.open(entry.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _is_locked(descriptor):
                    os.unlink(entry.path)
            finally:
                os.close(descriptor)


def _sync_folder(folder: str) -> None:
    """The new name lasts when the machine stops now."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some file systems have no such thing
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(what: str, path: Any, text: str) -> None:
    """Replaces the file as a whole, or leaves it as it was."""
    with replacing(what, path) as file:
        file.write(text.encode())
