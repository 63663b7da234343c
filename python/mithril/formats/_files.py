"""Helpers of readers and writers of files: errors of damaged files, streams that hash."""

from __future__ import annotations

import hashlib
from typing import Any

from mithril.errors import ParseError

CHUNK = 1 << 20


def damaged(what: str, problem: str, hint: str = "") -> ParseError:
    """Returns the error for a file that is damaged: not as it was written."""
    return ParseError(f"{what}: {problem}", code="MTH603", hint=hint)


class Hashed:
    """A stream that counts and hashes the bytes that pass through it."""

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
        """Reads `count` bytes, or fewer where the stream ends."""
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
