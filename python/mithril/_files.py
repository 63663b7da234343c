"""Writing a file so that at any moment there is the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import IO, Any

from mithril.errors import ArgumentError, SignatureError, shown


def path_of(what: str, path: Any) -> str:
    try:
        found = os.fsdecode(path)
        os.fsencode(found)
    except Exception:  # of somebody's __fspath__, too
        raise SignatureError(f"{what}: requires a path, got {shown(path)}") from None
    if "\0" in found or not found:
        raise ArgumentError(f"{what}: no file can be called {shown(found)}")
    return found


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
    temporary = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(6)}.tmp")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
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
