"""Writing a file so that at any moment there is the old one or the new one, and hashing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from typing import IO, Any

from mithril.errors import ArgumentError, ParseError, SignatureError, shown

CHUNK = 1 << 20


def damaged(what: str, problem: str) -> ParseError:
    """A file that is not what was written."""
    return ParseError(f"{what}: {problem}", code="MTH603")


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
def replacing(path: str) -> Iterator[IO[bytes]]:
    """A file to write; it takes the place of `path` when the block ends without an error."""
    target = os.path.realpath(path)
    mode = None
    if os.path.exists(target):
        found = os.stat(target).st_mode
        if not stat.S_ISREG(found):
            raise ArgumentError(f"save: requires the path of a file, got {shown(path)}")
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


class Hashed:
    """A stream, what went through it counted and hashed."""

    def __init__(self, stream: Any):
        self._stream = stream
        self._hash = hashlib.sha256()
        self.size = 0

    def _note(self, data: Any) -> None:
        self._hash.update(data)
        self.size += len(data)

    def write(self, data: Any) -> None:
        self._stream.write(data)
        self._note(data)

    def read(self, count: int) -> bytes:
        """As many bytes, or fewer where the stream ends."""
        parts = []
        while count > 0:
            data = self._stream.read(min(count, CHUNK))
            if not data:
                break
            self._note(data)
            parts.append(data)
            count -= len(data)
        return b"".join(parts)

    def readinto(self, view: memoryview) -> int:
        """Fills the bytes of `view`; returns how many there were."""
        done = 0
        while done < len(view):
            data = self._stream.read(min(len(view) - done, CHUNK))
            if not data:
                break
            self._note(data)
            view[done : done + len(data)] = data
            done += len(data)
        return done

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
