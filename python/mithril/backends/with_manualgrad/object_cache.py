"""Compiled objects on disk, shared by all processes of a user.

A file's name is the key of its object; its last 32 bytes are the SHA-256 of what stands before
them. So an object that was cut or changed is compiled again instead of loaded. Files appear by a
rename, whole: processes that compile the same text at once write the same bytes.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mithril import _core
from mithril.base.files import replacing
from mithril.errors import CompilerError, MithrilError

__all__ = ["ObjectCache", "folder_of_user", "key_of", "not_ours"]

MOST_BYTES = 256 << 20
_LEFT_AFTER = 3600.0  # seconds: what a process that was killed left beside the objects
_DIGEST = hashlib.sha256().digest_size
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_logger = logging.getLogger("mithril.codegen")


def folder_of_user(kind: str) -> Path:
    """Returns the folder in which the processes of a user share files of a kind."""
    return Path(_core.cache_dir() or os.path.expanduser("~/.cache/mithril")) / kind


def key_of(*parts: str) -> str:
    """Names the object that is made of these texts: 64 hexadecimal digits."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        hashed.update(b"%d:" % len(data) + data)
    return hashed.hexdigest()


class ObjectCache:
    """Objects by key in a folder; where that cannot be used, in one of the process."""

    def __init__(self, folder: Path | None, suffix: str = ".so") -> None:
        self.folder = folder  # None: the process's own only
        self.suffix = suffix
        self._own: dict[str, str] = {}  # key -> path, of those in the folder of the process

    @staticmethod
    def of_user(kind: str, suffix: str = ".so") -> ObjectCache:
        """Returns the cache that the processes of a user share for objects of a kind."""
        return ObjectCache(folder_of_user(kind), suffix)

    @staticmethod
    def of_process() -> ObjectCache:
        """Returns a cache that is removed when this process ends."""
        return ObjectCache(None)

    def path(self, key: str, make: Callable[[], bytes]) -> str:
        """Returns the path of the object of a key; `make` creates it if there is none."""
        own = self._own.get(key, "")
        if os.path.exists(own):  # a fork's parent may have ended
            return own
        found = self._found(key)
        if found is not None:
            return found
        made = make()
        return self._kept(key, made) or self._of_process(key, made)

    def _file(self, key: str) -> Path | None:
        return None if self.folder is None else self.folder / f"{key}{self.suffix}"

    def _found(self, key: str) -> str | None:
        """Returns the path of an object if it is in the folder and intact, else None."""
        file = self._file(key)
        if file is None:
            return None
        try:
            if not_ours(file.parent):
                return None
            data = file.read_bytes()
            if hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
                _logger.warning("%s is damaged; it is compiled again", file)
                return None
            with contextlib.suppress(OSError):
                os.utime(file)  # it was used now
        except OSError:
            return None
        return str(file)

    def _kept(self, key: str, made: bytes) -> str | None:
        """Writes an object to the folder; returns its path, or None if it cannot be written."""
        file = self._file(key)
        if file is None:
            return None
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not_ours(file.parent):
                raise PermissionError(f"{file.parent} may be written by other users")
            with replacing("cache of objects", file) as to:
                to.write(made + hashlib.sha256(made).digest())
        except (OSError, MithrilError) as error:
            _logger.warning("objects are not kept on disk: %s", error)
            return None
        with contextlib.suppress(OSError):
            _trim(file.parent, self.suffix)
        return str(file)

    def _of_process(self, key: str, made: bytes) -> str:
        try:
            path = os.path.join(_folder_of_process(), f"{key}{self.suffix}")
            with replacing("object", path) as to:
                to.write(made)
        except OSError as error:
            raise CompilerError(f"an object cannot be written: {error}") from None
        self._own[key] = path
        return path


def not_ours(folder: Path) -> str:
    """Says why others could put objects there, which are code; "" where nobody else can."""
    found = os.stat(folder)
    if found.st_uid != os.getuid():
        return "it belongs to another user"
    return "other users may write to it" if found.st_mode & _OTHERS_WRITE else ""


def _trim(folder: Path, suffix: str) -> None:
    """Removes the least recently used objects beyond the limit, and stale temporary files."""
    found, total = [], 0
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # another process removes, too
                facts = entry.stat(follow_symlinks=False)
                if not entry.name.endswith(suffix):
                    if time.time() - facts.st_mtime > _LEFT_AFTER:
                        os.unlink(entry.path)
                    continue
                found.append((facts.st_mtime, facts.st_size, entry.path))
                total += facts.st_size
    for _, size, path in sorted(found):
        if total <= MOST_BYTES:
            break
        with contextlib.suppress(OSError):
            os.unlink(path)
        total -= size


_lock = threading.Lock()
_folders: dict[int, str] = {}  # by process: forked children have their own


def _folder_of_process() -> str:
    """A folder that is removed when this process ends."""
    with _lock:
        process = os.getpid()
        if not os.path.isdir(_folders.get(process, "")):  # what cleans folders may have removed it
            folder = _folders[process] = tempfile.mkdtemp(prefix="mithril-")
            atexit.register(_remove, process, folder)
        return _folders[process]


def _remove(process: int, folder: str) -> None:
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
